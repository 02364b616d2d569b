/** @file
 * The places of an op's arguments, by the names in its contract (husk_op.contract in husk/op.h).
 * An op reads its arguments by these places, so their order stands in the contract alone. */
#ifndef HUSK_DETAIL_ARGUMENT_PLACES_H
#define HUSK_DETAIL_ARGUMENT_PLACES_H

#include <stdint.h>

namespace husk::detail {

/** Has no definition, so that a constant that calls it does not compile. */
uint32_t the_contract_has_no_such_argument();

/** The arguments of one contract. Meant for constants: a name that the contract lacks is an error
 * of the compiler then.
 *
 *     constexpr ArgumentPlaces at("self other out:w");
 *     constexpr uint32_t kOther = at["other"];  // 1
 */
class ArgumentPlaces {
 public:
  constexpr explicit ArgumentPlaces(const char* contract) : contract_(contract) {}

  constexpr bool has(const char* name) const { return find(name) < count(); }
  constexpr uint32_t operator[](const char* name) const {
    return has(name) ? find(name) : the_contract_has_no_such_argument();
  }
  constexpr uint32_t count() const {
    uint32_t arguments = 0;
    for (const char* at = contract_; *at; at = next(at)) ++arguments;
    return arguments;
  }

 private:
  // The place of an argument; their count if there is no such name.
  constexpr uint32_t find(const char* name) const {
    uint32_t place = 0;
    for (const char* at = contract_; *at && !begins_with(at, name); at = next(at)) ++place;
    return place;
  }
  static constexpr const char* next(const char* at) {
    while (*at && *at != ' ') ++at;
    return *at ? at + 1 : at;
  }
  static constexpr bool begins_with(const char* at, const char* name) {
    for (; *name; ++at, ++name)
      if (*at != *name) return false;
    return !*at || *at == ' ' || *at == ':' || *at == '=' || *at == '?';
  }

  const char* contract_;
};

}  // namespace husk::detail
#endif
