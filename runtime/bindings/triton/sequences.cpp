#include "sequences.h"

#include <algorithm>

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
  const bool first = flags & TRITONSERVER_REQUEST_FLAG_SEQUENCE_START;
  const Sessions* sessions;
  HUSK_TRITON_TRY(first ? begin(id, &sessions) : find(id, &sessions));
  Error failure;
  if (!call->failed()) failure = run_in(*sessions, call, first);
  // A run that failed may have written a part of its states.
  const bool is_valid = std::all_of(sessions->begin(), sessions->end(),
                                    [](const auto& one) { return one->has_valid_states(); });
  end(id, !(flags & TRITONSERVER_REQUEST_FLAG_SEQUENCE_END) && is_valid);
  return failure;
}

// Makes a sequence busy, and takes the sessions that it had, or those of one that has ended.
Error Sequences::claim(const std::string& id, Sessions* sessions) {
  std::lock_guard lock(mutex_);
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
  *sessions = std::move(sequence.sessions);
  if (sessions->empty() && !free_.empty()) {
    *sessions = std::move(free_.back());
    free_.pop_back();
  }
  return nullptr;
}

Error Sequences::begin(const std::string& id, const Sessions** sessions) {
  for (Sessions& idle : take_idle()) release(std::move(idle));
  Sessions own;
  HUSK_TRITON_TRY(claim(id, &own));
  Error failure = own.empty() ? create(&own) : nullptr;
  if (!failure) failure = reset(own);
  if (failure) release(std::move(own));
  std::lock_guard lock(mutex_);
  if (failure) {
    sequences_.erase(id);
    return failure;
  }
  Sequence& sequence = sequences_[id];
  sequence.sessions = std::move(own);
  *sessions = &sequence.sessions;
  return nullptr;
}

Error Sequences::find(const std::string& id, const Sessions** sessions) {
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
  *sessions = &found->second.sessions;
  return nullptr;
}

void Sequences::end(const std::string& id, bool keep) {
  Sessions unused;
  {
    std::lock_guard lock(mutex_);
    const auto found = sequences_.find(id);
    Sequence& sequence = found->second;
    sequence.busy = false;
    sequence.used = now();
    if (keep) return;
    if (free_.size() < kFreeSessions)
      free_.push_back(std::move(sequence.sessions));
    else
      unused = std::move(sequence.sessions);
    sequences_.erase(found);
  }
  release(std::move(unused));
}

// Ends the sequences that were idle for too long, and returns their sessions.
std::vector<Sessions> Sequences::take_idle() {
  std::vector<Sessions> out;
  std::lock_guard lock(mutex_);
  const uint64_t time = now(), limit = model_.settings().sequence_idle_ns;
  for (auto each = sequences_.begin(); each != sequences_.end();) {
    if (each->second.busy || time - each->second.used <= limit) {
      ++each;
      continue;
    }
    out.push_back(std::move(each->second.sessions));
    each = sequences_.erase(each);
  }
  return out;
}

Sequences::~Sequences() {
  for (auto& each : sequences_) release(std::move(each.second.sessions));
  for (Sessions& sessions : free_) release(std::move(sessions));
}

Error Sequences::create(Sessions* sessions) const {
  if (Ranks* ranks = model_.ranks()) return ranks->create_sessions(sessions);
  sessions->resize(1);
  return Session::create(model_.home(), model_.settings().memory_limit, &sessions->front());
}

Error Sequences::reset(const Sessions& sessions) const {
  Ranks* ranks = model_.ranks();
  return ranks ? ranks->reset(sessions) : sessions.front()->reset();
}

Error Sequences::run_in(const Sessions& sessions, Call* call, bool first) const {
  if (Ranks* ranks = model_.ranks()) return ranks->run(sessions, call, first);
  Session& session = *sessions.front();
  return (first ? session.first(*call) : session.next(*call)).run(call);
}

void Sequences::release(Sessions sessions) const {
  if (Ranks* ranks = model_.ranks()) ranks->release(std::move(sessions));
}

}  // namespace husk::triton
