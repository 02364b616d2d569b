// The C functions of husk.h: they check their arguments and call the classes of the runtime.
// Functions about element types are in base/dtype.cpp, because every layer uses them.
#include <cstring>

#include <husk/detail/linked.h>
#include <husk/detail/struct_size.h>

#include "base/align.h"
#include "model/shape.h"
#include "model/verify.h"
#include "session/folding.h"
#include "session/session.h"

using namespace husk;
using namespace husk::runtime;

namespace {

constexpr uint64_t kLargestAllocation = 1ull << 48;  // bytes; ports may round sizes up

husk_status bad_index(husk_error* error, const char* what, uint32_t index, uint32_t count) {
  return husk_status(
      fail(error, HUSK_INVALID_ARGUMENT, "there is no %s %u: there are %u", what, index, count));
}

// The tables of a kind that the application knows, `n` of them; none if there is no program.
template <class T>
struct Known {
  const Tables<T>* rows = nullptr;
  uint32_t n = 0;
};
Known<fb::Function> functions_of(const husk_program* program) {
  if (!program) return {};
  return {program->rows()->functions(), program->entry_points()};
}
Known<fb::Constant> constants_of(const husk_program* program) {
  if (!program) return {};
  return {program->rows()->constants(), program->constants.count()};
}
Known<fb::State> states_of(const husk_program* program) {
  if (!program) return {};
  return {program->rows()->states(), count(program->rows()->states())};
}

// Returns the name under which the file stores the tensor that the model calls `name`: two names of
// one tensor are one row (FORMAT.md, metadata "husk.tied.NAME").
const char* stored_name(const husk_program* program, const char* name) {
  static constexpr char kTied[] = "husk.tied.";
  constexpr size_t kLength = sizeof kTied - 1;
  for (uint32_t i = 0; i < husk_program_metadata_count(program); ++i) {
    const char* key = husk_program_metadata_key(program, i);
    if (strncmp(key, kTied, kLength) == 0 && strcmp(key + kLength, name) == 0)
      return husk_program_metadata_value(program, i);
  }
  return name;
}

// Finds the index of the row that is named `name`. `kind` is the word for such rows in messages.
husk_status find(const husk_program* program, const NamedTables* rows, uint32_t n, const char* kind,
                 const char* name, uint32_t* out, husk_error* error) {
  if (!program || !name || !out) return null_argument(error, "program_find_", kind);
  const char* stored = stored_name(program, name);
  for (uint32_t i = 0; i < n; ++i) {
    const char* row = rows->Get(i)->name()->c_str();
    if (strcmp(row, name) != 0 && strcmp(row, stored) != 0) continue;
    *out = i;
    return HUSK_OK;
  }
  return husk_status(fail(error, HUSK_NOT_FOUND,
                          n ? "the artifact has no %s '%s'; its first is '%s'"
                            : "the artifact has no %s '%s', nor any other",
                          kind, name, n ? rows->Get(0)->name()->c_str() : ""));
}
template <class T>
husk_status find(const husk_program* program, const Known<T>& known, const char* kind,
                 const char* name, uint32_t* out, husk_error* error) {
  return find(program, named(known.rows), known.n, kind, name, out, error);
}

// Returns the inputs or the outputs of a function, or null if there is no such function.
const Tables<fb::Value>* values_of(const husk_program* program, uint32_t function, Space space) {
  if (!program || function >= program->entry_points()) return nullptr;
  const fb::Function* row = program->rows()->functions()->Get(function);
  return space == Space::input ? row->inputs() : row->outputs();
}

// Describes an input or an output.
husk_status describe(const husk_program* program, uint32_t function, Space space, uint32_t index,
                     husk_value_info* out, husk_error* error) {
  const bool input = space == Space::input;
  const char* what = input ? "input" : "output";
  if (!program || !out) return null_argument(error, "program_", what);
  HUSK_TRY(HUSK_CHECK_STRUCT(husk_value_info, out, name, error));
  const auto* values = values_of(program, function, space);
  if (index >= count(values)) return bad_index(error, what, index, count(values));
  const fb::Value* value = values->Get(index);
  const bool ranges = input && count(value->dims());
  const uint32_t before = input ? 0 : count(values_of(program, function, Space::input));
  const ValuePlace& place = program->input_places(function)[before + index];
  const husk_value_info info = {
      sizeof(info),
      value->kind(),
      value->dtype(),
      value->rank(),
      value->name()->c_str(),
      ranges ? reinterpret_cast<const int64_t*>(value->dims()->Data()) : nullptr,
      1u << place.align_log2,
      0,
      place.device == Device::host,
      0,
      place.is_written,
      0};
  detail::write_struct(info, out);
  return HUSK_OK;
}

// Describes a constant or a state.
template <class T>
husk_status describe(const husk_program* program, const Known<T>& known, const char* kind,
                     uint32_t index, husk_storage_info* out, husk_error* error) {
  if (!program || !out) return null_argument(error, "program_", kind);
  HUSK_TRY(HUSK_CHECK_STRUCT(husk_storage_info, out, bytes, error));
  if (index >= known.n) return bad_index(error, kind, index, known.n);
  const T* row = known.rows->Get(index);
  const uint32_t rank = count(row->dims());
  const husk_storage_info info = {sizeof(info),
                                  row->dtype(),
                                  static_cast<int32_t>(rank),
                                  0,
                                  row->name()->c_str(),
                                  rank ? row->dims()->data() : nullptr,
                                  verified_bytes(row)};
  detail::write_struct(info, out);
  return HUSK_OK;
}

// Makes a program without a file. Returns null if there is no memory.
husk_program* begin_program(husk_engine* engine, husk_program** out, husk_error* error) {
  *out = nullptr;
  husk_program* program = create<husk_program>(engine->allocator, error);
  if (!program) return nullptr;
  program->engine = engine;
  engine->references.retain();
  return program;
}

// Reads the file that `opened` is the status of, and loads it. A failure destroys the program, but
// leaves the memory that the caller passed to the caller.
husk_status finish_program(husk_program* program, Status opened, husk_program** out,
                           husk_error* error) {
  ErrorScratch scratch;
  error = scratch.of(error);
  Status status = opened;
  if (!failed(status)) status = program->load(error);
  if (!failed(status)) status = begin_folding(program, error);
  if (failed(status)) {
    program->file.drop();
    husk_program_release(program);
  } else {
    *out = program;
  }
  return husk_status(status);
}

// Opens the bytes of an artifact. `linked` is the table of the object file that they are part of.
husk_status load_bytes(husk_engine* engine, const void* data, uint64_t size,
                       void (*release)(void*, const void*), void* user,
                       const detail::LinkedTable* linked, husk_program** program,
                       husk_error* error) {
  if (!engine || !data || !program) return null_argument(error, "program_load");
  if (reinterpret_cast<uintptr_t>(data) % 64)
    return husk_status(
        fail(error, HUSK_INVALID_ARGUMENT, "husk_program_load: memory not aligned to 64 bytes"));
  husk_program* loaded = begin_program(engine, program, error);
  if (!loaded) return HUSK_OUT_OF_MEMORY;
  loaded->file.borrow(data, size, release, user);
  loaded->file.set_linked(linked);
  return finish_program(loaded, Status::ok, program, error);
}

void destroy_session(husk_session* session) {
  husk_program* program = static_cast<husk_program*>(session->program);
  destroy(program->engine->allocator, session);
  husk_program_release(program);
}

// One call on a session. Updates of constants wait until it ends, and `error` is never null. A
// callback of a call may not make another one on the same session, which would change what the
// first one works on: `busy` is set then. If it releases the session, that happens at the end.
class SessionCall {
 public:
  SessionCall(husk_session* session, husk_error* callers)
      : session_(session),
        busy(!session->program->gate.enter(&session->caller)),
        error(callers ? callers : &spare_) {
    if (busy)
      (void)fail(error, HUSK_INVALID_ARGUMENT,
                 "the session is in a call already: a session belongs to one thread at a time, and "
                 "its callbacks must not use it");
  }
  ~SessionCall() {
    if (!busy && RunGate::leave(&session_->caller)) destroy_session(session_);
  }
  SessionCall(const SessionCall&) = delete;
  SessionCall& operator=(const SessionCall&) = delete;

