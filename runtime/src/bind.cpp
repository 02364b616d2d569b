// The values of a run against the signature, and what the prologue made of them against the memory.
#include "session.h"

#include "verify.h"

#include <cstdio>
#include <cstring>

namespace husk {
namespace {

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

struct Side {
  const char* what;  // "input" or "output"
  const char* function;
  const char* name;
};

Status check_tensor(const Side& side, const fb::Value* want, const husk_engine* engine, const DLTensor* tensor,
                    bool data, husk_error* error) {
  if (!tensor)
    return fail(error, HUSK_INVALID_INPUT, "function '%s': %s '%s' is a tensor, NULL was passed", side.function, side.what,
                side.name);
  const husk_dtype dtype = husk_dtype_from_dlpack(tensor->dtype);
  const husk_dtype wanted = static_cast<husk_dtype>(want->dtype());
  if (dtype != wanted)
    return fail(error, HUSK_INVALID_INPUT, "function '%s': %s '%s' has dtype %s, must be %s: convert it, or export with "
                "this dtype", side.function, side.what, side.name,
                dtype ? husk_dtype_name(dtype) : "unknown to Husk", husk_dtype_name(wanted));
  if (tensor->ndim != want->rank())
    return fail(error, HUSK_INVALID_INPUT, "function '%s': %s '%s' has %d dims, must have %u", side.function, side.what,
                side.name, tensor->ndim, unsigned(want->rank()));
  if (want->rank() > 0 && !tensor->shape)
    return fail(error, HUSK_INVALID_INPUT, "function '%s': %s '%s' has no shape", side.function, side.what, side.name);
  if (!data) return Status::ok;
  const husk_port_properties& p = engine->properties;
  if (static_cast<int32_t>(tensor->device.device_type) != p.dl_device_type ||
      (p.dl_device_type != kDLCPU && tensor->device.device_id != p.device_index))
    return fail(error, HUSK_INVALID_INPUT, "function '%s': %s '%s' lies on DLPack device %d:%d, the program runs on %d:%d "
                "(%s): copy it there", side.function, side.what, side.name,
                static_cast<int>(tensor->device.device_type), tensor->device.device_id, p.dl_device_type,
                p.device_index, p.name);
  return Status::ok;
}

Status check_memory(const Side& side, const uint8_t* data, uint64_t bytes, husk_error* error) {
  if (!bytes || data) return Status::ok;
  return fail(error, HUSK_INVALID_INPUT, "function '%s': %s '%s' has no memory", side.function, side.what, side.name);
}

Status misaligned_at(const Side& side, const uint8_t* data, uint32_t align, const char* remedy, husk_error* error) {
  return fail(error, HUSK_INVALID_INPUT, "function '%s': %s '%s' at %p is not aligned to %u bytes, which the kernels "
              "assume: %s", side.function, side.what, side.name, static_cast<const void*>(data), align, remedy);
}

bool is_aligned(const uint8_t* data, uint32_t align) {
  return align < 2 || (reinterpret_cast<uintptr_t>(data) & (align - 1)) == 0;
}

// A size, or an int, against what the session allows.
Status check_range(const Side& side, const char* what, int64_t value, const fb::Dim* file, Interval allowed,
                   husk_error* error) {
  if (value >= allowed.low && value <= allowed.high) return Status::ok;
  const char* remedy = value >= file->min() && value <= file->max() ? "husk_session_bound narrowed it"
                       : file->min() == file->max()                 ? "export with it dynamic, or pass that"
                                                                    : "export with a wider range";
  if (allowed.low == allowed.high)
    return fail(error, HUSK_INVALID_INPUT, "function '%s': %sinput '%s' is %lld, must be %lld: %s", side.function, what,
                side.name, static_cast<long long>(value), static_cast<long long>(allowed.low), remedy);
  return fail(error, HUSK_INVALID_INPUT, "function '%s': %sinput '%s' is %lld, must be in %lld..%lld: %s", side.function,
              what, side.name, static_cast<long long>(value), static_cast<long long>(allowed.low),
              static_cast<long long>(allowed.high), remedy);
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
  const char* function = code.function->name()->c_str();
  if (n != code.inputs() || (n && !given))
    return fail(error, HUSK_INVALID_INPUT, "function '%s' takes %u inputs, %u were passed", function, code.inputs(), n);
  for (uint32_t i = 0; i < n; ++i) {
    const fb::Value* want = code.input(i);
    const Side side = {"input", function, want->name()->c_str()};
    InputValue& in = inputs[i];
    in = InputValue();
    input_states[i].misaligned = nullptr;
    if (given[i].kind != want->kind())
      return fail(error, HUSK_INVALID_INPUT, "function '%s': input '%s' is %s, must be %s", function, side.name,
                  kind_name(given[i].kind), kind_name(want->kind()));
    if (want->kind() != HUSK_VALUE_TENSOR) {
      in.i = want->kind() == HUSK_VALUE_BOOL ? given[i].as.i != 0 : given[i].as.i;
      in.f = want->kind() == HUSK_VALUE_FLOAT ? given[i].as.f : 0;
      if (count(want->dims()) == 1)
        HUSK_TRY(check_range(side, "", in.i, want->dims()->Get(0), dims[input_states[i].first_dim], error));
      continue;
    }
    const DLTensor* tensor = given[i].as.tensor;
    HUSK_TRY(check_tensor(side, want, program->engine, tensor, data, error));
    for (uint32_t d = 0; d < want->rank(); ++d) {
      const Interval allowed = dims[input_states[i].first_dim + d];
      if (tensor->shape[d] >= allowed.low && tensor->shape[d] <= allowed.high) continue;
      char what[24];
      snprintf(what, sizeof(what), "size %u of ", d);
      return check_range(side, what, tensor->shape[d], want->dims()->Get(d), allowed, error);
    }
    in.sizes = tensor->shape;
    in.strides = tensor->strides;
    if (!in.strides) {
      int64_t* made = strides.data() + input_states[i].first_stride;
      if (!contiguous_strides(in.sizes, want->rank(), made))
        return fail(error, HUSK_INVALID_INPUT, "function '%s': input '%s' is too large", function, side.name);
      in.strides = made;
    }
    if (!hull_bytes(in.sizes, in.strides, want->rank(), husk_dtype_size(static_cast<husk_dtype>(want->dtype())), &in.bytes))
      return fail(error, HUSK_INVALID_INPUT, "function '%s': input '%s' is too large or has a negative stride", function,
                  side.name);
    in.data = tensor->data ? static_cast<uint8_t*>(tensor->data) + tensor->byte_offset : nullptr;
    if (!data) continue;
    HUSK_TRY(check_memory(side, in.data, in.bytes, error));
    if (in.bytes == 0 || is_aligned(in.data, input_states[i].align)) continue;
    if (!options->copy_misaligned)
      return misaligned_at(side, in.data, input_states[i].align, "copy it, or set husk_session_options.copy_misaligned", error);
    HUSK_TRY(session->reserve(&input_states[i].copy, in.bytes, "a copy of a misaligned input", error));
    input_states[i].misaligned = in.data;
    in.data = static_cast<uint8_t*>(input_states[i].copy.data);
  }
  return Status::ok;
}

// An output for which the caller brings no memory.
Status Frame::bind_own(uint32_t i, husk_value* given, const int64_t* sizes, const int64_t* made, husk_error* error) {
  const fb::Value* want = code.output(i);
  HUSK_TRY(session->reserve(&output_states[i].own, output_states[i].bytes ? output_states[i].bytes : 1, "an output", error));
  int64_t* shape = output_states[i].shape;
  for (uint32_t d = 0; d < want->rank(); ++d) {
    shape[d] = sizes[d];
    shape[want->rank() + d] = made[d];
  }
  const husk_port_properties& p = program->engine->properties;
  DLTensor& tensor = output_states[i].tensor;
  tensor.data = output_states[i].own.data;
  tensor.device = {static_cast<DLDeviceType>(p.dl_device_type), p.device_index};
  tensor.ndim = want->rank();
  tensor.dtype = husk_dtype_to_dlpack(want->dtype());
  tensor.shape = shape;
  tensor.strides = shape + want->rank();
  tensor.byte_offset = 0;
  output_states[i].data = static_cast<uint8_t*>(output_states[i].own.data);
  given->kind = HUSK_VALUE_TENSOR;
  given->as.tensor = &tensor;
  return Status::ok;
}

// Whether what the caller passes for a shape that only the data decides has room for it; it is told the shape then.
static bool fits_into(DLTensor* out, const int64_t* sizes, const int64_t* made, uint64_t bytes, size_t element) {
  int64_t has[kMaxRank];
  const uint32_t rank = static_cast<uint32_t>(out->ndim);
  uint64_t room;
  if (!out->strides && !contiguous_strides(out->shape, rank, has)) return false;
  if (!hull_bytes(out->shape, out->strides ? out->strides : has, rank, element, &room) || room < bytes) return false;
  if (!out->strides) {
    if (!contiguous_strides(sizes, rank, has)) return false;
    for (uint32_t d = 0; d < rank; ++d)
      if (sizes[d] > 1 && has[d] != made[d] && bytes) return false;
  }
  for (uint32_t d = 0; d < rank; ++d) {
    out->shape[d] = sizes[d];
    if (out->strides) out->strides[d] = made[d];
  }
  return true;
}

Status Frame::bind_outputs(husk_value* given, uint32_t n, uint32_t segment, husk_error* error) {
  const char* function = code.function->name()->c_str();
  if (n != code.outputs() || (n && !given))
    return fail(error, HUSK_INVALID_INPUT, "function '%s' gives %u outputs, %u were passed", function, code.outputs(), n);
  for (uint32_t i = 0; i < n; ++i) {
    const fb::Argument& row = code.results[i];
    if (static_cast<ArgumentKind>(row.kind()) != ArgumentKind::tensor || output_states[i].segment != segment) continue;
    const fb::Value* want = code.output(i);
    const Side side = {"output", function, want->name()->c_str()};
    const fb::Tensor& tensor = code.tensors[row.index()];
    const size_t element = husk_dtype_size(static_cast<husk_dtype>(want->dtype()));
    int64_t sizes[kMaxRank], made[kMaxRank], wanted[kMaxRank];
    for (uint32_t d = 0; d < tensor.rank(); ++d) {
      sizes[d] = registers[code.operands[tensor.first() + d]].i;
      wanted[d] = registers[code.operands[tensor.first() + tensor.rank() + d]].i;
    }
    if (!hull_bytes(sizes, wanted, tensor.rank(), element, &output_states[i].bytes))
      return fail(error, HUSK_INVALID_INPUT, "function '%s': output '%s' is too large", function, side.name);
    const bool ours = given[i].kind == HUSK_VALUE_TENSOR && given[i].as.tensor == &output_states[i].tensor;   // of an earlier run
    if (given[i].kind == HUSK_VALUE_NONE || ours) {
      HUSK_TRY(bind_own(i, &given[i], sizes, wanted, error));
      continue;
    }
    if (given[i].kind != HUSK_VALUE_TENSOR)
      return fail(error, HUSK_INVALID_INPUT, "function '%s': output '%s' is a tensor: pass its memory, or none to have the "
                  "session's", function, side.name);
    DLTensor* out = given[i].as.tensor;
    HUSK_TRY(check_tensor(side, want, program->engine, out, true, error));
    const bool told = segment > 0 && fits_into(out, sizes, wanted, output_states[i].bytes, element);
    for (uint32_t d = 0; d < tensor.rank() && !told; ++d) {
      if (out->shape[d] != sizes[d])
        return fail(error, HUSK_INVALID_INPUT, "function '%s': size %u of output '%s' is %lld, this run gives %lld: "
                    "husk_session_output_shape tells it", function, d, side.name, static_cast<long long>(out->shape[d]),
                    static_cast<long long>(sizes[d]));
    }
    const int64_t* has = out->strides;
    if (!has) {
      if (!contiguous_strides(sizes, tensor.rank(), made))
        return fail(error, HUSK_INVALID_INPUT, "function '%s': output '%s' is too large", function, side.name);
      has = made;
    }
    for (uint32_t d = 0; d < tensor.rank(); ++d)
      if (has[d] != wanted[d] && sizes[d] > 1)
        return fail(error, HUSK_INVALID_INPUT, "function '%s': stride %u of output '%s' is %lld, this run gives %lld: "
                    "husk_session_output_shape tells it", function, d, side.name, static_cast<long long>(has[d]),
                    static_cast<long long>(wanted[d]));
    output_states[i].data = out->data ? static_cast<uint8_t*>(out->data) + out->byte_offset : nullptr;
    HUSK_TRY(check_memory(side, output_states[i].data, output_states[i].bytes, error));
    if (output_states[i].bytes && !is_aligned(output_states[i].data, output_states[i].align))
      return misaligned_at(side, output_states[i].data, output_states[i].align, "give it aligned memory", error);
  }
  return Status::ok;
}

// The order of steps knows inputs and outputs as memory of their own: what is written may meet nothing else.
Status Frame::check_overlaps(husk_error* error) const {
  auto meet = [](const uint8_t* a, uint64_t n, const uint8_t* b, uint64_t m) { return n && m && a < b + m && b < a + n; };
  const char* function = code.function->name()->c_str();
  for (uint32_t o = 0; o < code.outputs(); ++o) {
    for (uint32_t i = 0; i < code.inputs(); ++i)
      if (meet(output_states[o].data, output_states[o].bytes, inputs[i].data, inputs[i].bytes))
        return fail(error, HUSK_INVALID_INPUT, "function '%s': output '%s' overlaps input '%s': give it memory of its own",
                    function, code.output(o)->name()->c_str(), code.input(i)->name()->c_str());
    for (uint32_t p = 0; p < o; ++p)
      if (meet(output_states[o].data, output_states[o].bytes, output_states[p].data, output_states[p].bytes))
        return fail(error, HUSK_INVALID_INPUT, "function '%s': output '%s' overlaps output '%s': give it memory of its own",
                    function, code.output(o)->name()->c_str(), code.output(p)->name()->c_str());
  }
  for (uint32_t i = 0; i < code.inputs(); ++i) {
    if (!input_states[i].written) continue;
    for (uint32_t j = 0; j < code.inputs(); ++j)
      if (i != j && meet(inputs[i].data, inputs[i].bytes, inputs[j].data, inputs[j].bytes))
        return fail(error, HUSK_INVALID_INPUT, "function '%s' writes input '%s', which overlaps input '%s'", function,
                    code.input(i)->name()->c_str(), code.input(j)->name()->c_str());
  }
  return Status::ok;
}

Status Frame::check_buffer(uint32_t buffer, husk_error* error) const {
  const int64_t size = registers[code.buffers[buffer].size()].i;
  const uint64_t capacity = places[buffer].capacity;
  if (size >= 0 && static_cast<uint64_t>(size) <= capacity) return Status::ok;
  return fail(error, block_of[buffer] == kNone ? HUSK_INVALID_INPUT : HUSK_NEEDS_RESIZE,
              "function '%s': buffer %s needs %lld bytes, there are %llu: call husk_session_resize with these shapes",
              code.function->name()->c_str(), code.label(buffer).text, static_cast<long long>(size),
              static_cast<unsigned long long>(capacity));
}

Status Frame::check_view(uint32_t index, husk_error* error) const {
  const fb::View& view = code.views[index];
  HUSK_TRY(check_buffer(view.buffer(), error));
  const int64_t offset = registers[view.offset()].i, extent = registers[view.extent()].i;
  const int64_t size = registers[code.buffers[view.buffer()].size()].i;
  if (offset >= 0 && extent >= 0 && offset <= size && extent <= size - offset) return Status::ok;
  return fail(error, HUSK_INVALID_INPUT, "function '%s': a view covers bytes %lld + %lld of the %lld of buffer %s: the "
              "artifact is wrong for these shapes, export it again", code.function->name()->c_str(),
              static_cast<long long>(offset), static_cast<long long>(extent), static_cast<long long>(size),
              code.label(view.buffer()).text);
}

Status Frame::check_tensor_row(uint32_t index, husk_error* error) const {
  const fb::Tensor& tensor = code.tensors[index];
  HUSK_TRY(check_view(tensor.view(), error));
  int64_t sizes[kMaxRank], made[kMaxRank];
  for (uint32_t d = 0; d < tensor.rank(); ++d) {
    sizes[d] = registers[code.operands[tensor.first() + d]].i;
    made[d] = registers[code.operands[tensor.first() + tensor.rank() + d]].i;
  }
  uint64_t bytes;
  if (hull_bytes(sizes, made, tensor.rank(), husk_dtype_size(static_cast<husk_dtype>(tensor.dtype())), &bytes) &&
      bytes <= static_cast<uint64_t>(registers[code.views[tensor.view()].extent()].i))
    return Status::ok;
  return fail(error, HUSK_INVALID_INPUT, "function '%s': a tensor does not fit into its view of buffer %s: the artifact is "
              "wrong for these shapes, export it again", code.function->name()->c_str(),
              code.label(code.views[tensor.view()].buffer()).text);
}

// Memory is checked where it is used, each time: a row may be wrong where the segment that uses it does not run, and one
// that was right may be of a segment that did not run this time, and is zeros now.
Status Frame::check_segment(uint32_t segment, husk_error* error) const {
  const fb::Segment& range = code.segments[segment];
  auto here = [&](uint32_t reg) { return reg >= range.scalar_begin() && reg < range.scalar_end(); };
  for (uint32_t b = 0; b < code.buffers.size; ++b) {   // what the caller brought
    if (block_of[b] == kNone && here(code.buffers[b].size())) HUSK_TRY(check_buffer(b, error));
  }
  for (uint32_t s = range.step_begin(); s < range.step_end(); ++s) {
    const fb::Instruction& step = code.steps[s];
    for (uint32_t i = step.b(); i < step.b() + step.c(); ++i) {
      const fb::Argument& argument = code.arguments[i];
      if (static_cast<ArgumentKind>(argument.kind()) == ArgumentKind::view) HUSK_TRY(check_view(argument.index(), error));
      if (static_cast<ArgumentKind>(argument.kind()) == ArgumentKind::tensor) HUSK_TRY(check_tensor_row(argument.index(), error));
    }
  }
  for (const fb::Argument& result : code.results) {   // which no step need use: where its last register is computed
    if (static_cast<ArgumentKind>(result.kind()) != ArgumentKind::tensor) continue;
    const fb::Tensor& tensor = code.tensors[result.index()];
    const fb::View& view = code.views[tensor.view()];
    uint32_t last = code.buffers[view.buffer()].size();
    for (uint32_t reg : {view.offset(), view.extent()}) last = reg > last ? reg : last;
    for (uint32_t d = 0; d < 2u * tensor.rank(); ++d)
      if (code.operands[tensor.first() + d] > last) last = code.operands[tensor.first() + d];
    if (here(last)) HUSK_TRY(check_tensor_row(result.index(), error));
  }
  return Status::ok;
}

Status Frame::enter(uint32_t segment, husk_error* error) {
  const Register* brought = segment ? results.data() + segment_states[segment - 1].first_result : nullptr;
  HUSK_TRY(evaluate(code, segment, inputs.data(), brought, registers.data(), error));
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
  return n == 0 || memcmp(registers.data(), last_registers.data(), n * sizeof(Register)) == 0;
}

void Frame::remember() {
  for (uint32_t i = 0; i < code.inputs(); ++i) input_states[i].last_bytes = inputs[i].bytes;
  const size_t n = code.segments[0].scalar_end();
  if (n) memcpy(last_registers.data(), registers.data(), n * sizeof(Register));
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
