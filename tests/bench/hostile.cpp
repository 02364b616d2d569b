#include "hostile.h"

#include <array>

#include "../runtime/large_program.h"

namespace husk::bench {
namespace {

using namespace husk::test;

// A step has 16 bytes and two arguments of 16 bytes.
std::vector<uint8_t> many_steps(uint32_t metadata) {
  LargeVariant v;
  const uint32_t size = v.number(64), zero = v.number(0);
  const uint32_t all = v.view(v.arena_buffer(size), zero, size);
  for (uint32_t i = 0; i < metadata / 48; ++i) v.fill(all, zero);
  v.segment();
  return large_file(v);
}

// Each segment ends a loop that begins with the first one, and names a result of the one before it.
std::vector<uint8_t> many_segments(uint32_t metadata) {
  LargeVariant v;
  const uint32_t size = v.number(8), zero = v.number(0);
  const uint32_t all = v.view(v.arena_buffer(size), zero, size);
  v.read(all);
  v.segment();
  for (uint32_t i = 0; i < metadata / 136; ++i) {
    const uint32_t when = v.scalar(Scalar::op_result, 0);
    v.scalar(Scalar::op_add, when, zero);
    v.fill(all, when);
    v.read(all);
    v.segment(zero, 1);
  }
  v.segment();
  return large_file(v);
}

std::vector<uint8_t> many_functions(uint32_t metadata) {
  LargeFile file;
  LargeVariant v;
  v.number(0);
  v.segment();
  for (uint32_t f = 0; f < metadata / 152; ++f)
    file.function("f" + std::to_string(f), {file.variant(v)});
  return file.finish();
}

// Names that have to be compared to their end.
std::vector<uint8_t> many_values(uint32_t metadata) {
  LargeFile file;
  auto& b = file.builder;
  const std::vector<fb::Dim> dims(16, fb::Dim(0, 1));
  std::vector<flatbuffers::Offset<fb::Value>> values;
  for (uint32_t i = 0; i < metadata / 324; ++i)
    values.push_back(
        fb::CreateValueDirect(b, (std::string(24, 'x') + std::to_string(i * 2654435761u)).c_str(),
                              HUSK_VALUE_TENSOR, HUSK_F32, 16, &dims));
  LargeVariant v;
  v.segment();
  file.function("f", {file.variant(v)}, b.CreateVector(values));
  return file.finish();
}

// Lists that name the same numbers as often as the verifier lets them.
std::vector<uint8_t> shared_lists(uint32_t metadata) {
  LargeVariant v;
  const uint32_t one = v.number(1), numbers = metadata / 8;
  v.operands.assign(numbers, one);
  // Half of the metadata are operands, which the calls name 13 times: 6.5 times the metadata.
  for (uint32_t i = 0; i < 13; ++i) {
    v.argument(ArgumentKind::integers, 0, 0, 0, numbers);
    v.step(Step::op_extern, 0, 1, 1);
  }
  for (uint32_t i = 0; i < metadata / 32; ++i) v.scalar(Scalar::op_add, one, one);
  v.segment();
  LargeFile file;
  file.ops.push_back(file.builder.CreateString("test::op"));
  file.function("f", {file.variant(v)});
  return file.finish();
}

// Tables that name one long vector, which the verifier refuses after it has counted all of them.
std::vector<uint8_t> shared_vectors(uint32_t metadata) {
  LargeFile file;
  auto& b = file.builder;
  const fb::Blob blob(0, 0, fb::Hash());
  file.images.push_back(fb::CreateImageDirect(b, 0, HUSK_IMAGE_ELF, &blob, "image"));
  const auto params = b.CreateVector(std::vector<uint8_t>(metadata / 2, HUSK_I32));
  const auto block = b.CreateVector(std::vector<uint32_t>{1, 1, 1});
  const auto name = b.CreateString("k");
  for (uint32_t k = 0; k < metadata / 48; ++k)
    file.kernels.push_back(fb::CreateKernel(b, name, name, 0, params, block));
  LargeVariant v;
  v.segment();
  file.function("f", {file.variant(v)});
  return file.finish();
}

// Constants that share one blob.
std::vector<uint8_t> many_constants(uint32_t metadata) {
  LargeFile file;
  auto& b = file.builder;
  const std::vector<int64_t> dims = {8};
  const fb::Blob blob(0, 64, fb::Hash());
  for (uint32_t c = metadata / 100; c-- > 0;)
    file.constants.push_back(
        fb::CreateConstantDirect(b, ("c" + std::to_string(c)).c_str(), HUSK_I64, &dims, &blob));
  LargeVariant v;
  v.segment();
  file.function("f", {file.variant(v)});
  return file.finish(kBlobAlign);
}

}  // namespace

std::vector<HostileFile> hostile_files(uint32_t metadata) {
  return {{"many steps", true, many_steps(metadata)},
          {"many segments and loops", true, many_segments(metadata)},
          {"many functions", true, many_functions(metadata)},
          {"many values", true, many_values(metadata)},
          {"many constants", true, many_constants(metadata)},
          {"lists that share numbers", true, shared_lists(metadata)},
          {"tables that share a vector", false, shared_vectors(metadata)}};
}

}  // namespace husk::bench
