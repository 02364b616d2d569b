#include "layout.h"

#include <husk_generated.h>

#include <cstring>

namespace husk {
namespace {

// FlatBuffers generates such checks too, as code for each field: five times the size of these rows and their reader.
// layout_test holds the two against each other.
enum class Kind : uint8_t { end, plain, text, vector, texts, tables };

struct Field {
  uint8_t slot;      // in the vtable
  Kind kind;
  uint8_t size;      // of an element; for tables, which one of kFields they are
  uint8_t align;
  bool required;
};

template <class T>
constexpr uint8_t kTable = 0;   // the position of a table's fields in kFields
template <> constexpr uint8_t kTable<fb::Target> = 1;
template <> constexpr uint8_t kTable<fb::Image> = 2;
template <> constexpr uint8_t kTable<fb::Kernel> = 3;
template <> constexpr uint8_t kTable<fb::Constant> = 4;
template <> constexpr uint8_t kTable<fb::State> = 5;
template <> constexpr uint8_t kTable<fb::Value> = 6;
template <> constexpr uint8_t kTable<fb::Variant> = 7;
template <> constexpr uint8_t kTable<fb::Function> = 8;
template <> constexpr uint8_t kTable<fb::Entry> = 9;

// What a field holds follows from the type of its accessor.
template <class T>
struct Held {
  static constexpr Field field = {0, Kind::plain, sizeof(T), alignof(T), false};
};
template <class T>
struct Held<const T*> : Held<T> {};
template <>
struct Held<const flatbuffers::String*> {
  static constexpr Field field = {0, Kind::text, 1, 1, false};
};
template <class T>
struct Held<const flatbuffers::Vector<T>*> {
  static constexpr Field field = {0, Kind::vector, sizeof(T), alignof(T), false};
};
template <class T>
struct Held<const flatbuffers::Vector<const T*>*> : Held<const flatbuffers::Vector<T>*> {};
template <>
struct Held<const flatbuffers::Vector<flatbuffers::Offset<flatbuffers::String>>*> {
  static constexpr Field field = {0, Kind::texts, 0, 4, false};
};
template <class T>
struct Held<const flatbuffers::Vector<flatbuffers::Offset<T>>*> {
  static constexpr Field field = {0, Kind::tables, kTable<T>, 4, false};
};

template <class Table, class T>
constexpr Field field(T (Table::*)() const, uint8_t slot) {
  Field row = Held<T>::field;
  row.slot = slot;
  return row;
}
template <class Table, class T>
constexpr Field required(T (Table::*accessor)() const, uint8_t slot) {
  Field row = field(accessor, slot);
  row.required = true;
  return row;
}

constexpr Field kEnd = {0, Kind::end, 0, 0, false};

constexpr Field kFields[] = {
    required(&fb::Program::producer, fb::Program::VT_PRODUCER),
    required(&fb::Program::targets, fb::Program::VT_TARGETS),
    field(&fb::Program::images, fb::Program::VT_IMAGES),
    field(&fb::Program::kernels, fb::Program::VT_KERNELS),
    field(&fb::Program::ops, fb::Program::VT_OPS),
    field(&fb::Program::constants, fb::Program::VT_CONSTANTS),
    field(&fb::Program::states, fb::Program::VT_STATES),
    required(&fb::Program::functions, fb::Program::VT_FUNCTIONS),
    field(&fb::Program::strings, fb::Program::VT_STRINGS),
    field(&fb::Program::user, fb::Program::VT_USER),
    field(&fb::Program::tree, fb::Program::VT_TREE),
    kEnd,
    required(&fb::Target::port, fb::Target::VT_PORT),
    required(&fb::Target::arch, fb::Target::VT_ARCH),
    kEnd,
    field(&fb::Image::target, fb::Image::VT_TARGET),
    field(&fb::Image::format, fb::Image::VT_FORMAT),
    required(&fb::Image::blob, fb::Image::VT_BLOB),
    required(&fb::Image::name, fb::Image::VT_NAME),
    kEnd,
    required(&fb::Kernel::name, fb::Kernel::VT_NAME),
    required(&fb::Kernel::symbol, fb::Kernel::VT_SYMBOL),
    field(&fb::Kernel::image, fb::Kernel::VT_IMAGE),
    field(&fb::Kernel::params, fb::Kernel::VT_PARAMS),
    required(&fb::Kernel::block, fb::Kernel::VT_BLOCK),
    field(&fb::Kernel::shared, fb::Kernel::VT_SHARED),
    field(&fb::Kernel::cluster, fb::Kernel::VT_CLUSTER),
    field(&fb::Kernel::flags, fb::Kernel::VT_FLAGS),
    kEnd,
    required(&fb::Constant::name, fb::Constant::VT_NAME),
    field(&fb::Constant::dtype, fb::Constant::VT_DTYPE),
    field(&fb::Constant::dims, fb::Constant::VT_DIMS),
    required(&fb::Constant::blob, fb::Constant::VT_BLOB),
    kEnd,
    required(&fb::State::name, fb::State::VT_NAME),
    field(&fb::State::dtype, fb::State::VT_DTYPE),
    field(&fb::State::dims, fb::State::VT_DIMS),
    field(&fb::State::init, fb::State::VT_INIT),
    field(&fb::State::fill, fb::State::VT_FILL),
    kEnd,
    required(&fb::Value::name, fb::Value::VT_NAME),
    field(&fb::Value::kind, fb::Value::VT_KIND),
    field(&fb::Value::dtype, fb::Value::VT_DTYPE),
    field(&fb::Value::rank, fb::Value::VT_RANK),
    field(&fb::Value::dims, fb::Value::VT_DIMS),
    kEnd,
    field(&fb::Variant::target, fb::Variant::VT_TARGET),
    field(&fb::Variant::scalars, fb::Variant::VT_SCALARS),
    field(&fb::Variant::steps, fb::Variant::VT_STEPS),
    required(&fb::Variant::segments, fb::Variant::VT_SEGMENTS),
    field(&fb::Variant::arguments, fb::Variant::VT_ARGUMENTS),
    field(&fb::Variant::operands, fb::Variant::VT_OPERANDS),
    field(&fb::Variant::buffers, fb::Variant::VT_BUFFERS),
    field(&fb::Variant::views, fb::Variant::VT_VIEWS),
    field(&fb::Variant::tensors, fb::Variant::VT_TENSORS),
    field(&fb::Variant::results, fb::Variant::VT_RESULTS),
    field(&fb::Variant::origins, fb::Variant::VT_ORIGINS),
    field(&fb::Variant::names, fb::Variant::VT_NAMES),
    field(&fb::Variant::order, fb::Variant::VT_ORDER),
    kEnd,
    required(&fb::Function::name, fb::Function::VT_NAME),
    field(&fb::Function::inputs, fb::Function::VT_INPUTS),
    field(&fb::Function::outputs, fb::Function::VT_OUTPUTS),
    required(&fb::Function::variants, fb::Function::VT_VARIANTS),
    kEnd,
    required(&fb::Entry::key, fb::Entry::VT_KEY),
    required(&fb::Entry::value, fb::Entry::VT_VALUE),
    kEnd,
};

constexpr uint32_t kMaxTables = 10000000;  // tables may be named twice: a small file could be a long walk

class Reader {
 public:
  Reader(const void* bytes, size_t size) : bytes_(static_cast<const uint8_t*>(bytes)), size_(size) {}