 private:
  husk_session* session_;
  husk_error spare_;

 public:
  const bool busy;
  husk_error* const error;
};

}  // namespace

const char* husk_version(void) { return HUSK_VERSION; }

const char* husk_status_name(husk_status status) {
  switch (status) {
    case HUSK_OK: return "ok";
    case HUSK_INVALID_ARGUMENT: return "invalid argument";
    case HUSK_INVALID_FILE: return "invalid file";
    case HUSK_UNSUPPORTED: return "unsupported";
    case HUSK_INVALID_INPUT: return "invalid input";
    case HUSK_OUT_OF_MEMORY: return "out of memory";
    case HUSK_IO: return "input/output";
    case HUSK_DEVICE: return "device";
    case HUSK_NOT_FOUND: return "not found";
    case HUSK_KERNEL: return "kernel";
    case HUSK_NEEDS_RESIZE: return "needs resize";
    case HUSK_LIMIT: return "limit";
    case HUSK_CANCELLED: return "cancelled";
    default: return "unknown status";
  }
}

husk_status husk_group_id_create(const husk_port* port, husk_group_id* id, husk_error* error) {
  if (!port || !id) return null_argument(error, "group_id_create");
  *id = {};
  if (!HUSK_HAS_FIELD(port, group_id) || !port->group_id)
    return husk_status(no_groups(*port, error));
  ErrorScratch scratch;
  return port->group_id(port->user, id, scratch.of(error));
}

