#include "signature.h"

#include <algorithm>

namespace husk::triton {
namespace {

struct Type {
  husk_dtype dtype;
  TRITONSERVER_DataType type;
  const char* config;
};

constexpr Type kTypes[] = {
#define HUSK_KSERVE(NAME, word) {HUSK_##NAME, TRITONSERVER_TYPE_##word, "TYPE_" #word},
#include <dtypes.def>
};

using Describe = husk_status (*)(const husk_program*, uint32_t, uint32_t, husk_value_info*,
                                 husk_error*);

Error read_value(const husk_program* program, uint32_t function, uint32_t index, Describe describe,
                 const char* side, Value* value) {
  husk_value_info info = HUSK_VALUE_INFO_INIT;
  husk_error error;
  if (describe(program, function, index, &info, &error) != HUSK_OK) return fail(error);
  value->name = info.name;
  value->kind = info.kind;
  value->dtype = info.kind == HUSK_VALUE_TENSOR  ? info.dtype
                 : info.kind == HUSK_VALUE_INT   ? HUSK_I64
                 : info.kind == HUSK_VALUE_FLOAT ? HUSK_F64
                 : info.kind == HUSK_VALUE_BOOL  ? HUSK_BOOL
                                                 : HUSK_DTYPE_NONE;
  if (info.kind == HUSK_VALUE_NONE) return nullptr;
  for (const Type& type : kTypes)
    if (type.dtype == value->dtype) value->type = type.type;
  if (value->type == TRITONSERVER_TYPE_INVALID)
    return fail(TRITONSERVER_ERROR_UNSUPPORTED,
                "%s '%s' has dtype %s, which Triton does not have: convert it in the model", side,
                info.name, husk_dtype_name(value->dtype));
  value->element_bytes = husk_dtype_size(value->dtype);
  if (info.kind != HUSK_VALUE_TENSOR) return nullptr;
  value->rank = info.rank;
  value->alignment = info.alignment;
  value->is_written = info.is_written != 0;
  if (info.ranges) value->ranges.assign(info.ranges, info.ranges + 2 * info.rank);
  return nullptr;
}

Error read_values(const husk_program* program, uint32_t function, uint32_t count, Describe describe,
                  const char* side, std::vector<Value>* values) {
  values->resize(count);
  for (uint32_t i = 0; i < count; ++i)
    HUSK_TRITON_TRY(read_value(program, function, i, describe, side, &(*values)[i]));
  return nullptr;
}

Error find_function(const husk_program* program, const std::string& name, uint32_t* function) {
  const uint32_t count = husk_program_function_count(program);
  std::string names;
  for (uint32_t i = 0; i < count; ++i) {
    const std::string other = husk_program_function_name(program, i);
    *function = i;
    if (name.empty() ? count == 1 || other == "forward" : other == name) return nullptr;
    names += (i ? ", " : "") + other;
  }
  if (name.empty())
    return fail(TRITONSERVER_ERROR_INVALID_ARG,
                "the artifact has the functions %s: name one by the parameter \"function\" of "
                "config.pbtxt",
                names.c_str());
  return fail(TRITONSERVER_ERROR_INVALID_ARG,
              "a parameter of config.pbtxt names the function '%s', but the artifact has the "
              "functions %s",
              name.c_str(), names.c_str());
}

// Compares the values of two functions, which correspond by their positions.
Error join_values(const char* side, std::vector<Value>* values, std::vector<Value>* others,
                  const std::string& name, const std::string& other_name) {
  bool equal = values->size() == others->size();
  for (size_t i = 0; equal && i < values->size(); ++i) {
    Value &value = (*values)[i], &other = (*others)[i];
    equal = value.kind == other.kind && value.dtype == other.dtype && value.rank == other.rank;
    if (!equal) break;
    other.name = value.name;
    value.alignment = other.alignment = std::max(value.alignment, other.alignment);
    for (size_t d = 0; d < value.ranges.size(); d += 2) {
      value.ranges[d] = std::min(value.ranges[d], other.ranges[d]);
      value.ranges[d + 1] = std::max(value.ranges[d + 1], other.ranges[d + 1]);
    }
  }
  if (equal) return nullptr;
  return fail(TRITONSERVER_ERROR_INVALID_ARG,
              "the functions '%s' and '%s' take the same requests, but their %ss differ in number, "
              "kind, dtype or rank",
              name.c_str(), other_name.c_str(), side);
}

// Adds the values of another function to those of the functions named `name`.
Error add_values(const char* side, std::vector<Value>* values, const std::vector<Value>& others,
                 const std::string& name, const std::string& other_name) {
  for (Value& value : *values) value.optional |= find(others, value.name) == others.size();
  for (const Value& other : others) {
    if (other.kind == HUSK_VALUE_NONE) continue;
    const size_t index = find(*values, other.name);
    if (index == values->size()) {
      values->push_back(other);
      values->back().optional = true;
      continue;
    }
    Value* found = &(*values)[index];
    if (found->type != other.type || found->rank != other.rank)
      return fail(TRITONSERVER_ERROR_INVALID_ARG,
                  "the parameter \"functions\" of config.pbtxt names %s and %s, but %s '%s' of "
                  "'%s' has another type or rank: make that function a model of its own",
                  name.c_str(), other_name.c_str(), side, other.name.c_str(), other_name.c_str());
    for (size_t d = 0; d < found->ranges.size() && d < other.ranges.size(); d += 2) {
      found->ranges[d] = std::min(found->ranges[d], other.ranges[d]);
      found->ranges[d + 1] = std::max(found->ranges[d + 1], other.ranges[d + 1]);
    }
  }
  return nullptr;
}

}  // namespace

Error Signature::add(const Signature& other) {
  HUSK_TRITON_TRY(add_values("input", &inputs, other.inputs, name, other.name));
  HUSK_TRITON_TRY(add_values("output", &outputs, other.outputs, name, other.name));
  name += ", " + other.name;
  return nullptr;
}

size_t find(const std::vector<Value>& values, const std::string& name) {
  size_t i = 0;
  while (i < values.size() && (values[i].kind == HUSK_VALUE_NONE || values[i].name != name)) ++i;
  return i;
}

std::string names(const std::vector<Value>& values) {
  std::string out;
  for (const Value& value : values)
    if (value.kind != HUSK_VALUE_NONE) out += (out.empty() ? "" : ", ") + value.name;
  return out.empty() ? "none" : out;
}

std::string names(const std::vector<Signature>& functions) {
  std::string out;
  for (const Signature& function : functions) out += (out.empty() ? "" : ", ") + function.name;
  return out;
}

Error Signature::join(Signature* other) {
  HUSK_TRITON_TRY(join_values("input", &inputs, &other->inputs, name, other->name));
  return join_values("output", &outputs, &other->outputs, name, other->name);
}

Error Signature::read(const husk_program* program, const std::string& name, Signature* signature) {
  HUSK_TRITON_TRY(find_function(program, name, &signature->function));
  const uint32_t function = signature->function;
  signature->name = husk_program_function_name(program, function);
  HUSK_TRITON_TRY(read_values(program, function, husk_program_input_count(program, function),
                              husk_program_input, "input", &signature->inputs));
  return read_values(program, function, husk_program_output_count(program, function),
                     husk_program_output, "output", &signature->outputs);
}

const char* config_type(TRITONSERVER_DataType type) {
  for (const Type& each : kTypes)
    if (each.type == type) return each.config;
  return "TYPE_INVALID";
}

}  // namespace husk::triton
