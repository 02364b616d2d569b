#include "session/session.h"

#include "base/align.h"
#include "model/shape.h"

namespace husk::runtime {

Session::~Session() {
  husk_error ignored;
  (void)wait(&ignored);
  (void)wait_for_default_stream(&ignored);
  for (Frame* frame : frames) destroy_frame(frame);
  if (arena && !options.external_arena) port()->free(device(), arena);
  if (state_memory) port()->free(device(), state_memory);
  port()->free_host_flag(device(), assert_flag);
  program->gate.remove(&caller);
}

void Session::destroy_frame(Frame* frame) {
  if (!frame) return;
  frame->release();
  destroy(allocator(), frame);
}

void Session::join(Program* of) {
  program = of;
  caller.drain = [](void* session, husk_error* e) {
    return static_cast<Session*>(session)->wait(e);
  };
  caller.user = this;
  program->gate.add(&caller);
}

Status Session::prepare(husk_error* error) {
  HUSK_TRY(frames.allocate(allocator(), program->functions(), error));
  uint64_t bounded = 0;  // the largest plan that no run can exceed
  for (uint32_t f = 0; f < program->functions(); ++f) {
    frames[f] = create<Frame>(allocator(), error);
    if (!frames[f]) return to_status(HUSK_OUT_OF_MEMORY);
    HUSK_TRY(frames[f]->prepare(this, f, nullptr, error));
    const MemoryPlan& memory = frames[f]->memory;
    if (memory.bounded && memory.planned.peak > bounded) bounded = memory.planned.peak;
  }
  if (count(program->rows()->asserts()))
    HUSK_TRY(to_status(port()->alloc_host_flag(device(), &assert_flag, error)));
  HUSK_TRY(prepare_states(error));
  return grow_arena(bounded, error);
}

Status Session::prepare_states(husk_error* error) {
  const uint32_t n = count(program->rows()->states());
  HUSK_TRY(states.allocate(allocator(), n, error));
  const uint64_t total = program->state_bytes;
  if (total) {
    Status status = to_status(port()->alloc(device(), total, &state_memory, error));
    if (failed(status)) {
      state_memory = nullptr;
      prefix(error, "the session's state, %llu bytes: ", static_cast<unsigned long long>(total));
      return status;
    }
  }
  uint8_t* at = static_cast<uint8_t*>(state_memory);
  for (uint32_t s = 0; s < n; ++s) {
    states[s] = at;
    at += align_up(verified_bytes(program->rows()->states()->Get(s)), kDeviceAlign);
    HUSK_TRY(work_on_state(s, StateWork::reset, nullptr, error));
  }
  return Status::ok;
}

Status Session::work_on_state(uint32_t index, StateWork work, void* other, husk_error* error) {
  const fb::State* state = program->rows()->states()->Get(index);
  const uint64_t bytes = verified_bytes(state);
  uint8_t* at = states[index];
  Session* from = work == StateWork::copy ? static_cast<husk_session*>(other) : this;
  if (from->program != program)
    return fail(error, HUSK_INVALID_ARGUMENT, "the two sessions are of different programs");
  HUSK_TRY(wait(error));
  HUSK_TRY(from->wait(error));
  if (bytes == 0) return Status::ok;
  if (work == StateWork::get)
    return to_status(port()->download(device(), nullptr, other, at, bytes, error));
  default_busy_ = true;
  husk_status status = HUSK_OK;
  if (work == StateWork::set) {
    status = port()->upload(device(), nullptr, at, other, bytes, error);
  } else if (work == StateWork::copy) {
    if (from != this)
      status = port()->copy(device(), nullptr, at, from->states[index], bytes, error);
  } else if (state->init() != kNone) {
    status = port()->copy(device(), nullptr, at, program->constants.address(state->init()), bytes,
                          error);
  } else {
    const size_t width = husk_dtype_size(static_cast<husk_dtype>(state->dtype()));
    const uint32_t part = width > 8 ? 8 : static_cast<uint32_t>(width);  // the verifier lets wider
                                                                         // elements be 0 only
    status = port()->fill(device(), nullptr, at, state->fill(), part, bytes / part, error);
  }
  HUSK_TRY(to_status(status));
  return wait_for_default_stream(error);
}

Status Session::wait(husk_error* error) {
  if (running_) HUSK_TRY(to_status(port()->stream_wait(device(), stream_, error)));
  running_ = false;
  const uint32_t number = assert_flag ? *assert_flag : 0;
  if (!number) return Status::ok;
  *assert_flag = 0;
  const auto* texts = program->rows()->asserts();
  return fail(error, HUSK_KERNEL, "%s",
              texts->Get((number <= texts->size() ? number : texts->size()) - 1)->c_str());
}

Status Session::wait_for_default_stream(husk_error* error) {
  if (!default_busy_) return Status::ok;
  HUSK_TRY(to_status(port()->stream_wait(device(), nullptr, error)));
  default_busy_ = false;
  return Status::ok;
}

Status Session::allocate_device(uint64_t bytes, const char* purpose, void** out,
                                husk_error* error) {
  *out = nullptr;
  const uint64_t used = arena_bytes + scratch_bytes, limit = options.memory_limit;
  if (limit && (bytes > limit || used > limit - bytes))
    return fail(error, HUSK_LIMIT,
                "%s: %llu bytes on top of the session's %llu would pass its memory_limit of %llu",
                purpose, static_cast<unsigned long long>(bytes),
                static_cast<unsigned long long>(used), static_cast<unsigned long long>(limit));
  Status status = to_status(port()->alloc(device(), bytes, out, error));
  if (!failed(status)) return status;
  *out = nullptr;
  prefix(error, "%s, %llu bytes: ", purpose, static_cast<unsigned long long>(bytes));
  return status;
}

// Makes the session's own arena at least `bytes` large. An arena of the caller stays as it is.
Status Session::grow_arena(uint64_t bytes, husk_error* error) {
  if (bytes > arena_wanted) arena_wanted = bytes;
  if (bytes <= arena_bytes || options.external_arena) return Status::ok;
  HUSK_TRY(wait(error));
  if (arena) port()->free(device(), arena);
  arena = nullptr;
  arena_bytes = 0;
  ++arena_generation;
  HUSK_TRY(allocate_device(bytes, "the session's arena", &arena, error));
  arena_bytes = bytes;
  return Status::ok;
}

Status Session::set_arena(void* memory, uint64_t bytes, husk_error* error) {
  if (!options.external_arena)
    return fail(error, HUSK_INVALID_ARGUMENT,
                "the session has an arena of its own: create it with external_arena set");
  if (reinterpret_cast<uintptr_t>(memory) % kArenaAlign || (!memory && bytes))
    return fail(error, HUSK_INVALID_ARGUMENT, "the arena at %p is not aligned to %u bytes", memory,
                unsigned(kArenaAlign));
  HUSK_TRY(wait(error));
  arena = memory;
  arena_bytes = bytes;
  ++arena_generation;
  return Status::ok;
}

// Grows by at least half, so that sizes which increase slowly do not allocate each time. The memory
// limit may not allow that.
Status Session::grow(ScratchBuffer* buffer, uint64_t bytes, const char* purpose,
                     husk_error* error) {
  if (bytes <= buffer->bytes) return Status::ok;
  if (capturing_)
    return fail(error, HUSK_UNSUPPORTED,
                "%s, %llu bytes, and a run whose stream is captured allocates nothing: run once "
                "before",
                purpose, static_cast<unsigned long long>(bytes));
  const bool running = running_;
  HUSK_TRY(wait(error));
  running_ = running;  // a run goes on, and enqueues more steps
  uint64_t wanted = buffer->bytes + buffer->bytes / 2;
  release(buffer);
  if (wanted < bytes ||
      (options.memory_limit && wanted > options.memory_limit - arena_bytes - scratch_bytes))
    wanted = bytes;
  HUSK_TRY(allocate_device(wanted, purpose, &buffer->data, error));
  buffer->bytes = wanted;
  scratch_bytes += wanted;
  return Status::ok;
}

void Session::release(ScratchBuffer* buffer) {
  if (buffer->data) port()->free(device(), buffer->data);
  scratch_bytes -= buffer->bytes;
  *buffer = {};
}

// The new frame is ready before the old one is destroyed, so a failure changes nothing.
Status Session::set_range(uint32_t function, uint32_t input, uint32_t dim, int64_t min, int64_t max,
                          husk_error* error) {
  Frame* old = frames[function];
  const fb::Value* value = old->code.input(input);
  const char* name = value->name()->c_str();
  if (dim >= count(value->dims()))
    return fail(error, HUSK_INVALID_ARGUMENT, "input '%s' has no dim %u with a range", name, dim);
  const fb::Dim* file = value->dims()->Get(dim);
  if (min > max || min < file->min() || max > file->max())
    return fail(error, HUSK_INVALID_ARGUMENT,
                "the range of dim %u of input '%s' does not lie in the file's, %lld..%lld", dim,
                name, static_cast<long long>(file->min()), static_cast<long long>(file->max()));
  HUSK_TRY(wait(error));
  const Array<Interval>& ranges = old->io.ranges;
  Array<Interval> narrowed;
  HUSK_TRY(narrowed.allocate(allocator(), ranges.size(), error));
  for (size_t i = 0; i < ranges.size(); ++i) narrowed[i] = ranges[i];
  narrowed[size_t{input} * limits::kMaxRank + dim] = {min, max};
  Frame* frame = create<Frame>(allocator(), error);
  if (!frame) return to_status(HUSK_OUT_OF_MEMORY);
  Status status = frame->prepare(this, function, narrowed.data(), error);
  if (!failed(status) && frame->memory.bounded)
    status = grow_arena(frame->memory.planned.peak, error);
  if (failed(status)) {
    destroy_frame(frame);
    return status;
  }
  frames[function] = frame;
  destroy_frame(old);
  return Status::ok;
}

}  // namespace husk::runtime
