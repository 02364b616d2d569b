// Each op does with the memory of its arguments what its contract says. Every tensor has pages of
// its own between pages that nobody may touch. Pages of tensors that are only read are read-only.
#include <sys/mman.h>
#include <unistd.h>

#include <csetjmp>
#include <csignal>
#include <set>

#include "correct_calls.h"
#include "host_device.h"
#include "noise.h"

namespace husk::host_test {
namespace {

sigjmp_buf after_fault;
void* volatile fault_address;

void on_fault(int, siginfo_t* info, void*) {
  fault_address = info->si_addr;
  siglongjmp(after_fault, 1);
}

// SIGSEGV and SIGBUS return to `after_fault` while an object lives.
class Faults {
 public:
  Faults() {
    struct sigaction action = {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigaction(SIGSEGV, &action, &old_segv);
    sigaction(SIGBUS, &action, &old_bus);
  }
  ~Faults() {
    sigaction(SIGSEGV, &old_segv, nullptr);
    sigaction(SIGBUS, &old_bus, nullptr);
  }

 private:
  struct sigaction old_segv, old_bus;
};

// Pages between two pages that nobody may touch. `bytes` bytes lie at the end or at the begin of
// the accessible pages.
class Pages {
 public:
  Pages(size_t bytes, bool at_end) {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    accessible = (bytes + page - 1) / page * page;
    mapped = accessible + 2 * page;
    void* memory = mmap(nullptr, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) std::abort();
    base = static_cast<unsigned char*>(memory);
    inside = base + page;
    protect(PROT_READ | PROT_WRITE);
    data = at_end ? inside + accessible - bytes : inside;
  }
  Pages(const Pages&) = delete;
  ~Pages() { munmap(base, mapped); }

  void protect(int protection) {
    if (accessible && mprotect(inside, accessible, protection) != 0) std::abort();
  }
  bool contains(const void* address) const { return address >= base && address < base + mapped; }

  unsigned char* data;

 private:
  size_t accessible, mapped;
  unsigned char *base, *inside;
};

// How the tensors of a call lie in memory, and what the written ones contain before it.
struct Layout {
  bool at_end;
  unsigned char fill;
  bool same;  // arguments that may be the same tensor are the same tensor, if they fit
};

// A call whose tensors lie in pages of their own.
class PlacedCall {
 public:
  PlacedCall(const std::vector<husk_op_arg>& from, const std::vector<Entry>& contract,
             const Layout& layout)
      : args(from), sizes_in_bytes(from.size()) {
    for (size_t i = 0; i < args.size(); ++i) {
      const Entry& entry = contract[i];
      husk_op_arg& arg = args[i];
      if (arg.kind == HUSK_ARG_TENSOR) {
        sizes_in_bytes[i] = memory_bytes(arg);
        if (layout.same && entry.same >= 0 && alike(args[entry.same], arg)) {
          arg.data = args[entry.same].data;
          writable(arg.data);
          is_same = true;
        } else {
          place(arg, static_cast<int>(i), entry, layout);
        }
      } else if (arg.kind == HUSK_ARG_RESULT) {
        sizes_in_bytes[i] = sizeof(int64_t);
        arg.data = blocks.emplace_back(sizeof(int64_t), layout.at_end).data;
        owners.push_back(static_cast<int>(i));
        std::memset(arg.data, layout.fill, sizeof(int64_t));
      } else if (arg.kind == HUSK_ARG_TENSORS) {
        lists.emplace_back(arg.tensors, arg.tensors + arg.count);
        for (husk_op_arg& tensor : lists.back())
          if (tensor.kind == HUSK_ARG_TENSOR) place(tensor, static_cast<int>(i), entry, layout);
        arg.tensors = lists.back().data();
      }
    }
  }

  // The bytes of a tensor or a number.
  std::vector<unsigned char> bytes(size_t i) const {
    const auto* data = static_cast<const unsigned char*>(args[i].data);
    return {data, data + sizes_in_bytes[i]};
  }
  // The argument in whose pages, or beside them, the address lies; -1 if there is none.
  int owner(const void* address) const {
    for (size_t i = 0; i < blocks.size(); ++i)
      if (blocks[i].contains(address)) return owners[i];
    return -1;
  }

