#include "fields.h"

#include <flatbuffers/reflection_generated.h>
#include <husk_bfbs_generated.h>

#include <cstring>

#include "model/rows.h"

namespace husk::fuzz {
namespace {

constexpr uint32_t kHeader = 64;

const reflection::Schema& schema() {
  return *reflection::GetSchema(fb::ProgramBinarySchema::data());
}

// The name without its namespace.
std::string short_name(const reflection::Object& object) {
  const std::string name = object.name()->str();
  return name.substr(name.rfind('.') + 1);
}

uint32_t width_of(reflection::BaseType type) {
  switch (type) {
    case reflection::Bool:
    case reflection::Byte:
    case reflection::UByte:
    case reflection::UType: return 1;
    case reflection::Short:
    case reflection::UShort: return 2;
    case reflection::Long:
    case reflection::ULong:
    case reflection::Double: return 8;
    default: return 4;
  }
}

std::string name_of_scalar(uint16_t code) {
  switch (code) {
#define HUSK_SCALAR(code, name, result, a, b, c) \
  case code: return #name;
#include <ops.def>
    default: return std::to_string(code);
  }
}

std::string name_of_step(uint16_t code) {
  switch (code) {
#define HUSK_STEP(code, name, a) \
  case code: return #name;
#include <ops.def>
    default: return std::to_string(code);
  }
}

class Finder {
 public:
  explicit Finder(const std::vector<uint8_t>& file) : begin_(file.data()) {}

  void find(Fields* out) {
    out_ = out;
    const uint8_t* root = begin_ + kHeader;
    table(*schema().root_table(), root + read<uint32_t>(root));
  }

 private:
  template <class T>
  static T read(const uint8_t* at) {
    T value;
    std::memcpy(&value, at, sizeof(T));
    return value;
  }

  void add(const uint8_t* at, uint32_t width, const std::string& name, const std::string& in_schema,
           FieldKind kind, bool required = false) {
    const auto [row, is_new] = rows_.insert(
        {name + '|' + std::to_string(int(kind)), out_->fields.size()});
    if (is_new) out_->fields.push_back({name, in_schema, kind, required, {}});
    out_->fields[row->second].places.push_back({static_cast<uint32_t>(at - begin_), width});
  }

  void table(const reflection::Object& object, const uint8_t* at) {
    const uint8_t* vtable = at - read<int32_t>(at);
    for (const reflection::Field* field : *object.fields()) {
      if (field->offset() >= read<uint16_t>(vtable)) continue;
      const uint8_t* entry = vtable + field->offset();
      const uint16_t position = read<uint16_t>(entry);
      if (position == 0) continue;
      const std::string name = short_name(object) + '.' + field->name()->str();
      add(entry, 2, name, name, FieldKind::entry, field->required());
      value(*field->type(), field->type()->base_type(), at + position, name);
    }
  }

  // Adds the value of a table's field or the element of a vector.
  void value(const reflection::Type& type, reflection::BaseType base, const uint8_t* at,
             const std::string& name) {
    const reflection::Object* object = base == reflection::Obj || type.element() == reflection::Obj
                                           ? schema().objects()->Get(
                                                 static_cast<uint32_t>(type.index()))
                                           : nullptr;
    if (base == reflection::Obj && object->is_struct())
      return structure(*object, at, name, context(name, at));
    if (base != reflection::Obj && base != reflection::Vector && base != reflection::String)
      return add(at, width_of(base), name, name, FieldKind::number);
    add(at, 4, name, name, FieldKind::reference);
    const uint8_t* target = at + read<uint32_t>(at);
    if (base == reflection::Obj) return table(*object, target);
    add(target, 4, name, name, FieldKind::length);
    const uint32_t count = read<uint32_t>(target);
    const uint8_t* first = target + 4;
    if (base == reflection::String) {
      for (uint32_t i = 0; i < count; ++i) add(first + i, 1, name, name, FieldKind::letter);
      return add(first + count, 1, name, name, FieldKind::terminator);
    }
    const bool is_struct = object && object->is_struct();
    const bool is_row = is_struct || (!object && type.element() != reflection::String);
    const uint32_t size = is_struct ? static_cast<uint32_t>(object->bytesize())
                          : is_row  ? width_of(type.element())
                                    : 4;
    for (uint32_t i = 0; i < count; ++i) value(type, type.element(), first + i * size, name);
    if (count > 1 && is_row)
      out_->tables.push_back({static_cast<uint32_t>(first - begin_), size, count});
  }

  // The words before the names of a row's fields; "" if they are those of the schema.
  static std::string context(const std::string& name, const uint8_t* row) {
    static const char* const kKinds[] = {"none",   "view",  "int",  "float",  "tensor", "ints",
                                         "string", "dtype", "null", "result", "floats", "tensors"};
    if (name == "Variant.scalars") return "scalar " + name_of_scalar(read<uint16_t>(row));
    if (name == "Variant.steps") return "step " + name_of_step(read<uint16_t>(row));
    const std::string kind = row[0] < std::size(kKinds) ? kKinds[row[0]] : "?";
    if (name == "Variant.arguments") return "argument " + kind;
    if (name == "Variant.results") return "result " + kind;
    return "";
  }

