// Fuzzes the ops of the host. A part of the input chooses an op and a correct call of it, or
// arguments that nearly fit it; the rest damages them: odd strides, sizes, dtypes, numbers, lists
// and texts. The rules that the runtime enforces hold: elements lie inside memory, the number of
// elements is at most 2^62, and an element that is written belongs to one tensor, at one place.
// Each tensor has a block of its own of exactly the needed size, so that a sanitizer sees each
// access outside of it. In some calls, tensors that are only read have up to 2^62 elements, at one
// place or in pages of zeros; these calls end when they first ask whether to.
#include <sys/mman.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <iterator>
#include <memory>
#include <optional>

#include <husk/detail/dtype.h>

#include "correct_calls.h"
#include "cpu_sets.h"
#include "device.h"
#include "noise.h"
#include "op_scratch.h"

namespace {

using husk::host_test::Call;
using husk::host_test::Entry;
using husk::host_test::memory_bytes;
using husk::host_test::Noise;

constexpr int64_t kMaxElements = 9216;  // of a tensor, so that a call takes little time
constexpr size_t kMaxBlock = size_t{1} << 20;

// Reads choices from the input. After its end, choices follow from its first bytes.
class Choices {
 public:
  Choices(const uint8_t* input, size_t length) : data(input), size(length) {
    for (int i = 0; i < 2; ++i) state = state * 257 + byte();
    for (size_t i = 0; i < length; ++i) other_state = other_state * 257 + input[i];
  }
  int byte() { return at < size ? data[at++] : random(); }
  int pick(int low, int high) { return low + byte() % (high - low + 1); }
  // A number that follows from the first bytes alone.
  int random() {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<int>(state >> 56);
  }
  bool one_in(int n) { return pick(1, n) == n; }
  // A number below n that follows from all bytes and takes none, so that the other choices stay.
  uint64_t aside(uint64_t n) {
    other_state = other_state * 6364136223846793005u + 1442695040888963407u;
    return (other_state >> 33) % n;
  }
  template <class T, size_t n>
  T of(const T (&values)[n]) {
    return values[pick(0, static_cast<int>(n) - 1)];
  }

 private:
  const uint8_t* data;
  size_t size, at = 0;
  uint64_t state = 1, other_state = 1;
};

// Bytes of 0 that can be read and not written. A page that cannot be accessed follows.
struct ZeroPages {
  static constexpr size_t kBytes = size_t{1} << 36, kPage = 4096;
  ZeroPages() {
    void* pages = mmap(nullptr, kBytes + kPage, PROT_READ,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pages == MAP_FAILED) std::abort();
    end = static_cast<char*>(pages) + kBytes;
    if (mprotect(end, kPage, PROT_NONE) != 0) std::abort();
  }
  char* end;
};

struct FreeBlock {
  void operator()(void* block) const { std::free(block); }
};

struct Row {
  const husk_op& op;
  std::vector<Entry> contract;
  std::vector<const Call*> correct_calls;
};

// How many inputs called an op with arguments that it accepts, by row of pack.def.
struct Successes {
  std::vector<std::pair<const char*, uint64_t>> rows;
  ~Successes() {
    size_t reached = 0;
    for (const auto& [name, count] : rows) {
      reached += count > 0;
      if (count == 0) std::fprintf(stderr, "no input has called %s as it accepts\n", name);
    }
    std::fprintf(stderr, "%zu of %zu ops of pack.def were called with arguments that they accept\n",
                 reached, rows.size());
  }
};

std::vector<Row> all_rows() {
  static std::deque<Call> calls;
  husk::host_test::add_correct_calls(calls);
  husk::host_test::add_large_calls(calls);
  std::vector<Row> rows;
  uint32_t count = 0;
  const husk_op* ops = husk_host_ops(&count);
  for (uint32_t i = 0; i < count; ++i) {
    rows.push_back({ops[i], husk::host_test::parse_contract(ops[i].contract), {}});
    for (const Call& call : calls)
      if (call.name == ops[i].name) rows.back().correct_calls.push_back(&call);
  }
  return rows;
}

// The arguments of one call.
class HostileCall {
 public:
  HostileCall(Choices& source, const Row& row)
      : choices(source),
        contract(row.contract),
        noise([&source](int low, int high) { return source.pick(low, high); }, false) {
    if (!row.correct_calls.empty() && choices.one_in(2))
      args = row.correct_calls[static_cast<size_t>(choices.byte()) % row.correct_calls.size()]
                 ->args;
    else
      args = noise.args(row.op.name, contract);
    if (choices.aside(8) == 0) enlarge();
    if (!enlarged && choices.aside(2) == 0) change_alike();
    const bool damaged = !choices.one_in(3);
    for (size_t i = 0; i < args.size(); ++i) {
      if (damaged && choices.one_in(3)) damage(args[i]);
      if (args[i].kind == HUSK_ARG_TENSORS) {
        std::vector<husk_op_arg>& tensors = lists.emplace_back(args[i].tensors,
                                                               args[i].tensors + args[i].count);
        for (husk_op_arg& tensor : tensors) {
          if (tensor.kind == HUSK_ARG_TENSOR && damaged && choices.one_in(3)) damage_tensor(tensor);
          place(tensor, contract[i]);
        }
        args[i].tensors = tensors.data();
      } else {
        place(args[i], contract[i]);
      }
    }
    while (!args.empty() && contract[args.size() - 1].optional && choices.one_in(2))
      args.pop_back();
    for (size_t i = 0; i < args.size(); ++i) {
      if (contract[i].same < 0 || choices.one_in(2)) continue;
      const husk_op_arg& other = args[contract[i].same];
      if (same_geometry(args[i], other)) args[i].data = other.data;
    }
    if (damaged && choices.one_in(40)) args.resize(args.size() / 2);
  }