  std::vector<husk_op_arg> args;
  bool is_same = false;  // two arguments are the same tensor

 private:
  static bool alike(const husk_op_arg& a, const husk_op_arg& b) {
    return a.kind == HUSK_ARG_TENSOR && a.dtype == b.dtype && a.rank == b.rank &&
           std::equal(a.sizes, a.sizes + a.rank, b.sizes) &&
           std::equal(a.strides, a.strides + a.rank, b.strides);
  }
  void place(husk_op_arg& tensor, int argument, const Entry& entry, const Layout& layout) {
    const size_t bytes = memory_bytes(tensor);
    Pages& pages = blocks.emplace_back(bytes, layout.at_end);
    owners.push_back(argument);
    if (bytes) std::memcpy(pages.data, tensor.data, bytes);
    if (!entry.read && bytes) std::memset(pages.data, layout.fill, bytes);
    if (!entry.written) pages.protect(PROT_READ);
    tensor.data = pages.data;
    tensor.access = (entry.read ? HUSK_ACCESS_READ : 0) | (entry.written ? HUSK_ACCESS_WRITE : 0);
  }
  void writable(const void* data) {
    for (Pages& pages : blocks)
      if (pages.data == data) pages.protect(PROT_READ | PROT_WRITE);
  }

  std::vector<size_t> sizes_in_bytes;
  std::deque<Pages> blocks;
  std::vector<int> owners;  // the argument of each block
  std::deque<std::vector<husk_op_arg>> lists;
};

// Written arguments that a correct call may leave as they are, in part or as a whole.
constexpr const char* kMayRemain[][2] = {
    {"aten::_unique2", "inverse"},  // without return_inverse
    {"aten::_unique2", "counts"},   // without return_counts
    {"aten::unique_consecutive", "inverse"},
    {"aten::unique_consecutive", "counts"},
    {"aten::unique_dim", "inverse"},
    {"aten::unique_dim", "counts"},
    {"aten::lu_unpack", "P"},  // without unpack_pivots
    {"aten::lu_unpack", "L"},  // without unpack_data
    {"aten::lu_unpack", "U"},
    {"aten::_linalg_svd", "U"},  // without compute_uv
    {"aten::_linalg_svd", "Vh"},
    {"aten::_linalg_eigh", "eigenvectors"},  // without compute_v
};
bool may_remain(const husk_op& op, const Entry& entry) {
  if (entry.name == std::string("workspace")) return true;  // scratch memory
  for (const auto& [name, argument] : kMayRemain)
    if (name == std::string(op.name) && argument == entry.name) return true;
  return false;
}

class Contracts : public HostDevice {
 protected:
  // The status of the call; -1, with a failure, if it touches memory that it must not touch.
  int run(const husk_op& row, const std::vector<Entry>& contract, PlacedCall& placed) {
    const husk_op_context context = context_of(row);
    error = {};
    if (sigsetjmp(after_fault, 1) == 0)
      return row.call(&context, placed.args.data(), static_cast<uint32_t>(placed.args.size()),
                      &error);
    const int argument = placed.owner(fault_address);
    if (argument < 0) {
      ADD_FAILURE() << row.name << " touches memory that is not an argument";
    } else {
      ADD_FAILURE() << row.name << " touches memory outside of argument " << contract[argument].name
                    << (contract[argument].written ? "" : ", or writes to it");
    }
    return -1;
  }

  static int failures() {
    return ::testing::UnitTest::GetInstance()->current_test_info()->result()->total_part_count();
  }