husk_status husk_engine_create(const husk_engine_options* options, husk_engine** engine,
                               husk_error* error) {
  if (!options || !engine) return null_argument(error, "engine_create");
  *engine = nullptr;
  husk_engine_options full = HUSK_ENGINE_OPTIONS_INIT;
  HUSK_TRY(HUSK_CHECK_STRUCT(husk_engine_options, options, port, error));
  detail::read_struct(*options, &full);
  const husk_allocator allocator = full.allocator ? *full.allocator : *default_allocator();
  husk_engine* created = create<husk_engine>(allocator, error);
  if (!created) return HUSK_OUT_OF_MEMORY;
  created->allocator = allocator;
  Status status = created->open(full, error);
  if (failed(status))
    destroy(allocator, created);
  else
    *engine = created;
  return husk_status(status);
}

void husk_engine_release(husk_engine* engine) {
  if (!engine || !engine->references.drop()) return;
  const husk_allocator allocator = engine->allocator;
  destroy(allocator, engine);
}

husk_status husk_engine_add_op(husk_engine* engine, const husk_op* op, husk_error* error) {
  if (!engine || !op) return null_argument(error, "engine_add_op");
  HUSK_TRY(HUSK_CHECK_STRUCT(husk_op, op, user, error));
  if (!op->name || !op->call) return null_argument(error, "engine_add_op");
  return husk_status(engine->add_op(*op, error));
}

husk_status husk_engine_properties(const husk_engine* engine, husk_port_properties* out,
                                   husk_error* error) {
  if (!engine || !out) return null_argument(error, "engine_properties");
  HUSK_TRY(HUSK_CHECK_STRUCT(husk_port_properties, out, arch, error));
  detail::write_struct(engine->properties, out);
  return HUSK_OK;
}