  // False if the runtime would refuse the call, or if it would take long.
  bool allowed = true;
  // True if tensors may have so many elements that only a cancelled call is short.
  bool enlarged = false;

 private:
  Choices& choices;
  const std::vector<Entry>& contract;
  Noise noise;

 public:
  std::vector<husk_op_arg> args;

 private:
  int64_t edge() {
    constexpr int64_t kEdges[] = {0,
                                  -1,
                                  1,
                                  2,
                                  3,
                                  4,
                                  5,
                                  -2,
                                  7,
                                  64,
                                  INT64_MIN,
                                  INT64_MAX,
                                  INT64_MIN + 1,
                                  INT32_MAX,
                                  INT32_MIN,
                                  int64_t{1} << 32,
                                  int64_t{1} << 40,
                                  int64_t{1} << 62,
                                  -(int64_t{1} << 62),
                                  INT64_MAX - 1,
                                  4096};
    return choices.of(kEdges);
  }
  double float_edge() {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    constexpr double kEdges[] = {
        0,     -0.0,   1,      -1,        0.5,        2,
        1e300, -1e300, 1e-310, kInfinity, -kInfinity, 9.3e18,
        1e19,  65504,  3.5e38, 0.999,     1e-3,       std::numeric_limits<double>::quiet_NaN()};
    return choices.of(kEdges);
  }
  const int64_t* keep(const std::vector<int64_t>& values) {
    const size_t bytes = values.size() * sizeof(int64_t);
    void* block = take(bytes);
    if (bytes) std::memcpy(block, values.data(), bytes);
    return static_cast<const int64_t*>(block);
  }
  void* take(size_t bytes) {
    blocks.emplace_back(std::malloc(bytes));
    return blocks.back().get();
  }

  // The strides of a contiguous tensor; 0 where they pass 2^63.
  static std::vector<int64_t> dense_strides(const std::vector<int64_t>& sizes) {
    std::vector<int64_t> strides(sizes.size());
    int64_t stride = 1;
    for (size_t d = sizes.size(); d-- > 0;) {
      strides[d] = stride;
      if (__builtin_mul_overflow(stride, std::max<int64_t>(sizes[d], 1), &stride)) stride = 0;
    }
    return strides;
  }

