// Products of ints and of complex numbers, computed with simple loops, because they are rare in
// models.
#include "core/arithmetic.h"
#include "core/element.h"
#include "core/loop.h"
#include "linalg/product.h"

namespace husk::host {

namespace {

template <class T>
void multiply(const Product& p) {
  const T alpha = number_of<T>(p.alpha), beta = number_of<T>(p.beta);
  const T *a = static_cast<const T*>(p.a.data), *b = static_cast<const T*>(p.b.data);
  constexpr int64_t kWidth = 64;  // columns of out that are summed at once
  for (int64_t i = 0; i < p.m; ++i) {
    for (int64_t j = 0; j < p.n; j += kWidth) {
      const int64_t columns = p.n - j < kWidth ? p.n - j : kWidth;
      T sums[kWidth] = {};
      const bool summed = each_index(*p.cancellation, p.k, [&](int64_t k) {
        const T left = a[i * p.a.row + k * p.a.column];
        for (int64_t c = 0; c < columns; ++c)
          sums[c] = plus(sums[c], times(left, b[k * p.b.row + (j + c) * p.b.column]));
      });
      if (!summed) return;
      T* out = static_cast<T*>(p.out) + i * p.out_row + j * p.out_column;
      for (int64_t c = 0; c < columns; ++c) {
        T value = times(sums[c], alpha);
        if (p.self.data) {
          const T* self = static_cast<const T*>(p.self.data) + i * p.self.row +
                          (j + c) * p.self.column;
          value = plus(value, times(*self, beta));
        }
        out[c * p.out_column] = value;
      }
    }
  }
}

}  // namespace

bool product_run_plain(const Product& product) {
  return visit<Ints | Complexes>(
      product.dtype, [&](auto tag) { multiply<typename decltype(tag)::type>(product); });
}

}  // namespace husk::host
