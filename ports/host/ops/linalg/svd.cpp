// aten::_linalg_svd: singular values and vectors. Reflectors make a matrix bidiagonal, and the
// implicit QR method diagonal. The rotations and signs are those of LAPACK's dbdsqr, so that
// vectors agree with PyTorch's where the singular values are distinct and the matrix is small.
// Source: Demmel and Kahan, "Accurate singular values of bidiagonal matrices".
#include "contracts.h"
#include "error.h"
#include "linalg/reflectors.h"

namespace husk::host {

namespace {

constexpr double kRounding = 0x1p-53;
constexpr double kTolerance = 100 * kRounding;  // relative, for elements that count as 0

// A rotation that turns (f, g) into (r, 0).
struct Rotation {
  double c, s, r;
};
Rotation rotation_of(double f, double g) {
  if (g == 0) return {1, 0, f};
  if (f == 0) return {0, std::copysign(1.0, g), std::fabs(g)};
  const double r = std::copysign(std::hypot(f, g), f);
  return {std::fabs(f) / std::fabs(r), g / r, r};
}

// The smaller singular value of [f g; 0 h].
double smaller_of_two(double f, double g, double h) {
  const double fa = std::fabs(f), ga = std::fabs(g), ha = std::fabs(h);
  const double low = std::fmin(fa, ha), high = std::fmax(fa, ha);
  if (low == 0) return 0;
  const double sum = 1 + low / high, difference = (high - low) / high;
  if (ga < high) {
    const double square = (ga / high) * (ga / high);
    return low *
           (2 / (std::sqrt(sum * sum + square) + std::sqrt(difference * difference + square)));
  }
  const double ratio = high / ga;
  if (ratio == 0) return low * high / ga;
  const double c = 1 / (std::sqrt(1 + sum * ratio * sum * ratio) +
                        std::sqrt(1 + difference * ratio * difference * ratio));
  return 2 * (low * c * ratio);
}

// The singular values of [f g; 0 h], and the rotations of its columns (right) and rows (left) that
// make it diagonal.
struct Diagonal {
  double high, low;
  Rotation right, left;
};
Diagonal diagonal_of_two(double f, double g, double h) {
  double ft = f, ht = h, fa = std::fabs(f), ha = std::fabs(h);
  const double ga = std::fabs(g);
  const bool swapped = ha > fa;
  if (swapped) {
    ft = h;
    ht = f;
    fa = std::fabs(ft);
    ha = std::fabs(ht);
  }
  int largest = swapped ? 3 : 1;  // which of f, g, h
  double low = ha, high = fa, cl = 1, cr = 1, sl = 0, sr = 0;
  if (ga != 0) {
    if (ga > fa) largest = 2;
    if (ga > fa && fa / ga < kRounding) {
      high = ga;
      low = ha > 1 ? fa / (ga / ha) : fa / ga * ha;
      sl = ht / g;
      sr = 1;
      cr = ft / g;
    } else {
      const double d = fa - ha, m = g / ft, mm = m * m;
      double l = d == fa ? 1 : d / fa, t = 2 - l;
      const double s = std::sqrt(t * t + mm), r = l == 0 ? std::fabs(m) : std::sqrt(l * l + mm);
      const double a = 0.5 * (s + r);
      low = ha / a;
      high = fa * a;
      if (mm == 0)
        t = l == 0 ? std::copysign(2.0, ft) * std::copysign(1.0, g)
                   : g / std::copysign(d, ft) + m / t;
      else
        t = (m / (s + t) + m / (r + l)) * (1 + a);
      l = std::sqrt(t * t + 4);
      cr = 2 / l;
      sr = t / l;
      cl = (cr + sr * m) / a;
      sl = ht / ft * sr / a;
    }
  }
  const Rotation left = swapped ? Rotation{sr, cr, 0} : Rotation{cl, sl, 0},
                 right = swapped ? Rotation{sl, cl, 0} : Rotation{cr, sr, 0};
  const double sign = largest == 1 ? std::copysign(1.0, right.c) * std::copysign(1.0, left.c) *
                                         std::copysign(1.0, f)
                      : largest == 2 ? std::copysign(1.0, right.s) * std::copysign(1.0, left.c) *
                                           std::copysign(1.0, g)
                                     : std::copysign(1.0, right.s) * std::copysign(1.0, left.s) *
                                           std::copysign(1.0, h);
  high = std::copysign(high, sign);
  low = std::copysign(low, sign * std::copysign(1.0, f) * std::copysign(1.0, h));
  return {high, low, right, left};
}

// An upper bidiagonal matrix of n columns with the diagonal d and the numbers e above it, and the
// singular vectors that rotations are applied to; `u` and `v` have no columns if none are wanted.
template <class S>
struct Bidiagonal {
  double *d, *e;
  int64_t n;
  Columns<S> u, v;

