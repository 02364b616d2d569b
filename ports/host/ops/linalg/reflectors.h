// Householder reflectors H = 1 - tau v v^H with v[0] = 1, as LAPACK defines them, and QR factors
// that consist of them. Source: Golub and Van Loan, "Matrix Computations", chapter 5.
#pragma once

#include "linalg/wide.h"

namespace husk::host {
namespace {

// A vector whose norm is less has no reflector, since the reciprocal of its elements may be
// infinite. The largest element of a matrix is at least 1e-100 (bring_into_range), so such a vector
// is a rounding error of rounding errors, as remain of a matrix of low rank.
constexpr double kLeastNorm = 1e-290;

// Makes the reflector with H^H x = beta e1 for a real number beta. Replaces x[0] by beta and the
// other elements by those of v. Returns tau.
template <class S>
S make_reflector(Cancellation& cancellation, int64_t count, S* x) {
  const double re = real_part(x[0]), im = imaginary_part(x[0]);
  const double tail = norm(cancellation, count - 1, x + 1);
  if (tail == 0 && im == 0) return from_real<S>(0);
  const double size = std::hypot(std::hypot(re, im), tail);
  if (size < kLeastNorm) return from_real<S>(0);
  const double beta = -std::copysign(size, re);
  scale(cancellation, count - 1, from_real<S>(1) / (x[0] - from_real<S>(beta)), x + 1);
  x[0] = from_real<S>(beta);
  if constexpr (is_complex<S>)
    return {(beta - re) / beta, -im / beta};
  else
    return (beta - re) / beta;
}

// a = (1 - tau v v^H) a. v[0] counts as 1.
template <class S>
void reflect_left(const Columns<S>& a, const S* v, S tau) {
  if (tau == from_real<S>(0)) return;
  each_column(a, [&](S* x, int64_t) {
    const S part = tau * (x[0] + dot(a.cancellation, a.rows - 1, v + 1, x + 1));
    x[0] -= part;
    add_scaled(a.cancellation, a.rows - 1, -part, v + 1, x + 1);
  });
}

// a = a (1 - tau v v^H). `sums` is scratch for a number per row. v[0] counts as 1.
template <class S>
void reflect_right(const Columns<S>& a, const S* v, S tau, S* sums) {
  if (tau == from_real<S>(0)) return;
  fill(a.cancellation, a.rows, from_real<S>(0), sums);
  each_column(a, [&](S* x, int64_t j) {
    add_scaled(a.cancellation, a.rows, j ? v[j] : from_real<S>(1), x, sums);
  });
  each_column(a, [&](S* x, int64_t j) {
    add_scaled(a.cancellation, a.rows, -tau * conj(j ? v[j] : from_real<S>(1)), sums, x);
  });
}

// Replaces a by R and, below its diagonal, the reflectors whose product is Q.
template <class S>
void factor_qr(const Columns<S>& a, S* tau) {
  each_index(a.cancellation, a.rows < a.columns ? a.rows : a.columns, [&](int64_t k) {
    tau[k] = make_reflector(a.cancellation, a.rows - k, &a(k, k));
    reflect_left(a.from(k, k + 1), &a(k, k), conj(tau[k]));
  });
}

// Replaces the reflectors below the diagonal by the first columns of their product. There are
// `count` of them, at most as many as columns.
template <class S>
void form_product(const Columns<S>& a, const S* tau, int64_t count) {
  each_index(a.cancellation, a.columns - count, [&](int64_t more) {
    const int64_t j = count + more;
    fill(a.cancellation, a.rows, from_real<S>(0), a.column(j));
    a(j, j) = from_real<S>(1);
  });
  each_index(a.cancellation, count, [&](int64_t done) {
    const int64_t k = count - 1 - done;
    reflect_left(a.from(k, k + 1), &a(k, k), tau[k]);
    scale(a.cancellation, a.rows - k - 1, -tau[k], &a(k, k) + 1);
    a(k, k) = from_real<S>(1) - tau[k];
    fill(a.cancellation, k, from_real<S>(0), a.column(k));
  });
}

// Replaces a, which is square, by the product of reflectors of all rows but the first. They lie
// below the second diagonal.
template <class S>
void form_basis(const Columns<S>& a, const S* tau) {
  const int64_t n = a.rows;
  if (n == 0) return;
  each_index(a.cancellation, n - 1, [&](int64_t done) {
    const int64_t k = n - 2 - done;
    each_piece(a.cancellation, n - k - 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) a(k + 1 + i, k + 1) = a(k + 1 + i, k);
    });
    a(0, k + 1) = from_real<S>(0);
  });
  fill(a.cancellation, n, from_real<S>(0), a.column(0));
  a(0, 0) = from_real<S>(1);
  form_product(a.from(1, 1), tau, n - 1);
}

}  // namespace
}  // namespace husk::host