// Allocates memory of the device, or memory of the host for copies in the order of a stream.
static husk_status allocate_memory(husk_engine* engine, bool on_host, uint64_t bytes, void** memory,
                                   husk_error* error) {
  if (!engine || !memory)
    return null_argument(error, on_host ? "engine_alloc_host" : "engine_alloc");
  *memory = nullptr;
  const bool is_beside = on_host && engine->has_host_memory();
  if (on_host && !is_beside && !engine->properties.host_memory)
    return husk_status(fail(error, HUSK_UNSUPPORTED,
                            "port '%s' has no alloc_host: call husk_engine_download",
                            engine->port->name));
  if (bytes > kLargestAllocation)
    return husk_status(fail(error, HUSK_OUT_OF_MEMORY, "no device has %llu bytes",
                            static_cast<unsigned long long>(bytes)));
  ErrorScratch scratch;
  const auto allocate = is_beside ? engine->port->alloc_host : engine->port->alloc;
  const husk_status status = allocate(engine->device, bytes, memory, scratch.of(error));
  if (status != HUSK_OK) *memory = nullptr;
  return status;
}

husk_status husk_engine_alloc(husk_engine* engine, uint64_t bytes, void** memory,
                              husk_error* error) {
  return allocate_memory(engine, false, bytes, memory, error);
}

void husk_engine_free(husk_engine* engine, void* memory) {
  if (engine && memory) engine->port->free(engine->device, memory);
}

husk_status husk_engine_stream_create(husk_engine* engine, void** stream, husk_error* error) {
  if (stream) *stream = nullptr;
  if (!engine || !stream) return null_argument(error, "engine_stream_create");
  ErrorScratch scratch;
  return engine->port->stream_create(engine->device, stream, scratch.of(error));
}

void husk_engine_stream_destroy(husk_engine* engine, void* stream) {
  if (engine && stream) engine->port->stream_destroy(engine->device, stream);
}

// Calls a function of the port that copies bytes.
static husk_status copy_bytes(const char* name, decltype(husk_port::copy) husk_port::*function,
                              husk_engine* engine, void* stream, void* to, const void* from,
                              uint64_t bytes, husk_error* error) {
  if (!engine || (bytes && (!to || !from))) return null_argument(error, name);
  ErrorScratch scratch;
  return (engine->port->*function)(engine->device, stream, to, from, bytes, scratch.of(error));
}

husk_status husk_engine_upload(husk_engine* engine, void* stream, void* to, const void* from,
                               uint64_t bytes, husk_error* error) {
  return copy_bytes("engine_upload", &husk_port::upload, engine, stream, to, from, bytes, error);
}

husk_status husk_engine_download(husk_engine* engine, void* stream, void* to, const void* from,
                                 uint64_t bytes, husk_error* error) {
  return copy_bytes("engine_download", &husk_port::download, engine, stream, to, from, bytes,
                    error);
}

husk_status husk_engine_alloc_host(husk_engine* engine, uint64_t bytes, void** memory,
                                   husk_error* error) {
  return allocate_memory(engine, true, bytes, memory, error);
}

void husk_engine_free_host(husk_engine* engine, void* memory) {
  if (!engine || !memory) return;
  const auto release = engine->has_host_memory() ? engine->port->free_host : engine->port->free;
  release(engine->device, memory);
}

husk_status husk_engine_copy(husk_engine* engine, void* stream, void* to, const void* from,
                             uint64_t bytes, husk_error* error) {
  return copy_bytes("engine_copy", &husk_port::copy, engine, stream, to, from, bytes, error);
}

husk_status husk_program_verify(const void* data, size_t size, husk_error* error) {
  if (!data) return null_argument(error, "program_verify");
  const husk_allocator& allocator = *default_allocator();
  uint32_t rank = 0, ranks = 0;
  do {
    Container file;
    file.borrow(data, size, nullptr, nullptr);
    Status status = file.read(allocator, 0, rank, error);
    if (!failed(status)) status = file.parse(error);
    if (!failed(status)) status = verify(file, allocator, error);
    if (failed(status)) return husk_status(status);
    ranks = file.ranks();
  } while (++rank < ranks);
  return HUSK_OK;
}

