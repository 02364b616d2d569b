// Factorizations by halves: most of their work is in products of matrices, which the kernels of the
// device compute. Source: Golub and Van Loan, "Matrix Computations", sections 3.2.11 and 4.2.9.
#pragma once

#include "linalg/elimination.h"
#include "linalg/product_choice.h"

namespace husk::host {
namespace {

// The features and the memory that kernels of products need. Complex matrices have no kernels that
// are faster than the loops of elimination.h.
struct Blocks {
  Features cpu;
  void* scratch;  // kProductScratch bytes

  husk_status open(const Arguments& args) {
    scratch = args.scratch();
    return args.get_features(cpu);
  }

  // Matrices with at most this many rows or columns are not divided.
  static constexpr int64_t kWhole = 24;

  template <class T>
  static constexpr bool divides(int64_t size) {
    return (std::is_same_v<T, float> || std::is_same_v<T, double>) && size > kWhole;
  }
};

template <class T>
Matrix<T> part(const Matrix<T>& m, int64_t row, int64_t column, int64_t rows, int64_t columns) {
  return {m.cancellation, m.data + row * m.row + column * m.column, rows, columns, m.row, m.column};
}

// out += factor a b. Neither a nor b overlaps out.
template <class T>
void add_product(const Blocks& blocks, const Matrix<T>& out, double factor, const Matrix<T>& a,
                 const Matrix<T>& b) {
  if (out.rows == 0 || out.columns == 0 || a.columns == 0) return;
  constexpr husk_dtype dtype = static_cast<husk_dtype>(dtype_of<T>);
  Product product = {};
  product.dtype = dtype;
  product.m = out.rows;
  product.n = out.columns;
  product.k = a.columns;
  product.a = {a.data, a.row, a.column};
  product.b = {b.data, b.row, b.column, {dtype, 0}, {}};
  product.self = {out.data, out.row, out.column};
  product.out = out.data;
  product.out_row = out.row;
  product.out_column = out.column;
  product.alpha = factor;
  product.beta = 1;
  product.cancellation = &out.cancellation;
  product.scratch = blocks.scratch;
  product_run(blocks.cpu, product_kernels(blocks.cpu, dtype, product.b.format), product);
}

template <class T>
void subtract_product(const Blocks& blocks, const Matrix<T>& out, const Matrix<T>& a,
                      const Matrix<T>& b) {
  add_product(blocks, out, -1, a, b);
}

// x = a^-1 x for a triangular matrix a.
template <class T>
void solve_triangle(const Blocks& blocks, const Matrix<T>& a, const Matrix<T>& x, bool upper,
                    bool unit) {
  if (!Blocks::divides<T>(a.rows)) return solve_triangle(a, x, upper, unit);
  if constexpr (!is_complex<T>) {
    const int64_t size = a.rows / 2, rest = a.rows - size;
    const Matrix<T> first = part(a, 0, 0, size, size), last = part(a, size, size, rest, rest),
                    top = part(x, 0, 0, size, x.columns),
                    bottom = part(x, size, 0, rest, x.columns);
    if (upper) {
      solve_triangle(blocks, last, bottom, upper, unit);
      subtract_product(blocks, top, part(a, 0, size, size, rest), bottom);
      solve_triangle(blocks, first, top, upper, unit);
    } else {
      solve_triangle(blocks, first, top, upper, unit);
      subtract_product(blocks, bottom, part(a, size, 0, rest, size), top);
      solve_triangle(blocks, last, bottom, upper, unit);
    }
  }
}

// Replaces m by its LU factors, as factor_lu(m, pivots, pivots_stride, pivot) does.
template <class T>
int32_t factor_lu(const Blocks& blocks, const Matrix<T>& m, int32_t* pivots, int64_t pivots_stride,
                  bool pivot) {
  const int64_t steps = m.rows < m.columns ? m.rows : m.columns;
  if (!Blocks::divides<T>(steps)) return factor_lu(m, pivots, pivots_stride, pivot);
  int32_t info = 0;
  if constexpr (!is_complex<T>) {
    const int64_t size = steps / 2, rows = m.rows - size, columns = m.columns - size;
    const Matrix<T> left = part(m, 0, 0, m.rows, size), top = part(m, 0, size, size, columns),
                    below = part(m, size, 0, rows, size), rest = part(m, size, size, rows, columns);
    info = factor_lu(blocks, left, pivots, pivots_stride, pivot);
    const auto exchange = [&](const Matrix<T>& to, int64_t begin, int64_t end) {
      for (int64_t k = begin; k < end && !m.cancellation.ended(); ++k)
        swap_rows(to, k, exchanged_row(pivots, pivots_stride, k, m.rows));
    };
    exchange(part(m, 0, size, m.rows, columns), 0, size);
    solve_triangle(blocks, part(m, 0, 0, size, size), top, false, true);
    subtract_product(blocks, rest, below, top);
    const int32_t info_of_rest = factor_lu(blocks, rest, pivots + size * pivots_stride,
                                           pivots_stride, pivot);
    for (int64_t k = size; k < steps && !m.cancellation.ended(); ++k) {
      int32_t& pivot_of_rest = pivots[k * pivots_stride];
      pivot_of_rest = static_cast<int32_t>(static_cast<uint32_t>(pivot_of_rest) +
                                           static_cast<uint32_t>(size));
    }
    exchange(left, size, steps);
    if (info == 0 && info_of_rest != 0) info = info_of_rest + static_cast<int32_t>(size);
  }
  return info;
}

// Replaces the lower triangle of m by its Cholesky factor, as factor_cholesky(m) does.
template <class T>
int32_t factor_cholesky(const Blocks& blocks, const Matrix<T>& m) {
  if (!Blocks::divides<T>(m.rows)) return factor_cholesky(m);
  int32_t info = 0;
  if constexpr (!is_complex<T>) {
    const int64_t size = m.rows / 2, rest = m.rows - size;
    const Matrix<T> first = part(m, 0, 0, size, size), below = part(m, size, 0, rest, size),
                    last = part(m, size, size, rest, rest);
    info = factor_cholesky(blocks, first);
    if (info == 0) {
      solve_triangle(blocks, first, below.transposed(), false, false);
      subtract_product(blocks, last, below, below.transposed());
      info = factor_cholesky(blocks, last);
      if (info != 0) info += static_cast<int32_t>(size);
    } else {
      clear_above_diagonal(last);
    }
    each_index_while(m.cancellation, size, [&](int64_t i) {
      return each_index(m.cancellation, rest, [&](int64_t j) { m(i, size + j) = from_real<T>(0); });
    });
  }
  return info;
}

// x = a^-1 x for a factored matrix a.
template <class T>
void solve_factored(const Blocks& blocks, const Matrix<T>& lu, const int32_t* pivots,
                    int64_t stride, const Matrix<T>& x) {
  each_index(x.cancellation, lu.rows,
             [&](int64_t k) { swap_rows(x, k, exchanged_row(pivots, stride, k, lu.rows)); });
  solve_triangle(blocks, lu, x, false, true);
  solve_triangle(blocks, lu, x, true, false);
}

// x = x a^-1 for a factored matrix a: solves the transposed triangular systems, then applies the
// pivots in reverse order.
template <class T>
void solve_factored_right(const Blocks& blocks, const Matrix<T>& lu, const int32_t* pivots,
                          int64_t stride, const Matrix<T>& x) {
  const Matrix<T> rows = x.transposed();
  solve_triangle(blocks, lu.transposed(), rows, false, false);
  solve_triangle(blocks, lu.transposed(), rows, true, true);
  each_index(x.cancellation, lu.rows, [&](int64_t done) {
    const int64_t k = lu.rows - 1 - done;
    swap_rows(rows, k, exchanged_row(pivots, stride, k, lu.rows));
  });
}

// x = a^-H x for a triangular matrix a.
template <class T>
void solve_adjoint_triangle(const Blocks& blocks, const Matrix<T>& a, const Matrix<T>& x,
                            bool upper, bool unit) {
  conjugate(x);
  solve_triangle(blocks, a.transposed(), x, !upper, unit);
  conjugate(x);
}

// x = a x for a triangular matrix a.
template <class T>
void multiply_triangle(const Blocks& blocks, const Matrix<T>& a, const Matrix<T>& x, bool upper,
                       bool unit) {
  if (!Blocks::divides<T>(a.rows)) {
    each_index_while(x.cancellation, a.rows, [&](int64_t step) {
      const int64_t i = upper ? step : a.rows - 1 - step, first = upper ? i + 1 : 0,
                    end = upper ? a.rows : i;
      each_index(x.cancellation, unit ? 0 : x.columns, [&](int64_t j) { x(i, j) *= a(i, i); });
      return first == end || each_index_while(x.cancellation, end - first, [&](int64_t k) {
               return subtract_row(x, i, x, first + k, -a(i, first + k), 0);
             });
    });
    return;
  }
  const int64_t size = a.rows / 2, rest = a.rows - size;
  const Matrix<T> first = part(a, 0, 0, size, size), last = part(a, size, size, rest, rest),
                  top = part(x, 0, 0, size, x.columns), bottom = part(x, size, 0, rest, x.columns);
  if (upper) {
    multiply_triangle(blocks, first, top, upper, unit);
    add_product(blocks, top, 1, part(a, 0, size, size, rest), bottom);
    multiply_triangle(blocks, last, bottom, upper, unit);
  } else {
    multiply_triangle(blocks, last, bottom, upper, unit);
    add_product(blocks, bottom, 1, part(a, size, 0, rest, size), top);
    multiply_triangle(blocks, first, top, upper, unit);
  }
}

// Replaces the upper triangle of m by its inverse. If `unit` is set, the diagonal is not read.
template <class T>
void invert_upper(const Blocks& blocks, const Matrix<T>& m, bool unit) {
  if (!Blocks::divides<T>(m.rows)) {
    each_index_while(m.cancellation, m.rows, [&](int64_t j) {
      const Matrix<T> inverse = part(m, 0, 0, j, j), column = part(m, 0, j, j, 1);
      multiply_triangle(blocks, inverse, column, true, unit);
      if (!unit) m(j, j) = 1 / m(j, j);
      const T factor = unit ? T(-1) : -m(j, j);
      return each_index(m.cancellation, j, [&](int64_t i) { m(i, j) *= factor; });
    });
    return;
  }
  const int64_t size = m.rows / 2, rest = m.rows - size;
  const Matrix<T> first = part(m, 0, 0, size, size), last = part(m, size, size, rest, rest),
                  right = part(m, 0, size, size, rest);
  solve_triangle(blocks, first, right, true, unit);
  solve_triangle(blocks, last.transposed(), right.transposed(), false, unit);
  each_index_while(m.cancellation, size, [&](int64_t i) {
    return each_index(m.cancellation, rest, [&](int64_t j) { right(i, j) = -right(i, j); });
  });
  invert_upper(blocks, first, unit);
  invert_upper(blocks, last, unit);
}

// Replaces m by the product of its upper triangle and its lower one, whose diagonal is 1.
template <class T>
void multiply_triangles(const Blocks& blocks, const Matrix<T>& m) {
  if (!Blocks::divides<T>(m.rows)) {
    // An element of the product is where no later one needs a factor.
    each_index_while(m.cancellation, m.rows, [&](int64_t i) {
      return each_index_while(m.cancellation, m.rows, [&](int64_t j) {
        T sum = j < i ? m(i, i) * m(i, j) : m(i, j);
        const int64_t first = (i < j ? j : i) + 1;
        const bool added = each_index(m.cancellation, m.rows - first,
                                      [&](int64_t k) { sum += m(i, first + k) * m(first + k, j); });
        m(i, j) = sum;
        return added;
      });
    });
    return;
  }
  const int64_t size = m.rows / 2, rest = m.rows - size;
  const Matrix<T> first = part(m, 0, 0, size, size), last = part(m, size, size, rest, rest),
                  right = part(m, 0, size, size, rest), below = part(m, size, 0, rest, size);
  multiply_triangles(blocks, first);
  add_product(blocks, first, 1, right, below);
  multiply_triangle(blocks, last.transposed(), right.transposed(), true, true);
  multiply_triangle(blocks, last, below, true, false);
  multiply_triangles(blocks, last);
}

// Replaces m by its inverse, that of its upper factor times that of its lower one. `pivots` has
// room for one number per row. Returns the number of the first zero pivot, counted from 1, or 0.
// Source: Higham, "Accuracy and Stability of Numerical Algorithms", section 14.3.
template <class T>
int32_t invert_by_blocks(const Blocks& blocks, const Matrix<T>& m, int32_t* pivots) {
  const int32_t info = factor_lu(blocks, m, pivots, 1, true);
  if (info != 0) return info;
  invert_upper(blocks, m, false);
  invert_upper(blocks, m.transposed(), true);
  multiply_triangles(blocks, m);
  for (int64_t k = m.rows; k-- > 0 && !m.cancellation.ended();)
    swap_rows(m.transposed(), k, exchanged_row(pivots, 1, k, m.rows));
  return 0;
}

}  // namespace
}  // namespace husk::host
