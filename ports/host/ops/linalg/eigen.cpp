// aten::linalg_eig: eigenvalues and eigenvectors of any square matrices. A matrix becomes a
// Hessenberg matrix by reflectors, and triangular by the QR method: with Francis' double shift for
// real matrices, so that complex eigenvalues come in pairs, and with Wilkinson's shift for complex
// ones. Source: Golub and Van Loan, "Matrix Computations", chapter 7, and EISPACK's hqr2.
#include "contracts.h"
#include "error.h"
#include "linalg/reflectors.h"

namespace husk::host {

namespace {

constexpr double kEpsilon = 0x1p-52;
constexpr int kMaxSteps = 300;  // steps of the QR method for one eigenvalue; few matrices need 10
// After so many steps for one eigenvalue, an element below the diagonal is 0 if it is a rounding
// error of the whole matrix. Before that it is compared with its neighbours, which is more exact
// for matrices whose elements differ much in size. What is left of a matrix of low rank has only
// rounding errors, which may not converge.
constexpr int kPatientSteps = 30;

// a = Q h Q^H for a Hessenberg matrix h, which replaces a. Writes the reflectors of Q below the
// second diagonal of `v`, if it has columns. `column` and `sums` are scratch for a number per row.
template <class S>
void make_hessenberg(const Columns<S>& a, const Columns<S>& v, S* tau, S* column, S* sums) {
  const int64_t n = a.rows;
  each_index(a.cancellation, n - 1, [&](int64_t k) {
    const int64_t below = n - k - 1;
    each_index(a.cancellation, below, [&](int64_t i) { column[i] = a(k + 1 + i, k); });
    tau[k] = make_reflector(a.cancellation, below, column);
    reflect_left(a.from(k + 1, k + 1), column, conj(tau[k]));
    reflect_right(a.from(0, k + 1), column, tau[k], sums);
    each_index(a.cancellation, below, [&](int64_t i) {
      a(k + 1 + i, k) = i ? from_real<S>(0) : column[0];
      if (v.columns) v(k + 1 + i, k) = column[i];
    });
  });
}

// The first row of the block that ends with row `last` of a Hessenberg matrix: the element before
// it is a rounding error of its neighbours, whose sizes count as `least` or more.
template <class S>
int64_t begin_of_block(const Columns<S>& h, int64_t last, double least) {
  int64_t i = last;
  while (i > 0 && !h.cancellation.ends(1)) {
    double around = taxicab(h(i - 1, i - 1)) + taxicab(h(i, i));
    if (around < least) around = least;
    if (around == 0) around = 1;
    if (taxicab(h(i, i - 1)) < kEpsilon * around) break;
    --i;
  }
  return i;
}

// The Schur form of a real matrix: `h` becomes triangular except for blocks of two rows, which have
// the eigenvalues re[i] + im[i] i and, with im[i] > 0, its conjugate. The transformations are
// applied to the columns of `v`.
class RealSchur {
 public:
  RealSchur(const Columns<double>& hessenberg, const Columns<double>& vectors, double* real,
            double* imaginary)
      : h(hessenberg), v(vectors), re(real), im(imaginary) {}

  // Returns false if the method does not converge.
  bool run() {
    int steps = 0;
    const double size = static_cast<double>(h.rows) * largest_element(h);
    for (last = h.rows - 1; last >= 0 && !h.cancellation.ended();) {
      first = begin_of_block(h, last, steps < kPatientSteps ? 0 : size);
      if (first > 0) h(first, first - 1) = 0;
      if (first == last) {
        h(last, last) += shifted;
        re[last] = h(last, last);
        im[last] = 0;
        --last;
        steps = 0;
      } else if (first == last - 1) {
        finish_two();
        last -= 2;
        steps = 0;
      } else {
        if (steps == kMaxSteps) return false;
        step(steps++);
      }
    }
    return true;
  }

 private:
  // The eigenvalues of the block of the rows last - 1 and last. A block with real ones becomes
  // triangular.
  void finish_two() {
    const int64_t k = last - 1;
    const double product = h(last, k) * h(k, last), p = (h(k, k) - h(last, last)) / 2;
    const double q = p * p + product, root = std::sqrt(std::fabs(q));
    h(last, last) += shifted;
    h(k, k) += shifted;
    const double x = h(last, last);
    if (q < 0) {
      re[k] = re[last] = x + p;
      im[k] = root;
      im[last] = -root;
      return;
    }
    const double z = p >= 0 ? p + root : p - root;
    re[k] = x + z;
    re[last] = z != 0 ? x - product / z : x + z;
    im[k] = im[last] = 0;
    const double r = std::hypot(h(last, k), z);
    if (r == 0) return;
    const double s = h(last, k) / r, c = z / r;
    each_index(h.cancellation, h.columns - k, [&](int64_t i) {
      const double above = h(k, k + i), below = h(last, k + i);
      h(k, k + i) = c * above + s * below;
      h(last, k + i) = c * below - s * above;
    });
    rotate(h.cancellation, last + 1, h.column(k), h.column(last), c, s);
    if (v.columns) rotate(v.cancellation, v.rows, v.column(k), v.column(last), c, s);
    h(last, k) = 0;
  }

