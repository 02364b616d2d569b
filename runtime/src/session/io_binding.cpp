#include "session/io_binding.h"

#include <cstring>

#include "model/shape.h"
#include "session/session.h"

namespace husk::runtime {
namespace {

const char* kind_name(int32_t kind) {
  switch (kind) {
    case HUSK_VALUE_NONE: return "none";
    case HUSK_VALUE_TENSOR: return "a tensor";
    case HUSK_VALUE_INT: return "an int";
    case HUSK_VALUE_FLOAT: return "a float";
    case HUSK_VALUE_BOOL: return "a bool";
    default: return "unknown";
  }
}

// Puts the value that `status` is about before its message: "size 1 of input 'x' ".
Status about(Status status, const char* side, const fb::Value* value, const DimRef& part,
             husk_error* error) {
  prefix(error, "%s '%s' ", side, value->name()->c_str());
  if (part.what) prefix(error, "%s %u of ", part.what, part.dim);
  return status;
}

bool lies_in_host_memory(const DLTensor* tensor) {
  return tensor->device.device_type == kDLCPU || tensor->device.device_type == kDLCUDAHost;
}

// Returns whether a tensor lies in memory of `where`.
bool lies_on(const DLTensor* tensor, const husk_port_properties& p, Device where) {
  const DLDevice device = tensor->device;
  if (where == Device::host) return lies_in_host_memory(tensor);
  return device.device_type == p.dl_device_type &&
         (p.dl_device_type == kDLCPU || device.device_id == p.device_index);
}

// Checks everything but the sizes. Sets `*staged` if the tensor lies in host memory, and the
// session copies it between there and the device.
Status check_tensor(const fb::Value* expected, const Session* session, const DLTensor* tensor,
                    Device where, bool with_data, bool* staged, husk_error* error) {
  *staged = false;
  if (!tensor) return invalid_input(error, "is a tensor, NULL was passed");
  const husk_dtype dtype = husk_dtype_from_dlpack(tensor->dtype);
  const husk_dtype expected_dtype = static_cast<husk_dtype>(expected->dtype());
  if (dtype != expected_dtype)
    return invalid_input(error, "has dtype %s, must be %s: convert it, or export with this dtype",
                         dtype ? husk_dtype_name(dtype) : "unknown to Husk",
                         husk_dtype_name(expected_dtype));
  if (tensor->ndim != expected->rank())
    return invalid_input(error, "has %d dims, must have %u", tensor->ndim,
                         unsigned(expected->rank()));
  if (expected->rank() > 0 && !tensor->shape) return invalid_input(error, "has no shape");
  const husk_port_properties& p = session->program->engine->properties;
  if (lies_on(tensor, p, where)) return Status::ok;
  const bool in_host_memory = lies_in_host_memory(tensor);
  *staged = session->options.stage_host_tensors && in_host_memory;
  if (*staged || !with_data) return Status::ok;
  if (where == Device::host)
    return invalid_input(error,
                         "lies on DLPack device %d:%d, it must lie on the host: copy it there",
                         static_cast<int>(tensor->device.device_type), tensor->device.device_id);
  return invalid_input(
      error, "lies on DLPack device %d:%d, the program runs on %d:%d (%s): copy it there%s",
      static_cast<int>(tensor->device.device_type), tensor->device.device_id, p.dl_device_type,
      p.device_index, p.name,
      in_host_memory ? ", or set husk_session_options.stage_host_tensors" : "");
}

uint8_t* first_element(const DLTensor* tensor) {
  return tensor->data ? static_cast<uint8_t*>(tensor->data) + tensor->byte_offset : nullptr;
}

Status check_memory(const uint8_t* data, uint64_t bytes, husk_error* error) {
  return !bytes || data ? Status::ok : invalid_input(error, "has no memory");
}

Status misaligned_at(const uint8_t* data, uint32_t align, const char* remedy, husk_error* error) {
  return invalid_input(error, "at %p is not aligned to %u bytes, which the kernels assume: %s",
                       static_cast<const void*>(data), align, remedy);
}

bool is_aligned(const uint8_t* data, uint32_t align) {
  return align < 2 || (reinterpret_cast<uintptr_t>(data) & (align - 1)) == 0;
}

// If only data decides a shape, the caller passes a tensor that is large enough, and this writes
// the shape of the run to it. `shape` has sizes and then strides. Does nothing if the tensor is too
// small.
void write_shape(DLTensor* out, const int64_t* shape, uint64_t bytes, size_t element) {
  int64_t strides[limits::kMaxRank];
  const uint32_t rank = static_cast<uint32_t>(out->ndim);
  uint64_t available;
  // Redundant: extent_bytes() refuses the sizes that contiguous_strides() refuses.
  if (!out->strides && !contiguous_strides(out->shape, rank, strides)) return;
  if (!extent_bytes(out->shape, out->strides ? out->strides : strides, rank, element, &available) ||
      available < bytes)
    return;
  if (!out->strides) {
    if (!contiguous_strides(shape, rank, strides)) return;
    for (uint32_t d = 0; d < rank; ++d)
      if (shape[d] > 1 && strides[d] != shape[rank + d] && bytes) return;
  }
  for (uint32_t d = 0; d < rank; ++d) {
    out->shape[d] = shape[d];
    if (out->strides) out->strides[d] = shape[rank + d];
  }
}

// Checks a size, or an integer, against the range that the session allows. `file` is the range of
// the file.
Status check_range(int64_t value, const fb::Dim* file, Interval allowed, husk_error* error) {
  if (value >= allowed.low && value <= allowed.high) return Status::ok;
  const char* remedy = value >= file->min() && value <= file->max()
                           ? "husk_session_set_range narrowed it"
                       : file->min() == file->max() ? "export with it dynamic, or pass that"
                                                    : "export with a wider range";
  const bool one = allowed.low == allowed.high;
  if (one || allowed.high == INT64_MAX)
    return invalid_input(error, "is %lld, must be %s%lld: %s", static_cast<long long>(value),
                         one ? "" : "at least ", static_cast<long long>(allowed.low), remedy);
  return invalid_input(error, "is %lld, must be in %lld..%lld: %s", static_cast<long long>(value),
                       static_cast<long long>(allowed.low), static_cast<long long>(allowed.high),
                       remedy);
}

}  // namespace

Status IoBinding::prepare(Session* session, const Code& code, const ValuePlace* places,
                          const Interval* narrowed, husk_error* error) {
  session_ = session;
  code_ = &code;
  const husk_allocator& allocator = session->allocator();
  HUSK_TRY(inputs.allocate(allocator, code.inputs(), error));
  HUSK_TRY(input_states.allocate(allocator, code.inputs() + size_t{1}, error));
  for (uint32_t i = 0; i < code.inputs(); ++i) {
    InputState* state = &input_states[i];
    state[1].first_stride = state->first_stride + code.input(i)->rank();
  }
  const InputState& end = input_states[code.inputs()];
  HUSK_TRY(strides_.allocate(allocator, end.first_stride, error));
  HUSK_TRY(ranges.allocate(allocator, size_t{code.inputs()} * limits::kMaxRank, error));
  for (uint32_t i = 0; i < code.inputs(); ++i)
    for (uint32_t d = 0; d < count(code.input(i)->dims()); ++d) {
      const size_t range = size_t{i} * limits::kMaxRank + d;
      const fb::Dim* dim = code.input(i)->dims()->Get(d);
      ranges[range] = narrowed ? narrowed[range] : Interval{dim->min(), dim->max()};
    }
  HUSK_TRY(output_states.allocate(allocator, code.outputs(), error));
  for (InputState& state : input_states) state.buffer = kNone;
  for (OutputState& state : output_states) state.buffer = kNone;
  for (uint32_t b = 0; b < code.buffers.size; ++b) {
    const fb::Buffer& buffer = code.buffers[b];
    const uint32_t align = 1u << buffer.align_log2();
    if (buffer.space() == uint8_t(Space::input)) {
      InputState& state = input_states[buffer.index()];
      state.align = align;
      state.buffer = b;
      state.copy.device = code.device_of(b);
    } else if (buffer.space() == uint8_t(Space::output)) {
      OutputState& state = output_states[buffer.index()];
      state.align = align;
      state.buffer = b;
      state.own.device = code.device_of(b);
    }
  }
  for (uint32_t i = 0; i < code.inputs(); ++i) input_states[i].written = places[i].is_written;
  return Status::ok;
}

Status IoBinding::prepare_outputs(const Prologue& prologue, husk_error* error) {
  prologue_ = &prologue;
  const Code& code = *code_;
  const husk_allocator& allocator = session_->allocator();
  size_t dims = 0;
  for (uint32_t i = 0; i < code.outputs(); ++i) dims += 2u * code.output(i)->rank();
  HUSK_TRY(shapes_.allocate(allocator, dims, error));
  HUSK_TRY(segment_outputs.allocate(allocator, code.segments.size, error));
  for (SegmentOutputs& segment : segment_outputs) segment = {kNone, kNone};
  int64_t* shape = shapes_.data() + dims;
  for (uint32_t i = code.outputs(); i-- > 0;) {  // backward, so that the lists are in order
    OutputState& state = output_states[i];
    if (!code.is_tensor_output(i)) continue;
    const fb::Tensor& tensor = code.tensors[code.results[i].index()];
    shape -= 2u * tensor.rank();
    state.shape = shape;
    const fb::View& view = code.views[tensor.view()];
    uint32_t last = code.buffers[view.buffer()].size();
    for (uint32_t d = 0; d < 2u * tensor.rank(); ++d)
      if (code.operands[tensor.first() + d] > last) last = code.operands[tensor.first() + d];
    state.shaped_in = prologue.segment_of(last);
    state.checked_in = prologue.segment_of(view.offset());
    for (uint32_t other : {state.shaped_in, prologue.segment_of(view.extent())})
      if (other > state.checked_in) state.checked_in = other;
    uint32_t& shaped = segment_outputs[state.shaped_in].shaped;
    state.next_shaped = shaped;
    shaped = i;
    uint32_t& checked = segment_outputs[state.checked_in].checked;
    state.next_checked = checked;
    checked = i;
    shapes_later_ |= state.shaped_in > 0;
  }
  return compared_.reserve(allocator, size_t{code.outputs()} + code.inputs(), error);
}

void IoBinding::release_scratch() {
  for (OutputState& state : output_states) {
    session_->release(&state.copy);
    session_->release(&state.own);
  }
  for (InputState& state : input_states) session_->release(&state.copy);
}

Status IoBinding::bind_inputs(const husk_value* values, uint32_t n, bool with_data,
                              husk_error* error) {
  if (n != code_->inputs() || (n && !values))
    return invalid_input(error, "takes %u inputs, %u were passed", code_->inputs(), n);
  for (uint32_t i = 0; i < n; ++i) {
    DimRef part;
    Status status = bind_input(i, values[i], with_data, &part, error);
    if (failed(status)) return about(status, "input", code_->input(i), part, error);
  }
  return Status::ok;
}

// Makes memory on the device for a tensor that lies in host memory.
Status IoBinding::stage(ScratchBuffer* copy, uint64_t bytes, husk_error* error) {
  if (session_->is_capturing())
    return fail(error, HUSK_UNSUPPORTED,
                "lies in host memory, and a run whose stream is captured stages nothing: pass "
                "memory of the device");
  return session_->grow(copy, bytes, "lies in host memory and is copied", error);
}

Status IoBinding::bind_input(uint32_t i, const husk_value& value, bool with_data, DimRef* part,
                             husk_error* error) {
  const fb::Value* expected = code_->input(i);
  InputState& state = input_states[i];
  InputValue& in = inputs[i];
  in = InputValue();
  state.callers = nullptr;
  if (value.kind != expected->kind())
    return invalid_input(error, "is %s, must be %s", kind_name(value.kind),
                         kind_name(expected->kind()));
  const Interval* allowed = ranges.data() + size_t{i} * limits::kMaxRank;
  if (expected->kind() != HUSK_VALUE_TENSOR) {
    in.i = expected->kind() == HUSK_VALUE_BOOL ? value.as.i != 0 : value.as.i;
    in.f = expected->kind() == HUSK_VALUE_FLOAT ? value.as.f : 0;
    return count(expected->dims()) == 1
               ? check_range(in.i, expected->dims()->Get(0), *allowed, error)
               : Status::ok;
  }
  const DLTensor* tensor = value.as.tensor;
  HUSK_TRY(
      check_tensor(expected, session_, tensor, state.copy.device, with_data, &state.staged, error));
  *part = {"size", 0};
  for (; part->dim < expected->rank(); ++part->dim)
    HUSK_TRY(check_range(tensor->shape[part->dim], expected->dims()->Get(part->dim),
                         allowed[part->dim], error));
  *part = {};
  int64_t* contiguous = strides_.data() + state.first_stride;
  in.sizes = tensor->shape;
  in.strides = tensor->strides ? tensor->strides : contiguous;
  // Redundant: extent_bytes() refuses the sizes that contiguous_strides() refuses.
  if ((!tensor->strides && !contiguous_strides(in.sizes, expected->rank(), contiguous)) ||
      !extent_bytes(in.sizes, in.strides, expected->rank(),
                    husk_dtype_size(static_cast<husk_dtype>(expected->dtype())), &in.bytes))
    return invalid_input(error, "is too large or has a negative stride");
  // A resize may name memory of another device: it needs shapes only, and a run refuses that
  // memory. Nothing may take such an address, or one in host memory, for one of this device.
  uint8_t* const data = first_element(tensor);
  if (lies_on(tensor, session_->program->engine->properties, state.copy.device)) in.data = data;
  if (with_data) HUSK_TRY(check_memory(data, in.bytes, error));
  if (in.bytes == 0) return Status::ok;
  if (state.staged) {
    HUSK_TRY(stage(&state.copy, in.bytes, error));
  } else {
    if (!with_data || is_aligned(data, state.align)) return Status::ok;
    if (!session_->options.copy_misaligned)
      return misaligned_at(data, state.align,
                           "copy it, or set husk_session_options.copy_misaligned", error);
    HUSK_TRY(session_->grow(&state.copy, in.bytes, "is misaligned and must be copied", error));
  }
  state.callers = data;
  in.data = static_cast<uint8_t*>(state.copy.data);
  return Status::ok;
}

Status IoBinding::bind_session_output(uint32_t i, husk_value* value, const int64_t* shape,
                                      husk_error* error) {
  OutputState& state = output_states[i];
  HUSK_TRY(
      session_->grow(&state.own, state.bytes ? state.bytes : 1, "is to be the session's", error));
  const uint32_t rank = code_->output(i)->rank();
  if (rank) memcpy(state.shape, shape, 2 * rank * sizeof(int64_t));
  const husk_port_properties& p = session_->program->engine->properties;
  const DLDevice device = {static_cast<DLDeviceType>(p.dl_device_type), p.device_index};
  state.session_tensor = {state.own.data,
                          state.own.device == Device::host ? DLDevice{kDLCPU, 0} : device,
                          static_cast<int32_t>(rank),
                          husk_dtype_to_dlpack(code_->output(i)->dtype()),
                          state.shape,
                          state.shape + rank,
                          0};
  state.data = static_cast<uint8_t*>(state.own.data);
  value->kind = HUSK_VALUE_TENSOR;
  value->as.tensor = &state.session_tensor;
  return Status::ok;
}

Status IoBinding::bind_outputs(husk_value* values, uint32_t n, uint32_t segment,
                               husk_error* error) {
  if (n != code_->outputs() || (n && !values))
    return invalid_input(error, "gives %u outputs, %u were passed", code_->outputs(), n);
  for (uint32_t i = segment_outputs[segment].shaped; i != kNone; i = output_states[i].next_shaped) {
    DimRef part;
    Status status = bind_output(i, &values[i], &part, error);
    if (failed(status)) return about(status, "output", code_->output(i), part, error);
  }
  return check_overlaps(segment, error);
}

Status IoBinding::bind_output(uint32_t i, husk_value* value, DimRef* part, husk_error* error) {
  const fb::Value* expected = code_->output(i);
  OutputState& state = output_states[i];
  state.staged = nullptr;
  const uint32_t rank = expected->rank();
  const size_t element = husk_dtype_size(static_cast<husk_dtype>(expected->dtype()));
  int64_t shape[2 * limits::kMaxRank];   // of this run: sizes, then strides
  int64_t contiguous[limits::kMaxRank];  // strides of a tensor that has none
  read_shape(*code_, code_->results[i].index(), prologue_->registers.data(), shape);
  if (!extent_bytes(shape, shape + rank, rank, element, &state.bytes))
    return invalid_input(error, "is too large");
  // The caller may pass the tensor back that an earlier run wrote there.
  const bool session_owned = value->kind == HUSK_VALUE_TENSOR &&
                             value->as.tensor == &state.session_tensor;
  if (value->kind == HUSK_VALUE_NONE || session_owned)
    return bind_session_output(i, value, shape, error);
  if (value->kind != HUSK_VALUE_TENSOR)
    return invalid_input(error, "is a tensor: pass its memory, or none to have the session's");
  DLTensor* out = value->as.tensor;
  bool staged;
  HUSK_TRY(check_tensor(expected, session_, out, state.own.device, true, &staged, error));
  if (state.shaped_in > 0) write_shape(out, shape, state.bytes, element);
  const int64_t* strides = out->strides ? out->strides : contiguous;
  if (!out->strides && !contiguous_strides(shape, rank, contiguous))
    return invalid_input(error, "is too large");
  const uint32_t compared = state.bytes == 0 ? rank : 2 * rank;  // strides of no elements are free
  for (uint32_t d = 0; d < compared; ++d) {
    const bool size = d < rank;
    const int64_t passed = size ? out->shape[d] : strides[d - rank];
    if (passed == shape[d] || (!size && shape[d - rank] <= 1)) continue;
    *part = {size ? "size" : "stride", size ? d : d - rank};
    return invalid_input(error, "is %lld, this run gives %lld: husk_session_output_shape tells it",
                         static_cast<long long>(passed), static_cast<long long>(shape[d]));
  }
  state.data = first_element(out);
  HUSK_TRY(check_memory(state.data, state.bytes, error));
  if (staged && state.bytes) {
    HUSK_TRY(stage(&state.copy, state.bytes, error));
    state.staged = state.data;
    state.data = static_cast<uint8_t*>(state.copy.data);
    return Status::ok;
  }
  if (state.bytes && !is_aligned(state.data, state.align))
    return misaligned_at(state.data, state.align, "give it aligned memory", error);
  return Status::ok;
}

Status IoBinding::prepare_staged_outputs(husk_error* error) {
  bool any = false;
  for (uint32_t i = 0; i < code_->inputs(); ++i) any |= input_states[i].staged;
  for (uint32_t i = segment_outputs[0].shaped; any && i != kNone;
       i = output_states[i].next_shaped) {
    const fb::Value* output = code_->output(i);
    int64_t shape[2 * limits::kMaxRank];
    uint64_t bytes;
    read_shape(*code_, code_->results[i].index(), prologue_->registers.data(), shape);
    if (output_states[i].own.device == Device::host ||
        !extent_bytes(shape, shape + output->rank(), output->rank(),
                      husk_dtype_size(static_cast<husk_dtype>(output->dtype())), &bytes))
      continue;
    Status status = stage(&output_states[i].copy, bytes, error);
    if (failed(status)) return about(status, "output", output, {}, error);
  }
  return Status::ok;
}

void IoBinding::begin_outputs() {
  for (OutputState& state : output_states) state.bytes = 0;
}

void IoBinding::forget_outputs() {
  for (OutputState& state : output_states) {
    state.data = nullptr;
    state.bytes = UINT64_MAX;  // larger than every check asks for
  }
}

void IoBinding::unbind_outputs(uint32_t segment) {
  if (!shapes_later_) return;
  for (OutputState& state : output_states)
    if (state.shaped_in >= segment) state.bytes = 0;
  compared_.clear();
  for (uint32_t value = 0; value < code_->outputs() + code_->inputs(); ++value)
    if (const Memory range = memory(value); range.begin < range.end)
      compared_.add(value, range.begin, range.end);
}

IoBinding::Memory IoBinding::memory(uint32_t value) const {
  const uint32_t outputs = code_->outputs();
  const uint8_t *data, *callers;
  uint64_t bytes;
  bool written = true;
  if (value < outputs) {
    const OutputState& state = output_states[value];
    data = state.data;
    callers = state.staged;
    bytes = state.bytes;
  } else {
    const InputState& state = input_states[value - outputs];
    data = inputs[value - outputs].data;
    callers = state.callers;
    bytes = inputs[value - outputs].bytes;
    written = state.written;
  }
  const uintptr_t begin = reinterpret_cast<uintptr_t>(callers ? callers : data);
  return {begin, begin + bytes, written};
}

// Fails if a range that was added before meets the memory of a value.
Status IoBinding::compare(uint32_t value, const Memory& range, husk_error* error) const {
  const uint32_t found = compared_.find(range.begin, range.end), outputs = code_->outputs();
  if (found == kNone) return Status::ok;
  const bool swapped = !memory(found).written;
  const uint32_t written = swapped ? value : found, other = swapped ? found : value;
  auto name = [&](uint32_t i) {
    return (i < outputs ? code_->output(i) : code_->input(i - outputs))->name()->c_str();
  };
  auto side = [&](uint32_t i) { return i < outputs ? "output" : "input"; };
  return invalid_input(error, "%s '%s' overlaps %s '%s': give it memory of its own", side(written),
                       name(written), side(other), name(other));
}

Status IoBinding::add(uint32_t value, Pass pass, husk_error* error) {
  const Memory range = memory(value);
  if (range.begin == range.end || range.written != (pass == kWritten)) return Status::ok;
  if (pass != kKept) HUSK_TRY(compare(value, range, error));
  if (pass != kRead) compared_.add(value, range.begin, range.end);
  return Status::ok;
}

Status IoBinding::check_overlaps(uint32_t segment, husk_error* error) {
  if (segment == 0) compared_.clear();
  for (uint32_t i = segment_outputs[segment].shaped; i != kNone; i = output_states[i].next_shaped)
    HUSK_TRY(add(i, kWritten, error));
  if (segment > 0) return Status::ok;
  for (int pass = kWritten; pass <= (shapes_later_ ? kKept : kRead); ++pass)
    for (uint32_t i = 0; i < code_->inputs(); ++i)
      HUSK_TRY(add(code_->outputs() + i, static_cast<Pass>(pass), error));
  return Status::ok;
}

Status IoBinding::copy_inputs(bool back, void* stream, husk_error* error) {
  const husk_port* port = session_->port();
  void* const device = session_->device();
  for (uint32_t i = 0; i < code_->inputs(); ++i) {
    const InputState& state = input_states[i];
    if (!state.callers || (back && !state.written)) continue;
    uint8_t* copy = inputs[i].data;
    const uint64_t bytes = inputs[i].bytes;
    uint8_t *to = back ? state.callers : copy, *from = back ? copy : state.callers;
    if (state.copy.device == Device::target) {
      const auto move = !state.staged ? port->copy : back ? port->download : port->upload;
      HUSK_TRY(to_status(move(device, stream, to, from, bytes, error)));
      continue;
    }
    HUSK_TRY(to_status(port->stream_wait(device, stream, error)));
    memcpy(to, from, bytes);
  }
  return Status::ok;
}

Status IoBinding::copy_results(void* stream, husk_error* error) {
  bool staged = false;
  for (const InputState& state : input_states)
    staged |= state.callers && state.staged && state.written;
  for (const OutputState& state : output_states) staged |= state.staged != nullptr;
  // The caller gets no results of a run whose assert failed.
  if (staged) HUSK_TRY(session_->wait_within_run(error));
  HUSK_TRY(copy_inputs(true, stream, error));
  for (const OutputState& state : output_states)
    if (state.staged)
      HUSK_TRY(to_status(session_->port()->download(session_->device(), stream, state.staged,
                                                    state.data, state.bytes, error)));
  return Status::ok;
}

void IoBinding::write_scalar_outputs(husk_value* outputs) const {
  for (uint32_t i = 0; i < code_->outputs(); ++i) {
    if (code_->is_tensor_output(i)) continue;
    husk_value& out = outputs[i];
    out.kind = code_->output(i)->kind();
    if (out.kind == HUSK_VALUE_NONE) continue;
    const Register value = prologue_->registers[code_->results[i].index()];
    if (out.kind == HUSK_VALUE_FLOAT)
      out.as.f = value.f;
    else
      out.as.i = out.kind == HUSK_VALUE_BOOL ? value.i != 0 : value.i;
  }
}

bool IoBinding::output_shape(uint32_t output, int64_t* sizes, int64_t* strides) const {
  const fb::Tensor& tensor = code_->tensors[code_->results[output].index()];
  const bool known = prologue_->evaluated > output_states[output].shaped_in;
  for (uint32_t d = 0; d < 2u * tensor.rank(); ++d) {
    const uint32_t reg = code_->operands[tensor.first() + d];
    if (!known && !prologue_->is_fixed(reg)) return false;
    int64_t* out = d < tensor.rank() ? sizes : strides;
    if (out)
      out[d % tensor.rank()] = known ? prologue_->registers[reg].i : prologue_->intervals[reg].low;
  }
  return known || tensor.rank() > 0 || prologue_->evaluated > 0;
}

bool IoBinding::unchanged() const {
  for (uint32_t i = 0; i < code_->inputs(); ++i)
    if (inputs[i].bytes != input_states[i].remembered_bytes) return false;
  return true;
}

void IoBinding::remember() {
  for (uint32_t i = 0; i < code_->inputs(); ++i) input_states[i].remembered_bytes = inputs[i].bytes;
}

}  // namespace husk::runtime
