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
// of the first instance.
class Sequences {
 public:
  explicit Sequences(const Model& model) : model_(model) {}
  // Runs a call in the session of its sequence, unless the call has failed. Begins and ends the
  // sequence if the request says so.
  [[nodiscard]] Error run(Call* call);

 private:
  struct Sequence {
    std::unique_ptr<Session> session;
    uint64_t used = 0;  // when the last request ended
    bool busy = false;
  };
  Error begin(const std::string& id, Session** session);
  Error find(const std::string& id, Session** session);
  void end(const std::string& id, bool keep);
  void drop_idle();

  const Model& model_;
  std::mutex mutex_;
  std::unordered_map<std::string, Sequence> sequences_;
  std::vector<std::unique_ptr<Session>> free_;  // for sequences to come
};

}  // namespace husk::triton

#endif
