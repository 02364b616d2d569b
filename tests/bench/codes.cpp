// Measures layers whose weights have codes of 8 and 4 bits on the CPU, and a plain read of the same
// bytes by as many threads beside it: `husk_codes [MIB [N K]]`. All layers together have so many
// MiB of distinct weights, 1,024 by default, so that no cache has them, and take turns; "warm" is
// one layer again and again. Times are the shortest of several, which alternate with reads. A ratio
// is the time of the read divided by that of the layers.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <husk/ops.h>
#include <husk/port_host.h>

namespace husk::bench {
namespace {

[[noreturn]] void give_up(const char* what) {
  std::fprintf(stderr, "husk_codes: %s\n", what);
  std::exit(1);
}

// Threads that wait for work in a loop.
class Pool {
 public:
  explicit Pool(uint32_t count) : count_(count), threads_{this, count, parallel} {
    for (uint32_t i = 1; i < count; ++i) workers_.emplace_back([this, i] { work(i); });
  }
  ~Pool() {
    body_ = nullptr;
    ++round_;
    for (std::thread& worker : workers_) worker.join();
  }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;
  const husk_threads* threads() const { return count_ > 1 ? &threads_ : nullptr; }
  uint32_t count() const { return count_; }
  void run(uint32_t bodies, void (*body)(void*, uint32_t), void* argument) {
    body_ = body;
    argument_ = argument;
    bodies_ = bodies;
    left_ = count_ - 1;
    ++round_;
    if (bodies > 0) body(argument, 0);
    while (left_ != 0) std::this_thread::yield();
  }

 private:
  static void parallel(void* user, uint32_t bodies, void (*body)(void*, uint32_t), void* argument) {
    static_cast<Pool*>(user)->run(bodies, body, argument);
  }
  void work(uint32_t index) {
    for (uint32_t seen = 0;;) {
      while (round_ == seen) std::this_thread::yield();
      seen = round_;
      if (!body_) return;
      if (index < bodies_) body_(argument_, index);
      --left_;
    }
  }

  uint32_t count_;
  husk_threads threads_;
  std::vector<std::thread> workers_;
  void (*body_)(void*, uint32_t) = nullptr;
  void* argument_ = nullptr;
  uint32_t bodies_ = 0;
  std::atomic<uint32_t> round_ = 0, left_ = 0;
};

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};
using Memory = std::unique_ptr<unsigned char, Free>;
Memory allocate(size_t bytes) {
  void* memory = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  if (!memory) give_up("out of memory");
  std::memset(memory, 0, bytes);
  return Memory(static_cast<unsigned char*>(memory));
}

// A plain read: the words of all bytes are summed.
uint64_t read_bytes(const unsigned char* from, size_t bytes) {
  typedef uint64_t Words __attribute__((vector_size(64)));
  Words sums[4] = {};
  for (size_t i = 0; i + sizeof sums <= bytes; i += sizeof sums)
    for (size_t s = 0; s < 4; ++s) {
      Words words;
      __builtin_prefetch(from + i + s * sizeof words + 4096, 0, 2);
      std::memcpy(&words, from + i + s * sizeof words, sizeof words);
      sums[s] += words;
    }
  const Words sum = sums[0] + sums[1] + sums[2] + sums[3];
  uint64_t total = 0;
  for (int i = 0; i < 8; ++i) total += sum[i];
  return total;
}

struct Kind {
  const char* name;
  int bits;
  int64_t group;  // 0: a row
};

class Layers {
 public:
  Layers(const Kind& kind, int64_t n, int64_t k, size_t bytes)
      : n_(n), k_(k), bits_(kind.bits), group_(kind.group ? kind.group : k) {
    uint32_t count = 0;
    const husk_op* ops = husk_host_ops(&count);
    for (uint32_t i = 0; i < count; ++i)
      for (const bool rounds : {false, true})
        if (ops[i].name == std::string(rounds ? "husk::linear_rounded" : "husk::linear_quantized"))
          ops_[rounds] = &ops[i];
    op_ = ops_[0];
    const husk_port* port = husk_port_host();
    static const husk_allocator allocator = {
        nullptr, [](void*, size_t size, size_t align) { return std::aligned_alloc(align, size); },
        [](void*, void* memory) { std::free(memory); }};
    if (!ops_[0] || !ops_[1] ||
        port->open(port->user, 0, &allocator, nullptr, &device_, &error_) != HUSK_OK)
      give_up("no op or no device");
    const int64_t code_bytes = n * k * bits_ / 8, groups = k / group_;
    const Memory codes = allocate(code_bytes), scales = allocate(n * groups * 2);
    std::mt19937_64 random(1);
    for (int64_t i = 0; i + 8 <= code_bytes; i += 8) {
      const uint64_t word = random();
      std::memcpy(codes.get() + i, &word, sizeof word);
    }
    for (int64_t i = 0; i < n * groups; ++i) {
      const uint16_t half = 0x2000;
      std::memcpy(scales.get() + 2 * i, &half, sizeof half);
    }
    codes_bytes_ = pack(1, codes.get(), scales.get(), nullptr);
    scales_bytes_ = pack(2, codes.get(), scales.get(), nullptr);
    size_t layers = (bytes + codes_bytes_ + scales_bytes_ - 1) / (codes_bytes_ + scales_bytes_);
    for (size_t i = 0; i < std::max<size_t>(layers, 1); ++i) {
      packed_.push_back(allocate(codes_bytes_ + scales_bytes_));
      if (i > 0) {
        std::memcpy(packed_[i].get(), packed_[0].get(), codes_bytes_ + scales_bytes_);
        continue;
      }
      pack(1, codes.get(), scales.get(), packed_[i].get());
      pack(2, codes.get(), scales.get(), packed_[i].get() + codes_bytes_);
    }
  }
  ~Layers() { husk_port_host()->close(device_); }
  Layers(const Layers&) = delete;
  Layers& operator=(const Layers&) = delete;

