// Ranks of the CUDA port on the fake driver. They are processes, since the fake driver runs the
// work of a process under one lock.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <thread>

#include "op_case.h"
#include "ops/group.h"

namespace husk::port_test {

inline husk_op_arg token() {
  static uint8_t byte;
  static constexpr int64_t kOne = 1;
  return tensor_arg(HUSK_ACCESS_WRITE, HUSK_U8, 1, &byte, &kOne, &kOne);
}

// A vector in device memory.
template <class T>
struct Vector {
  int32_t dtype;
  int64_t size;
  T* memory;
  husk_op_arg arg() const {
    static constexpr int64_t kOne = 1;
    return tensor_arg(HUSK_ACCESS_READ | HUSK_ACCESS_WRITE, dtype, 1, memory, &size, &kOne);
  }
};

class CudaGroup : public OverFake {
 protected:
  void SetUp() override {
    OverFake::SetUp();
    if (IsSkipped()) return;
    ASSERT_EQ(port->group_id(nullptr, &id, &error), HUSK_OK) << error.text;
  }
  void TearDown() override {
    OverFake::TearDown();
    unsetenv("FAKE_PEERS");
  }

  // Runs `body` as rank 0 here and as rank 1 in another process, whose failures count.
  void on_two_ranks(const std::function<void(uint32_t rank)>& body, uint32_t timeout = 20000) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    run(child == 0, timeout, body);
    end_of(child);
  }
  // Runs `body` as rank 0 here and as the other ranks in processes of their own.
  void on_ranks(uint32_t world, const std::function<void(uint32_t rank)>& body,
                uint32_t timeout = 20000) {
    std::vector<pid_t> children;
    uint32_t rank = 0;
    for (uint32_t other = 1; other < world && rank == 0; ++other) {
      const pid_t child = fork();
      ASSERT_GE(child, 0);
      if (child == 0) rank = other;
      children.push_back(child);
    }
    run(rank, timeout, body, world);
    if (rank > 0) end_of(0);
    for (const pid_t child : children) end_of(child);
  }
  // Ends the other process with its failures, if this is it, and waits for it here otherwise.
  static void end_of(pid_t child) {
    if (child == 0) {
      fflush(nullptr);
      _exit(HasFailure());
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "a rank failed: " << status;
  }
  // Runs `body` on rank 0 of a group where NCCL's work never ends, since rank 1 is gone and NCCL
  // does not notice. Ranks have time to join; the deadline is short afterwards.
  void on_rank_0_with_endless_work(const std::function<void()>& body) {
    fake().reset();
    ASSERT_EQ(port->group_id(nullptr, &id, &error), HUSK_OK) << error.text;
    on_two_ranks([&](uint32_t rank) {
      ASSERT_EQ(sum(), HUSK_OK) << error.text;
      ASSERT_EQ(wait(), HUSK_OK) << error.text;
      if (rank == 1) return;
      cuda::as_device(device).group->timeout_ms = kShort;
      setenv("FAKE_NCCL_STALL", "1", 1);
      body();
      unsetenv("FAKE_NCCL_STALL");
    });
    // Everything is closed.
    EXPECT_EQ(fake().live_objects(), 0u);
    EXPECT_EQ(memory.live, 0);
    ASSERT_EQ(open(), HUSK_OK) << error.text;
    ASSERT_EQ(port->stream_create(device, &stream, &error), HUSK_OK) << error.text;
  }
  // The group was ended, once, and so was its work. A wait for an event leaves the work behind it.
  void expect_late(bool is_of_stream = true) {
    EXPECT_TRUE(
        error_says("did not end within 200 ms, and was ended: another rank is late "
                   "husk_engine_options.group_timeout_ms"))
        << error.text;
    expect_one_abort();
    if (is_of_stream) {
      EXPECT_EQ(fake().pending(), 0u);
    }
  }
  // The application cancels a wait for a rank that does not come, and the group is over.
  void expect_cancel() {
    ASSERT_EQ(sum(), HUSK_OK) << error.text;
    is_cancelled = true;
    EXPECT_EQ(wait(), HUSK_CANCELLED);
    EXPECT_TRUE(error_says("husk_engine_options.cancel, and was ended")) << error.text;
    EXPECT_EQ(fake().pending(), 0u);
    EXPECT_EQ(wait(), HUSK_DEVICE) << error.text;  // not once more
    is_cancelled = false;
    EXPECT_EQ(sum(), HUSK_DEVICE);
    EXPECT_TRUE(error_says("the group of ranks is of no more use")) << error.text;
  }
  // NCCL's abort has a thread of its own, which may still be on its way.
  void expect_one_abort() {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (fake().calls("ncclCommAbort") == 0 && std::chrono::steady_clock::now() < until)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_EQ(fake().calls("ncclCommAbort"), 1u);
  }
  husk_status join(uint32_t rank, uint32_t world = 2, uint32_t timeout = 20000) {
    const auto cancel = [](void* user) { return int32_t{*static_cast<bool*>(user)}; };
    const husk_port_group group = {sizeof group, rank, world, timeout, &id, cancel, &is_cancelled};
    return port->join(device, &group, &error);
  }
  husk_status call(const char* name, const std::vector<husk_op_arg>& args, bool prepares = false) {
    husk_op op = HUSK_OP_INIT;
    husk_status status = port->find_op(device, name, &op, &error);
    if (status != HUSK_OK) return status;
    EXPECT_EQ(op.flags, uint32_t{HUSK_OP_CAPTURABLE | HUSK_OP_WAITS_FIRST});
    const husk_op_context context = context_of(op.user, device, stream);
    return (prepares ? op.prepare : op.call)(&context, args.data(),
                                             static_cast<uint32_t>(args.size()), &error);
  }
  template <class T>
  Vector<T> vector(int32_t dtype, const std::vector<T>& values) {
    return {dtype, static_cast<int64_t>(values.size()), device_array(values)};
  }
  template <class T>
  std::vector<T> values(const Vector<T>& vector) {
    return read(vector.memory, static_cast<size_t>(vector.size));
  }
  husk_status sum(int64_t size = 3) {
    Vector<float> x = vector(HUSK_F32, std::vector<float>(static_cast<size_t>(size), 1));
    return call("husk::all_reduce", {x.arg(), text("sum"), ints(both), x.arg(), token()});
  }
  // Sums with a residual, by the call that has it and by what is right: tensors of any alignment,
  // the result apart or over the summed tensor.
  void expect_residual(uint32_t rank, int64_t size) {
    for (const int64_t begin : {0, 1}) {
      for (const bool is_in_place : {false, true}) {
        const auto whole = static_cast<size_t>(size + begin);
        std::vector<float> content(whole), added(whole), right(whole, 7);
        for (size_t i = 0; i < whole; ++i) {
          content[i] = static_cast<float>(i % 7 + 1) * (rank == 0 ? 1.f : -2.f);
          added[i] = static_cast<float>(i % 5) + 100;
          if (i >= static_cast<size_t>(begin)) right[i] = added[i] - static_cast<float>(i % 7 + 1);
        }
        if (is_in_place && begin) right[0] = content[0];
        Vector<float> x = vector<float>(HUSK_F32, content), residual = vector(HUSK_F32, added),
                      y = is_in_place ? x : vector(HUSK_F32, std::vector<float>(whole, 7));
        const Vector<float> result = y;
        for (Vector<float>* one : {&x, &residual, &y}) {
          one->memory += begin;
          one->size = size;
        }
        expect_sum(x.arg(), y.arg(), residual.arg());
        ASSERT_EQ(values(result), right) << size << " from " << begin;
      }
    }
  }
  // 1 is half of the distance of the numbers of a dtype at `large`: rounded to even, each sum is
  // `large`, where one sum of all would be another number.
  void expect_two_roundings(uint32_t rank, int32_t dtype, uint16_t large, uint16_t one) {
    for (const size_t size : {1, 3, 4, 7, 1025, 300'001}) {
      const Vector<uint16_t> x = vector(dtype,
                                        std::vector<uint16_t>(size, rank == 0 ? large : one)),
                             residual = vector(dtype, std::vector<uint16_t>(size, one)),
                             y = vector(dtype, std::vector<uint16_t>(size));
      expect_sum(x.arg(), y.arg(), residual.arg());
      ASSERT_EQ(values(y), std::vector<uint16_t>(size, large)) << size;
    }
  }
  void expect_sum(const husk_op_arg& x, const husk_op_arg& y, const husk_op_arg& residual) {
    for (const bool prepares : {true, false})
      ASSERT_EQ(
          call("husk::all_reduce", {x, text("sum"), ints(both), y, token(), residual}, prepares),
          HUSK_OK)
          << error.text;
  }
  // Equal bytes of both ranks pass and others do not, and the group goes on.
  void expect_agreement(uint32_t rank) {
    uint8_t bytes[32] = {7};
    EXPECT_EQ(port->agree(device, bytes, &error), HUSK_OK) << error.text;
    bytes[31] = static_cast<uint8_t>(rank);
    EXPECT_EQ(port->agree(device, bytes, &error), HUSK_INVALID_ARGUMENT);
    EXPECT_TRUE(error_says("have different ones")) << error.text;
    EXPECT_EQ(sum(), HUSK_OK) << error.text;
    EXPECT_EQ(wait(), HUSK_OK) << error.text;
  }
  // Closes the device, and with it leaves the group.
  void leave() {
    free_memory();
    port->stream_destroy(device, stream);
    stream = nullptr;
    close();
  }
  husk_status wait() { return port->stream_wait(device, stream, &error); }

  static constexpr uint32_t kShort = 200;
  husk_group_id id = {};
  bool is_cancelled = false;
  const std::vector<int64_t> both = {0, 1};

 private:
  void run(uint32_t rank, uint32_t timeout, const std::function<void(uint32_t rank)>& body,
           uint32_t world = 2) {
    ASSERT_EQ(join(rank, world, timeout), HUSK_OK) << error.text;
    body(rank);
    leave();
  }
};

// Ranks that reach the memory of each other, or not.

}  // namespace husk::port_test