  // Runs a call in several layouts and compares what it wrote. False if it is refused.
  bool check(const husk_op& row, const std::vector<Entry>& contract,
             const std::vector<husk_op_arg>& args, bool must_succeed,
             std::set<std::string>& written) {
    constexpr Layout kLayouts[] = {
        {true, 0xa5, false}, {true, 0x5b, false}, {false, 0xa5, false}, {true, 0x5b, true}};
    std::deque<std::vector<std::vector<unsigned char>>> results;
    for (const Layout& layout : kLayouts) {
      PlacedCall placed(args, contract, layout);
      if (layout.same && !placed.is_same) break;
      std::vector<std::vector<unsigned char>> before, after;
      for (size_t i = 0; i < args.size(); ++i) before.push_back(placed.bytes(i));
      const int status = run(row, contract, placed);
      if (status != HUSK_OK) {
        if (status > 0 && (must_succeed || !results.empty())) ADD_FAILURE() << error.text;
        return false;
      }
      for (size_t i = 0; i < args.size(); ++i) {
        after.push_back(placed.bytes(i));
        if (after[i] != before[i]) written.insert(contract[i].name);
      }
      results.push_back(after);
    }
    for (size_t i = 0; i < args.size(); ++i) {
      const bool is_size = i + 1 == args.size() && args[i].kind == HUSK_ARG_RESULT &&
                           std::string(row.name).find(":sizes") != std::string::npos;
      if (!contract[i].written && !is_size) continue;
      const std::string name = std::string(row.name) + " " + contract[i].name;
      EXPECT_EQ(results[0][i], results[2][i]) << name << " depends on its place in memory";
      for (size_t k = 0; k < results[0][i].size(); ++k) {
        const unsigned char first = results[0][i][k], second = results[1][i][k];
        if (first == second) continue;
        EXPECT_TRUE(first == kLayouts[0].fill && second == kLayouts[1].fill)
            << name << " depends on what the argument contained before";
        EXPECT_TRUE(may_remain(row, contract[i])) << name << " is not written as a whole";
      }
      if (results.size() == 3) continue;
      EXPECT_EQ(results[3][i], results[1][i]) << name << " differs if two arguments are the same";
    }
    return true;
  }
};

TEST_F(Contracts, AreWellFormed) {
  uint32_t count = 0;
  const husk_op* ops = husk_host_ops(&count);
  for (uint32_t i = 0; i < count; ++i) {
    ASSERT_NE(ops[i].contract, nullptr) << ops[i].name;
    for (const Entry& entry : parse_contract(ops[i].contract))
      EXPECT_TRUE(entry.well_formed) << ops[i].name << ": " << entry.name;
  }
}

TEST_F(Contracts, HoldInCorrectCalls) {
#ifdef HUSK_EMULATED  // which is slow where pages of memory change their protection
  constexpr int kEnough = 3;
#else
  constexpr int kEnough = 12;
#endif
  std::deque<Call> correct_calls;
  add_correct_calls(correct_calls);
  const std::vector<CpuSet> supported = sets();
  const Faults faults;
  uint32_t count = 0;
  const husk_op* ops = husk_host_ops(&count);
  for (uint32_t i = 0; i < count; ++i) {
    const std::vector<Entry> contract = parse_contract(ops[i].contract);
    // One rank alone cannot call these; tests/runtime/group_test.cpp has groups of them.
    if (has_entry(contract, "token")) continue;
    std::set<std::string> written;
    const int old_failures = failures();
    int successes = 0;
    for (const Call& correct : correct_calls) {
      if (correct.name != ops[i].name) continue;
      for (const CpuSet& set : supported) {
        use(set);
        successes += check(ops[i], contract, correct.args, true, written);
      }
    }
    std::mt19937 random(1);
    for (int round = 0; round < 1000 && successes < kEnough && failures() == old_failures;
         ++round) {
      use(supported[round % supported.size()]);
      Noise noise(pick_from(random));
      successes += check(ops[i], contract, noise.args(ops[i].name, contract), false, written);
    }
    EXPECT_GT(successes, 0) << ops[i].name << " has no correct call in correct_calls.cpp";
    for (const Entry& entry : contract) {
      if (!entry.written || !successes || may_remain(ops[i], entry)) continue;
      EXPECT_TRUE(written.count(entry.name)) << ops[i].name << " wrote nothing to " << entry.name;
    }
  }
}

}  // namespace
}  // namespace husk::host_test