  // Takes a size of a tensor that is only read, and makes it huge in all such tensors.
  void enlarge() {
    std::vector<size_t> readable;
    for (size_t i = 0; i < args.size(); ++i)
      if (args[i].kind == HUSK_ARG_TENSOR && args[i].rank > 0 && !contract[i].written)
        readable.push_back(i);
    if (readable.empty()) return;
    constexpr int64_t kHuge[] = {(int64_t{1} << 31) - 1, int64_t{1} << 31, (int64_t{1} << 31) + 1,
                                 int64_t{1} << 32,       int64_t{1} << 33, (int64_t{1} << 34) - 5,
                                 int64_t{1} << 40,       int64_t{1} << 61, int64_t{1} << 62};
    const husk_op_arg& chosen = args[readable[choices.aside(readable.size())]];
    const int64_t from = chosen.sizes[choices.aside(static_cast<uint64_t>(chosen.rank))],
                  to = kHuge[choices.aside(std::size(kHuge))];
    const bool dense = choices.aside(2) == 0;
    for (const size_t i : readable) {
      std::vector<int64_t> sizes(args[i].sizes, args[i].sizes + args[i].rank),
          strides(args[i].strides, args[i].strides + args[i].rank);
      if (std::find(sizes.begin(), sizes.end(), from) == sizes.end()) continue;
      for (size_t d = 0; d < sizes.size(); ++d)
        if (sizes[d] == from) {
          sizes[d] = to;
          strides[d] = 0;
        }
      if (dense) strides = dense_strides(sizes);
      args[i].sizes = keep(sizes);
      args[i].strides = keep(strides);
      args[i].data = nullptr;
    }
    enlarged = true;
  }

  // Gives all tensors of one dtype another one, or all dims of one size another size, so that
  // tensors that must agree still do. Calls of other dtypes and sizes would else be refused early.
  void change_alike() {
    std::vector<husk_op_arg*> tensors;
    for (husk_op_arg& arg : args) {
      if (arg.kind == HUSK_ARG_TENSOR) tensors.push_back(&arg);
      if (arg.kind != HUSK_ARG_TENSORS) continue;
      std::vector<husk_op_arg>& list = lists.emplace_back(arg.tensors, arg.tensors + arg.count);
      arg.tensors = list.data();
      for (husk_op_arg& tensor : list)
        if (tensor.kind == HUSK_ARG_TENSOR) tensors.push_back(&tensor);
    }
    if (tensors.empty()) return;
    const husk_op_arg chosen = *tensors[choices.aside(tensors.size())];
    if (choices.aside(2) == 0) {
      retype(
          tensors, chosen.dtype,
          static_cast<int32_t>(HUSK_BOOL + choices.aside(husk::detail::kDtypeCount - HUSK_BOOL)));
    } else if (choices.aside(3) == 0) {
      retype(tensors, HUSK_F32, HUSK_F64);
      retype(tensors, HUSK_C64, HUSK_C128);
    } else if (chosen.rank > 0) {
      constexpr int64_t kSizes[] = {0,  1,  2,  3,  4,  5,  6,  8,   9,   12,  15,  16,  17,
                                    31, 32, 33, 48, 64, 65, 96, 127, 130, 256, 500, 1024};
      resize(tensors, chosen.sizes[choices.aside(static_cast<uint64_t>(chosen.rank))],
             kSizes[choices.aside(std::size(kSizes))]);
    }
  }
  static void retype(const std::vector<husk_op_arg*>& tensors, int32_t from, int32_t to) {
    for (husk_op_arg* tensor : tensors) {
      if (tensor->dtype != from) continue;
      tensor->dtype = to;
      tensor->data = nullptr;
    }
  }
  void resize(const std::vector<husk_op_arg*>& tensors, int64_t from, int64_t to) {
    for (husk_op_arg* tensor : tensors) {
      std::vector<int64_t> sizes(tensor->sizes, tensor->sizes + tensor->rank);
      std::replace(sizes.begin(), sizes.end(), from, to);
      tensor->sizes = keep(sizes);
      tensor->strides = keep(dense_strides(sizes));
      tensor->data = nullptr;
    }
  }

