#include "ranks.h"

namespace husk::triton {
namespace {

// Rank 0 writes the response.
Error run_on(size_t rank, Function& function, Call* call) {
  return rank == 0 ? function.run(call) : function.run(call->inputs());
}

}  // namespace

Error Ranks::create(const std::string& folder, const std::string& file, const Settings& settings,
                    Devices* devices, std::unique_ptr<Ranks>* ranks) {
  std::unique_ptr<Ranks> out(new Ranks(settings.memory_limit));
  husk_group_id id;
  HUSK_TRITON_TRY(Devices::create_group(settings.gpu, &id));
  for (size_t rank = 0; rank < settings.ranks; ++rank)
    out->ranks_.push_back(std::make_unique<Rank>());
  for (size_t rank = 0; rank < settings.ranks; ++rank)
    out->ranks_[rank]->thread = std::thread(&Ranks::work, out.get(), rank);
  const Task open = [&](size_t rank, Rank& one) -> Error {
    const int32_t gpu = settings.gpu == Device::kCpu ? Device::kCpu : settings.gpu + int32_t(rank);
    const Group group = {&id, uint32_t(rank), uint32_t(settings.ranks), settings.group_timeout_ms};
    HUSK_TRITON_TRY(devices->open_rank(gpu, group, &one.device));
    return Program::open(folder, file, settings, one.device, &one.program);
  };
  HUSK_TRITON_TRY(out->each(open));
  if (!settings.sequences) HUSK_TRITON_TRY(out->create_sessions(&out->sessions_));
  *ranks = std::move(out);
  return nullptr;
}

Ranks::~Ranks() {
  if (ranks_.empty()) return;
  release(std::move(sessions_));
  log(each([](size_t, Rank& one) -> Error {
    one.program.reset();
    husk_engine_release(one.device.engine);
    return nullptr;
  }));
  {
    const std::lock_guard lock(mutex_);
    task_ = nullptr;
    ++tasks_;
  }
  changed_.notify_all();
  for (const auto& one : ranks_) one->thread.join();
}

void Ranks::work(size_t rank) {
  uint64_t done = 0;
  for (;;) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return tasks_ > done; });
    done = tasks_;
    const Task* task = task_;
    if (!task) return;
    lock.unlock();
    Error failure = (*task)(rank, *ranks_[rank]);
    if (failure)
      failure = fail(TRITONSERVER_ErrorCode(failure.get()), "rank %zu: %s", rank,
                     TRITONSERVER_ErrorMessage(failure.get()));
    lock.lock();
    if (failure && !failure_) failure_ = std::move(failure);
    if (--running_ == 0) changed_.notify_all();
  }
}

Error Ranks::each(const Task& task) {
  const std::lock_guard calling(calling_);
  std::unique_lock lock(mutex_);
  task_ = &task;
  ++tasks_;
  running_ = ranks_.size();
  failure_ = nullptr;
  changed_.notify_all();
  changed_.wait(lock, [&] { return running_ == 0; });
  return std::move(failure_);
}

Error Ranks::run(Call* call) {
  return each([this, call](size_t rank, Rank& one) -> Error {
    Session& session = *sessions_[rank];
    // No client may see what another one left in a state.
    if (one.program->has_state()) HUSK_TRITON_TRY(session.forget());
    return run_on(rank, session.first(*call), call);
  });
}

Error Ranks::run(const std::vector<Call*>& calls) {
  return each([this, &calls](size_t rank, Rank&) -> Error {
    Function& function = sessions_[rank]->first(*calls[0]);
    return rank == 0 ? function.run(calls) : function.follow(calls);
  });
}

Error Ranks::create_sessions(Sessions* sessions) {
  sessions->resize(ranks_.size());
  return each([&](size_t rank, Rank& one) -> Error {
    return Session::create(*one.program, memory_limit_, &(*sessions)[rank]);
  });
}

Error Ranks::reset(const Sessions& sessions) {
  return each([&](size_t rank, Rank&) -> Error { return sessions[rank]->reset(); });
}

Error Ranks::run(const Sessions& sessions, Call* call, bool first) {
  return each([&](size_t rank, Rank&) -> Error {
    Session& session = *sessions[rank];
    return run_on(rank, first ? session.first(*call) : session.next(*call), call);
  });
}

void Ranks::release(Sessions sessions) {
  if (sessions.empty()) return;
  log(each([&](size_t rank, Rank&) -> Error {
    sessions[rank].reset();
    return nullptr;
  }));
}

}  // namespace husk::triton
