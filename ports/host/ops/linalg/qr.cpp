// QR factors, and products of Householder reflectors.
#include <cstring>

#include "linalg/reflectors.h"

namespace husk::host {

namespace {

// Writes a matrix whose elements below the diagonal are 0.
template <class S>
void store_upper(const Columns<S>& from, const Place& to) {
  visit_place<S>(to, [&](auto* elements) {
    using T = std::remove_pointer_t<decltype(elements)>;
    each_column(from, [&](const S* column, int64_t j) {
      each_index(from.cancellation, from.rows, [&](int64_t i) {
        elements[i * to.row + j * to.column] = cast<T>(i <= j ? column[i] : from_real<S>(0));
      });
    });
  });
}

// The tensor has no elements, as an output has that is not asked for.
husk_status check_empty(const Arguments& args, uint32_t at) {
  HUSK_TRY(args.check_tensor(at, 1, kMaxRank));
  return numel(args[at]) == 0
             ? husk_status{HUSK_OK}
             : args.argument_error(at, HUSK_INVALID_ARGUMENT, "has elements, but is not computed");
}

}  // namespace

husk_status geqrf(const Arguments& args) {
  HUSK_TRY(args.check_tensor(0, 2, kMaxRank));
  const int64_t rows = args[0].sizes[args[0].rank - 2], columns = args[0].sizes[args[0].rank - 1];
  const int64_t count = smaller(rows, columns);
  HUSK_TRY(check_matrices(args, 1, 0, rows, columns));
  HUSK_TRY(check_vectors(args, 2, 0, count, args[0].dtype));
  Need need;
  need.add(width_of(args, 0), rows, columns);
  need.add(width_of(args, 0), count);
  HUSK_TRY(check_workspace(args, 3, need));
  if (numel(args[1]) == 0) return HUSK_OK;
  return visit_wide(args, 0, [&](auto tag) {
    using S = typename decltype(tag)::type;
    Workspace workspace(args, 3);
    const Columns<S> a = workspace.matrix<S>(rows, columns);
    S* const tau = workspace.vector<S>(count);
    each(batch_loop(args, 0, {0, 1, 2}), [&](const int64_t(&at)[3]) {
      load(matrix_place(args[0], at[0]), a);
      factor_qr(a, tau);
      store(a, matrix_place(args[1], at[1]));
      store(as_column(args.cancellation, tau, count), vector_place(args[2], at[2]));
    });
  });
}

husk_status linear_qr(const Arguments& args) {
  HUSK_TRY(args.check_tensor(0, 2, kMaxRank));
  const char* const mode = args[1].kind == HUSK_ARG_STRING && args[1].string ? args[1].string : "";
  const bool complete = std::strcmp(mode, "complete") == 0, only_r = std::strcmp(mode, "r") == 0;
  if (!complete && !only_r && std::strcmp(mode, "reduced") != 0)
    return args.argument_error(1, HUSK_INVALID_ARGUMENT, "is not reduced, complete or r");
  const int64_t rows = args[0].sizes[args[0].rank - 2], columns = args[0].sizes[args[0].rank - 1];
  const int64_t count = smaller(rows, columns), q_columns = complete ? rows : count;
  if (only_r)
    HUSK_TRY(check_empty(args, 2));
  else
    HUSK_TRY(check_matrices(args, 2, 0, rows, q_columns));
  HUSK_TRY(args.check_tensor(2, 1, kMaxRank));
  HUSK_TRY(args.check_same_dtype(2, 0));
  HUSK_TRY(check_matrices(args, 3, 0, q_columns, columns));
  Need need;
  need.add(width_of(args, 0), rows, larger(columns, q_columns));
  need.add(width_of(args, 0), count);
  HUSK_TRY(check_workspace(args, 4, need));
  if (numel(args[2]) == 0 && numel(args[3]) == 0) return HUSK_OK;
  return visit_wide(args, 0, [&](auto tag) {
    using S = typename decltype(tag)::type;
    Workspace workspace(args, 4);
    const Columns<S> all = workspace.matrix<S>(rows, larger(columns, q_columns));
    const Columns<S> a = all.first(columns), q = all.first(q_columns);
    S* const tau = workspace.vector<S>(count);
    const uint32_t q_or_r = only_r ? 3 : 2;
    each(batch_loop(args, 0, {0, q_or_r, 3}), [&](const int64_t(&at)[3]) {
      load(matrix_place(args[0], at[0]), a);
      factor_qr(a, tau);
      Columns<S> r = a;
      r.rows = q_columns;
      store_upper(r, matrix_place(args[3], at[2]));
      if (only_r) return;
      form_product(q, tau, count);
      store(q, matrix_place(args[2], at[1]));
    });
  });
}

husk_status householder_product(const Arguments& args) {
  HUSK_TRY(args.check_tensor(0, 2, kMaxRank));
  const int64_t rows = args[0].sizes[args[0].rank - 2], columns = args[0].sizes[args[0].rank - 1];
  if (columns > rows)
    return args.argument_error(0, HUSK_INVALID_ARGUMENT, "has more columns than rows");
  HUSK_TRY(args.check_tensor(1, args[0].rank - 1, args[0].rank - 1));
  const int64_t count = args[1].sizes[args[1].rank - 1];
  if (count > columns)
    return args.argument_error(1, HUSK_INVALID_ARGUMENT,
                               "has more elements than input has columns");
  HUSK_TRY(check_vectors(args, 1, 0, count, args[0].dtype));
  HUSK_TRY(check_matrices(args, 2, 0, rows, columns));
  Need need;
  need.add(width_of(args, 0), rows, columns);
  need.add(width_of(args, 0), count);
  HUSK_TRY(check_workspace(args, 3, need));
  if (numel(args[2]) == 0) return HUSK_OK;
  return visit_wide(args, 0, [&](auto tag) {
    using S = typename decltype(tag)::type;
    Workspace workspace(args, 3);
    const Columns<S> a = workspace.matrix<S>(rows, columns);
    S* const tau = workspace.vector<S>(count);
    each(batch_loop(args, 0, {0, 1, 2}), [&](const int64_t(&at)[3]) {
      load(matrix_place(args[0], at[0]), a);
      load(vector_place(args[1], at[1]), as_column(args.cancellation, tau, count));
      form_product(a, tau, count);
      store(a, matrix_place(args[2], at[2]));
    });
  });
}

namespace {

// c = q c or, with `adjoint`, c = q^H c, for the product q of the reflectors below the diagonal of
// a.
template <class S>
void multiply_by_product(const Columns<S>& a, const S* tau, int64_t count, const Columns<S>& c,
                         bool adjoint) {
  each_index(a.cancellation, count, [&](int64_t done) {
    const int64_t k = adjoint ? done : count - 1 - done;
    reflect_left(c.from(k, 0), &a(k, k), adjoint ? conj(tau[k]) : tau[k]);
  });
}

}  // namespace

husk_status ormqr(const Arguments& args) {
  HUSK_TRY(args.check_tensor(0, 2, kMaxRank));
  bool left = true, transpose = false;
  HUSK_TRY(args.get_bool(3, left));
  HUSK_TRY(args.get_bool(4, transpose));
  const int32_t rank = args[0].rank;
  const int64_t length = args[0].sizes[rank - 2], vectors = args[0].sizes[rank - 1];
  HUSK_TRY(args.check_tensor(1, rank - 1, rank - 1));
  const int64_t count = args[1].sizes[rank - 2];
  if (count > vectors || count > length)
    return args.argument_error(1, HUSK_INVALID_ARGUMENT,
                               "has more elements than there are columns");
  HUSK_TRY(check_vectors(args, 1, 0, count, args[0].dtype));
  HUSK_TRY(args.check_tensor(2, rank, rank));
  const int64_t rows = args[2].sizes[rank - 2], columns = args[2].sizes[rank - 1];
  HUSK_TRY(args.check_size(2, rank - (left ? 2 : 1), length, "the rows of self"));
  HUSK_TRY(check_matrices(args, 2, 0, rows, columns));
  HUSK_TRY(check_matrices(args, 5, 0, rows, columns));
  Need need;
  need.add(width_of(args, 0), length, count);
  need.add(width_of(args, 0), rows, columns);
  need.add(width_of(args, 0), count);
  HUSK_TRY(check_workspace(args, 6, need));
  if (numel(args[5]) == 0) return HUSK_OK;
  return visit_wide(args, 0, [&](auto tag) {
    using S = typename decltype(tag)::type;
    Workspace workspace(args, 6);
    const Columns<S> a = workspace.matrix<S>(length, count),
                     c = workspace.matrix<S>(length, left ? columns : rows);
    S* const tau = workspace.vector<S>(count);
    each(batch_loop(args, 0, {0, 1, 2, 5}), [&](const int64_t(&at)[4]) {
      const Place from = matrix_place(args[2], at[2]), to = matrix_place(args[5], at[3]);
      load(matrix_place(args[0], at[0]), a);
      load(vector_place(args[1], at[1]), as_column(args.cancellation, tau, count));
      // c q is (q^H c^H)^H.
      load(left ? from : from.transposed(), c);
      if (!left) conjugate(c);
      multiply_by_product(a, tau, count, c, left == transpose);
      if (!left) conjugate(c);
      store(c, left ? to : to.transposed());
    });
  });
}

}  // namespace husk::host
