// aten::_scaled_dot_product_flash_attention_for_cpu. One block of queries is combined with one
// block of keys at a time, so that the matrix of all scores is never stored. Sums are in f32 (f64
// for f64). T. Dao et al., "FlashAttention" (2022), describes the running softmax.
#include <cmath>
#include <cstring>
#include <limits>

#include "core/arguments.h"
#include "core/element.h"
#include "core/loop.h"
#include "core/parallel.h"
#include "device.h"
#include "error.h"
#include "linalg/product.h"

namespace husk::host {

namespace {

template <class T>
constexpr int64_t kQueryBlock = 128 / static_cast<int64_t>(sizeof(T));
template <class T>
constexpr int64_t kKeyBlock = 256 / static_cast<int64_t>(sizeof(T));
constexpr int64_t kMaxHeadWidth = 256;

struct Attention {
  husk_op_arg query, key, value;         // with safe strides: the heads may have no elements
  const husk_op_arg *mask, *out, *sums;  // `mask` and `sums` may be null
  int64_t mask_strides[4];
  const Device* device;
  double scale;
  bool causal;
  int64_t query_count, key_count, width, value_width;
};

template <class T>
struct Buffers {
  alignas(64) T query[kQueryBlock<T> * kMaxHeadWidth];
  alignas(64) T key[kKeyBlock<T> * kMaxHeadWidth];  // holds a block of keys, later of values
  alignas(64) T scores[kQueryBlock<T> * kKeyBlock<T>];
  alignas(64) T out[kQueryBlock<T> * kMaxHeadWidth];
  T max_scores[kQueryBlock<T>], sums[kQueryBlock<T>];
};

// Loads rows of a head as T.
template <class T, class S>
void load_rows(const husk_op_arg& tensor, const S* head, int64_t first, int64_t rows, int64_t width,
               T* to) {
  for (int64_t i = 0; i < rows; ++i) {
    const S* from = head + (first + i) * tensor.strides[2];
    for (int64_t c = 0; c < width; ++c)
      to[i * kMaxHeadWidth + c] = T(get(from + c * tensor.strides[3]));
  }
}

// out = alpha * left * right, added to out if `adds` is true.
template <class T>
void multiply(const Attention& a, MatrixView left, MatrixView right, T* out, int64_t pitch,
              int64_t m, int64_t n, int64_t k, double alpha, bool adds) {
  Product p = {};
  p.dtype = std::is_same_v<T, double> ? HUSK_F64 : HUSK_F32;
  p.m = m;
  p.n = n;
  p.k = k;
  p.a = left;
  p.b = right;
  p.out = out;
  p.out_row = pitch;
  p.out_column = 1;
  p.alpha = alpha;
  if (adds) {
    p.self = {out, pitch, 1};
    p.beta = 1;
  }
  product_run(*a.device, p);
}

// Adds the mask to a block of scores. Hidden scores become -infinity.
template <class T, class S>
void mask_scores(const Attention& a, int64_t mask_at, int64_t first, int64_t rows, int64_t start,
                 int64_t columns, T* scores) {
  constexpr T kHidden = -std::numeric_limits<T>::infinity();
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      T& score = scores[i * kKeyBlock<T> + j];
      if (a.causal && start + j > first + i) score = kHidden;
      if (!a.mask) continue;
      const int64_t at = mask_at + (first + i) * a.mask_strides[2] +
                         (start + j) * a.mask_strides[3];
      if (a.mask->dtype == HUSK_BOOL)
        score = data_of<uint8_t>(*a.mask)[at] ? score : kHidden;
      else if (a.mask->dtype == HUSK_F32)
        score += static_cast<T>(data_of<float>(*a.mask)[at]);
      else
        score += T(get(data_of<S>(*a.mask) + at));
    }
  }
}

