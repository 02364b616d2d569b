// The kernels of attention. A block of keys at a time is multiplied with all rows of a part, so
// that the matrix of all scores is never stored. Scores and sums are in f32, for f64 in f64. T. Dao
// et al., "FlashAttention" (2022), describes the running softmax.
//
// There are two methods. If a part has at most kFewRows rows, keys and values are read in place.
// Otherwise both are packed for the tiles of linalg/product_kernels.h. Codes of 8 bits become f32
// in scratch memory, a block of keys at a time, where both methods read them; a key's scale is
// multiplied with its scores, and a value's scale with the weights of its key.
#pragma once

#include "core/codes.h"
#include "core/vector_math.h"
#include "linalg/product_kernels.h"
#include "nn/attention.h"

namespace husk::host {
namespace {

constexpr int kFewRows = kThinRows;
// A block has at most this many keys.
constexpr int kMaxKeys = 128;
// The number of elements of a block of keys or values.
template <class T>
constexpr int kKeyElements = 32768 / static_cast<int>(sizeof(T));
// The elements of the rows of a part, of which there are attention_part_rows(width).
constexpr int kRowElements = 132 * 64;
constexpr int kMaxPartRows = 192;

// The rows of a panel, rounded up to whole vectors.
template <class T>
constexpr int kPanelLanes = (kTileRows + kLaneCount<T> - 1) / kLaneCount<T> * kLaneCount<T>;

template <class T>
struct AttentionBuffers {
  alignas(64) T query[kRowElements + kLaneCount<T>];  // panels of kTileRows
  alignas(64) T key[kKeyElements<T> + kLaneCount<T>];
  alignas(64) T value[kKeyElements<T> + kLaneCount<T>];
  alignas(64) T scores[kTileRows * kMaxKeys];
  alignas(64) T out[kRowElements];
  alignas(64) T mask[kMaxKeys];                // numbers of a block of keys: of the mask, or scales
  alignas(64) T key_numbers[kKeyElements<T>];  // of codes
  alignas(64) T value_numbers[kKeyElements<T>];
  alignas(64) T max_scores[kMaxPartRows + kLaneCount<T>];
  T sums[kMaxPartRows];
  // Of each row of a panel: the largest score so far (0 if it is -infinity), and the factor by
  // which the earlier sums become smaller.
  alignas(64) T base[kPanelLanes<T>];
  alignas(64) T shrink[kPanelLanes<T>];
};

inline int64_t rounded_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// A part of attention. S is the type of the queries and of the result; it is void if the dtype of
// the result says it. K is the type of the keys and values, or of the numbers of their codes.
template <class T, class S, class K = S>
struct AttentionPart {
  static constexpr int L = kLaneCount<T>, W = kTileColumns<T>;
  const Attention& a;
  AttentionBuffers<T>& b;
  Cancellation& cancellation;
  int64_t batch, head, first, rows;  // `head` is a head of the keys, `first` the first row
  int64_t pitch;                     // elements from row to row of b.out
  // The keys and values of the current block: the first element, and the strides of rows and
  // elements.
  struct Block {
    const K* data;
    int64_t row, column;
  };
  Block key{}, value{};
  // The keys of the block that follows, which are only fetched; none for codes and at the end.
  Block next_key{};
  int64_t next_keys = 0;
  int64_t packed_keys = 0;  // the keys of the block that is packed

  AttentionPart(const Attention& attention, int64_t part, AttentionBuffers<T>& buffers,
                Cancellation& calls_end)
      : a(attention),
        b(buffers),
        cancellation(calls_end),
        batch(part / a.parts_of_head / a.heads),
        head(part / a.parts_of_head % a.heads),
        first(part % a.parts_of_head * a.part_rows),
        rows(smaller(a.part_rows, a.group * a.query_count - first)),
        pitch(rounded_up(a.value_width, W)) {}