  void damage(husk_op_arg& arg) {
    if (choices.one_in(12)) return replace(arg);
    switch (arg.kind) {
      case HUSK_ARG_TENSOR: return damage_tensor(arg);
      case HUSK_ARG_INT:
        arg.i = edge();
        if (choices.one_in(6)) arg = husk::host_test::float_arg(float_edge());
        break;
      case HUSK_ARG_FLOAT:
        arg.f = float_edge();
        if (choices.one_in(6)) arg = husk::host_test::int_arg(edge());
        break;
      case HUSK_ARG_INTS: {
        std::vector<int64_t> values(arg.sizes, arg.sizes + arg.count);
        if (choices.one_in(3)) values.resize(static_cast<size_t>(choices.pick(0, 17)), edge());
        for (int64_t& value : values)
          if (choices.one_in(2)) value = edge();
        arg.count = static_cast<int64_t>(values.size());
        arg.sizes = keep(values);
        break;
      }
      case HUSK_ARG_STRING: {
        constexpr const char* kTexts[] = {
            "sum",   "prod", "mean", "amax",  "amin", "max",      "min",
            "right", "left", "",     "other", "add",  "multiply", "none",
#define HUSK_ACTIVATION(Name, name) #name,
#include <activations.def>
        };
        arg.string = choices.of(kTexts);
        break;
      }
      default: break;
    }
  }

  // Another kind of argument.
  void replace(husk_op_arg& arg) {
    constexpr const char* kTexts[] = {"sum", "mean", "right"};
    const husk_op_arg old = arg;
    arg = {};
    switch (choices.pick(0, 5)) {
      case 0: break;
      case 1: arg = husk::host_test::int_arg(edge()); break;
      case 2: arg = husk::host_test::float_arg(float_edge()); break;
      case 3:
        arg.kind = HUSK_ARG_STRING;
        arg.string = choices.of(kTexts);
        break;
      case 4:
        arg.kind = HUSK_ARG_DTYPE;
        arg.dtype = choices.pick(0, husk::detail::kDtypeCount);
        break;
      default:
        if (old.kind != HUSK_ARG_TENSOR) break;
        arg.kind = HUSK_ARG_TENSORS;
        arg.count = 1;
        lists.push_back({old});
        arg.tensors = lists.back().data();
    }
  }

  void damage_tensor(husk_op_arg& arg) {
    std::vector<int64_t> sizes(arg.sizes, arg.sizes + arg.rank),
        strides(arg.strides, arg.strides + arg.rank);
    if (choices.one_in(6)) arg.dtype = choices.pick(HUSK_BOOL, husk::detail::kDtypeCount - 1);
    if (choices.one_in(8)) {  // another rank
      const size_t rank = static_cast<size_t>(choices.pick(0, 17));
      sizes.resize(rank, 1);
      strides.resize(rank, choices.one_in(2) ? 1 : 0);
    }
    for (size_t d = 0; d < sizes.size(); ++d) {
      constexpr int64_t kSizes[] = {0, 1, 2, 3, 4, 5, 8, 16, 17, 33, 64, 65};
      if (choices.one_in(4)) sizes[d] = choices.of(kSizes);
    }
    int64_t stride = 1;
    const int order = choices.pick(0, 2), gap = choices.one_in(3) ? choices.pick(1, 3) : 1;
    for (size_t k = 0; k < sizes.size(); ++k) {
      const size_t d = order == 0 ? k : sizes.size() - 1 - k;
      strides[d] = stride * gap;
      constexpr int64_t kMaxStride = 1 << 20;
      stride = sizes[d] > kMaxStride ? 1 : stride * std::max<int64_t>(sizes[d], 1) * gap;
      if (stride > kMaxStride) stride = 1;
    }
    for (size_t d = 0; d < sizes.size(); ++d) {
      constexpr int64_t kStrides[] = {0, 0, 1, 2, 3, 5, 64};
      if (choices.one_in(6)) strides[d] = choices.of(kStrides);
    }
    if (!sizes.empty() && choices.one_in(6)) {  // no elements, but huge sizes
      constexpr int64_t kHuge[] = {int64_t{1} << 31, int64_t{1} << 32, int64_t{1} << 61,
                                   int64_t{1} << 62, (int64_t{1} << 31) - 1};
      sizes[static_cast<size_t>(choices.byte()) % sizes.size()] = choices.of(kHuge);
      const size_t empty = static_cast<size_t>(choices.byte()) % sizes.size();
      sizes[empty] = 0;
      if (choices.one_in(2)) strides[empty] = edge() & INT64_MAX;
    }
    arg.rank = static_cast<int32_t>(sizes.size());
    arg.sizes = keep(sizes);
    arg.strides = keep(strides);
    arg.data = nullptr;
    if (choices.one_in(50)) arg.dtype = choices.pick(-1, 40);
  }

