// Products of the dtypes that no kernel knows: ints, complex numbers and rare floats. They are
// computed with simple loops.
#include "core/arithmetic.h"
#include "core/element.h"
#include "core/loop.h"
#include "linalg/product_choice.h"

namespace husk::host {

namespace {

template <class T>
void multiply(const Product& p) {
  using V = Value<T>;
  const V alpha = number_of<V>(p.alpha), beta = number_of<V>(p.beta);
  const T *a = static_cast<const T*>(p.a.data), *b = static_cast<const T*>(p.b.data);
  constexpr int64_t kWidth = 64;  // columns of out that are summed at once
  for (int64_t i = 0; i < p.m; ++i) {
    for (int64_t j = 0; j < p.n; j += kWidth) {
      const int64_t columns = p.n - j < kWidth ? p.n - j : kWidth;
      V sums[kWidth] = {};
      const bool summed = each_index(*p.cancellation, p.k, [&](int64_t k) {
        const V left = get(a + i * p.a.row + k * p.a.column);
        for (int64_t c = 0; c < columns; ++c)
          sums[c] = plus(sums[c], times(left, get(b + k * p.b.row + (j + c) * p.b.column)));
      });
      if (!summed) return;
      T* out = static_cast<T*>(p.out) + i * p.out_row + j * p.out_column;
      for (int64_t c = 0; c < columns; ++c) {
        V value = times(sums[c], alpha);
        if (p.self.data) {
          const T* self = static_cast<const T*>(p.self.data) + i * p.self.row +
                          (j + c) * p.self.column;
          value = plus(value, times(get(self), beta));
        }
        set(out + c * p.out_column, value);
      }
    }
  }
}

}  // namespace

bool product_run_plain(Product& product) {
  return visit<kPlainProducts>(product.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (!has_kernels(dtype_of<T>)) multiply<T>(product);
  });
}

}  // namespace husk::host
