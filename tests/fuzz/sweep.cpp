// Tries a fixed set of mutants of the seeds' metadata. Each mutant must run, or be refused with a
// reason that names a part of the file. Prints how many were accepted, and the reasons of the
// others.
//   husk_sweep MUTANTS FILE...
#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <string>

#include <husk/husk.h>

#include "fields.h"
#include "mutate.h"

// Verifies, loads and runs an artifact; fuzz_run.cpp defines it.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace husk::fuzz {
namespace {

// The parts of a file. A useful reason names one of them.
const char* const kParts[] = {
    "FlatBuffer", "argument", "blob",     "block",  "buffer",      "constant", "dim",    "dtype",
    "function",   "image",    "index",    "input",  "instruction", "item",     "kernel", "list",
    "loop",       "magic",    "metadata", "name",   "op",          "operand",  "output", "param",
    "rank",       "register", "result",   "row",    "scalar",      "segment",  "space",  "state",
    "step",       "string",   "symbol",   "target", "tensor",      "text",     "type",   "value",
    "variant",    "version",  "view"};

bool names_a_part(const char* text) {
  return std::strlen(text) >= 12 &&
         std::any_of(std::begin(kParts), std::end(kParts),
                     [&](const char* part) { return std::strstr(text, part); });
}

// The text with its numbers and names replaced by placeholders.
std::string kind_of(const char* text) {
  std::string kind;
  for (const char* at = text; *at; ++at) {
    if (*at == '\'') {
      const char* end = std::strchr(at + 1, '\'');
      if (end) at = end;
      kind += "'…'";
    } else if (std::isdigit(static_cast<unsigned char>(*at))) {
      if (kind.empty() || kind.back() != '#') kind += '#';
    } else {
      kind += *at;
    }
  }
  return kind;
}

struct Counts {
  uint64_t mutants = 0, accepted = 0, nameless = 0;
  std::map<std::string, uint64_t> refused;
};

void try_mutant(const std::vector<uint8_t>& mutant, Counts* counts) {
  const Artifact artifact(mutant.data(), mutant.size());
  husk_error error = {};
  const husk_status status = husk_program_verify(artifact.data, artifact.size, &error);
  ++counts->mutants;
  if (status == HUSK_OK) {
    ++counts->accepted;
    LLVMFuzzerTestOneInput(mutant.data(), mutant.size());
    return;
  }
  if ((status != HUSK_INVALID_FILE && status != HUSK_UNSUPPORTED) || error.code != status ||
      !names_a_part(error.text)) {
    std::fprintf(stderr, "refused with %s and no good reason: '%s'\n", husk_status_name(status),
                 error.text);
    ++counts->nameless;
  }
  ++counts->refused[kind_of(error.text)];
}

int sweep(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: husk_sweep MUTANTS FILE...\n");
    return 2;
  }
  const uint64_t each = std::strtoull(argv[1], nullptr, 10) / static_cast<uint64_t>(argc - 2);
  std::mt19937 random(20);
  Counts counts;
  for (int i = 2; i < argc; ++i) {
    std::ifstream stream(argv[i], std::ios::binary);
    const std::vector<uint8_t> seed((std::istreambuf_iterator<char>(stream)), {});
    husk_error error = {};
    const Artifact whole(seed.data(), seed.size());
    if (!whole.data || husk_program_verify(whole.data, whole.size, &error) != HUSK_OK) {
      std::fprintf(stderr, "%s is not an artifact: %s\n", argv[i], error.text);
      return 2;
    }
    const Fields fields = find_fields(seed);
    for (uint64_t n = 0; n < each; ++n) {
      std::vector<uint8_t> mutant = seed;
      const uint32_t kind = random() % 8;
      if (kind < 5)
        for (uint32_t n_fields = 1 + random() % 3; n_fields > 0; --n_fields)
          change_field(mutant, fields, random);
      if (kind == 5 || kind == 6) change_rows(mutant, fields, random);
      if (kind == 7 || kind == 6) change_bytes(mutant, random);
      try_mutant(mutant, &counts);
    }
    std::printf("%s: %zu fields, %llu mutants\n", argv[i], fields.fields.size(),
                static_cast<unsigned long long>(each));
  }
  std::vector<std::pair<uint64_t, std::string>> kinds;
  for (const auto& [kind, count] : counts.refused) kinds.push_back({count, kind});
  std::sort(kinds.rbegin(), kinds.rend());
  std::printf("%llu mutants: %llu accepted, %llu refused with %zu kinds of reasons\n",
              static_cast<unsigned long long>(counts.mutants),
              static_cast<unsigned long long>(counts.accepted),
              static_cast<unsigned long long>(counts.mutants - counts.accepted), kinds.size());
  std::printf(
      "of the accepted ones %llu were loaded, %llu got a session; %llu runs finished, %llu were "
      "refused\n",
      static_cast<unsigned long long>(runs().loaded),
      static_cast<unsigned long long>(runs().sessions),
      static_cast<unsigned long long>(runs().finished),
      static_cast<unsigned long long>(runs().refused));
  for (const auto& [count, kind] : kinds)
    std::printf("%8llu  %s\n", static_cast<unsigned long long>(count), kind.c_str());
  return counts.nameless != 0 || runs().finished < counts.accepted || kinds.size() < 40;
}

}  // namespace
}  // namespace husk::fuzz

int main(int argc, char** argv) { return husk::fuzz::sweep(argc, argv); }
