#include "ops.h"

#include <cmath>
#include <cstring>
#include <vector>

#include <husk/husk.h>

namespace husk::test {
namespace {

struct Digest {
  uint64_t value = 14695981039346656037ull;
  uint64_t sum = 0;  // sum of the bytes of the tensors

  void byte(uint8_t b) { value = (value ^ b) * 1099511628211ull; }
  template <class T>
  void number(T n) {
    uint8_t bytes[sizeof(T)];
    memcpy(bytes, &n, sizeof(T));
    for (uint8_t b : bytes) byte(b);
  }
};

// Calls visit(address) for every element in row-major order.
template <class F>
void each_element(const husk_op_arg& t, F visit) {
  int64_t count = 1;
  for (int32_t d = 0; d < t.rank; ++d) count *= t.sizes[d];
  std::vector<int64_t> at(static_cast<size_t>(t.rank));
  auto* data = static_cast<uint8_t*>(t.data);
  const auto width = static_cast<int64_t>(husk_dtype_size(t.dtype));
  for (int64_t i = 0; i < count; ++i) {
    int64_t element = 0;
    for (size_t d = 0; d < at.size(); ++d) element += at[d] * t.strides[d];
    visit(data + element * width, static_cast<size_t>(width));
    for (size_t d = at.size(); d-- > 0;) {
      if (++at[d] < t.sizes[d]) break;
      at[d] = 0;
    }
  }
}

void add_tensor(const husk_op_arg& t, Digest& digest) {
  digest.number(t.dtype);
  digest.number(t.access);
  for (int32_t d = 0; d < t.rank; ++d) {
    digest.number(t.sizes[d]);
    digest.number(t.strides[d]);
  }
  if (!(t.access & HUSK_ACCESS_READ)) return;
  each_element(t, [&](const uint8_t* data, size_t width) {
    for (size_t b = 0; b < width; ++b) {
      digest.byte(data[b]);
      digest.sum += data[b];
    }
  });
}

void add(const husk_op_arg& a, Digest& digest) {
  digest.number(a.kind);
  switch (a.kind) {
    case HUSK_ARG_TENSOR: add_tensor(a, digest); break;
    case HUSK_ARG_INT: digest.number(a.i); break;
    case HUSK_ARG_FLOAT: digest.number(std::isnan(a.f) ? 7.0 : a.f); break;
    case HUSK_ARG_INTS:
      for (int64_t i = 0; i < a.count; ++i) digest.number(a.sizes[i]);
      break;
    case HUSK_ARG_FLOATS:
      for (int64_t i = 0; i < a.count; ++i)
        digest.number(std::isnan(a.floats[i]) ? 7.0 : a.floats[i]);
      break;
    case HUSK_ARG_STRING:
      for (const char* c = a.string; *c; ++c) digest.number(*c);
      break;
    case HUSK_ARG_DTYPE: digest.number(a.dtype); break;
    case HUSK_ARG_TENSORS:
      for (int64_t i = 0; i < a.count; ++i) add(a.tensors[i], digest);
      break;
    default: break;
  }
}

void write(const husk_op_arg& t, const Digest& digest) {
  if (t.kind != HUSK_ARG_TENSOR || !(t.access & HUSK_ACCESS_WRITE)) return;
  uint64_t next = digest.value;
  each_element(t, [&](uint8_t* data, size_t width) {
    for (size_t b = 0; b < width; ++b) {
      data[b] = static_cast<uint8_t>(next >> 32);
      next = next * 6364136223846793005ull + 1442695040888963407ull;
    }
  });
}

husk_status mix(const husk_op_context*, const husk_op_arg* args, uint32_t count, husk_error*) {
  Digest digest;
  for (uint32_t i = 0; i < count; ++i) add(args[i], digest);
  for (uint32_t i = 0; i < count; ++i) {
    write(args[i], digest);
    for (int64_t t = 0; args[i].kind == HUSK_ARG_TENSORS && t < args[i].count; ++t)
      write(args[i].tensors[t], digest);
  }
  return HUSK_OK;
}

husk_status measure(const husk_op_context*, const husk_op_arg* args, uint32_t count, husk_error*) {
  Digest digest;
  for (uint32_t i = 0; i < count; ++i) add(args[i], digest);
  for (uint32_t i = 0; i < count; ++i) {
    if (args[i].kind != HUSK_ARG_RESULT) continue;
    const auto sum = static_cast<int64_t>(digest.sum);
    if (args[i].dtype == HUSK_F64)
      *static_cast<double*>(args[i].data) = static_cast<double>(sum) / 4;
    else
      *static_cast<int64_t*>(args[i].data) = sum;
  }
  return HUSK_OK;
}

constexpr husk_op kOps[] = {
    {sizeof(husk_op), 0, "test::mix", mix, nullptr, nullptr, nullptr, nullptr, 0, 0, 0, 0},
    {sizeof(husk_op), 0, "test::measure:sizes", measure, nullptr, nullptr, nullptr, nullptr, 0, 0,
     0, 0}};

}  // namespace

std::span<const husk_op> random_ops() { return kOps; }

}  // namespace husk::test
