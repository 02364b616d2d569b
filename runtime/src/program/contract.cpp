#include "program/contract.h"

#include <cstring>

namespace husk::runtime {
namespace {

// Reads the part of a contract that `*at` points to, and moves `*at` behind it. `*valid` is cleared
// if the part has a mark that does not exist. Returns false at the end of the text.
bool next_part(const char** at, ArgumentContract* out, bool* valid) {
  if (!**at) return false;
  const char* text = *at;
  const char* end = text + strcspn(text, " ");
  *at = *end ? end + 1 : end;
  *out = ArgumentContract();
  out->optional = end > text && end[-1] == '?';
  if (out->optional) --end;
  const auto length = [&](const char* marks) {
    const auto n = static_cast<int>(strcspn(text, marks));
    return n < end - text ? n : static_cast<int>(end - text);
  };
  out->name = {text, length(" :=?")};
  text += out->name.length;
  if (text < end && *text == ':') {
    ++text;
    const int n = length(" =?");
    out->access = 0;
    for (int i = 0; i < n; ++i)
      out->access |= text[i] == 'r' ? HUSK_ACCESS_READ : text[i] == 'w' ? HUSK_ACCESS_WRITE : 0;
    *valid = *valid && ((n == 1 && *text == 'w') || (n == 2 && memcmp(text, "rw", 2) == 0));
    text += n;
  }
  if (text < end && *text == '=') {
    ++text;
    out->same_as = {text, length(" ?")};
    text += out->same_as.length;
  }
  *valid = *valid && text == end && out->name.length > 0;
  return true;
}

bool has_argument(const char* contract, ContractName name) {
  ArgumentContract part;
  bool valid = true;
  while (next_part(&contract, &part, &valid))
    if (part.name == name) return true;
  return false;
}

}  // namespace

bool ContractName::operator==(const ContractName& other) const {
  return length == other.length && memcmp(text, other.text, static_cast<size_t>(length)) == 0;
}

Status check_contract(const char* name, const char* contract, husk_error* error) {
  if (!contract) return Status::ok;
  ArgumentContract part;
  bool valid = true, optional = false;
  for (const char* at = contract; next_part(&at, &part, &valid);) {
    valid = valid && (part.optional || !optional) &&
            (!part.same_as.text || (writes(part.access) && has_argument(contract, part.same_as)));
    optional = part.optional;
    if (!valid)
      return fail(error, HUSK_INVALID_ARGUMENT,
                  "op '%s': its contract is wrong at '%.*s': husk/op.h has the rules", name,
                  part.name.length, part.name.text);
  }
  return Status::ok;
}

ArgumentContract argument_contract(const char* contract, const Code& code,
                                   const fb::Instruction& step, uint32_t argument) {
  if (argument >= step.aux()) {  // an item: the verifier put it into one list
    const fb::Argument* arguments = code.arguments.data() + step.b();
    for (uint32_t list = 0; list < step.aux(); ++list)
      if (static_cast<ArgumentKind>(arguments[list].kind()) == ArgumentKind::tensors &&
          argument - arguments[list].index() < arguments[list].count()) {
        argument = list;
        break;
      }
  }
  ArgumentContract part;
  bool valid = true;
  for (uint32_t i = 0; i <= argument && next_part(&contract, &part, &valid);) ++i;
  return part;
}

Status check_call(const char* contract, const Code& code, const fb::Instruction& step,
                  husk_error* error) {
  uint32_t least = 0, most = 0;
  ArgumentContract part;
  bool valid = true;
  for (const char* at = contract; next_part(&at, &part, &valid); ++most) least += !part.optional;
  if (step.aux() < least || step.aux() > most)
    return invalid_file(error, ": %u arguments, the op takes %u: export again",
                        unsigned(step.aux()), step.aux() < least ? least : most);
  for (uint32_t i = 0; i < step.c(); ++i) {
    const fb::Argument& argument = code.arguments[step.b() + i];
    if (static_cast<ArgumentKind>(argument.kind()) != ArgumentKind::tensor) continue;
    part = argument_contract(contract, code, step, i);
    if ((part.access & ~uint32_t{argument.access()}) == 0) continue;
    return invalid_file(error, ": the op %s argument '%.*s', the file says that it does not",
                        writes(part.access & ~uint32_t{argument.access()}) ? "writes" : "reads",
                        part.name.length, part.name.text);
  }
  return Status::ok;
}

}  // namespace husk::runtime
