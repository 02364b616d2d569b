#include "program/gate.h"

#include <sched.h>

namespace husk::runtime {

void RunGate::add(Caller* caller) {
  Lock lock(list_mutex_);
  caller->next = callers_;
  if (callers_) callers_->previous = caller;
  callers_ = caller;
}

void RunGate::remove(Caller* caller) {
  Lock lock(list_mutex_);
  (caller->previous ? caller->previous->next : callers_) = caller->next;
  if (caller->next) caller->next->previous = caller->previous;
}

bool RunGate::occupy(Caller* caller) {
  for (;;) {
    uintptr_t state = kIdle;
    if (caller->state.compare_exchange_strong(state, this_thread())) return true;
    if (state != kDraining) return false;
    sched_yield();
  }
}

bool RunGate::enter(Caller* caller) {
  if (!occupy(caller)) return false;
  if (!updating_.load() || holds_this_thread(caller)) return true;
  caller->state.fetch_or(kWaiting);
  Lock until_the_update_is_done(update_mutex_);
  caller->state.fetch_and(~uintptr_t{kWaiting});
  return true;
}

bool RunGate::release(Caller* caller) {
  for (;;) {
    uintptr_t state = kIdle;
    if (caller->state.compare_exchange_strong(state, this_thread() | kReleased)) return true;
    if (state == kDraining)
      sched_yield();
    else if (caller->state.compare_exchange_strong(state, state | kReleased))
      return false;
  }
}

bool RunGate::holds_this_thread(const Caller* except) {
  Lock lock(list_mutex_);
  for (const Caller* caller = callers_; caller; caller = caller->next)
    if (caller != except && (caller->state.load() & ~uintptr_t{kReleased}) == this_thread())
      return true;
  return false;
}

// A call that is inside may enter for other sessions, so the callers are looked at until all are
// idle in one go: a call inside shows in that go, since its thread needs `list_mutex_` to enter
// again. Later calls wait for the end of the update.
Status RunGate::Update::close(husk_error* error) {
  gate_.updating_.store(1);
  for (bool all_idle = false;;) {
    HUSK_TRY(drain_callers(&all_idle, error));
    if (all_idle) return Status::ok;
    sched_yield();
  }
}

Status RunGate::Update::drain_callers(bool* all_idle, husk_error* error) {
  Lock lock(gate_.list_mutex_);
  *all_idle = true;
  for (Caller* caller = gate_.callers_; caller; caller = caller->next) {
    uintptr_t state = kIdle;
    const bool idle = caller->state.compare_exchange_strong(state, kDraining);
    if (!idle && !(state & kWaiting)) {
      *all_idle = false;
      continue;
    }
    const Status status = caller->drain(caller->user, error);
    if (idle) caller->state.store(kIdle);
    HUSK_TRY(status);
  }
  return Status::ok;
}

}  // namespace husk::runtime