  bool root() {
    size_t at = 0;
    return size_ >= 8 && memcmp(bytes_ + 4, fb::ProgramIdentifier(), 4) == 0 && follow(&at) && table(at, 0);
  }

 private:
  template <class T>
  T load(size_t at) const {
    T value;
    memcpy(&value, bytes_ + at, sizeof(value));
    return value;
  }

  bool holds(size_t at, size_t size, size_t align) const {
    return at <= size_ && size <= size_ - at && (at & (align - 1)) == 0;
  }

  // Moves to what an offset leads to.
  bool follow(size_t* at) const {
    if (!holds(*at, 4, 4)) return false;
    const int32_t distance = load<int32_t>(*at);
    *at += static_cast<size_t>(distance);
    return distance > 0;
  }

  bool table(size_t at, uint8_t which) {
    if (!holds(at, 4, 4) || ++tables_ > kMaxTables) return false;
    const size_t vtable = at - static_cast<size_t>(static_cast<int64_t>(load<int32_t>(at)));  // either way; holds() sees a wrap
    if (!holds(vtable, 2, 2)) return false;
    const uint16_t length = load<uint16_t>(vtable);
    if (length % 2 || !holds(vtable, length, 2)) return false;
    const Field* field = kFields;
    while (which) which = static_cast<uint8_t>(which - (field++->kind == Kind::end));
    for (; field->kind != Kind::end; ++field) {
      const uint16_t offset = field->slot < length ? load<uint16_t>(vtable + field->slot) : uint16_t{0};
      if (offset ? !value(at + offset, *field) : field->required) return false;
    }
    return true;
  }

  bool value(size_t at, const Field& field) {
    if (field.kind == Kind::plain) return holds(at, field.size, field.align);
    if (!follow(&at) || !holds(at, 4, 4)) return false;
    const size_t count = load<uint32_t>(at);
    at += 4;
    const bool nested = field.kind == Kind::texts || field.kind == Kind::tables;
    if (!holds(at, count * (nested ? 4 : field.size), field.align)) return false;
    if (field.kind == Kind::text) return at + count < size_ && bytes_[at + count] == 0;
    for (size_t i = 0; nested && i < count; ++i, at += 4) {
      size_t item = at;
      if (field.kind == Kind::texts ? !value(at, kText) : !follow(&item) || !table(item, field.size)) return false;
    }
    return true;
  }

  static constexpr Field kText = Held<const flatbuffers::String*>::field;

  const uint8_t* bytes_;
  size_t size_;
  uint32_t tables_ = 0;
};

}  // namespace

bool is_well_formed(const void* bytes, size_t size) { return Reader(bytes, size).root(); }

}  // namespace husk
