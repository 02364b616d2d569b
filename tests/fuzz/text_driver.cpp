// Runs the fuzzer of texts without libFuzzer, on texts and on mutants of them, which a fixed seed
// determines. Mutants have words or lines removed, repeated, moved or replaced by those of another
// text, and changed numbers and bytes.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "seed_files.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

std::mt19937 random_source(1);
size_t pick(size_t n) { return random_source() % n; }

// Splits a text into words, each with the white space after it. A mark is a word.
std::vector<std::string> words(const std::string& text) {
  auto is_letter = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' || c == '-';
  };
  std::vector<std::string> out;
  for (size_t at = 0; at < text.size();) {
    size_t end = at + 1;
    while (end < text.size() && is_letter(text[at]) && is_letter(text[end])) ++end;
    while (end < text.size() && std::isspace(static_cast<unsigned char>(text[end]))) ++end;
    out.push_back(text.substr(at, end - at));
    at = end;
  }
  return out;
}

std::vector<std::string> lines(const std::string& text) {
  std::vector<std::string> out;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size() - 1) + 1;
    out.push_back(text.substr(at, end - at));
    at = end;
  }
  return out;
}

void change(std::vector<std::string>& parts, const std::vector<std::string>& others) {
  const size_t at = pick(parts.size());
  switch (pick(6)) {
    case 0: parts.erase(parts.begin() + static_cast<ptrdiff_t>(at)); break;
    case 1:
      parts.insert(parts.begin() + static_cast<ptrdiff_t>(at), parts[pick(parts.size())]);
      break;
    case 2:
      parts.insert(parts.begin() + static_cast<ptrdiff_t>(at), others[pick(others.size())]);
      break;
    case 3: std::swap(parts[at], parts[pick(parts.size())]); break;
    case 4: parts[at] = others[pick(others.size())]; break;
    default: {
      static const char* const numbers[] = {"0 ",
                                            "1 ",
                                            "-1 ",
                                            "9223372036854775807 ",
                                            "-9223372036854775808 ",
                                            "64 ",
                                            "nan ",
                                            "1.0 ",
                                            "n ",
                                            "x ",
                                            "result(0) ",
                                            "true "};
      parts[at] = numbers[pick(std::size(numbers))];
    }
  }
  if (parts.empty()) parts.emplace_back(" ");
}

std::string mutant(const std::string& seed, const std::string& other) {
  const bool whole_lines = pick(2);
  std::vector<std::string> parts = whole_lines ? lines(seed) : words(seed);
  const std::vector<std::string> others = whole_lines ? lines(other) : words(other);
  for (size_t n = 1 + pick(3); n > 0; --n) change(parts, others);
  std::string out;
  for (const std::string& part : parts) out += part;
  if (pick(8) == 0 && !out.empty()) out[pick(out.size())] = static_cast<char>(random_source());
  return out;
}

void run(const std::string& text) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(text.data()), text.size());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: %s MUTANTS FILE_OR_FOLDER...\n", argv[0]);
    return 2;
  }
  std::vector<std::string> seeds;
  for (const auto& file : husk::fuzz::read_seeds(argv + 2, argv + argc))
    if (!file.bytes.empty()) seeds.emplace_back(file.bytes.begin(), file.bytes.end());
  const int mutants = std::atoi(argv[1]);
  for (const std::string& seed : seeds) {
    run(seed);
    for (int n = 0; n < mutants; ++n) run(mutant(seed, seeds[pick(seeds.size())]));
  }
  std::printf("%zu texts with %d mutants each\n", seeds.size(), mutants);
  return 0;
}
