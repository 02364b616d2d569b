// The C functions of husk.h about programs and sessions: arguments are looked at here, the rest is done elsewhere.
#include "session.h"

#include "verify.h"

#include <cstring>

using husk::fail;
using husk::failed;
using husk::null_argument;
using husk::Status;

namespace {

husk_status bad_index(husk_error* error, const char* what, uint32_t index, uint32_t count) {
  return husk_status(fail(error, HUSK_INVALID_ARGUMENT, "there is no %s %u: there are %u", what, index, count));
}

// What the chosen variant assumes of the address of an input or output.
uint32_t alignment(const husk_program* program, uint32_t function, husk::Space space, uint32_t index) {
  const husk::fb::Function* row = program->rows()->functions()->Get(function);
  const husk::Rows<husk::fb::Buffer> buffers = row->variants()->Get(program->chosen[function].variant)->buffers();
  for (const husk::fb::Buffer& buffer : buffers)
    if (buffer.space() == uint8_t(space) && buffer.index() == index) return 1u << buffer.align_log2();
  return 1;
}

// What a program has by name.
enum class Kind { function, constant, state };
constexpr char kKindNames[][9] = {"function", "constant", "state"};

const husk::Names* rows_of(const husk_program* program, Kind kind) {
  if (!program) return nullptr;
  const husk::fb::Program* rows = program->rows();
  switch (kind) {
    case Kind::function: return husk::names_of(rows->functions());
    case Kind::constant: return rows->constants();
    case Kind::state: return husk::names_of(rows->states());
  }
  return nullptr;
}

husk_status find(const husk_program* program, Kind kind, const char* name, uint32_t* out, husk_error* error) {
  const char* what = kKindNames[int(kind)];
  if (!program || !name || !out) return null_argument(error, "program_find_", what);
  const husk::Names* rows = rows_of(program, kind);
  const uint32_t n = husk::count(rows);
  for (uint32_t i = 0; i < n; ++i)
    if (strcmp(husk::name_at(rows, i), name) == 0) {
      *out = i;
      return HUSK_OK;
    }
  return husk_status(fail(error, HUSK_NOT_FOUND, n ? "the artifact has no %s '%s'; its first is '%s'" :
                          "the artifact has no %s '%s', nor any other", what, name, n ? husk::name_at(rows, 0) : ""));
}

// Inputs or outputs of a function; null if there is no such function.
using Values = flatbuffers::Vector<flatbuffers::Offset<husk::fb::Value>>;
const Values* values_of(const husk_program* program, uint32_t function, husk::Space space) {
  if (!program || function >= program->functions()) return nullptr;
  const husk::fb::Function* row = program->rows()->functions()->Get(function);
  return space == husk::Space::input ? row->inputs() : row->outputs();
}

husk_status describe(const husk_program* program, uint32_t function, husk::Space space, uint32_t index,
                     husk_value_info* out, husk_error* error) {
  const bool input = space == husk::Space::input;
  const char* what = input ? "input" : "output";
  if (!program || !out) return null_argument(error, "program_", what);
  const Values* values = values_of(program, function, space);
  if (index >= husk::count(values)) return bad_index(error, what, index, husk::count(values));
  const husk::fb::Value* value = values->Get(index);
  const bool ranges = input && husk::count(value->dims());
  *out = {value->name()->c_str(), value->kind(), value->dtype(), value->rank(), alignment(program, function, space, index),
          ranges ? reinterpret_cast<const int64_t*>(value->dims()->Data()) : nullptr};
  return HUSK_OK;
}

// A constant or state.
husk_status describe(const husk_program* program, Kind kind, uint32_t index, husk_storage_info* out,
                     husk_error* error) {
  const char* what = kKindNames[int(kind)];
  if (!program || !out) return null_argument(error, "program_", what);
  const husk::Names* rows = rows_of(program, kind);
  if (index >= husk::count(rows)) return bad_index(error, what, index, husk::count(rows));
  using husk::fb::Constant;
  using husk::fb::State;
  static_assert(int(State::VT_DTYPE) == int(Constant::VT_DTYPE) && int(State::VT_DIMS) == int(Constant::VT_DIMS));
  const Constant* row = rows->Get(index);   // a state has these fields in the same places
  const uint32_t rank = husk::count(row->dims());
  *out = {row->name()->c_str(), row->dtype(), static_cast<int32_t>(rank), rank ? row->dims()->data() : nullptr,
          husk::dense_bytes(row->dtype(), row->dims())};
  return HUSK_OK;
}

// A program without a file yet; null when there is no memory.
husk_program* begin_program(husk_engine* engine, husk_program** out, husk_error* error) {
  *out = nullptr;
  husk_program* program = husk::create<husk_program>(engine->allocator, error);
  if (!program) return nullptr;
  program->engine = engine;
  engine->references.retain();
  return program;
}

// Loads what `opened` says is there; on failure everything is given back, but not the memory that the caller lent.
husk_status finish_program(husk_program* program, Status opened, husk_program** out, husk_error* error) {
  error = program->sink.of(error);
  Status status = opened;
  if (!failed(status)) status = program->file.read(program->engine->allocator, error);
  if (!failed(status)) status = program->load(error);
  if (failed(status)) {
    program->file.drop();
    husk_program_release(program);
  } else {
    *out = program;
  }
  return husk_status(status);
}

}  // namespace

