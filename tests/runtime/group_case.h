// Ranks of groups on the host, between threads, and calls of operators that they compute together.
#pragma once

#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <husk/ops.h>

#include "fixture.h"
#include "group_id.h"

namespace husk::test {

// An open device that has joined a group, and calls of operators on it.
class Rank {
 public:
  Rank(const husk_group_id& id, uint32_t own, uint32_t all, uint32_t timeout = 20000)
      : number(own), world(all) {
    const husk_allocator allocator = {nullptr,
                                      [](void*, size_t size, size_t) { return std::malloc(size); },
                                      [](void*, void* memory) { std::free(memory); }};
    EXPECT_EQ(port_->open(nullptr, 0, &allocator, nullptr, &device_, &error), HUSK_OK);
    const husk_port_group group = {sizeof group, own, all, timeout, &id, nullptr, nullptr};
    joined = port_->join(device_, &group, &error);
  }
  ~Rank() { leave(); }
  void leave() {
    port_->close(device_);
    device_ = nullptr;
  }
  Rank(const Rank&) = delete;

  husk_status call(const std::string& name, const std::vector<husk_op_arg>& args) {
    uint32_t count = 0;
    const husk_op* ops = husk_host_ops(&count);
    for (uint32_t i = 0; i < count; ++i) {
      if (ops[i].name != name) continue;
      husk_op_context context = HUSK_OP_CONTEXT_INIT;
      context.user = ops[i].user;
      context.device = device_;
      context.cancel = cancel;
      return ops[i].call(&context, args.data(), static_cast<uint32_t>(args.size()), &error);
    }
    ADD_FAILURE() << name;
    return HUSK_NOT_FOUND;
  }
  husk_status agree(uint8_t byte) {
    uint8_t bytes[32] = {};
    bytes[31] = byte;
    return port_->agree(device_, bytes, &error);
  }

  const uint32_t number, world;
  husk_status joined = HUSK_OK;
  husk_error error = {};
  int32_t (*cancel)(void*) = nullptr;

 private:
  const husk_port* port_ = husk_port_host();
  void* device_ = nullptr;
};

// Runs `body` as each rank of a new group, on a thread of its own.
inline void in_group(uint32_t world, const std::function<void(Rank&)>& body,
                     uint32_t timeout = 20000) {
  const husk_group_id id = new_id();
  std::vector<std::thread> threads;
  for (uint32_t r = 0; r < world; ++r)
    threads.emplace_back([&, r] {
      Rank rank(id, r, world, timeout);
      ASSERT_EQ(rank.joined, HUSK_OK) << rank.error.text;
      body(rank);
    });
  for (std::thread& thread : threads) thread.join();
}

inline husk_op_arg text(const char* value) {
  husk_op_arg arg = {};
  arg.kind = HUSK_ARG_STRING;
  arg.string = value;
  return arg;
}
inline husk_op_arg ints(const std::vector<int64_t>& values) {
  husk_op_arg arg = {};
  arg.kind = HUSK_ARG_INTS;
  arg.count = static_cast<int64_t>(values.size());
  arg.sizes = values.data();
  return arg;
}
inline husk_op_arg number(int64_t value) {
  husk_op_arg arg = {};
  arg.kind = HUSK_ARG_INT;
  arg.i = value;
  return arg;
}

// A contiguous tensor of one dimension.
template <class T>
struct Vector {
  Vector(husk_dtype type, size_t n) : dtype(type), values(n), size(static_cast<int64_t>(n)) {}
  husk_op_arg arg(int32_t access = HUSK_ACCESS_READ) {
    husk_op_arg arg = {};
    arg.kind = HUSK_ARG_TENSOR;
    arg.access = access;
    arg.dtype = dtype;
    arg.rank = 1;
    arg.data = values.data();
    arg.sizes = &size;
    arg.strides = &stride;
    return arg;
  }
  husk_dtype dtype;
  std::vector<T> values;
  int64_t size, stride = 1;
};
using Bytes = Vector<uint8_t>;
inline husk_op_arg token() {
  static Bytes one(HUSK_U8, 1);
  return one.arg(HUSK_ACCESS_WRITE);
}

inline std::vector<int64_t> everyone(uint32_t world) {
  std::vector<int64_t> ranks(world);
  for (uint32_t i = 0; i < world; ++i) ranks[i] = i;
  return ranks;
}

// The status of a sum over all ranks.
inline husk_status sum(Rank& rank, size_t n = 3, const char* how = "sum") {
  Vector<float> x(HUSK_F32, n);
  const auto ranks = everyone(rank.world);
  return rank.call("husk::all_reduce",
                   {x.arg(), text(how), ints(ranks), x.arg(HUSK_ACCESS_WRITE), token()});
}

}  // namespace husk::test