  template <class E>
  E* head_of(const husk_op_arg& tensor, int64_t index) const {
    return static_cast<E*>(tensor.data) + batch * tensor.strides[0] + index * tensor.strides[1];
  }
  // The address of a key of the head, of its value or of a scale.
  template <class E>
  const E* key_at(const husk_op_arg& tensor, int64_t index) const {
    if (!a.table) return head_of<const E>(tensor, head) + index * tensor.strides[2];
    int64_t page = static_cast<const int64_t*>(
        a.table->data)[batch * a.table->strides[0] + index / a.page * a.table->strides[1]];
    // Another thread may have changed the table since it was checked.
    if (page < 0 || page >= tensor.sizes[0]) page = 0;
    return static_cast<const E*>(tensor.data) + page * tensor.strides[0] +
           head * tensor.strides[1] + index % a.page * tensor.strides[2];
  }
  // Calls `use` with a null pointer to the type of the queries.
  template <class Use>
  void with_type(const Use& use) const {
    if constexpr (!std::is_void_v<S>) {
      use(static_cast<S*>(nullptr));
    } else {
      switch (a.out->dtype) {
        case HUSK_F16: return use(static_cast<Half*>(nullptr));
        case HUSK_BF16: return use(static_cast<BFloat16*>(nullptr));
        default: return use(static_cast<float*>(nullptr));
      }
    }
  }
  // The query of a row of the part, and its head.
  int64_t query_of(int64_t row) const { return (first + row) % a.query_count; }
  int64_t head_of_row(int64_t row) const { return head * a.group + (first + row) / a.query_count; }
  // The address of a row in a tensor that has a row for each query.
  template <class E>
  E* row_of(const husk_op_arg& tensor, int64_t row) const {
    return head_of<E>(tensor, head_of_row(row)) + query_of(row) * tensor.strides[2];
  }
  // The number of keys that some of the rows from `row` on see.
  int64_t keys_seen(int64_t row, int64_t count) const {
    if (!a.causal) return a.key_count;
    int64_t last = query_of(row);
    for (int64_t i = row + 1; i < row + count; ++i)
      if (query_of(i) > last) last = query_of(i);
    return smaller(a.key_count, last + 1);
  }
  // The number of keys of a block.
  int64_t block_keys() const {
    const int64_t width = rounded_up(a.width > a.value_width ? a.width : a.value_width, W),
                  fit = kKeyElements<T> / width / W * W;
    return smaller(fit, kMaxKeys);
  }

  void run() {
    __builtin_memset(b.out, 0,
                     static_cast<size_t>(rounded_up(rows, kTileRows) * pitch) * sizeof(T));
    for (int64_t i = 0; i < rows; ++i) {
      b.max_scores[i] = -static_cast<T>(__builtin_inf());
      b.sums[i] = 0;
    }
    const bool are_dense = a.key.strides[3] == 1 && a.value.strides[3] == 1;
    const bool few = rows <= kFewRows && (are_dense || a.key_scales);
    with_type([&](auto* type) { pack_queries(type, few); });
    const int64_t block = block_keys(), end = keys_seen(0, rows);
    for (int64_t start = 0, keys; start < end; start += keys) {
      keys = smaller(block, end - start);
      if (a.table) keys = smaller(keys, a.page - start % a.page);
      if (cancellation.ends(rows * keys)) return;
      key = block_of(a.key, start, keys, a.width, b.key_numbers);
      value = block_of(a.value, start, keys, a.value_width, b.value_numbers);
      const int64_t after = start + keys;
      next_keys = a.key_scales || after == end ? 0 : smaller(block, end - after);
      if (next_keys > 0 && a.table) next_keys = smaller(next_keys, a.page);
      if (next_keys > 0) next_key = {key_at<K>(a.key, after), a.key.strides[2], a.key.strides[3]};
      if (few) {
        switch (rows) {
          case 1: add_few<1>(start, keys); break;
          case 2: add_few<2>(start, keys); break;
          case 3: add_few<3>(start, keys); break;
          default: add_few<4>(start, keys);
        }
      } else {
        if (keys_shown(0, rows, start, keys) == 0) continue;
        pack_block(keys);
        for (int64_t i = 0; i < rows; i += kTileRows) add_panel(i, start, keys);
      }
    }
    with_type([&](auto* type) {
      for (int64_t i = 0; i < rows; ++i) write_row(type, i);
    });
  }

