#include "fields.h"

#include <cstring>
#include <initializer_list>
#include <utility>

#include "model/rows.h"

namespace husk::fuzz {
namespace {

// Name and width of each member of a struct, in order.
using Layout = std::initializer_list<std::pair<const char*, uint32_t>>;

class Finder {
 public:
  Finder(const std::vector<uint8_t>& file, Fields* out) : begin_(file.data()), out_(out) {}

  void add(const void* at, uint32_t width, const char* what) {
    out_->fields.push_back(
        {static_cast<uint32_t>(static_cast<const uint8_t*>(at) - begin_), width, what});
  }

  // Adds the length and the elements of a vector.
  template <class T>
  void add_vector(const flatbuffers::Vector<T>* vector, const Layout& layout, uint32_t size) {
    if (!vector) return;
    add(vector, 4, "length");
    for (uint32_t i = 0; i < vector->size(); ++i) {
      const uint8_t* at = vector->Data() + i * size_t{size};
      for (const auto& [name, width] : layout) {
        add(at, width, name);
        at += width;
      }
    }
    if (vector->size() > 1)
      out_->tables.push_back(
          {static_cast<uint32_t>(vector->Data() - begin_), size, vector->size()});
  }

  // Adds the scalar members of a FlatBuffers table that are in the file. Members with their default
  // value are not.
  void add_table(const void* table,
                 const std::initializer_list<std::pair<flatbuffers::voffset_t, uint32_t>>& members,
                 const char* what) {
    for (const auto& [member, width] : members)
      if (const uint8_t* at = static_cast<const flatbuffers::Table*>(table)->GetAddressOf(member))
        add(at, width, what);
  }

  void add_string(const flatbuffers::String* text) {
    if (!text) return;
    add(text, 4, "length");
    for (uint32_t i = 0; i < text->size(); ++i) add(text->Data() + i, 1, "letter");
  }

  void add_blob(const fb::Blob* blob) {
    add(blob, 8, "blob offset");
    add(reinterpret_cast<const uint8_t*>(blob) + 8, 8, "blob size");
    add(reinterpret_cast<const uint8_t*>(blob) + 16, 1, "hash");
  }

