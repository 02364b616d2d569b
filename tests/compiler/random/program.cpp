#include "program.h"

#include "writer.h"

namespace husk::test {

void RandomWriter::inputs() {
  for (uint32_t i = 0; i < pick(3); ++i) {
    const RandomTensor t{fresh("x"), static_cast<int>(pick(3))};
    const char* dtype = one_of<const char*>({"u8", "i16", "f32", "i64"});
    const int width = dtype[0] == 'u' ? 1 : dtype[1] == '1' ? 2 : dtype[1] == '3' ? 4 : 8;
    std::string ranges, bytes = std::to_string(width), body, step = "1";
    for (int d = 0; d < t.rank; ++d) {
      const uint32_t low = pick(3);
      ranges += (d ? ", " : "") +
                (chance(30) ? std::to_string(1 + pick(4))
                            : fmt::format("{}..{}", low,
                                          chance(10) ? "inf" : std::to_string(low + pick(7))));
      bytes = fmt::format("mul({}, size({}, {}))", bytes, t.name, d);
    }
    for (int d = t.rank; d-- > 0;) {
      if (chance(90)) body += fmt::format("check_stride({}, {}, {})\n", t.name, d, step);
      step = fmt::format("mul({}, size({}, {}))", step, t.name, d);
    }
    declarations_ += fmt::format("  input {} tensor {} [{}]\n", t.name, dtype, ranges);
    body += fmt::format("let {}_n = {}\nbuffer {} of input bytes {}_n{}\n", t.name, bytes, t.name,
                        t.name, chance(50) ? fmt::format(" align {}", 1 << pick(5)) : "");
    out_ += body;
    tensors_.push_back(t);
    buffers_.push_back({t.name, t.name + "_n", t.rank == 0 ? width : 0, chance(30)});
  }
  for (uint32_t i = 0; i < 1 + pick(3); ++i) {
    const std::string name = fresh("n");
    const std::string range = chance(20)
                                  ? ""
                                  : fmt::format(" {}..{}", -static_cast<int>(pick(4)), pick(40));
    declarations_ += fmt::format("  input {} int{}\n", name, range);
    ints_.push_back(name);
  }
  if (chance(50)) {
    const std::string name = fresh("p");
    declarations_ += fmt::format("  input {} bool\n", name);
    ints_.push_back(name);
  }
  if (chance(50)) {
    const std::string name = fresh("t");
    declarations_ += fmt::format("  input {} float\n", name);
    floats_.push_back(name);
  }
  if (chance(10)) declarations_ += "  input nothing none\n";
}

// Declares the tensor outputs. Their sizes are known at once or depend on results.
void RandomWriter::outputs() {
  for (uint32_t i = 0; i < 1 + pick(2); ++i) {
    const std::string name = fresh("y"), n = name + "_n";
    const bool flat = chance(60);
    declarations_ += fmt::format("  output {} tensor u8 rank {}\n", name, flat ? 1 : 2);
    line("let {} = {}", n, size());
    line("buffer {} of output bytes {}", name, flat ? n : fmt::format("mul({}, 3)", n));
    line("fill u8 (write {}, {})", name, pick(256));
    buffers_.push_back({name, flat ? n : fmt::format("mul({}, 3)", n), 0, true});
    results_.push_back(flat ? fmt::format("tensor {} u8 [{}] [1]", name, n)
                            : fmt::format("tensor {} u8 [{}, 3] [3, 1]", name, n));
    if (chance(70)) break;
    statements(static_cast<int>(pick(5)), 0);
  }
}

// The first output depends on all remaining buffers and numbers.
void RandomWriter::finish() {
  const RandomBuffer* y = nullptr;
  for (const RandomBuffer& b : buffers_)
    if (b.name[0] == 'y' && !y) y = &b;
  for (const RandomBuffer& b : buffers_)
    if (b.name != y->name)
      line("launch absorb grid (1, 1, 1) (both {}, read {}, {}, {})", y->name, b.name, y->bytes,
           b.bytes);
  auto output = [&](const char* type, const char* word, const std::string& value) {
    declarations_ += fmt::format("  output {} {}\n", fresh("o"), type);
    results_.push_back(*word ? fmt::format("{} {}", word, value) : "none");
  };
  for (uint32_t i = pick(3); i > 0; --i) output("int", "int", integer(2));
  for (size_t i = ints_.size() > 4 ? ints_.size() - 4 : 0; i < ints_.size(); ++i)
    output("int", "int", ints_[i]);
  if (!floats_.empty()) output("float", "float", floats_.back());
  if (chance(30)) output("float", "float", floating(2));
  if (chance(30)) output("bool", "int", integer(1));
  if (chance(10)) output("none", "", "");
}

std::string RandomWriter::program() {
  std::string head = "hir 1\nproducer \"random\"\ntarget cpu host \"x86-64\"\n";
  head += "constant w u8 [24] bytes \"";
  for (int i = 0; i < 24; ++i) head += fmt::format("{:02x}", pick(256));
  head += fmt::format("\"\nstate s u8 [16] fill {}\nstate v u8 [24] constant w\n", pick(256));
  head +=
      "image k cpu elf \"random_kernels.so\"\n"
      "kernel mix k \"random_mix\" (ptr, ptr, i64, i64, i64)\n"
      "kernel change k \"random_change\" (ptr, i64, i64)\n"
      "kernel absorb k \"random_absorb\" (ptr, ptr, i64, i64)\n"
      "kernel sum k \"random_sum\" (ptr, ptr, i64)\n"
      "kernel record k \"random_record\" (ptr, bool, i8, u16, i32, u64, f32, f64)\n"
      "kernel refuse k \"random_refuse\" (i64)\n";
  buffers_.push_back({"w", "24", 24, false});
  if (chance(60)) buffers_.push_back({"s", "16", 16, true});
  if (chance(40)) buffers_.push_back({"v", "24", 24, true});
  inputs();
  const bool first = chance(70);
  if (first) outputs();
  cell();
  statements(4 + static_cast<int>(pick(14)), 0);
  if (!first) outputs();
  finish();
  std::string results;
  for (const std::string& r : results_) results += (results.empty() ? "" : ", ") + r;
  // The grammar wants inputs before outputs.
  std::string ins, outs;
  for (size_t at = 0; at < declarations_.size();) {
    const size_t end = declarations_.find('\n', at) + 1;
    const std::string declaration = declarations_.substr(at, end - at);
    (declaration.compare(0, 7, "  input") == 0 ? ins : outs) += declaration;
    at = end;
  }
  return head + "function f {\n" + ins + outs + "variant cpu {\n" + out_ + "return (" + results +
         ")\n}\n}\n";
}

std::string random_program(uint32_t seed) { return RandomWriter(seed).program(); }

}  // namespace husk::test
