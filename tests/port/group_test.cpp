// The ops that ranks compute together, on a fake NCCL.
#include <dlfcn.h>

#include "group_case.h"

namespace husk::port_test {

class CudaRanks : public CudaGroup, public testing::WithParamInterface<bool> {
 protected:
  void SetUp() override {
    setenv("FAKE_PEERS", GetParam() ? "1" : "0", 1);
    CudaGroup::SetUp();
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

// Sizes for the kernel of the port, and one for NCCL.
TEST_P(CudaRanks, AddsAResidual) {
  on_two_ranks([&](uint32_t rank) {
    for (const int64_t size : {1, 2, 3, 8, 511, 1025, 30001, 200001, (1 << 18) + 3})
      expect_residual(rank, size);
    expect_two_roundings(rank, HUSK_F16, 0x6800, 0x3C00);   // 2048 and 1
    expect_two_roundings(rank, HUSK_BF16, 0x4380, 0x3F80);  // 256 and 1
    EXPECT_EQ(wait(), HUSK_OK) << error.text;
  });
}

TEST_P(CudaRanks, RefusesAWrongResidual) {
  on_two_ranks([&](uint32_t rank) {
    if (rank == 1) return;
    const Vector<float> x = vector<float>(HUSK_F32, {1, 2, 3}),
                        two = vector<float>(HUSK_F32, {1, 2});
    const Vector<double> large = vector<double>(HUSK_F64, {1, 2, 3});
    const auto refused = [&](const husk_op_arg& self, const husk_op_arg& residual,
                             husk_status status, const char* words) {
      for (const bool prepares : {true, false}) {
        EXPECT_EQ(call("husk::all_reduce", {self, text("sum"), ints(both), self, token(), residual},
                       prepares),
                  status);
        EXPECT_TRUE(error_says(words)) << error.text;
      }
    };
    refused(x.arg(), two.arg(), HUSK_INVALID_ARGUMENT, "residual another dtype or size");
    refused(x.arg(), large.arg(), HUSK_INVALID_ARGUMENT, "residual another dtype or size");
    refused(x.arg(), integer(1), HUSK_INVALID_ARGUMENT, "residual is not a tensor");
    refused(large.arg(), large.arg(), HUSK_UNSUPPORTED, "residual is not f32, f16 or bf16, or");
    EXPECT_EQ(call("husk::all_reduce",
                   {x.arg(), text("sum"), ints(both), x.arg(), token(), x.arg(), x.arg()}),
              HUSK_INVALID_ARGUMENT);
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
    const std::vector<int64_t> none, twice = {0, 0}, others = {1}, beyond = {0, 2};
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
    for (const auto* ranks : {&none, &twice, &others, &beyond})
      refused(kReduce, {a, text("sum"), ints(*ranks), b, t}, HUSK_INVALID_ARGUMENT,
              "ranks must be different ranks of the group, with this one among them");
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
    refused("husk::all_to_all_single", {a, ints(none), ints(others), all, b, t},
            HUSK_INVALID_ARGUMENT, "input_sizes no size for each rank");
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
  on_two_ranks([&](uint32_t rank) { expect_agreement(rank); });
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

TEST_P(CudaRanks, AWaitCanBeCancelled) {
  on_rank_0_with_endless_work([&] {
    expect_cancel();
    expect_one_abort();
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

TEST_P(CudaRanks, WaitsForEventsHaveTheDeadline) {
  on_rank_0_with_endless_work([&] {
    void* event = nullptr;
    ASSERT_EQ(port->event_create(device, &event, &error), HUSK_OK) << error.text;
    ASSERT_EQ(port->event_record(device, event, stream, &error), HUSK_OK) << error.text;
    EXPECT_EQ(port->event_wait(device, event, &error), HUSK_OK) << error.text;
    ASSERT_EQ(sum(), HUSK_OK) << error.text;
    EXPECT_EQ(port->event_wait(device, event, &error), HUSK_OK) << error.text;
    ASSERT_EQ(port->event_record(device, event, stream, &error), HUSK_OK) << error.text;
    EXPECT_EQ(port->event_wait(device, event, &error), HUSK_DEVICE);
    expect_late();
    port->event_destroy(device, event);
  });
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
  leave();
  EXPECT_EQ(fake().calls("ncclCommDestroy") + fake().calls("ncclCommAbort"), 0u);
  ASSERT_EQ(open(), HUSK_OK);
  ASSERT_EQ(port->enter(device, &entered, &error), HUSK_OK);
  nccl.ncclCommDestroy(comm);
  port->leave(entered);
  end_of(child);
}

}  // namespace husk::port_test
