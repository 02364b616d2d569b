#include "run/ranks.h"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <new>
#include <vector>

#include "run/run_error.h"

namespace husk::run {

namespace {

// The first rank tells the others these facts, in memory that all processes share.
struct Shared {
  std::atomic<int> state{0};  // 1 if the id is there, -1 if there is none
  husk_group_id id = {};
};

// The process of a rank. The first rank creates the id, since libraries cannot be used across a
// fork.
int run_rank(Shared& shared, uint32_t rank, uint32_t ranks, const husk_port& port,
             const std::function<int(const RankOptions&)>& body) {
  if (rank == 0) {
    husk_error error;
    const husk_status status = husk_group_id_create(&port, &shared.id, &error);
    shared.state = status == HUSK_OK ? 1 : -1;
    check(status, error, exit_load);
  }
  while (shared.state == 0) {
    const timespec time = {0, 1000000};
    nanosleep(&time, nullptr);
  }
  if (shared.state < 0) return exit_load;  // the first rank says why
  return body({rank, ranks, &shared.id});
}

}  // namespace

std::string file_of_rank(const std::string& file, uint32_t rank) {
  if (access(file.c_str(), F_OK) == 0) return file;
  const std::string ending = ".husk";
  const bool has_ending = file.size() > ending.size() &&
                          file.compare(file.size() - ending.size(), ending.size(), ending) == 0;
  return (has_ending ? file.substr(0, file.size() - ending.size()) : file) + ".rank" +
         std::to_string(rank) + ending;
}

int run_ranks(uint32_t ranks, const husk_port& port,
              const std::function<int(const RankOptions&)>& body) {
  void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                      -1, 0);
  if (memory == MAP_FAILED) fail(exit_run, "--ranks: there is no shared memory");
  auto* shared = new (memory) Shared;
  fflush(nullptr);
  std::vector<pid_t> processes;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    const pid_t process = fork();
    if (process < 0) {
      shared->state = -1;
      break;
    }
    if (process > 0) {
      processes.push_back(process);
      continue;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // no rank outlives husk-run
    int code = exit_run;
    try {
      code = run_rank(*shared, rank, ranks, port, body);
    } catch (const RunError& error) {
      fmt::print(stderr, "husk-run: rank {}: {}\n", rank, error.text);
      code = error.code;
    } catch (const std::exception& error) {
      fmt::print(stderr, "husk-run: rank {}: {}\n", rank, error.what());
    }
    fflush(nullptr);
    _exit(code);
  }
  // The code of the first rank that failed, by its number. A rank that dies before there is an id
  // leaves the others without one.
  int first = processes.size() == ranks ? 0 : int{exit_run};
  std::vector<int> codes(processes.size(), 0);
  for (size_t left = processes.size(); left > 0;) {
    int status = 0;
    const pid_t ended = waitpid(-1, &status, 0);
    if (ended < 0 && errno != EINTR) break;
    const auto found = std::find(processes.begin(), processes.end(), ended);
    if (found == processes.end()) continue;
    --left;
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : int{exit_run};
    codes[static_cast<size_t>(found - processes.begin())] = code;
    int none = 0;
    if (code != 0) shared->state.compare_exchange_strong(none, -1);
  }
  for (const int code : codes)
    if (first == 0) first = code;
  munmap(memory, sizeof(Shared));
  return first;
}

}  // namespace husk::run
