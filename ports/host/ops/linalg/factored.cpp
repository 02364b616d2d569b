// Operators over factors that the model has already: the parts of factors, inverses and solutions;
// and factorizations that return parts at once. Matrices lie in the memory of the results, in the
// dtype of the matrix.
#include "error.h"
#include "linalg/elimination.h"
#include "linalg/wide.h"

namespace husk::host {

namespace {

// Sets the elements to those of the identity matrix.
template <class T>
void set_identity(const Matrix<T>& m) {
  each_index_while(m.cancellation, m.rows, [&](int64_t i) {
    return each_index(m.cancellation, m.columns,
                      [&](int64_t j) { m(i, j) = i == j ? from_real<T>(1) : from_real<T>(0); });
  });
}

// Writes the lower factor, with ones on its diagonal, or the upper factor. `from` has at least as
// many rows and columns as `to`, and may be `to`.
template <class T>
void copy_triangle(const Matrix<T>& from, const Matrix<T>& to, bool upper) {
  each_index_while(to.cancellation, to.rows, [&](int64_t i) {
    return each_index(to.cancellation, to.columns, [&](int64_t j) {
      if (upper)
        to(i, j) = i <= j ? from(i, j) : from_real<T>(0);
      else
        to(i, j) = i > j ? from(i, j) : i == j ? from_real<T>(1) : from_real<T>(0);
    });
  });
}

// Writes the matrix p of row exchanges, a = p l u. Returns false if a pivot is not the number of a
// row.
template <class T>
bool copy_exchanges(const int32_t* pivots, int64_t stride, int64_t count, const Matrix<T>& p) {
  set_identity(p);
  return each_index_while(p.cancellation, count, [&](int64_t k) {
    const int64_t row = read_once(pivots + k * stride);
    if (row < 1 || row > p.rows) return false;
    swap_rows(p.transposed(), k, row - 1);
    return true;
  });
}

husk_status wrong_pivot(const Arguments& args, uint32_t at) {
  return args.argument_error(at, HUSK_INVALID_INPUT, "has a number that is not of a row");
}

// Whether all pivots are numbers of rows.
bool are_rows(Cancellation& cancellation, const int32_t* pivots, int64_t stride, int64_t count,
              int64_t rows) {
  return each_index_while(cancellation, count, [&](int64_t k) {
    return pivots[k * stride] >= 1 && pivots[k * stride] <= rows;
  });
}

}  // namespace

husk_status linear_lu(const Arguments& args) {
  HUSK_TRY(args.check_tensor(0, 2, kMaxRank));
  bool pivot = true;
  HUSK_TRY(args.get_bool(1, pivot));
  if (!pivot) return args.argument_error(1, HUSK_UNSUPPORTED, "is false, which hosts do not have");
  const int64_t rows = args[0].sizes[args[0].rank - 2], columns = args[0].sizes[args[0].rank - 1];
  const int64_t count = smaller(rows, columns);
  if (rows > INT32_MAX && columns > 0)
    return args.argument_error(0, HUSK_UNSUPPORTED, "has more than 2147483647 rows");
  HUSK_TRY(check_matrices(args, 2, 0, rows, rows));
  HUSK_TRY(check_matrices(args, 3, 0, rows, count));
  HUSK_TRY(check_matrices(args, 4, 0, count, columns));
  Need need;
  need.add(1, count);
  HUSK_TRY(check_workspace(args, 5, need));
  // The factors lie in the result that has the shape of the matrix.
  const uint32_t both = rows >= columns ? 3 : 4;
  HUSK_TRY(copy_elements(args, both, 0));
  if (numel(args[2]) == 0) return HUSK_OK;
  return visit_argument<Floats | Complexes>(args, 0, [&](auto tag) {
    using T = typename decltype(tag)::type;
    auto* const pivots = static_cast<int32_t*>(args[5].data);
    each(batch_loop(args, 2, {2, 3, 4}), [&](const int64_t(&at)[3]) {
      const Matrix<T> p = matrix_at<T>(args, 2, at[0]), l = matrix_at<T>(args, 3, at[1]),
                      u = matrix_at<T>(args, 4, at[2]), lu = rows >= columns ? l : u;
      factor_lu(lu, pivots, 1, true);
      copy_exchanges(pivots, 1, count, p);
      if (rows >= columns) {
        copy_triangle(lu, u, true);
        copy_triangle(lu, l, false);
      } else {
        copy_triangle(lu, l, false);
        copy_triangle(lu, u, true);
      }
    });
  });
}

husk_status lu_unpack(const Arguments& args) {
  HUSK_TRY(args.check_tensor(0, 2, kMaxRank));
  bool data = true, exchanges = true;
  HUSK_TRY(args.get_bool(2, data));
  HUSK_TRY(args.get_bool(3, exchanges));
  const int64_t rows = args[0].sizes[args[0].rank - 2], columns = args[0].sizes[args[0].rank - 1];
  const int64_t count = smaller(rows, columns);
  HUSK_TRY(check_vectors(args, 1, 0, count, HUSK_I32));
  if (exchanges) HUSK_TRY(check_matrices(args, 4, 0, rows, rows));
  if (data) {
    HUSK_TRY(check_matrices(args, 5, 0, rows, count));
    HUSK_TRY(check_matrices(args, 6, 0, count, columns));
  }
  bool valid = true;
  HUSK_TRY(visit_argument<Floats | Complexes>(args, 0, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const int64_t stride = args[1].strides[args[1].rank - 1];
    if (exchanges && numel(args[4]) != 0) {
      each_while(batch_loop(args, 4, {1, 4}), [&](const int64_t(&at)[2]) {
        const Matrix<T> p = matrix_at<T>(args, 4, at[1]);
        const int32_t* const pivots = data_of<int32_t>(args[1]) + at[0];
        valid = are_rows(args.cancellation, pivots, stride, count, rows);
        return valid && copy_exchanges(pivots, stride, count, p);
      });
    }
    for (uint32_t out = 5; out <= 6; ++out) {
      if (!data || numel(args[out]) == 0) continue;
      each(batch_loop(args, out, {0, out}), [&](const int64_t(&at)[2]) {
        copy_triangle(matrix_at<T>(args, 0, at[0]), matrix_at<T>(args, out, at[1]), out == 6);
      });
    }
  }));
  return valid ? husk_status{HUSK_OK} : wrong_pivot(args, 1);
}