husk_status husk_program_open(husk_engine* engine, const char* path, husk_program** program,
                              husk_error* error) {
  if (!engine || !path || !program) return null_argument(error, "program_open");
  husk_program* opened = begin_program(engine, program, error);
  if (!opened) return HUSK_OUT_OF_MEMORY;
  return finish_program(opened, opened->file.map(path, error), program, error);
}

husk_status husk_program_load(husk_engine* engine, const void* data, size_t size,
                              void (*release)(void* user, const void* data), void* user,
                              husk_program** program, husk_error* error) {
  return load_bytes(engine, data, size, release, user, nullptr, program, error);
}

husk_status husk_program_link(husk_engine* engine, const void* artifact, husk_program** program,
                              husk_error* error) {
  const auto* bytes = static_cast<const uint8_t*>(artifact);
  uint64_t size = 0, features = 0;  // as the header says
  if (bytes) {
    memcpy(&size, bytes + 16, sizeof(size));
    memcpy(&features, bytes + 24, sizeof(features));
  }
  const detail::LinkedTable* table = nullptr;
  if (features & detail::kLinkedFeature) {
    const uint8_t* at = bytes + align_up(size, detail::kLinkedAlign);
    int64_t offset;
    memcpy(&offset, at, sizeof(offset));
    table = reinterpret_cast<const detail::LinkedTable*>(at + offset);
  }
  return load_bytes(engine, bytes, size, nullptr, nullptr, table, program, error);
}

void husk_program_release(husk_program* program) {
  if (!program || !program->references.drop()) return;
  husk_engine* engine = static_cast<husk_engine*>(program->engine);
  end_folding(program);
  destroy(engine->allocator, program);
  husk_engine_release(engine);
}

uint32_t husk_program_function_count(const husk_program* program) {
  return functions_of(program).n;
}

const char* husk_program_function_name(const husk_program* program, uint32_t function) {
  return function < husk_program_function_count(program)
             ? functions_of(program).rows->Get(function)->name()->c_str()
             : "";
}

husk_status husk_program_find_function(const husk_program* program, const char* name,
                                       uint32_t* function, husk_error* error) {
  return find(program, functions_of(program), "function", name, function, error);
}

const char* husk_program_function_target(const husk_program* program, uint32_t function) {
  return function < husk_program_function_count(program) ? program->chosen[function].target : "";
}

uint32_t husk_program_input_count(const husk_program* program, uint32_t function) {
  return count(values_of(program, function, Space::input));
}

uint32_t husk_program_output_count(const husk_program* program, uint32_t function) {
  return count(values_of(program, function, Space::output));
}

husk_status husk_program_input(const husk_program* program, uint32_t function, uint32_t index,
                               husk_value_info* out, husk_error* error) {
  return describe(program, function, Space::input, index, out, error);
}

husk_status husk_program_output(const husk_program* program, uint32_t function, uint32_t index,
                                husk_value_info* out, husk_error* error) {
  return describe(program, function, Space::output, index, out, error);
}

uint32_t husk_program_state_count(const husk_program* program) { return states_of(program).n; }

husk_status husk_program_state(const husk_program* program, uint32_t state, husk_storage_info* out,
                               husk_error* error) {
  return describe(program, states_of(program), "state", state, out, error);
}

husk_status husk_program_find_state(const husk_program* program, const char* name, uint32_t* state,
                                    husk_error* error) {
  return find(program, states_of(program), "state", name, state, error);
}

uint32_t husk_program_host_step_count(const husk_program* program, uint32_t function) {
  if (!program || function >= program->entry_points()) return 0;
  const husk::Code code = program->code(function);
  uint32_t steps = 0;
  for (const husk::fb::Instruction& step : code.steps)
    steps += code.device_of(step) == Device::host;
  return steps;
}

uint64_t husk_program_packed_bytes(const husk_program* program) {
  return program ? program->packed.bytes() + folded_bytes(*program) : 0;
}

