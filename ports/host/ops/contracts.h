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
#include "core/pack.def"
#undef HUSK_HOST_OP
};

// Have no definitions, so that a constant that calls one of them does not compile.
uint32_t no_row_of_the_function_has_such_an_argument();
uint32_t the_rows_of_the_function_differ();

// The arguments of a function of pack.def. Meant for constants: a name that no row of the function
// has is an error of the compiler then, and so is one that two rows have at different places.
class ArgumentsOf {
 public:
  constexpr explicit ArgumentsOf(const char* function) : function_(function) {}

  constexpr uint32_t operator[](const char* name) const {
    constexpr uint32_t kNowhere = ~0u;
    uint32_t place = kNowhere;
    for (const FunctionContract& row : kFunctionContracts) {
      const detail::ArgumentPlaces arguments(row.contract);
      if (!is_same(row.function, function_) || !arguments.has(name)) continue;
      if (place != kNowhere && place != arguments[name]) return the_rows_of_the_function_differ();
      place = arguments[name];
    }
    return place != kNowhere ? place : no_row_of_the_function_has_such_an_argument();
  }

 private:
  static constexpr bool is_same(const char* one, const char* other) {
    for (; *one && *one == *other; ++one, ++other) {
    }
    return *one == *other;
  }

  const char* function_;
};

}  // namespace husk::host