const char* husk_version(void) { return "0.1.0"; }

const char* husk_status_name(husk_status status) {
  static constexpr char kNames[] = "ok\0invalid argument\0invalid file\0unsupported\0invalid input\0out of memory\0"
                                   "input/output\0device\0not found\0kernel\0needs resize\0limit";
  return status >= 0 && status <= HUSK_LIMIT ? husk::nth_text(kNames, status) : "unknown status";
}

husk_status husk_program_verify(const void* data, size_t size, husk_error* error) {
  if (!data) return null_argument(error, "program_verify");
  husk::Container file;
  file.borrow(data, size, nullptr, nullptr);
  const husk_allocator& allocator = *husk::default_allocator();
  Status status = file.read(allocator, error);
  return husk_status(failed(status) ? status : husk::verify(file, allocator, error));
}

husk_status husk_program_open(husk_engine* engine, const char* path, husk_program** program, husk_error* error) {
  if (!engine || !path || !program) return null_argument(error, "program_open");
  husk_program* made = begin_program(engine, program, error);
  return made ? finish_program(made, made->file.map(path, error), program, error) : HUSK_OUT_OF_MEMORY;
}

husk_status husk_program_load(husk_engine* engine, const void* data, size_t size,
                              void (*release)(void* user, const void* data), void* user, husk_program** program,
                              husk_error* error) {
  if (!engine || !data || !program) return null_argument(error, "program_load");
  if (reinterpret_cast<uintptr_t>(data) % 64)
    return husk_status(fail(error, HUSK_INVALID_ARGUMENT, "husk_program_load: memory not aligned to 64 bytes"));
  husk_program* made = begin_program(engine, program, error);
  if (!made) return HUSK_OUT_OF_MEMORY;
  made->file.borrow(data, size, release, user);
  return finish_program(made, Status::ok, program, error);
}

husk_status husk_program_link(husk_engine* engine, const void* artifact, husk_program** program, husk_error* error) {
  uint64_t size = 0;   // of the file, which the header says
  if (artifact) memcpy(&size, static_cast<const uint8_t*>(artifact) + 16, sizeof(size));
  return husk_program_load(engine, artifact, size, nullptr, nullptr, program, error);
}

void husk_program_release(husk_program* program) {
  if (!program || !program->references.drop()) return;
  husk_engine* engine = program->engine;
  husk::destroy(engine->allocator, program);
  husk_engine_release(engine);
}

uint32_t husk_program_function_count(const husk_program* program) {
  return husk::count(rows_of(program, Kind::function));
}

const char* husk_program_function_name(const husk_program* program, uint32_t function) {
  return function < husk_program_function_count(program) ? husk::name_at(rows_of(program, Kind::function), function) : "";
}

husk_status husk_program_find_function(const husk_program* program, const char* name, uint32_t* function,
                                       husk_error* error) {
  return find(program, Kind::function, name, function, error);
}

const char* husk_program_function_target(const husk_program* program, uint32_t function) {
  return function < husk_program_function_count(program) ? program->chosen[function].target : "";
}

uint32_t husk_program_input_count(const husk_program* program, uint32_t function) {
  return husk::count(values_of(program, function, husk::Space::input));
}

uint32_t husk_program_output_count(const husk_program* program, uint32_t function) {
  return husk::count(values_of(program, function, husk::Space::output));
}

husk_status husk_program_input(const husk_program* program, uint32_t function, uint32_t index, husk_value_info* out,
                               husk_error* error) {
  return describe(program, function, husk::Space::input, index, out, error);
}

husk_status husk_program_output(const husk_program* program, uint32_t function, uint32_t index, husk_value_info* out,
                                husk_error* error) {
  return describe(program, function, husk::Space::output, index, out, error);
}

uint32_t husk_program_state_count(const husk_program* program) { return husk::count(rows_of(program, Kind::state)); }

husk_status husk_program_state(const husk_program* program, uint32_t state, husk_storage_info* out, husk_error* error) {
  return describe(program, Kind::state, state, out, error);
}

