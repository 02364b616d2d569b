#include "program/packed.h"

#include <cstdlib>
#include <cstring>

#include "base/align.h"
#include "base/limits.h"
#include "model/shape.h"
#include "program/op_arguments.h"
#include "program/program.h"

namespace husk::runtime {
namespace {

constexpr uint64_t kCopyAlign = 64;
constexpr uint64_t kMostBytes = uint64_t{1} << 62;

// Reads a register whose value the file fixes. Those of a segment that may be skipped are then 0.
bool is_known(const Code& code, uint32_t reg, Scalar op, int64_t* out) {
  const fb::Instruction& scalar = code.scalars[reg];
  if (static_cast<Scalar>(scalar.op()) != op || code.segments[code.segment_of(reg)].when() != kNone)
    return false;
  *out = immediate(scalar);
  return true;
}

// A constant among the arguments of a call, where its bytes are at `offset`.
struct ConstantTensor {
  uint32_t constant;
  int64_t offset;
};

// Returns whether an argument, which is written to `known`, is a constant whose place, sizes and
// strides the file fixes, and whose elements are different ones of the constant's `bytes`.
bool find_constant(const Program& program, const Code& code, const fb::Argument& argument,
                   const husk_op_arg& known, ConstantTensor* out) {
  if (static_cast<ArgumentKind>(argument.kind()) != ArgumentKind::tensor) return false;
  const fb::View& view = code.views[code.tensors[argument.index()].view()];
  const fb::Buffer& buffer = code.buffers[view.buffer()];
  int64_t extent = 0, elements = 0;
  uint64_t bytes = 0;
  if (static_cast<Space>(buffer.space()) != Space::constant ||
      !is_known(code, view.offset(), Scalar::op_const, &out->offset) ||
      !is_known(code, view.extent(), Scalar::op_const, &extent))
    return false;
  const auto rank = static_cast<uint32_t>(known.rank);
  const size_t width = husk_dtype_size(static_cast<husk_dtype>(known.dtype));
  for (uint32_t d = 0; d < 2 * rank; ++d)
    if (known.sizes[d] < 0) return false;
  out->constant = buffer.index();
  if (out->constant >= program.constants.count()) return false;  // a folded one has no hash
  const uint64_t size = program.constants.bytes(out->constant);
  return out->offset >= 0 && extent > 0 && static_cast<uint64_t>(out->offset) <= size &&
         static_cast<uint64_t>(extent) <= size - static_cast<uint64_t>(out->offset) &&
         extent_bytes(known.sizes, known.strides, rank, width, &bytes) && bytes > 0 &&
         bytes <= static_cast<uint64_t>(extent) && count_elements(known.sizes, rank, &elements) &&
         static_cast<uint64_t>(elements) <= bytes / width;
}

}  // namespace

Status KnownArguments::write(const Program& program, uint32_t function, uint32_t step,
                             husk_error* error) {
  const Code code = program.code(function);
  const husk_allocator& allocator = program.engine->allocator;
  if (function != function_) {
    HUSK_TRY(values_.allocate(allocator, code.arguments.size, error));
    HUSK_TRY(numbers_.allocate(allocator, code.operands.size, error));
    function_ = function;
  }
  const fb::Instruction& row = code.steps[step];
  call = values_.data() + row.b();
  for (uint32_t i = 0; i < row.c(); ++i) {
    const fb::Argument& argument = code.arguments[row.b() + i];
    husk_op_arg& out = call[i];
    const OperandRange range = describe_argument(code, argument, call, &out);
    const auto kind = static_cast<ArgumentKind>(argument.kind());
    int64_t bits = 0;
    bool known = true;
    if (kind == ArgumentKind::integer)
      known = is_known(code, argument.index(), Scalar::op_const, &out.i);
    if (kind == ArgumentKind::floating) {
      known = is_known(code, argument.index(), Scalar::op_fconst, &bits);
      memcpy(&out.f, &bits, sizeof(bits));
    }
    // No float stands for an unknown one, so that no list of floats is known.
    if (!known || kind == ArgumentKind::floats) {
      out.kind = HUSK_ARG_NONE;
      continue;
    }
    for (uint32_t n = range.first; n < range.first + range.count; ++n)
      if (!is_known(code, code.operands[n], Scalar::op_const, &numbers_[n]))
        numbers_[n] = HUSK_UNKNOWN_SIZE;
    set_lists(numbers_.data(), range, &out);
  }
  return Status::ok;
}

PackedConstants::~PackedConstants() {
  for (const Copy& copy : copies_)
    if (copy.replaced) program_->engine->port->free(program_->engine->device, copy.replaced);
}

PackedConstants::Staged::~Staged() {
  for (void* copy : memory)
    if (copy) engine->port->free(engine->device, copy);
}

Status PackedConstants::load(const Program* program, husk_error* error) {
  program_ = program;
  Engine& engine = *program->engine;
  if (!engine.properties.host_memory || program->constants.count() == 0) return Status::ok;
  const uint32_t functions = program->functions();
  size_t arguments = 0;
  KnownArguments known;
  HUSK_TRY(first_argument_.allocate(engine.allocator, functions, error));
  HUSK_TRY(last_copy_.allocate(engine.allocator, program->constants.count(), error));
  for (uint32_t f = 0; f < functions; ++f) {
    first_argument_[f] = static_cast<uint32_t>(arguments);
    arguments += program->code(f).arguments.size;
  }
  HUSK_TRY(copy_of_.allocate(engine.allocator, arguments, error));
  for (uint32_t f = 0; f < functions; ++f)
    if (program->runs(f)) HUSK_TRY(find_copies(f, &known, error));
  if (copies_.size() == 0) return Status::ok;
  HUSK_TRY(by_argument_.allocate(engine.allocator, arguments, error));
  if (bytes_ == 0) {  // the file has all copies
    place();
    return Status::ok;
  }
  HUSK_TRY(memory_.begin(&engine, &engine.lent_copies, copies_.size(), kCopyAlign, error));
  for (const Copy& copy : copies_)
    if (!copy.in_file) memory_.add(copy.hash, copy.bytes);
  const uint64_t missing = memory_.borrow();
  const Status status = memory_.allocate(missing, error);
  if (failed(status)) {
    prefix(error, "copies of constants, %llu bytes (husk_engine_options.max_packed_bytes): ",
           static_cast<unsigned long long>(missing));
    return status;
  }
  Progress progress = {engine.options.progress, engine.options.progress_user, 0, missing};
  if (missing) HUSK_TRY(progress.add(0, error));
  for (size_t i = 0; i < copies_.size(); ++i) {
    Copy& copy = copies_[i];
    if (copy.in_file) continue;
    bool is_new = false;
    copy.data = memory_.find(copy.hash, copy.bytes, &is_new);
    const uint8_t* constant = program->constants.address(copy.constant);
    if (is_new) {
      HUSK_TRY(pack(copy, constant, copy.data, &known, &progress, error));
      HUSK_TRY(progress.add(align_up(copy.bytes, kCopyAlign), error));
    }
    // Most constants with a copy are read nowhere else.
    program->file.evict(constant, program->constants.bytes(copy.constant));
  }
  memory_.lend();
  place();
  return Status::ok;
}

// Writes the addresses of the copies to the arguments.
void PackedConstants::place() {
  for (size_t i = 0; i < copy_of_.size(); ++i)
    if (copy_of_[i]) by_argument_[i] = copies_[copy_of_[i] - 1].data;
}

Status PackedConstants::find_copies(uint32_t function, KnownArguments* known, husk_error* error) {
  const Code code = program_->code(function);
  for (uint32_t s = 0; s < code.steps.size; ++s) {
    const fb::Instruction& step = code.steps[s];
    if (static_cast<Step>(step.op()) != Step::op_extern || !program_->op_of(code, step).pack)
      continue;
    HUSK_TRY(known->write(*program_, function, s, error));
    HUSK_TRY(ask(function, s, known->call, error));
  }
  return Status::ok;
}

Status PackedConstants::call(uint32_t function, uint32_t step, husk_op_arg* arguments,
                             husk_packing* packing, Progress* progress, husk_error* error) const {
  const Engine& engine = *program_->engine;
  const Code code = program_->code(function);
  const fb::Instruction& row = code.steps[step];
  const husk_op& op = program_->op_of(code, row);
  husk_op_context context = HUSK_OP_CONTEXT_INIT;
  context.user = op.user;
  context.device = engine.device;
  context.threads = engine.options.threads;
  context.rank = engine.options.rank;
  context.world = engine.options.world;
  if (progress && progress->report) {
    context.cancel = [](void* user) -> int32_t {
      husk_error unused;
      return failed(static_cast<Progress*>(user)->add(0, &unused));
    };
    context.cancel_user = progress;
  }
  const Status status = to_status(op.pack(&context, arguments, row.aux(), packing, error));
  if (progress && progress->ended) return progress->add(0, error);
  if (failed(status))
    prefix(error,
           "function '%.40s', step %u, the copy of argument %u: ", code.function->name()->c_str(),
           step, packing->argument);
  return status;
}

// Asks the operator of a step for the copies that it wants. `arguments` are those of the step.
Status PackedConstants::ask(uint32_t function, uint32_t step, husk_op_arg* arguments,
                            husk_error* error) {
  const Engine& engine = *program_->engine;
  const Code code = program_->code(function);
  const fb::Instruction& row = code.steps[step];
  for (uint32_t i = 0; i < row.aux(); ++i) {
    ConstantTensor tensor = {};
    const fb::Argument& argument = code.arguments[row.b() + i];
    if (!find_constant(*program_, code, argument, arguments[i], &tensor)) continue;
    husk_packing packing = HUSK_PACKING_INIT;
    packing.argument = i;
    const auto data = program_->constants.address(tensor.constant) + tensor.offset;
    arguments[i].data = data;
    HUSK_TRY(call(function, step, arguments, &packing, nullptr, error));
    arguments[i].data = nullptr;
    if (packing.bytes == 0) continue;
    Copy copy = {function,       step,         i,       tensor.constant, kNone,   packing.bytes,
                 packing.layout, packing.name, nullptr, false,           nullptr, {}};
    write_hash(&copy);
    uint32_t layouts = 0, same = find_same(copy, &layouts);
    if (same == kNone) {
      const uint64_t limit = engine.options.max_packed_bytes ? engine.options.max_packed_bytes
                                                             : kMostBytes;
      if (layouts == kMaxLayouts || packing.bytes > kMostBytes) continue;
      packing.stored = find_in_file(copy);
      copy.in_file = packing.stored != nullptr;
      if (copy.in_file) {
        arguments[i].data = data;
        HUSK_TRY(call(function, step, arguments, &packing, nullptr, error));
        arguments[i].data = nullptr;
        copy.data = static_cast<uint8_t*>(const_cast<void*>(packing.stored));
      } else {
        if (align_up(packing.bytes, kCopyAlign) > limit - bytes_) continue;
        bytes_ += align_up(packing.bytes, kCopyAlign);
      }
      same = static_cast<uint32_t>(copies_.size());
      HUSK_TRY(copies_.push(engine.allocator, copy, error));
      copies_[same].previous = last_copy_[tensor.constant] - 1;
      last_copy_[tensor.constant] = same + 1;
    }
    copy_of_[first_argument_[function] + row.b() + i] = same + 1;
  }
  return Status::ok;
}

// Adds what decides the bytes of a copy besides the operator: the constant and the tensor.
void PackedConstants::add_tensor(const Copy& copy, Blake2b* hash) const {
  const Code code = program_->code(copy.function);
  const fb::Argument& argument = code.arguments[code.steps[copy.step].b() + copy.argument];
  const fb::Tensor& tensor = code.tensors[argument.index()];
  const auto number = [&](uint32_t reg) { return uint64_t(immediate(code.scalars[reg])); };
  uint64_t numbers[6 + 2 * limits::kMaxRank] = {
      copy.argument,  copy.layout,   program_->constants.bytes(copy.constant),
      tensor.dtype(), tensor.rank(), number(code.views[tensor.view()].offset())};
  for (uint32_t d = 0; d < 2u * tensor.rank(); ++d)
    numbers[6 + d] = number(code.operands[tensor.first() + d]);
  hash->update(numbers, sizeof(numbers));
  hash->update(program_->constants.hash(copy.constant), sizeof(copy.hash));
}

void PackedConstants::write_hash(Copy* copy) const {
  const Code code = program_->code(copy->function);
  const husk_op& op = program_->op_of(code, code.steps[copy->step]);
  const uintptr_t who[] = {reinterpret_cast<uintptr_t>(op.pack),
                           reinterpret_cast<uintptr_t>(op.user)};
  Blake2b hash;
  hash.update(who, sizeof(who));
  add_tensor(*copy, &hash);
  hash.finish(copy->hash);
}

// Writes the key that a copy has in files (FORMAT.md, "Packed copies").
bool PackedConstants::write_key(const Copy& copy, uint8_t* key) const {
  if (!copy.name) return false;
  const uint32_t op = program_->code(copy.function).steps[copy.step].a();
  const flatbuffers::String* op_name = program_->rows()->ops()->Get(op);
  Blake2b hash;
  hash.update(op_name->c_str(), op_name->size() + 1);
  hash.update(copy.name, strlen(copy.name) + 1);
  add_tensor(copy, &hash);
  hash.finish(key);
  return true;
}

// Returns the bytes of a copy that the file has; null if it has none.
const uint8_t* PackedConstants::find_in_file(const Copy& copy) const {
  const Rows<fb::PackedCopy> rows = program_->rows()->packed();
  uint8_t key[sizeof(fb::Hash)];
  if (rows.size == 0 || !write_key(copy, key)) return nullptr;
  const auto* row = static_cast<const fb::PackedCopy*>(
      bsearch(key, rows.data(), rows.size, sizeof(fb::PackedCopy),
              [](const void* a, const void* b) { return memcmp(a, b, sizeof(fb::Hash)); }));
  if (!row || row->blob().size() != copy.bytes) return nullptr;
  const uint8_t* bytes = program_->file.blob(&row->blob());
  // A file that was loaded from memory may lie anywhere.
  return reinterpret_cast<uintptr_t>(bytes) % kCopyAlign == 0 ? bytes : nullptr;
}

// Returns the copy of the same tensor by the same operator; or kNone, and the number of copies that
// the constant has.
uint32_t PackedConstants::find_same(const Copy& wanted, uint32_t* layouts) const {
  for (uint32_t at = last_copy_[wanted.constant]; at > 0; at = copies_[at - 1].previous + 1) {
    ++*layouts;
    const Copy& copy = copies_[at - 1];
    if (copy.bytes == wanted.bytes && memcmp(copy.hash, wanted.hash, sizeof(copy.hash)) == 0)
      return at - 1;
  }
  return kNone;
}

// Lets the operator lay out the constant that lies at `constant`.
Status PackedConstants::pack(const Copy& copy, const uint8_t* constant, void* to,
                             KnownArguments* known, Progress* progress, husk_error* error) const {
  HUSK_TRY(known->write(*program_, copy.function, copy.step, error));
  const Code code = program_->code(copy.function);
  const fb::Argument& argument = code.arguments[code.steps[copy.step].b() + copy.argument];
  const fb::View& view = code.views[code.tensors[argument.index()].view()];
  known->call[copy.argument].data = const_cast<uint8_t*>(constant) +
                                    immediate(code.scalars[view.offset()]);
  husk_packing packing = {
      sizeof(husk_packing), copy.argument, copy.bytes, copy.layout, to, copy.name, nullptr};
  return call(copy.function, copy.step, known->call, &packing, progress, error);
}

Status PackedConstants::stage(const husk_constant_part* updates, uint32_t n,
                              const Array<void*>& values, Staged* staged, husk_error* error) const {
  if (copies_.size() == 0) return Status::ok;
  const Engine& engine = *program_->engine;
  KnownArguments known;
  HUSK_TRY(staged->memory.allocate(engine.allocator, size_t{n} * kMaxLayouts, error));
  for (uint32_t i = 0; i < n; ++i) {
    if (!values[i]) continue;  // another part of a constant
    void** memory = staged->memory.data() + size_t{i} * kMaxLayouts;
    for (uint32_t at = last_copy_[updates[i].constant]; at > 0;
         at = copies_[at - 1].previous + 1, ++memory) {
      const Copy& copy = copies_[at - 1];
      Status status = to_status(engine.port->alloc(engine.device, copy.bytes, memory, error));
      if (failed(status)) {
        *memory = nullptr;
        prefix(error, "a copy of a new constant, %llu bytes: ",
               static_cast<unsigned long long>(copy.bytes));
        return status;
      }
      HUSK_TRY(pack(copy, static_cast<const uint8_t*>(values[i]), *memory, &known, nullptr, error));
    }
  }
  return Status::ok;
}

// A copy that is shared gets the new memory, and the next call finds it there. Other copies keep
// their place.
void PackedConstants::swap(const husk_constant_part* updates, uint32_t n, Staged& staged) {
  if (copies_.size() == 0) return;
  const bool in_place = memory_.claim();
  for (uint32_t i = 0; i < n; ++i) {
    void** memory = staged.memory.data() + size_t{i} * kMaxLayouts;
    for (uint32_t at = last_copy_[updates[i].constant]; at > 0;
         at = copies_[at - 1].previous + 1, ++memory) {
      Copy& copy = copies_[at - 1];
      if (!*memory) continue;
      if (in_place && !copy.in_file) {
        memcpy(copy.data, *memory, copy.bytes);
        continue;
      }
      void* old = copy.replaced;
      copy.replaced = *memory;
      copy.data = static_cast<uint8_t*>(*memory);
      *memory = old;
    }
  }
  place();
}

}  // namespace husk::runtime
