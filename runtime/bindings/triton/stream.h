// A stream of tokens: one request, and a response for each token.
#ifndef HUSK_BINDINGS_TRITON_STREAM_H
#define HUSK_BINDINGS_TRITON_STREAM_H

#include <vector>

#include "call.h"
#include "program.h"
#include "session.h"

namespace husk::triton {

// Answers a request of a decoupled model: the first function runs for the inputs of the request,
// and the next function for each token that the run before it gave. A token is the most likely one
// according to the output, or the output itself if that is an integer.
class Stream {
 public:
  // Takes a request whose inputs `call` has read.
  Stream(const Program& program, Session* session, Call* call)
      : program_(program), session_(session), call_(call) {}
  // Sends all responses, the last one with an error if there is one.
  void run();

 private:
  Error read_parameters();
  Error generate();
  Error next_token(Function* function, int64_t* token) const;
  Error send_token(int64_t token, bool last);
  Error check_cancelled() const;

  const Program& program_;
  Session* session_;
  Call* call_;
  TRITONBACKEND_ResponseFactory* factory_ = nullptr;
  int64_t max_tokens_ = 32;
  int64_t stop_token_ = -1;
};

// The output of a decoupled model.
Value token_value();

// Checks whether the functions of a decoupled model can feed one another.
[[nodiscard]] Error check_stream(const Signature& first, const Signature& next);

}  // namespace husk::triton

#endif