husk_status husk_program_find_state(const husk_program* program, const char* name, uint32_t* state, husk_error* error) {
  return find(program, Kind::state, name, state, error);
}

uint32_t husk_program_constant_count(const husk_program* program) {
  return husk::count(rows_of(program, Kind::constant));
}

husk_status husk_program_constant(const husk_program* program, uint32_t constant, husk_storage_info* out,
                                  husk_error* error) {
  return describe(program, Kind::constant, constant, out, error);
}

husk_status husk_program_find_constant(const husk_program* program, const char* name, uint32_t* constant,
                                       husk_error* error) {
  return find(program, Kind::constant, name, constant, error);
}

husk_status husk_program_update_constants(husk_program* program, const husk_constant_update* updates, uint32_t count,
                                          husk_error* error) {
  if (!program || (count && !updates)) return null_argument(error, "program_update_constants");
  return husk_status(program->update(updates, count, error));
}

uint32_t husk_program_user_count(const husk_program* program) {
  return program ? husk::count(program->rows()->user()) : 0;
}

const char* husk_program_user_key(const husk_program* program, uint32_t entry) {
  return entry < husk_program_user_count(program) ? program->rows()->user()->Get(entry)->key()->c_str() : "";
}

const char* husk_program_user_value(const husk_program* program, uint32_t entry) {
  return entry < husk_program_user_count(program) ? program->rows()->user()->Get(entry)->value()->c_str() : "";
}

const char* husk_program_tree(const husk_program* program) {
  return program && program->rows()->tree() ? program->rows()->tree()->c_str() : "";
}

husk_status husk_session_create(husk_program* program, const husk_session_options* options, husk_session** session,
                                husk_error* error) {
  if (!program || !session) return null_argument(error, "session_create");
  *session = nullptr;
  husk_session_options full = HUSK_SESSION_OPTIONS_INIT;
  if (options) memcpy(&full, options, options->struct_size < sizeof(full) ? options->struct_size : sizeof(full));
  if (full.mode < HUSK_MODE_AUTO || full.mode > HUSK_MODE_GRAPH)
    return husk_status(fail(error, HUSK_INVALID_ARGUMENT, "there is no husk_session_options.mode %d", full.mode));
  if (full.mode == HUSK_MODE_GRAPH && !program->engine->port->graphs)
    return husk_status(fail(error, HUSK_UNSUPPORTED, "port '%s' has no graphs: use HUSK_MODE_AUTO",
                            program->engine->port->name));
  husk_session* made = husk::create<husk_session>(program->engine->allocator, error);
  if (!made) return HUSK_OUT_OF_MEMORY;
  made->program = program;
  made->options = full;
  program->add(made);
  Status status = made->prepare(made->sink.of(error));
  if (failed(status))
    husk_session_release(made);
  else
    *session = made;
  return husk_status(status);
}

void husk_session_release(husk_session* session) {
  if (!session) return;
  husk_program* program = session->program;
  husk::destroy(program->engine->allocator, session);
  husk_program_release(program);
}

namespace {

// What the calls about one function of a session begin with. Null if the function does not exist.
husk::Frame* frame_of(const husk_session* session, uint32_t function, husk_error* error) {
  if (function < session->program->functions()) return session->frames[function];
  bad_index(error, "function", function, session->program->functions());
  return nullptr;
}

// What the call says of a failure begins with the function's name.
husk_status in_function(const husk_session* session, uint32_t function, Status status, husk_error* error) {
  if (failed(status)) husk::prefix(error, "function '%s': ", session->frames[function]->code.function->name()->c_str());
  return husk_status(status);
}

// All calls about one state. `other` is what it is exchanged with: host memory, or a session.
husk_status state_call(const char* name, husk_session* session, uint32_t state, husk::StateWork work, void* other,
                       husk_error* error) {
  if (!session || (!other && work != husk::StateWork::reset)) return null_argument(error, name);
  const uint32_t n = husk_program_state_count(session->program);
  if (state >= n) return bad_index(error, "state", state, n);
  const husk::Visit visit(session);
  return husk_status(session->work_on_state(state, work, other, session->sink.of(error)));
}

}  // namespace

husk_status husk_session_bound(husk_session* session, uint32_t function, uint32_t input, uint32_t dim, int64_t min,
                               int64_t max, husk_error* error) {
  if (!session) return null_argument(error, "session_bound");
  const husk::Frame* frame = frame_of(session, function, error);
  if (!frame) return HUSK_INVALID_ARGUMENT;
  if (input >= frame->code.inputs()) return bad_index(error, "input", input, frame->code.inputs());
  const husk::Visit visit(session);
  error = session->sink.of(error);
  return in_function(session, function, session->bound(function, input, dim, min, max, error), error);
}

