// The C functions of husk.h about programs and sessions: arguments are looked at here, the rest is done elsewhere.
#include "session.h"

#include "verify.h"

#include <cstring>

using husk::fail;
using husk::failed;
using husk::Status;

namespace {

husk_status null_argument(husk_error* error, const char* function) {
  return husk_status(fail(error, HUSK_INVALID_ARGUMENT, "%s: an argument is NULL", function));
}

// Ports fill errors without asking whether there is one.
class Sink {
 public:
  explicit Sink(husk_error* error) : error_(error ? error : &spare_) {}
  operator husk_error*() { return error_; }

 private:
  husk_error spare_;
  husk_error* error_;
};

husk_status bad_index(husk_error* error, const char* what, uint32_t index, uint32_t count) {
  return husk_status(fail(error, HUSK_INVALID_ARGUMENT, "there is no %s %u: there are %u", what, index, count));
}

// What the chosen variant assumes of the address of an input or output.
uint32_t alignment(const husk_program* program, uint32_t function, husk::Space space, uint32_t index) {
  const husk::Code code = program->code(function);
  for (const husk::fb::Buffer& buffer : code.buffers)
    if (buffer.space() == uint8_t(space) && buffer.index() == index) return 1u << buffer.align_log2();
  return 1;
}

void describe(const husk::fb::Value* value, husk_value_info* out) {
  out->name = value->name()->c_str();
  out->kind = value->kind();
  out->dtype = static_cast<husk_dtype>(value->dtype());
  out->rank = value->rank();
  out->ranges = husk::count(value->dims()) ? &reinterpret_cast<const int64_t*>(value->dims()->Data())[0] : nullptr;
}

// Of a constant or state.
void describe(const char* name, husk_dtype dtype, const flatbuffers::Vector<int64_t>* dims, uint64_t bytes,
              husk_storage_info* out) {
  out->name = name;
  out->dtype = dtype;
  out->rank = static_cast<int32_t>(husk::count(dims));
  out->dims = out->rank ? dims->data() : nullptr;
  out->bytes = bytes;
}

// Of `rows` by name; `what` they are is for the message.
husk_status find(const husk::Names* rows, const char* what, const char* name, uint32_t* out, husk_error* error) {
  const uint32_t n = husk::count(rows);
  for (uint32_t i = 0; i < n; ++i)
    if (strcmp(husk::name_at(rows, i), name) == 0) {
      *out = i;
      return HUSK_OK;
    }
  return husk_status(fail(error, HUSK_NOT_FOUND, n ? "the artifact has no %s '%s'; its first is '%s'" :
                          "the artifact has no %s '%s', nor any other", what, name, n ? husk::name_at(rows, 0) : ""));
}

// A program without a file yet; null when there is no memory.
husk_program* begin_program(husk_engine* engine, husk_program** out, husk_error* error) {
  *out = nullptr;
  husk_program* program = husk::create<husk_program>(engine->allocator, engine);
  if (!program) (void)fail(error, HUSK_OUT_OF_MEMORY, "out of host memory: a program");
  return program;
}

// Loads what `opened` says is there; on failure everything is given back, but not the memory that the caller lent.
husk_status finish_program(husk_program* program, Status opened, husk_program** out, husk_error* error) {
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
  static constexpr char kNames[][17] = {"ok", "invalid argument", "invalid file", "unsupported", "invalid input",
                                           "out of memory", "input/output", "device", "not found", "kernel",
                                           "needs resize", "limit"};
  return status >= 0 && status <= HUSK_LIMIT ? kNames[status] : "unknown status";
}

husk_status husk_program_verify(const void* data, size_t size, husk_error* error) {
  if (!data) return null_argument(error, "husk_program_verify");
  husk::Container file;
  file.borrow(data, size, nullptr, nullptr);
  const husk_allocator& allocator = *husk::default_allocator();
  Status status = file.read(allocator, error);
  return husk_status(failed(status) ? status : husk::verify(file, allocator, error));
}

husk_status husk_program_open(husk_engine* engine, const char* path, husk_program** program, husk_error* error) {
  if (!engine || !path || !program) return null_argument(error, "husk_program_open");
  Sink sink(error);
  husk_program* made = begin_program(engine, program, sink);
  return made ? finish_program(made, made->file.map(path, sink), program, sink) : HUSK_OUT_OF_MEMORY;
}

husk_status husk_program_load(husk_engine* engine, const void* data, size_t size,
                              void (*release)(void* user, const void* data), void* user, husk_program** program,
                              husk_error* error) {
  if (!engine || !data || !program) return null_argument(error, "husk_program_load");
  if (reinterpret_cast<uintptr_t>(data) % 64)
    return husk_status(fail(error, HUSK_INVALID_ARGUMENT, "husk_program_load: the memory is not aligned to 64 bytes"));
  Sink sink(error);
  husk_program* made = begin_program(engine, program, sink);
  if (!made) return HUSK_OUT_OF_MEMORY;
  made->file.borrow(data, size, release, user);
  return finish_program(made, Status::ok, program, sink);
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

uint32_t husk_program_function_count(const husk_program* program) { return program ? program->functions() : 0; }

const char* husk_program_function_name(const husk_program* program, uint32_t function) {
  if (!program || function >= program->functions()) return "";
  return program->rows()->functions()->Get(function)->name()->c_str();
}

husk_status husk_program_find_function(const husk_program* program, const char* name, uint32_t* function,
                                       husk_error* error) {
  if (!program || !name || !function) return null_argument(error, "husk_program_find_function");
  return find(husk::names_of(program->rows()->functions()), "function", name, function, error);
}

const char* husk_program_function_target(const husk_program* program, uint32_t function) {
  return program && function < program->functions() ? program->chosen[function].target : "";
}

uint32_t husk_program_input_count(const husk_program* program, uint32_t function) {
  return program && function < program->functions()
             ? husk::count(program->rows()->functions()->Get(function)->inputs()) : 0;
}

uint32_t husk_program_output_count(const husk_program* program, uint32_t function) {
  return program && function < program->functions()
             ? husk::count(program->rows()->functions()->Get(function)->outputs()) : 0;
}

husk_status husk_program_input(const husk_program* program, uint32_t function, uint32_t index, husk_value_info* out,
                               husk_error* error) {
  if (!program || !out) return null_argument(error, "husk_program_input");
  const uint32_t n = husk_program_input_count(program, function);
  if (index >= n) return bad_index(error, "input", index, n);
  describe(program->rows()->functions()->Get(function)->inputs()->Get(index), out);
  out->alignment = alignment(program, function, husk::Space::input, index);
  return HUSK_OK;
}

husk_status husk_program_output(const husk_program* program, uint32_t function, uint32_t index, husk_value_info* out,
                                husk_error* error) {
  if (!program || !out) return null_argument(error, "husk_program_output");
  const uint32_t n = husk_program_output_count(program, function);
  if (index >= n) return bad_index(error, "output", index, n);
  describe(program->rows()->functions()->Get(function)->outputs()->Get(index), out);
  out->alignment = alignment(program, function, husk::Space::output, index);
  out->ranges = nullptr;
  return HUSK_OK;
}

uint32_t husk_program_state_count(const husk_program* program) {
  return program ? husk::count(program->rows()->states()) : 0;
}

husk_status husk_program_state(const husk_program* program, uint32_t state, husk_storage_info* out, husk_error* error) {
  if (!program || !out) return null_argument(error, "husk_program_state");
  const uint32_t n = husk_program_state_count(program);
  if (state >= n) return bad_index(error, "state", state, n);
  const husk::fb::State* row = program->rows()->states()->Get(state);
  describe(row->name()->c_str(), row->dtype(), row->dims(), husk::state_bytes(row), out);
  return HUSK_OK;
}

husk_status husk_program_find_state(const husk_program* program, const char* name, uint32_t* state, husk_error* error) {
  if (!program || !name || !state) return null_argument(error, "husk_program_find_state");
  return find(husk::names_of(program->rows()->states()), "state", name, state, error);
}

uint32_t husk_program_constant_count(const husk_program* program) {
  return program ? husk::count(program->rows()->constants()) : 0;
}

husk_status husk_program_constant(const husk_program* program, uint32_t constant, husk_storage_info* out,
                                  husk_error* error) {
  if (!program || !out) return null_argument(error, "husk_program_constant");
  const uint32_t n = husk_program_constant_count(program);
  if (constant >= n) return bad_index(error, "constant", constant, n);
  const husk::fb::Constant* row = program->rows()->constants()->Get(constant);
  describe(row->name()->c_str(), row->dtype(), row->dims(), row->blob()->size(), out);
  return HUSK_OK;
}

husk_status husk_program_find_constant(const husk_program* program, const char* name, uint32_t* constant,
                                       husk_error* error) {
  if (!program || !name || !constant) return null_argument(error, "husk_program_find_constant");
  return find(husk::names_of(program->rows()->constants()), "constant", name, constant, error);
}

husk_status husk_program_update_constants(husk_program* program, const husk_constant_update* updates, uint32_t count,
                                          husk_error* error) {
  if (!program || (count && !updates)) return null_argument(error, "husk_program_update_constants");
  Sink sink(error);
  return husk_status(program->update(updates, count, sink));
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
  if (!program || !session) return null_argument(error, "husk_session_create");
  *session = nullptr;
  husk_session_options full = HUSK_SESSION_OPTIONS_INIT;
  if (options) memcpy(&full, options, options->struct_size < sizeof(full) ? options->struct_size : sizeof(full));
  if (full.mode < HUSK_MODE_AUTO || full.mode > HUSK_MODE_GRAPH)
    return husk_status(fail(error, HUSK_INVALID_ARGUMENT, "husk_session_options.mode is %d, none that exists", full.mode));
  Sink sink(error);
  if (full.mode == HUSK_MODE_GRAPH && !program->engine->port->graphs)
    return husk_status(fail(error, HUSK_UNSUPPORTED, "port '%s' has no graphs: use HUSK_MODE_AUTO",
                            program->engine->port->name));
  husk_session* made = husk::create<husk_session>(program->engine->allocator, program, full);
  if (!made) return husk_status(fail(error, HUSK_OUT_OF_MEMORY, "out of host memory: a session"));
  Status status = made->prepare(sink);
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

bool state_exists(const husk_session* session, uint32_t state, husk_error* error) {
  const uint32_t n = husk_program_state_count(session->program);
  if (state < n) return true;
  bad_index(error, "state", state, n);
  return false;
}

}  // namespace

husk_status husk_session_bound(husk_session* session, uint32_t function, uint32_t input, uint32_t dim, int64_t min,
                               int64_t max, husk_error* error) {
  if (!session) return null_argument(error, "husk_session_bound");
  Sink sink(error);
  const husk::Frame* frame = frame_of(session, function, sink);
  if (!frame) return HUSK_INVALID_ARGUMENT;
  if (input >= frame->code.inputs()) return bad_index(sink, "input", input, frame->code.inputs());
  const husk::Visit visit(session);
  return in_function(session, function, session->bound(function, input, dim, min, max, sink), sink);
}

husk_status husk_session_resize(husk_session* session, uint32_t function, const husk_value* inputs, uint32_t count,
                                husk_error* error) {
  if (!session) return null_argument(error, "husk_session_resize");
  Sink sink(error);
  if (!frame_of(session, function, sink)) return HUSK_INVALID_ARGUMENT;
  const husk::Visit visit(session);
  return in_function(session, function, session->resize(function, inputs, count, sink), sink);
}

uint64_t husk_session_arena_bytes(const husk_session* session) { return session ? session->arena_wanted : 0; }

husk_status husk_session_lend_arena(husk_session* session, void* memory, uint64_t bytes, husk_error* error) {
  if (!session) return null_argument(error, "husk_session_lend_arena");
  Sink sink(error);
  const husk::Visit visit(session);
  return husk_status(session->lend_arena(memory, bytes, sink));
}

husk_status husk_session_output_shape(husk_session* session, uint32_t function, uint32_t index, int64_t* sizes,
                                      int64_t* strides, husk_error* error) {
  if (!session) return null_argument(error, "husk_session_output_shape");
  Sink sink(error);
  const husk::Frame* frame = frame_of(session, function, sink);
  if (!frame) return HUSK_INVALID_ARGUMENT;
  if (index >= frame->code.outputs()) return bad_index(sink, "output", index, frame->code.outputs());
  if (static_cast<husk::ArgumentKind>(frame->code.results[index].kind()) != husk::ArgumentKind::tensor)
    return husk_status(fail(sink, HUSK_INVALID_ARGUMENT, "output %u is no tensor", index));
  if (frame->output_shape(index, sizes, strides)) return HUSK_OK;
  return husk_status(fail(sink, HUSK_INVALID_ARGUMENT, "output %u has no shape yet: %s first", index,
                          frame->evaluated ? "only the data decides it, husk_session_run" : "husk_session_resize"));
}

husk_status husk_session_run(husk_session* session, uint32_t function, void* stream, const husk_value* inputs,
                             uint32_t input_count, husk_value* outputs, uint32_t output_count, husk_error* error) {
  if (!session) return null_argument(error, "husk_session_run");
  Sink sink(error);
  if (!frame_of(session, function, sink)) return HUSK_INVALID_ARGUMENT;
  const husk::Visit visit(session);
  return in_function(session, function, session->run(function, stream, inputs, input_count, outputs, output_count, sink), sink);
}

husk_status husk_session_wait(husk_session* session, husk_error* error) {
  if (!session) return null_argument(error, "husk_session_wait");
  Sink sink(error);
  const husk::Visit visit(session);
  return husk_status(session->wait(sink));
}

husk_status husk_session_state_get(husk_session* session, uint32_t state, void* bytes, husk_error* error) {
  if (!session || !bytes) return null_argument(error, "husk_session_state_get");
  Sink sink(error);
  if (!state_exists(session, state, sink)) return HUSK_INVALID_ARGUMENT;
  const husk::Visit visit(session);
  return husk_status(session->get_state(state, bytes, sink));
}

husk_status husk_session_state_set(husk_session* session, uint32_t state, const void* bytes, husk_error* error) {
  if (!session || !bytes) return null_argument(error, "husk_session_state_set");
  Sink sink(error);
  if (!state_exists(session, state, sink)) return HUSK_INVALID_ARGUMENT;
  const husk::Visit visit(session);
  return husk_status(session->set_state(state, bytes, sink));
}

husk_status husk_session_state_reset(husk_session* session, uint32_t state, husk_error* error) {
  if (!session) return null_argument(error, "husk_session_state_reset");
  Sink sink(error);
  if (!state_exists(session, state, sink)) return HUSK_INVALID_ARGUMENT;
  const husk::Visit visit(session);
  return husk_status(session->reset_state(state, sink));
}

husk_status husk_session_state_copy(husk_session* session, uint32_t state, husk_session* from, husk_error* error) {
  if (!session || !from) return null_argument(error, "husk_session_state_copy");
  Sink sink(error);
  if (session->program != from->program)
    return husk_status(fail(sink, HUSK_INVALID_ARGUMENT, "the two sessions are of different programs"));
  if (!state_exists(session, state, sink)) return HUSK_INVALID_ARGUMENT;
  const husk::Visit visit(session);
  return husk_status(session->copy_state(state, from, sink));
}

husk_status husk_session_stats_get(const husk_session* session, uint32_t function, husk_session_stats* out,
                                   husk_error* error) {
  if (!session || !out) return null_argument(error, "husk_session_stats_get");
  if (function >= session->program->functions())
    return bad_index(error, "function", function, session->program->functions());
  const husk::Frame& frame = *session->frames[function];
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
