// The table of the kernels of products. Its header is apart from product.h because the kernels,
// which are compiled for several sets of features, share no function with it.
#pragma once

#include "core/element.h"
#include "cpu.h"
#include "linalg/product.h"

namespace husk::host {

// The element types of product_run_plain, but for those that have kernels.
constexpr unsigned kPlainProducts = Ints | Halves | Complexes;

// A row of the table: kernels for an `a` and a `b` of these formats, on CPUs with the features
// `needs`. out has the type of a.
struct ProductKernels {
  husk_dtype a;
  Format b;
  Features needs;
  // Computes a product, or computes nothing and returns false if the next row does it faster. May
  // transpose the product.
  bool (*run)(Product& product);
  // Returns the bytes of the packed matrix, and writes it to `to` if that is not null. Returns 0 if
  // products of this size do not use one. Null if the kernels read no packed matrix.
  int64_t (*pack)(const ProductPacking& packing, void* to);
  // husk_packing.name of the copies that `pack` makes: another layout needs another name.
  const char* layout;
};

// The best kernels that the CPU has for operands of these formats; null if there are none.
const ProductKernels* product_kernels(Features cpu, husk_dtype a, Format b);

// Computes a product with `kernels`, which product_kernels() returned for its formats, or with
// other kernels of these formats. May transpose the product.
void product_run(Features cpu, const ProductKernels* kernels, Product& product);

// Returns the bytes of the packed matrix, and writes it to `to` if that is not null. Returns 0 if
// products of these formats and sizes do not use one.
int64_t product_pack(Features cpu, const ProductPacking& packing, void* to);
// The name of their layout.
const char* product_layout(Features cpu, const ProductPacking& packing);

}  // namespace husk::host
