// aten::where.
#include "core/arguments.h"
#include "core/arithmetic.h"
#include "core/loop.h"

namespace husk::host {

husk_status where(const Arguments& args) {
  for (uint32_t i = 0; i < 4; ++i) HUSK_TRY(args.check_tensor(i));
  HUSK_TRY(args.check_mask_dtype(0));
  const husk_op_arg& out = args[3];
  // Elements of `other` are copied first. Elements of `self` then replace those whose condition is
  // true.
  HUSK_TRY(copy_elements(args, 3, 2));
  Loop<3> loop(args);
  loop.shape(out);
  if (!broadcast(args[0], out.sizes, out.rank, loop.strides[1]) ||
      !broadcast(args[1], out.sizes, out.rank, loop.strides[2])) {
    return args.argument_error(
        1, HUSK_INVALID_ARGUMENT,
        "or the condition has a shape that does not broadcast to the output's");
  }
  loop.merge();
  bool supported = false;
  const bool self_supported = visit<Everything>(args[1].dtype, [&](auto source) {
    using S = typename decltype(source)::type;
    if (args[1].dtype == out.dtype) {
      supported = true;
      each(loop, [&](const int64_t(&at)[3]) {
        if (data_of<uint8_t>(args[0])[at[1]]) writable<S>(out)[at[0]] = data_of<S>(args[1])[at[2]];
      });
      return;
    }
    supported = visit<Complexes>(out.dtype, [&](auto target) {
      using T = typename decltype(target)::type;
      each(loop, [&](const int64_t(&at)[3]) {
        if (data_of<uint8_t>(args[0])[at[1]])
          set(writable<T>(out) + at[0], cast<T>(get(data_of<S>(args[1]) + at[2])));
      });
    });
  });
  return self_supported && supported ? husk_status{HUSK_OK} : args.unsupported_dtype(1);
}

}  // namespace husk::host