  size_t count() const { return packed_.size(); }
  size_t bytes() const { return codes_bytes_ + scales_bytes_; }  // of a layer

  // Seconds of one pass over the first `layers` layers.
  double run(const Pool& pool, size_t layers, int64_t rows, bool rounds) {
    op_ = ops_[rounds];
    const Memory x = allocate(rows * k_ * 4), out = allocate(rows * n_ * 4),
                 scratch = allocate(op_->scratch_bytes + pool.count() * op_->thread_scratch_bytes);
    auto* floats = reinterpret_cast<float*>(x.get());
    for (int64_t i = 0; i < rows * k_; ++i) floats[i] = static_cast<float>(i % 7) - 3;
    set_arguments(x.get(), nullptr, nullptr, rows, out.get());
    husk_op_context context = HUSK_OP_CONTEXT_INIT;
    context.user = op_->user;
    context.device = device_;
    context.threads = pool.threads();
    context.scratch = scratch.get();
    std::vector<const void*> copies(args_.size());
    context.packed = copies.data();
    return seconds([&] {
      for (size_t i = 0; i < layers; ++i) {
        copies[1] = packed_[i].get();
        copies[2] = packed_[i].get() + codes_bytes_;
        if (op_->call(&context, args_.data(), static_cast<uint32_t>(args_.size()), &error_) !=
            HUSK_OK)
          give_up(error_.text);
      }
    });
  }

  double read(Pool& pool, size_t layers) {
    return seconds([&] {
      struct Task {
        const Layers& self;
        size_t layers, threads;
        std::atomic<uint64_t> total;
      } task{*this, layers, pool.count(), 0};
      pool.run(
          pool.count(),
          [](void* argument, uint32_t index) {
            Task& shared = *static_cast<Task*>(argument);
            const size_t part = shared.self.bytes() / shared.threads / 64 * 64;
            for (size_t i = 0; i < shared.layers; ++i)
              shared.total += read_bytes(shared.self.packed_[i].get() + index * part, part);
          },
          &task);
    });
  }

