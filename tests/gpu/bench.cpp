// A chain of 100 dependent kernels from a file, as a launch list and as graphs, against the bare
// driver on the same kernels: a loop of cuLaunchKernel, a graph made by hand with full edges, and
// one with programmatic edges. All variants are interleaved in one run. The program prints medians
// of the host's microseconds until the call returns and until the stream is idle.
//   husk_gpu_bench DIR [repeats]      DIR has chain.husk and the cubins
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>

#include "gpu.h"

using namespace husk::gpu;

namespace {

constexpr int kLength = 100;
constexpr int64_t kLargest = 1 << 22;

struct Way {
  std::string name;
  std::function<void()> run;
  std::vector<double> host, total;
};

// The chain by hand: x -> a -> b -> a ... -> y.
struct ByHand {
  Driver& driver;
  CUfunction kernel;
  CUdeviceptr x, y, ping[2];
  int n = 0;
  CUdeviceptr from[kLength], to[kLength];
  CUdeviceptr nothing = 0;
  void* params[kLength][5];

  ByHand(Driver& d, const std::string& dir, const char* name, CUdeviceptr in, CUdeviceptr out,
         CUdeviceptr a, CUdeviceptr b)
      : driver(d), x(in), y(out), ping{a, b} {
    const std::vector<char> cubin = read_file(dir + "/" + name + ".cubin");
    CUmodule module;
    require(driver.cuModuleLoadData_(&module, cubin.data()), "cuModuleLoadData");
    const std::string symbol = std::string(name) == "plain" ? "plain"
                                                            : std::string(name) + "_kernel";
    require(driver.cuModuleGetFunction_(&kernel, module, symbol.c_str()), symbol.c_str());
    for (int i = 0; i < kLength; ++i) {
      from[i] = i == 0 ? x : ping[(i - 1) % 2];
      to[i] = i == kLength - 1 ? y : ping[i % 2];
      void* row[] = {&from[i], &to[i], &n, &nothing, &nothing};
      for (int p = 0; p < 5; ++p) params[i][p] = row[p];
    }
  }
  unsigned grid() const { return static_cast<unsigned>((n + 127) / 128); }
  void loop() {
    for (int i = 0; i < kLength; ++i)
      require(driver.cuLaunchKernel_(kernel, grid(), 1, 1, 128, 1, 1, 0, driver.stream, params[i],
                                     nullptr),
              "launch");
  }
  CUgraphExec graph(bool programmatic) {
    CUgraph graph;
    require(driver.cuGraphCreate_(&graph, 0), "cuGraphCreate");
    CUgraphNode last = nullptr;
    for (int i = 0; i < kLength; ++i) {
      CUgraphNodeParams node = {};
      node.type = CU_GRAPH_NODE_TYPE_KERNEL;
      node.kernel.func = kernel;
      node.kernel.gridDimX = grid();
      node.kernel.gridDimY = node.kernel.gridDimZ = 1;
      node.kernel.blockDimX = 128;
      node.kernel.blockDimY = node.kernel.blockDimZ = 1;
      node.kernel.kernelParams = params[i];
      CUgraphEdgeData edge = {};
      if (programmatic) {
        edge.from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC;
        edge.type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
      }
      CUgraphNode next;
      require(driver.cuGraphAddNode_v2_(&next, graph, i ? &last : nullptr, i ? &edge : nullptr,
                                        i ? 1 : 0, &node),
              "cuGraphAddNode");
      last = next;
    }
    CUgraphExec exec;
    require(driver.cuGraphInstantiateWithFlags_(&exec, graph, 0), "cuGraphInstantiate");
    return exec;
  }
};

// A function of chain.husk in one mode.
std::function<void()> husk_way(Driver& driver, Loaded& loaded, const char* name, int mode,
                               bool full, Vector& x, Vector& y) {
  husk_session* session = loaded.session(mode, full);
  const uint32_t f = loaded.function(name);
  husk_error error;
  husk_value in = x.value();
  require(husk_session_resize(session, f, &in, 1, &error), error);
  return [&driver, session, f, &x, &y] {
    husk_error failure;
    husk_value input = x.value(), output = y.value();
    require(husk_session_run(session, f, driver.stream, &input, 1, &output, 1, &failure), failure);
  };
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) give_up("usage: husk_gpu_bench DIR [repeats]");
  const std::string dir = argv[1];
  const int repeats = argc > 2 ? std::atoi(argv[2]) : 300;
  Driver driver;
  Loaded loaded((dir + "/chain.husk").c_str());
  CUdeviceptr memory[4];
  for (CUdeviceptr& m : memory) m = driver.alloc(kLargest * 4);
  std::vector<float> ones(kLargest, 1.0f), result(kLargest);
  require(driver.cuMemcpyHtoD_v2_(memory[0], ones.data(), kLargest * 4), "upload");
  float expected = 1;
  for (int i = 0; i < kLength; ++i) expected = std::fma(expected, 1.0001f, 0.5f);

