// Random arguments that nearly fit an op.
#pragma once

#include <functional>
#include <limits>
#include <list>
#include <map>
#include <random>
#include <string>
#include <vector>

#include <husk/detail/dtype.h>
#include <husk/ops.h>

#include "contract.h"
#include "core/arguments.h"
#include "tensor.h"

namespace husk::host_test {

// Number of bytes from the first to behind the last element of a tensor without negative strides.
inline size_t memory_bytes(const husk_op_arg& tensor) {
  int64_t last = 0;
  for (int d = 0; d < tensor.rank; ++d)
    if (tensor.sizes[d] == 0) return 0;
  for (int d = 0; d < tensor.rank; ++d) last += (tensor.sizes[d] - 1) * tensor.strides[d];
  return static_cast<size_t>(last + 1) * static_cast<size_t>(host::dtype_bytes(tensor.dtype));
}

// Random arguments of one call. Kinds and values follow from the names of the arguments, with a few
// exceptions. Tensors are small and of few shapes, so that they often fit together.
class Noise {
 public:
  // A number in [low, high], both included; high - low < 256.
  using Pick = std::function<int(int low, int high)>;

  // Without `contents`, tensors have no memory.
  explicit Noise(Pick source, bool contents = true)
      : pick(std::move(source)), has_contents(contents) {
    constexpr int32_t kDtypes[] = {HUSK_F32,  HUSK_F32, HUSK_F64,   HUSK_F16,  HUSK_BF16,
                                   HUSK_I64,  HUSK_I32, HUSK_U8,    HUSK_BOOL, HUSK_C64,
                                   HUSK_C128, HUSK_I8,  HUSK_F8E5M2};
    dtype = kDtypes[pick(0, 12)];
    rank = pick(0, 5) ? pick(1, 4) : 0;
    for (int d = 0; d < 5; ++d) sizes[d] = pick(0, 20) ? pick(1, 3) : 0;
    if (pick(0, 1)) sizes[1] = sizes[2] = sizes[3] = sizes[4] = sizes[0];
  }

  husk_op_arg arg(const std::string& op, const std::string& name, bool last) {
    if (pick(0, 39) == 0) return any();
    if (name == "generator_state") return tensor(HUSK_U8, {HUSK_HOST_GENERATOR_BYTES}, true);
    if (last && op.find(":sizes") != std::string::npos) return result();
    if (name == "workspace") return tensor(HUSK_F64, {pick(0, 9) ? 400 : 1}, false);
    if (name == "UPLO") return string(pick(0, 1) ? "L" : "U");
    if (name == "mode" && op == "aten::linalg_qr") {
      constexpr const char* kModes[] = {"reduced", "complete", "r"};
      return string(kModes[pick(0, 2)]);
    }
    if (name == "pivots" || name == "LU_pivots" || name == "info") return shaped(HUSK_I32, true);
    if (name == "reduce" || name == "activation") return string(name == "reduce");
    if (name == "size" || name == "shape" || name == "output_size" || name == "dims" ||
        name == "repeats" || name == "pad" || name == "stride" || name == "padding" ||
        name == "dilation" || name == "output_padding" || name == "sumdim" ||
        name.find("expand") == 0 || name == "batch_sizes") {
      return list(name);
    }
    if (name == "tensors" || (name == "indices" && op.find("index") != std::string::npos))
      return tensors(name == "tensors");
    if (name == "dim") return pick(0, 3) ? int_arg(pick(-2, 2)) : list(name);
    const auto number = numbers.find(name);
    if (number != numbers.end())
      return pick(0, 5) ? int_arg(pick(number->second.first, number->second.second))
                        : husk_op_arg{};
    if (name == "alpha" || name == "beta" || name == "value" || name == "fill_value" ||
        name == "p" || name == "mean" || name == "std" || name == "scale" || name == "from" ||
        name == "to" || name == "lambd" || name == "max_norm" || name == "iou_threshold") {
      return pick(0, 1) ? int_arg(pick(0, 2)) : float_arg(pick(0, 4) / 4.0);
    }
    if (name == "dtype" || name == "layout" || name == "device" || name == "pin_memory" ||
        name == "memory_format" || name == "generator" || name == "dropout_p" ||
        name == "compute_mode") {
      return name == "dropout_p" ? float_arg(0) : husk_op_arg{};
    }
    if (name == "index" || name == "indices" || name == "offsets" || name == "lengths" ||
        name == "sorter" || name == "counts" || name == "inverse" || name == "offset2bag") {
      return shaped(pick(0, 5) ? HUSK_I64 : HUSK_I32, true);
    }
    // A matrix for each expert, and the ends of the rows of each one.
    if (name == "stack") return tensor(dtype, {sizes[3], sizes[1], sizes[1]}, false);
    if (name == "ends") return tensor(pick(0, 1) ? HUSK_I64 : HUSK_I32, {sizes[3]}, true);
    if (name == "mask" || name == "condition") return shaped(HUSK_BOOL, true);
    return shaped(pick(0, 12) ? dtype : int32_t{HUSK_I64}, pick(0, 1));
  }

