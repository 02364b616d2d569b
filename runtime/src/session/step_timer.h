// The device's clock between steps, for husk_session_options.trace.
#pragma once

#include <husk/husk.h>

#include "base/status.h"

namespace husk::runtime {

struct Session;

// Events of the device around consecutive steps. The steps are enqueued one after the other, and
// are waited for together.
class StepTimer {
 public:
  static constexpr uint32_t kCapacity = 64;  // steps

  // Creates the events, if the port has them.
  Status prepare(Session* session, husk_error* error);
  // Destroys the events. The session's work must be done.
  void release();
  bool has_events() const { return events_[kCapacity] != nullptr; }

  uint32_t count() const { return count_; }  // steps since begin()
  bool is_full() const { return count_ == kCapacity; }
  // Begins to measure on a stream, before the first step.
  Status begin(void* stream, husk_error* error);
  // Enqueues the end of a step.
  Status end_step(void* stream, husk_error* error);
  // Waits until the steps are done, and writes their times in nanoseconds to `times`.
  Status wait(void* stream, uint64_t* times, husk_error* error) const;

 private:
  Status record(uint32_t event, void* stream, husk_error* error);

  Session* session_ = nullptr;
  void* events_[kCapacity + 1] = {};  // the beginning, and the end of each step; or null
  uint32_t count_ = 0;
};

}  // namespace husk::runtime
