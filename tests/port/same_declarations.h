// For tests that compare the port's declarations of a library with the library's headers, at
// compile time.
#pragma once

#include <type_traits>

namespace husk::cuda {

namespace {

// Handles, descriptors and enumerations have other names in these headers, so only sizes,
// alignments and kinds are compared.
template <class A, class B>
constexpr bool same_type = sizeof(A) == sizeof(B) && alignof(A) == alignof(B) &&
                           std::is_pointer_v<A> == std::is_pointer_v<B> &&
                           std::is_signed_v<A> == std::is_signed_v<B>;

template <class A, class B>
struct SameFunction;
template <class R, class S, class... A, class... B>
struct SameFunction<R(A...), S(B...)> {
  static constexpr bool value = [] {
    if constexpr (sizeof...(A) == sizeof...(B))
      return same_type<R, S> && (same_type<A, B> && ...);
    else
      return false;
  }();
};

#define SAME_VALUE(name) \
  static_assert(static_cast<int>(husk::cuda::name) == static_cast<int>(::name), #name)
#define SAME_PLACE(type, member) \
  static_assert(offsetof(husk::cuda::type, member) == offsetof(::type, member))

}  // namespace

}  // namespace husk::cuda
