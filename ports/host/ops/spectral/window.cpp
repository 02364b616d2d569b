// aten::hann_window.
#include <cmath>

#include "contracts.h"
#include "core/arguments.h"
#include "core/element.h"
#include "core/loop.h"

namespace husk::host {

namespace {

// Fills the output with a Hann window of the length that `window_length` gives.
husk_status hann(const Arguments& args, ArgumentPlace out_at, bool periodic) {
  constexpr ArgumentsOf named("hann_window", "hann_window_periodic");
  constexpr uint32_t kWindowLength = named["window_length"];
  int64_t length = 0;
  HUSK_TRY(args.get_int(kWindowLength, length));
  HUSK_TRY(args.check_vector(out_at, length, "window_length"));
  const husk_op_arg& out = args[out_at];
  const double turns = static_cast<double>(periodic ? length : length - 1);
  return visit_argument<Floats | Halves>(args, out_at, [&](auto tag) {
    using T = typename decltype(tag)::type;
    each_index(args.cancellation, length, [&](int64_t i) {
      const double angle = 2 * 3.14159265358979323846 * static_cast<double>(i) / turns;
      set(writable<T>(out) + i * out.strides[0],
          static_cast<Value<T>>(length == 1 ? 1 : 0.5 - 0.5 * std::cos(angle)));
    });
  });
}

}  // namespace

husk_status hann_window(const Arguments& args) {
  constexpr ArgumentsOf named("hann_window");
  constexpr uint32_t kOut = named["out"];
  return hann(args, kOut, true);
}

husk_status hann_window_periodic(const Arguments& args) {
  constexpr ArgumentsOf named("hann_window_periodic");
  constexpr uint32_t kPeriodic = named["periodic"], kOut = named["out"];
  bool periodic = false;
  HUSK_TRY(args.get_bool(kPeriodic, periodic));
  return hann(args, kOut, periodic);
}

}  // namespace husk::host