// x = a^-1 b or, with `adjoint`, a^-H b, for the LU factors of a; from the right if `left` is not
// set.
husk_status lu_solve(const Arguments& args) {
  HUSK_TRY(check_square(args, 0));
  bool left = true, adjoint = false;
  HUSK_TRY(args.get_bool(3, left));
  HUSK_TRY(args.get_bool(4, adjoint));
  const int64_t n = args[0].sizes[args[0].rank - 1];
  HUSK_TRY(args.check_tensor(5, 2, kMaxRank));
  HUSK_TRY(args.check_same_dtype(5, 0));
  HUSK_TRY(args.check_size(5, args[5].rank - (left ? 2 : 1), n, "the matrix"));
  HUSK_TRY(check_broadcast(args, 0, 5, 2, args[0].dtype));
  HUSK_TRY(check_broadcast(args, 1, 5, 1, HUSK_I32));
  HUSK_TRY(args.check_size(1, args[1].rank - 1, n, "the matrix"));
  HUSK_TRY(check_broadcast(args, 2, 5, 2, args[0].dtype));
  HUSK_TRY(copy_elements(args, 5, 2));
  if (numel(args[5]) == 0) return HUSK_OK;
  bool valid = true;
  HUSK_TRY(visit_argument<Floats | Complexes>(args, 0, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const int64_t stride = args[1].strides[args[1].rank - 1];
    const Loop<3> loop = broadcast_loop<3>(args, 5, {0, 1, 5}, {2, 1, 2});
    each_while(loop, [&](const int64_t(&at)[3]) {
      const Matrix<T> lu = matrix_at<T>(args, 0, at[0]), result = matrix_at<T>(args, 5, at[2]);
      const int32_t* const pivots = data_of<int32_t>(args[1]) + at[1];
      valid = are_rows(args.cancellation, pivots, stride, n, n);
      if (!valid) return false;
      // a^-H b is the conjugate of a^-T conj(b), and b a^-1 is the transpose of a^-T b^T.
      const Matrix<T> x = left ? result : result.transposed();
      if (adjoint) conjugate(x);
      if (left == adjoint)
        solve_factored_right(lu, pivots, stride, x.transposed());
      else
        solve_factored(lu, pivots, stride, x);
      if (adjoint) conjugate(x);
      return true;
    });
  }));
  return valid ? husk_status{HUSK_OK} : wrong_pivot(args, 1);
}