  void rotate_left(int64_t i, const Rotation& r, double sign = 1) const {
    if (u.columns) rotate(u.cancellation, u.rows, u.column(i), u.column(i + 1), r.c, sign * r.s);
  }
  void rotate_right(int64_t i, const Rotation& r, double sign = 1) const {
    if (v.columns) rotate(v.cancellation, v.rows, v.column(i), v.column(i + 1), r.c, sign * r.s);
  }
};

// One step of the QR method with shift 0 for the elements first ... last, which chases the bulge
// down.
template <class S>
void step_down_unshifted(const Bidiagonal<S>& b, int64_t first, int64_t last) {
  Rotation right{1, 0, 0}, left{1, 0, 0};
  for (int64_t i = first; i < last; ++i) {
    right = rotation_of(b.d[i] * right.c, b.e[i]);
    if (i > first) b.e[i - 1] = left.s * right.r;
    left = rotation_of(left.c * right.r, b.d[i + 1] * right.s);
    b.d[i] = left.r;
    b.rotate_right(i, right);
    b.rotate_left(i, left);
  }
  const double rest = b.d[last] * right.c;
  b.d[last] = rest * left.c;
  b.e[last - 1] = rest * left.s;
}

// The same, upwards.
template <class S>
void step_up_unshifted(const Bidiagonal<S>& b, int64_t first, int64_t last) {
  Rotation left{1, 0, 0}, right{1, 0, 0};
  for (int64_t i = last; i > first; --i) {
    left = rotation_of(b.d[i] * left.c, b.e[i - 1]);
    if (i < last) b.e[i] = right.s * left.r;
    right = rotation_of(right.c * left.r, b.d[i - 1] * left.s);
    b.d[i] = right.r;
    b.rotate_left(i - 1, left, -1);
    b.rotate_right(i - 1, right, -1);
  }
  const double rest = b.d[first] * left.c;
  b.d[first] = rest * right.c;
  b.e[first] = rest * right.s;
}

// One step of the QR method with a shift, downwards.
template <class S>
void step_down(const Bidiagonal<S>& b, int64_t first, int64_t last, double shift) {
  double* const d = b.d;
  double* const e = b.e;
  double f = (std::fabs(d[first]) - shift) * (std::copysign(1.0, d[first]) + shift / d[first]);
  double g = e[first];
  for (int64_t i = first; i < last; ++i) {
    const Rotation right = rotation_of(f, g);
    if (i > first) e[i - 1] = right.r;
    f = right.c * d[i] + right.s * e[i];
    e[i] = right.c * e[i] - right.s * d[i];
    g = right.s * d[i + 1];
    d[i + 1] = right.c * d[i + 1];
    const Rotation left = rotation_of(f, g);
    d[i] = left.r;
    f = left.c * e[i] + left.s * d[i + 1];
    d[i + 1] = left.c * d[i + 1] - left.s * e[i];
    if (i + 1 < last) {
      g = left.s * e[i + 1];
      e[i + 1] = left.c * e[i + 1];
    }
    b.rotate_right(i, right);
    b.rotate_left(i, left);
  }
  e[last - 1] = f;
}

// The same, upwards.
template <class S>
void step_up(const Bidiagonal<S>& b, int64_t first, int64_t last, double shift) {
  double* const d = b.d;
  double* const e = b.e;
  double f = (std::fabs(d[last]) - shift) * (std::copysign(1.0, d[last]) + shift / d[last]);
  double g = e[last - 1];
  for (int64_t i = last; i > first; --i) {
    const Rotation left = rotation_of(f, g);
    if (i < last) e[i] = left.r;
    f = left.c * d[i] + left.s * e[i - 1];
    e[i - 1] = left.c * e[i - 1] - left.s * d[i];
    g = left.s * d[i - 1];
    d[i - 1] = left.c * d[i - 1];
    const Rotation right = rotation_of(f, g);
    d[i] = right.r;
    f = right.c * e[i - 1] + right.s * d[i - 1];
    d[i - 1] = right.c * d[i - 1] - right.s * e[i - 1];
    if (i > first + 1) {
      g = right.s * e[i - 2];
      e[i - 2] = right.c * e[i - 2];
    }
    b.rotate_left(i - 1, left, -1);
    b.rotate_right(i - 1, right, -1);
  }
  e[first] = f;
}

// Replaces the last two columns of a block by their singular values.
template <class S>
void finish_two(const Bidiagonal<S>& b, int64_t first) {
  const Diagonal two = diagonal_of_two(b.d[first], b.e[first], b.d[first + 1]);
  b.d[first] = two.high;
  b.e[first] = 0;
  b.d[first + 1] = two.low;
  b.rotate_right(first, two.right);
  b.rotate_left(first, two.left);
}

// An absolute threshold below which elements count as 0, from a bound of the least singular value.
double threshold_of(Cancellation& cancellation, const double* d, const double* e, int64_t n) {
  double bound = std::fabs(d[0]), least = bound;
  each_index(cancellation, n - 1, [&](int64_t i) {
    bound = bound == 0 ? 0 : std::fabs(d[i + 1]) * (bound / (bound + std::fabs(e[i])));
    least = std::fmin(least, bound);
  });
  return std::fmax(kTolerance * least / std::sqrt(static_cast<double>(n)), 0x1p-1000);
}

// Sets an element of e to 0 that is small in comparison with the elements before it, in the
// direction of the steps; returns true if there is one. Otherwise `least` is a bound of the least
// singular value of the block.
template <class S>
bool split(const Bidiagonal<S>& b, int64_t first, int64_t last, bool down, double& least) {
  const int64_t from = down ? first : last;
  double bound = std::fabs(b.d[from]);
  double& end = down ? b.e[last - 1] : b.e[first];
  least = bound;
  if (std::fabs(end) <= kTolerance * std::fabs(b.d[down ? last : first])) {
    end = 0;
    return true;
  }
  const bool whole = each_index_while(b.u.cancellation, last - first, [&](int64_t done) {
    double& element = b.e[down ? first + done : last - 1 - done];
    if (std::fabs(element) <= kTolerance * bound) {
      element = 0;
      return false;
    }
    const double next = std::fabs(b.d[down ? first + done + 1 : last - 1 - done]);
    bound = next * (bound / (bound + std::fabs(element)));
    least = std::fmin(least, bound);
    return true;
  });
  return !whole;
}

// One step for a block without zeros, whose largest element is `largest`.
template <class S>
void step_qr(const Bidiagonal<S>& b, int64_t first, int64_t last, bool down, double least,
             double largest, double threshold) {
  double shift = 0;
  if (static_cast<double>(b.n) * kTolerance * (least / largest) >
      std::fmax(kRounding, 0.01 * kTolerance)) {
    const double start = std::fabs(b.d[down ? first : last]);
    shift = down ? smaller_of_two(b.d[last - 1], b.e[last - 1], b.d[last])
                 : smaller_of_two(b.d[first], b.e[first], b.d[first + 1]);
    if (start > 0 && (shift / start) * (shift / start) < kRounding) shift = 0;
  }
  if (down)
    shift == 0 ? step_down_unshifted(b, first, last) : step_down(b, first, last, shift);
  else
    shift == 0 ? step_up_unshifted(b, first, last) : step_up(b, first, last, shift);
  double& end = down ? b.e[last - 1] : b.e[first];
  if (std::fabs(end) <= threshold) end = 0;
}

// Makes the matrix diagonal. Returns false if the method does not converge.
template <class S>
bool diagonalize(const Bidiagonal<S>& b) {
  Cancellation& cancellation = b.u.cancellation;
  const double threshold = threshold_of(cancellation, b.d, b.e, b.n);
  int64_t last = b.n - 1, old_first = -1, old_last = -1;
  bool down = true;
  double steps = 0;  // elements of all steps
  while (last > 0) {
    if (cancellation.ended()) return true;
    // The block without a zero that ends at `last`.
    double largest = std::fabs(b.d[last]);
    int64_t first = last;
    while (first > 0 && !cancellation.ends(1)) {
      if (std::fabs(b.e[first - 1]) <= threshold) {
        b.e[first - 1] = 0;
        break;
      }
      --first;
      largest = std::fmax(largest, std::fmax(std::fabs(b.d[first]), std::fabs(b.e[first])));
    }
    if (first == last) {
      --last;
      continue;
    }
    if (first == last - 1) {
      finish_two(b, first);
      last -= 2;
      continue;
    }
    if (first > old_last || last < old_first) down = std::fabs(b.d[first]) >= std::fabs(b.d[last]);
    double least = 0;
    if (split(b, first, last, down, least)) continue;
    old_first = first;
    old_last = last;
    steps += static_cast<double>(last - first);
    if (steps > 6 * static_cast<double>(b.n) * static_cast<double>(b.n)) return false;
    cancellation.ends(last - first);
    step_qr(b, first, last, down, least, largest, threshold);
  }
  return true;
}

// Makes the matrix upper bidiagonal if the numbers e lie below its diagonal.
template <class S>
void turn_upper(const Bidiagonal<S>& b) {
  each_index(b.u.cancellation, b.n - 1, [&](int64_t i) {
    const Rotation left = rotation_of(b.d[i], b.e[i]);
    b.d[i] = left.r;
    b.e[i] = left.s * b.d[i + 1];
    b.d[i + 1] = left.c * b.d[i + 1];
    b.rotate_left(i, left);
  });
}

// Makes singular values positive, and sorts them in descending order.
template <class S>
void sort_values(const Bidiagonal<S>& b) {
  const Columns<S>& negated = b.v;
  each_index(negated.cancellation, b.n, [&](int64_t k) {
    if (!std::signbit(b.d[k])) return;
    b.d[k] = -b.d[k];
    if (negated.columns)
      scale(negated.cancellation, negated.rows, from_real<S>(-1), negated.column(k));
  });
  each_index(negated.cancellation, b.n, [&](int64_t done) {
    const int64_t end = b.n - 1 - done;
    int64_t least = 0;
    each_index(negated.cancellation, end + 1, [&](int64_t i) {
      if (b.d[i] <= b.d[least]) least = i;
    });
    const double value = b.d[least];
    b.d[least] = b.d[end];
    b.d[end] = value;
    if (b.u.columns) swap_columns(b.u, least, end);
    if (b.v.columns) swap_columns(b.v, least, end);
  });
}

// Reduces a, which has at least as many rows as columns, to a bidiagonal matrix. Leaves the
// reflectors of the rows below the diagonal of a, and those of the columns below the second
// diagonal of v, if v has columns. `row` is scratch for two numbers per column, `sums` for a
// number per row.
template <class S>
void make_bidiagonal(const Columns<S>& a, const Columns<S>& v, double* d, double* e, S* tau_u,
                     S* tau_v, S* row, S* sums) {
  each_index(a.cancellation, a.columns, [&](int64_t k) {
    tau_u[k] = make_reflector(a.cancellation, a.rows - k, &a(k, k));
    d[k] = real_part(a(k, k));
    reflect_left(a.from(k, k + 1), &a(k, k), conj(tau_u[k]));
    const int64_t right = a.columns - k - 1;
    if (right == 0) return;
    each_index(a.cancellation, right, [&](int64_t j) { row[j] = conj(a(k, k + 1 + j)); });
    tau_v[k] = make_reflector(a.cancellation, right, row);
    e[k] = real_part(row[0]);
    reflect_right(a.from(k + 1, k + 1), row, tau_v[k], sums);
    if (v.columns)
      each_index(a.cancellation, right, [&](int64_t j) { v(k + 1 + j, k + 1) = row[j]; });
  });
}

// Replaces the reflectors in v by their product.
template <class S>
void form_right_basis(const Columns<S>& v, const S* tau) {
  each_column(v, [&](S* x, int64_t j) {
    v(0, j) = from_real<S>(0);
    if (j == 0) fill(v.cancellation, v.rows, from_real<S>(0), x);
  });
  v(0, 0) = from_real<S>(1);
  form_product(v.from(1, 1), tau, v.columns - 1);
}

}  // namespace

husk_status singular_values(const Arguments& args) {
  constexpr ArgumentsOf named("singular_values");
  constexpr uint32_t kA = named["A"], kFullMatrices = named["full_matrices"],
                     kComputeUv = named["compute_uv"], kU = named["U"], kS = named["S"],
                     kVh = named["Vh"], kWorkspace = named["workspace"];
  HUSK_TRY(args.check_tensor(kA, 2, kMaxRank));
  bool full = false, vectors = true;
  HUSK_TRY(args.get_bool(kFullMatrices, full));
  HUSK_TRY(args.get_bool(kComputeUv, vectors));
  const int64_t rows = args[kA].sizes[args[kA].rank - 2],
                columns = args[kA].sizes[args[kA].rank - 1];
  // A matrix with more columns than rows is computed as its adjoint.
  const bool adjoint = rows < columns;
  const int64_t tall = adjoint ? columns : rows, n = adjoint ? rows : columns;
  HUSK_TRY(check_vectors(args, kS, kA, n, real_dtype(args[kA].dtype)));
  HUSK_TRY(args.check_tensor(kU, 1, kMaxRank));
  HUSK_TRY(args.check_tensor(kVh, 1, kMaxRank));
  if (vectors) {
    HUSK_TRY(check_matrices(args, kU, kA, rows, full ? rows : n));
    HUSK_TRY(check_matrices(args, kVh, kA, full ? columns : n, columns));
  }
  const int64_t width = width_of(args, kA), left = vectors && full ? tall : n;
  Need need;
  need.add(width, tall, left);
  need.add(width, n, n);
  need.add(width, n, 3);
  need.add(width, tall);
  need.add(2, n);
  HUSK_TRY(check_workspace(args, kWorkspace, need));
  if (numel(args[kS]) == 0 && (!vectors || (numel(args[kU]) == 0 && numel(args[kVh]) == 0)))
    return HUSK_OK;
  husk_status status = HUSK_OK;
  HUSK_TRY(visit_wide(args, kA, [&](auto tag) {
    using S = typename decltype(tag)::type;
    Workspace workspace(args, kWorkspace);
    const Columns<S> u = workspace.matrix<S>(tall, left), v = workspace.matrix<S>(n, n),
                     a = u.first(n);
    S *const tau_u = workspace.vector<S>(n), *const tau_v = workspace.vector<S>(n),
             *const row = workspace.vector<S>(n), *const sums = workspace.vector<S>(tall);
    double *const d = workspace.vector<double>(n), *const e = workspace.vector<double>(n);
    const Columns<S> some_u = u.first(vectors ? n : 0), some_v = v.first(vectors ? n : 0);
    // The adjoint of an upper bidiagonal matrix is lower bidiagonal.
    const Bidiagonal<S> b{d, e, n, adjoint ? some_v : some_u, adjoint ? some_u : some_v};
    const uint32_t u_at = vectors ? kU : kS, v_at = vectors ? kVh : kS;
    each_while(batch_loop(args, kA, {kA, kS, u_at, v_at}), [&](const int64_t(&at)[4]) {
      const Place from = matrix_place(args[kA], at[0]);
      load(adjoint ? from.transposed() : from, a);
      if (adjoint) conjugate(a);
      if (!finite(a)) {
        status = args.argument_error(kA, HUSK_INVALID_INPUT, "contains infinities or NaN");
        return false;
      }
      const double unit = bring_into_range(a);
      make_bidiagonal(a, some_v, d, e, tau_u, tau_v, row, sums);
      if (vectors) {
        form_product(u, tau_u, n);
        if (n > 0) form_right_basis(v, tau_v);
      }
      if (adjoint) turn_upper(b);
      if (n > 0 && !diagonalize(b)) {
        status = args.argument_error(kA, HUSK_INVALID_INPUT,
                                     "has singular values to which the method does not converge");
        return false;
      }
      sort_values(b);
      if (unit != 1) scale(args.cancellation, n, unit, d);
      store(as_column(args.cancellation, d, n), vector_place(args[kS], at[1]));
      if (!vectors) return true;
      // A = U S V^H, or A^H = V S U^H.
      const Place u_to = matrix_place(args[kU], at[2]), v_to = matrix_place(args[kVh], at[3]);
      const Columns<S>&first = adjoint ? v : u, &second = adjoint ? u : v;
      store(first, u_to);
      conjugate(second);
      store(second, v_to.transposed());
      return true;
    });
  }));
  return status;
}

}  // namespace husk::host