  // Subtracts a number from the diagonal.
  void shift_by(double x) {
    shifted += x;
    each_index(h.cancellation, last + 1, [&](int64_t i) { h(i, i) -= x; });
  }

  // One double step for the rows first ... last, of which there are three or more.
  void step(int number) {
    double x = h(last, last), y = h(last - 1, last - 1), w = h(last, last - 1) * h(last - 1, last);
    if (number % 20 == 10) {  // an exceptional shift
      shift_by(x);
      const double s = std::fabs(h(last, last - 1)) + std::fabs(h(last - 1, last - 2));
      x = y = 0.75 * s;
      w = -0.4375 * s * s;
    }
    double p = 0, q = 0, r = 0;
    int64_t m = last - 2;
    for (;; --m) {
      if (h.cancellation.ends(1)) return;
      const double z = h(m, m), a = x - z, b = y - z;
      p = (a * b - w) / h(m + 1, m) + h(m, m + 1);
      q = h(m + 1, m + 1) - z - a - b;
      r = h(m + 2, m + 1);
      const double sum = std::fabs(p) + std::fabs(q) + std::fabs(r);
      if (sum != 0) {
        p /= sum;
        q /= sum;
        r /= sum;
      }
      if (m == first) break;
      const double near = std::fabs(h(m - 1, m - 1)) + std::fabs(z) + std::fabs(h(m + 1, m + 1));
      if (std::fabs(h(m, m - 1)) * (std::fabs(q) + std::fabs(r)) < kEpsilon * std::fabs(p) * near)
        break;
    }
    for (int64_t i = m + 2; i <= last; ++i) {
      h(i, i - 2) = 0;
      if (i > m + 2) h(i, i - 3) = 0;
    }
    for (int64_t k = m; k < last; ++k) {
      double size = 1;
      if (k != m) {
        p = h(k, k - 1);
        q = h(k + 1, k - 1);
        r = k + 1 < last ? h(k + 2, k - 1) : 0;
        size = std::fabs(p) + std::fabs(q) + std::fabs(r);
        if (size == 0) return;
        p /= size;
        q /= size;
        r /= size;
      }
      const double s = std::copysign(std::sqrt(p * p + q * q + r * r), p);
      if (s == 0) continue;
      if (k != m)
        h(k, k - 1) = -s * size;
      else if (first != m)
        h(k, k - 1) = -h(k, k - 1);
      p += s;
      reflect(k, {p / s, q / s, r / s}, {1, q / p, r / p});
    }
  }

  // Applies the reflector 1 - a b^T to the rows and columns k ... k + 2, or k + 1 at the end.
  void reflect(int64_t k, const double (&a)[3], const double (&b)[3]) {
    const bool three = k + 1 < last;
    each_index(h.cancellation, h.columns - k, [&](int64_t i) {
      double* const x = &h(k, k + i);
      const double sum = x[0] + b[1] * x[1] + (three ? b[2] * x[2] : 0);
      x[0] -= sum * a[0];
      x[1] -= sum * a[1];
      if (three) x[2] -= sum * a[2];
    });
    reflect_columns(h, (k + 3 < last ? k + 3 : last) + 1, k, three, a, b);
    if (v.columns) reflect_columns(v, v.rows, k, three, a, b);
  }
  static void reflect_columns(const Columns<double>& m, int64_t rows, int64_t k, bool three,
                              const double (&a)[3], const double (&b)[3]) {
    double *const x = m.column(k), *const y = m.column(k + 1), *const z = three ? y + m.pitch : y;
    each_index(m.cancellation, rows, [&](int64_t i) {
      const double sum = a[0] * x[i] + a[1] * y[i] + (three ? a[2] * z[i] : 0);
      x[i] -= sum;
      y[i] -= sum * b[1];
      if (three) z[i] -= sum * b[2];
    });
  }

