#include "session/step_timer.h"

#include "session/session.h"

namespace husk::runtime {

Status StepTimer::prepare(Session* session, husk_error* error) {
  session_ = session;
  const husk_port* port = session->port();
  if (!port->event_create || !port->event_elapsed) return Status::ok;
  for (void*& event : events_)
    HUSK_TRY(to_status(port->event_create(session->device(), &event, error)));
  return Status::ok;
}

void StepTimer::release() {
  for (void* event : events_)
    if (event) session_->port()->event_destroy(session_->device(), event);
}

Status StepTimer::record(uint32_t event, void* stream, husk_error* error) {
  return to_status(
      session_->port()->event_record(session_->device(), events_[event], stream, error));
}

Status StepTimer::elapsed(uint32_t event, uint64_t* nanoseconds, husk_error* error) const {
  return to_status(session_->port()->event_elapsed(session_->device(), events_[event],
                                                   events_[event + 1], nanoseconds, error));
}

}  // namespace husk::runtime
