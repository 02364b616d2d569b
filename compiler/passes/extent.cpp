#include "passes/extent.h"

#include <algorithm>
#include <map>
#include <optional>

namespace husk::compiler {
namespace {

// A polynomial in registers: the sum of factor * (product of the monomial's registers). A monomial
// is sorted; the empty one is 1. The polynomial of a dense tensor's extent, (n-1)*m + (m-1) + 1,
// simplifies to the n*m that the size of its buffer is written with.
using Monomial = std::vector<uint32_t>;
using Polynomial = std::map<Monomial, int64_t>;

// Limits of a polynomial. A larger product stays one register, so that the expansion takes little
// time.
constexpr size_t kMaxTerms = 32, kMaxFactors = 16;
constexpr int kMaxDepth = 8;

bool add_term(Polynomial& to, const Monomial& monomial, int64_t factor) {
  int64_t& sum = to[monomial];
  if (__builtin_add_overflow(sum, factor, &sum) || sum == INT64_MIN)
    return false;  // emit() negates the factor
  if (sum == 0) to.erase(monomial);
  return to.size() <= kMaxTerms;
}

std::optional<Polynomial> multiply(const Polynomial& a, const Polynomial& b) {
  Polynomial out;
  for (const auto& [left, p] : a) {
    for (const auto& [right, q] : b) {
      Monomial both;
      std::merge(left.begin(), left.end(), right.begin(), right.end(), std::back_inserter(both));
      if (both.size() > kMaxFactors) return std::nullopt;
      int64_t factor;
      if (__builtin_mul_overflow(p, q, &factor) || !add_term(out, both, factor))
        return std::nullopt;
    }
  }
  return out;
}

bool add(Polynomial& to, const Polynomial& from) {
  for (const auto& [monomial, factor] : from)
    if (!add_term(to, monomial, factor)) return false;
  return true;
}

// Expands a register that is a product of registers and constants. Sums are not expanded: a part
// could leave int64 although the sum does not.
Polynomial expand(const Registers& registers, uint32_t id, int depth = 0) {
  if (auto value = registers.constant(id)) return *value ? Polynomial{{{}, *value}} : Polynomial{};
  if (registers.is(id, Scalar::op_mul) && depth < kMaxDepth) {
    const fb::Instruction& op = registers.at(id);
    auto product = multiply(expand(registers, op.a(), depth + 1),
                            expand(registers, op.b(), depth + 1));
    if (product) return *product;
  }
  return {{{id}, 1}};
}

// The polynomial 1 + sum of (size - 1) * stride; nothing if it exceeds a limit.
std::optional<Polynomial> extent_polynomial(const Registers& registers,
                                            const std::vector<uint32_t>& sizes,
                                            const std::vector<uint32_t>& strides) {
  Polynomial out = {{{}, 1}};
  for (size_t i = 0; i < sizes.size(); ++i) {
    Polynomial size = expand(registers, sizes[i]);
    if (!add_term(size, {}, -1)) return std::nullopt;
    auto term = multiply(size, expand(registers, strides[i]));
    if (!term || !add(out, *term)) return std::nullopt;
  }
  return out;
}

uint32_t emit_term(Registers& registers, const Monomial& monomial, int64_t factor) {
  if (monomial.empty()) return registers.integer(factor);
  uint32_t product = monomial[0];
  for (size_t i = 1; i < monomial.size(); ++i) product = registers.mul(product, monomial[i]);
  return registers.mul(product, registers.integer(factor));
}

// Emits the polynomial. Positive terms come first, so that no partial sum is below the result.
uint32_t emit(Registers& registers, const Polynomial& polynomial) {
  std::optional<uint32_t> sum;
  for (const auto& [monomial, factor] : polynomial)
    if (factor > 0) {
      const uint32_t term = emit_term(registers, monomial, factor);
      sum = sum ? registers.add(*sum, term) : term;
    }
  if (!sum) sum = registers.integer(0);
  for (const auto& [monomial, factor] : polynomial)
    if (factor < 0) sum = registers.sub(*sum, emit_term(registers, monomial, -factor));
  return *sum;
}

// Emits 1 + sum of (size - 1) * stride as it stands.
uint32_t emit_unexpanded(Registers& registers, const std::vector<uint32_t>& sizes,
                         const std::vector<uint32_t>& strides) {
  uint32_t sum = registers.integer(1);
  for (size_t i = 0; i < sizes.size(); ++i)
    sum = registers.add(sum,
                        registers.mul(registers.sub(sizes[i], registers.integer(1)), strides[i]));
  return sum;
}

// Whether the polynomial is 0 if register `id` is 0, so that no select is needed for that size.
bool vanishes(const Polynomial& polynomial, uint32_t id) {
  return std::all_of(polynomial.begin(), polynomial.end(), [&](const auto& term) {
    return std::find(term.first.begin(), term.first.end(), id) != term.first.end();
  });
}

}  // namespace

uint32_t strided_extent(Registers& registers, const std::vector<uint32_t>& sizes,
                        const std::vector<uint32_t>& strides) {
  const auto polynomial = extent_polynomial(registers, sizes, strides);
  // The smallest of the sizes that may be 0 without making the polynomial 0.
  std::optional<uint32_t> smallest;
  for (uint32_t size : sizes) {
    if (registers.constant(size) == 0) return registers.integer(0);
    if (registers.range(size).low >= 1 || (polynomial && vanishes(*polynomial, size))) continue;
    smallest = smallest ? registers.op(Scalar::op_min, {}, *smallest, size) : size;
  }
  const uint32_t extent = polynomial ? emit(registers, *polynomial)
                                     : emit_unexpanded(registers, sizes, strides);
  if (!smallest) return extent;
  const uint32_t not_empty = registers.op(Scalar::op_le, {}, registers.integer(1), *smallest);
  return registers.op(Scalar::op_select, {}, not_empty, extent, registers.integer(0));
}

}  // namespace husk::compiler