  std::printf(
      "%d kernels of 128 threads a block; median of %d; host us / total us; ratios of the total, "
      "in () of the host\n",
      kLength, repeats);
  for (int64_t n :
       {int64_t(128), int64_t(1024), int64_t(132 * 128), int64_t(528 * 128), kLargest}) {
    Vector x(memory[0], n), y(memory[1], n);
    ByHand plain(driver, dir, "plain", memory[0], memory[1], memory[2], memory[3]);
    ByHand waits(driver, dir, "waits", memory[0], memory[1], memory[2], memory[3]);
    ByHand triggers(driver, dir, "triggers", memory[0], memory[1], memory[2], memory[3]);
    plain.n = waits.n = triggers.n = static_cast<int>(n);
    const CUgraphExec graph = plain.graph(false), wait_graph = waits.graph(true),
                      trigger_graph = triggers.graph(true);
    auto launch = [&](CUgraphExec exec) {
      return [&driver, exec] { require(driver.cuGraphLaunch_(exec, driver.stream), "graph"); };
    };
    std::vector<Way> ways;
    ways.push_back({"bare loop of cuLaunchKernel", [&] { plain.loop(); }, {}, {}});
    ways.push_back(
        {"husk list", husk_way(driver, loaded, "plain", HUSK_MODE_LIST, true, x, y), {}, {}});
    ways.push_back({"graph by hand", launch(graph), {}, {}});
    ways.push_back(
        {"husk graph", husk_way(driver, loaded, "plain", HUSK_MODE_GRAPH, true, x, y), {}, {}});
    ways.push_back({"by hand, programmatic, wait", launch(wait_graph), {}, {}});
    ways.push_back({"husk, programmatic, wait",
                    husk_way(driver, loaded, "waits", HUSK_MODE_GRAPH, false, x, y),
                    {},
                    {}});
    ways.push_back({"by hand, programmatic, trigger", launch(trigger_graph), {}, {}});
    ways.push_back({"husk, programmatic, trigger",
                    husk_way(driver, loaded, "triggers", HUSK_MODE_GRAPH, false, x, y),
                    {},
                    {}});
    for (Way& way : ways) {  // Values are checked before times are taken.
      require(driver.cuMemsetD8_v2_(memory[1], 0xFF, static_cast<size_t>(n) * 4), "memset");
      way.run();
      require(driver.cuStreamSynchronize_(driver.stream), "synchronize");
      require(driver.cuMemcpyDtoH_v2_(result.data(), memory[1], static_cast<size_t>(n) * 4),
              "download");
      for (int64_t i = 0; i < n; ++i)
        if (std::fabs(result[static_cast<size_t>(i)] - expected) > 1e-3f * expected)
          give_up(way.name + " is wrong: " + std::to_string(result[static_cast<size_t>(i)]) +
                  ", not " + std::to_string(expected));
    }
    for (int r = 0; r < repeats + 20; ++r)
      for (Way& way : ways) {
        const double start = now();
        way.run();
        const double back = now();
        require(driver.cuStreamSynchronize_(driver.stream), "synchronize");
        const double end = now();
        if (r < 20) continue;
        way.host.push_back(back - start);
        way.total.push_back(end - start);
      }
    std::printf("\nn = %lld, %lld blocks\n", static_cast<long long>(n),
                static_cast<long long>((n + 127) / 128));
    for (size_t i = 0; i < ways.size(); ++i) {
      const double host = median(ways[i].host), total = median(ways[i].total);
      std::printf("  %-32s %8.1f / %8.1f", ways[i].name.c_str(), host, total);
      if (i % 2 == 1)
        std::printf("   %.3f x by hand (%.2f)", total / median(ways[i - 1].total),
                    host / median(ways[i - 1].host));
      else if (i >= 4)
        std::printf("   %.3f x full edges", total / median(ways[2].total));
      std::printf("\n");
    }
  }
  return 0;
}
