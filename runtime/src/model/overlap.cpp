#include "model/overlap.h"

#include "model/shape.h"

namespace husk {
namespace {

uint64_t extent(const Elements& t) {
  uint64_t bytes = 0;
  (void)extent_bytes(t.sizes, t.strides, t.rank, t.width, &bytes);  // fits: see Elements
  return bytes;
}

// Finds whether sum(step[i] * n[i]) can be `target` with 0 <= n[i] <= most[i]. Steps are in
// descending order, and the last one is 1, for the bytes of elements.
class SumSearch {
 public:
  // Adds the offsets of all bytes of a tensor.
  void add(const Elements& t) {
    for (uint32_t d = 0; d < t.rank; ++d)
      add(static_cast<uint64_t>(t.strides[d]) * t.width, static_cast<uint64_t>(t.sizes[d] - 1));
    add(1, t.width - 1);
  }

  // Gives up after `most` units of work, and returns true then.
  bool reaches(uint64_t target, uint64_t most) {
    most_ = most < kMaxVisited ? most : kMaxVisited;
    uint64_t sum = 0, divisor = 0;
    for (uint32_t i = count_; i-- > 0;) {
      Term& term = terms_[i];
      term.rest = sum;
      sum += term.step * term.most;
      if (term.step > 1)
        divisor = common_divisor(divisor, term.step);
      else
        bytes_ = term.most;
      term.divisor = divisor;
    }
    return target <= sum && find(0, target);
  }
  uint64_t visited() const { return visited_; }

 private:
  struct Term {
    uint64_t step, most;
    uint64_t rest;     // the largest sum of the terms behind this one
    uint64_t divisor;  // of the steps of this term and those behind it, without bytes; 0: no step
  };

  // Terms with the same step become one.
  void add(uint64_t step, uint64_t most) {
    if (step == 0 || most == 0) return;
    uint32_t at = 0;
    while (at < count_ && terms_[at].step > step) ++at;
    if (at < count_ && terms_[at].step == step) {
      terms_[at].most += most;
      return;
    }
    for (uint32_t i = count_++; i > at; --i) terms_[i] = terms_[i - 1];
    terms_[at] = {step, most, 0, 0};
  }

  static uint64_t common_divisor(uint64_t a, uint64_t b) {
    while (b) {
      const uint64_t remainder = a % b;
      a = b;
      b = remainder;
    }
    return a;
  }

  bool find(uint32_t i, uint64_t target) {
    if (visited_ >= most_) return true;
    ++visited_;
    if (i == count_ || terms_[i].divisor == 0) return target <= bytes_;
    const Term& term = terms_[i];
    if (target % term.divisor > bytes_) return false;
    const uint64_t least = target > term.rest ? (target - term.rest - 1) / term.step + 1 : 0;
    uint64_t n = target / term.step;
    if (n > term.most) n = term.most;
    for (uint64_t tries = n + 1 > least ? n + 1 - least : 0; tries > 0; --tries, --n)
      if (find(i + 1, target - n * term.step)) return true;
    return false;
  }

  static constexpr uint64_t kMaxVisited = 2000;
  Term terms_[2 * limits::kMaxRank + 1];
  uint32_t count_ = 0;
  uint64_t visited_ = 0, most_ = 0, bytes_ = 0;
};

}  // namespace

bool overlap(const Elements& a, const Elements& b, uint64_t* work) {
  const uint64_t a_bytes = extent(a), b_bytes = extent(b);
  if (a_bytes == 0 || b_bytes == 0) return false;
  if (a.address >= b.address + b_bytes || b.address >= a.address + a_bytes) return false;
  // A byte of element i of a is one of element j of b if
  //   a.address + sum(i * stride) + byte == b.address + sum(j * stride) + byte.
  // Counting the elements and bytes of b from its end makes all terms positive.
  SumSearch search;
  search.add(a);
  search.add(b);
  const bool found = search.reaches(b.address + b_bytes - 1 - a.address, *work);
  *work -= search.visited();
  return found;
}

bool same_elements(const Elements& a, const Elements& b) {
  if (a.address != b.address || a.rank != b.rank || a.width != b.width) return false;
  for (uint32_t d = 0; d < a.rank; ++d)
    if (a.sizes[d] != b.sizes[d] || (a.sizes[d] > 1 && a.strides[d] != b.strides[d])) return false;
  return true;
}

bool has_nested_dimensions(const Elements& t) {
  uint64_t reach = 0;  // the index of the last element of the dimensions so far
  uint32_t done = 0;   // dimensions so far, as bits
  for (uint32_t n = 0; n < t.rank; ++n) {
    uint32_t next = t.rank;
    for (uint32_t d = 0; d < t.rank; ++d) {
      if (t.sizes[d] == 0) return true;
      if (t.sizes[d] == 1 || (done >> d & 1)) continue;
      if (next == t.rank || t.strides[d] < t.strides[next]) next = d;
    }
    if (next == t.rank) return true;
    const uint64_t stride = static_cast<uint64_t>(t.strides[next]);
    if (stride <= reach) return false;
    reach += stride * static_cast<uint64_t>(t.sizes[next] - 1);
    done |= 1u << next;
  }
  return true;
}

}  // namespace husk