  const Columns<double>&h, &v;
  double *const re, *const im;
  int64_t first = 0, last = 0;
  double shifted = 0;
};

// A unitary rotation that turns (f, g) into (r, 0): r = c f + s g.
struct ComplexRotation {
  double c;
  Complex128 s, r;
};
ComplexRotation rotation_of(Complex128 f, Complex128 g) {
  const double fa = magnitude(f), ga = magnitude(g);
  if (ga == 0) return {1, {0, 0}, f};
  if (fa == 0) return {0, conj(g) / Complex128{ga, 0}, {ga, 0}};
  const double length = std::hypot(fa, ga);
  const Complex128 phase = f / Complex128{fa, 0};
  return {fa / length, phase * conj(g) / Complex128{length, 0}, phase * Complex128{length, 0}};
}

Complex128 square_root(Complex128 x) {
  const double length = magnitude(x);
  const double re = std::sqrt((length + std::fabs(x.re)) / 2);
  if (re == 0) return {0, 0};
  const double im = std::fabs(x.im) / (2 * re);
  return x.re >= 0 ? Complex128{re, std::copysign(im, x.im)}
                   : Complex128{im, std::copysign(re, x.im)};
}

// The Schur form of a complex matrix: `h` becomes triangular. The transformations are applied to
// the columns of `v`.
class ComplexSchur {
 public:
  ComplexSchur(const Columns<Complex128>& hessenberg, const Columns<Complex128>& vectors)
      : h(hessenberg), v(vectors) {}

  // Returns false if the method does not converge.
  bool run() {
    int steps = 0;
    const double size = static_cast<double>(h.rows) * largest_element(h);
    for (last = h.rows - 1; last > 0 && !h.cancellation.ended();) {
      first = begin_of_block(h, last, steps < kPatientSteps ? 0 : size);
      if (first > 0) h(first, first - 1) = {0, 0};
      if (first == last) {
        --last;
        steps = 0;
      } else {
        if (steps == kMaxSteps) return false;
        step(steps++);
      }
    }
    return true;
  }

 private:
  // The eigenvalue of the last two rows that is closer to the last element.
  Complex128 shift(int number) const {
    const Complex128 d = h(last, last);
    if (number % 20 == 10) return d + Complex128{0.75 * magnitude(h(last, last - 1)), 0};
    const Complex128 half = (h(last - 1, last - 1) - d) * Complex128{0.5, 0};
    const Complex128 product = h(last - 1, last) * h(last, last - 1);
    Complex128 root = square_root(half * half + product);
    if (half.re * root.re + half.im * root.im < 0) root = -root;
    const Complex128 sum = half + root;
    return magnitude(sum) == 0 ? d : d - product / sum;
  }

  void step(int number) {
    const Complex128 by = shift(number);
    for (int64_t i = first; i <= last; ++i) h(i, i) -= by;
    ComplexRotation before{1, {0, 0}, {0, 0}};
    for (int64_t k = first; k <= last; ++k) {
      if (h.cancellation.ends(1)) return;
      ComplexRotation rotation{1, {0, 0}, {0, 0}};
      if (k < last) {
        rotation = rotation_of(h(k, k), h(k + 1, k));
        rotate_rows(k, rotation);
      }
      if (k > first) {
        rotate_columns(h, k + 1, k - 1, before);
        if (v.columns) rotate_columns(v, v.rows, k - 1, before);
      }
      before = rotation;
    }
    for (int64_t i = first; i <= last; ++i) h(i, i) += by;
  }

  void rotate_rows(int64_t k, const ComplexRotation& rotation) {
    const Complex128 c{rotation.c, 0};
    each_index(h.cancellation, h.columns - k, [&](int64_t j) {
      Complex128* const x = &h(k, k + j);
      const Complex128 turned = c * x[0] + rotation.s * x[1];
      x[1] = c * x[1] - conj(rotation.s) * x[0];
      x[0] = turned;
    });
    h(k + 1, k) = {0, 0};
  }
  // Applies the adjoint of the rotation from the right to the columns k and k + 1.
  static void rotate_columns(const Columns<Complex128>& m, int64_t rows, int64_t k,
                             const ComplexRotation& rotation) {
    const Complex128 c{rotation.c, 0};
    Complex128 *const x = m.column(k), *const y = m.column(k + 1);
    each_index(m.cancellation, rows, [&](int64_t i) {
      const Complex128 turned = c * x[i] + conj(rotation.s) * y[i];
      y[i] = c * y[i] - rotation.s * x[i];
      x[i] = turned;
    });
  }