  // Copies the queries: into panels, or one after another if there are few.
  template <class E>
  void pack_queries(const E*, bool few) {
    const int64_t across = a.query.strides[2], along = a.query.strides[3];
    for (int64_t i = 0; few && i < rows; ++i)
      for (int64_t c = 0; c < a.width; ++c)
        b.query[i * kMaxHeadWidth + c] = load_one(row_of<E>(a.query, i) + c * along);
    for (int64_t i = 0; !few && i < rows; i += kTileRows) {
      T* panel = b.query + i * a.width;
      const int count = static_cast<int>(smaller(kTileRows, rows - i));
      if (query_of(i) + count <= a.query_count) {  // all rows belong to one head
        pack<T, E, kTileRows>(row_of<E>(a.query, i), across, along, count, a.width, panel);
        continue;
      }
      for (int64_t c = 0; c < a.width; ++c)
        for (int r = 0; r < kTileRows; ++r)
          panel[c * kTileRows + r] = r < count ? load_one(row_of<E>(a.query, i + r) + c * along)
                                               : T(0);
    }
  }

  // The keys from `start` on, or the values. Codes become numbers in `to`.
  Block block_of(const husk_op_arg& tensor, int64_t start, int64_t keys, int64_t width, T* to) {
    if constexpr (std::is_same_v<K, float>) {
      if (tensor.dtype == HUSK_I8) return numbers_of<Int8Code>(tensor, start, keys, width, to);
      if (tensor.dtype == HUSK_F8E4M3FN)
        return numbers_of<Float8Code>(tensor, start, keys, width, to);
    }
    return {key_at<K>(tensor, start), tensor.strides[2], tensor.strides[3]};
  }
  template <class Code>
  Block numbers_of(const husk_op_arg& tensor, int64_t start, int64_t keys, int64_t width, T* to) {
    const int64_t row = rounded_up(width, W), column = tensor.strides[3];
    const Code* from = key_at<Code>(tensor, start);
    for (int64_t j = 0; j < keys; ++j, from += tensor.strides[2]) {
      T* numbers = to + j * row;
      for (int64_t c = 0; c < width; c += L)
        store(numbers + c, load_part<T>(from + c * column, column, smaller(L, width - c)));
    }
    return {to, row, 1};
  }

  // Packs the block of keys into panels of W keys, and its values into panels of W elements.
  void pack_block(int64_t keys) {
    packed_keys = keys;
    for (int64_t j = 0; j < keys; j += W)
      pack<T, K, W>(key.data + j * key.row, key.row, key.column,
                    static_cast<int>(smaller(W, keys - j)), a.width, b.key + j * a.width);
    for (int64_t c = 0; c < a.value_width; c += W)
      pack<T, K, W>(value.data + c * value.column, value.column, value.row,
                    static_cast<int>(smaller(W, a.value_width - c)), keys, b.value + c * keys);
  }

  // Adds a block of keys to the results of the panel of rows from `row` on.
  void add_panel(int64_t row, int64_t start, int64_t keys) {
    const int64_t count = smaller(kTileRows, rows - row);
    keys = smaller(keys, keys_seen(row, count) - start);
    if (keys > 0) keys = keys_shown(row, count, start, keys);
    if (keys <= 0) return;
    if (count > kTileRows * 2 / 3) return add_tiles<kTileRows>(row, count, start, keys);
    if (count > kTileRows / 3) return add_tiles<kTileRows * 2 / 3>(row, count, start, keys);
    add_tiles<kTileRows / 3>(row, count, start, keys);
  }

