// Matrix products on the application's threads.
#pragma once

#include <cstring>
#include <initializer_list>

#include "core/arithmetic.h"
#include "core/loop.h"
#include "core/parallel.h"
#include "device.h"
#include "linalg/product_choice.h"

namespace husk::host {

// Splits a product into parts of its output: blocks of the kernels, or narrower ones if each of the
// threads would have less than two. An element is the same sum in every split, because parts begin
// at the same steps and a few last columns, which the kernels compute by another method, are never
// a part of their own.
struct ProductSplit {
  int64_t part_rows, part_columns;
  int64_t rows, columns;   // the number of parts
  int64_t bytes, b_bytes;  // of an element of a and of b

  static constexpr int64_t kMostColumns = 256;

  ProductSplit(const Product& p, Features cpu, const husk_threads* threads,
               int64_t most_columns = kMostColumns)
      : bytes(dtype_bytes(p.dtype)), b_bytes(dtype_bytes(p.b.format.dtype)) {
    constexpr int64_t kColumnStep = 64, kFewColumns = 32;
    constexpr double kMinWork = 1 << 17;
    const bool amx = cpu.has(cpu_set::kAmx) && p.dtype == HUSK_BF16;
    // The most rows of a block of the kernels, and a multiple of the rows that they compute at
    // once.
    const int64_t max_rows = amx ? 256 : 216, row_step = amx ? 32 : 12;
    const int64_t enough = threads && threads->count > 1 ? 2 * int64_t{threads->count} : 1;
    rows = (p.m - 1) / max_rows + 1;
    part_rows = rounded_up((p.m - 1) / rows + 1, row_step);
    rows = (p.m - 1) / part_rows + 1;
    part_columns = most_columns;
    const double column_work = static_cast<double>(p.m < part_rows ? p.m : part_rows) *
                               static_cast<double>(p.k);
    while (part_columns > kColumnStep && rows * ((p.n - 1) / part_columns + 1) < enough &&
           column_work * static_cast<double>(part_columns - kColumnStep) >= kMinWork)
      part_columns -= kColumnStep;
    columns = (p.n - 1) / part_columns + 1;
    part_columns = rounded_up((p.n - 1) / columns + 1, kColumnStep);
    columns = (p.n - 1) / part_columns + 1;
    if (columns > 1 && p.n - (columns - 1) * part_columns <= kFewColumns) --columns;
  }

  static int64_t rounded_up(int64_t value, int64_t step) {
    return (value - 1) / step * step + step;
  }
  int64_t parts() const { return rows * columns; }

  // Restricts p to a part. Parts with the same columns of b come one after another.
  void restrict_to(Product& p, int64_t part) const {
    const int64_t i = part % rows, j = part / rows, row = i * part_rows, column = j * part_columns;
    const auto move = [](const void* data, int64_t distance) {
      return static_cast<const unsigned char*>(data) + distance;
    };
    p.m = i + 1 < rows ? part_rows : p.m - row;
    p.n = j + 1 < columns ? part_columns : p.n - column;
    p.a.data = move(p.a.data, row * p.a.row * bytes);
    p.b.data = move(p.b.data, column * p.b.column * b_bytes);
    p.b.packed.column += column;
    p.out = const_cast<unsigned char*>(
        move(p.out, (row * p.out_row + column * p.out_column) * bytes));
    for (MatrixView* view : {&p.self, &p.residual})
      if (view->data)
        view->data = move(view->data, (row * view->row + column * view->column) * bytes);
  }
};

// Calls run(part) for the parts of a product whose output is not empty, on all threads. Each has a
// copy of `run`.
template <class Run>
void run_parts_of_product(const Arguments& args, Features cpu, const Product& product,
                          const Run& run, int64_t most_columns = ProductSplit::kMostColumns) {
  const ProductSplit split(product, cpu, args.context->threads, most_columns);
  const double work = static_cast<double>(product.m) * static_cast<double>(product.n) *
                      static_cast<double>(product.k);
  run_in_parts(args, split.parts(), split.rows, work, [&](Parts& taken) {
    Run own = run;
    for (int64_t part = 0; taken.next(part);) {
      Product p = product;
      p.cancellation = &taken.cancellation;
      p.scratch = taken.scratch;
      split.restrict_to(p, part);
      own(p);
    }
  });
}

// Computes a product, for whose formats there are kernels and whose output is not empty, on all
// threads.
inline void run_product_in_parts(const Arguments& args, Features cpu, const Product& product) {
  const ProductKernels* kernels = product_kernels(cpu, product.dtype, product.b.format);
  run_parts_of_product(args, cpu, product, [&](Product& p) { product_run(cpu, kernels, p); });
}

// Writes zeros to the rows of a matrix from `row` on.
inline void clear_rows(Cancellation& cancellation, const husk_op_arg& matrix, int64_t row) {
  const int64_t bytes = dtype_bytes(matrix.dtype);
  each_index_while(cancellation, matrix.sizes[0] - row, [&](int64_t i) {
    return each_index(cancellation, matrix.sizes[1], [&](int64_t j) {
      std::memset(static_cast<unsigned char*>(matrix.data) +
                      ((row + i) * matrix.strides[0] + j * matrix.strides[1]) * bytes,
                  0, static_cast<size_t>(bytes));
    });
  });
}

// Packs argument `operand`, a matrix that is the second operand of a product and whose depth lies
// along dimension `along`, if that is the argument that husk_op.pack is asked for.
husk_status pack_operand(const Arguments& args, ArgumentPlace operand, int32_t along,
                         husk_packing& packing);

}  // namespace husk::host