  // An argument for each entry of a contract.
  std::vector<husk_op_arg> args(const std::string& op, const std::vector<Entry>& contract) {
    std::vector<husk_op_arg> values;
    for (const Entry& entry : contract)
      values.push_back(arg(op, entry.name, &entry == &contract.back()));
    return values;
  }

  bool guards_intact() const {
    for (const auto& block : blocks) {
      for (size_t i = 0; i < kGuard; ++i)
        if (block[i] != 0x5a || block[block.size() - 1 - i] != 0x5a) return false;
    }
    return true;
  }

 private:
#ifdef HUSK_SANITIZED
  static constexpr size_t kGuard = 0;  // the sanitizer finds accesses, reads included
#else
  static constexpr size_t kGuard = 64;
#endif

  husk_op_arg shaped(int32_t type, bool small) {
    const int tensor_rank = pick(0, 9) ? rank : pick(0, 5);
    std::vector<int64_t> shape(tensor_rank);
    for (int d = 0; d < tensor_rank; ++d) shape[d] = pick(0, 14) ? sizes[d] : pick(0, 4);
    return tensor(type, shape, small);
  }
  husk_op_arg any() {
    switch (pick(0, 6)) {
      case 0: return {};
      case 1: return int_arg(pick(0, 1) ? pick(-3, 9) : int64_t{1} << pick(30, 62));
      case 2: return float_arg(std::numeric_limits<double>::quiet_NaN());
      case 3: return list("");
      case 4: return tensors(false);
      case 5: return result();
      default: return shaped(pick(HUSK_BOOL, husk::detail::kDtypeCount - 1), false);
    }
  }
  husk_op_arg result() {
    husk_op_arg a{};
    a.kind = HUSK_ARG_RESULT;
    ints.push_back({0});
    a.data = ints.back().data();
    return a;
  }
  husk_op_arg string(bool reduction) {
    constexpr const char* kReductions[] = {"sum", "prod",     "mean", "amax", "amin",
                                           "add", "multiply", "max",  "min",  "other"};
    constexpr const char* kActivations[] = {"none",
#define HUSK_ACTIVATION(Name, name) #name,
#include <activations.def>
                                            "other"};
    husk_op_arg a{};
    a.kind = HUSK_ARG_STRING;
    a.string = reduction ? kReductions[pick(0, 9)]
                         : kActivations[pick(0, static_cast<int>(std::size(kActivations)) - 1)];
    return a;
  }
  static husk_op_arg string(const char* text) {
    husk_op_arg a{};
    a.kind = HUSK_ARG_STRING;
    a.string = text;
    return a;
  }
  husk_op_arg list(const std::string& name) {
    husk_op_arg a{};
    a.kind = HUSK_ARG_INTS;
    std::vector<int64_t> values(pick(0, 5) ? rank : pick(0, 5));
    if (name != "size" && name != "shape" && values.size() > 2 && pick(0, 1))
      values.resize(values.size() - 2);  // only the spatial dimensions
    for (size_t i = 0; i < values.size(); ++i)
      if (name == "size" || name == "shape" || name == "output_size")
        values[i] = pick(0, 4) ? sizes[i % 5] : pick(0, 3);
      else if (name == "dims" || name == "dim")
        values[i] = pick(0, 2) ? static_cast<int64_t>(i) : pick(-2, 2);
      else
        values[i] = pick(0, 5) ? pick(name == "padding" ? 0 : 1, 2) : pick(-1, 3);
    a.count = static_cast<int64_t>(values.size());
    values.push_back(0);
    ints.push_back(values);
    a.sizes = ints.back().data();
    return a;
  }
  husk_op_arg tensors(bool alike) {
    husk_op_arg a{};
    a.kind = HUSK_ARG_TENSORS;
    a.count = pick(0, 3);
    lists.emplace_back();
    for (int i = 0; i < a.count; ++i) {
      lists.back().push_back(alike        ? shaped(dtype, true)
                             : pick(0, 2) ? shaped(pick(0, 1) ? HUSK_I64 : HUSK_BOOL, true)
                                          : husk_op_arg{});
    }
    a.tensors = lists.back().data();
    return a;
  }
  husk_op_arg tensor(int32_t type, std::vector<int64_t> shape, bool small) {
    husk_op_arg a{};
    a.kind = HUSK_ARG_TENSOR;
    a.access = HUSK_ACCESS_READ | HUSK_ACCESS_WRITE;
    a.dtype = type;
    a.rank = static_cast<int32_t>(shape.size());
    std::vector<int64_t> strides(shape.size() + 1);
    const bool column_major = pick(0, 3) == 0;
    int64_t elements = 1;
    for (int i = 0; i < a.rank; ++i) {
      const int d = column_major ? i : a.rank - 1 - i;
      strides[d] = elements;
      elements *= shape[d];
    }
    shape.push_back(0);
    ints.push_back(shape);
    a.sizes = ints.back().data();
    ints.push_back(strides);
    a.strides = ints.back().data();
    if (!has_contents) return a;
    const size_t width = static_cast<size_t>(host::dtype_bytes(type)),
                 bytes = static_cast<size_t>(elements) * width;
    blocks.emplace_back(bytes + 2 * kGuard, static_cast<unsigned char>(0x5a));
    const bool is_int = type <= HUSK_I64;
    for (size_t i = 0; i < bytes; ++i) {
      const bool lowest = i % width == 0;
      blocks.back()[kGuard + i] = static_cast<unsigned char>(type == HUSK_BOOL ? pick(0, 1)
                                                             : small && is_int
                                                                 ? (lowest ? pick(0, 2) : 0)
                                                                 : pick(0, 255));
    }
    a.data = blocks.back().data() + kGuard;
    return a;
  }