// Turns scores into softmax weights relative to the largest score so far, and scales the earlier
// sums to match.
template <class T>
void soften(Buffers<T>& b, int64_t rows, int64_t columns, int64_t width) {
  for (int64_t i = 0; i < rows; ++i) {
    T* scores = b.scores + i * kKeyBlock<T>;
    T max_score = b.max_scores[i];
    for (int64_t j = 0; j < columns; ++j)
      max_score = scores[j] > max_score || is_nan(scores[j]) ? scores[j] : max_score;
    // The largest score is -infinity if all scores so far are hidden.
    const T base = std::isinf(max_score) && max_score < 0 ? T(0) : max_score;
    const T shrink = std::exp(b.max_scores[i] - base);
    T sum = 0;
    for (int64_t j = 0; j < columns; ++j) sum += scores[j] = std::exp(scores[j] - base);
    b.max_scores[i] = max_score;
    b.sums[i] = b.sums[i] * shrink + sum;
    for (int64_t c = 0; c < width; ++c) b.out[i * kMaxHeadWidth + c] *= shrink;
  }
}

template <class T, class S>
void run_block(const Attention& a, int64_t batch, int64_t head, int64_t first, Buffers<T>& b) {
  const int64_t groups = a.query.sizes[1] / a.key.sizes[1];
  const auto head_of = [&](const husk_op_arg& tensor, int64_t head_index) {
    return static_cast<S*>(tensor.data) + batch * tensor.strides[0] +
           head_index * tensor.strides[1];
  };
  const int64_t rows = a.query_count - first < kQueryBlock<T> ? a.query_count - first
                                                              : kQueryBlock<T>;
  load_rows<T, S>(a.query, head_of(a.query, head), first, rows, a.width, b.query);
  memset(b.out, 0, sizeof b.out);
  for (int64_t i = 0; i < rows; ++i) {
    b.max_scores[i] = -std::numeric_limits<T>::infinity();
    b.sums[i] = 0;
  }
  const int64_t mask_at = a.mask ? batch * a.mask_strides[0] + head * a.mask_strides[1] : 0;
  const int64_t end = a.causal && first + rows < a.key_count ? first + rows : a.key_count;
  for (int64_t start = 0; start < end; start += kKeyBlock<T>) {
    const int64_t columns = end - start < kKeyBlock<T> ? end - start : kKeyBlock<T>;
    load_rows<T, S>(a.key, head_of(a.key, head / groups), start, columns, a.width, b.key);
    multiply<T>(a, {b.query, kMaxHeadWidth, 1}, {b.key, 1, kMaxHeadWidth}, b.scores, kKeyBlock<T>,
                rows, columns, a.width, a.scale, false);
    mask_scores<T, S>(a, mask_at, first, rows, start, columns, b.scores);
    soften(b, rows, columns, a.value_width);
    load_rows<T, S>(a.value, head_of(a.value, head / groups), start, columns, a.value_width, b.key);
    multiply<T>(a, {b.scores, kKeyBlock<T>, 1}, {b.key, kMaxHeadWidth, 1}, b.out, kMaxHeadWidth,
                rows, a.value_width, columns, 1, true);
  }
  for (int64_t i = 0; i < rows; ++i) {
    S* to = head_of(*a.out, head) + (first + i) * a.out->strides[2];
    const T factor = b.sums[i] == 0 ? T(0) : 1 / b.sums[i];
    for (int64_t c = 0; c < a.value_width; ++c)
      set(to + c * a.out->strides[3], b.out[i * kMaxHeadWidth + c] * factor);
    if (!a.sums) continue;
    const int64_t at = batch * a.sums->strides[0] + head * a.sums->strides[1] +
                       (first + i) * a.sums->strides[2];
    const T total = b.max_scores[i] + std::log(b.sums[i]);
    if (a.sums->dtype == HUSK_F64)
      writable<double>(*a.sums)[at] = total;
    else
      writable<float>(*a.sums)[at] = static_cast<float>(total);
  }
}

template <class T, class S>
void run(const Attention& a, const husk_threads* threads) {
  const int64_t blocks = (a.query_count - 1) / kQueryBlock<T> + 1, heads = a.query.sizes[1],
                parts = a.query.sizes[0] * heads * blocks;
  const double work = static_cast<double>(numel(*a.out)) * 2 * static_cast<double>(a.key_count);
  run_in_parts(threads, parts, work, [&](int64_t part, int64_t step) {
    Buffers<T> buffers;
    for (; part < parts; part += step) {
      run_block<T, S>(a, part / blocks / heads, part / blocks % heads,
                      part % blocks * kQueryBlock<T>, buffers);
    }
  });
}

