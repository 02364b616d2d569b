// aten::gcd, by Euclid's algorithm.
#include "core/arguments.h"
#include "core/arithmetic.h"
#include "core/loop.h"

namespace husk::host {

husk_status gcd(const Arguments& args) {
  for (uint32_t i = 0; i < 3; ++i) HUSK_TRY(args.check_tensor(i));
  HUSK_TRY(args.check_same_dtype(1, 0));
  HUSK_TRY(args.check_same_dtype(2, 0));
  Loop<3> loop(args);
  loop.shape(args[2]);
  for (uint32_t i = 0; i < 2; ++i) {
    if (!broadcast(args[i], args[2].sizes, args[2].rank, loop.strides[1 + i])) {
      return args.argument_error(i, HUSK_INVALID_ARGUMENT,
                                 "has a shape that does not broadcast to the output's");
    }
  }
  return visit_argument<Ints>(args, 0, [&](auto tag) {
    using T = typename decltype(tag)::type;
    each(loop, [&](const int64_t(&at)[3]) {
      T a = data_of<T>(args[0])[at[1]], b = data_of<T>(args[1])[at[2]];
      if (a < 0) a = minus(T(0), a);
      if (b < 0) b = minus(T(0), b);
      while (a != 0) {
        const T rest = a == T(-1) ? T(0) : static_cast<T>(b % a);
        b = a;
        a = rest;
      }
      writable<T>(args[2])[at[0]] = b;
    });
  });
}

}  // namespace husk::host
