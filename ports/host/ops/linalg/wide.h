// Matrices in a workspace, in f64 or complex f64 whatever the dtype of the tensors is. The
// factorizations of rare operators are computed in them, so that each has one implementation for
// real and one for complex numbers, and f32 results are as exact as their dtype.
#pragma once

#include <cmath>

#include "core/arguments.h"
#include "core/arithmetic.h"
#include "core/workspace.h"
#include "linalg/batches.h"

namespace husk::host {
namespace {

using Complex128 = Complex<double>;

// A matrix by columns, whose elements are adjacent, so that loops over them use vectors. `pitch` is
// the number of elements from a column to the next one.
template <class S>
struct Columns {
  Cancellation& cancellation;
  S* data;
  int64_t rows, columns, pitch;

  S* column(int64_t j) const { return data + j * pitch; }
  S& operator()(int64_t i, int64_t j) const { return data[i + j * pitch]; }
  // The matrix from row i and column j on.
  Columns from(int64_t i, int64_t j) const {
    return {cancellation, data + i + j * pitch, rows - i, columns - j, pitch};
  }
  // The transpose as any other matrix, whose rows are the columns.
  Matrix<S> transposed() const { return {cancellation, data, columns, rows, pitch, 1}; }
  // The first `count` columns.
  Columns first(int64_t count) const { return {cancellation, data, rows, count, pitch}; }
};

// Calls f(begin, end) for pieces of a row of elements. Returns false if the call is to end.
template <class F>
[[gnu::always_inline]] inline bool each_piece(Cancellation& cancellation, int64_t count, F&& f) {
  for (int64_t begin = 0; begin < count;) {
    const int64_t rest = count - begin,
                  length = rest < kWorkBetweenQuestions ? rest : kWorkBetweenQuestions;
    if (count <= kUnreportedWork ? cancellation.ended() : cancellation.ends(length)) return false;
    f(begin, begin + length);
    begin += length;
  }
  return true;
}

// The sum of conj(x[i]) * y[i].
template <class S>
S dot(Cancellation& cancellation, int64_t count, const S* x, const S* y) {
  S sums[4] = {};
  each_piece(cancellation, count, [&](int64_t begin, int64_t end) {
    int64_t i = begin;
    for (; i + 4 <= end; i += 4)
      for (int lane = 0; lane < 4; ++lane) sums[lane] += conj(x[i + lane]) * y[i + lane];
    for (; i < end; ++i) sums[0] += conj(x[i]) * y[i];
  });
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// y += factor * x
template <class S>
void add_scaled(Cancellation& cancellation, int64_t count, S factor, const S* x, S* y) {
  each_piece(cancellation, count, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) y[i] += factor * x[i];
  });
}

template <class S>
void scale(Cancellation& cancellation, int64_t count, S factor, S* x) {
  each_piece(cancellation, count, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) x[i] = factor * x[i];
  });
}

template <class S>
void fill(Cancellation& cancellation, int64_t count, S value, S* x) {
  each_piece(cancellation, count, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) x[i] = value;
  });
}

// The square root of the sum of squares. Squares that would overflow or vanish are scaled first.
template <class S>
double norm(Cancellation& cancellation, int64_t count, const S* x) {
  const double sum = real_part(dot(cancellation, count, x, x));
  if (sum > 1e-280 && sum < 1e280) return std::sqrt(sum);
  double largest = 0;
  each_piece(cancellation, count, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const double value = taxicab(x[i]);
      if (!(value <= largest)) largest = value;
    }
  });
  if (largest == 0 || !std::isfinite(largest)) return largest;
  double scaled = 0;
  each_piece(cancellation, count, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) scaled += squared(x[i] / from_real<S>(largest));
  });
  return std::sqrt(scaled) * largest;
}

// Rotates two rows of elements: (x, y) becomes (c x + s y, c y - s x).
template <class S>
void rotate(Cancellation& cancellation, int64_t count, S* x, S* y, double c, double s) {
  each_piece(cancellation, count, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const S turned = from_real<S>(c) * x[i] + from_real<S>(s) * y[i];
      y[i] = from_real<S>(c) * y[i] - from_real<S>(s) * x[i];
      x[i] = turned;
    }
  });
}

template <class S>
void swap_columns(const Columns<S>& m, int64_t a, int64_t b) {
  S *x = m.column(a), *y = m.column(b);
  each_piece(m.cancellation, a == b ? 0 : m.rows, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const S kept = x[i];
      x[i] = y[i];
      y[i] = kept;
    }
  });
}

// Calls f(column, j) for each column.
template <class S, class F>
void each_column(const Columns<S>& m, F&& f) {
  each_index(m.cancellation, m.columns, [&](int64_t j) { f(m.column(j), j); });
}

