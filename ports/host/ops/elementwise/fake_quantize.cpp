// aten::fake_quantize_per_tensor_affine_cachemask: rounds to the numbers of a quantized type. The
// mask is true for the elements that were not clamped.
#include <cmath>

#include "contracts.h"
#include "core/arguments.h"
#include "core/arithmetic.h"
#include "core/loop.h"

namespace husk::host {

husk_status fake_quantize(const Arguments& args) {
  constexpr ArgumentsOf named("fake_quantize");
  constexpr uint32_t kSelf = named["self"], kScale = named["scale"],
                     kZeroPoint = named["zero_point"], kQuantMin = named["quant_min"],
                     kQuantMax = named["quant_max"], kOut = named["out"], kMask = named["mask"];
  HUSK_TRY(args.check_masked(kSelf, kOut, kMask));
  double scale = 0;
  int64_t zero = 0, quant_min = 0, quant_max = 0;
  HUSK_TRY(args.get_number(kScale, scale));
  HUSK_TRY(args.get_int(kZeroPoint, zero));
  HUSK_TRY(args.get_int(kQuantMin, quant_min));
  HUSK_TRY(args.get_int(kQuantMax, quant_max));
  Loop<3> loop(args);
  loop.shape(args[kSelf]);
  loop.add(1, args[kOut]);
  loop.add(2, args[kMask]);
  return visit_argument<Floats | Halves>(args, kSelf, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const float step = static_cast<float>(scale), inverse = 1.0f / step;
    each(loop, [&](const int64_t(&at)[3]) {
      const float value = static_cast<float>(get(data_of<T>(args[kSelf]) + at[0]));
      const float rounded = static_cast<float>(zero) + std::nearbyint(value * inverse);
      const float low = static_cast<float>(quant_min), high = static_cast<float>(quant_max);
      const float clamped = rounded < low || is_nan(rounded) ? low
                            : rounded > high                 ? high
                                                             : rounded;
      set(writable<T>(args[kOut]) + at[1],
          static_cast<Value<T>>((clamped - static_cast<float>(zero)) * step));
      writable<uint8_t>(args[kMask])[at[2]] = rounded >= low && rounded <= high;
    });
  });
}

}  // namespace husk::host
