// New values for constants, between the runs of a program's sessions.
#include "session.h"

#include <sched.h>

using husk::Status;
using husk::fail;
using husk::failed;
using husk::to_status;

void husk_program::add(husk_session* session) {
  references.retain();
  pthread_mutex_lock(&mutex);
  session->next = sessions;
  if (sessions) sessions->previous = session;
  sessions = session;
  pthread_mutex_unlock(&mutex);
}

void husk_program::remove(husk_session* session) {
  pthread_mutex_lock(&mutex);
  (session->previous ? session->previous->next : sessions) = session->next;
  if (session->next) session->next->previous = session->previous;
  pthread_mutex_unlock(&mutex);
}

// Brings the values to the device, beside the old ones. What was allocated stands in `fresh`, also on failure.
Status husk_program::stage(const husk_constant_update* updates, uint32_t n, husk::Array<void*>* fresh, husk_error* error) {
  const husk_port* port = engine->port;
  HUSK_TRY(fresh->allocate(engine->allocator, n, error));
  for (uint32_t i = 0; i < n; ++i) {
    const husk::fb::Constant* constant = rows()->constants()->Get(updates[i].constant);
    const uint64_t bytes = constant->blob()->size();
    if (bytes == 0) continue;
    Status status = to_status(port->alloc(engine->device, bytes, &(*fresh)[i], error));
    if (failed(status)) {
      (*fresh)[i] = nullptr;
      husk::prefix(error, "the new value of constant '%s', %llu bytes: ", constant->name()->c_str(),
                   static_cast<unsigned long long>(bytes));
      return status;
    }
    HUSK_TRY(to_status(port->upload(engine->device, nullptr, (*fresh)[i], updates[i].bytes, bytes, error)));
  }
  return to_status(port->stream_wait(engine->device, nullptr, error));
}

// Nobody runs. Where the file's pages serve, or another program uses the old values, the new ones take their place as they lie,
// which cannot fail; elsewhere they are copied, so that addresses stay as graphs know them: only a device that is lost fails here.
Status husk_program::swap(const husk_constant_update* updates, uint32_t n, bool in_place, husk::Array<void*>* fresh,
                          husk_error* error) {
  const husk_port* port = engine->port;
  for (uint32_t i = 0; i < n; ++i) {
    const uint32_t c = updates[i].constant;
    if (!(*fresh)[i]) continue;
    if (!in_place) {
      void* old = replaced[c];
      replaced[c] = (*fresh)[i];
      constants[c] = static_cast<uint8_t*>(replaced[c]);
      (*fresh)[i] = old;
      ++constants_version;
      continue;
    }
    HUSK_TRY(to_status(port->copy(engine->device, nullptr, constants[c], (*fresh)[i],
                                  rows()->constants()->Get(c)->blob()->size(), error)));
  }
  return !in_place ? Status::ok : to_status(port->stream_wait(engine->device, nullptr, error));
}

Status husk_program::update(const husk_constant_update* updates, uint32_t n, husk_error* error) {
  for (uint32_t i = 0; i < n; ++i)
    if (updates[i].constant >= husk::count(rows()->constants()) || !updates[i].bytes)
      return fail(error, HUSK_INVALID_ARGUMENT, "update %u names no constant (there are %u), or no bytes", i,
                  husk::count(rows()->constants()));
  husk::Array<void*> fresh;
  pthread_mutex_lock(&mutex);
  error = sink.of(error);
  Status status = Status::ok;
  if (replaced.size() == 0) status = replaced.allocate(engine->allocator, husk::count(rows()->constants()), error);
  if (!failed(status)) status = stage(updates, n, &fresh, error);
  if (!failed(status)) {
    updating.store(1);
    for (husk_session* session = sessions; session && !failed(status); session = session->next) {
      while (session->busy.load()) sched_yield();
      status = session->wait(error);
    }
    if (!failed(status)) status = swap(updates, n, change_constants(), &fresh, error);
    updating.store(0);
  }
  pthread_mutex_unlock(&mutex);
  for (void* memory : fresh)
    if (memory) engine->port->free(engine->device, memory);
  return status;
}
