// Metadata that are written row by row, for programs that would take the compiler minutes, and for
// files that share rows as the compiler never does.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include <husk/husk.h>

#include "base/align.h"
#include "content_hash.h"
#include "model/container.h"

namespace husk::test {

// The rows of one variant.
struct LargeVariant {
  std::vector<fb::Instruction> scalars, steps;
  std::vector<fb::Segment> segments;
  std::vector<fb::Argument> arguments, results;
  std::vector<uint32_t> operands, origins, names, order;
  std::vector<fb::Buffer> buffers;
  std::vector<fb::View> views;
  std::vector<fb::Tensor> tensors;

  uint32_t scalar(Scalar op, uint32_t a = 0, uint32_t b = 0, uint32_t c = 0) {
    scalars.emplace_back(static_cast<uint16_t>(op), uint16_t{0}, a, b, c);
    return static_cast<uint32_t>(scalars.size() - 1);
  }
  uint32_t number(uint64_t value) {
    return scalar(Scalar::op_const, 0, static_cast<uint32_t>(value),
                  static_cast<uint32_t>(value >> 32));
  }
  uint32_t arena_buffer(uint32_t size) {
    buffers.emplace_back(uint8_t{0}, uint8_t{0}, uint8_t{6}, uint8_t{0}, kNone, size, 0u);
    return static_cast<uint32_t>(buffers.size() - 1);
  }
  // The buffer of an input, output, constant or state.
  uint32_t outer_buffer(Space space, uint32_t index, uint32_t size) {
    buffers.emplace_back(static_cast<uint8_t>(space), uint8_t{0}, uint8_t{3}, uint8_t{0}, index,
                         size, 0u);
    return static_cast<uint32_t>(buffers.size() - 1);
  }
  // A vector of ints.
  uint32_t tensor(uint32_t of_view, uint32_t size, uint32_t stride) {
    tensors.emplace_back(of_view, static_cast<uint32_t>(operands.size()), uint8_t{HUSK_I64},
                         uint8_t{1}, uint16_t{0}, 0u);
    operands.insert(operands.end(), {size, stride});
    return static_cast<uint32_t>(tensors.size() - 1);
  }
  // Makes a vector of ints the next result of the function.
  void result(uint32_t of_view, uint32_t size, uint32_t stride) {
    results.emplace_back(static_cast<uint8_t>(ArgumentKind::tensor), uint8_t{0}, uint8_t{0},
                         uint8_t{0}, tensor(of_view, size, stride), 0u, 0u);
  }
  uint32_t view(uint32_t buffer, uint32_t offset, uint32_t extent) {
    views.emplace_back(buffer, offset, extent, 0u);
    return static_cast<uint32_t>(views.size() - 1);
  }
  void argument(ArgumentKind kind, uint32_t access, uint32_t type, uint32_t index,
                uint32_t count = 0) {
    arguments.emplace_back(static_cast<uint8_t>(kind), static_cast<uint8_t>(access),
                           static_cast<uint8_t>(type), uint8_t{0}, index, count, 0u);
  }
  // A step whose arguments are those that were added last.
  void step(Step op, uint32_t a, uint32_t count, uint32_t aux = 0) {
    steps.emplace_back(static_cast<uint16_t>(op), static_cast<uint16_t>(aux), a,
                       static_cast<uint32_t>(arguments.size()) - count, count);
  }
  void fill(uint32_t to, uint32_t value) {
    argument(ArgumentKind::view, HUSK_ACCESS_WRITE, 0, to);
    argument(ArgumentKind::integer, 0, HUSK_I64, value);
    step(Step::op_fill, 0, 2);
  }
  void read(uint32_t from) {
    argument(ArgumentKind::view, HUSK_ACCESS_READ, HUSK_I64, from);
    step(Step::op_read, 0, 1);
  }
  void copy(uint32_t to, uint32_t from) {
    argument(ArgumentKind::view, HUSK_ACCESS_WRITE, 0, to);
    argument(ArgumentKind::view, HUSK_ACCESS_READ, 0, from);
    step(Step::op_copy, 0, 2);
  }
  // Ends a segment: the scalar ops and steps since the last one.
  void segment(uint32_t when = kNone, uint32_t back = kNone) {
    const uint32_t scalar = segments.empty() ? 0 : segments.back().scalar_end();
    const uint32_t step = segments.empty() ? 0 : segments.back().step_end();
    segments.emplace_back(scalar, static_cast<uint32_t>(scalars.size()), step,
                          static_cast<uint32_t>(steps.size()), when, back);
  }
};

// Writes a file. The parts of a program that are not set are empty.
struct LargeFile {
  flatbuffers::FlatBufferBuilder builder{1 << 20};
  std::vector<flatbuffers::Offset<fb::Target>> targets;
  std::vector<flatbuffers::Offset<fb::Image>> images;
  std::vector<flatbuffers::Offset<fb::Kernel>> kernels;
  std::vector<flatbuffers::Offset<fb::Constant>> constants;
  std::vector<flatbuffers::Offset<fb::Function>> functions;
  std::vector<flatbuffers::Offset<fb::State>> states;
  std::vector<flatbuffers::Offset<fb::Entry>> entries;
  std::vector<flatbuffers::Offset<flatbuffers::String>> ops, strings, asserts;
  std::vector<fb::PackedCopy> packed;

