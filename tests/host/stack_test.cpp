// No operator needs more than 64 KB of stack, since threads of an application may have little: 128
// KB where the C library is musl.
#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <functional>
#include <mutex>

#include "correct_calls.h"
#include "host_device.h"

namespace husk::host_test {
namespace {

constexpr size_t kMost = 64 << 10;

// Runs a function on a thread of its own, and measures how much stack it needs.
class MeasuredThread {
 public:
  explicit MeasuredThread(std::function<void()> run) : run_(std::move(run)) {
    // An operator of the largest frames that there once were would fit.
    stack_ = static_cast<unsigned char*>(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0));
    EXPECT_NE(stack_, MAP_FAILED);
    std::fill(watched(), stack_ + kBytes, kUntouched);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    EXPECT_EQ(pthread_attr_setstack(&attributes, stack_, kBytes), 0);
    EXPECT_EQ(pthread_create(&thread_, &attributes, start, this), 0);
    pthread_attr_destroy(&attributes);
  }
  ~MeasuredThread() {
    if (stack_) (void)join();
  }
  // Waits for the function, and returns the bytes of stack that it has touched.
  size_t join() {
    EXPECT_EQ(pthread_join(thread_, nullptr), 0);
    const unsigned char* lowest = std::find_if(
        watched(), begin_, [](unsigned char byte) { return byte != kUntouched; });
    const auto used = static_cast<size_t>(begin_ - lowest);
    munmap(stack_, kBytes);
    stack_ = nullptr;
    return used;
  }

 private:
  // Only the upper part of the stack is watched, and is said to be used up if all of it is.
  static constexpr size_t kBytes = size_t{1} << 20, kWatchedBytes = 3 * kMost;
  static constexpr unsigned char kUntouched = 0xa5;

  static void* start(void* self) {
    auto* measured = static_cast<MeasuredThread*>(self);
    measured->begin_ = static_cast<unsigned char*>(__builtin_frame_address(0));
    measured->run_();
    return nullptr;
  }

  unsigned char* watched() const { return stack_ + kBytes - kWatchedBytes; }

  std::function<void()> run_;
  unsigned char *stack_ = nullptr, *begin_ = nullptr;
  pthread_t thread_;
};

class Stack : public HostDevice {
 protected:
  void SetUp() override {
    HostDevice::SetUp();
#if defined(HUSK_SANITIZED) || !defined(NDEBUG)
    GTEST_SKIP() << "code that is not optimized has larger frames";
#endif
  }

  // Two measured threads that take bodies.
  static void parallel(void* user, uint32_t n, void (*body)(void* argument, uint32_t index),
                       void* argument) {
    std::deque<MeasuredThread> others;
    for (uint32_t i = 1; i < n; ++i) others.emplace_back([=] { body(argument, i); });
    body(argument, 0);
    for (MeasuredThread& other : others) static_cast<Stack*>(user)->record(other.join());
  }
  void record(size_t used) { deepest = std::max(deepest, used); }

  void expect_little(const Call& call, bool packs, uint32_t thread_count) {
    const husk_op& row = op(call.name);
    const husk_threads threads{this, thread_count, parallel};
    int64_t questions = 0;
    husk_op_context context = HUSK_OP_CONTEXT_INIT;
    context.user = row.user;
    context.device = device;
    if (thread_count > 1) context.threads = &threads;
    context.cancel = [](void* user) -> int32_t { return ++*static_cast<int64_t*>(user) > 2; };
    context.cancel_user = &questions;
    const auto count = static_cast<uint32_t>(call.args.size());
    std::deque<std::vector<unsigned char>> copies;
    std::vector<const void*> packed(count);
    deepest = 0;
    if (packs)
      record(MeasuredThread([&] { pack(row, call.args, context, copies, packed); }).join());
    context.scratch = op_scratch.of(row, thread_count);
    context.packed = packed.data();
    husk_status status = HUSK_OK;
    record(MeasuredThread([&] {
             status = row.call(&context, call.args.data(), count, &error);
           }).join());
    EXPECT_TRUE(status == HUSK_OK || status == HUSK_CANCELLED) << call.name << ": " << error.text;
    EXPECT_LE(deepest, kMost) << call.name;
    if (deepest > most.first) most = {deepest, call.name};
  }
  // Packs each argument that the op wants to have packed.
  void pack(const husk_op& row, const std::vector<husk_op_arg>& args,
            const husk_op_context& context, std::deque<std::vector<unsigned char>>& copies,
            std::vector<const void*>& packed) {
    const auto count = static_cast<uint32_t>(args.size());
    for (uint32_t i = 0; i < count; ++i) {
      husk_packing packing = HUSK_PACKING_INIT;
      packing.argument = i;
      if (args[i].kind != HUSK_ARG_TENSOR ||
          row.pack(&context, args.data(), count, &packing, &error) != HUSK_OK ||
          packing.bytes == 0 || packing.bytes > size_t{1} << 26)
        continue;
      copies.emplace_back(packing.bytes + 64);
      unsigned char* to = copies.back().data();
      to += -reinterpret_cast<uintptr_t>(to) & 63;
      packing.data = to;
      EXPECT_EQ(row.pack(&context, args.data(), count, &packing, &error), HUSK_OK) << error.text;
      packed[i] = to;
    }
  }

  size_t deepest = 0;  // bytes of stack of the threads of a call
  std::pair<size_t, std::string> most;
};

TEST_F(Stack, OperatorsNeedLittle) {
  std::deque<Call> calls;
  add_correct_calls(calls);
  add_large_calls(calls);
  add_long_calls(calls);
  for (const Call& call : calls) {
    const husk_op& row = op(call.name);
    for (const CpuSet& set : sets()) {
      use(set);
      for (const bool packs : {false, true})
        if (!packs || row.pack) expect_little(call, packs, row.thread_scratch_bytes ? 3 : 1);
      if (!row.thread_scratch_bytes) break;  // only such operators depend on it
    }
  }
  RecordProperty("most", static_cast<int>(most.first));
  RecordProperty("operator", most.second);
}

}  // namespace
}  // namespace husk::host_test
