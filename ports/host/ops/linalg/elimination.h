// LU factors and triangular systems in the memory of a matrix, in its own dtype.
#pragma once

#include <cmath>

#include "linalg/batches.h"

namespace husk::host {
namespace {

template <class T>
void swap_rows(const Matrix<T>& m, int64_t a, int64_t b) {
  if (a == b) return;
  each_index(m.cancellation, m.columns, [&](int64_t j) {
    const T swapped = m(a, j);
    m(a, j) = m(b, j);
    m(b, j) = swapped;
  });
}

// The number of the row from k on whose element in column k has the largest absolute value.
template <class T>
int64_t largest_below(const Matrix<T>& m, int64_t k) {
  int64_t best = k;
  each_index(m.cancellation, m.rows - k - 1, [&](int64_t below) {
    if (taxicab(m(k + 1 + below, k)) > taxicab(m(best, k))) best = k + 1 + below;
  });
  return best;
}

// Subtracts `factor` times row k of `from` from row i of `to`, from column `first` on. Returns
// false if the call is to end.
template <class T>
bool subtract_row(const Matrix<T>& to, int64_t i, const Matrix<T>& from, int64_t k, T factor,
                  int64_t first) {
  return each_index(to.cancellation, to.columns - first,
                    [&](int64_t j) { to(i, first + j) -= factor * from(k, first + j); });
}

// Subtracts a(i, k) times row k of m from each row i in [begin, end), from column `first` on, row
// by row or column by column, whichever has its elements closer together. A factor of 0 changes
// nothing, whatever the row has. Returns false if the call is to end.
template <class T>
bool subtract_products(const Matrix<T>& m, const Matrix<T>& a, int64_t k, int64_t begin,
                       int64_t end, int64_t first) {
  const T zero = from_real<T>(0);
  if (m.row >= m.column)
    return each_index_while(m.cancellation, end - begin, [&](int64_t after) {
      const T factor = a(begin + after, k);
      return factor == zero || subtract_row(m, begin + after, m, k, factor, first);
    });
  return each_index_while(m.cancellation, m.columns - first, [&](int64_t after) {
    const T value = m(k, first + after);
    T* const to = &m(begin, first + after);
    const T* const factors = &a(begin, k);
    if (m.row == 1 && a.row == 1)
      return each_index(m.cancellation, end - begin, [&](int64_t i) {
        to[i] -= factors[i] == zero ? zero : factors[i] * value;
      });
    return each_index(m.cancellation, end - begin, [&](int64_t i) {
      const T factor = factors[i * a.row];
      if (!(factor == zero)) to[i * m.row] -= factor * value;
    });
  });
}

// Replaces m by its LU factors. Pivots are row numbers counted from 1, as in LAPACK. Returns the
// number of the first zero pivot, counted from 1, or 0. If the call is to end, the pivots are
// undefined.
template <class T>
int32_t factor_lu(const Matrix<T>& m, int32_t* pivots, int64_t pivots_stride, bool pivot) {
  int32_t info = 0;
  const int64_t steps = m.rows < m.columns ? m.rows : m.columns;
  each_index(m.cancellation, steps, [&](int64_t k) {
    const int64_t best = pivot ? largest_below(m, k) : k;
    pivots[k * pivots_stride] = static_cast<int32_t>(best + 1);
    swap_rows(m, k, best);
    if (m(k, k) == from_real<T>(0)) {
      if (info == 0) info = static_cast<int32_t>(k + 1);
      return;
    }
    if (k + 1 == m.rows) return;
    each_index(m.cancellation, m.rows - k - 1,
               [&](int64_t below) { m(k + 1 + below, k) /= m(k, k); });
    subtract_products(m, m, k, k + 1, m.rows, k + 1);
  });
  return info;
}

// x = a^-1 x for a triangular matrix a.
template <class T>
void solve_triangle(const Matrix<T>& a, const Matrix<T>& x, bool upper, bool unit) {
  each_index_while(x.cancellation, a.rows, [&](int64_t step) {
    const int64_t k = upper ? a.rows - 1 - step : step, first = upper ? 0 : k + 1;
    each_index(x.cancellation, unit ? 0 : x.columns, [&](int64_t j) { x(k, j) /= a(k, k); });
    const int64_t end = upper ? k : a.rows;
    return first == end || subtract_products(x, a, k, first, end, 0);
  });
}

// The row that is exchanged with row k, counted from 0. Another thread may change pivots during a
// call: one that is not the number of a row stands for row k itself.
inline int64_t exchanged_row(const int32_t* pivots, int64_t stride, int64_t k, int64_t rows) {
  const int64_t row = int64_t{read_once(pivots + k * stride)} - 1;
  return is_within(row, rows) ? row : k;
}

template <class T>
void clear_above_diagonal(const Matrix<T>& m) {
  each_index_while(m.cancellation, m.rows, [&](int64_t i) {
    return each_index(m.cancellation, m.rows - i - 1,
                      [&](int64_t j) { m(i, i + 1 + j) = from_real<T>(0); });
  });
}

// Replaces the lower triangle of m by its Cholesky factor, and sets the other elements to 0. The
// transpose of a matrix becomes the transpose of its upper factor.
// Returns the number of the first row, counted from 1, whose pivot is not positive, or 0.
template <class T>
int32_t factor_cholesky(const Matrix<T>& m) {
  using R = Real<T>;
  int32_t info = 0;
  each_index_while(m.cancellation, m.rows, [&](int64_t j) {
    R d = real_part(m(j, j));
    each_index(m.cancellation, j, [&](int64_t k) { d -= squared(m(j, k)); });
    if (!(d > 0)) info = static_cast<int32_t>(j + 1);
    m(j, j) = from_real<T>(std::sqrt(d));
    return !info && each_index_while(m.cancellation, m.rows - j - 1, [&](int64_t below) {
      const int64_t i = j + 1 + below;
      T sum = m(i, j);
      const bool summed = each_index(m.cancellation, j,
                                     [&](int64_t k) { sum -= m(i, k) * conj(m(j, k)); });
      m(i, j) = sum / m(j, j);
      return summed;
    });
  });
  clear_above_diagonal(m);
  return info;
}

}  // namespace
}  // namespace husk::host