husk_status husk_session_resize(husk_session* session, uint32_t function, const husk_value* inputs, uint32_t count,
                                husk_error* error) {
  if (!session) return null_argument(error, "session_resize");
  if (!frame_of(session, function, error)) return HUSK_INVALID_ARGUMENT;
  const husk::Visit visit(session);
  error = session->sink.of(error);
  return in_function(session, function, session->resize(function, inputs, count, error), error);
}

uint64_t husk_session_arena_bytes(const husk_session* session) { return session ? session->arena_wanted : 0; }

husk_status husk_session_lend_arena(husk_session* session, void* memory, uint64_t bytes, husk_error* error) {
  if (!session) return null_argument(error, "session_lend_arena");
  const husk::Visit visit(session);
  return husk_status(session->lend_arena(memory, bytes, session->sink.of(error)));
}

husk_status husk_session_output_shape(husk_session* session, uint32_t function, uint32_t index, int64_t* sizes,
                                      int64_t* strides, husk_error* error) {
  if (!session) return null_argument(error, "session_output_shape");
  const husk::Frame* frame = frame_of(session, function, error);
  if (!frame) return HUSK_INVALID_ARGUMENT;
  if (index >= frame->code.outputs()) return bad_index(error, "output", index, frame->code.outputs());
  if (static_cast<husk::ArgumentKind>(frame->code.results[index].kind()) != husk::ArgumentKind::tensor)
    return husk_status(fail(error, HUSK_INVALID_ARGUMENT, "output %u is no tensor", index));
  if (frame->output_shape(index, sizes, strides)) return HUSK_OK;
  return husk_status(fail(error, HUSK_INVALID_ARGUMENT, "output %u has no shape yet: %s first", index,
                          frame->evaluated ? "only the data decides it, husk_session_run" : "husk_session_resize"));
}

husk_status husk_session_run(husk_session* session, uint32_t function, void* stream, const husk_value* inputs,
                             uint32_t input_count, husk_value* outputs, uint32_t output_count, husk_error* error) {
  if (!session) return null_argument(error, "session_run");
  if (!frame_of(session, function, error)) return HUSK_INVALID_ARGUMENT;
  const husk::Visit visit(session);
  error = session->sink.of(error);
  return in_function(session, function,
                     session->run(function, stream, inputs, input_count, outputs, output_count, error), error);
}

husk_status husk_session_wait(husk_session* session, husk_error* error) {
  if (!session) return null_argument(error, "session_wait");
  const husk::Visit visit(session);
  return husk_status(session->wait(session->sink.of(error)));
}

husk_status husk_session_state_get(husk_session* session, uint32_t state, void* bytes, husk_error* error) {
  return state_call("session_state_get", session, state, husk::StateWork::get, bytes, error);
}

husk_status husk_session_state_set(husk_session* session, uint32_t state, const void* bytes, husk_error* error) {
  return state_call("session_state_set", session, state, husk::StateWork::set, const_cast<void*>(bytes), error);
}

husk_status husk_session_state_reset(husk_session* session, uint32_t state, husk_error* error) {
  return state_call("session_state_reset", session, state, husk::StateWork::reset, nullptr, error);
}

husk_status husk_session_state_copy(husk_session* session, uint32_t state, husk_session* from, husk_error* error) {
  return state_call("session_state_copy", session, state, husk::StateWork::copy, from, error);
}

husk_status husk_session_stats_get(const husk_session* session, uint32_t function, husk_session_stats* out,
                                   husk_error* error) {
  if (!session || !out) return null_argument(error, "session_stats_get");
  const husk::Frame* made = frame_of(session, function, error);
  if (!made) return HUSK_INVALID_ARGUMENT;
  const husk::Frame& frame = *made;
  husk_session_stats full = {};
  full.struct_size = out->struct_size < sizeof(full) ? out->struct_size : static_cast<uint32_t>(sizeof(full));
  full.steps = frame.code.steps.size;
  full.graph_nodes = frame.graph.nodes;
  full.graph_edges = frame.graph.edges;
  full.programmatic_edges = frame.graph.programmatic_edges;
  full.bounded = frame.bounded;
  full.arena_bytes = frame.planned.peak;
  full.arena_lower_bound = frame.planned.lower_bound;
  full.runs_as_graph = frame.runs_as_graph;
  full.runs_as_list = frame.runs_as_list;
  full.nodes_patched = frame.graph.patched;
  full.data_bytes = session->room_bytes;
  full.segments = frame.code.segments.size;
  full.dynamic = frame.is_dynamic();
  memcpy(out, &full, full.struct_size);
  return HUSK_OK;
}
