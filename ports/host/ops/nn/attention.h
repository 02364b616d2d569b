// Attention as its kernels see it: arguments that are checked, and the parts of the work.
#pragma once

#include <husk/op.h>

namespace husk::host {

class Cancellation;

constexpr int64_t kMaxHeadWidth = 256;

// Attention over tensors of rank 4: batches, heads, rows, elements of a row. Every head of the keys
// serves `group` heads of the queries. `mask` and `log_sums` may be null.
struct Attention {
  husk_op_arg query, key, value;  // with safe strides: the heads may have no elements
  const husk_op_arg *mask, *out, *log_sums;
  // Scales of keys and values that are codes of 8 bits, as f32[batches, heads, keys]; else null.
  const husk_op_arg *key_scales, *value_scales;
  // With a table (i64[batches, n]), keys, values and scales have pages of `page` keys instead of
  // batches, and a batch has the pages of its row of the table. Null otherwise.
  const husk_op_arg* table;
  int64_t page;
  int64_t mask_strides[4];
  double scale;
  bool causal;
  int64_t heads, group, query_count, key_count, width, value_width;
  // A part is `part_rows` rows of the queries that belong to one head of the keys. The rows of a
  // head of the keys are all queries of its first head of queries, then those of the second, ...
  int64_t part_rows, parts_of_head;
};

// The largest `part_rows` for heads of this width, whatever the instruction set.
inline int64_t attention_part_rows(int64_t width) {
  return width <= 32 ? 192 : width <= 64 ? 132 : width <= 128 ? 60 : 24;
}

// Computes a part in `scratch`, kAttentionScratch bytes. The results are undefined if the call is
// to end. The same code is compiled for three instruction sets.
void attention_run_baseline(const Attention& attention, int64_t part, Cancellation& cancellation,
                            void* scratch);
void attention_run_avx2(const Attention& attention, int64_t part, Cancellation& cancellation,
                        void* scratch);
void attention_run_avx512(const Attention& attention, int64_t part, Cancellation& cancellation,
                          void* scratch);

}  // namespace husk::host