uint32_t husk_program_constant_count(const husk_program* program) {
  return constants_of(program).n;
}

husk_status husk_program_constant(const husk_program* program, uint32_t constant,
                                  husk_storage_info* out, husk_error* error) {
  return describe(program, constants_of(program), "constant", constant, out, error);
}

husk_status husk_program_find_constant(const husk_program* program, const char* name,
                                       uint32_t* constant, husk_error* error) {
  return find(program, constants_of(program), "constant", name, constant, error);
}

husk_status husk_program_update_constants(husk_program* program,
                                          const husk_constant_update* updates, uint32_t count,
                                          husk_error* error) {
  if (!program || (count && !updates)) return null_argument(error, "program_update_constants");
  Array<husk_constant_part> parts;
  const Status status = parts.allocate(program->engine->allocator, count, error);
  if (failed(status)) return husk_status(status);
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t constant = updates[i].constant;
    const bool known = constant < program->constants.count();
    parts[i] = {constant, 0, updates[i].bytes, 0, known ? program->constants.bytes(constant) : 0};
  }
  return husk_status(program->update(parts.data(), count, error));
}

husk_status husk_program_update_constant_parts(husk_program* program,
                                               const husk_constant_part* parts, uint32_t count,
                                               husk_error* error) {
  if (!program || (count && !parts)) return null_argument(error, "program_update_constant_parts");
  return husk_status(program->update(parts, count, error));
}

uint32_t husk_program_metadata_count(const husk_program* program) {
  return program ? count(program->rows()->metadata()) : 0;
}

const char* husk_program_metadata_key(const husk_program* program, uint32_t entry) {
  return entry < husk_program_metadata_count(program)
             ? program->rows()->metadata()->Get(entry)->key()->c_str()
             : "";
}

const char* husk_program_metadata_value(const husk_program* program, uint32_t entry) {
  return entry < husk_program_metadata_count(program)
             ? program->rows()->metadata()->Get(entry)->value()->c_str()
             : "";
}

const char* husk_program_pytree(const husk_program* program) {
  return program && program->rows()->pytree() ? program->rows()->pytree()->c_str() : "";
}

husk_status husk_session_create(husk_program* program, const husk_session_options* options,
                                husk_session** session, husk_error* error) {
  if (!program || !session) return null_argument(error, "session_create");
  *session = nullptr;
  husk_session_options full = HUSK_SESSION_OPTIONS_INIT;
  if (options) {
    HUSK_TRY(HUSK_CHECK_STRUCT(husk_session_options, options, mode, error));
    detail::read_struct(*options, &full);
  }
  if (full.mode < HUSK_MODE_AUTO || full.mode > HUSK_MODE_GRAPH)
    return husk_status(
        fail(error, HUSK_INVALID_ARGUMENT, "there is no husk_session_options.mode %d", full.mode));
  if (full.mode == HUSK_MODE_GRAPH && !program->engine->port->graphs)
    return husk_status(fail(error, HUSK_UNSUPPORTED, "port '%s' has no graphs: use HUSK_MODE_AUTO",
                            program->engine->port->name));
  husk_session* created = create<husk_session>(program->engine->allocator, error);
  if (!created) return HUSK_OUT_OF_MEMORY;
  program->references.retain();
  created->options = full;
  created->join(program);
  Status status = Status::ok;
  {
    const SessionCall call(created, error);
    status = created->prepare(0, program->entry_points(), call.error);
  }
  if (failed(status))
    husk_session_release(created);
  else
    *session = created;
  return husk_status(status);
}

void husk_session_release(husk_session* session) {
  if (session && RunGate::release(&session->caller)) destroy_session(session);
}

