#include "sequences.h"

namespace husk::triton {
namespace {

constexpr size_t kFreeSessions = 8;

// Correlation ids are numbers or texts.
Error read_id(TRITONBACKEND_Request* request, std::string* id) {
  uint64_t number;
  if (!Error(TRITONBACKEND_RequestCorrelationId(request, &number))) {
    *id = std::to_string(number);
    return nullptr;
  }
  const char* text;
  HUSK_TRITON_TRY(Error(TRITONBACKEND_RequestCorrelationIdString(request, &text)));
  *id = std::string("'") + text + "'";
  return nullptr;
}

}  // namespace

Error Sequences::run(Call* call) {
  std::string id;
  uint32_t flags;
  HUSK_TRITON_TRY(read_id(call->request(), &id));
  HUSK_TRITON_TRY(Error(TRITONBACKEND_RequestFlags(call->request(), &flags)));
  Session* session;
  if (flags & TRITONSERVER_REQUEST_FLAG_SEQUENCE_START) {
    HUSK_TRITON_TRY(begin(id, &session));
  } else {
    HUSK_TRITON_TRY(find(id, &session));
  }
  const bool first = flags & TRITONSERVER_REQUEST_FLAG_SEQUENCE_START;
  Error failure;
  if (!call->failed()) failure = (first ? session->first(*call) : session->next(*call)).run(call);
  // A run that failed may have written a part of its states.
  end(id, !(flags & TRITONSERVER_REQUEST_FLAG_SEQUENCE_END) && session->has_valid_states());
  return failure;
}

Error Sequences::begin(const std::string& id, Session** session) {
  std::unique_ptr<Session> own;
  {
    std::lock_guard lock(mutex_);
    drop_idle();
    const auto found = sequences_.find(id);
    if (found == sequences_.end() && sequences_.size() >= model_.settings().max_sequences)
      return fail(TRITONSERVER_ERROR_UNAVAILABLE,
                  "%zu sequences are live, which is the parameter \"max_sequences\" of "
                  "config.pbtxt: try again later",
                  sequences_.size());
    Sequence& sequence = sequences_[id];
    if (sequence.busy)
      return fail(TRITONSERVER_ERROR_UNAVAILABLE,
                  "sequence %s has a request that is not answered yet", id.c_str());
    sequence.busy = true;
    own = std::move(sequence.session);
    if (!own && !free_.empty()) {
      own = std::move(free_.back());
      free_.pop_back();
    }
  }
  Error failure = own ? nullptr
                      : Session::create(model_.home(), model_.settings().memory_limit, &own);
  if (!failure) failure = own->reset();
  std::lock_guard lock(mutex_);
  if (failure) {
    sequences_.erase(id);
    return failure;
  }
  *session = own.get();
  sequences_[id].session = std::move(own);
  return nullptr;
}

Error Sequences::find(const std::string& id, Session** session) {
  std::lock_guard lock(mutex_);
  const auto found = sequences_.find(id);
  if (found == sequences_.end())
    return fail(
        TRITONSERVER_ERROR_INVALID_ARG,
        "sequence %s is not live: it has ended, it failed, it was idle for too long, or the "
        "model was loaded again; begin with sequence_start",
        id.c_str());
  if (found->second.busy)
    return fail(TRITONSERVER_ERROR_UNAVAILABLE,
                "sequence %s has a request that is not answered yet", id.c_str());
  found->second.busy = true;
  *session = found->second.session.get();
  return nullptr;
}

void Sequences::end(const std::string& id, bool keep) {
  std::lock_guard lock(mutex_);
  const auto found = sequences_.find(id);
  Sequence& sequence = found->second;
  sequence.busy = false;
  sequence.used = now();
  if (keep) return;
  if (free_.size() < kFreeSessions) free_.push_back(std::move(sequence.session));
  sequences_.erase(found);
}

void Sequences::drop_idle() {
  const uint64_t time = now(), limit = model_.settings().sequence_idle_ns;
  for (auto each = sequences_.begin(); each != sequences_.end();)
    if (!each->second.busy && time - each->second.used > limit)
      each = sequences_.erase(each);
    else
      ++each;
}

}  // namespace husk::triton