  // Moves a tensor or a number into a block of its size. A tensor of an unknown dtype has none.
  void place(husk_op_arg& arg, const Entry& entry) {
    if (arg.kind == HUSK_ARG_RESULT) arg.data = take(sizeof(int64_t));
    if (arg.kind != HUSK_ARG_TENSOR) return;
    arg.access = (entry.read ? HUSK_ACCESS_READ : 0) | (entry.written ? HUSK_ACCESS_WRITE : 0);
    int64_t nonzero_product = 1, elements = 1;
    for (int32_t d = 0; d < arg.rank; ++d) {
      if (__builtin_mul_overflow(nonzero_product, std::max<int64_t>(arg.sizes[d], 1),
                                 &nonzero_product) ||
          nonzero_product > int64_t{1} << 62) {
        allowed = false;
        arg.data = nullptr;
        return;
      }
      elements = arg.sizes[d] == 0 ? 0 : elements;
    }
    if (elements != 0) elements = nonzero_product;
    const bool may_be_huge = enlarged && !entry.written;
    if ((elements > kMaxElements && !may_be_huge) ||
        (entry.written && elements > 0 && overlaps(arg)))
      allowed = false;
    if (!allowed) return;
    const size_t bytes = block_bytes(arg);
    if (bytes > (may_be_huge ? ZeroPages::kBytes : kMaxBlock)) {
      allowed = false;
      return;
    }
    if (bytes > kMaxBlock) {
      static const ZeroPages zeros;
      arg.data = zeros.end - bytes;
      return;
    }
    void* block = take(bytes);
    if (arg.data && bytes && !choices.one_in(4))
      std::memcpy(block, arg.data, bytes);
    else
      fill(arg, static_cast<unsigned char*>(block), bytes);
    arg.data = block;
  }

  // The bytes from the first to behind the last element; SIZE_MAX if they are too many.
  static size_t block_bytes(const husk_op_arg& tensor) {
    int64_t last = 0, reach = 0;
    for (int32_t d = 0; d < tensor.rank; ++d)
      if (tensor.sizes[d] > 1 &&
          (__builtin_mul_overflow(tensor.sizes[d] - 1, tensor.strides[d], &reach) ||
           __builtin_add_overflow(last, reach, &last) || last > int64_t{1} << 56))
        return SIZE_MAX;
    return memory_bytes(tensor);
  }

  static bool same_geometry(const husk_op_arg& a, const husk_op_arg& b) {
    return a.kind == HUSK_ARG_TENSOR && b.kind == HUSK_ARG_TENSOR && a.dtype == b.dtype &&
           a.rank == b.rank && std::equal(a.sizes, a.sizes + a.rank, b.sizes) &&
           std::equal(a.strides, a.strides + a.rank, b.strides);
  }

  // True if two elements of a tensor may lie at one place.
  static bool overlaps(const husk_op_arg& tensor) {
    std::vector<std::pair<int64_t, int64_t>> dims;  // stride and size
    for (int32_t d = 0; d < tensor.rank; ++d)
      if (tensor.sizes[d] > 1) dims.emplace_back(tensor.strides[d], tensor.sizes[d]);
    std::sort(dims.begin(), dims.end());
    int64_t last = 0;
    for (const auto& [stride, size] : dims) {
      if (stride <= last) return true;
      last += stride * (size - 1);
    }
    return false;
  }