namespace {

// Returns the frame of a function, or null after filling `error` if the function does not exist.
Frame* frame_of(const husk_session* session, uint32_t function, husk_error* error) {
  if (function < session->program->entry_points()) return session->frames[function];
  bad_index(error, "function", function, session->program->entry_points());
  return nullptr;
}

// Puts the name of the function before the message of a failed call.
husk_status in_function(const husk_session* session, uint32_t function, Status status,
                        husk_error* error) {
  if (failed(status))
    prefix(error, "function '%s': ", session->frames[function]->code.function->name()->c_str());
  return husk_status(status);
}

// Does the work of all functions about one state. `other` is host memory, or a session to copy
// from.
husk_status state_call(const char* name, husk_session* session, uint32_t state, StateWork work,
                       void* other, husk_error* error) {
  if (!session || (!other && work != StateWork::reset)) return null_argument(error, name);
  const uint32_t n = count(session->program->rows()->states());
  if (state >= n) return bad_index(error, "state", state, n);
  const SessionCall call(session, error);
  if (call.busy) return HUSK_INVALID_ARGUMENT;
  husk_session* from = work == StateWork::copy ? static_cast<husk_session*>(other) : session;
  const bool second = from != session;
  if (second && !session->program->gate.enter_also(&from->caller))
    return husk_status(
        fail(error, HUSK_INVALID_ARGUMENT, "the session to copy the state from is in a call"));
  const Status status = session->work_on_state(state, work, other, call.error);
  if (second && RunGate::leave(&from->caller)) destroy_session(from);
  return husk_status(status);
}

}  // namespace

husk_status husk_session_set_range(husk_session* session, uint32_t function, uint32_t input,
                                   uint32_t dim, int64_t min, int64_t max, husk_error* error) {
  if (!session) return null_argument(error, "session_set_range");
  const SessionCall call(session, error);
  const Frame* frame = call.busy ? nullptr : frame_of(session, function, error);
  if (!frame) return HUSK_INVALID_ARGUMENT;
  if (input >= frame->code.inputs()) return bad_index(error, "input", input, frame->code.inputs());
  const Status status = session->set_range(function, input, dim, min, max, call.error);
  return in_function(session, function, status, call.error);
}

husk_status husk_session_resize(husk_session* session, uint32_t function, const husk_value* inputs,
                                uint32_t count, husk_error* error) {
  if (!session) return null_argument(error, "session_resize");
  const SessionCall call(session, error);
  if (call.busy || !frame_of(session, function, error)) return HUSK_INVALID_ARGUMENT;
  const Status status = session->resize(function, inputs, count, call.error);
  return in_function(session, function, status, call.error);
}

uint64_t husk_session_arena_bytes(const husk_session* session) {
  return session ? session->arena_wanted : 0;
}

husk_status husk_session_set_arena(husk_session* session, void* memory, uint64_t bytes,
                                   husk_error* error) {
  if (!session) return null_argument(error, "session_set_arena");
  const SessionCall call(session, error);
  if (call.busy) return HUSK_INVALID_ARGUMENT;
  return husk_status(session->set_arena(memory, bytes, call.error));
}

husk_status husk_session_output_shape(husk_session* session, uint32_t function, uint32_t index,
                                      int64_t* sizes, int64_t* strides, husk_error* error) {
  if (!session) return null_argument(error, "session_output_shape");
  const SessionCall call(session, error);
  const Frame* frame = call.busy ? nullptr : frame_of(session, function, error);
  if (!frame) return HUSK_INVALID_ARGUMENT;
  if (index >= frame->code.outputs())
    return bad_index(error, "output", index, frame->code.outputs());
  if (!frame->code.is_tensor_output(index))
    return husk_status(fail(error, HUSK_INVALID_ARGUMENT, "output %u is not a tensor", index));
  if (frame->io.output_shape(index, sizes, strides)) return HUSK_OK;
  return husk_status(fail(error, HUSK_INVALID_ARGUMENT, "output %u has no shape yet: %s first",
                          index,
                          frame->prologue.evaluated ? "only the data decides it, husk_session_run"
                                                    : "husk_session_resize"));
}

