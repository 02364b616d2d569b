// Eight threads call everything that husk.h lets several threads call, on programs and sessions
// that they share, and calls that it forbids with a status: for ThreadSanitizer, and for statuses.
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <mutex>
#include <random>
#include <shared_mutex>
#include <thread>

#include "../patience.h"
#include "fixture.h"

namespace husk::test {
namespace {

constexpr int kWorkers = 8, kPrograms = 3, kSessions = 4;
constexpr auto kTime = std::chrono::milliseconds(1500);

// y is x with w added to its first row; total grows by the first row of x.
const char* const kPoolProgram = R"(
constant w f32 [4] bytes "00000000000000000000000000000000"
state total f32 [4] constant w
function f {
  input x tensor f32 [1..inf, 4]
  output y tensor f32 rank 2
  variant cpu {
    let n = size(x, 0)
    buffer x of input bytes mul(n, 16)
    buffer y of output bytes mul(n, 16)
    buffer now bytes 16 align 64
    buffer t bytes mul(n, 16) align 64
    copy (write t, read x)
    copy (write now, read w)   # by the port, so that ThreadSanitizer sees it
    copy (write y, read t)
    launch add grid (1, 1, 1) (read t[0, 16], read now, write y[0, 16], 4)
    launch add grid (1, 1, 1) (read total, read x[0, 16], both total, 4)
    return (tensor y f32 [n, 4] [4, 1])
  }
}
)";

// A handle that threads share. A thread that uses the handle locks the slot shared, so that several
// may use it at once; a thread that makes or releases the handle locks it alone.
template <class T>
struct Slot {
  std::shared_mutex mutex;
  T* handle = nullptr;
};

enum Operation {
  kOpen,
  kLoad,
  kReleaseProgram,
  kUpdate,
  kQuery,
  kCreate,
  kReleaseSession,
  kResize,
  kRun,
  kWait,
  kGet,
  kSet,
  kReset,
  kCopy,
  kSetRange,
  kShape,
  kStats,
  kOperations
};

class Pool {
 public:
  Pool() : bytes_(artifact(kPoolProgram)) {
    husk_engine_options options = Machine::defaults();
    husk_error error = {};
    EXPECT_EQ(husk_engine_create(&options, &engine_, &error), HUSK_OK) << error.text;
    FILE* file = fopen(path_.c_str(), "wb");
    EXPECT_NE(file, nullptr);
    EXPECT_EQ(fwrite(bytes_.data(), 1, bytes_.size(), file), bytes_.size());
    fclose(file);
  }
  ~Pool() {
    for (Slot<husk_program>& slot : programs_) husk_program_release(slot.handle);
    for (Slot<husk_session>& slot : sessions_) husk_session_release(slot.handle);
    husk_engine_release(engine_);
    unlink(path_.c_str());
  }

  void work(unsigned seed) {
    std::mt19937 random(seed);
    const auto begin = std::chrono::steady_clock::now();
    for (auto now = begin; now - begin < kTime || (!complete() && now - begin < kHang);
         now = std::chrono::steady_clock::now())
      one(static_cast<Operation>(random() % kOperations), random);
  }
  // Each operation succeeded, some call was refused because the session was in use, and callbacks
  // were refused what they may not do.
  bool complete() const {
    for (const std::atomic<int>& count : succeeded)
      if (count == 0) return false;
    return busy > 0 && refused_in_callback > 0;
  }

  std::atomic<int> succeeded[kOperations] = {};
  std::atomic<int> busy{0}, refused_in_callback{0}, wrong{0};
  std::mutex text_mutex;
  std::string first_wrong;

 private:
  void fail(const std::string& text) {
    ++wrong;
    std::lock_guard<std::mutex> lock(text_mutex);
    if (first_wrong.empty()) first_wrong = text;
  }
  // A status that the operation may have: HUSK_OK, `other`, or that of a session in use.
  void expect(Operation operation, husk_status status, const husk_error& error,
              husk_status other = HUSK_OK) {
    if (status == HUSK_OK)
      ++succeeded[operation];
    else if (status == HUSK_INVALID_ARGUMENT && (strstr(error.text, "in a call") != nullptr))
      ++busy;
    else if (status != other)
      fail("operation " + std::to_string(operation) + ": " + error.text);
  }

