#include "passes/check.h"

#include <algorithm>
#include <map>

#include <husk/husk.h>

#include "base/limits.h"
#include "ir/compile_error.h"
#include "ir/op_table.h"
#include "model/rows.h"
#include "passes/check_variant.h"
#include "passes/encode_fill.h"

namespace husk::compiler {
namespace {

bool is_before(const Place& a, const Place& b) {
  return a.line < b.line || (a.line == b.line && a.column < b.column);
}

template <class T>
void check_names(const std::vector<T>& rows, const char* what) {
  std::map<std::string_view, Place> seen;
  for (const T& row : rows) {
    auto [first, inserted] = seen.try_emplace(row.name.text, row.name.place);
    if (!inserted)
      fail(row.name.place, "a second {} '{}': the first is in line {}", what, row.name.text,
           first->second.line);
  }
}

// Returns the row called `name`, which must be defined before it is used.
template <class T>
const T& find(const std::vector<T>& rows, const Name& name, const char* what) {
  for (const T& row : rows) {
    if (row.name.text != name.text) continue;
    if (is_before(name.place, row.name.place))
      fail(name.place, "{} '{}' is defined only later, in line {}", what, name.text,
           row.name.place.line);
    return row;
  }
  fail(name.place, "there is no {} '{}'", what, name.text);
}

// Checks rank and sizes; returns the bytes of a dense tensor.
int64_t check_dims(const Name& name, husk_dtype dtype, const std::vector<int64_t>& dims) {
  int64_t bytes = dtype_bytes(dtype);
  if (dims.size() > limits::kMaxRank)
    fail(name.place, "'{}' has {} dimensions, {} are the most", name.text, dims.size(),
         limits::kMaxRank);
  for (int64_t dim : dims) {
    if (dim < 0) fail(name.place, "'{}' has a negative size", name.text);
    if (__builtin_mul_overflow(bytes, dim, &bytes))
      fail(name.place, "'{}' has more than 2^63 bytes", name.text);
  }
  return bytes;
}

void check_value_name(const Name& name) {
  if (is_reserved(name.text))
    fail(name.place, "'{}' is a word of the text form: choose another name", name.text);
}

constexpr std::string_view kHexDigits = "0123456789abcdefABCDEF";

void check_constant(const Constant& c) {
  check_value_name(c.name);
  const int64_t bytes = check_dims(c.name, c.dtype, c.dims);
  if (c.in_file || !c.folded_by.text.empty()) return;
  if (c.bytes.text.find_first_not_of(kHexDigits) != std::string::npos)
    fail(c.bytes.place, "the bytes of '{}' are not all hexadecimal digits", c.name.text);
  if (c.bytes.text.size() != static_cast<uint64_t>(bytes) * 2)
    fail(c.bytes.place, "constant '{}' has {} bytes: {} digits, not {}", c.name.text, bytes,
         2 * bytes, c.bytes.text.size());
}

void check_state(const Program& program, const State& s) {
  check_value_name(s.name);
  const int64_t bytes = check_dims(s.name, s.dtype, s.dims);
  if (s.init.text.empty()) {
    encode_fill(s);  // throws if the literal does not fit
    return;
  }
  const Constant& init = find(program.constants, s.init, "constant");
  if (init.dtype != s.dtype || check_dims(init.name, init.dtype, init.dims) != bytes)
    fail(s.init.place, "state '{}' differs in dtype or size from constant '{}'", s.name.text,
         s.init.text);
}

// The images that a port takes. A port without a row takes what its module_load accepts.
bool takes(std::string_view port, int32_t format) {
  if (port == "host") return format == HUSK_IMAGE_ELF;
  if (port == "cuda") return format == HUSK_IMAGE_CUBIN || format == HUSK_IMAGE_PTX;
  return true;
}

void check_image(const Program& program, const Image& image) {
  const Target& target = find(program.targets, image.target, "target");
  if (!takes(target.port.text, image.format))
    fail(image.name.place, "target '{}' is for the port {}, which does not take {} images",
         target.name.text, target.port.text, image_format_name(image.format));
}

void check_kernel(const Program& program, const Kernel& k) {
  const Image& image = find(program.images, k.image, "image");
  if (k.symbol.empty()) fail(k.name.place, "kernel '{}' has no symbol", k.name.text);
  for (husk_dtype type : k.params)
    if (type != HUSK_POINTER && !is_int_dtype(type) && !is_float_dtype(type))
      fail(k.name.place, "kernel '{}': a parameter cannot have type {}", k.name.text,
           dtype_name(type));
  int64_t threads = 1;
  for (int64_t n : k.block) {
    if (n < 1 || n > limits::kMaxBlockThreads)
      fail(k.name.place, "kernel '{}': each side of the block must be 1..{}", k.name.text,
           limits::kMaxBlockThreads);
    threads *= n;
  }
  if (threads > limits::kMaxBlockThreads)
    fail(k.name.place, "kernel '{}': {} threads in a block, {} are the most", k.name.text, threads,
         limits::kMaxBlockThreads);
  if (k.shared < 0 || k.shared > UINT32_MAX)
    fail(k.name.place, "kernel '{}': shared must be 0..2^32-1 bytes", k.name.text);
  if (k.cluster < 1 || k.cluster > limits::kMaxCluster)
    fail(k.name.place, "kernel '{}': cluster must be 1..{}", k.name.text, limits::kMaxCluster);
  if (image.format == HUSK_IMAGE_ELF && (threads != 1 || k.shared || k.cluster != 1))
    fail(k.name.place, "kernel '{}' is for the host, which has no block, shared or cluster",
         k.name.text);
}

void check_value(const Value& v) {
  check_value_name(v.name);
  for (const Range& r : v.ranges) {
    if (r.min > r.max) fail(r.place, "the range {}..{} is empty", r.min, r.max);
    if (v.kind == HUSK_VALUE_TENSOR && r.min < 0) fail(r.place, "a size cannot be negative");
  }
  if (v.rank < 0 || v.rank > limits::kMaxRank)
    fail(v.name.place, "'{}': the rank must be 0..{}", v.name.text, limits::kMaxRank);
}

void check_function(const Program& program, const Function& f) {
  std::map<std::string_view, Place> seen;
  for (const auto* values : {&f.inputs, &f.outputs}) {
    for (const Value& v : *values) {
      check_value(v);
      auto [first, inserted] = seen.try_emplace(v.name.text, v.name.place);
      if (!inserted)
        fail(v.name.place, "'{}' is an input or output already, in line {}", v.name.text,
             first->second.line);
    }
  }
  if (f.variants.empty()) fail(f.name.place, "function '{}' has no variant", f.name.text);
  std::map<std::string_view, Place> targets;
  for (const Variant& v : f.variants) {
    find(program.targets, v.target, "target");
    if (!targets.try_emplace(v.target.text, v.target.place).second)
      fail(v.target.place, "function '{}' has a second variant for target '{}'", f.name.text,
           v.target.text);
    check_variant(program, f, v);
  }
}

// Whether an output of a function without inputs can be the constant.
bool is_folded(const Constant& c, const Value& output) {
  return output.kind == HUSK_VALUE_TENSOR && output.dtype == c.dtype &&
         output.rank == static_cast<int64_t>(c.dims.size());
}

// Checks that the last functions fold the last constants (schema/FORMAT.md, "Folded constants").
void check_folding(const Program& program) {
  const auto& constants = program.constants;
  const auto is_given = [](const Constant& c) { return c.folded_by.text.empty(); };
  auto constant = std::find_if_not(constants.begin(), constants.end(), is_given);
  const auto first = constant;
  const auto folds = [&](const Function& f) {
    return std::any_of(first, constants.end(),
                       [&](const Constant& c) { return c.folded_by.text == f.name.text; });
  };
  auto function = std::find_if(program.functions.begin(), program.functions.end(), folds);
  if (function == program.functions.begin() && function != program.functions.end())
    fail(function->name.place, "a function that folds constants stands behind all others");
  for (; function != program.functions.end(); ++function) {
    if (!function->inputs.empty() || function->variants.size() != 1)
      fail(function->name.place,
           "function '{}' folds constants, so it has one variant and no input",
           function->name.text);
    for (const Value& output : function->outputs) {
      if (constant == constants.end() || constant->folded_by.text != function->name.text ||
          !is_folded(*constant, output))
        fail(output.name.place,
             "the outputs of '{}', which folds constants, are these constants in their order",
             function->name.text);
      ++constant;
    }
  }
  if (constant != constants.end())
    fail(
        constant->name.place,
        "constants that are folded, and the functions that fold them, stand behind all others, and "
        "'{}' must be the next output",
        constant->name.text);
}

void check_world(const World& world) {
  const bool exists = world.size >= 1 && world.size <= limits::kMaxWorld && world.rank >= 0 &&
                      world.rank < world.size;
  if (!exists)
    fail(world.place,
         "there is no rank {} of {} ranks: rank is less than world, which is at most {}",
         world.rank, world.size, limits::kMaxWorld);
  if (world.set.size() != 2 * sizeof(fb::Hash) ||
      world.set.find_first_not_of(kHexDigits) != std::string::npos)
    fail(world.place, "the set of a world is 64 hexadecimal digits");
}

void check_all_names(const Program& program) {
  check_names(program.targets, "target");
  check_names(program.constants, "constant");
  check_names(program.states, "state");
  check_names(program.images, "image");
  check_names(program.kernels, "kernel");
  check_names(program.functions, "function");
  for (const State& s : program.states)
    for (const Constant& c : program.constants)
      if (s.name.text == c.name.text)
        fail(s.name.place, "'{}' is a constant already, in line {}", s.name.text,
             c.name.place.line);
}

}  // namespace

void check_align(const Name& name, int64_t align, int64_t most) {
  if (align < 0 || align > most || (align & (align - 1)))
    fail(name.place, "'{}': align must be a power of two, at most {}", name.text, most);
}

void check(const Program& program) {
  if (program.version != 1)
    fail(program.version_place, "this compiler reads hir 1, not hir {}", program.version);
  check_all_names(program);
  if (program.has_world) check_world(program.world);
  for (const Target& t : program.targets)
    if (t.arch.empty()) fail(t.name.place, "target '{}' has no architecture", t.name.text);
  for (const Constant& c : program.constants) check_constant(c);
  for (const State& s : program.states) check_state(program, s);
  for (const Image& i : program.images) check_image(program, i);
  for (const Kernel& k : program.kernels) check_kernel(program, k);
  for (const Function& f : program.functions) check_function(program, f);
  if (program.functions.empty()) fail(program.version_place, "the program has no function");
  check_folding(program);
}

}  // namespace husk::compiler