// Whether all elements are finite.
template <class S>
bool finite(const Columns<S>& m) {
  bool all = true;
  each_column(m, [&](const S* column, int64_t) {
    each_piece(m.cancellation, m.rows, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) all &= std::isfinite(taxicab(column[i]));
    });
  });
  return all;
}

// The size of the largest element of a matrix.
template <class S>
double largest_element(const Columns<S>& m) {
  double largest = 0;
  each_column(m, [&](const S* column, int64_t) {
    each_piece(m.cancellation, m.rows, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        if (taxicab(column[i]) > largest) largest = taxicab(column[i]);
    });
  });
  return largest;
}

// Scales the matrix by a power of two if its largest element is so large or so small that squares
// overflow or vanish. Returns the number by which values of the scaled matrix are to be multiplied.
template <class S>
double bring_into_range(const Columns<S>& m) {
  const double largest = largest_element(m);
  if (largest == 0 || (largest > 1e-100 && largest < 1e100)) return 1;
  int exponent = 0;
  std::frexp(largest, &exponent);
  // A factor of 2^1022 cannot be expressed for the smallest numbers, whose rest is lost anyway.
  if (exponent < -1000) exponent = -1000;
  each_column(m, [&](S* column, int64_t) {
    scale(m.cancellation, m.rows, from_real<S>(std::ldexp(1.0, -exponent)), column);
  });
  return std::ldexp(1.0, exponent);
}

// Hands out matrices in a checked workspace.
class Workspace : public WorkspaceMemory {
 public:
  Workspace(const Arguments& args, ArgumentPlace at)
      : WorkspaceMemory(args, at), cancellation(args.cancellation) {}

  template <class S>
  Columns<S> matrix(int64_t rows, int64_t columns) {
    return {cancellation, vector<S>(rows * columns), rows, columns, rows};
  }

 private:
  Cancellation& cancellation;
};

// The number of f64 values of an element of argument `at` in a workspace.
inline int64_t width_of(const Arguments& args, ArgumentPlace at) {
  return args[at].dtype == HUSK_C64 || args[at].dtype == HUSK_C128 ? 2 : 1;
}

// Calls f(Tag<double>()) or f(Tag<Complex128>()), for the dtype of argument `at`.
template <class F>
husk_status visit_wide(const Arguments& args, ArgumentPlace at, F&& f) {
  switch (args[at].dtype) {
    case HUSK_F32:
    case HUSK_F64: return f(Tag<double>()), husk_status{HUSK_OK};
    case HUSK_C64:
    case HUSK_C128: return f(Tag<Complex128>()), husk_status{HUSK_OK};
    default: return args.unsupported_dtype(at);
  }
}

// One matrix of a tensor: its memory and strides.
struct Place {
  int32_t dtype;
  void* data;
  int64_t offset, row, column;
  Place transposed() const { return {dtype, data, offset, column, row}; }
};

// The matrix of a checked tensor that begins at an offset.
inline Place matrix_place(const husk_op_arg& tensor, int64_t offset) {
  return {tensor.dtype, tensor.data, offset, tensor.strides[tensor.rank - 2],
          tensor.strides[tensor.rank - 1]};
}
// The vector of a checked tensor that begins at an offset, as a matrix of one column.
inline Place vector_place(const husk_op_arg& tensor, int64_t offset) {
  return {tensor.dtype, tensor.data, offset, tensor.strides[tensor.rank - 1], 0};
}

// Calls f(T*) with the memory of a place as elements whose values S can hold.
template <class S, class F>
void visit_place(const Place& place, F&& f) {
  constexpr unsigned set = is_complex<S> ? unsigned{Complexes} : unsigned{Floats};
  visit<set>(place.dtype, [&](auto tag) {
    f(static_cast<typename decltype(tag)::type*>(place.data) + place.offset);
  });
}

// Reads a matrix, which has the dtype that `to` was chosen for.
template <class S>
void load(const Place& from, const Columns<S>& to) {
  visit_place<S>(from, [&](const auto* elements) {
    each_column(to, [&](S* column, int64_t j) {
      each_index(to.cancellation, to.rows,
                 [&](int64_t i) { column[i] = cast<S>(elements[i * from.row + j * from.column]); });
    });
  });
}

// Writes a matrix.
template <class S>
void store(const Columns<S>& from, const Place& to) {
  visit_place<S>(to, [&](auto* elements) {
    using T = std::remove_pointer_t<decltype(elements)>;
    each_column(from, [&](const S* column, int64_t j) {
      each_index(from.cancellation, from.rows,
                 [&](int64_t i) { elements[i * to.row + j * to.column] = cast<T>(column[i]); });
    });
  });
}

template <class S>
void conjugate(const Columns<S>& m) {
  conjugate(m.transposed());
}

// A vector as a matrix of one column.
template <class S>
Columns<S> as_column(Cancellation& cancellation, S* data, int64_t count) {
  return {cancellation, data, count, 1, count};
}

}  // namespace
}  // namespace husk::host
