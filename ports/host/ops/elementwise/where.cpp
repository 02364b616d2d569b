// aten::where.
#include <initializer_list>

#include "contracts.h"
#include "core/arguments.h"
#include "core/arithmetic.h"
#include "core/loop.h"

namespace husk::host {

husk_status where(const Arguments& args) {
  constexpr ArgumentsOf named("where");
  constexpr uint32_t kCondition = named["condition"], kSelf = named["self"],
                     kOther = named["other"], kOut = named["out"];
  for (const uint32_t at : {kCondition, kSelf, kOther, kOut}) HUSK_TRY(args.check_tensor(at));
  HUSK_TRY(args.check_mask_dtype(kCondition));
  const husk_op_arg& out = args[kOut];
  // Elements of `other` are copied first. Elements of `self` then replace those whose condition is
  // true.
  HUSK_TRY(copy_elements(args, kOut, kOther));
  Loop<3> loop(args);
  loop.shape(out);
  if (!broadcast(args[kCondition], out.sizes, out.rank, loop.strides[1]) ||
      !broadcast(args[kSelf], out.sizes, out.rank, loop.strides[2])) {
    return args.argument_error(
        kSelf, HUSK_INVALID_ARGUMENT,
        "or the condition has a shape that does not broadcast to the output's");
  }
  loop.merge();
  bool supported = false;
  const bool self_supported = visit<Everything>(args[kSelf].dtype, [&](auto source) {
    using S = typename decltype(source)::type;
    if (args[kSelf].dtype == out.dtype) {
      supported = true;
      each(loop, [&](const int64_t(&at)[3]) {
        if (data_of<uint8_t>(args[kCondition])[at[1]])
          writable<S>(out)[at[0]] = data_of<S>(args[kSelf])[at[2]];
      });
      return;
    }
    supported = visit<Complexes>(out.dtype, [&](auto target) {
      using T = typename decltype(target)::type;
      each(loop, [&](const int64_t(&at)[3]) {
        if (data_of<uint8_t>(args[kCondition])[at[1]])
          set(writable<T>(out) + at[0], cast<T>(get(data_of<S>(args[kSelf]) + at[2])));
      });
    });
  });
  return self_supported && supported ? husk_status{HUSK_OK} : args.unsupported_dtype(kSelf);
}

}  // namespace husk::host
