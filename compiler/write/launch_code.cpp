#include "write/launch_code.h"

#include <elf.h>

#include <initializer_list>
#include <utility>

namespace husk::compiler {
namespace {

// Appends instructions as bytes, low end first.
class Writer {
 public:
  void byte(uint8_t value) { code_.bytes.push_back(value); }
  void bytes(std::initializer_list<uint8_t> values) {
    for (const uint8_t value : values) byte(value);
  }
  void word(uint32_t value) {
    for (int i = 0; i < 4; ++i, value >>= 8) byte(static_cast<uint8_t>(value));
  }
  // Adds bits to a word that was appended before.
  void add(size_t at, uint32_t value) {
    for (size_t i = 0; i < 4; ++i, value >>= 8) code_.bytes[at + i] |= static_cast<uint8_t>(value);
  }
  void call() { code_.calls.push_back(size()); }
  size_t size() const { return code_.bytes.size(); }
  LaunchCode take() { return std::move(code_); }

 private:
  LaunchCode code_;
};

// System V ABI for x86-64: rdi and rsi are the arguments, rbx and rbp are kept by calls, eax is the
// result. Calls need a stack that is aligned to 16 bytes.
LaunchCode x86_64_code(std::span<const uint32_t> params) {
  Writer out;
  out.byte(0x53);                 // push rbx
  out.byte(0x55);                 // push rbp
  out.byte(0x50);                 // push rax, which aligns the stack
  out.bytes({0x48, 0x89, 0xfb});  // mov rbx, rdi
  out.bytes({0x48, 0x89, 0xf5});  // mov rbp, rsi
  std::vector<size_t> jumps;      // where their distances are written
  for (const uint32_t offset : params) {
    out.bytes({0x48, 0x8d, 0xbb});  // lea rdi, [rbx + offset]
    out.word(offset);
    out.byte(0xe8);  // call
    out.call();
    out.word(0);
    out.bytes({0x85, 0xc0});  // test eax, eax
    out.bytes({0x0f, 0x85});  // jne
    jumps.push_back(out.size());
    out.word(0);
  }
  const size_t end = out.size();
  out.byte(0x59);  // pop rcx
  out.byte(0x5d);  // pop rbp
  out.byte(0x5b);  // pop rbx
  out.byte(0xc3);  // ret
  for (uint32_t i = 0; i < jumps.size(); ++i) {
    out.add(jumps[i], static_cast<uint32_t>(out.size() - jumps[i] - 4));
    out.bytes({0xc7, 0x45, 0x00});  // mov dword ptr [rbp], i
    out.word(i);
    out.byte(0xe9);  // jmp end
    out.word(static_cast<uint32_t>(end - out.size() - 4));
  }
  return out.take();
}

// Procedure call standard for 64-bit Arm: x0 and x1 are the arguments, x19 and x20 are kept by
// calls, w0 is the result.
LaunchCode aarch64_code(std::span<const uint32_t> params) {
  Writer out;
  out.word(0xa9be7bfd);       // stp x29, x30, [sp, #-32]!
  out.word(0x910003fd);       // mov x29, sp
  out.word(0xa90153f3);       // stp x19, x20, [sp, #16]
  out.word(0xaa0003f3);       // mov x19, x0
  out.word(0xaa0103f4);       // mov x20, x1
  std::vector<size_t> jumps;  // where they lie
  for (const uint32_t offset : params) {
    const uint32_t low = offset & 0xfff, high = offset >> 12;
    out.word(0x91000260 | low << 10);             // add x0, x19, #low
    if (high) out.word(0x91400000 | high << 10);  // add x0, x0, #high, lsl #12
    out.call();
    out.word(0x94000000);  // bl
    jumps.push_back(out.size());
    out.word(0x35000000);  // cbnz w0
  }
  const size_t end = out.size();
  out.word(0xa94153f3);  // ldp x19, x20, [sp, #16]
  out.word(0xa8c27bfd);  // ldp x29, x30, [sp], #32
  out.word(0xd65f03c0);  // ret
  for (uint32_t i = 0; i < jumps.size(); ++i) {
    out.add(jumps[i], static_cast<uint32_t>(out.size() - jumps[i]) / 4 << 5);
    out.word(0x52800001 | i << 5);  // mov w1, #i
    out.word(0xb9000281);           // str w1, [x20]
    const auto back = static_cast<uint32_t>(out.size() - end) / 4;
    out.word(0x14000000 | (-back & 0x3ffffff));  // b end
  }
  return out.take();
}

}  // namespace

LaunchCode make_launch_code(Machine machine, std::span<const uint32_t> params) {
  return machine == Machine::aarch64 ? aarch64_code(params) : x86_64_code(params);
}

CallRelocation call_relocation(Machine machine) {
  if (machine == Machine::aarch64) return {R_AARCH64_CALL26, 0};
  return {R_X86_64_PLT32, -4};  // the distance is that from the end of the instruction
}

}  // namespace husk::compiler
