// The places of the arguments of the host's ops, by their names in the contracts of pack.def. The
// order of arguments stands there alone.
#pragma once

#include <husk/detail/argument_places.h>

namespace husk::host {

// For ArgumentsOf: the contract of each op by the function that computes it.
struct FunctionContract {
  const char *function, *contract;
};
inline constexpr FunctionContract kFunctionContracts[] = {
#define HUSK_HOST_OP(name, run, contract) {#run, contract},
#include "library/pack.def"
#undef HUSK_HOST_OP
};

// Have no definitions, so that a constant that calls one of them does not compile.
uint32_t no_row_of_the_function_has_such_an_argument();
uint32_t the_rows_of_the_function_differ();

// The arguments of a function of pack.def, or those that several functions have at the same places.
// Meant for constants: a name that no row of a function has is an error of the compiler then, and
// so is one that two rows have at different places.
class ArgumentsOf {
 public:
  template <class... Functions>
  constexpr explicit ArgumentsOf(const char* first, Functions... others)
      : functions_{first, others...} {}

  constexpr uint32_t operator[](const char* name) const {
    const uint32_t place = find(functions_[0], name);
    for (const char* function : functions_)
      if (function && find(function, name) != place) return the_rows_of_the_function_differ();
    return place;
  }

 private:
  static constexpr uint32_t find(const char* function, const char* name) {
    constexpr uint32_t kNowhere = ~0u;
    uint32_t place = kNowhere;
    for (const FunctionContract& row : kFunctionContracts) {
      const detail::ArgumentPlaces arguments(row.contract);
      if (!is_same(row.function, function) || !arguments.has(name)) continue;
      if (place != kNowhere && place != arguments[name]) return the_rows_of_the_function_differ();
      place = arguments[name];
    }
    return place != kNowhere ? place : no_row_of_the_function_has_such_an_argument();
  }
  static constexpr bool is_same(const char* one, const char* other) {
    for (; *one && *one == *other; ++one, ++other) {
    }
    return *one == *other;
  }

  const char* functions_[40] = {};
};

}  // namespace husk::host
