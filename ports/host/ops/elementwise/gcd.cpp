// aten::gcd, by Euclid's algorithm.
#include <initializer_list>

#include "contracts.h"
#include "core/arguments.h"
#include "core/arithmetic.h"
#include "core/loop.h"

namespace husk::host {

husk_status gcd(const Arguments& args) {
  constexpr ArgumentsOf named("gcd");
  constexpr uint32_t kSelf = named["self"], kOther = named["other"], kOut = named["out"];
  for (const uint32_t at : {kSelf, kOther, kOut}) HUSK_TRY(args.check_tensor(at));
  HUSK_TRY(args.check_same_dtype(kOther, kSelf));
  HUSK_TRY(args.check_same_dtype(kOut, kSelf));
  Loop<3> loop(args);
  loop.shape(args[kOut]);
  int operand = 0;
  for (const uint32_t at : {kSelf, kOther}) {
    if (!broadcast(args[at], args[kOut].sizes, args[kOut].rank, loop.strides[++operand])) {
      return args.argument_error(at, HUSK_INVALID_ARGUMENT,
                                 "has a shape that does not broadcast to the output's");
    }
  }
  return visit_argument<Ints>(args, kSelf, [&](auto tag) {
    using T = typename decltype(tag)::type;
    each(loop, [&](const int64_t(&at)[3]) {
      T a = data_of<T>(args[kSelf])[at[1]], b = data_of<T>(args[kOther])[at[2]];
      if (a < 0) a = minus(T(0), a);
      if (b < 0) b = minus(T(0), b);
      while (a != 0) {
        const T rest = a == T(-1) ? T(0) : static_cast<T>(b % a);
        b = a;
        a = rest;
      }
      writable<T>(args[kOut])[at[0]] = b;
    });
  });
}

}  // namespace husk::host
