// aten::copy_ and other copies, with any strides, broadcasting, and conversion between any two
// dtypes. A conversion reads a block of elements as the widest type of their kind and writes it as
// the other dtype, so that there is code for each dtype and not for each pair.
#include <cstring>

#include "contracts.h"
#include "core/arguments.h"
#include "core/arithmetic.h"
#include "core/float8.h"
#include "core/loop.h"

namespace husk::host {

namespace {

template <class T>
void move_row(T* to, int64_t to_step, const T* from, int64_t from_step, int64_t count) {
  if (to_step == 1 && from_step == 1)
    memmove(to, from, static_cast<size_t>(count) * sizeof(T));
  else
    for (int64_t i = 0; i < count; ++i) memcpy(to + i * to_step, from + i * from_step, sizeof(T));
}

constexpr int64_t kBlock = 256;  // elements that are converted at once

// Writes a block of values of type W to elements of a certain dtype.
template <class W>
using Writer = void (*)(void* to, int64_t at, int64_t step, const W* from, int64_t count);

template <class T, class W>
void write_block(void* to, int64_t at, int64_t step, const W* from, int64_t count) {
  for (int64_t i = 0; i < count; ++i)
    set(static_cast<T*>(to) + at + i * step, cast<Value<T>>(from[i]));
}

// Converts all elements: read(at) returns the value at an offset as W, which is cast to the dtype
// of `to`. Returns false if that dtype is not supported.
template <class W, class Read>
bool convert(const Loop<2>& loop, const husk_op_arg& to, Read read) {
  Writer<W> write = nullptr;
  const Float8Format* format = float8_format(to.dtype);
  if (!format && !visit<Everything>(to.dtype, [&](auto tag) {
        write = write_block<typename decltype(tag)::type, W>;
      })) {
    return false;
  }
  each_row(loop, [&](const int64_t(&at)[2], int64_t count, const int64_t(&steps)[2]) {
    W values[kBlock];
    for (int64_t start = 0; start < count; start += kBlock) {
      const int64_t length = count - start < kBlock ? count - start : kBlock;
      for (int64_t i = 0; i < length; ++i) values[i] = read(at[1] + (start + i) * steps[1]);
      const int64_t first = at[0] + start * steps[0];
      if (!format) {
        write(to.data, first, steps[0], values, length);
        continue;
      }
      for (int64_t i = 0; i < length; ++i)
        writable<uint8_t>(to)[first + i * steps[0]] = float8_encode(*format,
                                                                    cast<float>(values[i]));
    }
  });
  return true;
}

// The widest type of the same kind, in which values of type V are read.
template <class V>
using Widest = std::conditional_t<
    is_complex<V>, Complex<double>,
    std::conditional_t<std::is_floating_point_v<V>, double,
                       std::conditional_t<std::is_same_v<V, uint64_t>, uint64_t, int64_t>>>;

}  // namespace

husk_status copy_between(const Arguments& args, ArgumentPlace to_at, const husk_op_arg& to,
                         ArgumentPlace from_at, const husk_op_arg& from) {
  Loop<2> loop(args);
  loop.shape(to);
  if (!broadcast(from, to.sizes, to.rank, loop.strides[1])) {
    return args.argument_error(from_at, HUSK_INVALID_ARGUMENT,
                               "has a shape that does not broadcast to what is written");
  }
  loop.end_with_adjacent();
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
  bool supported = false;
  if (const Float8Format* format = float8_format(from.dtype)) {
    supported = convert<double>(loop, to, [&](int64_t at) {
      return double{float8_decode(*format, data_of<uint8_t>(from)[at])};
    });
    return supported ? husk_status{HUSK_OK} : args.unsupported_dtype(to_at);
  }
  const bool from_supported = visit<Everything>(from.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    supported = convert<Widest<Value<T>>>(
        loop, to, [&](int64_t at) { return cast<Widest<Value<T>>>(get(data_of<T>(from) + at)); });
  });
  if (!from_supported) return args.unsupported_dtype(from_at);
  return supported ? husk_status{HUSK_OK} : args.unsupported_dtype(to_at);
}

husk_status copy_elements(const Arguments& args, ArgumentPlace to, ArgumentPlace from) {
  HUSK_TRY(args.check_tensor(to));
  HUSK_TRY(args.check_tensor(from));
  return copy_between(args, to, args[to], from, args[from]);
}

namespace {

// Copies argument `from_at` to an output of the shape of argument `like_at`.
husk_status copy_like(const Arguments& args, ArgumentPlace like_at, ArgumentPlace out_at,
                      ArgumentPlace from_at) {
  HUSK_TRY(args.check_tensor(like_at));
  HUSK_TRY(args.check_tensor(out_at));
  HUSK_TRY(args.check_same_shape(out_at, like_at));
  return copy_elements(args, out_at, from_at);
}

}  // namespace

husk_status copy_into(const Arguments& args) {
  constexpr ArgumentsOf named("copy_into");
  constexpr uint32_t kSelf = named["self"], kSrc = named["src"];
  return copy_elements(args, kSelf, kSrc);
}

husk_status clone(const Arguments& args) {
  constexpr ArgumentsOf named("clone");
  constexpr uint32_t kSelf = named["self"], kOut = named["out"];
  return copy_like(args, kSelf, kOut, kSelf);
}
husk_status convert_element_type(const Arguments& args) {
  constexpr ArgumentsOf named("convert_element_type");
  constexpr uint32_t kA = named["a"], kOut = named["out"];
  return copy_like(args, kA, kOut, kA);
}
husk_status to_copy(const Arguments& args) {
  constexpr ArgumentsOf named("to_copy");
  constexpr uint32_t kSelf = named["self"], kOut = named["out"];
  return copy_like(args, kSelf, kOut, kSelf);
}
husk_status copy_out_of_place(const Arguments& args) {
  constexpr ArgumentsOf named("copy_out_of_place");
  constexpr uint32_t kSelf = named["self"], kSrc = named["src"], kOut = named["out"];
  return copy_like(args, kSelf, kOut, kSrc);
}

}  // namespace husk::host
