#include "model/verify.h"

#include <cstdlib>
#include <cstring>

#include <husk/husk.h>

#include "base/limits.h"

namespace husk {
namespace {

bool valid_dtype(uint8_t dtype) {
  return husk_dtype_size(static_cast<husk_dtype>(dtype)) > 0 && dtype != HUSK_POINTER;
}

int compare_names(const void* a, const void* b) {
  return strcmp(*static_cast<const char* const*>(a), *static_cast<const char* const*>(b));
}

// Checks that each of `rows` has a name, and that no two have the same.
Status unique_names(const NamedTables* rows, const char* what, const husk_allocator& allocator,
                    husk_error* error) {
  const uint32_t n = count(rows);
  Array<const char*> names;
  HUSK_TRY(names.allocate(allocator, n, error));
  for (uint32_t i = 0; i < n; ++i) {
    names[i] = rows->Get(i)->name()->c_str();
    if (!*names[i]) return invalid_file(error, "%s %u has no name", what, i);
  }
  if (n > 1) qsort(names.data(), n, sizeof(const char*), compare_names);
  for (uint32_t i = 1; i < n; ++i)
    if (strcmp(names[i - 1], names[i]) == 0)
      return invalid_file(error, "two %ss are named '%s'", what, names[i]);
  return Status::ok;
}

Status verify_blob(const Container& file, const fb::Blob* blob, uint64_t align, const char* what,
                   const char* name, husk_error* error) {
  uint64_t end;
  if (blob->offset() % align || __builtin_add_overflow(blob->offset(), blob->size(), &end) ||
      end > file.blob_bytes())
    return invalid_file(error, "%s '%s' lies outside the file, or not at a multiple of %llu", what,
                        name, static_cast<unsigned long long>(align));
  return Status::ok;
}

Status verify_images(const Container& file, husk_error* error) {
  const fb::Program* p = file.program();
  for (uint32_t i = 0; i < count(p->targets()); ++i) {
    const fb::Target* target = p->targets()->Get(i);
    if (!target->port()->size() || !target->arch()->size())
      return invalid_file(error, "target %u has no port or architecture", i);
  }
  for (uint32_t i = 0; i < count(p->images()); ++i) {
    const fb::Image* image = p->images()->Get(i);
    const char* name = image->name()->c_str();
    if (image->target() >= count(p->targets()) || image->format() < HUSK_IMAGE_ELF ||
        image->format() > HUSK_IMAGE_PTX)
      return invalid_file(error, "image '%s': unknown target or format", name);
    HUSK_TRY(verify_blob(file, image->blob(), kImageAlign, "image", name, error));
    if (image->format() == HUSK_IMAGE_PTX &&
        (image->blob()->size() == 0 || file.blob(image->blob())[image->blob()->size() - 1] != 0))
      return invalid_file(error, "image '%s' is PTX without a terminating NUL", name);
  }
  return Status::ok;
}

Status verify_kernels(const fb::Program* p, husk_error* error) {
  for (uint32_t i = 0; i < count(p->kernels()); ++i) {
    const fb::Kernel* kernel = p->kernels()->Get(i);
    const char* name = kernel->name()->c_str();
    if (kernel->image() >= count(p->images()))
      return invalid_file(error, "kernel '%s': its image does not exist", name);
    uint64_t threads = 1;
    bool block = kernel->block()->size() == 3;
    for (uint32_t d = 0; block && d < 3; ++d) {
      const uint32_t size = kernel->block()->Get(d);
      block = size >= 1 && size <= limits::kMaxBlockThreads;
      threads *= size;
    }
    if (!block || threads > limits::kMaxBlockThreads)
      return invalid_file(error, "kernel '%s': its block is not of 1..1024 threads", name);
    const uint32_t flags = kernel->flags();
    if (flags > (kPdl | kCooperative | kTriggersEarly) || (flags & kPdl) == kPdl ||
        kernel->cluster() < 1 || kernel->cluster() > limits::kMaxCluster)
      return invalid_file(error, "kernel '%s': unknown flag, or a cluster outside 1..16", name);
    for (uint32_t d = 0; d < count(kernel->params()); ++d)
      if (kernel->params()->Get(d) != HUSK_POINTER && !valid_dtype(kernel->params()->Get(d)))
        return invalid_file(error, "kernel '%s': unknown type of parameter %u", name, d);
  }
  return Status::ok;
}

// Constants may share bytes, so their sum may pass the size of the file.
constexpr uint64_t kMaxConstantBytes = uint64_t{1} << 62;

Status verify_data(const Container& file, const husk_allocator& allocator, husk_error* error) {
  const fb::Program* p = file.program();
  uint64_t bytes, total = 0;
  for (uint32_t i = 0; i < count(p->constants()); ++i) {
    const fb::Constant* constant = p->constants()->Get(i);
    const char* name = constant->name()->c_str();
    const Rows<int64_t> dims(constant->dims());
    if (!dense_bytes(constant->dtype(), dims.data(), dims.size, &bytes) ||
        constant->blob()->size() != (constant->folded_by() == kNone ? bytes : 0))
      return invalid_file(error, "constant '%s': its size is not that of its dtype and dims", name);
    HUSK_TRY(verify_blob(file, constant->blob(), kBlobAlign, "constant", name, error));
    total += bytes;  // both are below 2^63
    if (total > kMaxConstantBytes)
      return invalid_file(error, "constant '%s': with those before it, it has more than 2^62 bytes",
                          name);
  }
  HUSK_TRY(unique_names(named(p->constants()), "constant", allocator, error));
  const fb::Hash* last = nullptr;
  for (const fb::PackedCopy& copy : Rows<fb::PackedCopy>(p->packed())) {
    if (copy.blob().size() == 0 || (last && memcmp(last, &copy.key(), sizeof(*last)) >= 0))
      return invalid_file(error, "packed copies are empty, or not in the order of their keys");
    last = &copy.key();
    HUSK_TRY(verify_blob(file, &copy.blob(), kImageAlign, "packed copy", "of a constant", error));
  }
  for (uint32_t i = 0; i < count(p->states()); ++i) {
    const fb::State* state = p->states()->Get(i);
    const char* name = state->name()->c_str();
    const Rows<int64_t> dims(state->dims());
    if (!dense_bytes(state->dtype(), dims.data(), dims.size, &bytes))
      return invalid_file(error, "state '%s': unknown dtype or invalid dims", name);
    if (state->init() != kNone && (state->init() >= count(p->constants()) ||
                                   p->constants()->Get(state->init())->blob()->size() != bytes))
      return invalid_file(error, "state '%s': its constant does not exist or has another size",
                          name);
    if (state->init() == kNone && husk_dtype_size(static_cast<husk_dtype>(state->dtype())) > 8 &&
        state->fill() != 0)
      return invalid_file(
          error, "state '%s': an element of more than 8 bytes is filled with 0 only", name);
  }
  return unique_names(named(p->states()), "state", allocator, error);
}

struct PlacedBlob {
  const fb::Blob* blob;
  uint32_t row;
};

int compare_offsets(const void* a, const void* b) {
  const uint64_t x = static_cast<const PlacedBlob*>(a)->blob->offset(),
                 y = static_cast<const PlacedBlob*>(b)->blob->offset();
  return x < y ? -1 : x > y;
}

// Checks that two blobs are either apart or the same bytes with the same hash.
Status verify_places(Container& file, const husk_allocator& allocator, husk_error* error) {
  const uint32_t all = file.blob_rows();
  Array<PlacedBlob> blobs;
  HUSK_TRY(blobs.allocate(allocator, all, error));
  HUSK_TRY(file.same_bytes.allocate(allocator, all, error));
  size_t n = 0;
  for (uint32_t row = 0; row < all; ++row) {
    blobs[n] = {file.blob_of(row), row};
    file.same_bytes[row] = row;
    n += blobs[n].blob->size() > 0;
  }
  if (n > 1) qsort(blobs.data(), n, sizeof(PlacedBlob), compare_offsets);
  for (size_t i = 1; i < n; ++i) {
    const PlacedBlob &last = blobs[i - 1], &next = blobs[i];
    if (last.blob->offset() + last.blob->size() <= next.blob->offset()) continue;
    if (memcmp(last.blob, next.blob, sizeof(fb::Blob)) != 0)
      return invalid_file(error, "different images or constants overlap at byte %llu of the blobs",
                          static_cast<unsigned long long>(next.blob->offset()));
    file.same_bytes[next.row] = file.same_bytes[last.row];
  }
  return Status::ok;
}

Status verify_value(const fb::Value* value, bool input, const char* function, husk_error* error) {
  const char* name = value->name()->c_str();
  bool good = value->kind() <= HUSK_VALUE_BOOL && value->rank() <= limits::kMaxRank;
  const uint32_t dims = count(value->dims());
  if (value->kind() == HUSK_VALUE_TENSOR)
    good = good && valid_dtype(value->dtype()) && (!input || dims == value->rank());
  else
    good = good && value->dtype() == 0 && value->rank() == 0 &&
           dims <= (value->kind() == HUSK_VALUE_INT && input);
  const bool sizes = value->kind() == HUSK_VALUE_TENSOR;
  for (uint32_t d = 0; good && d < dims; ++d) {
    const fb::Dim* dim = value->dims()->Get(d);
    good = dim->min() <= dim->max() && (!sizes || dim->min() >= 0);
  }
  if (good) return Status::ok;
  return invalid_file(error, "function '%s': invalid kind, dtype, rank or range of '%s'", function,
                      name);
}

Status verify_function(const fb::Program* p, const fb::Function* f, const husk_allocator& allocator,
                       Marks& marks, Marks& targets, husk_error* error) {
  const char* name = f->name()->c_str();
  for (uint32_t i = 0; i < count(f->inputs()); ++i)
    HUSK_TRY(verify_value(f->inputs()->Get(i), true, name, error));
  for (uint32_t i = 0; i < count(f->outputs()); ++i)
    HUSK_TRY(verify_value(f->outputs()->Get(i), false, name, error));
  HUSK_TRY(unique_names(named(f->inputs()), "input", allocator, error));
  HUSK_TRY(unique_names(named(f->outputs()), "output", allocator, error));
  const uint32_t variants = count(f->variants());
  if (variants == 0 || variants > count(p->targets()))
    return invalid_file(error, "function '%s': %u variants for %u targets", name, variants,
                        count(p->targets()));
  targets.clear();
  for (uint32_t i = 0; i < variants; ++i) {
    const fb::Variant* variant = f->variants()->Get(i);
    if (variant->target() >= count(p->targets()) || !targets.add(variant->target()))
      return invalid_file(
          error, "function '%s': variant %u names no target, or that of another variant", name, i);
    Status status = verify_variant(Code(p, f, variant), marks, error);
    if (failed(status)) {
      prefix(error, "function '%s', variant %u: ", name, i);
      return status;
    }
  }
  return Status::ok;
}

// Returns whether output `value` of a function without inputs can be constant `row`.
bool is_folded(const fb::Constant* row, uint32_t function, const fb::Value* value) {
  return row->folded_by() == function && value->kind() == HUSK_VALUE_TENSOR &&
         value->dtype() == row->dtype() && value->rank() == count(row->dims());
}

// Checks the functions that compute constants (FORMAT.md, "Folded constants").
Status verify_folding(Container& file, husk_error* error) {
  const fb::Program* p = file.program();
  const uint32_t constants = count(p->constants()), functions = count(p->functions());
  uint32_t& stored = file.stored_constants;
  while (stored < constants && p->constants()->Get(stored)->folded_by() == kNone) ++stored;
  file.entry_points = stored < constants ? p->constants()->Get(stored)->folded_by() : functions;
  uint32_t constant = stored;
  for (uint32_t f = file.entry_points; f < functions; ++f) {
    const fb::Function* function = p->functions()->Get(f);
    bool good = count(function->inputs()) == 0 && count(function->variants()) == 1;
    for (uint32_t o = 0; good && o < count(function->outputs()); ++o, ++constant)
      good = constant < constants &&
             is_folded(p->constants()->Get(constant), f, function->outputs()->Get(o));
    Rows<fb::Buffer> buffers;
    if (good) buffers = function->variants()->Get(0)->buffers();
    for (const fb::Buffer& buffer : buffers)
      good = good && buffer.space() != uint8_t(Space::state) &&
             (buffer.space() != uint8_t(Space::constant) || buffer.index() < stored);
    if (!good)
      return invalid_file(error,
                          "function '%s' folds constants: it must have one variant, no input, no "
                          "state and no folded constant, and its outputs must be the constants",
                          function->name()->c_str());
  }
  if (constant == constants) return Status::ok;
  return invalid_file(error, "constant '%s' must be an output of the function that folds it",
                      p->constants()->Get(constant)->name()->c_str());
}

Status verify_world(const Container& file, husk_error* error) {
  const fb::World* world = file.program()->world();
  const uint32_t size = world ? world->size() : 0, rank = world ? world->rank() : 0;
  if (world && (size == 0 || size > limits::kMaxWorld || rank >= size))
    return invalid_file(error, "it is for rank %u of %u ranks, which does not exist", rank, size);
  if (file.ranks() && (size != file.ranks() || rank != file.rank()))
    return invalid_file(error, "in the place of rank %u of %u is an artifact of rank %u of %u",
                        file.rank(), file.ranks(), rank, size);
  return Status::ok;
}

// A field of a table that is a text or a vector, and the bytes of an element.
struct Field {
  flatbuffers::voffset_t slot;
  uint16_t width;
};

using AnyTables = Tables<flatbuffers::Table>;
template <class T>
const AnyTables* any(const Tables<T>* tables) {
  return reinterpret_cast<const AnyTables*>(tables);
}

constexpr Field kTargetFields[] = {{fb::Target::VT_PORT, 1}, {fb::Target::VT_ARCH, 1}};
constexpr Field kImageFields[] = {{fb::Image::VT_NAME, 1}};
constexpr Field kKernelFields[] = {{fb::Kernel::VT_NAME, 1},
                                   {fb::Kernel::VT_SYMBOL, 1},
                                   {fb::Kernel::VT_PARAMS, 1},
                                   {fb::Kernel::VT_BLOCK, sizeof(uint32_t)}};
constexpr Field kConstantFields[] = {{fb::Constant::VT_NAME, 1},
                                     {fb::Constant::VT_DIMS, sizeof(int64_t)}};
constexpr Field kStateFields[] = {{fb::State::VT_NAME, 1}, {fb::State::VT_DIMS, sizeof(int64_t)}};
constexpr Field kValueFields[] = {{fb::Value::VT_NAME, 1}, {fb::Value::VT_DIMS, sizeof(fb::Dim)}};
constexpr Field kFunctionFields[] = {{fb::Function::VT_NAME, 1}};
constexpr Field kEntryFields[] = {{fb::Entry::VT_KEY, 1}, {fb::Entry::VT_VALUE, 1}};
constexpr Field kVariantFields[] = {{fb::Variant::VT_SCALARS, sizeof(fb::Instruction)},
                                    {fb::Variant::VT_STEPS, sizeof(fb::Instruction)},
                                    {fb::Variant::VT_SEGMENTS, sizeof(fb::Segment)},
                                    {fb::Variant::VT_ARGUMENTS, sizeof(fb::Argument)},
                                    {fb::Variant::VT_OPERANDS, sizeof(uint32_t)},
                                    {fb::Variant::VT_BUFFERS, sizeof(fb::Buffer)},
                                    {fb::Variant::VT_VIEWS, sizeof(fb::View)},
                                    {fb::Variant::VT_TENSORS, sizeof(fb::Tensor)},
                                    {fb::Variant::VT_RESULTS, sizeof(fb::Argument)},
                                    {fb::Variant::VT_ORIGINS, sizeof(uint32_t)},
                                    {fb::Variant::VT_NAMES, sizeof(uint32_t)},
                                    {fb::Variant::VT_PLACEMENT_ORDER, sizeof(uint32_t)}};

// Counts the bytes that a reader of the metadata looks at: rows and texts, as often as a table or
// an argument names them. FlatBuffers let many tables share rows and texts, which would make a
// small file take long.
class Visits {
 public:
  explicit Visits(const fb::Program* p) {
    for (const auto* list : {p->ops(), p->strings(), p->asserts()})
      for (uint32_t i = 0; i < count(list); ++i) bytes += list->Get(i)->size();
    add(any(p->metadata()), kEntryFields);
    add(any(p->targets()), kTargetFields);
    add(any(p->images()), kImageFields);
    add(any(p->kernels()), kKernelFields);
    add(any(p->constants()), kConstantFields);
    add(any(p->states()), kStateFields);
    add(any(p->functions()), kFunctionFields);
    for (uint32_t i = 0; i < count(p->functions()); ++i) {
      const fb::Function* f = p->functions()->Get(i);
      add(any(f->inputs()), kValueFields);
      add(any(f->outputs()), kValueFields);
      add(any(f->variants()), kVariantFields);
      for (uint32_t v = 0; v < count(f->variants()); ++v) add(Code(p, f, f->variants()->Get(v)));
    }
  }