husk_status husk_session_run(husk_session* session, uint32_t function, void* stream,
                             const husk_value* inputs, uint32_t input_count, husk_value* outputs,
                             uint32_t output_count, husk_error* error) {
  if (!session) return null_argument(error, "session_run");
  const SessionCall call(session, error);
  if (call.busy || !frame_of(session, function, error)) return HUSK_INVALID_ARGUMENT;
  const Status status = session->run(function, stream, inputs, input_count, outputs, output_count,
                                     call.error);
  return in_function(session, function, status, call.error);
}

husk_status husk_session_wait(husk_session* session, husk_error* error) {
  if (!session) return null_argument(error, "session_wait");
  const SessionCall call(session, error);
  if (call.busy) return HUSK_INVALID_ARGUMENT;
  return husk_status(session->wait(call.error));
}

static husk_status mark_call(const char* name, husk_session* session, uint32_t mark, bool waits,
                             husk_error* error) {
  if (!session) return null_argument(error, name);
  if (mark >= HUSK_SESSION_MARKS) return bad_index(error, "mark", mark, HUSK_SESSION_MARKS);
  const SessionCall call(session, error);
  if (call.busy) return HUSK_INVALID_ARGUMENT;
  return husk_status(waits ? session->wait_mark(mark, call.error)
                           : session->mark(mark, call.error));
}

husk_status husk_session_mark(husk_session* session, uint32_t mark, husk_error* error) {
  return mark_call("session_mark", session, mark, false, error);
}

husk_status husk_session_wait_mark(husk_session* session, uint32_t mark, husk_error* error) {
  return mark_call("session_wait_mark", session, mark, true, error);
}

husk_status husk_session_state_get(husk_session* session, uint32_t state, void* bytes,
                                   husk_error* error) {
  return state_call("session_state_get", session, state, StateWork::get, bytes, error);
}

husk_status husk_session_state_set(husk_session* session, uint32_t state, const void* bytes,
                                   husk_error* error) {
  return state_call("session_state_set", session, state, StateWork::set, const_cast<void*>(bytes),
                    error);
}

husk_status husk_session_state_reset(husk_session* session, uint32_t state, husk_error* error) {
  return state_call("session_state_reset", session, state, StateWork::reset, nullptr, error);
}

husk_status husk_session_state_copy(husk_session* session, uint32_t state, husk_session* from,
                                    husk_error* error) {
  return state_call("session_state_copy", session, state, StateWork::copy, from, error);
}

husk_status husk_session_stats_get(const husk_session* session, uint32_t function,
                                   husk_session_stats* out, husk_error* error) {
  if (!session || !out) return null_argument(error, "session_stats_get");
  HUSK_TRY(HUSK_CHECK_STRUCT(husk_session_stats, out, steps, error));
  const SessionCall call(const_cast<husk_session*>(session), error);
  const Frame* found = call.busy ? nullptr : frame_of(session, function, error);
  if (!found) return HUSK_INVALID_ARGUMENT;
  const Frame& frame = *found;
  husk_session_stats full = HUSK_SESSION_STATS_INIT;
  full.steps = frame.code.steps.size;
  full.graph_nodes = frame.graph.nodes;
  full.graph_edges = frame.graph.edges;
  full.programmatic_edges = frame.graph.programmatic_edges;
  full.bounded = frame.memory.bounded;
  const ByDevice<Planned>& planned = frame.memory.planned;
  full.arena_bytes = planned[Device::target].peak;
  full.arena_lower_bound = planned[Device::target].lower_bound;
  full.runs_as_graph = frame.runs_as_graph;
  full.runs_as_list = frame.runs_as_list;
  full.nodes_patched = frame.graph.patched;
  full.dynamic_bytes = session->scratch_bytes;
  full.segments = frame.code.segments.size;
  full.dynamic = frame.memory.is_dynamic();
  full.host_arena_bytes = planned[Device::host].peak;
  detail::write_struct(full, out);
  return HUSK_OK;
}
