// aten::fake_quantize_per_tensor_affine_cachemask: rounds to the numbers of a quantized type. The
// mask is true for the elements that were not clamped.
#include <cmath>

#include "core/arguments.h"
#include "core/arithmetic.h"
#include "core/loop.h"

namespace husk::host {

husk_status fake_quantize(const Arguments& args) {
  HUSK_TRY(args.check_masked(0, 5));
  double scale = 0;
  int64_t zero = 0, quant_min = 0, quant_max = 0;
  HUSK_TRY(args.get_number(1, scale));
  HUSK_TRY(args.get_int(2, zero));
  HUSK_TRY(args.get_int(3, quant_min));
  HUSK_TRY(args.get_int(4, quant_max));
  Loop<3> loop(args);
  loop.shape(args[0]);
  loop.add(1, args[5]);
  loop.add(2, args[6]);
  return visit_argument<Floats | Halves>(args, 0, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const float step = static_cast<float>(scale), inverse = 1.0f / step;
    each(loop, [&](const int64_t(&at)[3]) {
      const float value = static_cast<float>(get(data_of<T>(args[0]) + at[0]));
      const float rounded = static_cast<float>(zero) + std::nearbyint(value * inverse);
      const float low = static_cast<float>(quant_min), high = static_cast<float>(quant_max);
      const float clamped = rounded < low || is_nan(rounded) ? low
                            : rounded > high                 ? high
                                                             : rounded;
      set(writable<T>(args[5]) + at[1],
          static_cast<Value<T>>((clamped - static_cast<float>(zero)) * step));
      writable<uint8_t>(args[6])[at[2]] = rounded >= low && rounded <= high;
    });
  });
}

}  // namespace husk::host
