// Compares the types of functions that are declared twice.
#pragma once

#include <type_traits>

namespace husk::cuda {

// Handles, descriptors and enumerations have other names in NVIDIA's headers, so only sizes,
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

}  // namespace husk::cuda