  void one(Operation operation, std::mt19937& random) {
    Slot<husk_program>& program = programs_[random() % kPrograms];
    Slot<husk_session>& session = sessions_[random() % kSessions];
    switch (operation) {
      case kOpen:
      case kLoad: open(operation, program); break;
      case kReleaseProgram:
        release(operation, program, husk_program_release, random() % 4 == 0);
        break;
      case kReleaseSession:
        release(operation, session, husk_session_release, random() % 4 == 0);
        break;
      case kCreate: create(program, session, random() % 2 == 0); break;
      case kUpdate:
      case kQuery: use_program(operation, program, random); break;
      default: use_session(operation, session, random); break;
    }
  }

  void open(Operation operation, Slot<husk_program>& slot) {
    const std::unique_lock lock(slot.mutex, std::try_to_lock);
    if (!lock || slot.handle) return;
    husk_error error = {};
    const husk_status status = operation == kOpen
                                   ? husk_program_open(engine_, path_.c_str(), &slot.handle, &error)
                                   : husk_program_load(engine_, bytes_.data(), bytes_.size(),
                                                       nullptr, nullptr, &slot.handle, &error);
    expect(operation, status, error);
  }

  template <class T>
  void release(Operation operation, Slot<T>& slot, void (*drop)(T*), bool wanted) {
    const std::unique_lock lock(slot.mutex, std::try_to_lock);
    if (!lock || !slot.handle || !wanted) return;
    drop(slot.handle);
    slot.handle = nullptr;
    ++succeeded[operation];
  }

  // The callback is that of a session whose calls take long. It tries what it may not do.
  void create(Slot<husk_program>& program, Slot<husk_session>& session, bool traced) {
    const std::unique_lock lock(session.mutex, std::try_to_lock);
    const std::shared_lock program_lock(program.mutex, std::try_to_lock);
    if (!lock || !program_lock || session.handle || !program.handle) return;
    husk_session_options options = HUSK_SESSION_OPTIONS_INIT;
    Traced& user = traced_[&session - sessions_];
    user = {this, nullptr};
    if (traced) {
      options.trace_user = &user;
      options.trace = [](void* data, const husk_trace_event*) {
        const auto* own = static_cast<Traced*>(data);
        husk_error error = {};
        if (husk_session_wait(own->session, &error) == HUSK_INVALID_ARGUMENT)
          ++own->pool->refused_in_callback;
        else
          own->pool->fail("a callback may call its session");
        std::this_thread::yield();
      };
    }
    husk_error error = {};
    expect(kCreate, husk_session_create(program.handle, &options, &session.handle, &error), error);
    user.session = session.handle;
  }

  void use_program(Operation operation, Slot<husk_program>& slot, std::mt19937& random) {
    const std::shared_lock lock(slot.mutex, std::try_to_lock);
    if (!lock || !slot.handle) return;
    husk_error error = {};
    if (operation == kQuery) {
      uint32_t found = 7;
      husk_storage_info info = HUSK_STORAGE_INFO_INIT;
      expect(kQuery, husk_program_find_constant(slot.handle, "w", &found, &error), error);
      if (husk_program_constant(slot.handle, found, &info, &error) != HUSK_OK || info.bytes != 16)
        fail("the constant");
      return;
    }
    const auto value = static_cast<float>(random() % 100);
    const float w[4] = {value, value, value, value};
    const husk_constant_update update = {0, 0, w};
    expect(kUpdate, husk_program_update_constants(slot.handle, &update, 1, &error), error);
  }

