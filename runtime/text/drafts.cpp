#include "text/drafts.h"

namespace husk::text {

namespace {

// Where the last `size` tokens end at their latest earlier place; 0 if there is none.
int64_t earlier_end(const int32_t* tokens, int64_t count, int64_t size) {
  for (int64_t end = count - 1; end >= size; --end) {
    int64_t k = 1;
    while (k <= size && tokens[end - k] == tokens[count - k]) ++k;
    if (k > size) return end;
  }
  return 0;
}

}  // namespace

int64_t draft(int32_t* tokens, int64_t count, int64_t most) {
  if (most <= 0) return 0;
  int64_t from = earlier_end(tokens, count, 3);
  if (from == 0) from = earlier_end(tokens, count, 2);
  if (from == 0) return 0;
  for (int64_t k = 0; k < most; ++k) tokens[count + k] = tokens[from + k];
  return most;
}

}  // namespace husk::text
