// aten::_linalg_eigh: eigenvalues and eigenvectors of Hermitian matrices. A matrix becomes
// tridiagonal by reflectors, and diagonal by the implicit QL method. Source: Golub and Van Loan,
// "Matrix Computations", chapter 8.
#include <cstring>

#include "contracts.h"
#include "error.h"
#include "linalg/reflectors.h"

namespace husk::host {

namespace {

constexpr int kMaxQlSteps = 60;  // steps of the QL method for one eigenvalue; few matrices need 4

// Subtracts v p^H + p v^H from the lower triangle.
template <class S>
void subtract_rank_two(const Columns<S>& a, const S* v, const S* p) {
  each_column(a, [&](S* x, int64_t j) {
    add_scaled(a.cancellation, a.rows - j, -conj(p[j]), v + j, x + j);
    add_scaled(a.cancellation, a.rows - j, -conj(v[j]), p + j, x + j);
  });
}

// p = a v for the Hermitian matrix whose lower triangle is in a.
template <class S>
void multiply_lower(const Columns<S>& a, const S* v, S* p) {
  fill(a.cancellation, a.rows, from_real<S>(0), p);
  each_column(a, [&](const S* x, int64_t j) {
    const int64_t below = a.rows - j - 1;
    p[j] += from_real<S>(real_part(x[j])) * v[j] + dot(a.cancellation, below, x + j + 1, v + j + 1);
    add_scaled(a.cancellation, below, v[j], x + j + 1, p + j + 1);
  });
}

// Reduces the lower triangle of a to a tridiagonal matrix with the diagonal d and the real numbers
// e below it. Leaves the reflectors below that diagonal. `p` is scratch for a number per row.
template <class S>
void make_tridiagonal(const Columns<S>& a, double* d, double* e, S* tau, S* p) {
  each_index(a.cancellation, a.rows, [&](int64_t k) {
    d[k] = real_part(a(k, k));
    if (k + 1 == a.rows) return;
    S* const v = &a(k + 1, k);
    tau[k] = make_reflector(a.cancellation, a.rows - k - 1, v);
    e[k] = real_part(v[0]);
    if (tau[k] == from_real<S>(0)) return;
    v[0] = from_real<S>(1);
    const Columns<S> rest = a.from(k + 1, k + 1);
    multiply_lower(rest, v, p);
    scale(a.cancellation, rest.rows, tau[k], p);
    const S half = from_real<S>(-0.5) * tau[k] * dot(a.cancellation, rest.rows, p, v);
    add_scaled(a.cancellation, rest.rows, half, v, p);
    subtract_rank_two(rest, v, p);
  });
}

// One step of the implicit QL method for the elements first ... last of a tridiagonal matrix.
// Rotates the columns of `z`, which has none if vectors are not wanted.
template <class S>
void step_ql(double* d, double* e, int64_t first, int64_t last, const Columns<S>& z) {
  double g = (d[first + 1] - d[first]) / (2 * e[first]);
  g = d[last] - d[first] + e[first] / (g + std::copysign(std::hypot(g, 1.0), g));
  double sine = 1, cosine = 1, shift = 0;
  for (int64_t i = last - 1; i >= first; --i) {
    if (z.cancellation.ends(1)) return;
    const double f = sine * e[i], b = cosine * e[i], r = std::hypot(f, g);
    e[i + 1] = r;
    if (r == 0) {
      d[i + 1] -= shift;
      e[last] = 0;
      return;
    }
    sine = f / r;
    cosine = g / r;
    g = d[i + 1] - shift;
    const double t = (d[i] - g) * sine + 2 * cosine * b;
    shift = sine * t;
    d[i + 1] = g + shift;
    g = cosine * t - b;
    if (z.columns) rotate(z.cancellation, z.rows, z.column(i), z.column(i + 1), cosine, -sine);
  }
  d[first] -= shift;
  e[first] = g;
  e[last] = 0;
}

// The last element of the block of a tridiagonal matrix that begins at `first`.
int64_t end_of_block(Cancellation& cancellation, const double* d, const double* e, int64_t first,
                     int64_t n) {
  int64_t last = first;
  while (last + 1 < n && !cancellation.ends(1)) {
    const double around = std::fabs(d[last]) + std::fabs(d[last + 1]);
    if (std::fabs(e[last]) <= 0x1p-53 * around) break;
    ++last;
  }
  return last;
}

// Replaces d by the eigenvalues. e has as many elements as d. Returns false if the method does not
// converge.
template <class S>
bool diagonalize(double* d, double* e, int64_t n, const Columns<S>& z) {
  e[n - 1] = 0;
  for (int64_t first = 0; first < n; ++first) {
    for (int steps = 0;; ++steps) {
      const int64_t last = end_of_block(z.cancellation, d, e, first, n);
      if (z.cancellation.ended()) return true;
      if (last == first) break;
      if (steps == kMaxQlSteps) return false;
      step_ql(d, e, first, last, z);
    }
  }
  return true;
}

// Sorts eigenvalues, and the columns of `z` with them, in ascending order.
template <class S>
void sort_eigenvalues(double* d, int64_t n, const Columns<S>& z) {
  each_index(z.cancellation, n, [&](int64_t k) {
    int64_t least = k;
    each_index(z.cancellation, n - k, [&](int64_t i) {
      if (d[k + i] < d[least]) least = k + i;
    });
    const double value = d[least];
    d[least] = d[k];
    d[k] = value;
    if (z.columns) swap_columns(z, k, least);
  });
}

}  // namespace

husk_status hermitian_eigen(const Arguments& args) {
  constexpr ArgumentsOf named("hermitian_eigen");
  constexpr uint32_t kA = named["A"], kUplo = named["UPLO"], kComputeV = named["compute_v"],
                     kEigenvalues = named["eigenvalues"], kEigenvectors = named["eigenvectors"],
                     kWorkspace = named["workspace"];
  HUSK_TRY(check_square(args, kA));
  const char* const triangle = args[kUplo].kind == HUSK_ARG_STRING && args[kUplo].string
                                   ? args[kUplo].string
                                   : "";
  const bool upper = std::strcmp(triangle, "U") == 0 || std::strcmp(triangle, "u") == 0;
  if (!upper && std::strcmp(triangle, "L") != 0 && std::strcmp(triangle, "l") != 0)
    return args.argument_error(kUplo, HUSK_INVALID_ARGUMENT, "is not L or U");
  bool vectors = true;
  HUSK_TRY(args.get_bool(kComputeV, vectors));
  const int64_t n = args[kA].sizes[args[kA].rank - 1], width = width_of(args, kA);
  HUSK_TRY(check_vectors(args, kEigenvalues, kA, n, real_dtype(args[kA].dtype)));
  HUSK_TRY(args.check_tensor(kEigenvectors, 1, kMaxRank));
  if (vectors) HUSK_TRY(check_matrices(args, kEigenvectors, kA, n, n));
  Need need;
  need.add(width, n, n);
  need.add(2 * width, n);
  need.add(2, n);
  HUSK_TRY(check_workspace(args, kWorkspace, need));
  if (numel(args[kEigenvalues]) == 0) return HUSK_OK;
  husk_status status = HUSK_OK;
  HUSK_TRY(visit_wide(args, kA, [&](auto tag) {
    using S = typename decltype(tag)::type;
    Workspace workspace(args, kWorkspace);
    const Columns<S> a = workspace.matrix<S>(n, n), z = a.first(vectors ? n : 0);
    S *const tau = workspace.vector<S>(n), *const p = workspace.vector<S>(n);
    double *const d = workspace.vector<double>(n), *const e = workspace.vector<double>(n);
    each_while(
        batch_loop(args, kA, {kA, kEigenvalues, vectors ? kEigenvectors : kEigenvalues}),
        [&](const int64_t(&at)[3]) {
          const Place from = matrix_place(args[kA], at[0]);
          load(upper ? from.transposed() : from, a);
          if (upper) conjugate(a);
          each_column(a, [&](S* x, int64_t j) { fill(a.cancellation, j, from_real<S>(0), x); });
          if (!finite(a)) {
            status = args.argument_error(kA, HUSK_INVALID_INPUT, "contains infinities or NaN");
            return false;
          }
          const double unit = bring_into_range(a);
          make_tridiagonal(a, d, e, tau, p);
          if (vectors) form_basis(a, tau);
          if (!diagonalize(d, e, n, z)) {
            status = args.argument_error(kA, HUSK_INVALID_INPUT,
                                         "has eigenvalues to which the method does not converge");
            return false;
          }
          sort_eigenvalues(d, n, z);
          const Columns<double> values = as_column(args.cancellation, d, n);
          if (unit != 1) scale(args.cancellation, n, unit, d);
          store(values, vector_place(args[kEigenvalues], at[1]));
          if (vectors) store(a, matrix_place(args[kEigenvectors], at[2]));
          return true;
        });
  }));
  return status;
}

}  // namespace husk::host
