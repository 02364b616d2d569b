#include "texts.h"

#include <algorithm>

namespace husk::bench {
namespace {

const char* const kHead = "hir 1\ntarget cpu host \"" HUSK_TEST_ARCH
                          "\"\n"
                          R"(producer "bench"
image kernels cpu elf "bench_kernels.so"
kernel empty kernels "empty" (ptr, ptr, i64)
)";

std::string number(uint64_t n) { return std::to_string(n); }

}  // namespace

std::string launch_text(uint32_t launches, bool dynamic) {
  std::string text = kHead;
  const std::string bytes = dynamic ? "mul(n, 64)" : "1024";
  text +=
      "function f {\n  input x tensor f32 [1..32, 16]\n  output y tensor f32 rank 2\n  variant cpu "
      "{\n"
      "    let n = size(x, 0)\n    let one = cdiv(n, 16)\n    buffer x of input bytes mul(n, 64)\n "
      "   buffer y of output bytes mul(n, 64)\n"
      "    buffer t0 bytes " +
      bytes + " align 64\n    buffer t1 bytes " + bytes + " align 64\n";
  if (dynamic) text += "    let s0 = mul(n, 16)\n";
  for (uint32_t i = 0; i < launches; ++i) {
    if (dynamic) text += "    let s" + number(i + 1) + " = add(s" + number(i) + ", n)\n";
    text += "    launch empty grid (" + std::string(dynamic ? "one" : "1") + ", 1, 1) (read t" +
            number(i % 2) + ", write t" + number((i + 1) % 2) + ", " +
            (dynamic ? "s" + number(i + 1) : number(i % 2)) + ")\n";
  }
  return text + "    copy (write y, read x)\n    return (tensor y f32 [n, 16] [16, 1])\n  }\n}\n";
}

std::string lives_text(const Lives& lives, bool bounded) {
  std::string text = kHead;
  // One kernel for each number of buffers that a step can have.
  std::vector<std::vector<uint32_t>> begins(lives.steps), ends(lives.steps);
  for (uint32_t i = 0; i < lives.blocks.size(); ++i) {
    begins[lives.blocks[i].first].push_back(i);
    ends[lives.blocks[i].last].push_back(i);
  }
  size_t most = 0;
  for (uint32_t s = 0; s < lives.steps; ++s)
    most = std::max(most, begins[s].size() + ends[s].size());
  for (size_t n = 0; n <= most; ++n) {
    text += "kernel k" + number(n) + " kernels \"empty\" (";
    for (size_t i = 0; i < n; ++i) text += i ? ", ptr" : "ptr";
    text += ")\n";
  }
  text += "function f {\n  input x tensor f32 [1.." + std::string(bounded ? "16" : "inf") +
          "]\n  variant cpu {\n    let n = size(x, 0)\n    buffer x of input bytes mul(n, 4)\n";
  for (uint32_t i = 0; i < lives.blocks.size(); ++i)
    text += "    buffer b" + number(i) + " bytes mul(n, " + number((lives.blocks[i].size + 7) / 8) +
            ") align 64\n";
  for (uint32_t s = 0; s < lives.steps; ++s) {
    text += "    launch k" + number(begins[s].size() + ends[s].size()) + " grid (n, 1, 1) (";
    std::string separator;
    for (const auto& [list, access] :
         {std::pair{&ends[s], "read b"}, std::pair{&begins[s], "write b"}})
      for (uint32_t i : *list) {
        text += separator + access + number(i);
        separator = ", ";
      }
    text += ")\n";
  }
  return text + "    return ()\n  }\n}\n";
}

std::string model_text(uint32_t launches) {
  std::string text = kHead;
  text +=
      "kernel fused kernels \"empty\" (ptr, ptr, ptr, i32, i64)\nfunction forward {\n"
      "  input x tensor f32 [1..1024, 256]\n  output y tensor f32 rank 2\n  variant cpu {\n"
      "    let s0 = size(x, 0)\n    check_stride(x, 0, 256)\n    check_stride(x, 1, 1)\n"
      "    buffer x of input bytes mul(s0, 1024) align 16\n    buffer y of output bytes mul(s0, "
      "1024)\n"
      "    buffer buf0 bytes mul(s0, 1024) align 64\n    copy (write buf0, read x)\n";
  for (uint32_t i = 1; i <= launches; ++i)
    text += "    buffer buf" + number(i) + " bytes mul(s0, " + number(256 * (1 + i % 16)) +
            ") align 64\n    launch fused grid (cdiv(mul(s0, " + number(64 * (1 + i % 16)) +
            "), 128), 1, 1) (read buf" + number(i - 1) + ", read buf" + number(i > 3 ? i - 3 : 0) +
            ", write buf" + number(i) + ", mul(s0, " + number(64 * (1 + i % 16)) + "), " +
            number(i) + ") at \"model.py:" + number(10 + i % 300) + " aten.add.Tensor\"\n";
  return text + "    copy (write y[0, 256], read buf" + number(launches) +
         "[0, 256])\n    return (tensor y f32 [s0, 256] [256, 1])\n  }\n}\n";
}

}  // namespace husk::bench
