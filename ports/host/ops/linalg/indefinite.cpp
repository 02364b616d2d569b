// Factors L D L^T, or L D L^H, of symmetric or Hermitian matrices that need not be positive
// definite, and systems with them. D has blocks of one or two rows, which Bunch and Kaufman's
// pivoting chooses as LAPACK's sytf2 does. Only the lower triangle is used. Source: Golub and Van
// Loan, "Matrix Computations", section 4.4.
#include "contracts.h"
#include "error.h"
#include "linalg/wide.h"

namespace husk::host {

namespace {

// x, or its conjugate in a Hermitian matrix.
template <class S>
S mirrored(S x, bool hermitian) {
  return hermitian ? conj(x) : x;
}

// The size of an element of the diagonal. The diagonal of a Hermitian matrix is real.
template <class S>
double diagonal_size(S x, bool hermitian) {
  return hermitian ? std::fabs(real_part(x)) : taxicab(x);
}

// The row below k whose element in column k is largest, k if there is none; `size` is that of the
// element.
template <class S>
int64_t largest_below(const Columns<S>& a, int64_t k, double& size) {
  int64_t best = k;
  size = 0;
  each_index(a.cancellation, a.rows - k - 1, [&](int64_t below) {
    const double value = taxicab(a(k + 1 + below, k));
    if (best == k || value > size) {
      best = k + 1 + below;
      size = value;
    }
  });
  return best;
}

// The size of the largest element of row `at` besides its diagonal, from column k on.
template <class S>
double largest_in_row(const Columns<S>& a, int64_t k, int64_t at) {
  double largest = 0;
  each_index(a.cancellation, a.rows - k, [&](int64_t i) {
    const int64_t j = k + i;
    if (j != at) largest = std::fmax(largest, taxicab(j < at ? a(at, j) : a(j, at)));
  });
  return largest;
}

// The pivot of column k: a row, and whether it makes a block of two rows.
struct Pivot {
  int64_t row;
  bool two;
};
template <class S>
Pivot choose_pivot(const Columns<S>& a, int64_t k, bool hermitian) {
  const double alpha = (1 + std::sqrt(17.0)) / 8, own = diagonal_size(a(k, k), hermitian);
  double below = 0;
  const int64_t row = largest_below(a, k, below);
  if (own >= alpha * below) return {k, false};
  const double across = largest_in_row(a, k, row);
  if (own >= alpha * below * (below / across)) return {k, false};
  return {row, diagonal_size(a(row, row), hermitian) < alpha * across};
}

// Exchanges the rows and columns k and p > k of the lower triangle from column k on.
template <class S>
void exchange(const Columns<S>& a, int64_t k, int64_t p, bool hermitian) {
  each_index(a.cancellation, a.rows - p - 1, [&](int64_t below) {
    const S kept = a(p + 1 + below, k);
    a(p + 1 + below, k) = a(p + 1 + below, p);
    a(p + 1 + below, p) = kept;
  });
  each_index(a.cancellation, p - k - 1, [&](int64_t between) {
    const int64_t j = k + 1 + between;
    const S kept = mirrored(a(j, k), hermitian);
    a(j, k) = mirrored(a(p, j), hermitian);
    a(p, j) = kept;
  });
  a(p, k) = mirrored(a(p, k), hermitian);
  const S kept = a(k, k);
  a(k, k) = a(p, p);
  a(p, p) = kept;
}

// Subtracts the part of a block of one row, and divides its column by the pivot.
template <class S>
void eliminate_one(const Columns<S>& a, int64_t k, bool hermitian) {
  const S inverse = from_real<S>(1) / a(k, k);
  each_index(a.cancellation, a.rows - k - 1, [&](int64_t below) {
    const int64_t j = k + 1 + below;
    add_scaled(a.cancellation, a.rows - j, -inverse * mirrored(a(j, k), hermitian), &a(j, k),
               &a(j, j));
    if (hermitian) a(j, j) = from_real<S>(real_part(a(j, j)));
  });
  scale(a.cancellation, a.rows - k - 1, inverse, a.column(k) + k + 1);
}

// The same for the block of the rows k and k + 1.
template <class S>
void eliminate_two(const Columns<S>& a, int64_t k, bool hermitian) {
  const S off = a(k + 1, k), back = mirrored(off, hermitian);
  const S low = a(k + 1, k + 1) / back, high = a(k, k) / off;
  const S unit = from_real<S>(1) / (low * high - from_real<S>(1));
  each_index(a.cancellation, a.rows - k - 2, [&](int64_t below) {
    const int64_t j = k + 2 + below;
    const S x = a(j, k) / off, y = a(j, k + 1) / back;
    const S first = unit * (low * x - y), second = unit * (high * y - x);
    add_scaled(a.cancellation, a.rows - j, -mirrored(first, hermitian), &a(j, k), &a(j, j));
    add_scaled(a.cancellation, a.rows - j, -mirrored(second, hermitian), &a(j, k + 1), &a(j, j));
    a(j, k) = first;
    a(j, k + 1) = second;
    if (hermitian) a(j, j) = from_real<S>(real_part(a(j, j)));
  });
}

// Replaces the lower triangle of a by its factors. Writes the pivots, which are LAPACK's: the row
// counted from 1, negative in both rows of a block of two. Returns the number of the first zero
// pivot, counted from 1, or 0.
template <class S>
int32_t factor_indefinite(const Columns<S>& a, int32_t* pivots, int64_t stride, bool hermitian) {
  int32_t info = 0;
  for (int64_t k = 0; k < a.rows && !a.cancellation.ends(1);) {
    double below = 0;
    largest_below(a, k, below);
    const double largest = std::fmax(diagonal_size(a(k, k), hermitian), below);
    Pivot pivot{k, false};
    if (!(largest > 0) || is_nan(a(k, k))) {
      if (info == 0) info = static_cast<int32_t>(k + 1);
      if (hermitian) a(k, k) = from_real<S>(real_part(a(k, k)));
    } else {
      pivot = choose_pivot(a, k, hermitian);
      const int64_t to = k + pivot.two;
      if (pivot.row != to) {
        exchange(a, to, pivot.row, hermitian);
        if (pivot.two) {
          const S kept = a(k + 1, k);
          a(k + 1, k) = a(pivot.row, k);
          a(pivot.row, k) = kept;
        }
      }
      if (hermitian) {
        a(k, k) = from_real<S>(real_part(a(k, k)));
        if (pivot.two) a(k + 1, k + 1) = from_real<S>(real_part(a(k + 1, k + 1)));
      }
      pivot.two ? eliminate_two(a, k, hermitian) : eliminate_one(a, k, hermitian);
    }
    const auto number = static_cast<int32_t>(pivot.row + 1);
    pivots[k * stride] = pivot.two ? -number : number;
    if (pivot.two) pivots[(k + 1) * stride] = -number;
    k += 1 + pivot.two;
  }
  return info;
}

// The two numbers of a column of x that belong to a block of two rows.
template <class S>
void solve_two(const Columns<S>& a, int64_t k, bool hermitian, S& x, S& y) {
  const S off = a(k + 1, k), back = mirrored(off, hermitian);
  const S high = a(k, k) / back, low = a(k + 1, k + 1) / off, unit = high * low - from_real<S>(1);
  const S above = x / back, below = y / off;
  x = (low * above - below) / unit;
  y = (high * below - above) / unit;
}

template <class S>
void swap_rows(const Columns<S>& x, int64_t a, int64_t b) {
  if (a == b) return;
  each_column(x, [&](S* column, int64_t) {
    const S kept = column[a];
    column[a] = column[b];
    column[b] = kept;
  });
}

// A pivot: the row that is exchanged, and whether it belongs to a block of two rows. Another thread
// may change pivots during a call: one that is not the number of a row becomes that of row k.
inline Pivot read_pivot(const int32_t* pivots, int64_t stride, int64_t k, int64_t rows) {
  const int64_t number = read_once(pivots + k * stride), row = (number < 0 ? -number : number) - 1;
  return {is_within(row, rows) ? row : k, number < 0};
}

// x = (L D)^-1 x, then, backwards, x = L^-T x, with the rows exchanged as the pivots say.
template <class S>
void solve_indefinite(const Columns<S>& a, const int32_t* pivots, int64_t stride,
                      const Columns<S>& x, bool hermitian) {
  const int64_t n = a.rows;
  for (int64_t k = 0; k < n && !x.cancellation.ends(1);) {
    const Pivot pivot = read_pivot(pivots, stride, k, n);
    const bool two = pivot.two && k + 1 < n;
    swap_rows(x, k + two, pivot.row);
    const int64_t next = k + 1 + two;
    each_column(x, [&](S* b, int64_t) {
      add_scaled(x.cancellation, n - next, -b[k], a.column(k) + next, b + next);
      if (two) {
        add_scaled(x.cancellation, n - next, -b[k + 1], a.column(k + 1) + next, b + next);
        solve_two(a, k, hermitian, b[k], b[k + 1]);
      } else {
        b[k] = b[k] / a(k, k);
      }
    });
    k = next;
  }
  for (int64_t k = n - 1; k >= 0 && !x.cancellation.ends(1);) {
    const Pivot pivot = read_pivot(pivots, stride, k, n);
    const bool two = pivot.two && k > 0;
    each_column(x, [&](S* b, int64_t) {
      for (int64_t row = k - two; row <= k; ++row) {
        const S* const l = a.column(row) + k + 1;
        S sum = from_real<S>(0);
        each_index(x.cancellation, n - k - 1,
                   [&](int64_t i) { sum += mirrored(l[i], hermitian) * b[k + 1 + i]; });
        b[row] -= sum;
      }
    });
    swap_rows(x, k, pivot.row);
    k -= 1 + two;
  }
}

}  // namespace

husk_status ldl_factor(const Arguments& args) {
  constexpr ArgumentsOf named("ldl_factor");
  constexpr uint32_t kSelf = named["self"], kHermitian = named["hermitian"],
                     kCheckErrors = named["check_errors"], kLd = named["LD"],
                     kPivots = named["pivots"], kInfo = named["info"],
                     kWorkspace = named["workspace"];
  HUSK_TRY(check_square(args, kSelf));
  bool hermitian = false, check = false;
  HUSK_TRY(args.get_bool(kHermitian, hermitian));
  HUSK_TRY(args.get_bool(kCheckErrors, check));
  const int64_t n = args[kSelf].sizes[args[kSelf].rank - 1];
  HUSK_TRY(check_matrices(args, kLd, kSelf, n, n));
  HUSK_TRY(check_vectors(args, kPivots, kSelf, n, HUSK_I32));
  HUSK_TRY(check_numbers(args, kInfo, kSelf, HUSK_I32));
  if (n > INT32_MAX) return args.argument_error(kSelf, HUSK_UNSUPPORTED, "has more than 2^31 rows");
  Need need;
  need.add(width_of(args, kSelf), n, n);
  HUSK_TRY(check_workspace(args, kWorkspace, need));
  int32_t failed_info = 0;
  HUSK_TRY(visit_wide(args, kSelf, [&](auto tag) {
    using S = typename decltype(tag)::type;
    const Columns<S> a = Workspace(args, kWorkspace).matrix<S>(n, n);
    const husk_op_arg& pivots = args[kPivots];
    each(batch_loop(args, kSelf, {kSelf, kLd, kPivots, kInfo}), [&](const int64_t(&at)[4]) {
      load(matrix_place(args[kSelf], at[0]), a);
      const int32_t info = factor_indefinite(a, writable<int32_t>(pivots) + at[2],
                                             pivots.strides[pivots.rank - 1], hermitian);
      each_column(a, [&](S* x, int64_t j) { fill(a.cancellation, j, from_real<S>(0), x); });
      store(a, matrix_place(args[kLd], at[1]));
      writable<int32_t>(args[kInfo])[at[3]] = info;
      if (info) failed_info = info;
    });
  }));
  if (!check || !failed_info) return HUSK_OK;
  return fail(args.error, HUSK_INVALID_INPUT, "%s: the matrix is singular (pivot %d is zero)",
              args.op, failed_info);
}

husk_status ldl_solve(const Arguments& args) {
  constexpr ArgumentsOf named("ldl_solve");
  constexpr uint32_t kLd = named["LD"], kPivots = named["pivots"], kB = named["B"],
                     kHermitian = named["hermitian"], kOut = named["out"],
                     kWorkspace = named["workspace"];
  HUSK_TRY(check_square(args, kLd));
  bool hermitian = false;
  HUSK_TRY(args.get_bool(kHermitian, hermitian));
  const int64_t n = args[kLd].sizes[args[kLd].rank - 1];
  HUSK_TRY(args.check_tensor(kOut, 2, kMaxRank));
  const int64_t columns = args[kOut].sizes[args[kOut].rank - 1];
  HUSK_TRY(check_matrices(args, kOut, kOut, n, columns));
  HUSK_TRY(args.check_same_dtype(kOut, kLd));
  HUSK_TRY(check_broadcast(args, kLd, kOut, 2, args[kLd].dtype));
  HUSK_TRY(check_broadcast(args, kPivots, kOut, 1, HUSK_I32));
  HUSK_TRY(args.check_size(kPivots, args[kPivots].rank - 1, n, "the rows of LD"));
  HUSK_TRY(check_broadcast(args, kB, kOut, 2, args[kLd].dtype));
  HUSK_TRY(args.check_size(kB, args[kB].rank - 2, n, "the rows of LD"));
  HUSK_TRY(args.check_size(kB, args[kB].rank - 1, columns, "the columns of the result"));
  Need need;
  need.add(width_of(args, kLd), n, n);
  need.add(width_of(args, kLd), n, columns);
  HUSK_TRY(check_workspace(args, kWorkspace, need));
  if (numel(args[kOut]) == 0) return HUSK_OK;
  husk_status status = HUSK_OK;
  HUSK_TRY(visit_wide(args, kLd, [&](auto tag) {
    using S = typename decltype(tag)::type;
    Workspace workspace(args, kWorkspace);
    const Columns<S> a = workspace.matrix<S>(n, n), x = workspace.matrix<S>(n, columns);
    const int64_t stride = args[kPivots].strides[args[kPivots].rank - 1];
    const Loop<4> loop = broadcast_loop<4>(args, kOut, {kLd, kPivots, kB, kOut}, {2, 1, 2, 2});
    each_while(loop, [&](const int64_t(&at)[4]) {
      const int32_t* const pivots = data_of<int32_t>(args[kPivots]) + at[1];
      const bool rows = each_index_while(args.cancellation, n, [&](int64_t k) {
        const int64_t number = pivots[k * stride];
        return number != 0 && number <= n && number >= -n;
      });
      if (!rows) {
        status = args.argument_error(kPivots, HUSK_INVALID_INPUT,
                                     "has a number that is not of a row");
        return false;
      }
      load(matrix_place(args[kLd], at[0]), a);
      load(matrix_place(args[kB], at[2]), x);
      solve_indefinite(a, pivots, stride, x, hermitian);
      store(x, matrix_place(args[kOut], at[3]));
      return true;
    });
  }));
  return status;
}

}  // namespace husk::host