  template <int R>
  void add_tiles(int64_t row, int64_t count, int64_t start, int64_t keys) {
    const T* query = b.query + row * a.width;
    for (int64_t j = 0; j < keys; j += W) {
      if (keys - j > L)
        score_tile<R, kTileVectors>(query, b.key + j * a.width, b.scores + j);
      else
        score_tile<R, 1>(query, b.key + j * a.width, b.scores + j);
    }
    multiply_scores(a.key_scales, count, start, keys);
    soften(row, count, start, keys);
    multiply_scores(a.value_scales, count, start, keys);
    for (int64_t c = 0; c < a.value_width; c += W) {
      T* out = b.out + row * pitch + c;
      if (a.value_width - c > L)
        value_tile<R, kTileVectors>(keys, b.value + c * packed_keys, out);
      else
        value_tile<R, 1>(keys, b.value + c * packed_keys, out);
    }
  }
  template <int R, int C>
  void score_tile(const T* query, const T* keys, T* scores) {
    Vector<T> total[R][C] = {};
    add_products<T, R, C, 1, kTileRows>(a.width, query, keys, total);
    HUSK_UNROLL
    for (int r = 0; r < R; ++r) {
      HUSK_UNROLL
      for (int c = 0; c < C; ++c)
        store(scores + r * kMaxKeys + c * L, total[r][c] * static_cast<T>(a.scale));
    }
  }

  template <int R, int C>
  void value_tile(int64_t keys, const T* values, T* out) {
    Vector<T> total[R][C] = {};
    add_products<T, R, C, kMaxKeys, 1>(keys, b.scores, values, total);
    for (int r = 0; r < R; ++r) {
      for (int c = 0; c < C; ++c) {
        T* to = out + r * pitch + c * L;
        store(to, load(to) * b.shrink[r] + total[r][c]);
      }
    }
  }

  // Multiplies the scores or weights of `count` rows with the scales of keys or values, if these
  // have any.
  void multiply_scores(const husk_op_arg* scales, int64_t count, int64_t start, int64_t keys) {
    if (!scales) return;
    const int64_t step = scales->strides[2], padded = rounded_up(keys, L);
    const float* from = key_at<float>(*scales, start);
    for (int64_t j = 0; j < keys; ++j) b.mask[j] = static_cast<T>(from[j * step]);
    for (int64_t j = keys; j < padded; ++j) b.mask[j] = 0;
    for (int64_t i = 0; i < count; ++i) {
      T* scores = b.scores + i * kMaxKeys;
      for (int64_t j = 0; j < padded; j += L)
        store(scores + j, load(scores + j) * load(b.mask + j));
    }
  }

  // Turns the scores of `count` rows into softmax weights relative to the largest score of each row
  // so far, and computes the factors of the earlier sums.
  void soften(int64_t row, int64_t count, int64_t start, int64_t keys) {
    constexpr T kHidden = -static_cast<T>(__builtin_inf());
    const int64_t padded = rounded_up(keys, L);
    T* max_scores = b.max_scores + row;
    for (int64_t i = 0; i < count; ++i) {
      T* scores = b.scores + i * kMaxKeys;
      int64_t seen = keys;
      if (a.causal) seen = smaller(keys, query_of(row + i) + 1 - start);
      for (int64_t j = seen < 0 ? 0 : seen; j < padded; ++j) scores[j] = kHidden;
      if (a.mask) add_mask(row + i, start, keys, scores);
      Vector<T> most = load(scores);
      for (int64_t j = L; j < padded; j += L) most = larger<T>(load(scores + j), most);
      b.base[i] = largest<T>(most);
    }
    for (int64_t i = 0; i < count; i += L) {
      const Vector<T> before = load(max_scores + i), most = larger<T>(load(b.base + i), before),
                      // The largest score is -infinity if all scores so far are hidden.
          base = most == kHidden ? Vector<T>{} : most;
      store(b.base + i, base);
      store(b.shrink + i, exp(before - base));
      for (int64_t j = i; j < i + L && j < count; ++j) max_scores[j] = most[j - i];
    }
    for (int64_t i = 0; i < count; ++i) {
      T* scores = b.scores + i * kMaxKeys;
      Vector<T> total = {};
      for (int64_t j = 0; j < padded; j += L) {
        const Vector<T> weight = exp(load(scores + j) - b.base[i]);
        store(scores + j, weight);
        total += weight;
      }
      b.sums[row + i] = b.sums[row + i] * b.shrink[i] + sum<T>(total);
    }
  }