  inline static const std::map<std::string, std::pair<int, int>> numbers = {
      {"k", {0, 3}},
      {"keepdim", {0, 1}},
      {"stable", {0, 1}},
      {"descending", {0, 1}},
      {"largest", {0, 1}},
      {"sorted", {0, 1}},
      {"accumulate", {0, 1}},
      {"include_self", {0, 1}},
      {"sparse_grad", {0, 1}},
      {"right", {0, 1}},
      {"out_int32", {0, 1}},
      {"return_inverse", {0, 1}},
      {"return_counts", {0, 1}},
      {"replacement", {0, 1}},
      {"transposed", {0, 1}},
      {"groups", {1, 2}},
      {"mode", {0, 2}},
      {"sparse", {0, 0}},
      {"scale_grad_by_freq", {0, 0}},
      {"include_last_offset", {0, 1}},
      {"padding_idx", {-1, 1}},
      {"num_samples", {1, 2}},
      {"bins", {1, 3}},
      {"min", {0, 0}},
      {"max", {0, 2}},
      {"minlength", {0, 3}},
      {"low", {0, 1}},
      {"high", {1, 4}},
      {"n", {0, 3}},
      {"start", {-1, 2}},
      {"end", {0, 4}},
      {"step", {1, 2}},
      {"offset", {-1, 1}},
      {"dim0", {-1, 1}},
      {"dim1", {0, 1}},
      {"dim2", {0, 2}},
      {"normalization", {0, 2}},
      {"forward", {0, 1}},
      {"onesided", {0, 1}},
      {"last_dim_size", {1, 4}},
      {"axis", {0, 1}},
      {"unsafe", {0, 1}},
      {"align_corners", {0, 1}},
      {"interpolation_mode", {0, 1}},
      {"padding_mode", {0, 2}},
      {"is_causal", {0, 1}},
      {"window_length", {0, 3}},
      {"periodic", {0, 1}},
      {"correction", {0, 2}},
      {"non_blocking", {0, 1}},
      {"implicit", {0, 1}},
      {"unroll_dim", {1, 1}},
      {"zero_point", {0, 3}},
      {"bits", {4, 8}},
      {"group", {1, 4}},
      {"quant_min", {0, 0}},
      {"quant_max", {15, 15}},
      {"norm_type", {2, 2}},
      {"use_gelu", {0, 1}},
      {"train", {0, 1}},
      {"reverse", {0, 1}},
      {"hidden_size", {1, 3}},
      {"num_layers", {1, 1}},
      {"has_biases", {0, 1}},
      {"bidirectional", {0, 0}},
      {"batch_first", {0, 0}},
      {"upper", {0, 1}},
      {"left", {0, 1}},
      {"unitriangular", {0, 1}},
      {"check_errors", {0, 1}},
      {"pivot", {0, 1}},
      {"full_matrices", {0, 1}},
      {"compute_uv", {0, 1}},
      {"compute_v", {0, 1}},
      {"hermitian", {0, 1}},
      {"adjoint", {0, 1}},
      {"transpose", {0, 1}},
      {"unpack_data", {0, 1}},
      {"unpack_pivots", {0, 1}},
      {"density", {0, 1}}};
  const Pick pick;
  const bool has_contents;
  int32_t dtype;
  int rank;
  int64_t sizes[5];
  std::list<std::vector<int64_t>> ints;
  std::list<std::vector<husk_op_arg>> lists;
  std::list<std::vector<unsigned char>> blocks;
};

inline Noise::Pick pick_from(std::mt19937& random) {
  return [&random](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
}

}  // namespace husk::host_test
