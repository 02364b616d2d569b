// aten::copy_ and its kin: any strides, broadcasting, any dtype to any other. A conversion goes through a block of wide
// numbers, so that there is code for each dtype and not for each pair of them.
#include <string.h>

#include "arguments.h"
#include "eight.h"
#include "loop.h"
#include "number.h"

namespace husk::host {

namespace {

template <class T>
void move_row(T* to, int64_t to_step, const T* from, int64_t from_step, int64_t count) {
  if (to_step == 1 && from_step == 1) {
    memmove(to, from, static_cast<size_t>(count) * sizeof(T));
  } else {
    for (int64_t i = 0; i < count; i++) memcpy(to + i * to_step, from + i * from_step, sizeof(T));
  }
}

constexpr int64_t block = 256;
template <class W> using Writer = void (*)(void* to, int64_t at, int64_t step, const W* from, int64_t count);

template <class T, class W>
void write_block(void* to, int64_t at, int64_t step, const W* from, int64_t count) {
  for (int64_t i = 0; i < count; i++) set(static_cast<T*>(to) + at + i * step, cast<Value<T>>(from[i]));
}

// All elements, read by `read(at) -> W` and cast to the dtype of `to`; false if it has none.
template <class W, class Read>
bool convert(const Loop<2>& loop, const husk_op_arg& to, Read read) {
  Writer<W> write = nullptr;
  const EightBits* format = eight_bits(to.dtype);
  if (!format &&
      !visit<Everything>(to.dtype, [&](auto tag) { write = write_block<typename decltype(tag)::type, W>; })) {
    return false;
  }
  each_row(loop, [&](const int64_t(&at)[2], int64_t count, const int64_t(&steps)[2]) {
    W values[block];
    for (int64_t start = 0; start < count; start += block) {
      const int64_t length = count - start < block ? count - start : block;
      for (int64_t i = 0; i < length; i++) values[i] = read(at[1] + (start + i) * steps[1]);
      const int64_t first = at[0] + start * steps[0];
      if (!format) {
        write(to.data, first, steps[0], values, length);
        continue;
      }
      for (int64_t i = 0; i < length; i++) {
        writable<uint8_t>(to)[first + i * steps[0]] = eight_encode(*format, cast<float>(values[i]));
      }
    }
  });
  return true;
}

// What a type's values are read as.
template <class V>
using Wide = std::conditional_t<is_complex<V>, Complex<double>,
             std::conditional_t<std::is_floating_point_v<V>, double,
             std::conditional_t<std::is_same_v<V, uint64_t>, uint64_t, int64_t>>>;

}  // namespace

husk_status copy_between(const Arguments& args, uint32_t to_at, const husk_op_arg& to, uint32_t from_at,
                         const husk_op_arg& from) {
  Loop<2> loop;
  loop.shape(to);
  if (!broadcast(from, to.sizes, to.rank, loop.strides[1])) {
    return args.refuse(from_at, HUSK_INVALID_ARGUMENT, "has a shape that does not broadcast to what is written");
  }
  loop.merge();
  if (to.dtype == from.dtype) {
    visit_bytes(dtype_bytes(to.dtype), [&](auto tag) {
      using T = typename decltype(tag)::type;
      each_row(loop, [&](const int64_t(&at)[2], int64_t count, const int64_t(&steps)[2]) {
        move_row(writable<T>(to) + at[0], steps[0], data_of<T>(from) + at[1], steps[1], count);
      });
    });
    return HUSK_OK;
  }
  bool known = false;
  if (const EightBits* format = eight_bits(from.dtype)) {
    known = convert<double>(loop, to,
                            [&](int64_t at) { return double{eight_decode(*format, data_of<uint8_t>(from)[at])}; });
    return known ? husk_status{HUSK_OK} : args.unsupported_dtype(to_at);
  }
  const bool knows_from = visit<Everything>(from.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    known =
        convert<Wide<Value<T>>>(loop, to, [&](int64_t at) { return cast<Wide<Value<T>>>(get(data_of<T>(from) + at)); });
  });
  if (!knows_from) return args.unsupported_dtype(from_at);
  return known ? husk_status{HUSK_OK} : args.unsupported_dtype(to_at);
}

husk_status copy_elements(const Arguments& args, uint32_t to, uint32_t from) {
  HUSK_TRY(args.tensor(to));
  HUSK_TRY(args.tensor(from));
  return copy_between(args, to, args[to], from, args[from]);
}

husk_status copy_into(const Arguments& args) { return copy_elements(args, 0, 1); }

}  // namespace husk::host