  const Columns<Complex128>&h, &v;
  int64_t first = 0, last = 0;
};

// The quotient, with a divisor that is at least `least` in size.
Complex128 divide(Complex128 a, Complex128 b, double least) {
  return a / (magnitude(b) < least ? Complex128{least, 0} : b);
}

// An eigenvector of the Schur form t for the eigenvalue values[k], which belongs to row k or, if it
// is one of a pair with a positive imaginary part, to the rows k and k + 1. Writes all elements of
// x that can differ from 0 and returns their number. `least` is the least divisor.
template <class S>
int64_t solve_upwards(const Columns<S>& t, const Complex128* values, int64_t k, bool pair,
                      double least, Complex128* x) {
  const Complex128 value = values[k];
  const int64_t count = k + 1 + pair;
  const auto at = [&](int64_t i, int64_t j) { return cast<Complex128>(t(i, j)); };
  Cancellation& cancellation = t.cancellation;
  each_index(cancellation, count, [&](int64_t i) { x[i] = {0, 0}; });
  x[k] = pair ? at(k, k + 1) : Complex128{1, 0};
  if (pair) x[k + 1] = value - at(k, k);
  // x[i] holds the right-hand side of row i until that row is reached.
  const auto subtract = [&](int64_t j, int64_t rows) {
    each_index(cancellation, rows, [&](int64_t i) { x[i] -= x[j] * at(i, j); });
  };
  subtract(k, k);
  if (pair) subtract(k + 1, k);
  for (int64_t i = k - 1; i >= 0 && !cancellation.ends(1);) {
    const bool two = !is_complex<S> && i > 0 && values[i].im < 0;
    if (two) {
      const Complex128 a = at(i - 1, i - 1) - value, b = at(i - 1, i), c = at(i, i - 1),
                       d = at(i, i) - value;
      const Complex128 determinant = a * d - b * c, above = x[i - 1], below = x[i];
      x[i - 1] = divide(d * above - b * below, determinant, least * least);
      x[i] = divide(a * below - c * above, determinant, least * least);
    } else {
      x[i] = divide(x[i], at(i, i) - value, least);
    }
    const double size = std::fmax(magnitude(x[i]), two ? magnitude(x[i - 1]) : 0);
    if (size > 1e100) scale(cancellation, count, Complex128{1 / size, 0}, x);
    const int64_t rows = i - two;
    if (two) subtract(i - 1, rows);
    subtract(i, rows);
    i = rows - 1;
  }
  return count;
}

// Divides a vector by its length, and makes its largest element real if `real` is set, as LAPACK
// does.
void normalize(Cancellation& cancellation, int64_t n, Complex128* y, bool real) {
  const double length = norm(cancellation, n, y);
  if (!(length > 0)) return;
  scale(cancellation, n, Complex128{1 / length, 0}, y);
  if (!real) return;
  int64_t largest = 0;
  each_index(cancellation, n, [&](int64_t i) {
    if (squared(y[i]) > squared(y[largest])) largest = i;
  });
  scale(cancellation, n, conj(y[largest]) / Complex128{magnitude(y[largest]), 0}, y);
  y[largest].im = 0;
}

// The Schur form by the class for S. Writes the eigenvalues; `parts` is scratch for two numbers per
// row.
template <class S>
bool make_schur(const Columns<S>& h, const Columns<S>& v, Complex128* values, double* parts) {
  const int64_t n = h.rows;
  if constexpr (is_complex<S>) {
    if (!ComplexSchur(h, v).run()) return false;
    each_index(h.cancellation, n, [&](int64_t i) { values[i] = h(i, i); });
  } else {
    if (!RealSchur(h, v, parts, parts + n).run()) return false;
    each_index(h.cancellation, n, [&](int64_t i) { values[i] = {parts[i], parts[n + i]}; });
  }
  return true;
}

// Writes the eigenvectors of a matrix with the Schur form v t v^H. `x` and `y` are scratch for a
// number per row.
template <class S>
void write_vectors(const Columns<S>& t, const Columns<S>& v, const Complex128* values,
                   Complex128* x, Complex128* y, const Place& to) {
  Cancellation& cancellation = t.cancellation;
  const int64_t n = t.rows;
  double largest = 0;
  each_column(t, [&](const S* column, int64_t) {
    each_index(cancellation, n,
               [&](int64_t i) { largest = std::fmax(largest, taxicab(column[i])); });
  });
  const double least = std::fmax(kEpsilon * largest, 0x1p-500);
  each_index_while(cancellation, n, [&](int64_t k) {
    if (!is_complex<S> && values[k].im < 0) return true;  // written with its partner
    const bool pair = !is_complex<S> && values[k].im > 0;
    const int64_t count = solve_upwards(t, values, k, pair, least, x);
    fill(cancellation, n, Complex128{0, 0}, y);
    each_index(cancellation, count, [&](int64_t j) {
      const S* const column = v.column(j);
      each_index(cancellation, n, [&](int64_t i) { y[i] += x[j] * cast<Complex128>(column[i]); });
    });
    normalize(cancellation, n, y, pair || is_complex<S>);
    Place place = to;
    place.offset += k * to.column;
    const Columns<Complex128> vector = as_column(cancellation, y, n);
    store(vector, place);
    if (!pair) return true;
    conjugate(vector);
    place.offset += to.column;
    store(vector, place);
    return true;
  });
}

// Eigenvalues of argument 0 for argument `values_at`, and eigenvectors for argument `vectors_at`
// unless it is `values_at`.
husk_status write_eigen(const Arguments& args, ArgumentPlace values_at, ArgumentPlace vectors_at,
                        ArgumentPlace workspace_at) {
  constexpr ArgumentsOf named("eigen", "eigenvalues");
  constexpr uint32_t kSelf = named["self"];
  HUSK_TRY(check_square(args, kSelf));
  const int64_t n = args[kSelf].sizes[args[kSelf].rank - 1], width = width_of(args, kSelf);
  const bool wants_vectors = vectors_at != values_at;
  const bool single = args[kSelf].dtype == HUSK_F32 || args[kSelf].dtype == HUSK_C64;
  HUSK_TRY(check_vectors(args, values_at, kSelf, n, single ? HUSK_C64 : HUSK_C128));
  if (wants_vectors) {
    HUSK_TRY(check_batch(args, vectors_at, kSelf, 2));
    HUSK_TRY(args.check_same_dtype(vectors_at, values_at));
    for (int32_t d = 1; d <= 2; ++d)
      HUSK_TRY(args.check_size(vectors_at, args[vectors_at].rank - d, n, "rows and columns"));
  }
  Need need;
  need.add(2 * width, n, n);
  need.add(3 * width, n);
  need.add(8, n);
  HUSK_TRY(check_workspace(args, workspace_at, need));
  if (numel(args[values_at]) == 0) return HUSK_OK;
  husk_status status = HUSK_OK;
  HUSK_TRY(visit_wide(args, kSelf, [&](auto tag) {
    using S = typename decltype(tag)::type;
    Workspace workspace(args, workspace_at);
    const Columns<S> h = workspace.matrix<S>(n, n),
                     v = workspace.matrix<S>(n, n).first(wants_vectors ? n : 0);
    S *const tau = workspace.vector<S>(n), *const column = workspace.vector<S>(n),
             *const sums = workspace.vector<S>(n);
    auto* const values = workspace.vector<Complex128>(n);
    auto *const x = workspace.vector<Complex128>(n), *const y = workspace.vector<Complex128>(n);
    auto* const parts = workspace.vector<double>(2 * n);
    each_while(batch_loop(args, kSelf, {kSelf, values_at, vectors_at}), [&](const int64_t(&at)[3]) {
      load(matrix_place(args[kSelf], at[0]), h);
      if (!finite(h)) {
        status = args.argument_error(kSelf, HUSK_INVALID_INPUT, "contains infinities or NaN");
        return false;
      }
      const double unit = bring_into_range(h);
      make_hessenberg(h, v, tau, column, sums);
      if (wants_vectors) form_basis(v, tau);
      if (!make_schur(h, v, values, parts)) {
        status = args.argument_error(kSelf, HUSK_INVALID_INPUT,
                                     "has eigenvalues to which the method does not converge");
        return false;
      }
      if (wants_vectors) write_vectors(h, v, values, x, y, matrix_place(args[vectors_at], at[2]));
      if (unit != 1) scale(args.cancellation, n, Complex128{unit, 0}, values);
      store(as_column(args.cancellation, values, n), vector_place(args[values_at], at[1]));
      return true;
    });
  }));
  return status;
}

}  // namespace

husk_status eigen(const Arguments& args) {
  constexpr ArgumentsOf named("eigen");
  constexpr uint32_t kEigenvalues = named["eigenvalues"], kEigenvectors = named["eigenvectors"],
                     kWorkspace = named["workspace"];
  return write_eigen(args, kEigenvalues, kEigenvectors, kWorkspace);
}

husk_status eigenvalues(const Arguments& args) {
  constexpr ArgumentsOf named("eigenvalues");
  constexpr uint32_t kEigenvalues = named["eigenvalues"], kWorkspace = named["workspace"];
  return write_eigen(args, kEigenvalues, kEigenvalues, kWorkspace);
}

}  // namespace husk::host