  uint64_t bytes = 0;
  size_t marks = 0;  // the largest number of marks that a variant needs

 private:
  template <size_t n>
  void add(const AnyTables* tables, const Field (&fields)[n]) {
    add(tables, fields, n);
  }
  void add(const AnyTables* tables, const Field* fields, size_t n) {
    for (uint32_t i = 0; i < count(tables); ++i)
      for (size_t f = 0; f < n; ++f)
        bytes += uint64_t{count(tables->Get(i)->GetPointer<const flatbuffers::Vector<uint8_t>*>(
                     fields[f].slot))} *
                 fields[f].width;
  }

  // Counts the lists of a variant, the inputs that it shares with others, and the marks that it
  // needs.
  void add(const Code& code) {
    bytes += uint64_t{code.inputs()} * sizeof(uint32_t);
    for (const fb::Argument& argument : code.arguments) {
      const auto kind = static_cast<ArgumentKind>(argument.kind());
      if ((kind == ArgumentKind::integers || kind == ArgumentKind::floats) &&
          argument.count() <= code.operands.size)  // other lists are refused without a look at them
        bytes += uint64_t{argument.count()} * sizeof(uint32_t);
    }
    const size_t wanted = size_t{code.inputs()} + code.outputs() +
                          count(code.program->constants()) + count(code.program->states()) +
                          code.order.size;
    if (wanted > marks) marks = wanted;
  }
};

// The compiler shares no rows, only texts and lists of numbers, and these are short.
constexpr uint64_t kMaxVisits = 8;

}  // namespace

Status verify(Container& file, const husk_allocator& allocator, husk_error* error) {
  const fb::Program* p = file.program();
  const Visits visits(p);
  if (visits.bytes > kMaxVisits * file.metadata_bytes())
    return invalid_file(error,
                        "the metadata names its rows or texts too often: their bytes, counted each "
                        "time, are more than %u times the metadata",
                        unsigned(kMaxVisits));
  Marks marks, targets;
  HUSK_TRY(marks.allocate(allocator, visits.marks, error));
  HUSK_TRY(targets.allocate(allocator, count(p->targets()), error));
  HUSK_TRY(verify_images(file, error));
  HUSK_TRY(verify_kernels(p, error));
  HUSK_TRY(verify_world(file, error));
  HUSK_TRY(verify_data(file, allocator, error));
  HUSK_TRY(verify_places(file, allocator, error));
  HUSK_TRY(unique_names(named(p->functions()), "function", allocator, error));
  HUSK_TRY(verify_folding(file, error));
  if (file.entry_points == 0) return invalid_file(error, "the artifact has no function");
  for (uint32_t i = 0; i < count(p->functions()); ++i)
    HUSK_TRY(verify_function(p, p->functions()->Get(i), allocator, marks, targets, error));
  return Status::ok;
}

}  // namespace husk
