#include "session.h"

using husk::Frame;
using husk::Status;
using husk::fail;
using husk::failed;
using husk::to_status;

husk::Visit::Visit(husk_session* session) : session_(session) {
  for (;;) {
    session->busy.store(1);
    if (!session->program->updating.load()) return;
    session->busy.store(0);
    pthread_mutex_lock(&session->program->mutex);  // until the update is done
    pthread_mutex_unlock(&session->program->mutex);
  }
}

husk_session::~husk_session() {
  {
    const husk::Visit visit(this);
    (void)wait(&sink.spare);
    (void)settle_default(&sink.spare);
  }
  for (Frame* frame : frames) discard(frame);
  if (arena && !options.lent_arena) port()->free(device(), arena);
  if (state_memory) port()->free(device(), state_memory);
  port()->unshare(device(), failed_assert);
  program->remove(this);
}

void husk_session::discard(Frame* frame) {
  if (!frame) return;
  if (frame->session) {
    frame->graph.reset(*frame);
    frame->drop_rooms();
  }
  husk::destroy(allocator(), frame);
}

Status husk_session::prepare(husk_error* error) {
  HUSK_TRY(frames.allocate(allocator(), program->functions(), error));
  uint64_t bounded = 0;
  for (uint32_t f = 0; f < program->functions(); ++f) {
    frames[f] = husk::create<Frame>(allocator(), error);
    if (!frames[f]) return to_status(HUSK_OUT_OF_MEMORY);
    HUSK_TRY(frames[f]->prepare(this, f, nullptr, error));
    if (frames[f]->bounded && frames[f]->planned.peak > bounded) bounded = frames[f]->planned.peak;
  }
  if (husk::count(program->rows()->asserts())) HUSK_TRY(to_status(port()->share(device(), &failed_assert, error)));
  const uint32_t n = husk::count(program->rows()->states());
  HUSK_TRY(states.allocate(allocator(), n, error));
  uint64_t total = 0;
  for (uint32_t s = 0; s < n; ++s) {
    states[s] = reinterpret_cast<uint8_t*>(total);  // an offset until the memory is there
    total += (husk::state_bytes(program->rows()->states()->Get(s)) + 255) / 256 * 256;
  }
  if (total) {
    Status status = to_status(port()->alloc(device(), total, &state_memory, error));
    if (failed(status)) {
      state_memory = nullptr;
      husk::prefix(error, "the session's state, %llu bytes: ", static_cast<unsigned long long>(total));
      return status;
    }
  }
  for (uint32_t s = 0; s < n; ++s) {
    states[s] = static_cast<uint8_t*>(state_memory) + reinterpret_cast<uintptr_t>(states[s]);
    HUSK_TRY(work_on_state(s, husk::StateWork::reset, nullptr, error));
  }
  return reserve_arena(bounded, error);
}

Status husk_session::work_on_state(uint32_t index, husk::StateWork work, void* other, husk_error* error) {
  const husk::fb::State* state = program->rows()->states()->Get(index);
  const uint64_t bytes = husk::state_bytes(state);
  uint8_t* at = states[index];
  husk_session* from = work == husk::StateWork::copy ? static_cast<husk_session*>(other) : this;
  if (from->program != program) return fail(error, HUSK_INVALID_ARGUMENT, "the two sessions are of different programs");
  HUSK_TRY(wait(error));
  HUSK_TRY(from->wait(error));
  if (bytes == 0) return Status::ok;
  if (work == husk::StateWork::get) return to_status(port()->download(device(), nullptr, other, at, bytes, error));
  default_busy = true;
  husk_status status;
  if (work == husk::StateWork::set) {
    status = port()->upload(device(), nullptr, at, other, bytes, error);
  } else if (work == husk::StateWork::copy) {
    status = from == this ? HUSK_OK : port()->copy(device(), nullptr, at, from->states[index], bytes, error);
  } else if (state->init() != husk::kNone) {
    status = port()->copy(device(), nullptr, at, program->constants[state->init()], bytes, error);
  } else {
    const size_t width = husk_dtype_size(static_cast<husk_dtype>(state->dtype()));
    const uint32_t part = width > 8 ? 8 : static_cast<uint32_t>(width);  // wider elements are filled with 0 only
    status = port()->fill(device(), nullptr, at, state->fill(), part, bytes / part, error);
  }
  HUSK_TRY(to_status(status));
  return settle_default(error);
}

Status husk_session::wait(husk_error* error) {
  if (!running) return Status::ok;
  HUSK_TRY(to_status(port()->stream_wait(device(), stream, error)));
  running = false;
  const uint32_t number = failed_assert ? *failed_assert : 0;
  if (!number) return Status::ok;
  *failed_assert = 0;
  const auto* texts = program->rows()->asserts();
  return fail(error, HUSK_KERNEL, "%s", texts->Get((number <= texts->size() ? number : texts->size()) - 1)->c_str());
}

