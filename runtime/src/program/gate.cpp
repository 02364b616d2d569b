#include "program/gate.h"

#include <sched.h>

namespace husk::runtime {

void RunGate::add(Caller* caller) {
  Lock lock(mutex_);
  caller->next = callers_;
  if (callers_) callers_->previous = caller;
  callers_ = caller;
}

void RunGate::remove(Caller* caller) {
  Lock lock(mutex_);
  (caller->previous ? caller->previous->next : callers_) = caller->next;
  if (caller->next) caller->next->previous = caller->previous;
}

void RunGate::enter(Caller* caller) {
  for (;;) {
    caller->busy.store(1);
    if (!updating_.load()) return;
    caller->busy.store(0);
    Lock until_the_update_is_done(mutex_);
  }
}

Status RunGate::Update::close(husk_error* error) {
  gate_.updating_.store(1);
  for (Caller* caller = gate_.callers_; caller; caller = caller->next) {
    while (caller->busy.load()) sched_yield();
    HUSK_TRY(caller->drain(caller->user, error));
  }
  return Status::ok;
}

}  // namespace husk::runtime
