#include "session/session.h"

#include "base/align.h"
#include "model/shape.h"

namespace husk::runtime {

Session::~Session() {
  husk_error ignored;
  (void)wait(&ignored);
  (void)wait_for_default_stream(&ignored);
  for (Frame* frame : frames) destroy_frame(frame);
  for (Device device : kDevices)
    if (!is_external(device)) free_memory(device, arenas[device].memory);
  if (op_scratch) allocator().release(allocator().user, op_scratch);
  if (state_memory) port()->free(device(), state_memory);
  port()->free_host_flag(device(), assert_flag);
  for (void* event : marks_)
    if (event) port()->event_destroy(device(), event);
  timer_.release();
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

Status Session::prepare(uint32_t first, uint32_t end, husk_error* error) {
  HUSK_TRY(frames.allocate(allocator(), end, error));
  ByDevice<Planned> bounded = {};  // the largest plans that no run can exceed
  for (uint32_t f = first; f < end; ++f) {
    if (!program->runs(f)) continue;
    frames[f] = create<Frame>(allocator(), error);
    if (!frames[f]) return to_status(HUSK_OUT_OF_MEMORY);
    HUSK_TRY(frames[f]->prepare(this, f, nullptr, error));
    const MemoryPlan& memory = frames[f]->memory;
    if (!memory.bounded) continue;
    for (Device device : kDevices)
      if (memory.planned[device].peak > bounded[device].peak)
        bounded[device] = memory.planned[device];
  }
  if (count(program->rows()->asserts()))
    HUSK_TRY(to_status(port()->alloc_host_flag(device(), &assert_flag, error)));
  if (options.trace) HUSK_TRY(timer_.prepare(this, error));
  if (first < program->entry_points()) HUSK_TRY(prepare_states(error));
  HUSK_TRY(prepare_op_scratch(error));
  return grow_arenas(bounded, error);
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

Status Session::prepare_op_scratch(husk_error* error) {
  const uint64_t bytes = program->op_scratch;
  if (bytes == 0) return Status::ok;
  const char* purpose = "the scratch memory of the session's ops";
  HUSK_TRY(check_limit(bytes, purpose, error));
  op_scratch = allocator().allocate(allocator().user, bytes, 64);
  if (!op_scratch)
    return fail(error, HUSK_OUT_OF_MEMORY, "%s: no memory for %llu bytes", purpose,
                static_cast<unsigned long long>(bytes));
  scratch_bytes += bytes;
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
  return check_asserts(error);
}

// A port that cannot wait for an event has done all work when a call returns, if its device has the
// memory of the host. After a mark the stream counts as busy, since the application may have
// enqueued work there after the last wait.
Status Session::mark(uint32_t number, husk_error* error) {
  if (!port()->event_wait) {
    if (program->engine->properties.host_memory) return Status::ok;
    return fail(error, HUSK_UNSUPPORTED, "port '%s' has no event_wait: call husk_session_wait",
                port()->name);
  }
  int32_t capturing = 0;
  if (port()->stream_capturing)
    HUSK_TRY(to_status(port()->stream_capturing(device(), stream_, &capturing, error)));
  if (capturing)
    return fail(error, HUSK_UNSUPPORTED, "the stream is captured: mark it after the capture");
  running_ = true;
  void*& event = marks_[number];
  if (!event) HUSK_TRY(to_status(port()->event_create(device(), &event, error)));
  return to_status(port()->event_record(device(), event, stream_, error));
}

Status Session::wait_mark(uint32_t number, husk_error* error) {
  if (!marks_[number]) return wait(error);
  HUSK_TRY(to_status(port()->event_wait(device(), marks_[number], error)));
  return check_asserts(error);
}

Status Session::check_asserts(husk_error* error) {
  const uint32_t number = assert_flag ? *assert_flag : 0;
  if (!number) return Status::ok;
  *assert_flag = 0;
  const auto* texts = program->rows()->asserts();
  return fail(error, HUSK_KERNEL, "%s",
              texts->Get((number <= texts->size() ? number : texts->size()) - 1)->c_str());
}

Status Session::wait_within_run(husk_error* error) {
  const bool running = running_;
  HUSK_TRY(wait(error));
  running_ = running;
  return Status::ok;
}

Status Session::wait_for_default_stream(husk_error* error) {
  if (!default_busy_) return Status::ok;
  HUSK_TRY(to_status(port()->stream_wait(device(), nullptr, error)));
  default_busy_ = false;
  return Status::ok;
}

// Fails if the session may not have so much more memory.
Status Session::check_limit(uint64_t bytes, const char* purpose, husk_error* error) const {
  const uint64_t used = used_bytes(), limit = options.memory_limit;
  if (!limit || (bytes <= limit && used <= limit - bytes)) return Status::ok;
  return fail(
      error, HUSK_LIMIT, "%s: %llu bytes on top of the session's %llu would pass its %s of %llu",
      purpose, static_cast<unsigned long long>(bytes), static_cast<unsigned long long>(used),
      this == program->folding ? "share of husk_engine_options.max_program_bytes" : "memory_limit",
      static_cast<unsigned long long>(limit));
}

Status Session::allocate_memory(Device where, uint64_t bytes, const char* purpose, void** out,
                                husk_error* error) {
  *out = nullptr;
  HUSK_TRY(check_limit(bytes, purpose, error));
  const auto allocate = where == Device::host ? port()->alloc_host : port()->alloc;
  Status status = to_status(allocate(device(), bytes, out, error));
  if (!failed(status)) return status;
  *out = nullptr;
  prefix(error, "%s, %llu bytes: ", purpose, static_cast<unsigned long long>(bytes));
  return status;
}

void Session::free_memory(Device where, void* memory) {
  if (!memory) return;
  const auto release = where == Device::host ? port()->free_host : port()->free;
  release(device(), memory);
}

// Makes the session's own arenas at least as large as the plans. An arena of the caller stays as it
// is.
Status Session::grow_arenas(const ByDevice<Planned>& planned, husk_error* error) {
  if (planned[Device::target].peak > arena_wanted) arena_wanted = planned[Device::target].peak;
  for (Device device : kDevices)
    if (planned[device].peak > arenas[device].bytes && !is_external(device))
      HUSK_TRY(replace_arena(device, planned[device].peak, error));
  return Status::ok;
}

Status Session::replace_arena(Device where, uint64_t bytes, husk_error* error) {
  HUSK_TRY(wait(error));
  Arena& arena = arenas[where];
  free_memory(where, arena.memory);
  arena = {nullptr, 0};
  ++arena_generation;
  const char* purpose = where == Device::host ? "the session's arena in host memory"
                                              : "the session's arena";
  HUSK_TRY(allocate_memory(where, bytes, purpose, &arena.memory, error));
  arena.bytes = bytes;
  return Status::ok;
}

// Fails if the plan does not fit into the arenas.
Status Session::check_arenas(const MemoryPlan& memory, husk_error* error) const {
  for (Device device : kDevices) {
    const uint64_t peak = memory.planned[device].peak, bytes = arenas[device].bytes;
    if (peak <= bytes) continue;
    return fail(error, HUSK_NEEDS_RESIZE,
                "these shapes need %llu bytes of memory%s, the session has %llu: %s first",
                static_cast<unsigned long long>(peak), device == Device::host ? " of the host" : "",
                static_cast<unsigned long long>(bytes),
                is_external(device) ? "husk_session_set_arena with more"
                                    : "call husk_session_resize with them");
  }
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
  arenas[Device::target] = {memory, bytes};
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
  HUSK_TRY(wait_within_run(error));
  uint64_t wanted = buffer->bytes + buffer->bytes / 2;
  release(buffer);
  if (wanted < bytes || (options.memory_limit && wanted > options.memory_limit - used_bytes()))
    wanted = bytes;
  HUSK_TRY(allocate_memory(buffer->device, wanted, purpose, &buffer->data, error));
  buffer->bytes = wanted;
  scratch_bytes += wanted;
  return Status::ok;
}

void Session::release(ScratchBuffer* buffer) {
  free_memory(buffer->device, buffer->data);
  scratch_bytes -= buffer->bytes;
  *buffer = {nullptr, 0, buffer->device};
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
  if (!failed(status) && frame->memory.bounded) status = grow_arenas(frame->memory.planned, error);
  if (failed(status)) {
    destroy_frame(frame);
    return status;
  }
  frames[function] = frame;
  destroy_frame(old);
  return Status::ok;
}

}  // namespace husk::runtime
