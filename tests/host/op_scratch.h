// Memory for calls of operators without a session (husk_op_context.scratch).
#pragma once

#include <cstdlib>
#include <cstring>
#include <memory>

#include <husk/op.h>

namespace husk::host_test {

class OpScratch {
 public:
  // The memory that a call of `op` on so many threads may use, null if the operator asks for none.
  // It is no larger, so that a sanitizer finds what lies outside of it, and its bytes are not 0,
  // which operators must not expect.
  void* of(const husk_op& op, uint32_t threads = 1) {
    if (op.scratch_bytes == 0) return nullptr;
    const size_t wanted = op.scratch_bytes +
                          (threads > 1 ? threads - 1 : 0) * op.thread_scratch_bytes;
    if (wanted != bytes_) memory_.reset(std::aligned_alloc(64, bytes_ = wanted));
    std::memset(memory_.get(), 0xff, wanted);
    return memory_.get();
  }

 private:
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  std::unique_ptr<void, Free> memory_;
  size_t bytes_ = 0;
};

// The context of a call of `op` on the device, with the scratch memory that it asks for.
inline husk_op_context context_for(const husk_op& op, void* device, OpScratch& scratch,
                                   const husk_threads* threads = nullptr) {
  husk_op_context context = HUSK_OP_CONTEXT_INIT;
  context.user = op.user;
  context.device = device;
  context.threads = threads;
  context.scratch = scratch.of(op, threads ? threads->count : 1);
  return context;
}

}  // namespace husk::host_test