  void fill(const husk_op_arg& tensor, unsigned char* to, size_t bytes) {
    const size_t width = static_cast<size_t>(husk::host::dtype_bytes(tensor.dtype));
    const bool tame = choices.one_in(2), from_input = bytes <= 8 * width;
    for (size_t i = 0; width && i + width <= bytes; i += width)
      fill_element(tensor, to + i, tame, from_input ? choices.byte() : choices.random());
  }
  // Writes the element that `choice`, in [0, 256), stands for.
  void fill_element(const husk_op_arg& tensor, unsigned char* to, bool tame, int choice) {
    const bool at_edge = !tame && choice % 8 == 0;
    const double value = at_edge ? float_edge() : (choice / 8 % 17 - 8) / 2.0;
    const auto write = [to](const auto& number) { std::memcpy(to, &number, sizeof number); };
    switch (tensor.dtype) {
      case HUSK_F64: return write(value);
      case HUSK_C64: {
        const float parts[] = {single(value), at_edge ? single(float_edge()) : 1};
        return write(parts);
      }
      case HUSK_C128: {
        const double parts[] = {value, at_edge ? float_edge() : 1};
        return write(parts);
      }
      case HUSK_F32: return write(single(value));
      case HUSK_BOOL: return write(static_cast<unsigned char>(choice & 1));
      case HUSK_F16:
      case HUSK_BF16: return write(static_cast<uint16_t>(choice << 8 | (at_edge ? 255 : 0)));
      default: break;
    }
    const int64_t number = at_edge ? edge() : tame ? choice / 8 % 4 : choice / 8 % 8 - 2;
    std::memcpy(to, &number, static_cast<size_t>(husk::host::dtype_bytes(tensor.dtype)));
  }
  static float single(double value) {
    return std::abs(value) > 3.4e38 ? static_cast<float>(std::copysign(HUGE_VAL, value))
                                    : static_cast<float>(value);
  }

  std::deque<std::vector<husk_op_arg>> lists;
  std::vector<std::unique_ptr<void, FreeBlock>> blocks;
};

void print(const husk_op& row, const std::vector<husk_op_arg>& args);

// The copies that an op makes of its arguments as if they were constants (husk_op.pack), in memory
// of the exact size.
struct PackedArguments {
  PackedArguments(const husk_op& row, const husk_op_context& context,
                  const std::vector<husk_op_arg>& args)
      : copies(args.size()), addresses(args.size()) {
    for (uint32_t i = 0; i < args.size(); ++i) {
      if (!may_be_packed(args[i])) continue;
      std::vector<husk_op_arg> known = args;
      for (uint32_t j = 0; j < known.size(); ++j)
        if (j != i) known[j].data = nullptr;
      husk_packing packing = HUSK_PACKING_INIT;
      packing.argument = i;
      if (!call(row, context, known, packing) || packing.bytes == 0 || packing.bytes > kMostBytes)
        continue;
      copies[i].reset(std::malloc(packing.bytes));
      packing.data = copies[i].get();
      if (call(row, context, known, packing)) addresses[i] = packing.data;
    }
  }

  std::vector<std::unique_ptr<void, FreeBlock>> copies;
  std::vector<const void*> addresses;  // by argument

 private:
  static constexpr uint64_t kMostBytes = 1 << 22;

