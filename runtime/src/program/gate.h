// Keeps the runs of a program's sessions and the updates of its constants apart, and the calls of
// one session from each other.
#pragma once

#include "base/status.h"
#include "base/sync.h"

namespace husk::runtime {

// Calls of sessions enter and leave the gate; an update waits until no call is inside, and lets
// none in until it is done. A call pays two exchanges, on a cache line of its own session.
//
// A callback may call sessions: its thread is inside the gate for another session then, so it need
// not wait for an update that waits for this thread.
class RunGate {
 public:
  // One session's place at the gate.
  struct Caller {
    std::atomic<uintptr_t> state{0};  // kIdle, kDraining, or the thread whose call has it
    // Waits for the device work that earlier calls enqueued.
    Status (*drain)(void* user, husk_error* error) = nullptr;
    void* user = nullptr;
    Caller *next = nullptr, *previous = nullptr;
  };

  // Keeps other updates out from its construction on, and calls between close() and its end.
  class Update {
   public:
    explicit Update(RunGate& gate) : gate_(gate), lock_(gate.update_mutex_) {}
    ~Update() { gate_.updating_.store(0); }
    Update(const Update&) = delete;
    Update& operator=(const Update&) = delete;
    // Waits until no call is inside, and for the device work of all callers.
    Status close(husk_error* error);

   private:
    Status drain_callers(bool* all_idle, husk_error* error);

    RunGate& gate_;
    Lock lock_;
  };

  void add(Caller* caller);
  void remove(Caller* caller);
  // Waits until no update is in progress. Returns false if a call of this session is inside, or
  // waits here, already.
  bool enter(Caller* caller);
  // Enters as enter() does, for a second session of a call that is inside.
  bool enter_also(Caller* caller) { return occupy(caller); }
  // Returns true if the session was released meanwhile: it is still inside, and the caller of
  // leave() must destroy it.
  [[nodiscard]] static bool leave(Caller* caller) {
    uintptr_t inside = this_thread();
    return !caller->state.compare_exchange_strong(inside, kIdle);
  }
  // Returns true if no call is inside or waits in enter(). Otherwise leave() of that call returns
  // true.
  [[nodiscard]] static bool release(Caller* caller);
  // Returns whether the calling thread is inside, for any session but `except`.
  bool holds_this_thread(const Caller* except);

 private:
  // A thread is the address of its descriptor (pthread_self on Linux), which is a multiple of 64.
  // kDraining: an update waits for the session's device work. kReleased is added to the thread if
  // the session is to be destroyed, or is being destroyed; kWaiting, while the call is not inside
  // yet but waits for the end of an update.
  enum : uintptr_t { kIdle = 0, kReleased = 1, kDraining = 2, kWaiting = 4 };

  static uintptr_t this_thread() { return static_cast<uintptr_t>(pthread_self()); }
  static bool occupy(Caller* caller);

  Mutex update_mutex_;  // held during an update
  Mutex list_mutex_;  // held while `callers_` is read or changed; never while a call is waited for
  std::atomic<uint32_t> updating_{0};
  Caller* callers_ = nullptr;
};

}  // namespace husk::runtime
