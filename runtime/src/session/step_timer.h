// The device's clock between steps, for husk_session_options.trace.
#pragma once

#include <husk/husk.h>

#include "base/status.h"

namespace husk::runtime {

struct Session;

// Events of the device: event 0 before some consecutive steps, and one after each of them.
class StepTimer {
 public:
  static constexpr uint32_t kSteps = 64;

  // Creates the events, if the port has them.
  Status prepare(Session* session, husk_error* error);
  // Destroys the events. The session's work must be done.
  void release();
  bool has_events() const { return events_[kSteps] != nullptr; }

  // Enqueues an event on a stream.
  Status record(uint32_t event, void* stream, husk_error* error);
  // Writes the nanoseconds between `event` and the next one, which the device has done.
  Status elapsed(uint32_t event, uint64_t* nanoseconds, husk_error* error) const;

 private:
  Session* session_ = nullptr;
  void* events_[kSteps + 1] = {};  // null if the port has none
};

}  // namespace husk::runtime
