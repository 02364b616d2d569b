// Several sessions of one program at the same time, each on a thread and a stream of its own, on
// one device or two. Every run must give the same bits as a single session for the same inputs.
//   husk_gpu_sessions branches.husk [runs [devices]]      "devices": on a second device too, if
//   there is one
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <thread>

#include "gpu.h"

using namespace husk::gpu;
using husk::test::floating;
using husk::test::integer;

namespace {

constexpr int kCases = 40, kSlots = 3;

struct Case {
  int64_t n, shift, k;
  double t;
  std::vector<float> expected;
};

// The program on one device, and the numbers that all sessions read.
struct Site {
  Site(int index, const char* path, const std::vector<float>& numbers)
      : place(index), program(place.open(path)) {
    husk_error error;
    require(husk_program_find_function(program, "branches", &function, &error), error);
    in = static_cast<char*>(place.alloc(numbers.size() * 4));
    place.upload(nullptr, in, numbers.data(), numbers.size() * 4);
  }
  ~Site() { husk_program_release(program); }
  Place place;
  husk_program* program;
  uint32_t function = 0;
  char* in;
};

// A session with a stream and memory for some results.
struct User {
  User(Site& s, int mode, int64_t largest) : site(s), stream(s.place.stream()) {
    husk_session_options options = HUSK_SESSION_OPTIONS_INIT;
    options.mode = mode;
    husk_error error;
    require(husk_session_create(site.program, &options, &session, &error), error);
    for (char*& slot : out)
      slot = static_cast<char*>(site.place.alloc(static_cast<size_t>(largest) * 4 + 4));
    Vector x(0, largest, site.place.index);
    husk_value first[] = {x.value(), floating(1), integer(1)};
    require(husk_session_resize(session, site.function, first, 3, &error), error);
  }
  ~User() { husk_session_release(session); }
  void enqueue(const Case& c, int slot) {
    Vector x(reinterpret_cast<CUdeviceptr>(site.in + c.shift * 4), c.n, site.place.index);
    Vector y(reinterpret_cast<CUdeviceptr>(out[slot]), c.n, site.place.index);
    husk_value inputs[] = {x.value(), floating(c.t), integer(c.k)}, output = y.value();
    husk_error error;
    require(husk_session_run(session, site.function, stream, inputs, 3, &output, 1, &error), error);
  }
  std::vector<float> result(const Case& c, int slot) {
    std::vector<float> y(static_cast<size_t>(c.n));
    if (c.n) site.place.download(stream, y.data(), out[slot], y.size() * 4);
    return y;
  }
  Site& site;
  void* stream;
  husk_session* session = nullptr;
  char* out[kSlots];
};

bool same(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * 4) == 0);
}

// Runs in groups that are waited for together; returns the number of wrong results.
void work(Site& site, int mode, const std::vector<Case>& cases, int64_t largest, int runs,
          unsigned seed, std::atomic<int>* wrong) {
  User user(site, mode, largest);
  std::mt19937 random(seed);
  for (int run = 0; run < runs;) {
    const Case* group[kSlots];
    const int count = 1 + static_cast<int>(random() % kSlots);
    for (int slot = 0; slot < count; ++slot)
      user.enqueue(*(group[slot] = &cases[random() % cases.size()]), slot);
    if (random() % 4 == 0) {
      husk_error error;
      require(husk_session_wait(user.session, &error), error);
    }
    for (int slot = 0; slot < count; ++slot)
      *wrong += !same(user.result(*group[slot], slot), group[slot]->expected);
    run += count;
  }
}

struct Job {
  Site* site;
  int mode;
};

int together(const char* what, const std::vector<Job>& jobs, const std::vector<Case>& cases,
             int64_t largest, int runs) {
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  unsigned seed = 1;
  const double begin = now();
  for (const Job& job : jobs)
    threads.emplace_back(
        [&, job, seed = seed++] { work(*job.site, job.mode, cases, largest, runs, seed, &wrong); });
  for (std::thread& thread : threads) thread.join();
  std::printf("%-48s %d threads, %d runs each, %.2f s, %d wrong\n", what,
              static_cast<int>(jobs.size()), runs, (now() - begin) / 1e6, wrong.load());
  return wrong;
}

// A session on the other device refuses a tensor of the first one, and stays usable.
int refuses(Site& here, Site& there, const Case& c, int64_t largest) {
  User user(there, HUSK_MODE_AUTO, largest);
  Vector x(reinterpret_cast<CUdeviceptr>(here.in), c.n, here.place.index);
  Vector y(reinterpret_cast<CUdeviceptr>(user.out[0]), c.n, there.place.index);
  husk_value inputs[] = {x.value(), floating(c.t), integer(c.k)}, output = y.value();
  husk_error error = {};
  const husk_status status = husk_session_run(user.session, there.function, user.stream, inputs, 3,
                                              &output, 1, &error);
  user.enqueue(c, 0);
  const bool right = status == HUSK_INVALID_INPUT && same(user.result(c, 0), c.expected);
  std::printf("a tensor of device %d for device %d: %s: %s%s\n", here.place.index,
              there.place.index, husk_status_name(status), error.text, right ? "" : "   WRONG");
  return !right;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) give_up("usage: husk_gpu_sessions branches.husk [runs [devices]]");
  const int runs = argc > 2 ? std::atoi(argv[2]) : 1000;
  const bool two = argc > 3;
  husk_error error = {};
  if (two && !Place::exists(1, &error)) {
    std::printf("skipped: there is no second device: %s\n", error.text);
    return 0;
  }
  husk_value_info info = HUSK_VALUE_INFO_INIT;
  std::mt19937 random(7);
  std::vector<float> numbers(1 << 19);
  for (float& number : numbers) number = static_cast<float>(random() % 2001) / 1000 - 1;
  Site first(0, argv[1], numbers);
  require(husk_program_input(first.program, first.function, 0, &info, &error), error);
  const int64_t largest = std::min<int64_t>(info.ranges[1], 1 << 18);
  std::vector<Case> cases(kCases);
  {
    User alone(first, HUSK_MODE_LIST, largest);
    for (Case& c : cases) {
      c.n = &c == &cases[0] ? 0
                            : 1 + static_cast<int64_t>(random()) %
                                      (&c < &cases[8] ? largest : std::min<int64_t>(largest, 5000));
      c.shift = static_cast<int64_t>(random() % 64) * 64;
      c.k = static_cast<int64_t>(random() % 7) - 3;
      c.t = static_cast<double>(random() % 1000) / 500;
      alone.enqueue(c, 0);
      c.expected = alone.result(c, 0);
    }
  }
  const Job list = {&first, HUSK_MODE_LIST}, graph = {&first, HUSK_MODE_GRAPH};
  int wrong = 0;
  if (!two) {
    wrong += together("a list and a graph", {list, graph}, cases, largest, runs);
    wrong += together("two graphs", {graph, graph}, cases, largest, runs);
    wrong += together("four lists and four graphs",
                      {list, list, list, list, graph, graph, graph, graph}, cases, largest,
                      runs / 4);
    return wrong != 0;
  }
  Site second(1, argv[1], numbers);
  const Job other_list = {&second, HUSK_MODE_LIST}, other_graph = {&second, HUSK_MODE_GRAPH};
  wrong += together("a list on the second device", {other_list}, cases, largest, runs);
  wrong += together("a graph on the second device", {other_graph}, cases, largest, runs);
  wrong += together("lists and graphs on both devices", {list, other_list, graph, other_graph},
                    cases, largest, runs);
  wrong += refuses(first, second, cases[9], largest);
  wrong += refuses(second, first, cases[9], largest);
  return wrong != 0;
}
