// QR factors, and products of Householder reflectors.
#include <cstring>

#include "contracts.h"
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
husk_status check_empty(const Arguments& args, ArgumentPlace at) {
  HUSK_TRY(args.check_tensor(at, 1, kMaxRank));
  return numel(args[at]) == 0
             ? husk_status{HUSK_OK}
             : args.argument_error(at, HUSK_INVALID_ARGUMENT, "has elements, but is not computed");
}

}  // namespace

husk_status geqrf(const Arguments& args) {
  constexpr ArgumentsOf named("geqrf");
  constexpr uint32_t kSelf = named["self"], kA = named["a"], kTau = named["tau"],
                     kWorkspace = named["workspace"];
  HUSK_TRY(args.check_tensor(kSelf, 2, kMaxRank));
  const int64_t rows = args[kSelf].sizes[args[kSelf].rank - 2],
                columns = args[kSelf].sizes[args[kSelf].rank - 1];
  const int64_t count = smaller(rows, columns);
  HUSK_TRY(check_matrices(args, kA, kSelf, rows, columns));
  HUSK_TRY(check_vectors(args, kTau, kSelf, count, args[kSelf].dtype));
  Need need;
  need.add(width_of(args, kSelf), rows, columns);
  need.add(width_of(args, kSelf), count);
  HUSK_TRY(check_workspace(args, kWorkspace, need));
  if (numel(args[kA]) == 0) return HUSK_OK;
  return visit_wide(args, kSelf, [&](auto tag) {
    using S = typename decltype(tag)::type;
    Workspace workspace(args, kWorkspace);
    const Columns<S> a = workspace.matrix<S>(rows, columns);
    S* const tau = workspace.vector<S>(count);
    each(batch_loop(args, kSelf, {kSelf, kA, kTau}), [&](const int64_t(&at)[3]) {
      load(matrix_place(args[kSelf], at[0]), a);
      factor_qr(a, tau);
      store(a, matrix_place(args[kA], at[1]));
      store(as_column(args.cancellation, tau, count), vector_place(args[kTau], at[2]));
    });
  });
}

husk_status linear_qr(const Arguments& args) {
  constexpr ArgumentsOf named("linear_qr");
  constexpr uint32_t kA = named["A"], kMode = named["mode"], kQ = named["Q"], kR = named["R"],
                     kWorkspace = named["workspace"];
  HUSK_TRY(args.check_tensor(kA, 2, kMaxRank));
  const char* const mode = args[kMode].kind == HUSK_ARG_STRING && args[kMode].string
                               ? args[kMode].string
                               : "";
  const bool complete = std::strcmp(mode, "complete") == 0, only_r = std::strcmp(mode, "r") == 0;
  if (!complete && !only_r && std::strcmp(mode, "reduced") != 0)
    return args.argument_error(kMode, HUSK_INVALID_ARGUMENT, "is not reduced, complete or r");
  const int64_t rows = args[kA].sizes[args[kA].rank - 2],
                columns = args[kA].sizes[args[kA].rank - 1];
  const int64_t count = smaller(rows, columns), q_columns = complete ? rows : count;
  if (only_r)
    HUSK_TRY(check_empty(args, kQ));
  else
    HUSK_TRY(check_matrices(args, kQ, kA, rows, q_columns));
  HUSK_TRY(args.check_tensor(kQ, 1, kMaxRank));
  HUSK_TRY(args.check_same_dtype(kQ, kA));
  HUSK_TRY(check_matrices(args, kR, kA, q_columns, columns));
  Need need;
  need.add(width_of(args, kA), rows, larger(columns, q_columns));
  need.add(width_of(args, kA), count);
  HUSK_TRY(check_workspace(args, kWorkspace, need));
  if (numel(args[kQ]) == 0 && numel(args[kR]) == 0) return HUSK_OK;
  return visit_wide(args, kA, [&](auto tag) {
    using S = typename decltype(tag)::type;
    Workspace workspace(args, kWorkspace);
    const Columns<S> all = workspace.matrix<S>(rows, larger(columns, q_columns));
    const Columns<S> a = all.first(columns), q = all.first(q_columns);
    S* const tau = workspace.vector<S>(count);
    const uint32_t q_or_r = only_r ? kR : kQ;
    each(batch_loop(args, kA, {kA, q_or_r, kR}), [&](const int64_t(&at)[3]) {
      load(matrix_place(args[kA], at[0]), a);
      factor_qr(a, tau);
      Columns<S> r = a;
      r.rows = q_columns;
      store_upper(r, matrix_place(args[kR], at[2]));
      if (only_r) return;
      form_product(q, tau, count);
      store(q, matrix_place(args[kQ], at[1]));
    });
  });
}