// Checks the tensors except the mask, and reads the sizes.
husk_status check_shapes(const Arguments& args, Attention& a) {
  for (uint32_t i = 0; i < 3; ++i) {
    HUSK_TRY(args.check_tensor(i, 4, 4));
    HUSK_TRY(args.check_same_dtype(i, 0));
    HUSK_TRY(args.check_size(i, 0, args[0].sizes[0], "the query's batches"));
  }
  HUSK_TRY(args.check_tensor(7, 4, 4));
  HUSK_TRY(args.check_same_dtype(7, 0));
  HUSK_TRY(args.check_size(1, 3, args[0].sizes[3], "the query's width"));
  HUSK_TRY(args.check_size(2, 2, args[1].sizes[2], "the keys"));
  HUSK_TRY(args.check_size(2, 1, args[1].sizes[1], "the heads of the keys"));
  const int64_t heads = args[0].sizes[1], key_heads = args[1].sizes[1];
  if (key_heads < 1 || heads % key_heads != 0)
    return args.argument_error(1, HUSK_INVALID_ARGUMENT,
                               "has heads that do not divide the query's");
  const int64_t sizes[] = {args[0].sizes[0], heads, args[0].sizes[2], args[2].sizes[3]};
  for (int32_t d = 0; d < 4; ++d)
    HUSK_TRY(args.check_size(7, d, sizes[d], "the query's, and the values' width"));
  a.query_count = sizes[2];
  a.key_count = args[1].sizes[2];
  a.width = args[0].sizes[3];
  a.value_width = sizes[3];
  if (a.width > kMaxHeadWidth || a.value_width > kMaxHeadWidth)
    return args.argument_error(0, HUSK_UNSUPPORTED, "or value has heads of more than 256");
  if (args.none(8)) return HUSK_OK;
  HUSK_TRY(args.check_tensor(8, 3, 3));
  for (int32_t d = 0; d < 3; ++d) HUSK_TRY(args.check_size(8, d, sizes[d], "the query's"));
  if (args[8].dtype != HUSK_F32 && args[8].dtype != HUSK_F64) return args.unsupported_dtype(8);
  a.sums = &args[8];
  return HUSK_OK;
}

}  // namespace

husk_status attention(const Arguments& args) {
  Attention a{};
  double dropout = 0;
  HUSK_TRY(check_shapes(args, a));
  HUSK_TRY(args.get_number(3, dropout));
  if (dropout != 0) return args.argument_error(3, HUSK_UNSUPPORTED, "is not 0");
  HUSK_TRY(args.get_bool(4, a.causal));
  a.query = with_safe_strides(args[0]);
  a.key = with_safe_strides(args[1]);
  a.value = with_safe_strides(args[2]);
  a.out = &args[7];
  if (!args.none(5)) {
    HUSK_TRY(args.check_tensor(5, 0, 4));
    const int64_t sizes[] = {args[0].sizes[0], args[0].sizes[1], a.query_count, a.key_count};
    a.mask = &args[5];
    if (!broadcast(*a.mask, sizes, 4, a.mask_strides))
      return args.argument_error(5, HUSK_INVALID_ARGUMENT, "does not broadcast to the scores");
    if (a.mask->dtype != HUSK_BOOL && a.mask->dtype != HUSK_F32 && a.mask->dtype != args[0].dtype)
      return args.unsupported_dtype(5);
  }
  a.scale = a.width > 0 ? 1 / std::sqrt(static_cast<double>(a.width)) : 1;
  if (!args.none(6)) HUSK_TRY(args.get_number(6, a.scale));
  HUSK_TRY(args.get_device(a.device));
  if (numel(*a.out) == 0) return HUSK_OK;
  return visit_argument<Floats | Halves>(args, 0, [&](auto tag) {
    using S = typename decltype(tag)::type;
    run<Value<S>, S>(a, args.context->threads);
  });
}

}  // namespace husk::host
