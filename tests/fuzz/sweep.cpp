// Tries a fixed set of mutants of the seeds' metadata, with valid hashes. Each mutant must run on
// the checking ports and on the port of the host, or be refused with a reason that names a part of
// the file. Prints how many ran, how many were refused, and the reasons.
//   husk_sweep MUTANTS FILE_OR_FOLDER...
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

#include <husk/husk.h>

#include "fields.h"
#include "mutate.h"
#include "op_calls.h"
#include "reasons.h"
#include "run_artifact.h"
#include "seed_files.h"

namespace husk::fuzz {
namespace {

struct Counts {
  uint64_t mutants = 0, nameless = 0;
  // By port: mutants that ran without a refusal, mutants that ended in each stage, and runs.
  uint64_t ran[3] = {}, refused[3][4] = {}, runs[3] = {};
  std::map<std::string, uint64_t> reasons[3];
};

void count(const Outcome& outcome, int port, Counts* counts) {
  counts->runs[port] += outcome.finished;
  if (outcome.reason.empty()) {
    ++counts->ran[port];
    return;
  }
  ++counts->refused[port][static_cast<int>(outcome.stage)];
  ++counts->reasons[port][kind_of(outcome.reason)];
  if (names_a_part(outcome.reason)) return;
  std::fprintf(stderr, "refused with no good reason: '%s'\n", outcome.reason.c_str());
  ++counts->nameless;
}

void try_mutant(const std::vector<uint8_t>& mutant, Counts* counts,
                Budgets budgets = Budgets::by_hash) {
  const Artifact artifact(mutant.data(), mutant.size());
  ++counts->mutants;
  const Outcome checked = run_artifact(artifact, PortKind::checking, budgets);
  count(checked, 0, counts);
  // The verifier does not depend on the port.
  const auto run_on = [&](PortKind port) {
    return checked.stage == Stage::verify ? checked : run_artifact(artifact, port, budgets);
  };
  count(run_on(PortKind::host), 1, counts);
  count(run_on(PortKind::beside_host), 2, counts);
}

void print(const Counts& counts, int port) {
  const uint64_t* refused = counts.refused[port];
  std::printf(
      "%s: %llu mutants ran, %llu were refused: %llu by the verifier, %llu when opened, "
      "%llu by the session, %llu by a run; %llu runs finished\n",
      port == 0   ? "checking port"
      : port == 1 ? "port of the host and its ops"
                  : "checking port beside a host",
      static_cast<unsigned long long>(counts.ran[port]),
      static_cast<unsigned long long>(counts.mutants - counts.ran[port]),
      static_cast<unsigned long long>(refused[0]), static_cast<unsigned long long>(refused[1]),
      static_cast<unsigned long long>(refused[2]), static_cast<unsigned long long>(refused[3]),
      static_cast<unsigned long long>(counts.runs[port]));
}

void print(const std::map<std::string, uint64_t>& reasons) {
  std::vector<std::pair<uint64_t, std::string>> rows;
  for (const auto& [reason, n] : reasons) rows.push_back({n, reason});
  std::sort(rows.rbegin(), rows.rend());
  for (const auto& [n, reason] : rows)
    std::printf("%8llu  %s\n", static_cast<unsigned long long>(n), reason.c_str());
}

// Returns the number of ops that no artifact has called with arguments that they accept.
int print_ops() {
  int missing = 0;
  uint64_t calls = 0, finished = 0;
  for (const OpCalls& op : op_calls()) {
    calls += op.calls;
    finished += op.finished;
    if (op.finished > 0 || op.needs_ranks) continue;
    std::fprintf(stderr, "no artifact has called %s with arguments that it accepts\n", op.name);
    ++missing;
  }
  std::printf(
      "%zu of %zu ops of pack.def were called with arguments that they accept; of %llu "
      "calls %llu finished\n",
      op_calls().size() - static_cast<size_t>(missing), op_calls().size(),
      static_cast<unsigned long long>(calls), static_cast<unsigned long long>(finished));
  return missing;
}

int sweep(int argc, char** argv) {
  const auto seeds = argc < 3 ? std::vector<SeedFile>() : read_seeds(argv + 2, argv + argc);
  if (seeds.empty()) {
    std::fprintf(stderr, "usage: husk_sweep MUTANTS FILE_OR_FOLDER...\n");
    return 2;
  }
  const uint64_t mutants = std::strtoull(argv[1], nullptr, 10);
  std::mt19937 random(20);
  Counts counts;
  size_t n_fields = 0;
  for (size_t i = 0; i < seeds.size(); ++i) {
    const std::vector<uint8_t>& seed = seeds[i].bytes;
    husk_error error = {};
    const Artifact whole(seed.data(), seed.size());
    if (!whole.data || husk_program_verify(whole.data, whole.size, &error) != HUSK_OK) {
      std::fprintf(stderr, "%s is not an artifact: %s\n", seeds[i].name.c_str(), error.text);
      return 2;
    }
    Counts unchanged;
    // What the hash of a seed is depends on the compiler of its kernels.
    try_mutant(seed, &unchanged, Budgets::never);
    if (unchanged.runs[0] + unchanged.runs[2] == 0) {
      std::fprintf(stderr, "%s does not run: %s\n", seeds[i].name.c_str(),
                   unchanged.reasons[0].begin()->first.c_str());
      return 2;
    }
    const Fields fields = find_fields(seed);
    n_fields += fields.fields.size();
    const uint64_t each = mutants * (i + 1) / seeds.size() - mutants * i / seeds.size();
    for (uint64_t n = 0; n < each; ++n) {
      std::vector<uint8_t> mutant = seed;
      const uint32_t kind = random() % 8;
      for (uint32_t changes = kind < 4 ? 1 + random() % 3 : 0; changes > 0; --changes)
        change_literal(mutant, fields, random);
      for (uint32_t changes = kind >= 3 && kind < 6 ? 1 + random() % 3 : 0; changes > 0; --changes)
        change_field(mutant, fields, random);
      if (kind == 6) change_rows(mutant, fields, random);
      if (kind == 7) change_bytes(mutant, random);
      try_mutant(mutant, &counts);
    }
  }
  std::printf("%llu mutants of %zu seeds with %zu fields\n",
              static_cast<unsigned long long>(counts.mutants), seeds.size(), n_fields);
  print(counts, 0);
  print(counts, 1);
  print(counts, 2);
  const int missing = print_ops();
  std::printf("reasons on the port of the host, %zu kinds:\n", counts.reasons[1].size());
  print(counts.reasons[1]);
  return counts.nameless != 0 || missing != 0 || counts.runs[0] < counts.ran[0] ||
         counts.runs[1] < counts.ran[1] || counts.runs[2] == 0 || counts.reasons[1].size() < 60;
}

}  // namespace
}  // namespace husk::fuzz

int main(int argc, char** argv) { return husk::fuzz::sweep(argc, argv); }
