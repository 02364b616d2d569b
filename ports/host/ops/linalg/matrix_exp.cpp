// aten::linalg_matrix_exp: the sum of the exponential series of a matrix whose norm is at most 1,
// squared as often as the matrix was halved. Source: Golub and Van Loan, "Matrix Computations",
// section 9.3.
#include "contracts.h"
#include "linalg/wide.h"

namespace husk::host {

namespace {

constexpr int kTerms = 20;  // 1 / 20! is less than the precision of f64

// out = a * b
template <class S>
void multiply(const Columns<S>& a, const Columns<S>& b, const Columns<S>& out) {
  each_column(out, [&](S* sum, int64_t j) {
    fill(out.cancellation, out.rows, from_real<S>(0), sum);
    each_index(out.cancellation, b.rows, [&](int64_t k) {
      add_scaled(out.cancellation, out.rows, b(k, j), a.column(k), sum);
    });
  });
}

// The largest sum of the sizes of a column.
template <class S>
double column_norm(const Columns<S>& a) {
  double largest = 0;
  each_column(a, [&](const S* column, int64_t) {
    double sum = 0;
    each_index(a.cancellation, a.rows, [&](int64_t i) { sum += taxicab(column[i]); });
    if (!(sum <= largest)) largest = sum;
  });
  return largest;
}

// Returns the one of the matrices b and c that holds exp(a). a is scaled.
template <class S>
Columns<S> exponential(const Columns<S>& a, Columns<S> b, Columns<S> c) {
  const double size = column_norm(a);
  int halvings = 0;
  if (!std::isfinite(size)) {  // NaN, as in PyTorch
    each_column(b,
                [&](S* x, int64_t) { fill(b.cancellation, b.rows, from_real<S>(size - size), x); });
    return b;
  }
  if (size > 1) std::frexp(size, &halvings);
  each_column(a, [&](S* x, int64_t j) {
    scale(a.cancellation, a.rows, from_real<S>(std::ldexp(1.0, -halvings)), x);
    fill(b.cancellation, b.rows, from_real<S>(0), b.column(j));
    b(j, j) = from_real<S>(1);
  });
  // Horner's rule: b = 1 + a (1 + a (1 + ...) / 2) / 1.
  each_index(a.cancellation, kTerms, [&](int64_t done) {
    multiply(a, b, c);
    each_column(c, [&](S* x, int64_t j) {
      scale(c.cancellation, c.rows, from_real<S>(1 / static_cast<double>(kTerms - done)), x);
      x[j] += from_real<S>(1);
    });
    const Columns<S> kept = b;
    b.data = c.data;
    c.data = kept.data;
  });
  for (int k = 0; k < halvings && !a.cancellation.ended(); ++k) {
    multiply(b, b, c);
    const Columns<S> kept = b;
    b.data = c.data;
    c.data = kept.data;
  }
  return b;
}

}  // namespace

husk_status matrix_exp(const Arguments& args) {
  constexpr ArgumentsOf named("matrix_exp");
  constexpr uint32_t kSelf = named["self"], kOut = named["out"], kWorkspace = named["workspace"];
  HUSK_TRY(check_square(args, kSelf));
  const int64_t n = args[kSelf].sizes[args[kSelf].rank - 1];
  HUSK_TRY(check_matrices(args, kOut, kSelf, n, n));
  Need need;
  need.add(3 * width_of(args, kSelf), n, n);
  HUSK_TRY(check_workspace(args, kWorkspace, need));
  if (numel(args[kOut]) == 0) return HUSK_OK;
  return visit_wide(args, kSelf, [&](auto tag) {
    using S = typename decltype(tag)::type;
    Workspace workspace(args, kWorkspace);
    const Columns<S> a = workspace.matrix<S>(n, n), b = workspace.matrix<S>(n, n),
                     c = workspace.matrix<S>(n, n);
    each(batch_loop(args, kSelf, {kSelf, kOut}), [&](const int64_t(&at)[2]) {
      load(matrix_place(args[kSelf], at[0]), a);
      store(exponential(a, b, c), matrix_place(args[kOut], at[1]));
    });
  });
}

}  // namespace husk::host