  using Values = flatbuffers::Offset<flatbuffers::Vector<flatbuffers::Offset<fb::Value>>>;

  LargeFile() { target("host", HUSK_TEST_ARCH); }
  void target(const char* port, const std::string& arch) {
    targets.push_back(
        fb::CreateTarget(builder, builder.CreateString(port), builder.CreateString(arch)));
  }
  flatbuffers::Offset<fb::Variant> variant(const LargeVariant& v, uint32_t target = 0) {
    return fb::CreateVariantDirect(builder, target, &v.scalars, &v.steps, &v.segments, &v.arguments,
                                   &v.operands, &v.buffers, &v.views, &v.tensors, &v.results,
                                   &v.origins, &v.names, &v.order);
  }
  void function(const std::string& name,
                const std::vector<flatbuffers::Offset<fb::Variant>>& variants, Values inputs = 0,
                Values outputs = 0) {
    functions.push_back(fb::CreateFunction(builder, builder.CreateString(name), inputs, outputs,
                                           builder.CreateVector(variants)));
  }
  // Vectors of ints, whose names begin with `name`. `dims` are the ranges of their size.
  Values vectors(const char* name, uint32_t n, const std::vector<fb::Dim>* dims = nullptr) {
    std::vector<flatbuffers::Offset<fb::Value>> values;
    for (uint32_t i = 0; i < n; ++i)
      values.push_back(fb::CreateValueDirect(builder, (name + std::to_string(i)).c_str(),
                                             HUSK_VALUE_TENSOR, HUSK_I64, 1, dims));
    return builder.CreateVector(values);
  }
  // Puts `blob_bytes` zeros behind the metadata.
  std::vector<uint8_t> finish(uint64_t blob_bytes = 0) {
    const auto ops_vector = builder.CreateVector(ops);
    const auto program = fb::CreateProgram(
        builder, builder.CreateString("test"), builder.CreateVector(targets),
        builder.CreateVector(images), builder.CreateVector(kernels), ops_vector,
        builder.CreateVector(constants), builder.CreateVector(states),
        builder.CreateVector(functions), builder.CreateVector(strings),
        builder.CreateVector(entries), 0, builder.CreateVector(asserts), 0,
        packed.empty() ? 0 : builder.CreateVectorOfStructs(packed));
    fb::FinishProgramBuffer(builder, program);
    std::vector<uint8_t> file(align_up(kHeaderBytes + builder.GetSize(), kBlobAlign) + blob_bytes);
    const uint16_t version[2] = {kMajor, kMinor};
    const uint32_t metadata = builder.GetSize();
    const uint64_t size = file.size();
    std::memcpy(file.data(), kMagic, sizeof(kMagic));
    std::memcpy(file.data() + 8, version, sizeof(version));
    std::memcpy(file.data() + 12, &metadata, sizeof(metadata));
    std::memcpy(file.data() + 16, &size, sizeof(size));
    std::memcpy(file.data() + kHeaderBytes, builder.GetBufferPointer(), metadata);
    write_hash(file);
    return file;
  }
};

// A file with one function `f`, whose only variant is given.
inline std::vector<uint8_t> large_file(const LargeVariant& variant) {
  LargeFile file;
  file.function("f", {file.variant(variant)});
  return file.finish();
}

}  // namespace husk::test
