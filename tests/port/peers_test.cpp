// Exchanges through the memory of other ranks, with NCCL beside them and without it.
#include "group_case.h"

namespace husk::port_test {

class CudaPeers : public CudaGroup {
 protected:
  void SetUp() override {
    setenv("FAKE_PEERS", "1", 1);
    CudaGroup::SetUp();
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
    for (const int64_t size : {1, 2, 3, 5, 8, 511, 1025, 30000, 30001, 60000, 131073, 200001}) {
      // Also where the ranks have addresses of different alignment, and so different kernels.
      for (const int64_t begin : {int64_t{0}, int64_t{1}, int64_t{rank}}) {
        std::vector<float> content(static_cast<size_t>(size + begin));
        const auto of_element = [begin](size_t i) {
          return static_cast<float>((i + 7 - static_cast<size_t>(begin)) % 7 + 1);
        };
        for (size_t i = 0; i < content.size(); ++i)
          content[i] = of_element(i) * (rank == 0 ? 1.f : -2.f);
        Vector<float> x = vector<float>(HUSK_F32, content);
        const Vector<float> whole = x;
        x.memory += begin;
        x.size = size;
        ASSERT_EQ(call("husk::all_reduce", {x.arg(), text("sum"), ints(both), x.arg(), token()}),
                  HUSK_OK)
            << error.text;
        const std::vector<float> sums = values(whole);
        for (size_t i = 0; i < sums.size(); ++i)
          ASSERT_EQ(sums[i], i < static_cast<size_t>(begin) ? content[i] : -of_element(i))
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

// The kernel of pairs: more chunks than a block has slots, sizes that leave some blocks a chunk
// less, the last one short, and addresses of any alignment; again and again with the same slots.
TEST_F(CudaPeers, ExchangeLargeTensors) {
  on_two_ranks([&](uint32_t rank) {
    const uint64_t calls = calls_of_nccl();
    const std::pair<int64_t, int64_t> cases[] = {
        {1 << 18, 0}, {1 << 18, 1}, {11 * (1 << 19) + 4097, 1}, {700'003, 0}};
    for (const auto& [size, begin] : cases) {
      std::vector<float> content(static_cast<size_t>(size + begin)), sums = content;
      for (size_t i = 0; i < content.size(); ++i) {
        const auto number = static_cast<float>(i % 1021);
        content[i] = number * (rank == 0 ? 1.f : -2.f);
        sums[i] = i < static_cast<size_t>(begin) ? content[i] : -number;
      }
      Vector<float> x = vector<float>(HUSK_F32, content);
      const Vector<float> whole = x;
      x.memory += begin;
      x.size = size;
      ASSERT_EQ(call("husk::all_reduce", {x.arg(), text("sum"), ints(both), x.arg(), token()}),
                HUSK_OK)
          << error.text;
      // A comparison of all elements at once, since there are millions.
      ASSERT_TRUE(values(whole) == sums) << size << " from " << begin;
    }
    // Parts of an odd size.
    const size_t part = 600'001;
    const Vector<uint8_t> own = vector<uint8_t>(HUSK_U8,
                                                std::vector<uint8_t>(part, uint8_t(5 + rank)));
    const Vector<uint8_t> all = vector<uint8_t>(HUSK_U8, std::vector<uint8_t>(2 * part));
    std::vector<uint8_t> right(part, 5);
    right.resize(2 * part, 6);
    ASSERT_EQ(call("husk::all_gather_into_tensor", {own.arg(), ints(both), all.arg(), token()}),
              HUSK_OK)
        << error.text;
    EXPECT_EQ(values(all), right);
    // Each rank reduces one of the two parts of a tensor.
    std::vector<uint16_t> halves(part, 0x3C00);            // 1
    halves.resize(2 * part, rank == 0 ? 0x4000 : 0x4200);  // 2, 3
    const Vector<uint16_t> in = vector<uint16_t>(HUSK_F16, halves),
                           out = vector<uint16_t>(HUSK_F16, std::vector<uint16_t>(part));
    ASSERT_EQ(call("husk::reduce_scatter_tensor",
                   {in.arg(), text("product"), ints(both), out.arg(), token()}),
              HUSK_OK)
        << error.text;
    EXPECT_EQ(values(out), std::vector<uint16_t>(part, rank == 0 ? 0x3C00 : 0x4600));  // 1, 6
    EXPECT_EQ(calls_of_nccl(), calls);
    EXPECT_EQ(wait(), HUSK_OK) << error.text;
  });
}

// The residual is added by the kernels that exchange.
TEST_F(CudaPeers, AddTheResidualInOneKernel) {
  on_two_ranks([&](uint32_t rank) {
    const uint64_t kernels = fake().calls("cuLaunchKernel");
    const uint64_t calls = fake().calls("ncclAllReduce");
    expect_residual(rank, 1025);
    EXPECT_EQ(fake().calls("cuLaunchKernel"), kernels + 4);
    EXPECT_EQ(fake().calls("ncclAllReduce"), calls);
    expect_residual(rank, (1 << 18) + 3);
    EXPECT_EQ(fake().calls("cuLaunchKernel"), kernels + 8);
    EXPECT_EQ(fake().calls("ncclAllReduce"), calls);
    EXPECT_EQ(wait(), HUSK_OK) << error.text;
  });
}

TEST_F(CudaPeers, OtherTypesGoThroughNccl) {
  on_two_ranks([&](uint32_t) {
    ASSERT_TRUE(has_peers());
    uint64_t calls = fake().calls("ncclAllReduce");
    EXPECT_EQ(sum((1 << 18) + 1), HUSK_OK) << error.text;
    EXPECT_EQ(fake().calls("ncclAllReduce"), calls);
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
    leave();
    EXPECT_EQ(fake().live_objects(), 0u);
    end_of(child);
    ASSERT_EQ(open(), HUSK_OK) << error.text;
    ASSERT_EQ(port->stream_create(device, &stream, &error), HUSK_OK) << error.text;
  }
}

TEST_F(CudaPeers, CanBeSwitchedOff) {
  husk_cuda_options options = HUSK_CUDA_OPTIONS_INIT;
  options.no_peer_memory = 1;
  open_with(options);
  on_two_ranks([&](uint32_t rank) {
    EXPECT_FALSE(has_peers());
    EXPECT_EQ(sum(), HUSK_OK) << error.text;
    EXPECT_EQ(fake().calls("ncclAllReduce"), 1u);
    expect_residual(rank, 5);
    EXPECT_EQ(fake().calls("ncclAllReduce"), 5u);
    EXPECT_EQ(wait(), HUSK_OK) << error.text;
  });
}

// Ranks that have no NCCL, and meet in shared memory of the machine.
class CudaWithoutNccl : public CudaPeers {
 protected:
  void SetUp() override {
    CudaPeers::SetUp();
    if (IsSkipped()) return;
    ASSERT_EQ(cuda::make_meeting_id(&id, false, &error), HUSK_OK) << error.text;
  }
  void TearDown() override {
    if (!IsSkipped()) {
      EXPECT_EQ(fake().calls("ncclCommInitRankConfig"), 0u);
    }
    CudaPeers::TearDown();
  }
};

TEST_F(CudaWithoutNccl, ComputesTogether) {
  on_two_ranks([&](uint32_t rank) {
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
    expect_residual(rank, static_cast<int64_t>(size));
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
  on_two_ranks([&](uint32_t) {
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
    for (uint8_t i = 0; i < 4; ++i) {
      const uint8_t bytes[32] = {i};
      EXPECT_EQ(port->agree(device, bytes, &error), HUSK_OK) << error.text;
    }
    expect_agreement(rank);
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

TEST_F(CudaWithoutNccl, AWaitCanBeCancelled) {
  on_two_ranks([&](uint32_t rank) {
    is_cancelled = true;  // this is asked while a wait lasts, and no work makes it wait
    ASSERT_EQ(wait(), HUSK_OK) << error.text;
    is_cancelled = false;
    if (rank == 1) return;
    setenv("FAKE_NCCL_STALL", "1", 1);
    expect_cancel();
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
    ASSERT_EQ(cuda::make_meeting_id(&id, false, &error), HUSK_OK);
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
  end_of(child);
}

// Ranks of one machine that open NCCL together, when an op is prepared that needs it.
class CudaOfOneMachine : public CudaPeers {
 protected:
  void SetUp() override {
    CudaPeers::SetUp();
    if (IsSkipped()) return;
    husk_cuda_options options = HUSK_CUDA_OPTIONS_INIT;
    options.one_machine = 1;
    ASSERT_EQ(port->group_id(&options, &id, &error), HUSK_OK) << error.text;
  }
  uint64_t communicators() { return fake().calls("ncclCommInitRankConfig"); }
  // Needs NCCL.
  husk_status sum_of_ints() {
    const Vector<int32_t> x = vector<int32_t>(HUSK_I32, {1});
    return call("husk::all_reduce", {x.arg(), text("sum"), ints(both), x.arg(), token()});
  }
};

TEST_F(CudaOfOneMachine, OpenNcclForWhatTheKernelsDoNotDo) {
  on_two_ranks([&](uint32_t) {
    for (const int64_t size : {1 << 18, (1 << 18) + 1}) {
      EXPECT_EQ(sum(size), HUSK_OK) << error.text;
      EXPECT_EQ(communicators(), 0u);
    }
    const Vector<int32_t> x = vector<int32_t>(HUSK_I32, {1});
    for (const bool prepares : {true, false})
      EXPECT_EQ(
          call("husk::all_reduce", {x.arg(), text("sum"), ints(both), x.arg(), token()}, prepares),
          HUSK_OK)
          << error.text;
    EXPECT_EQ(values(x), (std::vector<int32_t>{2}));
    EXPECT_EQ(communicators(), 1u);
    const Vector<int32_t> y = vector<int32_t>(HUSK_I32, {1});
    EXPECT_EQ(call("husk::broadcast", {x.arg(), integer(1), ints(both), y.arg(), token()}), HUSK_OK)
        << error.text;
    EXPECT_EQ(values(y), (std::vector<int32_t>{2}));
    EXPECT_EQ(wait(), HUSK_OK) << error.text;
  });
}

// A rank that has no NCCL decides for all.
TEST_F(CudaOfOneMachine, DoWithoutNcclTogether) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  husk_cuda_options options = HUSK_CUDA_OPTIONS_INIT;
  if (child == 0) options.nccl = "/nowhere/libnccl.so.2";
  open_with(options);
  ASSERT_EQ(join(child == 0), HUSK_OK) << error.text;
  EXPECT_EQ(sum((1 << 18) + 1), HUSK_OK) << error.text;
  EXPECT_EQ(sum_of_ints(), HUSK_UNSUPPORTED);
  EXPECT_TRUE(error_says("ranks without NCCL reduce f32, f16 and bf16")) << error.text;
  EXPECT_EQ(communicators(), 0u);
  EXPECT_EQ(wait(), HUSK_OK) << error.text;
  leave();
  EXPECT_EQ(fake().live_objects(), 0u);
  end_of(child);
}

// A rank whose partner does not come to NCCL.
TEST_F(CudaOfOneMachine, AMissingRankHasADeadline) {
  on_two_ranks(
      [&](uint32_t rank) {
        if (rank == 1) {
          std::this_thread::sleep_for(std::chrono::milliseconds(1500));
          return;
        }
        EXPECT_EQ(sum_of_ints(), HUSK_DEVICE);
        EXPECT_TRUE(error_says("rank 1 did not come within")) << error.text;
        EXPECT_EQ(sum(), HUSK_DEVICE);
        EXPECT_TRUE(error_says("no more use")) << error.text;
      },
      1000);
}

// Devices that do not reach each other's memory need NCCL at once.
TEST_F(CudaOfOneMachine, OpenNcclIfTheyDoNotReachEachOther) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  fake().fail_call("cuIpcOpenMemHandle", 1, cuda::CUDA_ERROR_NOT_SUPPORTED);
  ASSERT_EQ(join(child == 0), HUSK_OK) << error.text;
  EXPECT_FALSE(has_peers());
  EXPECT_EQ(communicators(), 1u);
  EXPECT_EQ(sum(), HUSK_OK) << error.text;
  EXPECT_EQ(wait(), HUSK_OK) << error.text;
  leave();
  end_of(child);
}

}  // namespace husk::port_test