  // The runtime packs a tensor if its elements lie at different places of a constant.
  static bool may_be_packed(const husk_op_arg& a) {
    if (a.kind != HUSK_ARG_TENSOR || a.rank < 0 || a.rank > 16 || !a.data) return false;
    __int128 elements = 1, extent = 1;
    for (int32_t d = 0; d < a.rank; ++d) {
      if (a.sizes[d] < 1 || a.strides[d] < 0 || elements > kMostBytes || extent > kMostBytes)
        return false;
      elements *= a.sizes[d];
      extent += static_cast<__int128>(a.sizes[d] - 1) * a.strides[d];
    }
    return elements <= extent && extent <= kMostBytes;
  }
  static bool call(const husk_op& row, const husk_op_context& context,
                   const std::vector<husk_op_arg>& args, husk_packing& packing) {
    husk_error error = {};
    const husk_status status = row.pack(&context, args.data(), static_cast<uint32_t>(args.size()),
                                        &packing, &error);
    if (status == HUSK_OK) return true;
    if (status != error.code) std::abort();
    return false;
  }
};

// By row of pack.def: 1 if the input called the op with arguments that it accepts. libFuzzer treats
// these bytes as coverage, so that a corpus keeps such an input of each op.
[[gnu::section("__libfuzzer_extra_counters")]] uint8_t accepted[512];

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const bool verbose = std::getenv("HUSK_FUZZ_PRINT") != nullptr;
  static const std::vector<Row> rows = all_rows();
  static Successes successes;
  if (successes.rows.empty())
    for (const Row& row : rows) successes.rows.emplace_back(row.op.name, 0);
  if (size < 4) return 0;
  const size_t index = static_cast<size_t>(data[0] | data[1] << 8) % rows.size();
  const Row& fuzzed = rows[index];
  const husk_op& row = fuzzed.op;
  Choices choices(data + 2, size - 2);
  static const std::vector<husk::host_test::CpuSet> sets = husk::host_test::sets_of(
      husk::host::cpu_features());
  static husk::host::Device device({}, husk::host::cpu_features(), nullptr);
  device.features = sets[static_cast<size_t>(choices.pick(1, static_cast<int>(sets.size()))) - 1]
                        .features;
  const HostileCall call(choices, fuzzed);
  if (!call.allowed) return 0;
  if (verbose) print(row, call.args);
  const auto end_call = [](void*) -> int32_t { return 1; };
  static husk::host_test::OpScratch scratch;
  husk_op_context context = husk::host_test::context_for(row, &device, scratch);
  if (call.enlarged) context.cancel = end_call;
  std::optional<PackedArguments> packed;
  if (row.pack && !call.enlarged) {
    packed.emplace(row, context, call.args);
    context.packed = packed->addresses.data();
  }
  husk_error error = {};
  const husk_status status = row.call(&context, call.args.data(),
                                      static_cast<uint32_t>(call.args.size()), &error);
  if (verbose) std::fprintf(stderr, "  -> %d %s\n", static_cast<int>(status), error.text);
  if (status != error.code ||
      (status != HUSK_OK && std::strncmp(error.text, row.name, std::strlen(row.name)) != 0)) {
    std::fprintf(stderr, "%s: status %d, error %d: %s\n", row.name, static_cast<int>(status),
                 static_cast<int>(error.code), error.text);
    std::abort();
  }
  successes.rows[index].second += status == HUSK_OK;
  if (status == HUSK_OK && index < std::size(accepted)) accepted[index] = 1;
  return 0;
}

namespace {

void print_ints(const char* open, const int64_t* values, int64_t count) {
  std::fprintf(stderr, "%s", open);
  for (int64_t i = 0; i < count; ++i)
    std::fprintf(stderr, "%s%lld", i ? "," : "", static_cast<long long>(values[i]));
  std::fprintf(stderr, "]");
}

void print(const husk_op_arg& arg) {
  switch (arg.kind) {
    case HUSK_ARG_NONE: std::fprintf(stderr, "none"); break;
    case HUSK_ARG_TENSOR:
      std::fprintf(stderr, "%s", husk::host::dtype_name(arg.dtype));
      print_ints("[", arg.sizes, arg.rank);
      print_ints(" strides [", arg.strides, arg.rank);
      break;
    case HUSK_ARG_INT: std::fprintf(stderr, "%lld", static_cast<long long>(arg.i)); break;
    case HUSK_ARG_FLOAT: std::fprintf(stderr, "%g (float)", arg.f); break;
    case HUSK_ARG_INTS: print_ints("[", arg.sizes, arg.count); break;
    case HUSK_ARG_STRING: std::fprintf(stderr, "\"%s\"", arg.string); break;
    case HUSK_ARG_DTYPE: std::fprintf(stderr, "dtype %d", arg.dtype); break;
    case HUSK_ARG_TENSORS:
      std::fprintf(stderr, "{");
      for (int64_t i = 0; i < arg.count; ++i) {
        if (i) std::fprintf(stderr, "; ");
        print(arg.tensors[i]);
      }
      std::fprintf(stderr, "}");
      break;
    default: std::fprintf(stderr, "kind %d", arg.kind);
  }
}

void print(const husk_op& row, const std::vector<husk_op_arg>& args) {
  std::fprintf(stderr, "%s (%s)\n", row.name, row.contract);
  for (const husk_op_arg& arg : args) {
    std::fprintf(stderr, "  ");
    print(arg);
    std::fprintf(stderr, "\n");
  }
}

}  // namespace
