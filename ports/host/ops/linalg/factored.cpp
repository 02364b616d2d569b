// Operators over factors that the model has already: the parts of factors, inverses and solutions;
// and factorizations that return parts at once. Matrices lie in the memory of the results, in the
// dtype of the matrix.
#include <initializer_list>

#include "contracts.h"
#include "error.h"
#include "linalg/blocks.h"
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

husk_status wrong_pivot(const Arguments& args, ArgumentPlace at) {
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
  constexpr ArgumentsOf named("linear_lu");
  constexpr uint32_t kA = named["A"], kPivot = named["pivot"], kP = named["P"], kL = named["L"],
                     kU = named["U"], kWorkspace = named["workspace"];
  HUSK_TRY(args.check_tensor(kA, 2, kMaxRank));
  bool pivot = true;
  HUSK_TRY(args.get_bool(kPivot, pivot));
  if (!pivot)
    return args.argument_error(kPivot, HUSK_UNSUPPORTED, "is false, which hosts do not have");
  const int64_t rows = args[kA].sizes[args[kA].rank - 2],
                columns = args[kA].sizes[args[kA].rank - 1];
  const int64_t count = smaller(rows, columns);
  if (rows > INT32_MAX && columns > 0)
    return args.argument_error(kA, HUSK_UNSUPPORTED, "has more than 2147483647 rows");
  HUSK_TRY(check_matrices(args, kP, kA, rows, rows));
  HUSK_TRY(check_matrices(args, kL, kA, rows, count));
  HUSK_TRY(check_matrices(args, kU, kA, count, columns));
  Need need;
  need.add(1, count);
  HUSK_TRY(check_workspace(args, kWorkspace, need));
  // The factors lie in the result that has the shape of the matrix.
  const uint32_t both = rows >= columns ? kL : kU;
  HUSK_TRY(copy_elements(args, both, kA));
  if (numel(args[kP]) == 0) return HUSK_OK;
  Blocks blocks{};
  HUSK_TRY(blocks.open(args));
  return visit_argument<Floats | Complexes>(args, kA, [&](auto tag) {
    using T = typename decltype(tag)::type;
    auto* const pivots = static_cast<int32_t*>(args[kWorkspace].data);
    each(batch_loop(args, kP, {kP, kL, kU}), [&](const int64_t(&at)[3]) {
      const Matrix<T> p = matrix_at<T>(args, kP, at[0]), l = matrix_at<T>(args, kL, at[1]),
                      u = matrix_at<T>(args, kU, at[2]), lu = rows >= columns ? l : u;
      factor_lu(blocks, lu, pivots, 1, true);
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
  constexpr ArgumentsOf named("lu_unpack");
  constexpr uint32_t kLUData = named["LU_data"], kLUPivots = named["LU_pivots"],
                     kUnpackData = named["unpack_data"], kUnpackPivots = named["unpack_pivots"],
                     kP = named["P"], kL = named["L"], kU = named["U"];
  HUSK_TRY(args.check_tensor(kLUData, 2, kMaxRank));
  bool data = true, exchanges = true;
  HUSK_TRY(args.get_bool(kUnpackData, data));
  HUSK_TRY(args.get_bool(kUnpackPivots, exchanges));
  const int64_t rows = args[kLUData].sizes[args[kLUData].rank - 2],
                columns = args[kLUData].sizes[args[kLUData].rank - 1];
  const int64_t count = smaller(rows, columns);
  HUSK_TRY(check_vectors(args, kLUPivots, kLUData, count, HUSK_I32));
  if (exchanges) HUSK_TRY(check_matrices(args, kP, kLUData, rows, rows));
  if (data) {
    HUSK_TRY(check_matrices(args, kL, kLUData, rows, count));
    HUSK_TRY(check_matrices(args, kU, kLUData, count, columns));
  }
  bool valid = true;
  HUSK_TRY(visit_argument<Floats | Complexes>(args, kLUData, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const int64_t stride = args[kLUPivots].strides[args[kLUPivots].rank - 1];
    if (exchanges && numel(args[kP]) != 0) {
      each_while(batch_loop(args, kP, {kLUPivots, kP}), [&](const int64_t(&at)[2]) {
        const Matrix<T> p = matrix_at<T>(args, kP, at[1]);
        const int32_t* const pivots = data_of<int32_t>(args[kLUPivots]) + at[0];
        valid = are_rows(args.cancellation, pivots, stride, count, rows);
        return valid && copy_exchanges(pivots, stride, count, p);
      });
    }
    for (uint32_t out : {kL, kU}) {
      if (!data || numel(args[out]) == 0) continue;
      each(batch_loop(args, out, {kLUData, out}), [&](const int64_t(&at)[2]) {
        copy_triangle(matrix_at<T>(args, kLUData, at[0]), matrix_at<T>(args, out, at[1]),
                      out == kU);
      });
    }
  }));
  return valid ? husk_status{HUSK_OK} : wrong_pivot(args, kLUPivots);
}

// x = a^-1 b or, with `adjoint`, a^-H b, for the LU factors of a; from the right if `left` is not
// set.
husk_status lu_solve(const Arguments& args) {
  constexpr ArgumentsOf named("lu_solve");
  constexpr uint32_t kLu = named["LU"], kPivots = named["pivots"], kB = named["B"],
                     kLeft = named["left"], kAdjoint = named["adjoint"], kOut = named["out"];
  HUSK_TRY(check_square(args, kLu));
  bool left = true, adjoint = false;
  HUSK_TRY(args.get_bool(kLeft, left));
  HUSK_TRY(args.get_bool(kAdjoint, adjoint));
  const int64_t n = args[kLu].sizes[args[kLu].rank - 1];
  HUSK_TRY(args.check_tensor(kOut, 2, kMaxRank));
  HUSK_TRY(args.check_same_dtype(kOut, kLu));
  HUSK_TRY(args.check_size(kOut, args[kOut].rank - (left ? 2 : 1), n, "the matrix"));
  HUSK_TRY(check_broadcast(args, kLu, kOut, 2, args[kLu].dtype));
  HUSK_TRY(check_broadcast(args, kPivots, kOut, 1, HUSK_I32));
  HUSK_TRY(args.check_size(kPivots, args[kPivots].rank - 1, n, "the matrix"));
  HUSK_TRY(check_broadcast(args, kB, kOut, 2, args[kLu].dtype));
  HUSK_TRY(copy_elements(args, kOut, kB));
  if (numel(args[kOut]) == 0) return HUSK_OK;
  bool valid = true;
  Blocks blocks{};
  HUSK_TRY(blocks.open(args));
  HUSK_TRY(visit_argument<Floats | Complexes>(args, kLu, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const int64_t stride = args[kPivots].strides[args[kPivots].rank - 1];
    const Loop<3> loop = broadcast_loop<3>(args, kOut, {kLu, kPivots, kOut}, {2, 1, 2});
    each_while(loop, [&](const int64_t(&at)[3]) {
      const Matrix<T> lu = matrix_at<T>(args, kLu, at[0]), result = matrix_at<T>(args, kOut, at[2]);
      const int32_t* const pivots = data_of<int32_t>(args[kPivots]) + at[1];
      valid = are_rows(args.cancellation, pivots, stride, n, n);
      if (!valid) return false;
      // a^-H b is the conjugate of a^-T conj(b), and b a^-1 is the transpose of a^-T b^T.
      const Matrix<T> x = left ? result : result.transposed();
      if (adjoint) conjugate(x);
      if (left == adjoint)
        solve_factored_right(blocks, lu, pivots, stride, x.transposed());
      else
        solve_factored(blocks, lu, pivots, stride, x);
      if (adjoint) conjugate(x);
      return true;
    });
  }));
  return valid ? husk_status{HUSK_OK} : wrong_pivot(args, kPivots);
}

// aten::triangular_solve, whose second result is a copy of the matrix.
husk_status triangular_solve(const Arguments& args) {
  constexpr ArgumentsOf named("triangular_solve");
  constexpr uint32_t kSelf = named["self"], kA = named["A"], kUpper = named["upper"],
                     kTranspose = named["transpose"], kUnitriangular = named["unitriangular"],
                     kSolution = named["solution"],
                     kClonedCoefficient = named["cloned_coefficient"];
  bool upper = true, transpose = false, unit = false;
  HUSK_TRY(args.get_bool(kUpper, upper));
  HUSK_TRY(args.get_bool(kTranspose, transpose));
  HUSK_TRY(args.get_bool(kUnitriangular, unit));
  HUSK_TRY(check_square(args, kClonedCoefficient));
  const int64_t n = args[kClonedCoefficient].sizes[args[kClonedCoefficient].rank - 1];
  HUSK_TRY(check_broadcast(args, kA, kClonedCoefficient, 2, args[kClonedCoefficient].dtype));
  HUSK_TRY(check_batch(args, kSolution, kClonedCoefficient, 2));
  HUSK_TRY(args.check_same_dtype(kSolution, kClonedCoefficient));
  HUSK_TRY(args.check_size(kSolution, args[kSolution].rank - 2, n, "the matrix"));
  HUSK_TRY(check_broadcast(args, kSelf, kClonedCoefficient, 2, args[kClonedCoefficient].dtype));
  HUSK_TRY(copy_elements(args, kSolution, kSelf));
  HUSK_TRY(copy_elements(args, kClonedCoefficient, kA));
  if (numel(args[kSolution]) == 0) return HUSK_OK;
  Blocks blocks{};
  HUSK_TRY(blocks.open(args));
  return visit_argument<Floats | Complexes>(args, kSolution, [&](auto tag) {
    using T = typename decltype(tag)::type;
    each(batch_loop(args, kSolution, {kSolution, kClonedCoefficient}), [&](const int64_t(&at)[2]) {
      const Matrix<T> x = matrix_at<T>(args, kSolution, at[0]),
                      a = matrix_at<T>(args, kClonedCoefficient, at[1]);
      solve_triangle(blocks, transpose ? a.transposed() : a, x, upper != transpose, unit);
    });
  });
}

// aten::cholesky, which fails if the matrix is not positive definite.
husk_status cholesky(const Arguments& args) {
  constexpr ArgumentsOf named("cholesky");
  constexpr uint32_t kSelf = named["self"], kUpper = named["upper"], kOut = named["out"];
  HUSK_TRY(check_square(args, kSelf));
  const int64_t n = args[kSelf].sizes[args[kSelf].rank - 1];
  bool upper = false;
  HUSK_TRY(args.get_bool(kUpper, upper));
  HUSK_TRY(check_matrices(args, kOut, kSelf, n, n));
  HUSK_TRY(copy_elements(args, kOut, kSelf));
  if (numel(args[kOut]) == 0) return HUSK_OK;
  int32_t info = 0;
  Blocks blocks{};
  HUSK_TRY(blocks.open(args));
  HUSK_TRY(visit_argument<Floats | Complexes>(args, kSelf, [&](auto tag) {
    using T = typename decltype(tag)::type;
    each_while(batch_loop(args, kOut, {kOut}), [&](const int64_t(&at)[1]) {
      const Matrix<T> whole = matrix_at<T>(args, kOut, at[0]),
                      m = upper ? whole.transposed() : whole;
      info = factor_cholesky(blocks, m);
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
void solve_cholesky(const Blocks& blocks, const Matrix<T>& factor, const Matrix<T>& x, bool upper) {
  if (upper) {
    solve_adjoint_triangle(blocks, factor, x, true, false);
    solve_triangle(blocks, factor, x, true, false);
  } else {
    solve_triangle(blocks, factor, x, false, false);
    solve_adjoint_triangle(blocks, factor, x, false, false);
  }
}

}  // namespace

husk_status cholesky_inverse(const Arguments& args) {
  constexpr ArgumentsOf named("cholesky_inverse");
  constexpr uint32_t kSelf = named["self"], kUpper = named["upper"], kOut = named["out"];
  HUSK_TRY(check_square(args, kSelf));
  const int64_t n = args[kSelf].sizes[args[kSelf].rank - 1];
  bool upper = false;
  HUSK_TRY(args.get_bool(kUpper, upper));
  HUSK_TRY(check_matrices(args, kOut, kSelf, n, n));
  if (numel(args[kOut]) == 0) return HUSK_OK;
  Blocks blocks{};
  HUSK_TRY(blocks.open(args));
  return visit_argument<Floats | Complexes>(args, kSelf, [&](auto tag) {
    using T = typename decltype(tag)::type;
    each(batch_loop(args, kOut, {kSelf, kOut}), [&](const int64_t(&at)[2]) {
      const Matrix<T> x = matrix_at<T>(args, kOut, at[1]);
      set_identity(x);
      solve_cholesky(blocks, matrix_at<T>(args, kSelf, at[0]), x, upper);
    });
  });
}

husk_status cholesky_solve(const Arguments& args) {
  constexpr ArgumentsOf named("cholesky_solve");
  constexpr uint32_t kSelf = named["self"], kInput2 = named["input2"], kUpper = named["upper"],
                     kOut = named["out"];
  HUSK_TRY(check_square(args, kInput2));
  const int64_t n = args[kInput2].sizes[args[kInput2].rank - 1];
  bool upper = false;
  HUSK_TRY(args.get_bool(kUpper, upper));
  HUSK_TRY(args.check_tensor(kOut, 2, kMaxRank));
  HUSK_TRY(args.check_same_dtype(kOut, kInput2));
  HUSK_TRY(args.check_size(kOut, args[kOut].rank - 2, n, "the matrix"));
  HUSK_TRY(check_broadcast(args, kInput2, kOut, 2, args[kInput2].dtype));
  HUSK_TRY(check_broadcast(args, kSelf, kOut, 2, args[kInput2].dtype));
  HUSK_TRY(copy_elements(args, kOut, kSelf));
  if (numel(args[kOut]) == 0) return HUSK_OK;
  Blocks blocks{};
  HUSK_TRY(blocks.open(args));
  return visit_argument<Floats | Complexes>(args, kInput2, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const Loop<2> loop = broadcast_loop<2>(args, kOut, {kInput2, kOut}, {2, 2});
    each(loop, [&](const int64_t(&at)[2]) {
      solve_cholesky(blocks, matrix_at<T>(args, kInput2, at[0]), matrix_at<T>(args, kOut, at[1]),
                     upper);
    });
  });
}

}  // namespace husk::host
