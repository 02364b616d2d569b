// aten::_scaled_dot_product_flash_attention_for_cpu: a block of queries meets a block of keys at a time, so that no
// matrix of all scores is needed. Sums are f32 (f64 for f64). T. Dao et al., "FlashAttention" (2022), describes the
// running softmax.
#include <string.h>

#include <cmath>
#include <limits>

#include "arguments.h"
#include "device.h"
#include "element.h"
#include "error.h"
#include "loop.h"
#include "parts.h"
#include "product.h"

namespace husk::host {

namespace {

template <class T> constexpr int64_t queries = 128 / static_cast<int64_t>(sizeof(T));
template <class T> constexpr int64_t keys = 256 / static_cast<int64_t>(sizeof(T));
constexpr int64_t most_width = 256;   // of a head

struct Attention {
  const husk_op_arg *query, *key, *value, *mask, *out, *sums;   // mask: or null
  int64_t mask_strides[4];
  const Device* device;
  double scale;
  bool causal;
  int64_t length, others, width, value_width;
};

template <class T>
struct Buffers {
  alignas(64) T query[queries<T> * most_width];
  alignas(64) T key[keys<T> * most_width];      // and then the values
  alignas(64) T scores[queries<T> * keys<T>];
  alignas(64) T out[queries<T> * most_width];
  T most[queries<T>], sums[queries<T>];
};

// Rows of a head, as T.
template <class T, class S>
void load_rows(const husk_op_arg& tensor, const S* head, int64_t first, int64_t rows, int64_t width, T* to) {
  for (int64_t i = 0; i < rows; i++) {
    const S* from = head + (first + i) * tensor.strides[2];
    for (int64_t c = 0; c < width; c++) to[i * most_width + c] = T(get(from + c * tensor.strides[3]));
  }
}

template <class T>
void multiply(const Attention& a, MatrixView left, MatrixView right, T* out, int64_t pitch, int64_t m, int64_t n,
              int64_t k, double alpha, bool adds) {
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

// Adds the mask to a block of scores; what must not be seen becomes -infinity.
template <class T, class S>
void mask_scores(const Attention& a, int64_t mask_at, int64_t first, int64_t rows, int64_t start, int64_t columns,
                 T* scores) {
  constexpr T hidden = -std::numeric_limits<T>::infinity();
  for (int64_t i = 0; i < rows; i++) {
    for (int64_t j = 0; j < columns; j++) {
      T& score = scores[i * keys<T> + j];
      if (a.causal && start + j > first + i) score = hidden;
      if (!a.mask) continue;
      const int64_t at = mask_at + (first + i) * a.mask_strides[2] + (start + j) * a.mask_strides[3];
      if (a.mask->dtype == HUSK_BOOL) score = data_of<uint8_t>(*a.mask)[at] ? score : hidden;
      else if (a.mask->dtype == HUSK_F32) score += static_cast<T>(data_of<float>(*a.mask)[at]);
      else score += T(get(data_of<S>(*a.mask) + at));
    }
  }
}

// Scores become weights relative to the largest so far; earlier sums shrink to match.
template <class T>
void soften(Buffers<T>& b, int64_t rows, int64_t columns, int64_t width) {
  for (int64_t i = 0; i < rows; i++) {
    T* scores = b.scores + i * keys<T>;
    T most = b.most[i];
    for (int64_t j = 0; j < columns; j++) most = scores[j] > most || is_nan(scores[j]) ? scores[j] : most;
    const T base = std::isinf(most) && most < 0 ? T(0) : most;   // all hidden so far
    const T shrink = std::exp(b.most[i] - base);
    T sum = 0;
    for (int64_t j = 0; j < columns; j++) sum += scores[j] = std::exp(scores[j] - base);
    b.most[i] = most;
    b.sums[i] = b.sums[i] * shrink + sum;
    for (int64_t c = 0; c < width; c++) b.out[i * most_width + c] *= shrink;
  }
}

template <class T, class S>
void run_block(const Attention& a, int64_t batch, int64_t head, int64_t first, Buffers<T>& b) {
  const int64_t groups = a.query->sizes[1] / a.key->sizes[1];
  const auto head_of = [&](const husk_op_arg& tensor, int64_t which) {
    return static_cast<S*>(tensor.data) + batch * tensor.strides[0] + which * tensor.strides[1];
  };
  const int64_t rows = a.length - first < queries<T> ? a.length - first : queries<T>;
  load_rows<T, S>(*a.query, head_of(*a.query, head), first, rows, a.width, b.query);
  memset(b.out, 0, sizeof b.out);
  for (int64_t i = 0; i < rows; i++) {
    b.most[i] = -std::numeric_limits<T>::infinity();
    b.sums[i] = 0;
  }
  const int64_t mask_at = a.mask ? batch * a.mask_strides[0] + head * a.mask_strides[1] : 0;
  const int64_t end = a.causal && first + rows < a.others ? first + rows : a.others;
  for (int64_t start = 0; start < end; start += keys<T>) {
    const int64_t columns = end - start < keys<T> ? end - start : keys<T>;
    load_rows<T, S>(*a.key, head_of(*a.key, head / groups), start, columns, a.width, b.key);
    multiply<T>(a, {b.query, most_width, 1}, {b.key, 1, most_width}, b.scores, keys<T>, rows, columns, a.width, a.scale,
                false);
    mask_scores<T, S>(a, mask_at, first, rows, start, columns, b.scores);
    soften(b, rows, columns, a.value_width);
    load_rows<T, S>(*a.value, head_of(*a.value, head / groups), start, columns, a.value_width, b.key);
    multiply<T>(a, {b.scores, keys<T>, 1}, {b.key, most_width, 1}, b.out, most_width, rows, a.value_width, columns, 1,
                true);
  }
  for (int64_t i = 0; i < rows; i++) {
    S* to = head_of(*a.out, head) + (first + i) * a.out->strides[2];
    const T factor = b.sums[i] == 0 ? T(0) : 1 / b.sums[i];
    for (int64_t c = 0; c < a.value_width; c++) set(to + c * a.out->strides[3], b.out[i * most_width + c] * factor);
    if (!a.sums) continue;
    const int64_t at = batch * a.sums->strides[0] + head * a.sums->strides[1] + (first + i) * a.sums->strides[2];
    const T total = b.most[i] + std::log(b.sums[i]);
    if (a.sums->dtype == HUSK_F64) writable<double>(*a.sums)[at] = total;
    else writable<float>(*a.sums)[at] = static_cast<float>(total);
  }
}

template <class T, class S>
void run(const Attention& a, const husk_threads* threads) {
  const int64_t blocks = (a.length - 1) / queries<T> + 1, heads = a.query->sizes[1],
                parts = a.query->sizes[0] * heads * blocks;
  const double work = static_cast<double>(numel(*a.out)) * 2 * static_cast<double>(a.others);
  in_parts(threads, parts, work, [&](int64_t part, int64_t step) {
    Buffers<T> buffers;
    for (; part < parts; part += step) {
      run_block<T, S>(a, part / blocks / heads, part / blocks % heads, part % blocks * queries<T>, buffers);
    }
  });
}

husk_status check_shapes(const Arguments& args, Attention& a) {
  for (uint32_t i = 0; i < 3; i++) {
    HUSK_TRY(args.tensor(i, 4, 4));
    HUSK_TRY(args.same_dtype(i, 0));
    HUSK_TRY(args.size(i, 0, args[0].sizes[0], "the query's batches"));
  }
  HUSK_TRY(args.tensor(7, 4, 4));
  HUSK_TRY(args.same_dtype(7, 0));
  HUSK_TRY(args.size(1, 3, args[0].sizes[3], "the query's width"));
  HUSK_TRY(args.size(2, 2, args[1].sizes[2], "the keys"));
  HUSK_TRY(args.size(2, 1, args[1].sizes[1], "the heads of the keys"));
  const int64_t heads = args[0].sizes[1], key_heads = args[1].sizes[1];
  if (key_heads < 1 || heads % key_heads != 0)
    return args.refuse(1, HUSK_INVALID_ARGUMENT, "has heads that do not divide the query's");
  const int64_t sizes[] = {args[0].sizes[0], heads, args[0].sizes[2], args[2].sizes[3]};
  for (int32_t d = 0; d < 4; d++) HUSK_TRY(args.size(7, d, sizes[d], "the query's, and the values' width"));
  a.length = sizes[2];
  a.others = args[1].sizes[2];
  a.width = args[0].sizes[3];
  a.value_width = sizes[3];
  if (a.width > most_width || a.value_width > most_width)
    return args.refuse(0, HUSK_UNSUPPORTED, "or value has heads of more than 256");
  if (args.none(8)) return HUSK_OK;
  HUSK_TRY(args.tensor(8, 3, 3));
  for (int32_t d = 0; d < 3; d++) HUSK_TRY(args.size(8, d, sizes[d], "the query's"));
  if (args[8].dtype != HUSK_F32 && args[8].dtype != HUSK_F64) return args.unsupported_dtype(8);
  a.sums = &args[8];
  return HUSK_OK;
}

}  // namespace

husk_status attention(const Arguments& args) {
  Attention a{};
  double dropout = 0;
  HUSK_TRY(check_shapes(args, a));
  HUSK_TRY(args.number(3, dropout));
  if (dropout != 0) return args.refuse(3, HUSK_UNSUPPORTED, "is not 0");
  HUSK_TRY(args.boolean(4, a.causal));
  a.query = &args[0];
  a.key = &args[1];
  a.value = &args[2];
  a.out = &args[7];
  if (!args.none(5)) {
    HUSK_TRY(args.tensor(5, 0, 4));
    const int64_t sizes[] = {args[0].sizes[0], args[0].sizes[1], a.length, a.others};
    a.mask = &args[5];
    if (!broadcast(*a.mask, sizes, 4, a.mask_strides))
      return args.refuse(5, HUSK_INVALID_ARGUMENT, "does not broadcast to the scores");
    if (a.mask->dtype != HUSK_BOOL && a.mask->dtype != HUSK_F32 && a.mask->dtype != args[0].dtype)
      return args.unsupported_dtype(5);
  }
  a.scale = a.width > 0 ? 1 / std::sqrt(static_cast<double>(a.width)) : 1;
  if (!args.none(6)) HUSK_TRY(args.number(6, a.scale));
  a.device = static_cast<const Device*>(args.context->device);
  if (!a.device)
    return fail(args.error, HUSK_INVALID_ARGUMENT, "%s: the context has no device of the host port", args.op);
  if (numel(*a.out) == 0) return HUSK_OK;
  const bool known = visit<Floats | Halves>(args[0].dtype, [&](auto tag) {
    using S = typename decltype(tag)::type;
    run<Value<S>, S>(a, args.context->threads);
  });
  return known ? husk_status{HUSK_OK} : args.unsupported_dtype(0);
}

}  // namespace husk::host
