// The ops that ranks compute together, on a fake NCCL. Ranks are processes, since the fake driver
// runs the work of a process under one lock.
#include "ops/group.h"

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <thread>

#include "op_case.h"

namespace husk::port_test {

namespace {

husk_op_arg token() {
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

}  // namespace

class CudaGroup : public OverFake {
 protected:
  void SetUp() override {
    OverFake::SetUp();
    if (IsSkipped()) return;
    ASSERT_EQ(port->group_id(nullptr, &id, &error), HUSK_OK) << error.text;
  }

  // Runs `body` as rank 0 here and as rank 1 in another process, whose failures count.
  void on_two_ranks(const std::function<void(uint32_t rank)>& body, uint32_t timeout = 20000) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      run(1, timeout, body);
      fflush(nullptr);
      _exit(HasFailure());
    }
    run(0, timeout, body);
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "rank 1 failed: " << status;
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
  // NCCL's abort has a thread of its own, which may still be on its way.
  void expect_one_abort() {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (fake().calls("ncclCommAbort") == 0 && std::chrono::steady_clock::now() < until)
      std::this_thread::yield();
    EXPECT_EQ(fake().calls("ncclCommAbort"), 1u);
  }
  husk_status join(uint32_t rank, uint32_t world = 2, uint32_t timeout = 20000) {
    const husk_port_group group = {sizeof group, rank, world, timeout, &id};
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
  husk_status wait() { return port->stream_wait(device, stream, &error); }

  static constexpr uint32_t kShort = 200;
  husk_group_id id = {};
  const std::vector<int64_t> both = {0, 1};

 private:
  void run(uint32_t rank, uint32_t timeout, const std::function<void(uint32_t rank)>& body) {
    ASSERT_EQ(join(rank, 2, timeout), HUSK_OK) << error.text;
    body(rank);
    free_memory();
    port->stream_destroy(device, stream);
    stream = nullptr;
    close();
  }
};

// Ranks that reach the memory of each other, or not.
class CudaRanks : public CudaGroup, public testing::WithParamInterface<bool> {
 protected:
  void SetUp() override {
    setenv("FAKE_PEERS", GetParam() ? "1" : "0", 1);
    CudaGroup::SetUp();
  }
  void TearDown() override {
    CudaGroup::TearDown();
    unsetenv("FAKE_PEERS");
  }
};

INSTANTIATE_TEST_SUITE_P(By, CudaRanks, testing::Bool(), [](const auto& parameter) {
  return parameter.param ? "TheirMemory" : "NCCL";
});

TEST_P(CudaRanks, ComputesTogether) {
  on_two_ranks([&](uint32_t rank) {
    const float r = static_cast<float>(rank);
    const Vector<float> x = vector<float>(HUSK_F32, {1 + r, 2, 3 - r, 4 + 2 * r});
    const Vector<float> y = vector<float>(HUSK_F32, {0, 0, 0, 0});
    const std::pair<const char*, std::vector<float>> kReduced[] = {{"sum", {3, 4, 5, 10}},
                                                                   {"avg", {1.5, 2, 2.5, 5}},
                                                                   {"product", {2, 4, 6, 24}},
                                                                   {"min", {1, 2, 2, 4}},
                                                                   {"max", {2, 2, 3, 6}}};
    for (const auto& [how, expected] : kReduced) {
      const std::vector<husk_op_arg> args = {x.arg(), text(how), ints(both), y.arg(), token()};
      ASSERT_EQ(call("husk::all_reduce", args, true), HUSK_OK) << error.text;
      ASSERT_EQ(call("husk::all_reduce", args), HUSK_OK) << error.text;
      EXPECT_EQ(values(y), expected) << how;
    }
    const Vector<float> half = vector<float>(HUSK_F32, {0, 0}),
                        twice = vector<float>(HUSK_F32, std::vector<float>(8));
    ASSERT_EQ(call("husk::reduce_scatter_tensor",
                   {x.arg(), text("sum"), ints(both), half.arg(), token()}),
              HUSK_OK)
        << error.text;
    EXPECT_EQ(values(half), rank == 0 ? (std::vector<float>{3, 4}) : (std::vector<float>{5, 10}));
    ASSERT_EQ(call("husk::all_gather_into_tensor", {x.arg(), ints(both), twice.arg(), token()}),
              HUSK_OK)
        << error.text;
    EXPECT_EQ(values(twice), (std::vector<float>{1, 2, 3, 4, 2, 2, 2, 6}));
    ASSERT_EQ(call("husk::broadcast", {x.arg(), integer(1), ints(both), y.arg(), token()}), HUSK_OK)
        << error.text;
    EXPECT_EQ(values(y), (std::vector<float>{2, 2, 2, 6}));
    const std::vector<int64_t> none;
    ASSERT_EQ(call("husk::all_to_all_single",
                   {x.arg(), ints(none), ints(none), ints(both), y.arg(), token()}),
              HUSK_OK)
        << error.text;
    EXPECT_EQ(values(y),
              rank == 0 ? (std::vector<float>{1, 2, 2, 2}) : (std::vector<float>{3, 4, 2, 6}));
    // Rank 0 sends one row to itself and three to rank 1, which sends none to rank 0.
    const std::vector<int64_t> sent = rank == 0 ? std::vector<int64_t>{1, 3} : both;
    const std::vector<int64_t> own = rank == 0 ? std::vector<int64_t>{1, 0}
                                               : std::vector<int64_t>{3, 1};
    const Vector<float> in = rank == 0 ? x : vector<float>(HUSK_F32, {9});
    const Vector<float> out = rank == 0 ? vector<float>(HUSK_F32, {0}) : y;
    ASSERT_EQ(call("husk::all_to_all_single",
                   {in.arg(), ints(own), ints(sent), ints(both), out.arg(), token()}),
              HUSK_OK)
        << error.text;
    EXPECT_EQ(values(out), rank == 0 ? (std::vector<float>{1}) : (std::vector<float>{2, 3, 4, 9}));
    ASSERT_EQ(rank == 0 ? call("husk::send", {x.arg(), integer(1), token()})
                        : call("husk::recv", {integer(0), y.arg(), token()}),
              HUSK_OK)
        << error.text;
    if (rank == 1) {
      EXPECT_EQ(values(y), (std::vector<float>{1, 2, 3, 4}));
    }
    EXPECT_EQ(wait(), HUSK_OK) << error.text;
  });
}

TEST_P(CudaRanks, ReducesOtherTypes) {
  on_two_ranks([&](uint32_t rank) {
    const auto reduce = [&](const char* how, const husk_op_arg& x) {
      return call("husk::all_reduce", {x, text(how), ints(both), x, token()});
    };
    Vector<uint8_t> flags = vector<uint8_t>(HUSK_BOOL, {0, uint8_t(rank), 1});
    ASSERT_EQ(reduce("sum", flags.arg()), HUSK_OK) << error.text;
    EXPECT_EQ(values(flags), (std::vector<uint8_t>{0, 1, 1}));
    EXPECT_EQ(reduce("avg", flags.arg()), HUSK_UNSUPPORTED);
    EXPECT_TRUE(error_says("dtype bool, of which NCCL has no avg")) << error.text;
    const Vector<float> pairs = vector<float>(HUSK_C64, {1, 2 + float(rank)});
    husk_op_arg complex = pairs.arg();
    static constexpr int64_t kOne = 1;
    complex.sizes = &kOne;
    ASSERT_EQ(reduce("sum", complex), HUSK_OK) << error.text;
    EXPECT_EQ(values(pairs), (std::vector<float>{2, 5}));
    EXPECT_EQ(reduce("max", complex), HUSK_UNSUPPORTED);
    const Vector<int16_t> shorts = vector<int16_t>(HUSK_I16, {1});
    EXPECT_EQ(reduce("sum", shorts.arg()), HUSK_UNSUPPORTED);
    const Vector<int64_t> longs = vector<int64_t>(HUSK_I64, {int64_t{1} << 40, -5});
    ASSERT_EQ(reduce("min", longs.arg()), HUSK_OK);
    EXPECT_EQ(values(longs), (std::vector<int64_t>{int64_t{1} << 40, -5}));
    // Nothing is computed of no elements.
    const uint64_t calls = fake().calls("ncclAllReduce");
    Vector<float> empty = vector<float>(HUSK_F32, {1});
    empty.size = 0;
    EXPECT_EQ(reduce("sum", empty.arg()), HUSK_OK) << error.text;
    EXPECT_EQ(fake().calls("ncclAllReduce"), calls);
  });
}

TEST_P(CudaRanks, RefusesWrongArguments) {
  on_two_ranks([&](uint32_t rank) {
    if (rank == 1) return;
    const Vector<float> x = vector<float>(HUSK_F32, {1, 2, 3, 4}), y = x,
                        three = vector<float>(HUSK_F32, {1, 2, 3});
    const Vector<int32_t> other = vector<int32_t>(HUSK_I32, {1, 2, 3, 4});
    const std::vector<int64_t> none, one = {0}, reversed = {1, 0};
    husk_op_arg strided = x.arg();
    const int64_t two = 2, long_one = 2;
    strided.strides = &two;
    strided.sizes = &long_one;
    const auto refused = [&](const char* name, const std::vector<husk_op_arg>& args,
                             husk_status status, const char* words) {
      for (const bool prepares : {true, false}) {
        EXPECT_EQ(call(name, args, prepares), status) << words;
        EXPECT_TRUE(error_says(words)) << error.text;
      }
    };
    const husk_op_arg t = token(), a = x.arg(), b = y.arg(), all = ints(both);
    const char* kReduce = "husk::all_reduce";
    refused(kReduce, {a, text("sum"), all, b}, HUSK_INVALID_ARGUMENT, "4 arguments takes 5");
    refused(kReduce, {a, text("xor"), all, b, t}, HUSK_UNSUPPORTED, "reduce sum, avg, product");
    for (const auto* ranks : {&none, &one, &reversed})
      refused(kReduce, {a, text("sum"), ints(*ranks), b, t}, HUSK_UNSUPPORTED,
              "ranks all ranks in their order");
    refused(kReduce, {a, text("sum"), all, other.arg(), t}, HUSK_INVALID_ARGUMENT,
            "self another dtype or size");
    refused(kReduce, {a, text("sum"), all, three.arg(), t}, HUSK_INVALID_ARGUMENT,
            "self another dtype or size");
    refused(kReduce, {integer(1), text("sum"), all, b, t}, HUSK_INVALID_ARGUMENT,
            "self is not a tensor");
    refused(kReduce, {strided, text("sum"), all, strided, t}, HUSK_INVALID_ARGUMENT,
            "self is not contiguous");
    refused("husk::all_gather_into_tensor", {a, all, b, t}, HUSK_INVALID_ARGUMENT,
            "out as large as the parts");
    refused("husk::reduce_scatter_tensor", {a, text("sum"), all, b, t}, HUSK_INVALID_ARGUMENT,
            "self as large as the parts");
    refused("husk::broadcast", {a, integer(2), all, b, t}, HUSK_INVALID_ARGUMENT,
            "source is not a rank");
    refused("husk::send", {a, integer(-1), t}, HUSK_INVALID_ARGUMENT, "to is not a rank");
    refused("husk::recv", {integer(2), b, t}, HUSK_INVALID_ARGUMENT, "from is not a rank");
    refused("husk::all_to_all_single", {a, ints(none), ints(one), all, b, t}, HUSK_INVALID_ARGUMENT,
            "input_sizes no size for each rank");
    const std::vector<int64_t> few = {1, 2}, many = {5, -1};
    for (const auto* sizes : {&few, &many})
      refused("husk::all_to_all_single", {a, ints(*sizes), ints(none), all, b, t},
              HUSK_INVALID_ARGUMENT, "output_sizes add up");
    husk_op_arg crooked = a;
    crooked.data = static_cast<char*>(crooked.data) + 1;
    EXPECT_EQ(call(kReduce, {crooked, text("sum"), all, b, t}), HUSK_INVALID_ARGUMENT);
    EXPECT_TRUE(error_says("argument 0 is not aligned")) << error.text;
  });
}

TEST_P(CudaRanks, Agrees) {
  on_two_ranks([&](uint32_t rank) {
    uint8_t bytes[32] = {7};
    EXPECT_EQ(port->agree(device, bytes, &error), HUSK_OK) << error.text;
    bytes[31] = static_cast<uint8_t>(rank);
    EXPECT_EQ(port->agree(device, bytes, &error), HUSK_INVALID_ARGUMENT);
    EXPECT_TRUE(error_says("have different ones")) << error.text;
    EXPECT_EQ(sum(), HUSK_OK) << error.text;
    EXPECT_EQ(wait(), HUSK_OK) << error.text;
  });
}

TEST_F(CudaGroup, ARankThatIsGoneEndsTheWait) {
  setenv("FAKE_NCCL_TIMEOUT", "300", 1);
  on_two_ranks([&](uint32_t rank) {
    ASSERT_EQ(sum(), HUSK_OK) << error.text;
    ASSERT_EQ(wait(), HUSK_OK) << error.text;
    if (rank == 1) return;
    ASSERT_EQ(sum(), HUSK_OK) << error.text;
    EXPECT_EQ(wait(), HUSK_DEVICE);
    EXPECT_TRUE(error_says("the wait for a stream: another rank has failed: remote error"))
        << error.text;
    EXPECT_EQ(sum(), HUSK_DEVICE);
    EXPECT_TRUE(error_says("the group of ranks is of no more use")) << error.text;
    EXPECT_EQ(port->agree(device, id.bytes, &error), HUSK_DEVICE);
    EXPECT_EQ(wait(), HUSK_DEVICE);
  });
  unsetenv("FAKE_NCCL_TIMEOUT");
}

TEST_P(CudaRanks, AWaitHasADeadline) {
  on_rank_0_with_endless_work([&] {
    const Vector<float> x = vector<float>(HUSK_F32, {1, 2});
    ASSERT_EQ(sum(), HUSK_OK) << error.text;
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(wait(), HUSK_DEVICE);
    EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(kShort));
    expect_late();
    EXPECT_EQ(wait(), HUSK_DEVICE);
    EXPECT_TRUE(error_says("the wait for a stream: the group of ranks is of no more use"))
        << error.text;
    EXPECT_EQ(sum(), HUSK_DEVICE);
    EXPECT_TRUE(error_says("husk::all_reduce: the group of ranks is of no more use")) << error.text;
    EXPECT_EQ(port->agree(device, id.bytes, &error), HUSK_DEVICE);
    // Other work goes on.
    EXPECT_EQ(values(x), (std::vector<float>{1, 2}));
    EXPECT_EQ(fake().calls("ncclCommAbort"), 1u);
  });
}

// The driver would wait for the stream within these calls, for ever.
TEST_P(CudaRanks, CopiesHaveTheDeadline) {
  enum { kDownload, kUpload, kLargeUpload };
  husk_cuda_options options = HUSK_CUDA_OPTIONS_INIT;
  options.staging_bytes = 4096;
  open_with(options);
  for (const int waits : {kDownload, kUpload, kLargeUpload}) {
    SCOPED_TRACE(waits);
    on_rank_0_with_endless_work([&] {
      std::vector<float> content(1 << 20);
      float* const other = device_array(content);
      ASSERT_EQ(sum(), HUSK_OK) << error.text;
      const uint64_t bytes = waits == kLargeUpload ? content.size() * 4 : 64;
      EXPECT_EQ(waits == kDownload
                    ? port->download(device, stream, content.data(), other, bytes, &error)
                    : port->upload(device, stream, other, content.data(), bytes, &error),
                HUSK_DEVICE);
      expect_late();
    });
  }
}

TEST_P(CudaRanks, AgreementHasTheDeadline) {
  on_rank_0_with_endless_work([&] {
    EXPECT_EQ(port->agree(device, id.bytes, &error), HUSK_DEVICE);
    expect_late();
  });
}

TEST_P(CudaRanks, ChecksOfEachCallHaveTheDeadline) {
  husk_cuda_options options = HUSK_CUDA_OPTIONS_INIT;
  options.check_each = 1;
  open_with(options);
  on_rank_0_with_endless_work([&] {
    EXPECT_EQ(sum(), HUSK_DEVICE);
    EXPECT_TRUE(error_says("in husk::all_reduce: the work of a stream")) << error.text;
    expect_late();
  });
}

TEST_P(CudaRanks, GraphsHaveTheDeadline) {
  on_rank_0_with_endless_work([&] {
    const husk_port_graphs& graphs = *port->graphs;
    const Vector<float> x = vector<float>(HUSK_F32, {1, 2});
    void *captured = nullptr, *graph = nullptr, *first = nullptr, *second = nullptr;
    ASSERT_EQ(graphs.graph_create(device, &graph, &error), HUSK_OK) << error.text;
    ASSERT_EQ(graphs.capture_begin(device, stream, &error), HUSK_OK) << error.text;
    ASSERT_EQ(call("husk::all_reduce", {x.arg(), text("sum"), ints(both), x.arg(), token()}),
              HUSK_OK)
        << error.text;
    ASSERT_EQ(graphs.capture_end(device, stream, &captured, &error), HUSK_OK) << error.text;
    ASSERT_EQ(graphs.graph_add_captured(device, graph, captured, nullptr, 0, &error), HUSK_OK);
    graphs.captured_destroy(device, captured);
    ASSERT_EQ(graphs.graph_instantiate(device, graph, &first, &error), HUSK_OK) << error.text;
    ASSERT_EQ(graphs.graph_instantiate(device, graph, &second, &error), HUSK_OK) << error.text;
    ASSERT_EQ(graphs.exec_launch(device, first, stream, &error), HUSK_OK) << error.text;
    graphs.exec_destroy(device, first);  // waits
    expect_one_abort();
    EXPECT_EQ(fake().pending(), 0u);
    // The calls that it has are those of a communicator that is gone.
    EXPECT_EQ(graphs.exec_launch(device, second, stream, &error), HUSK_DEVICE);
    EXPECT_TRUE(error_says("a graph: the group of ranks is of no more use")) << error.text;
    graphs.exec_destroy(device, second);
    graphs.graph_destroy(device, graph);
  });
}

TEST_F(CudaGroup, AFailureOfACallIsThatOfTheGroup) {
  setenv("FAKE_NCCL_TIMEOUT", "300", 1);
  on_two_ranks([&](uint32_t rank) {
    if (rank == 1) return;
    fake().fail_call("ncclAllReduce", 1, cuda::ncclSystemError);
    EXPECT_EQ(sum(), HUSK_DEVICE);
    EXPECT_TRUE(error_says("husk::all_reduce: NCCL: system error (2)")) << error.text;
    EXPECT_EQ(error.driver_code, cuda::ncclSystemError);
    EXPECT_EQ(sum(), HUSK_DEVICE);
    EXPECT_TRUE(error_says("no more use")) << error.text;
  });
  unsetenv("FAKE_NCCL_TIMEOUT");
}

TEST_P(CudaRanks, MissesRanksThatDoNotCome) {
  const uint64_t live = fake().live_objects();
  const int host_live = memory.live;
  setenv("FAKE_NCCL_TIMEOUT", "400", 1);
  EXPECT_EQ(join(0, 2, 100), HUSK_DEVICE);
  EXPECT_TRUE(error_says("ncclCommInitRankConfig: another rank did not come within 100 ms"))
      << error.text;
  ASSERT_EQ(port->group_id(nullptr, &id, &error), HUSK_OK);
  EXPECT_EQ(join(0, 2, 5000), HUSK_DEVICE);  // NCCL gives up before
  EXPECT_TRUE(error_says("ncclCommInitRankConfig: remote error (6)")) << error.text;
  unsetenv("FAKE_NCCL_TIMEOUT");
  EXPECT_EQ(join(2, 2), HUSK_INVALID_ARGUMENT);
  EXPECT_TRUE(error_says("a group of 2 ranks has no rank 2")) << error.text;
  EXPECT_EQ(join(0, 1), HUSK_INVALID_ARGUMENT);
  fake().fail_call("ncclCommInitRankConfig", 1, cuda::ncclInternalError);
  EXPECT_EQ(join(0), HUSK_DEVICE);
  EXPECT_TRUE(error_says("internal error (3)")) << error.text;
  memory.fail_at = 1;
  EXPECT_EQ(join(0), HUSK_OUT_OF_MEMORY);
  memory.fail_at = 0;
  fake().fail_call("ncclGetUniqueId", 1, cuda::ncclSystemError);
  EXPECT_EQ(port->group_id(nullptr, &id, &error), HUSK_DEVICE);
  EXPECT_TRUE(error_says("ncclGetUniqueId: system error")) << error.text;
  EXPECT_EQ(fake().live_objects(), live);
  EXPECT_EQ(memory.live, host_live);
}

TEST_F(CudaGroup, OpsNeedAGroup) {
  EXPECT_EQ(sum(), HUSK_INVALID_ARGUMENT);
  EXPECT_TRUE(error_says("the program is for several ranks, and the engine has joined no group"))
      << error.text;
}

TEST_F(CudaGroup, ALibraryThatIsMissing) {
  husk_cuda_options options = HUSK_CUDA_OPTIONS_INIT;
  options.nccl = "/nowhere/libnccl.so.2";
  open_with(options);
  EXPECT_EQ(join(0), HUSK_UNSUPPORTED);
  EXPECT_TRUE(error_says("no NCCL /nowhere/libnccl.so.2 install NVIDIA's NCCL 2")) << error.text;
  EXPECT_EQ(port->group_id(&options, &id, &error), HUSK_UNSUPPORTED);
  options.nccl = "libcuda.so.1";
  open_with(options);
  EXPECT_EQ(join(0), HUSK_UNSUPPORTED);
  EXPECT_TRUE(error_says("this NCCL has no ncclGetUniqueId")) << error.text;
}

// A communicator that the application has made.
TEST_P(CudaRanks, TakesACommunicator) {
  void* library = dlopen("libnccl.so.2", RTLD_NOW);
  ASSERT_NE(library, nullptr) << dlerror();
  cuda::Nccl nccl{};
  const auto find = [library](auto& function, const char* name) {
    void* const found = dlsym(library, name);
    std::memcpy(&function, &found, sizeof found);
  };
  find(nccl.ncclCommInitRankConfig, "ncclCommInitRankConfig");
  find(nccl.ncclCommGetAsyncError, "ncclCommGetAsyncError");
  find(nccl.ncclCommDestroy, "ncclCommDestroy");
  const pid_t child = fork();
  const uint32_t rank = child == 0;
  cuda::ncclUniqueId unique;
  std::memcpy(&unique, &id, sizeof unique);
  cuda::ncclConfig_t config = cuda::kNcclConfig;
  cuda::ncclComm_t comm = nullptr;
  void* entered = nullptr;
  ASSERT_EQ(port->enter(device, &entered, &error), HUSK_OK);
  cuda::ncclResult_t state = nccl.ncclCommInitRankConfig(&comm, 2, unique, int(rank), &config);
  while (state == cuda::ncclInProgress) nccl.ncclCommGetAsyncError(comm, &state);
  port->leave(entered);
  ASSERT_EQ(state, cuda::ncclSuccess);
  husk_cuda_options options = HUSK_CUDA_OPTIONS_INIT;
  options.nccl_comm = comm;
  open_with(options);
  EXPECT_EQ(join(1 - rank), HUSK_INVALID_ARGUMENT);
  EXPECT_TRUE(error_says("husk_cuda_options.nccl_comm is rank of 2, the engine rank"))
      << error.text;
  EXPECT_EQ(join(rank, 3), HUSK_INVALID_ARGUMENT);
  ASSERT_EQ(join(rank), HUSK_OK) << error.text;
  EXPECT_EQ(sum(), HUSK_OK) << error.text;
  EXPECT_EQ(wait(), HUSK_OK) << error.text;
  free_memory();
  port->stream_destroy(device, stream);
  stream = nullptr;
  close();
  EXPECT_EQ(fake().calls("ncclCommDestroy") + fake().calls("ncclCommAbort"), 0u);
  ASSERT_EQ(open(), HUSK_OK);
  ASSERT_EQ(port->enter(device, &entered, &error), HUSK_OK);
  nccl.ncclCommDestroy(comm);
  port->leave(entered);
  if (child == 0) {
    fflush(nullptr);
    _exit(HasFailure());
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

class CudaPeers : public CudaGroup {
 protected:
  void SetUp() override {
    setenv("FAKE_PEERS", "1", 1);
    CudaGroup::SetUp();
  }
  void TearDown() override {
    CudaGroup::TearDown();
    unsetenv("FAKE_PEERS");
  }
  bool has_peers() { return cuda::as_device(device).group->peers.world > 0; }
  uint64_t calls_of_nccl() {
    return fake().calls("ncclAllReduce") + fake().calls("ncclAllGather") +
           fake().calls("ncclReduceScatter");
  }
};

// All sizes, types and reductions that the kernel has, from addresses of any alignment.
TEST_F(CudaPeers, ExchangesWithoutNccl) {
  on_two_ranks([&](uint32_t rank) {
    ASSERT_TRUE(has_peers());
    const uint64_t calls = calls_of_nccl();
    for (const int64_t size : {1, 2, 3, 5, 8, 511, 1025, 30001, 200001}) {
      for (const int64_t begin : {0, 1}) {
        std::vector<float> content(static_cast<size_t>(size + begin));
        for (size_t i = 0; i < content.size(); ++i)
          content[i] = static_cast<float>(i % 7 + 1) * (rank == 0 ? 1.f : -2.f);
        Vector<float> x = vector<float>(HUSK_F32, content);
        const Vector<float> whole = x;
        x.memory += begin;
        x.size = size;
        ASSERT_EQ(call("husk::all_reduce", {x.arg(), text("sum"), ints(both), x.arg(), token()}),
                  HUSK_OK)
            << error.text;
        const std::vector<float> sums = values(whole);
        for (size_t i = 0; i < sums.size(); ++i)
          ASSERT_EQ(sums[i], i < static_cast<size_t>(begin) ? content[i] : -float(i % 7 + 1))
              << size << " " << i;
      }
    }
    const Vector<uint16_t> halves = vector<uint16_t>(HUSK_F16, {0x3C00, 0x4000, 0x4200}),  // 1 2 3
        brains = vector<uint16_t>(HUSK_BF16, {0x3F80, 0x4000, 0x4040});
    for (const auto* x : {&halves, &brains})
      ASSERT_EQ(
          call("husk::all_reduce", {x->arg(), text("product"), ints(both), x->arg(), token()}),
          HUSK_OK)
          << error.text;
    EXPECT_EQ(values(halves), (std::vector<uint16_t>{0x3C00, 0x4400, 0x4880}));
    EXPECT_EQ(values(brains), (std::vector<uint16_t>{0x3F80, 0x4080, 0x4110}));
    // Parts of odd sizes.
    const Vector<uint8_t> three = vector<uint8_t>(HUSK_U8, {1, 2, static_cast<uint8_t>(rank)}),
                          six = vector<uint8_t>(HUSK_U8, {9, 9, 9, 9, 9, 9});
    ASSERT_EQ(call("husk::all_gather_into_tensor", {three.arg(), ints(both), six.arg(), token()}),
              HUSK_OK)
        << error.text;
    EXPECT_EQ(values(six), (std::vector<uint8_t>{1, 2, 0, 1, 2, 1}));
    const Vector<float> in = vector<float>(HUSK_F32, {1, 2, 3, 4, 5, 6}),
                        out = vector<float>(HUSK_F32, {0, 0, 0});
    ASSERT_EQ(call("husk::reduce_scatter_tensor",
                   {in.arg(), text("avg"), ints(both), out.arg(), token()}),
              HUSK_OK)
        << error.text;
    EXPECT_EQ(values(out),
              rank == 0 ? (std::vector<float>{1, 2, 3}) : (std::vector<float>{4, 5, 6}));
    EXPECT_EQ(calls_of_nccl(), calls);
    EXPECT_EQ(wait(), HUSK_OK) << error.text;
  });
  EXPECT_EQ(fake().calls("cuIpcCloseMemHandle"), 1u);
}

TEST_F(CudaPeers, LargeTensorsAndOtherTypesGoThroughNccl) {
  on_two_ranks([&](uint32_t) {
    ASSERT_TRUE(has_peers());
    uint64_t calls = fake().calls("ncclAllReduce");
    EXPECT_EQ(sum(1 << 18), HUSK_OK) << error.text;
    EXPECT_EQ(fake().calls("ncclAllReduce"), calls);
    EXPECT_EQ(sum((1 << 18) + 1), HUSK_OK) << error.text;
    EXPECT_EQ(fake().calls("ncclAllReduce"), ++calls);
    const Vector<int32_t> x = vector<int32_t>(HUSK_I32, {1});
    EXPECT_EQ(call("husk::all_reduce", {x.arg(), text("sum"), ints(both), x.arg(), token()}),
              HUSK_OK);
    EXPECT_EQ(values(x), (std::vector<int32_t>{2}));
    EXPECT_EQ(fake().calls("ncclAllReduce"), ++calls);
    EXPECT_EQ(wait(), HUSK_OK) << error.text;
  });
}

// What one rank lacks, no rank uses; whatever it has taken before is given back.
TEST_F(CudaPeers, DoWithoutEachOther) {
  for (const char* function :
       {"cuIpcGetMemHandle", "cuIpcOpenMemHandle", "cuKernelGetFunction", "cuMemsetD8Async",
        "cuMemAllocHost", "cuMemHostGetDevicePointer", "cuLibraryGetKernel", "cuLibraryLoadData"}) {
    SCOPED_TRACE(function);
    fake().reset();
    ASSERT_EQ(port->group_id(nullptr, &id, &error), HUSK_OK) << error.text;
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    const uint32_t rank = child == 0;
    if (rank == 0) fake().fail_call(function, 1, cuda::CUDA_ERROR_NOT_SUPPORTED);
    ASSERT_EQ(join(rank), HUSK_OK) << error.text;
    EXPECT_EQ(fake().failed(), rank == 0);
    EXPECT_FALSE(has_peers());
    EXPECT_EQ(sum(), HUSK_OK) << error.text;
    EXPECT_EQ(wait(), HUSK_OK) << error.text;
    free_memory();
    port->stream_destroy(device, stream);
    stream = nullptr;
    close();
    EXPECT_EQ(fake().live_objects(), 0u);
    if (rank == 1) {
      fflush(nullptr);
      _exit(HasFailure());
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
    ASSERT_EQ(open(), HUSK_OK) << error.text;
    ASSERT_EQ(port->stream_create(device, &stream, &error), HUSK_OK) << error.text;
  }
}

TEST_F(CudaPeers, CanBeSwitchedOff) {
  husk_cuda_options options = HUSK_CUDA_OPTIONS_INIT;
  options.no_peer_memory = 1;
  open_with(options);
  on_two_ranks([&](uint32_t) {
    EXPECT_FALSE(has_peers());
    EXPECT_EQ(sum(), HUSK_OK) << error.text;
    EXPECT_EQ(fake().calls("ncclAllReduce"), 1u);
    EXPECT_EQ(wait(), HUSK_OK) << error.text;
  });
}

// Ranks that have no NCCL, and meet in shared memory of the machine.
class CudaWithoutNccl : public CudaPeers {
 protected:
  void SetUp() override {
    CudaPeers::SetUp();
    if (IsSkipped()) return;
    ASSERT_EQ(cuda::make_meeting_id(&id, &error), HUSK_OK) << error.text;
  }
  void TearDown() override {
    EXPECT_EQ(fake().calls("ncclCommInitRankConfig"), 0u);
    CudaPeers::TearDown();
  }
};

TEST_F(CudaWithoutNccl, ComputesTogether) {
  on_two_ranks([&](uint32_t rank) {
    // As long as three exchanges of the kernel's, and a part of one.
    const size_t size = 3 * (1 << 18) + 5;
    Vector<float> x = vector<float>(HUSK_F32, std::vector<float>(size, 1 + float(rank)));
    for (const char* how : {"sum", "max", "min", "product", "avg"}) {
      const Vector<float> y = vector<float>(HUSK_F32, std::vector<float>(size));
      ASSERT_EQ(call("husk::all_reduce", {x.arg(), text(how), ints(both), y.arg(), token()}),
                HUSK_OK)
          << error.text;
      const float right = *how == 's' ? 3 : *how == 'a' ? 1.5f : strcmp(how, "min") == 0 ? 1 : 2;
      EXPECT_EQ(values(y), std::vector<float>(size, right)) << how;
    }
    const Vector<int64_t> four = vector<int64_t>(HUSK_I64, {1, 2, 3 + int64_t(rank), 4}),
                          other = vector<int64_t>(HUSK_I64, {0, 0, 0, 0}),
                          eight = vector<int64_t>(HUSK_I64, std::vector<int64_t>(8));
    const std::vector<int64_t> none;
    ASSERT_EQ(call("husk::all_to_all_single",
                   {four.arg(), ints(none), ints(none), ints(both), other.arg(), token()}),
              HUSK_OK)
        << error.text;
    EXPECT_EQ(values(other),
              rank == 0 ? (std::vector<int64_t>{1, 2, 1, 2}) : (std::vector<int64_t>{3, 4, 4, 4}));
    ASSERT_EQ(call("husk::all_gather_into_tensor", {four.arg(), ints(both), eight.arg(), token()}),
              HUSK_OK)
        << error.text;
    EXPECT_EQ(values(eight), (std::vector<int64_t>{1, 2, 3, 4, 1, 2, 4, 4}));
    EXPECT_EQ(wait(), HUSK_OK) << error.text;
  });
}

TEST_F(CudaWithoutNccl, RefusesWhatItCannotDo) {
  on_two_ranks([&](uint32_t rank) {
    if (rank == 1) return;
    const Vector<int32_t> x = vector<int32_t>(HUSK_I32, {1, 2, 3, 4});
    const std::vector<int64_t> uneven = {1, 3};
    const auto refused = [&](const char* name, const std::vector<husk_op_arg>& args) {
      for (const bool prepares : {true, false}) {
        EXPECT_EQ(call(name, args, prepares), HUSK_UNSUPPORTED) << name;
        EXPECT_TRUE(error_says("of i32: ranks without NCCL reduce f32, f16 and bf16"))
            << error.text;
      }
    };
    const husk_op_arg t = token(), a = x.arg(), all = ints(both);
    refused("husk::all_reduce", {a, text("sum"), all, a, t});
    refused("husk::broadcast", {a, integer(1), all, a, t});
    refused("husk::all_to_all_single", {a, ints(uneven), ints(uneven), all, a, t});
    refused("husk::send", {a, integer(1), t});
  });
}

TEST_F(CudaWithoutNccl, Agrees) {
  on_two_ranks([&](uint32_t rank) {
    uint8_t bytes[32] = {7};
    for (int i = 0; i < 5; ++i)
      EXPECT_EQ(port->agree(device, bytes, &error), HUSK_OK) << error.text;
    bytes[31] = static_cast<uint8_t>(rank);
    EXPECT_EQ(port->agree(device, bytes, &error), HUSK_INVALID_ARGUMENT);
    EXPECT_TRUE(error_says("have different ones")) << error.text;
    EXPECT_EQ(sum(), HUSK_OK) << error.text;
    EXPECT_EQ(wait(), HUSK_OK) << error.text;
  });
}

TEST_F(CudaWithoutNccl, AWaitHasADeadline) {
  on_two_ranks([&](uint32_t rank) {
    ASSERT_EQ(sum(), HUSK_OK) << error.text;
    ASSERT_EQ(wait(), HUSK_OK) << error.text;
    cuda::as_device(device).group->timeout_ms = kShort;
    if (rank == 1) return;
    setenv("FAKE_NCCL_STALL", "1", 1);
    ASSERT_EQ(sum(), HUSK_OK) << error.text;
    EXPECT_EQ(wait(), HUSK_DEVICE);
    EXPECT_TRUE(error_says("did not end within 200 ms, and was ended: another rank is late"))
        << error.text;
    EXPECT_EQ(fake().pending(), 0u);
    EXPECT_EQ(sum(), HUSK_DEVICE);
    EXPECT_TRUE(error_says("the group of ranks is of no more use")) << error.text;
    EXPECT_EQ(port->agree(device, id.bytes, &error), HUSK_DEVICE);
    EXPECT_TRUE(error_says("the group of ranks is of no more use")) << error.text;
    unsetenv("FAKE_NCCL_STALL");
  });
  EXPECT_EQ(fake().live_objects(), 0u);
}

TEST_F(CudaWithoutNccl, MissesRanksThatDoNotCome) {
  const uint64_t live = fake().live_objects();
  const int host_live = memory.live;
  EXPECT_EQ(join(0, 2, 100), HUSK_DEVICE);
  EXPECT_TRUE(error_says("rank 1 did not come within 100 ms husk_engine_options.group_timeout_ms"))
      << error.text;
  EXPECT_EQ(join(0, 9), HUSK_UNSUPPORTED);
  EXPECT_TRUE(error_says("a group of 9 ranks without NCCL: it has at most 8")) << error.text;
  // Another world, and a rank that is there already.
  for (const uint32_t rank : {1u, 0u}) {
    ASSERT_EQ(cuda::make_meeting_id(&id, &error), HUSK_OK);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    const husk_status status = child == 0 ? join(0, 2, 1000) : join(rank, 2 + rank, 1000);
    const char* words = rank == 1 ? "has a world of" : "joined with this id already";
    const bool is_named = strstr(error.text, words);
    // One finds the fault, and the other one may wait in vain.
    if (child == 0) _exit(status == HUSK_OK ? 2 : is_named);
    int ended = 0;
    waitpid(child, &ended, 0);
    ASSERT_TRUE(WIFEXITED(ended) && WEXITSTATUS(ended) != 2);
    EXPECT_NE(status, HUSK_OK);
    EXPECT_TRUE(is_named || WEXITSTATUS(ended) == 1) << error.text;
  }
  EXPECT_EQ(fake().live_objects(), live);
  EXPECT_EQ(memory.live, host_live);
}

TEST_F(CudaWithoutNccl, NeedsTheMemoryOfTheOthers) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  fake().fail_call("cuIpcOpenMemHandle", 1, cuda::CUDA_ERROR_NOT_SUPPORTED);
  const husk_status status = join(child == 0);
  EXPECT_EQ(status, HUSK_UNSUPPORTED);
  EXPECT_TRUE(error_says("their devices do not reach the memory of each other; install NVIDIA's"))
      << error.text;
  if (child == 0) {
    fflush(nullptr);
    _exit(HasFailure());
  }
  int ended = 0;
  waitpid(child, &ended, 0);
  EXPECT_TRUE(WIFEXITED(ended) && WEXITSTATUS(ended) == 0) << ended;
}

}  // namespace husk::port_test