  // The element of the mask for a row and a key.
  int64_t mask_at(int64_t row, int64_t key_number) const {
    return batch * a.mask_strides[0] + head_of_row(row) * a.mask_strides[1] +
           query_of(row) * a.mask_strides[2] + key_number * a.mask_strides[3];
  }

  // Calls `use` with the address of an element of the mask.
  template <class Use>
  void with_mask(int64_t at, const Use& use) const {
    switch (a.mask->dtype) {
      case HUSK_BOOL: return use(static_cast<const unsigned char*>(a.mask->data) + at);
      case HUSK_F32: return use(static_cast<const float*>(a.mask->data) + at);
      default:
        with_type([&](auto* type) {
          using E = std::remove_reference_t<decltype(*type)>;
          use(static_cast<const E*>(a.mask->data) + at);
        });
    }
  }
  static T mask_number(const unsigned char* from) {
    return *from ? T(0) : -static_cast<T>(__builtin_inf());
  }
  template <class M>
  static T mask_number(const M* from) {
    return static_cast<T>(load_one(from));
  }

  // The number of keys of a block without the last ones, which the mask hides from `count` rows.
  // The last row is asked first, since it sees most keys in a prompt.
  int64_t keys_shown(int64_t row, int64_t count, int64_t start, int64_t keys) const {
    if (!a.mask) return keys;
    constexpr T kHidden = -static_cast<T>(__builtin_inf());
    const int64_t step = a.mask_strides[3];
    int64_t shown = 0;
    for (int64_t i = row + count - 1; i >= row && shown < keys; --i)
      with_mask(mask_at(i, start), [&](auto* from) {
        int64_t end = keys;
        const auto is_shown = [&](int64_t j) { return mask_number(from + j * step) != kHidden; };
        // Most rows see none of the keys, which vectors find out, or the last one.
        if (step == 1 && !is_shown(end - 1)) {
          unsigned any = 0;
          for (int64_t j = shown; j < keys; ++j) any |= mask_number(from + j) != kHidden ? 1 : 0;
          if (any == 0) end = shown;
        }
        while (end > shown && !is_shown(end - 1)) --end;
        shown = end;
      });
    return shown;
  }

  // Adds the mask to the scores of a row.
  void add_mask(int64_t row, int64_t start, int64_t keys, T* scores) {
    with_mask(mask_at(row, start), [&](auto* from) {
      const int64_t step = a.mask_strides[3];
      if (step == 1)
        for (int64_t j = 0; j < keys; ++j) b.mask[j] = mask_number(from + j);
      else
        for (int64_t j = 0; j < keys; ++j) b.mask[j] = mask_number(from + j * step);
    });
    int64_t j = 0;
    for (; j + L <= keys; j += L) store(scores + j, load(scores + j) + load(b.mask + j));
    for (; j < keys; ++j) scores[j] += b.mask[j];
  }

  // Fetches rows of a block into the first-level cache. Their lines are read in an order in which
  // the processor does not load them ahead.
  static void fetch_rows(const Block& block, int64_t row, int64_t count, int64_t width) {
    const auto* from = reinterpret_cast<const char*>(block.data + row * block.row);
    const int64_t bytes = block.row * int64_t{sizeof(K)};
    for (int64_t i = 0; i < count; ++i, from += bytes)
      for (int64_t c = 0; c < width * int64_t{sizeof(K)}; c += 64) __builtin_prefetch(from + c);
  }

