#include "core/cancellation.h"

namespace husk::host {

Cancellation::Cancellation(const husk_op_context& context)
    : cancel(HUSK_HAS_FIELD(&context, cancel_user) ? context.cancel : nullptr),
      user(cancel ? context.cancel_user : nullptr),
      caller(nullptr) {}

Cancellation::Cancellation(Cancellation* calling_thread)
    : cancel(nullptr), user(nullptr), caller(calling_thread) {}

bool Cancellation::ask() {
  // The answer that was to end is not asked for again.
  bool ends = tells_to_end.load(std::memory_order_relaxed);
  if (!ends && caller) ends = caller->tells_to_end.load(std::memory_order_relaxed);
  if (!ends && cancel) ends = cancel(user) != 0;
  if (ends) tells_to_end.store(true, std::memory_order_relaxed);
  left = ends ? -1 : kWorkBetweenQuestions;
  return ends;
}

}  // namespace husk::host