husk_status householder_product(const Arguments& args) {
  constexpr ArgumentsOf named("householder_product");
  constexpr uint32_t kInput = named["input"], kTau = named["tau"], kOut = named["out"],
                     kWorkspace = named["workspace"];
  HUSK_TRY(args.check_tensor(kInput, 2, kMaxRank));
  const int64_t rows = args[kInput].sizes[args[kInput].rank - 2],
                columns = args[kInput].sizes[args[kInput].rank - 1];
  if (columns > rows)
    return args.argument_error(kInput, HUSK_INVALID_ARGUMENT, "has more columns than rows");
  HUSK_TRY(args.check_tensor(kTau, args[kInput].rank - 1, args[kInput].rank - 1));
  const int64_t count = args[kTau].sizes[args[kTau].rank - 1];
  if (count > columns)
    return args.argument_error(kTau, HUSK_INVALID_ARGUMENT,
                               "has more elements than input has columns");
  HUSK_TRY(check_vectors(args, kTau, kInput, count, args[kInput].dtype));
  HUSK_TRY(check_matrices(args, kOut, kInput, rows, columns));
  Need need;
  need.add(width_of(args, kInput), rows, columns);
  need.add(width_of(args, kInput), count);
  HUSK_TRY(check_workspace(args, kWorkspace, need));
  if (numel(args[kOut]) == 0) return HUSK_OK;
  return visit_wide(args, kInput, [&](auto tag) {
    using S = typename decltype(tag)::type;
    Workspace workspace(args, kWorkspace);
    const Columns<S> a = workspace.matrix<S>(rows, columns);
    S* const tau = workspace.vector<S>(count);
    each(batch_loop(args, kInput, {kInput, kTau, kOut}), [&](const int64_t(&at)[3]) {
      load(matrix_place(args[kInput], at[0]), a);
      load(vector_place(args[kTau], at[1]), as_column(args.cancellation, tau, count));
      form_product(a, tau, count);
      store(a, matrix_place(args[kOut], at[2]));
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
  constexpr ArgumentsOf named("ormqr");
  constexpr uint32_t kSelf = named["self"], kInput2 = named["input2"], kInput3 = named["input3"],
                     kLeft = named["left"], kTranspose = named["transpose"], kOut = named["out"],
                     kWorkspace = named["workspace"];
  HUSK_TRY(args.check_tensor(kSelf, 2, kMaxRank));
  bool left = true, transpose = false;
  HUSK_TRY(args.get_bool(kLeft, left));
  HUSK_TRY(args.get_bool(kTranspose, transpose));
  const int32_t rank = args[kSelf].rank;
  const int64_t length = args[kSelf].sizes[rank - 2], vectors = args[kSelf].sizes[rank - 1];
  HUSK_TRY(args.check_tensor(kInput2, rank - 1, rank - 1));
  const int64_t count = args[kInput2].sizes[rank - 2];
  if (count > vectors || count > length)
    return args.argument_error(kInput2, HUSK_INVALID_ARGUMENT,
                               "has more elements than there are columns");
  HUSK_TRY(check_vectors(args, kInput2, kSelf, count, args[kSelf].dtype));
  HUSK_TRY(args.check_tensor(kInput3, rank, rank));
  const int64_t rows = args[kInput3].sizes[rank - 2], columns = args[kInput3].sizes[rank - 1];
  HUSK_TRY(args.check_size(kInput3, rank - (left ? 2 : 1), length, "the rows of self"));
  HUSK_TRY(check_matrices(args, kInput3, kSelf, rows, columns));
  HUSK_TRY(check_matrices(args, kOut, kSelf, rows, columns));
  Need need;
  need.add(width_of(args, kSelf), length, count);
  need.add(width_of(args, kSelf), rows, columns);
  need.add(width_of(args, kSelf), count);
  HUSK_TRY(check_workspace(args, kWorkspace, need));
  if (numel(args[kOut]) == 0) return HUSK_OK;
  return visit_wide(args, kSelf, [&](auto tag) {
    using S = typename decltype(tag)::type;
    Workspace workspace(args, kWorkspace);
    const Columns<S> a = workspace.matrix<S>(length, count),
                     c = workspace.matrix<S>(length, left ? columns : rows);
    S* const tau = workspace.vector<S>(count);
    each(batch_loop(args, kSelf, {kSelf, kInput2, kInput3, kOut}), [&](const int64_t(&at)[4]) {
      const Place from = matrix_place(args[kInput3], at[2]), to = matrix_place(args[kOut], at[3]);
      load(matrix_place(args[kSelf], at[0]), a);
      load(vector_place(args[kInput2], at[1]), as_column(args.cancellation, tau, count));
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
