// Compares what is verified with the schema. Each field of husk.fbs, each operand of each
// instruction of ops.def and each field of each kind of argument is changed in valid artifacts.
// Some change must be refused by the verifier with a reason, or the field is in kAcceptsAll, which
// says why every value is valid. A field that the schema gets and the verifier ignores fails here.
//   husk_every_field MUTANTS FILE_OR_FOLDER...
// MUTANTS more mutants are verified for the coverage of the verifier (coverage.sh).
#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>

#include <husk/husk.h>

#include "fields.h"
#include "model/rows.h"
#include "mutate.h"
#include "reasons.h"
#include "seed_files.h"

namespace husk::fuzz {
namespace {

struct Accepted {
  const char* field;
  const char* reason;
};

// Numbers of which every value is valid, or of which only another number decides which are. The
// halves of immediates are not here: ops.def says which operands they are.
constexpr Accepted kAcceptsAll[] = {
    {"Kernel.shared", "the port refuses what the device does not have when it loads the kernel"},
    {"State.fill", "only elements of more than 8 bytes restrict it; verify_tables_test.cpp has it"},
};

std::string shown(const Field& field) {
  static const char* const kWords[] = {"",          " (offset)",     " (length)",
                                       " (letter)", " (terminator)", " (removed)"};
  return field.name + kWords[static_cast<int>(field.kind)];
}

// Whether a change of the field must be refused. A text may have any letters, and a field that is
// not required may be missing.
bool must_be_checked(const Field& field) {
  if (field.kind == FieldKind::entry) return field.required;
  return field.kind != FieldKind::letter;
}

std::vector<uint64_t> values_for(const Field& field, uint64_t old, uint32_t width) {
  const uint64_t all = ~uint64_t{0} >> (64 - 8 * width);
  if (field.kind == FieldKind::entry) return {0};
  if (field.kind == FieldKind::terminator) return {1};
  if (field.kind == FieldKind::reference) return {all, all >> 1, old + 1, old + 4, 0};
  if (field.kind == FieldKind::length) return {all, all >> 3, old + 1, old ? old - 1 : 1};
  return {all, all >> 1, (all >> 1) + 1, 0,       1,      2,         3, 4, 5,
          8,   13,       old + 1,        old - 1, 0x1000, old ^ 0x80};
}

class Search {
 public:
  // Changes each field of one artifact, at some of its places.
  bool add(const SeedFile& seed) {
    if (!verify(seed.bytes).empty()) {
      std::fprintf(stderr, "%s is not an artifact: %s\n", seed.name.c_str(),
                   verify(seed.bytes).c_str());
      return false;
    }
    const Fields fields = find_fields(seed.bytes);
    for (const Field& field : fields.fields) {
      in_schema_.insert(field.in_schema);
      if (!must_be_checked(field)) continue;
      seen_.insert(shown(field));
      if (tries_[shown(field)] > 400) continue;
      const size_t stride = field.places.size() / 8 + 1;
      for (size_t i = 0; i < field.places.size(); i += stride) change(seed, field, i);
    }
    return true;
  }

  // Verifies mutants with several changes.
  void add_random(const SeedFile& seed, uint64_t mutants) {
    const Fields fields = find_fields(seed.bytes);
    for (; mutants > 0; --mutants) {
      std::vector<uint8_t> mutant = seed.bytes;
      const uint32_t kind = random_() % 8;
      for (uint32_t n = kind < 6 ? 1 + random_() % 3 : 0; n > 0; --n)
        change_field(mutant, fields, random_);
      if (kind >= 5) change_rows(mutant, fields, random_);
      verify(mutant);
    }
  }

