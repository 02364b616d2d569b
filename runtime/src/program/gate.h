// Keeps the runs of a program's sessions and the updates of its constants apart.
#pragma once

#include "base/status.h"
#include "base/sync.h"

namespace husk::runtime {

// Calls of sessions enter and leave the gate; an update waits until no call is inside, and lets
// none in until it is done. A call pays two stores, on a cache line of its own session.
class RunGate {
 public:
  // One session's place at the gate.
  struct Caller {
    std::atomic<uint32_t> busy{0};  // 1 while a call is inside
    // Waits for the device work that earlier calls enqueued.
    Status (*drain)(void* user, husk_error* error) = nullptr;
    void* user = nullptr;
    Caller *next = nullptr, *previous = nullptr;
  };

  // Keeps other updates out from its construction on, and calls between close() and its end.
  class Update {
   public:
    explicit Update(RunGate& gate) : gate_(gate), lock_(gate.mutex_) {}
    ~Update() { gate_.updating_.store(0); }
    Update(const Update&) = delete;
    Update& operator=(const Update&) = delete;
    // Waits until no call is inside, and for the device work of all callers.
    Status close(husk_error* error);

   private:
    RunGate& gate_;
    Lock lock_;
  };

  void add(Caller* caller);
  void remove(Caller* caller);
  void enter(Caller* caller);
  static void leave(Caller* caller) { caller->busy.store(0, std::memory_order_release); }

 private:
  Mutex mutex_;  // held during an update, and while `callers_` changes
  std::atomic<uint32_t> updating_{0};
  Caller* callers_ = nullptr;
};

// One call of a session, inside the gate until the end of a scope.
class CallGuard {
 public:
  CallGuard(RunGate& gate, RunGate::Caller* caller) : caller_(caller) { gate.enter(caller); }
  ~CallGuard() { RunGate::leave(caller_); }
  CallGuard(const CallGuard&) = delete;
  CallGuard& operator=(const CallGuard&) = delete;

 private:
  RunGate::Caller* caller_;
};

}  // namespace husk::runtime