 private:
  const uint8_t* begin_;
  Fields* out_;
};

void find_values(Finder& finder,
                 const flatbuffers::Vector<flatbuffers::Offset<fb::Value>>* values) {
  if (!values) return;
  finder.add(values, 4, "length");
  for (const fb::Value* value : *values) {
    finder.add_string(value->name());
    finder.add_table(value,
                     {{fb::Value::VT_KIND, 1}, {fb::Value::VT_DTYPE, 1}, {fb::Value::VT_RANK, 1}},
                     "value");
    finder.add_vector(value->dims(), {{"dim", 8}, {"dim", 8}}, 16);
  }
}

void find_variant(Finder& finder, const fb::Variant* variant) {
  const Layout instruction = {{"op", 2}, {"aux", 2}, {"a", 4}, {"b", 4}, {"c", 4}};
  const Layout argument = {{"kind", 1},  {"access", 1}, {"type", 1},    {"flags", 1},
                           {"index", 4}, {"items", 4},  {"reserved", 4}};
  finder.add_table(variant, {{fb::Variant::VT_TARGET, 4}}, "target");
  finder.add_vector(variant->scalars(), instruction, 16);
  finder.add_vector(variant->steps(), instruction, 16);
  finder.add_vector(
      variant->segments(),
      {{"scalar", 4}, {"scalar", 4}, {"step", 4}, {"step", 4}, {"when", 4}, {"back", 4}}, 24);
  finder.add_vector(variant->arguments(), argument, 16);
  finder.add_vector(variant->results(), argument, 16);
  finder.add_vector(variant->operands(), {{"operand", 4}}, 4);
  finder.add_vector(variant->buffers(),
                    {{"space", 1},
                     {"device", 1},
                     {"align", 1},
                     {"reserved8", 1},
                     {"index", 4},
                     {"size", 4},
                     {"reserved", 4}},
                    16);
  finder.add_vector(variant->views(),
                    {{"buffer", 4}, {"offset", 4}, {"extent", 4}, {"reserved", 4}}, 16);
  finder.add_vector(
      variant->tensors(),
      {{"view", 4}, {"first", 4}, {"type", 1}, {"rank", 1}, {"reserved16", 2}, {"reserved", 4}},
      16);
  finder.add_vector(variant->origins(), {{"text", 4}}, 4);
  finder.add_vector(variant->names(), {{"text", 4}}, 4);
}

uint64_t load(const std::vector<uint8_t>& file, const Field& field) {
  uint64_t value = 0;
  std::memcpy(&value, file.data() + field.offset, field.width);
  return value;
}

}  // namespace

Fields find_fields(const std::vector<uint8_t>& file) {
  Fields out;
  Finder finder(file, &out);
  const fb::Program* program = fb::GetProgram(file.data() + 64);
  if (program->images())
    for (const fb::Image* image : *program->images()) {
      finder.add_table(image, {{fb::Image::VT_TARGET, 4}, {fb::Image::VT_FORMAT, 1}}, "image");
      finder.add_blob(image->blob());
    }
  if (program->kernels())
    for (const fb::Kernel* kernel : *program->kernels()) {
      finder.add_table(kernel,
                       {{fb::Kernel::VT_IMAGE, 4},
                        {fb::Kernel::VT_SHARED, 4},
                        {fb::Kernel::VT_CLUSTER, 4},
                        {fb::Kernel::VT_FLAGS, 4}},
                       "kernel");
      finder.add_vector(kernel->params(), {{"type", 1}}, 1);
      finder.add_vector(kernel->block(), {{"block", 4}}, 4);
      finder.add_string(kernel->symbol());
    }
  if (program->constants())
    for (const fb::Constant* constant : *program->constants()) {
      finder.add_table(constant, {{fb::Constant::VT_DTYPE, 1}}, "type");
      finder.add_vector(constant->dims(), {{"dim", 8}}, 8);
      finder.add_blob(constant->blob());
      finder.add_string(constant->name());
    }
  if (program->states())
    for (const fb::State* state : *program->states()) {
      finder.add_table(state,
                       {{fb::State::VT_DTYPE, 1}, {fb::State::VT_INIT, 4}, {fb::State::VT_FILL, 8}},
                       "state");
      finder.add_vector(state->dims(), {{"dim", 8}}, 8);
      finder.add_string(state->name());
    }
  if (program->ops())
    for (const flatbuffers::String* op : *program->ops()) finder.add_string(op);
  for (const fb::Target* target : *program->targets()) {
    finder.add_string(target->port());
    finder.add_string(target->arch());
  }
  for (const fb::Function* function : *program->functions()) {
    finder.add_string(function->name());
    find_values(finder, function->inputs());
    find_values(finder, function->outputs());
    for (const fb::Variant* variant : *function->variants()) find_variant(finder, variant);
  }
  return out;
}

void change_field(std::vector<uint8_t>& file, const Fields& fields, std::mt19937& random) {
  const Field& field = fields.fields[random() % fields.fields.size()];
  uint64_t value = load(file, field);
  switch (random() % 8) {
    case 0: value += 1; break;
    case 1: value -= 1; break;
    case 2: value = random() % 20; break;
    case 3: value = ~0ull; break;                            // "none", -1
    case 4: value = ~0ull >> (65 - 8 * field.width); break;  // the largest signed number
    case 5: value ^= 1ull << random() % (8 * field.width); break;
    case 6: {
      for (int tries = 0; tries < 50; ++tries) {
        const Field& other = fields.fields[random() % fields.fields.size()];
        if (other.width != field.width || std::strcmp(other.what, field.what) != 0) continue;
        value = load(file, other);
        break;
      }
      break;
    }
    default: value = static_cast<uint64_t>(random()) << 32 | random(); break;
  }
  std::memcpy(file.data() + field.offset, &value, field.width);
}

void change_rows(std::vector<uint8_t>& file, const Fields& fields, std::mt19937& random) {
  const Table& table = fields.tables[random() % fields.tables.size()];
  uint8_t* a = file.data() + table.offset + random() % table.count * table.size;
  uint8_t* b = file.data() + table.offset + random() % table.count * table.size;
  const bool swap = random() % 2;
  for (uint32_t i = 0; i < table.size; ++i) {
    const uint8_t old = a[i];
    a[i] = b[i];
    if (swap) b[i] = old;
  }
}

void change_bytes(std::vector<uint8_t>& file, std::mt19937& random) {
  uint32_t metadata;
  std::memcpy(&metadata, file.data() + 12, 4);
  for (uint32_t bytes = 1 + random() % 4; bytes > 0; --bytes) {
    uint8_t& byte = file[64 + random() % metadata];
    switch (random() % 4) {
      case 0: byte = static_cast<uint8_t>(random()); break;
      case 1: ++byte; break;
      case 2: --byte; break;
      default: byte ^= static_cast<uint8_t>(1u << random() % 8);
    }
  }
}

}  // namespace husk::fuzz
