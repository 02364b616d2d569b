// The sessions of sequences: a sequence of requests has a session of its own, and so a state.
#ifndef HUSK_BINDINGS_TRITON_SEQUENCES_H
#define HUSK_BINDINGS_TRITON_SEQUENCES_H

#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "call.h"
#include "model.h"
#include "session.h"

namespace husk::triton {

// All instances of a model share the sequences, since the server sends the requests of a sequence
// to any of them, one after another. The server does not say when a sequence ends without a last
// request, so a sequence that was idle for too long is dropped here. All sessions are on the device
// of the first instance; a sequence of a model on several devices has a session on each.
class Sequences {
 public:
  explicit Sequences(const Model& model) : model_(model) {}
  Sequences(const Sequences&) = delete;
  ~Sequences();
  // Runs a call in the session of its sequence, unless the call has failed. Begins and ends the
  // sequence if the request says so.
  [[nodiscard]] Error run(Call* call);

 private:
  struct Sequence {
    Sessions sessions;
    uint64_t used = 0;  // when the last request ended
    bool busy = false;
  };
  Error begin(const std::string& id, const Sessions** sessions);
  Error find(const std::string& id, const Sessions** sessions);
  void end(const std::string& id, bool keep);
  Error claim(const std::string& id, Sessions* sessions);
  std::vector<Sessions> take_idle();

  Error create(Sessions* sessions) const;
  Error reset(const Sessions& sessions) const;
  Error run_in(const Sessions& sessions, Call* call, bool first) const;
  void release(Sessions sessions) const;

  const Model& model_;
  std::mutex mutex_;
  std::unordered_map<std::string, Sequence> sequences_;
  std::vector<Sessions> free_;  // for sequences to come
};

}  // namespace husk::triton

#endif
