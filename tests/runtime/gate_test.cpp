// The gate between the calls of sessions and the updates of constants, without sessions: the tests
// choose the moments at which threads act.
#include "program/gate.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <thread>

#include "../patience.h"

namespace husk::runtime {
namespace {

// A place at the gate, which stays as long as the test.
struct Place {
  explicit Place(RunGate& of) : gate(of) {
    caller.user = this;
    caller.drain = [](void* user, husk_error*) {
      static_cast<Place*>(user)->drained();
      return Status::ok;
    };
    gate.add(&caller);
  }
  ~Place() { gate.remove(&caller); }
  RunGate& gate;
  RunGate::Caller caller;
  std::function<void()> drained = [] {};
};

// Ends the process if the condition does not become true, since other threads wait for this one.
void wait_for(const std::function<bool()>& true_at_last) {
  const auto end = std::chrono::steady_clock::now() + test::kHang;
  while (!true_at_last()) {
    if (std::chrono::steady_clock::now() > end) {
      fprintf(stderr, "the other thread did not come to its place\n");
      abort();
    }
    std::this_thread::yield();
  }
}

// A session is released while a call on it waits for the end of an update. The call goes on, and
// whoever makes it destroys the session.
TEST(Gate, AReleaseIsNotLostWhileACallWaits) {
  RunGate gate;
  Place place(gate);
  bool entered = false, released = false;
  std::thread caller;
  {
    RunGate::Update update(gate);
    husk_error error;
    ASSERT_FALSE(failed(update.close(&error)));
    std::atomic<bool> begun{false};
    caller = std::thread([&] {
      begun = true;
      entered = gate.enter(&place.caller);
      released = RunGate::leave(&place.caller);
    });
    wait_for([&] { return begun && place.caller.state != 0; });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // the call waits now
    EXPECT_FALSE(RunGate::release(&place.caller));
    EXPECT_FALSE(gate.enter(&place.caller));  // a second call is refused at once
  }
  caller.join();
  EXPECT_TRUE(entered);
  EXPECT_TRUE(released);
}

// An update does not wait for a call that waits for it, and drains the work of its session.
TEST(Gate, AnUpdateDoesNotWaitForCallsThatWait) {
  RunGate gate;
  Place inside(gate), waits(gate);
  std::atomic<int> drains{0};
  waits.drained = [&] { ++drains; };
  ASSERT_TRUE(gate.enter(&inside.caller));
  std::atomic<int> closed{0};
  std::thread updater([&] {
    RunGate::Update update(gate);
    husk_error error;
    EXPECT_FALSE(failed(update.close(&error)));
    closed = drains.load();
  });
  // The update has begun to close the gate once it has drained the other session.
  wait_for([&] { return drains > 0; });
  std::atomic<bool> entered{false};
  std::thread caller([&] {
    EXPECT_TRUE(gate.enter(&waits.caller));
    entered = true;
    EXPECT_FALSE(RunGate::leave(&waits.caller));
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(closed, 0);
  EXPECT_FALSE(RunGate::leave(&inside.caller));
  updater.join();
  caller.join();
  EXPECT_GT(closed, 0);
  EXPECT_TRUE(entered);
}

// While an update waits for a call, the thread of this call may enter for other sessions, but other
// threads wait: husk.h forbids a callback to wait for them.
TEST(Gate, OnlyTheThreadThatIsInsideEntersDuringAnUpdate) {
  RunGate gate;
  Place inside(gate), same_thread(gate), other_thread(gate);
  std::atomic<int> drains{0};
  same_thread.drained = [&] { ++drains; };
  ASSERT_TRUE(gate.enter(&inside.caller));
  std::thread updater([&] {
    RunGate::Update update(gate);
    husk_error error;
    EXPECT_FALSE(failed(update.close(&error)));
  });
  wait_for([&] { return drains > 0; });
  std::atomic<bool> entered{false};
  std::thread other([&] {
    EXPECT_TRUE(gate.enter(&other_thread.caller));
    entered = true;
    EXPECT_FALSE(RunGate::leave(&other_thread.caller));
  });
  wait_for([&] { return other_thread.caller.state != 0; });
  ASSERT_TRUE(gate.enter(&same_thread.caller));
  EXPECT_FALSE(RunGate::leave(&same_thread.caller));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(entered);
  EXPECT_FALSE(RunGate::leave(&inside.caller));
  updater.join();
  other.join();
  EXPECT_TRUE(entered);
}

}  // namespace
}  // namespace husk::runtime
