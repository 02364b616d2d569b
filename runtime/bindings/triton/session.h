// A session of Husk: states, and the functions that read and write them.
#ifndef HUSK_BINDINGS_TRITON_SESSION_H
#define HUSK_BINDINGS_TRITON_SESSION_H

#include <memory>
#include <optional>
#include <vector>

#include "devices.h"
#include "function.h"
#include "program.h"

namespace husk::triton {

class Session {
 public:
  [[nodiscard]] static Error create(const Program& program, uint64_t memory_limit,
                                    std::unique_ptr<Session>* session);
  // The function that answers a request, or the first request of a sequence.
  Function& first(const Call& call) { return functions_[call.function()]; }
  // The function that answers a later request of a sequence.
  Function& next(const Call& call) { return next_ ? *next_ : first(call); }
  // Whether the states are those that the runs so far have left. A run that fails may have written
  // a part of them; reset() makes them valid again.
  bool has_valid_states() const;
  // Sets all states to their initial values.
  [[nodiscard]] Error reset() { return reset(true); }
  // Sets all states but the one of the random numbers to their initial values.
  [[nodiscard]] Error forget() { return reset(false); }

 private:
  explicit Session(const Program& program) : program_(program) {}
  Error reset(bool generator);

  struct Release {
    void operator()(husk_session* session) const { husk_session_release(session); }
  };
  const Program& program_;
  DeviceStream stream_;
  std::unique_ptr<husk_session, Release> session_;
  std::vector<Function> functions_;  // those of the model
  std::optional<Function> next_;
};

// The sessions that answer a request together: one, or one of each rank.
using Sessions = std::vector<std::unique_ptr<Session>>;

}  // namespace husk::triton

#endif