// aten::triangular_solve, whose second result is a copy of the matrix.
husk_status triangular_solve(const Arguments& args) {
  bool upper = true, transpose = false, unit = false;
  HUSK_TRY(args.get_bool(2, upper));
  HUSK_TRY(args.get_bool(3, transpose));
  HUSK_TRY(args.get_bool(4, unit));
  HUSK_TRY(check_square(args, 6));
  const int64_t n = args[6].sizes[args[6].rank - 1];
  HUSK_TRY(check_broadcast(args, 1, 6, 2, args[6].dtype));
  HUSK_TRY(check_batch(args, 5, 6, 2));
  HUSK_TRY(args.check_same_dtype(5, 6));
  HUSK_TRY(args.check_size(5, args[5].rank - 2, n, "the matrix"));
  HUSK_TRY(check_broadcast(args, 0, 6, 2, args[6].dtype));
  HUSK_TRY(copy_elements(args, 5, 0));
  HUSK_TRY(copy_elements(args, 6, 1));
  if (numel(args[5]) == 0) return HUSK_OK;
  return visit_argument<Floats | Complexes>(args, 5, [&](auto tag) {
    using T = typename decltype(tag)::type;
    each(batch_loop(args, 5, {5, 6}), [&](const int64_t(&at)[2]) {
      const Matrix<T> x = matrix_at<T>(args, 5, at[0]), a = matrix_at<T>(args, 6, at[1]);
      solve_triangle(transpose ? a.transposed() : a, x, upper != transpose, unit);
    });
  });
}

// aten::cholesky, which fails if the matrix is not positive definite.
husk_status cholesky(const Arguments& args) {
  HUSK_TRY(check_square(args, 0));
  const int64_t n = args[0].sizes[args[0].rank - 1];
  bool upper = false;
  HUSK_TRY(args.get_bool(1, upper));
  HUSK_TRY(check_matrices(args, 2, 0, n, n));
  HUSK_TRY(copy_elements(args, 2, 0));
  if (numel(args[2]) == 0) return HUSK_OK;
  int32_t info = 0;
  HUSK_TRY(visit_argument<Floats | Complexes>(args, 0, [&](auto tag) {
    using T = typename decltype(tag)::type;
    each_while(batch_loop(args, 2, {2}), [&](const int64_t(&at)[1]) {
      const Matrix<T> whole = matrix_at<T>(args, 2, at[0]), m = upper ? whole.transposed() : whole;
      info = factor_cholesky(m);
      return info == 0;
    });
  }));
  if (info == 0) return HUSK_OK;
  return fail(args.error, HUSK_INVALID_INPUT,
              "%s: the matrix is not positive definite (pivot %d is not positive)", args.op, info);
}

namespace {

// x = a^-1 x for the Cholesky factor of a.
template <class T>
void solve_cholesky(const Matrix<T>& factor, const Matrix<T>& x, bool upper) {
  if (upper) {
    solve_adjoint_triangle(factor, x, true, false);
    solve_triangle(factor, x, true, false);
  } else {
    solve_triangle(factor, x, false, false);
    solve_adjoint_triangle(factor, x, false, false);
  }
}

}  // namespace

husk_status cholesky_inverse(const Arguments& args) {
  HUSK_TRY(check_square(args, 0));
  const int64_t n = args[0].sizes[args[0].rank - 1];
  bool upper = false;
  HUSK_TRY(args.get_bool(1, upper));
  HUSK_TRY(check_matrices(args, 2, 0, n, n));
  if (numel(args[2]) == 0) return HUSK_OK;
  return visit_argument<Floats | Complexes>(args, 0, [&](auto tag) {
    using T = typename decltype(tag)::type;
    each(batch_loop(args, 2, {0, 2}), [&](const int64_t(&at)[2]) {
      const Matrix<T> x = matrix_at<T>(args, 2, at[1]);
      set_identity(x);
      solve_cholesky(matrix_at<T>(args, 0, at[0]), x, upper);
    });
  });
}

husk_status cholesky_solve(const Arguments& args) {
  HUSK_TRY(check_square(args, 1));
  const int64_t n = args[1].sizes[args[1].rank - 1];
  bool upper = false;
  HUSK_TRY(args.get_bool(2, upper));
  HUSK_TRY(args.check_tensor(3, 2, kMaxRank));
  HUSK_TRY(args.check_same_dtype(3, 1));
  HUSK_TRY(args.check_size(3, args[3].rank - 2, n, "the matrix"));
  HUSK_TRY(check_broadcast(args, 1, 3, 2, args[1].dtype));
  HUSK_TRY(check_broadcast(args, 0, 3, 2, args[1].dtype));
  HUSK_TRY(copy_elements(args, 3, 0));
  if (numel(args[3]) == 0) return HUSK_OK;
  return visit_argument<Floats | Complexes>(args, 1, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const Loop<2> loop = broadcast_loop<2>(args, 3, {1, 3}, {2, 2});
    each(loop, [&](const int64_t(&at)[2]) {
      solve_cholesky(matrix_at<T>(args, 1, at[0]), matrix_at<T>(args, 3, at[1]), upper);
    });
  });
}

}  // namespace husk::host
