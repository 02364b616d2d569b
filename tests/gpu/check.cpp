// Compares branches.husk as a graph with branches.husk as a launch list: results are equal bit for
// bit over runs that change sizes, pointers and scalars. Prints the number of patches and the edges
// of the graph.
//   husk_gpu_check branches.husk [runs]
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>

#include "gpu.h"

using namespace husk::gpu;
using husk::test::floating;
using husk::test::integer;

namespace {

constexpr int64_t kLargest = 1 << 22;
constexpr int kBuffers = 4;

void print_stats(const char* name, husk_session* session, uint32_t function) {
  husk_session_stats s = HUSK_SESSION_STATS_INIT;
  husk_error error;
  require(husk_session_stats_get(session, function, &s, &error), error);
  std::printf(
      "%-24s %3u steps, %3u nodes, %3u edges (%u programmatic), arena %llu, as graph %llu, as list "
      "%llu, patched %llu\n",
      name, s.steps, s.graph_nodes, s.graph_edges, s.programmatic_edges,
      static_cast<unsigned long long>(s.arena_bytes),
      static_cast<unsigned long long>(s.runs_as_graph),
      static_cast<unsigned long long>(s.runs_as_list),
      static_cast<unsigned long long>(s.nodes_patched));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) give_up("usage: husk_gpu_check branches.husk [runs]");
  const int runs = argc > 2 ? std::atoi(argv[2]) : 1000;
  Driver driver;
  Loaded loaded(argv[1]);
  const uint32_t f = loaded.function("branches");
  husk_session* list = loaded.session(HUSK_MODE_LIST, false);
  husk_session* graph = loaded.session(HUSK_MODE_GRAPH, false);
  husk_session* full = loaded.session(HUSK_MODE_GRAPH, true);
  husk_session* sessions[] = {list, graph, full};
  std::mt19937 random(1);
  std::vector<float> host(kLargest), out[3];
  for (float& value : host) value = static_cast<float>(random() % 20001) / 10000 - 1;
  CUdeviceptr in[kBuffers], results[3][kBuffers];
  for (CUdeviceptr& memory : in) {
    memory = driver.alloc(kLargest * 4 + 4096);
    require(driver.cuMemcpyHtoD_v2_(memory, host.data(), kLargest * 4), "upload");
  }
  for (auto& row : results)
    for (CUdeviceptr& memory : row) memory = driver.alloc(kLargest * 4 + 4096);

  husk_error error;
  Vector shape(0, 1000);
  husk_value first[] = {shape.value(), floating(1), integer(1)};
  for (husk_session* session : sessions)
    require(husk_session_resize(session, f, first, 3, &error), error);
  int wrong = 0;
  for (int run = 0; run < runs; ++run) {
    const int64_t n = run % 50 == 7
                          ? 0
                          : 1 + static_cast<int64_t>(random() % (run % 10 == 0 ? kLargest : 5000));
    const double t = static_cast<double>(random() % 1000) / 500;
    const int64_t k = static_cast<int64_t>(random() % 7) - 3;
    const int pick = static_cast<int>(random() % kBuffers);
    const uint64_t shift = random() % 16 * 256;
    for (int s = 0; s < 3; ++s) {
      Vector x(in[pick] + (static_cast<uint64_t>(n) * 4 + shift <= kLargest * 4 ? shift : 0), n),
          y(results[s][pick] + shift, n);
      husk_value inputs[] = {x.value(), floating(t), integer(k)};
      husk_value output = y.value();
      require(husk_session_run(sessions[s], f, driver.stream, inputs, 3, &output, 1, &error),
              error);
    }
    require(driver.cuStreamSynchronize_(driver.stream), "synchronize");
    for (int s = 0; s < 3; ++s) {
      out[s].resize(static_cast<size_t>(n));
      if (n)
        require(driver.cuMemcpyDtoH_v2_(out[s].data(), results[s][pick] + shift,
                                        static_cast<size_t>(n) * 4),
                "download");
      if (n && s > 0 &&
          std::memcmp(out[s].data(), out[0].data(), static_cast<size_t>(n) * 4) != 0 && wrong++ < 5)
        std::printf("run %d: n %lld, session %d differs from the list\n", run,
                    static_cast<long long>(n), s);
    }
    if (n > 0 && run % 100 == 1)
      std::printf("run %4d: n %7lld, t %.3f, k %2lld: y[0] = %g\n", run, static_cast<long long>(n),
                  t, static_cast<long long>(k), static_cast<double>(out[0][0]));
  }
  print_stats("list", list, f);
  print_stats("graph", graph, f);
  print_stats("graph, full edges", full, f);
  std::printf("%d runs, %d differences\n", runs, wrong);
  for (husk_session* session : sessions) husk_session_release(session);
  for (CUdeviceptr memory : in) driver.cuMemFree_v2_(memory);
  for (auto& row : results)
    for (CUdeviceptr memory : row) driver.cuMemFree_v2_(memory);
  return wrong != 0;
}