  void use_session(Operation operation, Slot<husk_session>& slot, std::mt19937& random) {
    const std::shared_lock lock(slot.mutex, std::try_to_lock);
    if (!lock || !slot.handle) return;
    husk_session* session = slot.handle;
    husk_error error = {};
    float total[4] = {1, 2, 3, 4};
    const int64_t n = 1 + random() % 50;
    switch (operation) {
      case kResize: {
        Tensor x(HUSK_F32, {n, 4});
        const husk_value in = x.value();
        return expect(operation, husk_session_resize(session, 0, &in, 1, &error), error);
      }
      case kRun: return run(session, n);
      case kWait: return expect(operation, husk_session_wait(session, &error), error);
      case kGet: return expect(operation, husk_session_state_get(session, 0, total, &error), error);
      case kSet: return expect(operation, husk_session_state_set(session, 0, total, &error), error);
      case kReset: return expect(operation, husk_session_state_reset(session, 0, &error), error);
      case kSetRange: {
        const int64_t most = random() % 2 ? 50 : 1000;
        return expect(operation, husk_session_set_range(session, 0, 0, 0, 1, most, &error), error);
      }
      case kShape: {
        int64_t sizes[2], strides[2];
        return expect(operation, husk_session_output_shape(session, 0, 0, sizes, strides, &error),
                      error, HUSK_INVALID_ARGUMENT);
      }
      case kStats: {
        husk_session_stats stats = HUSK_SESSION_STATS_INIT;
        return expect(operation, husk_session_stats_get(session, 0, &stats, &error), error);
      }
      default: {
        Slot<husk_session>& other = sessions_[random() % kSessions];
        const bool self = &other == &slot;
        std::shared_lock<std::shared_mutex> other_lock;
        if (!self) other_lock = std::shared_lock(other.mutex, std::try_to_lock);
        if ((!self && !other_lock) || !other.handle) return;
        // The sessions may be of different programs.
        return expect(kCopy, husk_session_state_copy(session, 0, other.handle, &error), error,
                      HUSK_INVALID_ARGUMENT);
      }
    }
  }

  // The first row has the constant of one update and not of two.
  void run(husk_session* session, int64_t n) {
    Tensor x(HUSK_F32, {n, 4}), y(HUSK_F32, {n, 4});
    for (int64_t i = 0; i < 4 * n; ++i) x.as<float>()[i] = static_cast<float>(n);
    const husk_value in = x.value();
    husk_value out = y.value();
    husk_error error = {};
    const husk_status status = husk_session_run(session, 0, nullptr, &in, 1, &out, 1, &error);
    expect(kRun, status, error, HUSK_NEEDS_RESIZE);
    if (status != HUSK_OK) return;
    for (int i = 1; i < 4; ++i)
      if (y.as<float>()[i] != y.as<float>()[0]) fail("the first row has two values");
    for (int64_t i = 4; i < 4 * n; ++i)
      if (y.as<float>()[i] != static_cast<float>(n)) fail("another row changed");
  }

  struct Traced {
    Pool* pool = nullptr;
    husk_session* session = nullptr;
  };
  const Aligned bytes_;
  const std::string path_ = "/tmp/husk-operations-" + std::to_string(getpid()) + ".husk";
  husk_engine* engine_ = nullptr;
  Slot<husk_program> programs_[kPrograms];
  Slot<husk_session> sessions_[kSessions];
  Traced traced_[kSessions];
};

TEST(Operations, OfEightThreads) {
  Pool pool;
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < kWorkers; ++t) threads.emplace_back(&Pool::work, &pool, t);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(pool.wrong, 0) << pool.first_wrong;
  for (int operation = 0; operation < kOperations; ++operation)
    EXPECT_GT(pool.succeeded[operation], 0) << "operation " << operation;
  EXPECT_GT(pool.busy, 0);
  EXPECT_GT(pool.refused_in_callback, 0);
  printf("%d runs, %d updates, %d calls of a session in use\n", int(pool.succeeded[kRun]),
         int(pool.succeeded[kUpdate]), int(pool.busy));
}

}  // namespace
}  // namespace husk::test
