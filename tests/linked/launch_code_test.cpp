// The straight-line code of launches: it is executed here if it is for the machine of the test, and
// the code for the other machine is decoded.
#include "write/launch_code.h"

#include <elf.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>

namespace husk::compiler {
namespace {

const Machine kMachine = *machine_of(HUSK_TEST_ARCH);

std::vector<uint32_t> every(uint32_t distance, uint32_t count) {
  std::vector<uint32_t> out;
  for (uint32_t i = 0; i < count; ++i) out.push_back(i * distance);
  return out;
}

// The kernel writes down the arguments of each of its calls.
struct Seen {
  std::vector<void**> params;
  size_t fails_at = SIZE_MAX;
  bool aligned = true;
} seen;

int32_t kernel(void** params) {
  seen.aligned &= reinterpret_cast<uintptr_t>(__builtin_frame_address(0)) % 16 == 0;
  seen.params.push_back(params);
  return seen.params.size() - 1 == seen.fails_at ? -7 : 0;
}

// Code in memory that can be executed, which calls kernel().
class Executable {
 public:
  explicit Executable(const LaunchCode& code) : size_(code.bytes.size() + 64) {
    memory_ = static_cast<uint8_t*>(
        mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    std::memcpy(memory_, code.bytes.data(), code.bytes.size());
    // The calls reach what is near, so a jump to the kernel follows the code.
    const size_t jump = (code.bytes.size() + 15) / 16 * 16;
    const auto target = reinterpret_cast<uintptr_t>(&kernel);
    const uint8_t x86_64[] = {0xff, 0x25, 0, 0, 0, 0};    // jmp [rip]
    const uint32_t aarch64[] = {0x58000050, 0xd61f0200};  // ldr x16, .+8; br x16
    const bool arm = kMachine == Machine::aarch64;
    const size_t bytes = arm ? sizeof(aarch64) : sizeof(x86_64);
    std::memcpy(memory_ + jump, arm ? static_cast<const void*>(aarch64) : x86_64, bytes);
    std::memcpy(memory_ + jump + bytes, &target, sizeof(target));
    for (const uint64_t at : code.calls) link(at, jump);
    mprotect(memory_, size_, PROT_READ | PROT_EXEC);
    __builtin___clear_cache(reinterpret_cast<char*>(memory_),
                            reinterpret_cast<char*>(memory_ + size_));
  }
  ~Executable() { munmap(memory_, size_); }
  Executable(const Executable&) = delete;
  Executable& operator=(const Executable&) = delete;
  int32_t operator()(void** params, uint32_t* failed) const {
    return reinterpret_cast<husk_linked_launches>(memory_)(params, failed);
  }

 private:
  // Does what a linker does with a relocation.
  void link(uint64_t at, size_t target) {
    const auto [type, addend] = call_relocation(kMachine);
    EXPECT_EQ(static_cast<int>(type),
              kMachine == Machine::aarch64 ? R_AARCH64_CALL26 : R_X86_64_PLT32);
    int64_t distance = static_cast<int64_t>(target) + addend - static_cast<int64_t>(at);
    uint32_t word;
    std::memcpy(&word, memory_ + at, sizeof(word));
    if (kMachine == Machine::aarch64) distance = distance / 4 & 0x3ffffff;
    word |= static_cast<uint32_t>(distance);
    std::memcpy(memory_ + at, &word, sizeof(word));
  }

  uint8_t* memory_;
  size_t size_;
};

TEST(LaunchCode, CallsEachKernelWithItsParams) {
  for (const uint32_t count : {1u, 2u, 3u, kMaxLaunchCalls})
    for (const uint32_t distance : {24u, 248u}) {
      const Executable code(make_launch_code(kMachine, every(distance, count)));
      std::vector<void*> params(count * distance / sizeof(void*));
      for (const size_t fails_at : {SIZE_MAX, size_t{0}, size_t{count / 2}, size_t{count - 1}}) {
        seen = {};
        seen.fails_at = fails_at;
        uint32_t failed = 99;
        EXPECT_EQ(code(params.data(), &failed), fails_at == SIZE_MAX ? 0 : -7);
        EXPECT_EQ(failed, fails_at == SIZE_MAX ? 99 : fails_at);
        EXPECT_TRUE(seen.aligned);
        ASSERT_EQ(seen.params.size(), fails_at == SIZE_MAX ? count : fails_at + 1);
        for (size_t i = 0; i < seen.params.size(); ++i)
          ASSERT_EQ(seen.params[i], params.data() + i * distance / sizeof(void*)) << i;
      }
    }
}

uint32_t word_at(const LaunchCode& code, size_t at) {
  uint32_t word;
  std::memcpy(&word, code.bytes.data() + at, sizeof(word));
  return word;
}

std::vector<uint32_t> words(const LaunchCode& code) {
  std::vector<uint32_t> out(code.bytes.size() / 4);
  std::memcpy(out.data(), code.bytes.data(), out.size() * 4);
  return out;
}

// Source of the instructions: the output of an assembler for the text beside them.
TEST(LaunchCode, Aarch64) {
  const LaunchCode code = make_launch_code(Machine::aarch64, std::vector<uint32_t>{0, 0x12348});
  EXPECT_EQ(words(code), (std::vector<uint32_t>{
                             0xa9be7bfd,  // stp x29, x30, [sp, #-32]!
                             0x910003fd,  // mov x29, sp
                             0xa90153f3,  // stp x19, x20, [sp, #16]
                             0xaa0003f3,  // mov x19, x0
                             0xaa0103f4,  // mov x20, x1
                             0x91000260,  // add x0, x19, #0
                             0x94000000,  // bl
                             0x35000100,  // cbnz w0, .+32
                             0x910d2260,  // add x0, x19, #0x348
                             0x91404800,  // add x0, x0, #0x12, lsl #12
                             0x94000000,  // bl
                             0x350000e0,  // cbnz w0, .+28
                             0xa94153f3,  // ldp x19, x20, [sp, #16]
                             0xa8c27bfd,  // ldp x29, x30, [sp], #32
                             0xd65f03c0,  // ret
                             0x52800001,  // mov w1, #0
                             0xb9000281,  // str w1, [x20]
                             0x17fffffb,  // b .-20
                             0x52800021,  // mov w1, #1
                             0xb9000281,  // str w1, [x20]
                             0x17fffff8,  // b .-32
                         }));
  EXPECT_EQ(code.calls, (std::vector<uint64_t>{24, 40}));
}

// The longest row, whose jumps are the longest ones.
TEST(LaunchCode, Aarch64Jumps) {
  const LaunchCode code = make_launch_code(Machine::aarch64, every(248, kMaxLaunchCalls));
  const size_t end = code.calls.back() + 8;
  EXPECT_EQ(word_at(code, end), 0xa94153f3);  // ldp x19, x20, [sp, #16]
  for (uint32_t i = 0; i < kMaxLaunchCalls; ++i) {
    const size_t jump = code.calls[i] + 4;
    const uint32_t cbnz = word_at(code, jump);
    ASSERT_EQ(cbnz & 0xff80001f, 0x35000000) << i;  // positive, w0
    const size_t target = jump + (cbnz >> 5 & 0x3ffff) * 4;
    ASSERT_EQ(word_at(code, target), 0x52800001 | i << 5);
    ASSERT_EQ(word_at(code, target + 4), 0xb9000281);
    const uint32_t back = word_at(code, target + 8);
    ASSERT_EQ(back >> 26, 0x05u);
    ASSERT_EQ(target + 8 - (0x4000000 - (back & 0x3ffffff)) * 4, end);
  }
}

TEST(LaunchCode, X86_64) {
  const LaunchCode code = make_launch_code(Machine::x86_64, std::vector<uint32_t>{0, 0x12348});
  EXPECT_EQ(code.bytes, (std::vector<uint8_t>{
                            0x53,                                      // push rbx
                            0x55,                                      // push rbp
                            0x50,                                      // push rax
                            0x48, 0x89, 0xfb,                          // mov rbx, rdi
                            0x48, 0x89, 0xf5,                          // mov rbp, rsi
                            0x48, 0x8d, 0xbb, 0x00, 0x00, 0x00, 0x00,  // lea rdi, [rbx]
                            0xe8, 0x00, 0x00, 0x00, 0x00,              // call
                            0x85, 0xc0,                                // test eax, eax
                            0x0f, 0x85, 0x18, 0x00, 0x00, 0x00,        // jne .+30
                            0x48, 0x8d, 0xbb, 0x48, 0x23, 0x01, 0x00,  // lea rdi, [rbx + 0x12348]
                            0xe8, 0x00, 0x00, 0x00, 0x00,              // call
                            0x85, 0xc0,                                // test eax, eax
                            0x0f, 0x85, 0x10, 0x00, 0x00, 0x00,        // jne .+22
                            0x59,                                      // pop rcx
                            0x5d,                                      // pop rbp
                            0x5b,                                      // pop rbx
                            0xc3,                                      // ret
                            0xc7, 0x45, 0x00, 0x00, 0x00, 0x00, 0x00,  // mov dword ptr [rbp], 0
                            0xe9, 0xf0, 0xff, 0xff, 0xff,              // jmp .-11
                            0xc7, 0x45, 0x00, 0x01, 0x00, 0x00, 0x00,  // mov dword ptr [rbp], 1
                            0xe9, 0xe4, 0xff, 0xff, 0xff,              // jmp .-23
                        }));
  EXPECT_EQ(code.calls, (std::vector<uint64_t>{17, 37}));
}

}  // namespace
}  // namespace husk::compiler
