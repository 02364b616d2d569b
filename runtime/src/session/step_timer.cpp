#include "session/step_timer.h"

#include "session/session.h"

namespace husk::runtime {

Status StepTimer::prepare(Session* session, husk_error* error) {
  session_ = session;
  const husk_port* port = session->port();
  if (!HUSK_HAS_FIELD(port, event_elapsed) || !port->event_create) return Status::ok;
  for (void*& event : events_)
    HUSK_TRY(to_status(port->event_create(session->device(), &event, error)));
  return Status::ok;
}

void StepTimer::release() {
  for (void*& event : events_)
    if (event) session_->port()->event_destroy(session_->device(), event);
}

Status StepTimer::record(uint32_t event, void* stream, husk_error* error) {
  return to_status(
      session_->port()->event_record(session_->device(), events_[event], stream, error));
}

Status StepTimer::begin(void* stream, husk_error* error) {
  count_ = 0;
  return record(0, stream, error);
}

Status StepTimer::end_step(void* stream, husk_error* error) {
  HUSK_TRY(record(count_ + 1, stream, error));
  ++count_;
  return Status::ok;
}

Status StepTimer::wait(void* stream, uint64_t* times, husk_error* error) const {
  const husk_port* port = session_->port();
  void* const device = session_->device();
  HUSK_TRY(to_status(port->stream_wait(device, stream, error)));
  for (uint32_t i = 0; i < count_; ++i)
    HUSK_TRY(to_status(port->event_elapsed(device, events_[i], events_[i + 1], &times[i], error)));
  return Status::ok;
}

}  // namespace husk::runtime
