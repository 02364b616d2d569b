// The values of a run against the signature, and what the prologue made of them against the memory.
#include "session.h"

#include "verify.h"

#include <cstdio>
#include <cstring>

namespace husk {
namespace {

constexpr char kWrong[] = ": the artifact is wrong for these shapes, export it again";

constexpr char kKindNames[][9] = {"none", "a tensor", "an int", "a float", "a bool"};

const char* kind_name(int32_t kind) { return kind >= 0 && kind <= HUSK_VALUE_BOOL ? kKindNames[kind] : "unknown"; }

// Bytes from element 0 to the end of the last one. Fails (false) where that leaves 63 bits or a stride is negative.
bool hull_bytes(const int64_t* sizes, const int64_t* strides, uint32_t rank, size_t element, uint64_t* out) {
  int64_t last = 0;
  bool empty = false;
  for (uint32_t d = 0; d < rank; ++d) {
    int64_t reach;
    empty = empty || sizes[d] == 0;
    if (strides[d] < 0 || sizes[d] < 0) return false;
    if (sizes[d] == 0) continue;
    if (__builtin_mul_overflow(sizes[d] - 1, strides[d], &reach) || __builtin_add_overflow(last, reach, &last)) return false;
  }
  int64_t bytes;
  if (__builtin_add_overflow(last, 1, &last) || __builtin_mul_overflow(last, static_cast<int64_t>(element), &bytes))
    return false;
  *out = empty ? 0 : static_cast<uint64_t>(bytes);
  return true;
}

bool contiguous_strides(const int64_t* sizes, uint32_t rank, int64_t* out) {
  int64_t step = 1;
  for (uint32_t d = rank; d-- > 0;) {
    out[d] = step;
    if (__builtin_mul_overflow(step, sizes[d] > 0 ? sizes[d] : 1, &step)) return false;
  }
  return true;
}

// Before what `error` says: "size 1 of input 'x' ".
Status about(Status status, const char* side, const fb::Value* value, const Part& part, husk_error* error) {
  prefix(error, "%s '%s' ", side, value->name()->c_str());
  if (part.what) prefix(error, "%s %u of ", part.what, part.dim);
  return status;
}

Status check_tensor(const fb::Value* want, const husk_engine* engine, const DLTensor* tensor, bool data,
                    husk_error* error) {
  if (!tensor) return refuse(error, "is a tensor, NULL was passed");
  const husk_dtype dtype = husk_dtype_from_dlpack(tensor->dtype);
  const husk_dtype wanted = static_cast<husk_dtype>(want->dtype());
  if (dtype != wanted)
    return refuse(error, "has dtype %s, must be %s: convert it, or export with this dtype",
                  dtype ? husk_dtype_name(dtype) : "unknown to Husk", husk_dtype_name(wanted));
  if (tensor->ndim != want->rank())
    return refuse(error, "has %d dims, must have %u", tensor->ndim, unsigned(want->rank()));
  if (want->rank() > 0 && !tensor->shape) return refuse(error, "has no shape");
  const husk_port_properties& p = engine->properties;
  const DLDevice device = tensor->device;
  if (!data || (device.device_type == p.dl_device_type &&
                (device.device_type == kDLCPU || device.device_id == p.device_index)))
    return Status::ok;
  return refuse(error, "lies on DLPack device %d:%d, the program runs on %d:%d (%s): copy it there",
                static_cast<int>(device.device_type), device.device_id, p.dl_device_type, p.device_index, p.name);
}

uint8_t* first_element(const DLTensor* tensor) {
  return tensor->data ? static_cast<uint8_t*>(tensor->data) + tensor->byte_offset : nullptr;
}

Status check_memory(const uint8_t* data, uint64_t bytes, husk_error* error) {
  return !bytes || data ? Status::ok : refuse(error, "has no memory");
}

Status misaligned_at(const uint8_t* data, uint32_t align, const char* remedy, husk_error* error) {
  return refuse(error, "at %p is not aligned to %u bytes, which the kernels assume: %s", static_cast<const void*>(data), align,
                remedy);
}

bool is_aligned(const uint8_t* data, uint32_t align) {
  return align < 2 || (reinterpret_cast<uintptr_t>(data) & (align - 1)) == 0;
}

// Where only the data decides a shape, the caller passes one with room for it and is told what it came to. `wanted` are
// sizes and then strides.
void tell_shape(DLTensor* out, const int64_t* wanted, uint64_t bytes, size_t element) {
  int64_t has[kMaxRank];
  const uint32_t rank = static_cast<uint32_t>(out->ndim);
  uint64_t room;
  if (!out->strides && !contiguous_strides(out->shape, rank, has)) return;
  if (!hull_bytes(out->shape, out->strides ? out->strides : has, rank, element, &room) || room < bytes) return;
  if (!out->strides) {
    if (!contiguous_strides(wanted, rank, has)) return;
    for (uint32_t d = 0; d < rank; ++d)
      if (wanted[d] > 1 && has[d] != wanted[rank + d] && bytes) return;
  }
  for (uint32_t d = 0; d < rank; ++d) {
    out->shape[d] = wanted[d];
    if (out->strides) out->strides[d] = wanted[rank + d];
  }
}

// A size, or an int, against what the session allows.
Status check_range(int64_t value, const fb::Dim* file, Interval allowed, husk_error* error) {
  if (value >= allowed.low && value <= allowed.high) return Status::ok;
  const char* remedy = value >= file->min() && value <= file->max() ? "husk_session_bound narrowed it"
                       : file->min() == file->max()                 ? "export with it dynamic, or pass that"
                                                                    : "export with a wider range";
  if (allowed.low == allowed.high)
    return refuse(error, "is %lld, must be %lld: %s", static_cast<long long>(value), static_cast<long long>(allowed.low),
                  remedy);
  return refuse(error, "is %lld, must be in %lld..%lld: %s", static_cast<long long>(value),
                static_cast<long long>(allowed.low), static_cast<long long>(allowed.high), remedy);
}

}  // namespace

Code::Label Code::label(uint32_t buffer) const {
  Label out;
  if (*name(buffer))
    snprintf(out.text, sizeof(out.text), "'%.36s'", name(buffer));
  else
    snprintf(out.text, sizeof(out.text), "#%u", buffer);
  return out;
}

Status Frame::bind_inputs(const husk_value* given, uint32_t n, bool data, husk_error* error) {
  if (n != code.inputs() || (n && !given)) return refuse(error, "takes %u inputs, %u were passed", code.inputs(), n);
  for (uint32_t i = 0; i < n; ++i) {
    Part part;
    Status status = bind_input(i, given[i], data, &part, error);
    if (failed(status)) return about(status, "input", code.input(i), part, error);
  }
  return Status::ok;
}

Status Frame::bind_input(uint32_t i, const husk_value& given, bool data, Part* part, husk_error* error) {
  const fb::Value* want = code.input(i);
  InputState& state = input_states[i];
  InputValue& in = inputs[i];
  in = InputValue();
  state.misaligned = nullptr;
  if (given.kind != want->kind())
    return refuse(error, "is %s, must be %s", kind_name(given.kind), kind_name(want->kind()));
  const Interval* allowed = &dims[state.first_dim];
  if (want->kind() != HUSK_VALUE_TENSOR) {
    in.i = want->kind() == HUSK_VALUE_BOOL ? given.as.i != 0 : given.as.i;
    in.f = want->kind() == HUSK_VALUE_FLOAT ? given.as.f : 0;
    return count(want->dims()) == 1 ? check_range(in.i, want->dims()->Get(0), *allowed, error) : Status::ok;
  }
  const DLTensor* tensor = given.as.tensor;
  HUSK_TRY(check_tensor(want, program->engine, tensor, data, error));
  *part = {"size", 0};
  for (; part->dim < want->rank(); ++part->dim)
    HUSK_TRY(check_range(tensor->shape[part->dim], want->dims()->Get(part->dim), allowed[part->dim], error));
  *part = {};
  int64_t* made = &strides[state.first_stride];
  in.sizes = tensor->shape;
  in.strides = tensor->strides ? tensor->strides : made;
  if ((!tensor->strides && !contiguous_strides(in.sizes, want->rank(), made)) ||
      !hull_bytes(in.sizes, in.strides, want->rank(), husk_dtype_size(static_cast<husk_dtype>(want->dtype())), &in.bytes))
    return refuse(error, "is too large or has a negative stride");
  in.data = first_element(tensor);
  if (!data) return Status::ok;
  HUSK_TRY(check_memory(in.data, in.bytes, error));
  if (in.bytes == 0 || is_aligned(in.data, state.align)) return Status::ok;
  if (!options->copy_misaligned)
    return misaligned_at(in.data, state.align, "copy it, or set husk_session_options.copy_misaligned", error);
  HUSK_TRY(session->reserve(&state.copy, in.bytes, "is misaligned and must be copied", error));
  state.misaligned = in.data;
  in.data = static_cast<uint8_t*>(state.copy.data);
  return Status::ok;
}

// An output for which the caller brings no memory.
Status Frame::bind_own(uint32_t i, husk_value* given, const int64_t* shape, husk_error* error) {
  OutputState& state = output_states[i];
  HUSK_TRY(session->reserve(&state.own, state.bytes ? state.bytes : 1, "is to be the session's", error));
  const uint32_t rank = code.output(i)->rank();
  if (rank) memcpy(state.shape, shape, 2 * rank * sizeof(int64_t));
  const husk_port_properties& p = program->engine->properties;
  state.tensor = {state.own.data, {static_cast<DLDeviceType>(p.dl_device_type), p.device_index}, static_cast<int32_t>(rank),
                  husk_dtype_to_dlpack(code.output(i)->dtype()), state.shape, state.shape + rank, 0};
  state.data = static_cast<uint8_t*>(state.own.data);
  given->kind = HUSK_VALUE_TENSOR;
  given->as.tensor = &state.tensor;
  return Status::ok;
}

Status Frame::bind_outputs(husk_value* given, uint32_t n, uint32_t segment, husk_error* error) {
  if (n != code.outputs() || (n && !given)) return refuse(error, "gives %u outputs, %u were passed", code.outputs(), n);
  for (uint32_t i = 0; i < n; ++i) {
    if (static_cast<ArgumentKind>(code.results[i].kind()) != ArgumentKind::tensor || output_states[i].segment != segment)
      continue;
    Part part;
    Status status = bind_output(i, &given[i], &part, error);
    if (failed(status)) return about(status, "output", code.output(i), part, error);
  }
  return Status::ok;
}

Status Frame::bind_output(uint32_t i, husk_value* given, Part* part, husk_error* error) {
  const fb::Value* want = code.output(i);
  OutputState& state = output_states[i];
  const uint32_t rank = want->rank();
  const size_t element = husk_dtype_size(static_cast<husk_dtype>(want->dtype()));
  int64_t wanted[2 * kMaxRank], dense[kMaxRank];   // sizes, then strides; those of a tensor without
  read_shape(code.results[i].index(), wanted);
  if (!hull_bytes(wanted, wanted + rank, rank, element, &state.bytes)) return refuse(error, "is too large");
  const bool ours = given->kind == HUSK_VALUE_TENSOR && given->as.tensor == &state.tensor;   // of an earlier run
  if (given->kind == HUSK_VALUE_NONE || ours) return bind_own(i, given, wanted, error);
  if (given->kind != HUSK_VALUE_TENSOR) return refuse(error, "is a tensor: pass its memory, or none to have the session's");
  DLTensor* out = given->as.tensor;
  HUSK_TRY(check_tensor(want, program->engine, out, true, error));
  if (state.segment > 0) tell_shape(out, wanted, state.bytes, element);
  const int64_t* strides_of = out->strides ? out->strides : dense;
  if (!out->strides && !contiguous_strides(wanted, rank, dense)) return refuse(error, "is too large");
  for (uint32_t d = 0; d < 2 * rank; ++d) {
    const bool size = d < rank;
    const int64_t has = size ? out->shape[d] : strides_of[d - rank];
    if (has == wanted[d] || (!size && wanted[d - rank] <= 1)) continue;
    *part = {size ? "size" : "stride", size ? d : d - rank};
    return refuse(error, "is %lld, this run gives %lld: husk_session_output_shape tells it", static_cast<long long>(has),
                  static_cast<long long>(wanted[d]));
  }
  state.data = first_element(out);
  HUSK_TRY(check_memory(state.data, state.bytes, error));
  if (state.bytes && !is_aligned(state.data, state.align))
    return misaligned_at(state.data, state.align, "give it aligned memory", error);
  return Status::ok;
}

// The order of steps knows inputs and outputs as memory of their own: what is written may meet nothing else.
Status Frame::check_overlaps(husk_error* error) const {
  const uint32_t outputs = code.outputs(), n = outputs + code.inputs();   // outputs, then inputs
  struct Memory {
    const uint8_t* data;
    uint64_t bytes;
  };
  auto memory = [&](uint32_t i) {
    return i < outputs ? Memory{output_states[i].data, output_states[i].bytes}
                       : Memory{inputs[i - outputs].data, inputs[i - outputs].bytes};
  };
  auto name = [&](uint32_t i) { return (i < outputs ? code.output(i) : code.input(i - outputs))->name()->c_str(); };
  auto side = [&](uint32_t i) { return i < outputs ? "output" : "input"; };
  for (uint32_t w = 0; w < n; ++w) {
    if (w >= outputs && !input_states[w - outputs].written) continue;
    const Memory a = memory(w);
    for (uint32_t i = 0; i < n; ++i) {
      const Memory b = memory(i);
      if (i != w && a.bytes && b.bytes && a.data < b.data + b.bytes && b.data < a.data + a.bytes)
        return refuse(error, "%s '%s' overlaps %s '%s': give it memory of its own", side(w), name(w),
                      side(i), name(i));
    }
  }
  return Status::ok;
}

Status Frame::check_buffer(uint32_t buffer, husk_error* error) const {
  const int64_t size = registers[code.buffers[buffer].size()].i;
  const uint64_t capacity = places[buffer].capacity;
  if (size >= 0 && static_cast<uint64_t>(size) <= capacity) return Status::ok;
  return fail(error, block_of[buffer] == kNone ? HUSK_INVALID_INPUT : HUSK_NEEDS_RESIZE,
              "buffer %s needs %lld bytes, there are %llu: call husk_session_resize with these shapes",
              code.label(buffer).text, static_cast<long long>(size), static_cast<unsigned long long>(capacity));
}

Status Frame::check_view(uint32_t index, husk_error* error) const {
  const fb::View& view = code.views[index];
  HUSK_TRY(check_buffer(view.buffer(), error));
  const int64_t offset = registers[view.offset()].i, extent = registers[view.extent()].i;
  const int64_t size = registers[code.buffers[view.buffer()].size()].i;
  if (offset >= 0 && extent >= 0 && offset <= size && extent <= size - offset) return Status::ok;
  return refuse(error, "a view covers bytes %lld + %lld of the %lld of buffer %s%s", static_cast<long long>(offset),
                static_cast<long long>(extent), static_cast<long long>(size), code.label(view.buffer()).text, kWrong);
}

// Sizes, then strides.
void Frame::read_shape(uint32_t tensor, int64_t* out) const {
  const fb::Tensor& row = code.tensors[tensor];
  for (uint32_t d = 0; d < 2u * row.rank(); ++d) out[d] = registers[code.operands[row.first() + d]].i;
}

Status Frame::check_tensor_row(uint32_t index, husk_error* error) const {
  const fb::Tensor& tensor = code.tensors[index];
  const fb::View& view = code.views[tensor.view()];
  HUSK_TRY(check_view(tensor.view(), error));
  int64_t shape[2 * kMaxRank];
  read_shape(index, shape);
  uint64_t bytes;
  if (hull_bytes(shape, shape + tensor.rank(), tensor.rank(), husk_dtype_size(static_cast<husk_dtype>(tensor.dtype())),
                 &bytes) && bytes <= static_cast<uint64_t>(registers[view.extent()].i))
    return Status::ok;
  return refuse(error, "a tensor does not fit into its view of buffer %s%s", code.label(view.buffer()).text, kWrong);
}

Status Frame::check_memory_of(uint32_t segment, husk_error* error) const {
  for (uint32_t b = 0; b < code.buffers.size; ++b)
    if (block_of[b] == kNone && places[b].sized_in == segment) HUSK_TRY(check_buffer(b, error));
  for (uint32_t i = 0; i < code.outputs(); ++i)   // which no step need use
    if (output_states[i].checked_in == segment && static_cast<ArgumentKind>(code.results[i].kind()) == ArgumentKind::tensor)
      HUSK_TRY(check_tensor_row(code.results[i].index(), error));
  return Status::ok;
}

Status Frame::enter(uint32_t segment, husk_error* error) {
  const Register* brought = segment ? results + segment_states[segment - 1].first_result : nullptr;
  HUSK_TRY(evaluate(code, segment, inputs, brought, registers, error));
  next_result = segment_states[segment].first_result;
  if (evaluated <= segment) evaluated = segment + 1;
  return Status::ok;
}

void Frame::skip(uint32_t segment) {
  const fb::Segment& range = code.segments[segment];
  for (uint32_t r = range.scalar_begin(); r < range.scalar_end(); ++r) registers[r].i = 0;
  for (uint32_t v = segment_states[segment].first_result; v < segment_states[segment + 1].first_result; ++v) results[v].i = 0;
  if (evaluated <= segment) evaluated = segment + 1;
}

bool Frame::output_shape(uint32_t output, int64_t* sizes, int64_t* made) const {
  const fb::Tensor& tensor = code.tensors[code.results[output].index()];
  const bool known = evaluated > output_states[output].segment;
  for (uint32_t d = 0; d < 2u * tensor.rank(); ++d) {
    const uint32_t reg = code.operands[tensor.first() + d];
    if (!known && !fixed(reg)) return false;
    int64_t* out = d < tensor.rank() ? sizes : made;
    if (out) out[d % tensor.rank()] = known ? registers[reg].i : intervals[reg].low;
  }
  return known || tensor.rank() > 0 || evaluated > 0;
}

bool Frame::unchanged() const {
  if (!bound_once) return false;
  for (uint32_t i = 0; i < code.inputs(); ++i)
    if (inputs[i].bytes != input_states[i].last_bytes) return false;
  const size_t n = code.segments[0].scalar_end();   // what decides the plan; later segments are checked in every run
  return n == 0 || memcmp(registers, last_registers, n * sizeof(Register)) == 0;
}

void Frame::remember() {
  for (uint32_t i = 0; i < code.inputs(); ++i) input_states[i].last_bytes = inputs[i].bytes;
  const size_t n = code.segments[0].scalar_end();
  if (n) memcpy(last_registers, registers, n * sizeof(Register));
  bound_once = true;
}

void Frame::write_results(husk_value* outputs) const {
  for (uint32_t i = 0; i < code.outputs(); ++i) {
    const fb::Argument& row = code.results[i];
    if (static_cast<ArgumentKind>(row.kind()) == ArgumentKind::tensor) continue;
    outputs[i].kind = code.output(i)->kind();
    if (outputs[i].kind == HUSK_VALUE_FLOAT)
      outputs[i].as.f = registers[row.index()].f;
    else if (outputs[i].kind != HUSK_VALUE_NONE)
      outputs[i].as.i = outputs[i].kind == HUSK_VALUE_BOOL ? registers[row.index()].i != 0 : registers[row.index()].i;
  }
}

}  // namespace husk
