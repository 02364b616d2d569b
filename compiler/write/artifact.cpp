#include "write/artifact.h"

#include <husk/husk.h>

#include "base/align.h"
#include "base/blake2b.h"
#include "ir/compile_error.h"
#include "model/container.h"
#include "passes/encode_fill.h"
#include "write/blobs.h"

namespace husk::compiler {
namespace {

using flatbuffers::Offset;

template <class T>
uint32_t index_of(const std::vector<T>& rows, const Name& name) {
  for (size_t i = 0; i < rows.size(); ++i)
    if (rows[i].name.text == name.text) return static_cast<uint32_t>(i);
  return kNone;
}

// Builds the FlatBuffer. Every offset is computed by a statement of its own: C++ does not define
// the order in which the arguments of a call are computed, and the bytes must not depend on it.
class MetadataBuilder {
 public:
  MetadataBuilder(const Program& program, const ProgramRows& rows)
      : program_(program), rows_(rows) {}
  std::vector<uint8_t> build();

 private:
  auto text(const std::string& s) { return b_.CreateSharedString(s); }
  template <class T>
  Offset<flatbuffers::Vector<const T*>> structs(const std::vector<T>& rows) {
    return rows.empty() ? 0 : b_.CreateVectorOfStructs(rows);
  }
  template <class T>
  Offset<flatbuffers::Vector<T>> numbers(const std::vector<T>& rows) {
    return rows.empty() ? 0 : b_.CreateVector(rows);
  }
  template <class Row, class F>
  auto tables(const std::vector<Row>& rows, F make) {
    std::vector<decltype(make(rows[0], size_t{0}))> offsets;
    for (size_t i = 0; i < rows.size(); ++i) offsets.push_back(make(rows[i], i));
    return b_.CreateVector(offsets);
  }
  Offset<fb::Kernel> kernel(const Kernel& k);
  Offset<fb::State> state(const State& s);
  Offset<fb::Value> value(const Value& v);
  Offset<fb::Variant> variant(const VariantRows& v);
  Offset<fb::Function> function(const Function& f, const std::vector<VariantRows>& variants);