  void structure(const reflection::Object& object, const uint8_t* at, const std::string& of,
                 const std::string& context) {
    for (const reflection::Field* field : *object.fields()) {
      const reflection::Type& type = *field->type();
      const std::string name = short_name(object) + '.' + field->name()->str();
      const std::string shown = context.empty() ? name : context + '.' + field->name()->str();
      const uint8_t* place = at + field->offset();
      if (type.base_type() == reflection::Obj)
        structure(*schema().objects()->Get(static_cast<uint32_t>(type.index())), place, of, "");
      else if (type.base_type() == reflection::Array)
        add(place, width_of(type.element()), shown, name, FieldKind::number);
      else
        add(place, width_of(type.base_type()), shown, name, FieldKind::number);
    }
  }

  const uint8_t* begin_;
  Fields* out_ = nullptr;
  std::map<std::string, size_t> rows_;
};

}  // namespace

Fields find_fields(const std::vector<uint8_t>& file) {
  Fields out;
  Finder(file).find(&out);
  return out;
}

std::vector<std::string> fields_of_schema() {
  std::vector<std::string> names;
  for (const reflection::Object* object : *schema().objects())
    for (const reflection::Field* field : *object->fields())
      if (!object->is_struct() || field->type()->base_type() != reflection::Obj)
        names.push_back(short_name(*object) + '.' + field->name()->str());
  return names;
}

std::vector<std::string> lists_of_schema() {
  std::vector<std::string> names;
  for (const reflection::Object* object : *schema().objects())
    for (const reflection::Field* field : *object->fields())
      if (!object->is_struct() && (field->type()->base_type() == reflection::String ||
                                   field->type()->base_type() == reflection::Vector))
        names.push_back(short_name(*object) + '.' + field->name()->str());
  return names;
}

uint64_t load(const std::vector<uint8_t>& file, Place place) {
  uint64_t value = 0;
  std::memcpy(&value, file.data() + place.offset, place.width);
  return value;
}

void store(std::vector<uint8_t>& file, Place place, uint64_t value) {
  std::memcpy(file.data() + place.offset, &value, place.width);
}

const Field& change_field(std::vector<uint8_t>& file, const Fields& fields, std::mt19937& random) {
  // References and vtables are refused by one reason, so most changes are those of numbers.
  const Field* field = nullptr;
  for (int tries = 0; tries < 4; ++tries) {
    field = &fields.fields[random() % fields.fields.size()];
    if (field->kind == FieldKind::number) break;
  }
  const Place place = field->places[random() % field->places.size()];
  uint64_t value = load(file, place);
  switch (random() % 8) {
    case 0: value += 1; break;
    case 1: value -= 1; break;
    case 2: value = random() % 20; break;
    case 3: value = ~0ull; break;                            // "none", -1
    case 4: value = ~0ull >> (65 - 8 * place.width); break;  // the largest signed number
    case 5: value ^= 1ull << random() % (8 * place.width); break;
    case 6: value = load(file, field->places[random() % field->places.size()]); break;
    default: value = static_cast<uint64_t>(random()) << 32 | random(); break;
  }
  store(file, place, value);
  return *field;
}

void change_literal(std::vector<uint8_t>& file, const Fields& fields, std::mt19937& random) {
  constexpr int64_t kValues[] = {0,
                                 1,
                                 2,
                                 3,
                                 4,
                                 5,
                                 8,
                                 16,
                                 64,
                                 -1,
                                 -2,
                                 int64_t{1} << 31,
                                 int64_t{1} << 32,
                                 int64_t{1} << 62,
                                 INT64_MAX,
                                 INT64_MIN};
  for (const Field& field : fields.fields) {
    if (field.name != "scalar const.b") continue;
    // b and c are the halves of the literal.
    const auto literal = [&] {
      return Place{field.places[random() % field.places.size()].offset, 8};
    };
    const Place place = literal();
    uint64_t value = load(file, place);
    switch (random() % 4) {
      case 0: value += random() % 2 ? 1 : ~0ull; break;
      case 1: value = load(file, literal()); break;
      default: value = static_cast<uint64_t>(kValues[random() % std::size(kValues)]);
    }
    return store(file, place, value);
  }
}

void change_rows(std::vector<uint8_t>& file, const Fields& fields, std::mt19937& random) {
  if (fields.tables.empty()) return;
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
    uint8_t& byte = file[kHeader + random() % metadata];
    switch (random() % 4) {
      case 0: byte = static_cast<uint8_t>(random()); break;
      case 1: ++byte; break;
      case 2: --byte; break;
      default: byte ^= static_cast<uint8_t>(1u << random() % 8);
    }
  }
}

}  // namespace husk::fuzz