Status husk_session::settle_default(husk_error* error) {
  if (!default_busy) return Status::ok;
  HUSK_TRY(to_status(port()->stream_wait(device(), nullptr, error)));
  default_busy = false;
  return Status::ok;
}

Status husk_session::allocate(uint64_t bytes, const char* what, void** out, husk_error* error) {
  *out = nullptr;
  const uint64_t has = arena_bytes + room_bytes;
  if (options.memory_limit && (bytes > options.memory_limit || has > options.memory_limit - bytes))
    return fail(error, HUSK_LIMIT, "%s: %llu bytes beside the session's %llu would pass its memory_limit of %llu", what,
                static_cast<unsigned long long>(bytes), static_cast<unsigned long long>(has),
                static_cast<unsigned long long>(options.memory_limit));
  Status status = to_status(port()->alloc(device(), bytes, out, error));
  if (!failed(status)) return status;
  *out = nullptr;
  husk::prefix(error, "%s, %llu bytes: ", what, static_cast<unsigned long long>(bytes));
  return status;
}

Status husk_session::reserve_arena(uint64_t bytes, husk_error* error) {
  if (bytes > arena_wanted) arena_wanted = bytes;
  if (bytes <= arena_bytes || options.lent_arena) return Status::ok;
  HUSK_TRY(wait(error));
  if (arena) port()->free(device(), arena);
  arena = nullptr;
  arena_bytes = 0;
  ++layout;
  HUSK_TRY(allocate(bytes, "the session's arena", &arena, error));
  arena_bytes = bytes;
  return Status::ok;
}

Status husk_session::lend_arena(void* memory, uint64_t bytes, husk_error* error) {
  if (!options.lent_arena)
    return fail(error, HUSK_INVALID_ARGUMENT, "the session has an arena of its own: create it with lent_arena set");
  if (reinterpret_cast<uintptr_t>(memory) % husk::kArenaAlign || (!memory && bytes))
    return fail(error, HUSK_INVALID_ARGUMENT, "the lent arena at %p is not aligned to %u bytes", memory,
                unsigned(husk::kArenaAlign));
  HUSK_TRY(wait(error));
  arena = memory;
  arena_bytes = bytes;
  ++layout;
  return Status::ok;
}

Status husk_session::reserve(husk::Room* room, uint64_t bytes, const char* what, husk_error* error) {
  if (bytes <= room->bytes) return Status::ok;
  HUSK_TRY(wait(error));
  uint64_t wanted = room->bytes + room->bytes / 2;   // sizes that creep up do not allocate each time
  drop(room);
  if (wanted < bytes || (options.memory_limit && wanted > options.memory_limit - arena_bytes - room_bytes)) wanted = bytes;
  HUSK_TRY(allocate(wanted, what, &room->data, error));
  room->bytes = wanted;
  room_bytes += wanted;
  return Status::ok;
}

void husk_session::drop(husk::Room* room) {
  if (room->data) port()->free(device(), room->data);
  room_bytes -= room->bytes;
  *room = {};
}

// A new frame stands ready before the old one goes, so a failure changes nothing.
Status husk_session::bound(uint32_t function, uint32_t input, uint32_t dim, int64_t min, int64_t max, husk_error* error) {
  Frame* old = frames[function];
  const husk::fb::Value* value = old->code.input(input);
  const char* name = value->name()->c_str();
  if (dim >= husk::count(value->dims()))
    return fail(error, HUSK_INVALID_ARGUMENT, "input '%s' has no dim %u with a range", name, dim);
  const husk::fb::Dim* file = value->dims()->Get(dim);
  if (min > max || min < file->min() || max > file->max())
    return fail(error, HUSK_INVALID_ARGUMENT, "the range of dim %u of input '%s' does not lie in the file's, %lld..%lld", dim, name,
                static_cast<long long>(file->min()), static_cast<long long>(file->max()));
  HUSK_TRY(wait(error));
  husk::Array<husk::Interval> dims;
  HUSK_TRY(dims.allocate(allocator(), old->input_states[old->code.inputs()].first_dim, error));
  for (size_t i = 0; i < dims.size(); ++i) dims[i] = old->dims[i];
  dims[old->input_states[input].first_dim + dim] = {min, max};
  Frame* made = husk::create<Frame>(allocator(), error);
  if (!made) return to_status(HUSK_OUT_OF_MEMORY);
  Status status = made->prepare(this, function, dims.data(), error);
  if (!failed(status) && made->bounded) status = reserve_arena(made->planned.peak, error);
  if (failed(status)) {
    discard(made);
    return status;
  }
  frames[function] = made;
  discard(old);
  return Status::ok;
}