  // Prints the fields that lack a rejecting case; returns their number.
  int report() const {
    int missing = 0;
    const auto fail = [&missing](const std::string& field, const char* text) {
      std::fprintf(stderr, "%s: %s\n", field.c_str(), text);
      ++missing;
    };
    for (const std::string& field : fields_of_schema())
      if (!in_schema_.count(field)) fail(field, "no seed has this field of husk.fbs");
    for (const char* name : {
#define HUSK_SCALAR(code, name, result, a, b, c) "scalar " #name ".op",
#define HUSK_STEP(code, name, a) "step " #name ".op",
#include <ops.def>
         })
      if (!seen_.count(name)) fail(name, "no seed has this instruction of ops.def");
    std::set<std::string> kinds;
    for (const std::string& field : seen_)
      if (field.rfind("argument ", 0) == 0) kinds.insert(field.substr(0, field.find('.')));
    if (kinds.size() != size_t(ArgumentKind::tensors) + 1) fail("argument", "a kind is in no seed");
    for (const std::string& field : seen_) {
      const bool is_refused = refused_.count(field) != 0;
      if (!is_refused && !accepts_all(field))
        fail(field, "the verifier refuses no value of this field");
      if (is_refused && accepts_all(field))
        fail(field, "is in kAcceptsAll, but values are refused");
    }
    for (const Accepted& row : kAcceptsAll)
      if (!seen_.count(row.field)) fail(row.field, "is in kAcceptsAll, but in no seed");
    std::printf(
        "%zu fields of husk.fbs in %zu places of rows: %zu have a rejecting case, in %zu "
        "every value is valid; %llu artifacts verified\n",
        in_schema_.size(), seen_.size(), refused_.size(), std::size(kAcceptsAll),
        static_cast<unsigned long long>(verified_));
    return missing;
  }

 private:
  static bool accepts_all(const std::string& field) {
#define HUSK_SCALAR(code, name, result, a, b, c)                        \
  if (#a == std::string("Imm") &&                                       \
      (field == "scalar " #name ".b" || field == "scalar " #name ".c")) \
    return true;
#include <ops.def>
    for (const Accepted& row : kAcceptsAll)
      if (field == row.field) return true;
    return false;
  }

  void change(const SeedFile& seed, const Field& field, size_t i) {
    const Place place = field.places[i];
    const uint64_t old = load(seed.bytes, place);
    std::vector<uint64_t> values = values_for(field, old, place.width);
    values.push_back(load(seed.bytes, field.places[(i + 1) % field.places.size()]));
    for (uint64_t value : values) {
      std::vector<uint8_t> mutant = seed.bytes;
      store(mutant, place, value);
      if (mutant == seed.bytes) continue;
      ++tries_[shown(field)];
      const std::string reason = verify(mutant);
      // A number cannot break the form of a FlatBuffer.
      const bool form = reason.find("FlatBuffer") != std::string::npos;
      if (!reason.empty() && names_a_part(reason) && (field.kind != FieldKind::number || !form))
        refused_.insert(shown(field));
    }
  }

  // Returns the reason of the refusal; "" if there is none.
  std::string verify(const std::vector<uint8_t>& file) {
    ++verified_;
    const Artifact artifact(file.data(), file.size());
    husk_error error = {};
    return husk_program_verify(artifact.data, artifact.size, &error) == HUSK_OK ? "" : error.text;
  }

  std::set<std::string> in_schema_, seen_, refused_;
  std::map<std::string, int> tries_;
  std::mt19937 random_{1};
  uint64_t verified_ = 0;
};

int search(int argc, char** argv) {
  const auto seeds = argc < 3 ? std::vector<SeedFile>() : read_seeds(argv + 2, argv + argc);
  if (seeds.empty()) {
    std::fprintf(stderr, "usage: husk_every_field MUTANTS FILE_OR_FOLDER...\n");
    return 2;
  }
  Search search;
  for (const SeedFile& seed : seeds)
    if (!search.add(seed)) return 2;
  const uint64_t mutants = std::strtoull(argv[1], nullptr, 10) / seeds.size();
  for (const SeedFile& seed : seeds) search.add_random(seed, mutants);
  return search.report() == 0 ? 0 : 1;
}

}  // namespace
}  // namespace husk::fuzz

int main(int argc, char** argv) { return husk::fuzz::search(argc, argv); }