  // Adds a block of keys, which is read in place, to the results of all R rows.
  template <int R>
  void add_few(int64_t start, int64_t keys) {
    for (int64_t i = 0; i < R * kMaxKeys; i += L) store(b.scores + i, Vector<T>{});
    // Memory is read while sums are computed: values during the scores, and the next keys during
    // the sums of values. A step has as many keys as add_columns() multiplies at once.
    constexpr int64_t kStep = R <= 2 ? 8 : 4, kKeysAhead = 16;
    for (int64_t j = 0; j < keys; j += kStep) {
      const int64_t count = smaller(kStep, keys - j);
      if (!a.key_scales) {
        if (start == 0 && j + kKeysAhead < keys)
          fetch_rows(key, j + kKeysAhead, smaller(kStep, keys - j - kKeysAhead), a.width);
        fetch_rows(value, j, count, a.value_width);
      }
      add_columns<T, T, T, K, R>(b.query, kMaxHeadWidth, key.data + j * key.row, key.row, a.width,
                                 count, b.scores + j, kMaxKeys);
    }
    for (int64_t i = 0; i < R * kMaxKeys; i += L)
      store(b.scores + i, load(b.scores + i) * static_cast<T>(a.scale));
    multiply_scores(a.key_scales, R, start, keys);
    soften(0, R, start, keys);
    multiply_scores(a.value_scales, R, start, keys);
    for (int64_t i = 0; i < R; ++i) {
      T* out = b.out + i * pitch;
      for (int64_t c = 0; c < pitch; c += L) store(out + c, load(out + c) * b.shrink[i]);
    }
    for (int64_t j = 0; j < keys; j += kStep) {
      if (j < next_keys) fetch_rows(next_key, j, smaller(kStep, next_keys - j), a.width);
      add_rows<T, T, T, K, R>(b.scores + j, kMaxKeys, value.data + j * value.row, value.row,
                              smaller(kStep, keys - j), a.value_width, b.out, pitch);
    }
  }

  template <class E>
  void write_row(const E*, int64_t row) {
    E* to = row_of<E>(*a.out, row);
    const int64_t step = a.out->strides[3];
    const T factor = b.sums[row] == 0 ? T(0) : 1 / b.sums[row], *from = b.out + row * pitch;
    int64_t c = 0;
    for (; step == 1 && c + L <= a.value_width; c += L) store(to + c, load(from + c) * factor);
    for (; c < a.value_width; ++c) store_one(to + c * step, from[c] * factor);
    if (!a.log_sums) return;
    const int64_t at = batch * a.log_sums->strides[0] + head_of_row(row) * a.log_sums->strides[1] +
                       query_of(row) * a.log_sums->strides[2];
    const double total = static_cast<double>(b.max_scores[row]) +
                         __builtin_log(static_cast<double>(b.sums[row]));
    if (a.log_sums->dtype == HUSK_F64)
      static_cast<double*>(a.log_sums->data)[at] = total;
    else
      static_cast<float*>(a.log_sums->data)[at] = static_cast<float>(total);
  }
};

template <class T, class S, class K = S>
void run_attention_of(const Attention& attention, int64_t part, Cancellation& cancellation,
                      void* scratch) {
  static_assert(sizeof(AttentionBuffers<T>) <= kAttentionScratch, "core/scratch.h");
  auto& buffers = *static_cast<AttentionBuffers<T>*>(scratch);
  AttentionPart<T, S, K>(attention, part, buffers, cancellation).run();
}

void run_attention(const Attention& attention, int64_t part, Cancellation& cancellation,
                   void* scratch) {
  if (attention.key_scales)
    return run_attention_of<float, void, float>(attention, part, cancellation, scratch);
  switch (attention.key.dtype) {
    case HUSK_F16:
      return run_attention_of<float, void, Half>(attention, part, cancellation, scratch);
    case HUSK_BF16:
      return run_attention_of<float, void, BFloat16>(attention, part, cancellation, scratch);
    case HUSK_F32:
      return run_attention_of<float, void, float>(attention, part, cancellation, scratch);
    default: return run_attention_of<double, double>(attention, part, cancellation, scratch);
  }
}

}  // namespace
}  // namespace husk::host
