#include "session/step_arguments.h"

#include <cstring>

#include "model/overlap.h"
#include "model/shape.h"
#include "program/contract.h"
#include "program/op_arguments.h"
#include "session/encoding.h"
#include "session/session.h"

namespace husk::runtime {
namespace {

constexpr char kWrongArtifact[] = ": the artifact is wrong for these shapes, export it again";

// The most pairs of a function. Few arguments of a usual call are in one buffer.
constexpr size_t kMaxPairs = 1u << 20;
// Pairs that are checked between two questions whether the run goes on. A pair takes up to 20
// microseconds.
constexpr uint32_t kPairsBetweenQuestions = 64;

constexpr int64_t kGridLimit[3] = {limits::kMaxGridX, limits::kMaxGridY, limits::kMaxGridZ};

// The device that does a step. The host reads its own memory itself.
Device device_of(const Code& code, const fb::Instruction& step) {
  if (static_cast<Step>(step.op()) != Step::op_read) return code.device_of(step);
  return code.device_of(code.views[code.arguments[step.b()].index()].buffer());
}

}  // namespace

Status StepArguments::prepare(Session* session, const Code& code, Prologue& prologue,
                              const MemoryPlan& memory, const void* const* packed,
                              husk_error* error) {
  session_ = session;
  packed_ = packed;
  code_ = &code;
  prologue_ = &prologue;
  memory_ = &memory;
  const husk_allocator& allocator = session->allocator();
  const uint32_t n = code.arguments.size;
  HUSK_TRY(values.allocate(allocator, n, error));
  HUSK_TRY(states.allocate(allocator, code.steps.size + size_t{1}, error));
  HUSK_TRY(params_.allocate(allocator, n, error));
  HUSK_TRY(dynamic_.allocate(allocator, n, error));
  HUSK_TRY(written_for_.allocate(allocator, code.segments.size, error));
  if (session->port()->launch_list) HUSK_TRY(launches_.allocate(allocator, code.steps.size, error));
  for (uint32_t i = 0; i < n; ++i) params_[i] = &values[i];
  uint32_t dynamic = 0;
  bool has_operators = false;
  Array<uint32_t> first_in, next;  // lists of arguments for prepare_pairs()
  for (uint32_t s = 0; s < code.steps.size; ++s) {
    const fb::Instruction& step = code.steps[s];
    const auto kind = static_cast<Step>(step.op());
    if (kind == Step::op_extern && !has_operators) {
      HUSK_TRY(first_in.allocate(allocator, code.buffers.size, error));
      HUSK_TRY(next.allocate(allocator, n, error));
      has_operators = true;
    }
    states[s].first_dynamic = dynamic;
    states[s].first_pair = static_cast<uint32_t>(pairs_.size());
    states[s].device = device_of(code, step);
    if (kind == Step::op_extern) HUSK_TRY(prepare_pairs(s, &first_in, &next, error));
    for (uint32_t i = step.b(); i < step.b() + step.c(); ++i)
      if (!is_static(code.arguments[i])) dynamic_[dynamic++] = i;
    if (kind != Step::op_launch) continue;
    const fb::Kernel* kernel = code.program->kernels()->Get(step.a());
    if (kernel->params()) states[s].types = kernel->params()->data();
    husk_launch& launch = states[s].launch;
    launch.struct_size = sizeof(launch);
    for (uint32_t d = 0; d < 3; ++d) launch.block[d] = kernel->block()->Get(d);
    launch.shared_bytes = kernel->shared();
    launch.cluster = kernel->cluster();
    if (kernel->flags() & kCooperative)
      launch.flags = HUSK_LAUNCH_COOPERATIVE;
    else if (kernel->flags() & kPdlWaitFirst && !session->options.full_edges)
      launch.flags = HUSK_LAUNCH_PROGRAMMATIC;
    launch.params = params_.data() + step.b() + 3;  // the first three arguments are the grid
    if (launches_.size()) launches_[s] = {session->program->kernels[step.a()], &launch};
  }
  states[code.steps.size].first_dynamic = dynamic;
  states[code.steps.size].first_pair = static_cast<uint32_t>(pairs_.size());
  if (launches_.size()) HUSK_TRY(prepare_groups(error));
  if (!has_operators) return Status::ok;
  HUSK_TRY(op_args_.allocate(allocator, n, error));
  return op_sizes_.allocate(allocator, code.operands.size, error);
}

// Finds the launches that follow one another in a segment. Those that are linked into the process
// as code are a group of their own.
Status StepArguments::prepare_groups(husk_error* error) {
  const Program& program = *session_->program;
  const husk_port* port = session_->port();
  HUSK_TRY(groups_.allocate(session_->allocator(), code_->steps.size, error));
  if (port->launch_linked)
    for (const detail::LinkedLaunches& linked : program.file.linked_launches())
      if (program.rows()->functions()->Get(linked.function) == code_->function &&
          program.chosen[linked.function].variant == linked.variant)
        groups_[linked.first_step] = {linked.first_step + linked.count, linked.code};
  for (const fb::Segment& segment : code_->segments)
    for (uint32_t s = segment.step_end(); s-- > segment.step_begin();) {
      if (!launches_[s].kernel || groups_[s].code) continue;
      const bool is_last = s + 1 == segment.step_end() || !groups_[s + 1].end ||
                           groups_[s + 1].code;
      groups_[s].end = is_last ? s + 1 : groups_[s + 1].end;
    }
  return Status::ok;
}

// Lists the tensors of an extern step that the op writes, with the arguments in the same buffer.
// Two buffers of one step never share memory. `first_in` (by buffer, 0 on entry and exit) and
// `next` (by argument) are for lists of the arguments in each buffer. They contain indices plus
// one; 0 ends a list.
Status StepArguments::prepare_pairs(uint32_t step, Array<uint32_t>* first_in, Array<uint32_t>* next,
                                    husk_error* error) {
  const Code& code = *code_;
  const fb::Instruction& op = code.steps[step];
  const char* contract = session_->program->op_of(code, op).contract;
  if (!contract) return Status::ok;
  const auto buffer_of = [&](uint32_t argument) {
    const uint32_t view = code.view_of(code.arguments[argument]);
    return view == kNone ? kNone : code.views[view].buffer();
  };
  const husk_allocator& allocator = session_->allocator();
  for (uint32_t i = op.c(); i-- > 0;) {
    const uint32_t buffer = buffer_of(op.b() + i);
    if (buffer == kNone) continue;
    (*next)[op.b() + i] = (*first_in)[buffer];
    (*first_in)[buffer] = i + 1;
  }
  for (uint32_t w = 0; w < op.c(); ++w) {
    const uint32_t buffer = buffer_of(op.b() + w);
    if (buffer == kNone) continue;
    const ArgumentContract written = argument_contract(contract, code, op, w);
    if (!writes(written.access)) continue;
    HUSK_TRY(pairs_.push(allocator, {op.b() + w, op.b() + w, false}, error));
    for (uint32_t at = (*first_in)[buffer]; at > 0; at = (*next)[op.b() + at - 1]) {
      const uint32_t i = at - 1;
      if (i == w) continue;
      const bool may_be_same = written.same_as.text &&
                               argument_contract(contract, code, op, i).name == written.same_as;
      HUSK_TRY(pairs_.push(allocator, {op.b() + w, op.b() + i, may_be_same}, error));
      if (pairs_.size() > kMaxPairs)
        return fail(error, HUSK_LIMIT,
                    "function '%.40s': its ops have more than %u pairs of a tensor that is written "
                    "and another one in the same buffer",
                    code.function->name()->c_str(), unsigned(kMaxPairs));
    }
  }
  for (uint32_t i = 0; i < op.c(); ++i)
    if (const uint32_t buffer = buffer_of(op.b() + i); buffer != kNone) (*first_in)[buffer] = 0;
  return Status::ok;
}

// Checks that what an op writes is no part of another argument.
Status StepArguments::check_pairs(uint32_t step, husk_error* error) {
  const auto elements = [&](uint32_t argument) {
    const husk_op_arg& a = op_args_[argument];
    return Elements{reinterpret_cast<uintptr_t>(a.data), a.sizes, a.strides,
                    static_cast<uint32_t>(a.rank),
                    husk_dtype_size(static_cast<husk_dtype>(a.dtype))};
  };
  const uint32_t first = code_->steps[step].b();
  for (uint32_t i = states[step].first_pair; i < states[step + 1].first_pair; ++i) {
    const WrittenPair& pair = pairs_[i];
    if (++unasked_pairs_ == kPairsBetweenQuestions) {
      unasked_pairs_ = 0;
      HUSK_TRY(session_->check_cancel(error));
    }
    const Elements written = elements(pair.written);
    if (pair.written == pair.other) {
      if (!has_nested_dimensions(written))
        return invalid_input(error, "the op writes argument %u, whose strides overlap%s",
                             pair.written - first, kWrongArtifact);
      continue;
    }
    const Elements other = elements(pair.other);
    if ((pair.may_be_same && same_elements(written, other)) ||
        !overlap(written, other, &search_work_))
      continue;
    return invalid_input(error,
                         "the op writes argument %u, which shares elements with argument %u%s",
                         pair.written - first, pair.other - first, kWrongArtifact);
  }
  return Status::ok;
}

// Checks the number of elements that an op may visit.
Status StepArguments::check_elements(uint32_t step, husk_error* error) const {
  const uint64_t limit = session_->program->engine->options.max_step_elements;
  if (!limit) return Status::ok;
  const fb::Instruction& op = code_->steps[step];
  uint64_t sum = 0;
  for (uint32_t i = op.b(); i < op.b() + op.c(); ++i) {
    int64_t elements = 0;
    if (op_args_[i].kind != HUSK_ARG_TENSOR) continue;
    (void)count_elements(op_args_[i].sizes, static_cast<uint32_t>(op_args_[i].rank), &elements);
    if (static_cast<uint64_t>(elements) > limit - sum)
      return fail(error, HUSK_LIMIT,
                  "the op's tensors have more than %llu elements: "
                  "husk_engine_options.max_step_elements",
                  static_cast<unsigned long long>(limit));
    sum += static_cast<uint64_t>(elements);
  }
  return Status::ok;
}

// Returns whether the session's ranges fix the argument, once its buffer has an address.
bool StepArguments::is_static(const fb::Argument& argument) const {
  const Prologue& prologue = *prologue_;
  switch (static_cast<ArgumentKind>(argument.kind())) {
    case ArgumentKind::integer: return prologue.is_fixed(argument.index());
    case ArgumentKind::floating:
      // The registers of a segment that is skipped are 0.
      return static_cast<Scalar>(code_->scalars[argument.index()].op()) == Scalar::op_fconst &&
             code_->segments[code_->segment_of(argument.index())].when() == kNone;
    case ArgumentKind::view: {
      const fb::View& view = code_->views[argument.index()];
      const fb::Buffer& buffer = code_->buffers[view.buffer()];
      const auto space = static_cast<Space>(buffer.space());
      return prologue.is_fixed(view.offset()) && prologue.is_fixed(view.extent()) &&
             prologue.is_fixed(buffer.size()) && space != Space::input && space != Space::output &&
             memory_->places[view.buffer()].sized_in == 0;
    }
    case ArgumentKind::null: return true;
    default: return false;
  }
}

Status StepArguments::write_segment(uint32_t segment, bool nothing_changed, husk_error* error) {
  const bool all = written_for_[segment] != memory_->binding_generation;
  if (nothing_changed && !all) return Status::ok;
  const fb::Segment& range = code_->segments[segment];
  search_work_ = kMaxSearches;
  for (uint32_t s = range.step_begin(); s < range.step_end(); ++s) {
    const bool is_fixed = states[s].first_dynamic == states[s + 1].first_dynamic;
    if (!all && is_fixed && static_cast<Step>(code_->steps[s].op()) != Step::op_extern) continue;
    Status status = write_step(s, all, error);
    if (!failed(status)) continue;
    add_step_context(s, error);
    return status;
  }
  written_for_[segment] = memory_->binding_generation;
  return Status::ok;
}

Status StepArguments::prepare_segment(uint32_t segment, husk_error* error) {
  preparing_ = true;
  Status status = write_segment(segment, false, error);
  preparing_ = false;
  return status;
}

Status StepArguments::prepare_step(uint32_t step, husk_error* error) {
  preparing_ = true;
  search_work_ = kMaxSearches;
  Status status = write_step(step, true, error);
  preparing_ = false;
  return status;
}

Status StepArguments::write_step(uint32_t step, bool all, husk_error* error) {
  const Code& code = *code_;
  const Register* registers = prologue_->registers.data();
  const fb::Instruction& op = code.steps[step];
  const auto kind = static_cast<Step>(op.op());
  StepState& state = states[step];
  if (kind == Step::op_extern) {
    HUSK_TRY(write_operator_arguments(step, error));
    HUSK_TRY(check_elements(step, error));
    HUSK_TRY(check_pairs(step, error));
    return preparing_ ? call_operator(step, true, nullptr, error) : Status::ok;
  }
  const uint32_t begin = all ? op.b() : state.first_dynamic;
  const uint32_t end = all ? op.b() + op.c() : states[step + 1].first_dynamic;
  for (uint32_t n = begin; n < end; ++n) {
    const uint32_t i = all ? n : dynamic_[n], at = i - op.b();
    const fb::Argument& argument = code.arguments[i];
    switch (static_cast<ArgumentKind>(argument.kind())) {
      case ArgumentKind::view: {
        const fb::View& view = code.views[argument.index()];
        HUSK_TRY(check_view(view, registers, error));
        values[i] = reinterpret_cast<uintptr_t>(memory_->address(view));
        break;
      }
      case ArgumentKind::integer:
      case ArgumentKind::floating: {
        const Register value = registers[argument.index()];
        if (kind == Step::op_launch && at < 3) {
          if (value.i < 0 || value.i > kGridLimit[at])
            return invalid_input(
                error, "grid dimension %u is %lld, outside 0..%lld: the inputs are too large", at,
                static_cast<long long>(value.i), static_cast<long long>(kGridLimit[at]));
          state.launch.grid[at] = static_cast<uint32_t>(value.i);
          break;
        }
        const uint8_t type = kind == Step::op_launch ? state.types[at - 3] : argument.type();
        if (!encode(type, value, &values[i]))
          return invalid_input(
              error, "argument %u is %lld, which %s does not hold: the inputs are too large", at,
              static_cast<long long>(value.i), husk_dtype_name(static_cast<husk_dtype>(type)));
        break;
      }
      default: {  // null, or the flag that the asserts of kernels set
        const bool assert_flag = argument.index() != 0;
        values[i] = assert_flag ? reinterpret_cast<uintptr_t>(session_->assert_flag) : 0;
      }
    }
  }
  if (kind != Step::op_copy && kind != Step::op_fill) return Status::ok;
  auto extent = [&](uint32_t argument) {
    return registers[code.views[code.arguments[op.b() + argument].index()].extent()].i;
  };
  if (kind == Step::op_copy) HUSK_TRY(check_copy(step, error));
  state.length = static_cast<uint64_t>(extent(0)) / (kind == Step::op_copy ? 1 : fill_width(step));
  return Status::ok;
}

// Checks that the views of a copy have the same extent and do not overlap. Views of two buffers
// never do.
Status StepArguments::check_copy(uint32_t step, husk_error* error) const {
  const Code& code = *code_;
  const Register* registers = prologue_->registers.data();
  const uint32_t first = code.steps[step].b();
  const fb::View &to = code.views[code.arguments[first].index()],
                 &from = code.views[code.arguments[first + 1].index()];
  const int64_t length = registers[to.extent()].i;
  if (length != registers[from.extent()].i)
    return invalid_input(error,
                         "a copy between views of different extents: export the program again");
  const int64_t apart = registers[to.offset()].i - registers[from.offset()].i;
  if (to.buffer() != from.buffer() || apart >= length || -apart >= length) return Status::ok;
  return invalid_input(error, "a copy between views that overlap, in buffer %s%s",
                       code.label(to.buffer()).text, kWrongArtifact);
}

Status StepArguments::write_operator_arguments(uint32_t step, husk_error* error) {
  const Code& code = *code_;
  const Register* registers = prologue_->registers.data();
  const fb::Instruction& op = code.steps[step];
  for (uint32_t i = op.b(); i < op.b() + op.c(); ++i) {
    const fb::Argument& argument = code.arguments[i];
    husk_op_arg& out = op_args_[i];
    const OperandRange range = describe_argument(code, argument, op_args_.data() + op.b(), &out);
    const uint32_t index = argument.index();
    switch (static_cast<ArgumentKind>(argument.kind())) {
      case ArgumentKind::tensor:
        HUSK_TRY(check_tensor(index, error));
        out.data = memory_->address(code.views[code.tensors[index].view()]);
        break;
      case ArgumentKind::integer:
      case ArgumentKind::floating:
        out.i = registers[index].i;
        out.f = registers[index].f;
        break;
      default: break;
    }
    for (uint32_t d = range.first; d < range.first + range.count; ++d)
      op_sizes_[d] = registers[code.operands[d]].i;
    set_lists(op_sizes_.data(), range, &out);
  }
  return Status::ok;
}

Status StepArguments::check_view(const fb::View& view, const Register* registers,
                                 husk_error* error) const {
  const int64_t size = registers[code_->buffers[view.buffer()].size()].i;
  HUSK_TRY(memory_->check_buffer(view.buffer(), size, error));
  const int64_t offset = registers[view.offset()].i, extent = registers[view.extent()].i;
  if (offset >= 0 && extent >= 0 && extent <= size - offset) return Status::ok;
  return invalid_input(error, "a view covers bytes %lld + %lld of the %lld of buffer %s%s",
                       static_cast<long long>(offset), static_cast<long long>(extent),
                       static_cast<long long>(size), code_->label(view.buffer()).text,
                       kWrongArtifact);
}

Status StepArguments::check_tensor(uint32_t index, husk_error* error) const {
  const Register* registers = prologue_->registers.data();
  const fb::Tensor& tensor = code_->tensors[index];
  const fb::View& view = code_->views[tensor.view()];
  HUSK_TRY(check_view(view, registers, error));
  int64_t shape[2 * limits::kMaxRank];
  read_shape(*code_, index, registers, shape);
  uint64_t bytes = 0;
  int64_t elements = 0;
  if (extent_bytes(shape, shape + tensor.rank(), tensor.rank(),
                   husk_dtype_size(static_cast<husk_dtype>(tensor.dtype())), &bytes) &&
      bytes <= static_cast<uint64_t>(registers[view.extent()].i) &&
      count_elements(shape, tensor.rank(), &elements))
    return Status::ok;
  return invalid_input(error, "a tensor does not fit into its view of buffer %s%s",
                       code_->label(view.buffer()).text, kWrongArtifact);
}

bool StepArguments::is_empty(uint32_t step) const {
  const StepState& state = states[step];
  const uint32_t* grid = state.launch.grid;
  switch (static_cast<Step>(code_->steps[step].op())) {
    case Step::op_launch: return !grid[0] || !grid[1] || !grid[2];
    case Step::op_copy:
    case Step::op_fill: return state.length == 0;
    default: return false;
  }
}

// Calls work(from, length) for the elements of a copy or a fill. A host is given some MiB at a
// time, so that the application is asked in between.
template <class Work>
Status StepArguments::in_blocks(uint32_t step, uint64_t width, husk_error* error,
                                const Work& work) const {
  constexpr uint64_t kBlockBytes = 16 << 20;
  const Engine& engine = *session_->program->engine;
  const bool asks = engine.options.cancel &&
                    (states[step].device == Device::host || engine.properties.host_memory);
  const uint64_t length = states[step].length, block = asks ? kBlockBytes / width : length;
  for (uint64_t from = 0; from < length; from += block) {
    if (from > 0) HUSK_TRY(session_->check_cancel(error));
    HUSK_TRY(to_status(work(from, length - from < block ? length - from : block)));
  }
  return Status::ok;
}

Status StepArguments::run_step(uint32_t step, void* stream, husk_error* error) {
  const fb::Instruction& op = code_->steps[step];
  const StepState& state = states[step];
  const husk_port* port = session_->port();
  void* device = session_->device();
  if (is_empty(step)) return Status::ok;
  const uint64_t* v = values.data() + op.b();
  if (state.device == Device::host)
    HUSK_TRY(wait_for_stream(stream, error));
  else
    stream_is_idle_ = false;
  switch (static_cast<Step>(op.op())) {
    case Step::op_launch:
      return to_status(
          port->launch(device, stream, session_->program->kernels[op.a()], &state.launch, error));
    case Step::op_copy:
      return in_blocks(step, 1, error, [&](uint64_t from, uint64_t length) {
        return port->copy(device, stream, reinterpret_cast<uint8_t*>(v[0]) + from,
                          reinterpret_cast<uint8_t*>(v[1]) + from, length, error);
      });
    case Step::op_fill:
      return in_blocks(step, fill_width(step), error, [&](uint64_t from, uint64_t length) {
        const uint32_t width = fill_width(step);
        return port->fill(device, stream, reinterpret_cast<uint8_t*>(v[0]) + from * width, v[1],
                          width, length, error);
      });
    case Step::op_read: return read_result(step, stream, error);
    case Step::op_extern: return call_operator(step, false, stream, error);
  }
  return Status::ok;
}

Status StepArguments::run_steps(uint32_t* step, uint32_t end, void* stream, husk_error* error) {
  const husk_port* port = session_->port();
  void* device = session_->device();
  while (*step < end) {
    const LaunchGroup group = groups_.size() ? groups_[*step] : LaunchGroup{};
    if (group.end == 0) {
      HUSK_TRY(run_step(*step, stream, error));
      ++*step;
      continue;
    }
    stream_is_idle_ = false;
    uint32_t failed = 0;
    const husk_listed_launch* launches = &launches_[*step];
    const husk_status status = group.code ? port->launch_linked(device, stream, group.code,
                                                                launches, &failed, error)
                                          : port->launch_list(device, stream, launches,
                                                              group.end - *step, &failed, error);
    *step = status == HUSK_OK ? group.end : *step + failed;
    HUSK_TRY(to_status(status));
  }
  return Status::ok;
}

Status StepArguments::wait_for_stream(void* stream, husk_error* error) {
  if (stream_is_idle_) return Status::ok;
  HUSK_TRY(to_status(session_->port()->stream_wait(session_->device(), stream, error)));
  stream_is_idle_ = true;
  return Status::ok;
}

Status StepArguments::call_operator(uint32_t step, bool prepare, void* stream, husk_error* error) {
  const fb::Instruction& op = code_->steps[step];
  const Device device = states[step].device;
  const Program& program = *session_->program;
  const husk_op& entry = program.ops[device][op.a()];
  const husk_op_fn function = prepare ? entry.prepare : entry.call;
  if (!function) return Status::ok;
  const husk_engine_options& options = program.engine->options;
  const bool is_beside = device == Device::host && !program.engine->properties.host_memory;
  const husk_op_context context = {sizeof(husk_op_context),
                                   0,
                                   entry.user,
                                   is_beside ? nullptr : session_->device(),
                                   device == Device::host ? nullptr : stream,
                                   options.threads,
                                   options.cancel,
                                   options.cancel_user,
                                   packed_ ? packed_ + op.b() : nullptr,
                                   entry.scratch_bytes ? session_->op_scratch : nullptr,
                                   options.rank,
                                   options.world};
  husk_op_arg* arguments = op_args_.data() + op.b();
  for (uint32_t i = 0; i < op.aux(); ++i)
    if (arguments[i].kind == HUSK_ARG_RESULT) {
      Register* result = prologue_->next_result();
      result->i = 0;
      arguments[i].data = result;
    }
  return to_status(function(&context, arguments, op.aux(), error));
}

Status StepArguments::read_result(uint32_t step, void* stream, husk_error* error) {
  const fb::Argument& argument = code_->arguments[code_->steps[step].b()];
  const fb::View& view = code_->views[argument.index()];
  const size_t width = husk_dtype_size(static_cast<husk_dtype>(argument.type()));
  const int64_t extent = prologue_->registers[view.extent()].i;
  if (extent < static_cast<int64_t>(width))
    return invalid_input(error, "a read of %zu bytes from a view of %lld", width,
                         static_cast<long long>(extent));
  uint64_t bits = 0;
  if (states[step].device == Device::host) {
    memcpy(&bits, memory_->address(view), width);
  } else {
    HUSK_TRY(to_status(session_->port()->download(session_->device(), stream, &bits,
                                                  memory_->address(view), width, error)));
    stream_is_idle_ = true;
  }
  *prologue_->next_result() = decode(argument.type(), bits);
  return Status::ok;
}

uint32_t StepArguments::fill_width(uint32_t step) const {
  const fb::Argument& value = code_->arguments[code_->steps[step].b() + 1];
  return static_cast<uint32_t>(husk_dtype_size(static_cast<husk_dtype>(value.type())));
}

const char* StepArguments::step_name(uint32_t step) const {
  const fb::Instruction& op = code_->steps[step];
  if (static_cast<Step>(op.op()) == Step::op_launch)
    return code_->program->kernels()->Get(op.a())->name()->c_str();
  if (static_cast<Step>(op.op()) == Step::op_extern)
    return code_->program->ops()->Get(op.a())->c_str();
  return "";
}

void StepArguments::add_step_context(uint32_t step, husk_error* error) const {
  const char* name = step_name(step);
  const char* origin = code_->origin(step);
  prefix(error, "step %u%s%s%s%s%s: ", step, *name ? " " : "", name, *origin ? " (" : "", origin,
         *origin ? ")" : "");
  error->step = static_cast<int32_t>(step);
}

}  // namespace husk::runtime
