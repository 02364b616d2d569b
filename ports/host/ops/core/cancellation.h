// Asks the application from time to time whether a call of an op is to end
// (husk_op_context.cancel).
#pragma once

#include <atomic>
#include <cstdint>

#include <husk/op.h>

namespace husk::host {

// The work that a thread does between two questions, in elements or in other units of about a
// nanosecond.
constexpr int64_t kWorkBetweenQuestions = int64_t{1} << 15;

// A loop over at most so many elements does not report them; the loop around it reports itself.
constexpr int64_t kUnreportedWork = 16;

// The work of a vectorized loop with a number of multiplications, and of what is around it.
[[gnu::always_inline]] inline int64_t work_of(double multiplications) {
  const double work = multiplications / 16 + 16;
  return work < 0x1p62 ? static_cast<int64_t>(work) : int64_t{1} << 62;
}

// Whether a call of an op is to end, as one thread knows it. A loop reports its work before it does
// it, and does nothing more if the answer is true. The answer stays true, so the loops that follow
// end at once, and the caller of the op (op_enter) returns HUSK_CANCELLED whatever the op returns.
//
// The functions have no inline copies, because files that are compiled for different instruction
// sets call them (see lanes.h).
class Cancellation {
 public:
  // For the thread that called the op. Only this thread asks.
  explicit Cancellation(const husk_op_context& context);
  // For another thread of the call. It ends after the thread of `caller` got the answer.
  explicit Cancellation(Cancellation* caller);
  Cancellation(const Cancellation&) = delete;

  // Reports work that the thread is about to do. Returns true if the call is to end. `work` is at
  // most 2^62.
  [[gnu::always_inline]] bool ends(int64_t work) {
    left -= work;
    return left < 0 && ask();
  }
  // True if an earlier answer was to end.
  [[gnu::always_inline]] bool ended() const { return left < 0; }

 private:
  bool ask();

  int64_t left = kWorkBetweenQuestions;  // work until the next question; below 0 after the end
  int32_t (*const cancel)(void* user);   // null if there is nobody to ask
  void* const user;
  Cancellation* const caller;              // null on the thread that called the op
  std::atomic<bool> tells_to_end = false;  // what other threads read of their caller
};

}  // namespace husk::host
