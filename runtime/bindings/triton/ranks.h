// The ranks of a model that runs on several devices at once, each on a thread of its own.
#ifndef HUSK_BINDINGS_TRITON_RANKS_H
#define HUSK_BINDINGS_TRITON_RANKS_H

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "config.h"
#include "devices.h"
#include "program.h"
#include "session.h"

namespace husk::triton {

class Ranks {
 public:
  Ranks(const Ranks&) = delete;
  // Each rank leaves the group on its thread, since it waits for the others.
  ~Ranks();
  // Opens the artifact on each of `settings.ranks` devices: the GPUs from `settings.gpu` on, or
  // that many threads of the CPU. `devices` lives longer than the object. Without sequences, all
  // requests run in the same sessions.
  [[nodiscard]] static Error create(const std::string& folder, const std::string& file,
                                    const Settings& settings, Devices* devices,
                                    std::unique_ptr<Ranks>* ranks);

  // The artifact of rank 0, which reads requests and writes responses.
  const Program& home() const { return *ranks_[0]->program; }
  // Runs the function of a call on all ranks; the response has the results of rank 0.
  [[nodiscard]] Error run(Call* call);
  // The same for a batch.
  [[nodiscard]] Error run(const std::vector<Call*>& calls);

  // Creates sessions of a sequence, one of each rank. They are released by release().
  [[nodiscard]] Error create_sessions(Sessions* sessions);
  // Sets all states of these sessions to their initial values.
  [[nodiscard]] Error reset(const Sessions& sessions);
  // Runs the function for the first request of a sequence, or for a later one, in its sessions.
  [[nodiscard]] Error run(const Sessions& sessions, Call* call, bool first);
  // Releases sessions of all ranks, while none of them runs.
  void release(Sessions sessions);

 private:
  struct Rank {
    Device device;
    std::unique_ptr<Program> program;
    std::thread thread;
  };
  using Task = std::function<Error(size_t rank, Rank& one)>;

  explicit Ranks(uint64_t memory_limit) : memory_limit_(memory_limit) {}
  // Calls `task` for each rank, on the threads of the ranks. Returns the failure that came first:
  // later ones may be those of ranks that have waited for it.
  Error each(const Task& task);
  void work(size_t rank);

  const uint64_t memory_limit_;  // of a session
  std::vector<std::unique_ptr<Rank>> ranks_;
  Sessions sessions_;   // of requests that are in no sequence
  std::mutex calling_;  // one task at a time
  std::mutex mutex_;    // guards what follows
  std::condition_variable changed_;
  const Task* task_ = nullptr;  // null: the threads end
  uint64_t tasks_ = 0;          // so many have begun
  size_t running_ = 0;          // ranks that have not done the last one
  Error failure_;
};

}  // namespace husk::triton

#endif