  const Program& program_;
  const ProgramRows& rows_;
  flatbuffers::FlatBufferBuilder b_{1 << 16};
};

Offset<fb::Kernel> MetadataBuilder::kernel(const Kernel& k) {
  const auto name = text(k.name.text);
  const auto symbol = text(k.symbol);
  const auto params = numbers(std::vector<uint8_t>(k.params.begin(), k.params.end()));
  const auto block = b_.CreateVector(std::vector<uint32_t>(k.block, k.block + 3));
  return fb::CreateKernel(b_, name, symbol, index_of(program_.images, k.image), params, block,
                          static_cast<uint32_t>(k.shared), static_cast<uint32_t>(k.cluster),
                          k.flags);
}

Offset<fb::State> MetadataBuilder::state(const State& s) {
  const bool filled = s.init.text.empty();
  const auto name = text(s.name.text);
  const auto dims = numbers(s.dims);
  return fb::CreateState(b_, name, static_cast<uint8_t>(s.dtype), dims,
                         filled ? kNone : index_of(program_.constants, s.init),
                         filled ? encode_fill(s) : 0);
}

Offset<fb::Value> MetadataBuilder::value(const Value& v) {
  std::vector<fb::Dim> ranges;
  for (const Range& r : v.ranges) ranges.push_back(fb::Dim(r.min, r.max));
  const auto name = text(v.name.text);
  const auto dims = structs(ranges);
  return fb::CreateValue(b_, name, v.kind, static_cast<uint8_t>(v.dtype),
                         static_cast<uint8_t>(v.rank), dims);
}

Offset<fb::Variant> MetadataBuilder::variant(const VariantRows& v) {
  const auto scalars = structs(v.scalars);
  const auto steps = structs(v.steps);
  const auto segments = b_.CreateVectorOfStructs(v.segments);
  const auto arguments = structs(v.arguments);
  const auto operands = numbers(v.operands);
  const auto buffers = structs(v.buffers);
  const auto views = structs(v.views);
  const auto tensors = structs(v.tensors);
  const auto results = structs(v.results);
  const auto origins = numbers(v.origins);
  const auto names = numbers(v.names);
  const auto order = numbers(v.order);
  return fb::CreateVariant(b_, v.target, scalars, steps, segments, arguments, operands, buffers,
                           views, tensors, results, origins, names, order);
}

Offset<fb::Function> MetadataBuilder::function(const Function& f,
                                               const std::vector<VariantRows>& variants) {
  const auto inputs = tables(f.inputs, [&](const Value& v, size_t) { return value(v); });
  const auto outputs = tables(f.outputs, [&](const Value& v, size_t) { return value(v); });
  const auto variant_tables = tables(variants,
                                     [&](const VariantRows& v, size_t) { return variant(v); });
  const auto name = text(f.name.text);
  return fb::CreateFunction(b_, name, inputs, outputs, variant_tables);
}

std::vector<uint8_t> MetadataBuilder::build() {
  const bool named = !program_.producer.empty();
  const auto producer = text(named ? program_.producer : std::string("huskc ") + HUSK_VERSION);
  const auto targets = tables(program_.targets, [&](const Target& t, size_t) {
    const auto port = text(t.port.text);
    const auto arch = text(t.arch);
    return fb::CreateTarget(b_, port, arch);
  });
  const fb::Blob blob;  // blob_rows()
  const auto images = tables(program_.images, [&](const Image& image, size_t) {
    const auto name = text(image.name.text);
    return fb::CreateImage(b_, index_of(program_.targets, image.target),
                           static_cast<uint8_t>(image.format), &blob, name);
  });
  const auto kernels = tables(program_.kernels, [&](const Kernel& k, size_t) { return kernel(k); });
  const auto ops = tables(rows_.ops.all(), [&](const std::string& s, size_t) { return text(s); });
  const auto constants = tables(program_.constants, [&](const Constant& c, size_t) {
    const auto name = text(c.name.text);
    const auto dims = numbers(c.dims);
    return fb::CreateConstant(
        b_, name, static_cast<uint8_t>(c.dtype), dims, &blob,
        c.folded_by.text.empty() ? kNone : index_of(program_.functions, c.folded_by));
  });
  const auto states = tables(program_.states, [&](const State& s, size_t) { return state(s); });
  const auto functions = tables(program_.functions, [&](const Function& f, size_t i) {
    return function(f, rows_.functions[i]);
  });
  const auto strings = tables(rows_.strings.all(),
                              [&](const std::string& s, size_t) { return text(s); });
  const auto user = tables(program_.user, [&](const User& u, size_t) {
    const auto key = text(u.key);
    const auto value = text(u.value);
    return fb::CreateEntry(b_, key, value);
  });
  const Offset<flatbuffers::String> tree = program_.has_tree ? text(program_.tree) : 0;
  Offset<flatbuffers::Vector<Offset<flatbuffers::String>>> asserts = 0;
  if (!program_.asserts.empty())
    asserts = tables(program_.asserts, [&](const std::string& s, size_t) { return text(s); });
  Offset<fb::World> world = 0;
  if (program_.has_world) {
    fb::Hash set;
    memcpy(&set, bytes_of_digits(program_.world.set).data(), sizeof(set));
    world = fb::CreateWorld(b_, static_cast<uint32_t>(program_.world.size),
                            static_cast<uint32_t>(program_.world.rank), &set);
  }
  fb::FinishProgramBuffer(
      b_, fb::CreateProgram(b_, producer, targets, images, kernels, ops, constants, states,
                            functions, strings, user, tree, asserts, world));
  return {b_.GetBufferPointer(), b_.GetBufferPointer() + b_.GetSize()};
}

template <class T>
void put(uint8_t* header, size_t at, T value) {
  memcpy(header + at, &value, sizeof(T));  // all supported platforms are little-endian
}

}  // namespace

std::vector<uint8_t> make_metadata(const Program& program, const ProgramRows& rows) {
  std::vector<uint8_t> metadata = MetadataBuilder(program, rows).build();
  if (metadata.size() > INT32_MAX)
    fail({}, "the metadata has {} bytes, 2^31-1 are the most", metadata.size());
  return metadata;
}

std::vector<fb::Blob*> blob_rows(std::vector<uint8_t>& metadata) {
  const fb::Program* program = fb::GetProgram(metadata.data());
  std::vector<fb::Blob*> out;
  for (uint32_t i = 0; i < count(program->images()); ++i)
    out.push_back(const_cast<fb::Blob*>(program->images()->Get(i)->blob()));
  for (uint32_t i = 0; i < count(program->constants()); ++i)
    out.push_back(const_cast<fb::Blob*>(program->constants()->Get(i)->blob()));
  for (uint32_t i = 0; i < count(program->packed()); ++i)
    out.push_back(const_cast<fb::Blob*>(&program->packed()->Get(i)->blob()));
  return out;
}

uint64_t blob_base(const std::vector<uint8_t>& metadata) {
  return align_up(kHeaderBytes + metadata.size(), kBlobAlign);
}

void write_head(const std::vector<uint8_t>& metadata, uint64_t bytes, uint64_t features,
                const Sink& sink) {
  uint8_t header[kHeaderBytes] = {};
  memcpy(header, kMagic, sizeof(kMagic));
  put(header, 8, kMajor);
  put(header, 10, kMinor);
  put(header, 12, static_cast<uint32_t>(metadata.size()));
  put(header, 16, bytes);
  put(header, 24, features);
  Blake2b hash;
  hash.update(metadata.data(), metadata.size());
  hash.finish(header + 32);
  sink(0, {header, sizeof(header)});
  sink(sizeof(header), metadata);
}

}  // namespace husk::compiler