 private:
  static double seconds(const std::function<void()>& body) {
    using Clock = std::chrono::steady_clock;
    const Clock::time_point start = Clock::now();
    body();
    return std::chrono::duration<double>(Clock::now() - start).count();
  }
  void tensor(int32_t dtype, const void* data, int64_t rows, int64_t columns) {
    sizes_.push_back({rows, columns, columns, 1});
    husk_op_arg arg = {};
    arg.kind = HUSK_ARG_TENSOR;
    arg.dtype = dtype;
    arg.rank = 2;
    arg.data = const_cast<void*>(data);
    args_.push_back(arg);
  }
  void set_arguments(const void* x, const void* codes, const void* scales, int64_t rows,
                     void* out) {
    // What is read lies in the copies; addresses that are checked need not be other memory.
    const void* any = out ? out : x;
    args_.clear();
    sizes_.clear();
    tensor(HUSK_F32, x, rows, k_);
    tensor(bits_ == 4 ? HUSK_U8 : HUSK_I8, codes ? codes : any, n_, k_ * bits_ / 8);
    tensor(HUSK_F16, scales ? scales : any, n_, k_ / group_);
    for (size_t i = 0; i < 3; ++i) {
      args_[i].sizes = sizes_[i].data();
      args_[i].strides = sizes_[i].data() + 2;
    }
    husk_op_arg none = {}, text = {}, number = {};
    none.kind = HUSK_ARG_NONE;
    for (int i = 0; i < 4; ++i) args_.push_back(none);
    text.kind = HUSK_ARG_STRING;
    text.string = "none";
    args_.push_back(text);
    number.kind = HUSK_ARG_INT;
    number.i = bits_;
    args_.push_back(number);
    number.i = group_;
    args_.push_back(number);
    tensor(HUSK_F32, out, rows, n_);
    args_.back().sizes = sizes_.back().data();
    args_.back().strides = sizes_.back().data() + 2;
  }
  size_t pack(uint32_t argument, const void* codes, const void* scales, void* to) {
    unsigned char some[64] = {};
    set_arguments(some, codes, scales, 1, some);
    husk_op_context context = HUSK_OP_CONTEXT_INIT;
    context.user = op_->user;
    context.device = device_;
    husk_packing packing = HUSK_PACKING_INIT;
    packing.argument = argument;
    packing.data = to;
    if (op_->pack(&context, args_.data(), static_cast<uint32_t>(args_.size()), &packing, &error_))
      give_up(error_.text);
    return packing.bytes;
  }

  int64_t n_, k_;
  int bits_;
  int64_t group_;
  const husk_op* ops_[2] = {};  // with exact sums, and with inputs that are rounded
  const husk_op* op_ = nullptr;
  void* device_ = nullptr;
  husk_error error_ = {};
  size_t codes_bytes_ = 0, scales_bytes_ = 0;
  std::vector<Memory> packed_;
  std::vector<husk_op_arg> args_;
  std::vector<std::vector<int64_t>> sizes_;
};

void print(const Kind& kind, Layers& layers, uint32_t threads, int64_t rows, const char* where,
           bool rounds) {
  Pool pool(threads);
  const bool is_warm = std::string(where) == "warm";
  const size_t count = is_warm ? 1 : layers.count();
  const int repeats = is_warm ? (rows > 32 ? 5 : 41) : 5;
  std::vector<double> runs, reads;
  for (int i = 0; i <= repeats; ++i) {
    const double run = layers.run(pool, count, rows, rounds), read = layers.read(pool, count);
    if (i == 0) continue;
    runs.push_back(run);
    reads.push_back(read);
  }
  const double run = *std::min_element(runs.begin(), runs.end()),
               read = *std::min_element(reads.begin(), reads.end()),
               bytes = static_cast<double>(layers.bytes() * count);
  std::printf("%-22s %-8s %4s %7u %6lld %11.1f %8.2f %8.2f %7.2f\n", kind.name,
              rounds ? "rounded" : "exact", where, threads, static_cast<long long>(rows),
              run * 1e6 / static_cast<double>(count), bytes / run * 1e-9, bytes / read * 1e-9,
              read / run);
  std::fflush(stdout);
}

}  // namespace
}  // namespace husk::bench

int main(int argc, char** argv) {
  using namespace husk::bench;
  const size_t mib = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1024;
  const int64_t n = argc > 3 ? std::atoll(argv[2]) : 8192,
                k = argc > 3 ? std::atoll(argv[3]) : 2048;
  constexpr Kind kKinds[] = {{"int4, groups of 32", 4, 32},
                             {"int4, groups of 128", 4, 128},
                             {"int8, rows", 8, 0},
                             {"int8, groups of 32", 8, 32}};
  std::printf("%-22s %-8s %4s %7s %6s %11s %8s %8s %7s\n", "weights", "sums", "", "threads", "rows",
              "us a layer", "GB/s", "read", "ratio");
  for (const Kind& kind : kKinds) {
    Layers layers(kind, n, k, mib << 20);
    for (const bool rounds : {false, true})
      for (const uint32_t threads : {1u, 2u}) {
        print(kind, layers, threads, 1, "cold", rounds);
        for (const int64_t rows : {1, 4, 32, 512})
          print(kind, layers, threads, rows, "warm", rounds);
      }
  }
}
