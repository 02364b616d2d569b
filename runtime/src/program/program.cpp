#include "program/program.h"

#include <cstdio>
#include <cstring>

#include "base/align.h"
#include "model/shape.h"
#include "model/verify.h"
#include "program/contract.h"

namespace husk::runtime {
namespace {

constexpr uint64_t kMaxStateBytes = uint64_t{1} << 62;
constexpr int32_t kChosen = INT32_MAX;  // the rank of a target that some function runs as

}  // namespace

Program::~Program() {
  for (void* module : modules)
    if (module) engine->port->module_unload(engine->device, module);
  for (void* bytes : image_bytes)
    if (bytes) engine->allocator.release(engine->allocator.user, bytes);
}

// It reads a dozen vectors, which would be written out at each call.
[[gnu::noinline]] Code Program::code(uint32_t function) const {
  const fb::Function* f = rows()->functions()->Get(function);
  return Code(rows(), f, f->variants()->Get(chosen[function].variant));
}

Status Program::load(husk_error* error) {
  const husk_engine_options& options = engine->options;
  HUSK_TRY(file.read(engine->allocator, options.max_metadata_bytes, options.rank, error));
  // Nothing but the header and the hash is looked at before the application has accepted the file,
  // so a signature shields the parser.
  if (options.accept && !options.accept(options.accept_user, file.content_hash()))
    return fail(error, HUSK_UNSUPPORTED,
                "the application did not accept the artifact's content hash");
  HUSK_TRY(file.parse(error));
  HUSK_TRY(verify(file, engine->allocator, error));
  HUSK_TRY(check_world(error));
  HUSK_TRY(sum_states(error));
  HUSK_TRY(choose_variants(error));
  HUSK_TRY(find_places(error));
  HUSK_TRY(resolve_steps(error));
  if (options.verify_content) HUSK_TRY(check_constants(error));
  HUSK_TRY(constants.load(engine, &file, &memory_bytes, error));
  HUSK_TRY(packed.load(this, error));
  file.release_file();
  return Status::ok;
}

// Compares the file's place among those of several ranks with the engine's, and with the files that
// the other ranks open.
Status Program::check_world(husk_error* error) const {
  const fb::World* world = rows()->world();
  const husk_engine_options& options = engine->options;
  if (!world) return Status::ok;
  const bool fits = world->size() == options.world && world->rank() == options.rank;
  if (engine->is_joined) {
    // A rank with a wrong file tells the others, so that they do not wait for it.
    const uint8_t nothing[sizeof(fb::Hash)] = {};
    const uint8_t* set = fits ? world->set()->bytes()->data() : nothing;
    ErrorScratch scratch;
    const Status status = to_status(engine->port->agree(engine->device, set, scratch.of(error)));
    if (fits && failed(status)) prefix(error, "the files of the ranks: ");
    if (fits) return status;
  }
  if (fits) return Status::ok;
  return fail(error, HUSK_INVALID_ARGUMENT,
              "the artifact is for rank %u of %u, the engine is rank %u of %u: open it on each of "
              "the ranks with husk_engine_options.rank, world and group",
              world->rank(), world->size(), options.rank, options.world);
}

Status Program::sum_states(husk_error* error) {
  uint64_t limit = engine->options.max_state_bytes;
  if (limit == 0 || limit > kMaxStateBytes) limit = kMaxStateBytes;
  for (uint32_t s = 0; s < count(rows()->states()); ++s) {
    // The bytes of a state are below 2^63, so the sum of one state and the states before it fits.
    state_bytes += align_up(verified_bytes(rows()->states()->Get(s)), kDeviceAlign);
    if (state_bytes > limit)
      return fail(
          error, HUSK_LIMIT,
          "the states need more than %llu bytes: husk_engine_options.max_state_bytes, which "
          "is at most 2^62, limits them",
          static_cast<unsigned long long>(limit));
  }
  return Status::ok;
}

// Compares the constants with their hashes, bytes that several share once.
Status Program::check_constants(husk_error* error) {
  const husk_engine_options& options = engine->options;
  Progress progress = {options.progress, options.progress_user, 0, 0};
  for (const bool counting : {true, false}) {
    if (!counting) HUSK_TRY(progress.add(0, error));
    for (uint32_t row = file.constant_row(0); row < file.blob_rows(); ++row) {
      const fb::Blob* blob = file.blob_of(row);
      if (file.same_bytes[row] != row) continue;
      if (counting)
        progress.total += blob->size();
      else
        HUSK_TRY(file.check_hash(row, file.blob(blob), &progress, error));
    }
  }
  return Status::ok;
}

// Finds how well each target runs on the device: the best rank of its images, 0 if it does not run.
// A target without images runs on every device of its port.
Status Program::rank_targets(Array<int32_t>* ranks, husk_error* error) const {
  constexpr int32_t kNoImage = -1;
  const auto* targets = rows()->targets();
  HUSK_TRY(ranks->allocate(engine->allocator, count(targets), error));
  for (uint32_t t = 0; t < count(targets); ++t)
    if (strcmp(targets->Get(t)->port()->c_str(), engine->port->name) == 0) (*ranks)[t] = kNoImage;
  for (uint32_t i = 0; i < count(rows()->images()); ++i) {
    const fb::Image* image = rows()->images()->Get(i);
    const fb::Target* target = targets->Get(image->target());
    if (strcmp(target->port()->c_str(), engine->port->name) != 0) continue;
    int32_t& best = (*ranks)[image->target()];
    const int32_t rank = engine->port->arch_rank(engine->device, target->arch()->c_str(),
                                                 image->format());
    if (best == kNoImage) best = 0;
    if (rank > best) best = rank;
  }
  for (int32_t& rank : *ranks)
    if (rank == kNoImage) rank = 1;
  return Status::ok;
}

Status Program::no_variant(const fb::Function* f, husk_error* error) const {
  char held[120] = "";  // the targets that the file has variants for
  size_t used = 0;
  for (uint32_t v = 0; v < count(f->variants()) && used < sizeof(held) - 1; ++v) {
    const fb::Target* target = rows()->targets()->Get(f->variants()->Get(v)->target());
    const int n = snprintf(held + used, sizeof(held) - used, "%s%s %s", v ? ", " : "",
                           target->port()->c_str(), target->arch()->c_str());
    used += n > 0 ? static_cast<size_t>(n) : 0;
  }
  return fail(error, HUSK_UNSUPPORTED,
              "function '%s' has no variant for this device (%s %s): the file holds %s; export "
              "for this target",
              f->name()->c_str(), engine->port->name, engine->properties.arch, held);
}

Status Program::choose_variants(husk_error* error) {
  Array<int32_t> ranks;
  HUSK_TRY(rank_targets(&ranks, error));
  HUSK_TRY(chosen.allocate(engine->allocator, functions(), error));
  const auto choose = [&](uint32_t i, uint32_t index) {
    const fb::Target* target = rows()->targets()->Get(index);
    // With these precisions snprintf reads no more of a long name than fits.
    snprintf(chosen[i].target, sizeof(chosen[i].target), "%.31s %.31s", target->port()->c_str(),
             target->arch()->c_str());
  };
  for (uint32_t i = 0; i < entry_points(); ++i) {
    const fb::Function* f = rows()->functions()->Get(i);
    int32_t best = 0;
    for (uint32_t v = 0; v < count(f->variants()); ++v) {
      const int32_t rank = ranks[f->variants()->Get(v)->target()];
      if (rank <= best) continue;
      best = rank;
      chosen[i].variant = v;
    }
    if (best == 0) return no_variant(f, error);
    choose(i, f->variants()->Get(chosen[i].variant)->target());
  }
  for (uint32_t i = 0; i < entry_points(); ++i) ranks[code(i).variant->target()] = kChosen;
  for (uint32_t i = entry_points(); i < functions(); ++i) {
    const uint32_t target = rows()->functions()->Get(i)->variants()->Get(0)->target();
    if (ranks[target] == kChosen) choose(i, target);
  }
  return Status::ok;
}

// Finds the places of all values by one look at each buffer and each argument of a step.
Status Program::find_places(husk_error* error) {
  HUSK_TRY(first_places.allocate(engine->allocator, functions(), error));
  uint32_t values = 0;
  for (uint32_t f = 0; f < functions(); ++f) {
    const fb::Function* row = rows()->functions()->Get(f);
    first_places[f] = values;
    values += count(row->inputs()) + count(row->outputs());
  }
  HUSK_TRY(places.allocate(engine->allocator, values, error));
  for (uint32_t f = 0; f < functions(); ++f) {
    const Code of = code(f);
    const auto place_of = [&](const fb::Buffer& buffer) -> ValuePlace* {
      const auto space = static_cast<Space>(buffer.space());
      if (space != Space::input && space != Space::output) return nullptr;
      return &places[first_places[f] + (space == Space::output ? of.inputs() : 0) + buffer.index()];
    };
    for (uint32_t b = 0; b < of.buffers.size; ++b)
      if (ValuePlace* place = place_of(of.buffers[b]))
        *place = {of.buffers[b].align_log2(), of.device_of(b),
                  of.buffers[b].space() == uint8_t(Space::output)};
    // Only the arguments of steps are verified; the file may hold others.
    for (const fb::Instruction& step : of.steps)
      for (uint32_t i = step.b(); i < step.b() + step.c(); ++i) {
        const fb::Argument& argument = of.arguments[i];
        const uint32_t view = of.view_of(argument);
        if (view == kNone || !writes(argument.access())) continue;
        if (ValuePlace* place = place_of(of.buffers[of.views[view].buffer()]))
          place->is_written = true;
      }
  }
  return Status::ok;
}

// Loads the kernels and finds the operators that the steps of the chosen variants call.
Status Program::resolve_steps(husk_error* error) {
  HUSK_TRY(modules.allocate(engine->allocator, count(rows()->images()), error));
  HUSK_TRY(image_bytes.allocate(engine->allocator, count(rows()->images()), error));
  HUSK_TRY(kernels.allocate(engine->allocator, count(rows()->kernels()), error));
  for (Device device : kDevices)
    HUSK_TRY(ops[device].allocate(engine->allocator, count(rows()->ops()), error));
  for (uint32_t f = 0; f < functions(); ++f) {
    if (!runs(f)) continue;
    const Code chosen_code = code(f);
    if (const uint64_t most = engine->options.max_steps; most && chosen_code.steps.size > most)
      return fail(error, HUSK_LIMIT,
                  "function '%.60s' has %u steps, husk_engine_options.max_steps is %llu",
                  chosen_code.function->name()->c_str(), chosen_code.steps.size,
                  static_cast<unsigned long long>(most));
    HUSK_TRY(check_host_memory(chosen_code, error));
    for (uint32_t s = 0; s < chosen_code.steps.size; ++s) {
      const fb::Instruction& step = chosen_code.steps[s];
      const auto kind = static_cast<Step>(step.op());
      if (kind == Step::op_launch && !kernels[step.a()]) HUSK_TRY(load_kernel(step.a(), error));
      if (kind == Step::op_extern) HUSK_TRY(prepare_op(chosen_code, s, error));
    }
  }
  return Status::ok;
}

Status Program::check_host_memory(const Code& of, husk_error* error) const {
  if (engine->has_host_memory() || !of.has_host_buffers()) return Status::ok;
  return fail(error, HUSK_UNSUPPORTED,
              "function '%.60s' has buffers in host memory beside the device, which port '%s' does "
              "not allocate (husk_port.alloc_host): export it without steps on the host",
              of.function->name()->c_str(), engine->port->name);
}

// Lets sessions keep the scratch memory that a call of the op needs.
void Program::count_scratch(const husk_op& op) {
  const husk_threads* threads = engine->options.threads;
  const uint64_t others = threads && threads->count > 1 ? threads->count - 1 : 0;
  uint64_t bytes = 0;
  if (__builtin_mul_overflow(others, op.thread_scratch_bytes, &bytes) ||
      __builtin_add_overflow(bytes, op.scratch_bytes, &bytes))
    bytes = ~uint64_t{0};  // more than there is
  if (op.scratch_bytes && bytes > op_scratch) op_scratch = bytes;
}

// Finds the op that an extern step calls, and compares the step with the contract of the op.
Status Program::prepare_op(const Code& of, uint32_t step, husk_error* error) {
  const Device device = of.device_of(of.steps[step]);
  husk_op& op = ops[device][of.steps[step].a()];
  const char* name = rows()->ops()->Get(of.steps[step].a())->c_str();
  const char* function = of.function->name()->c_str();
  if (!op.call) {
    const Status status = engine->find_op(name, device, &op, error);
    if (status == Status(HUSK_NOT_FOUND))
      return fail(error, HUSK_NOT_FOUND,
                  "function '%.20s' calls op '%.43s' (%.26s), which is not registered: "
                  "husk_ops_add_all (libhusk_ops) registers the host's operators, "
                  "husk_engine_add_op one of your own",
                  function, name, of.origin(step));
    HUSK_TRY(status);
    count_scratch(op);
  }
  if (op.contract) {
    const Status status = check_call(op.contract, of, of.steps[step], error);
    if (failed(status))
      prefix(error, "function '%.20s', step %u, op '%.43s'", function, step, name);
    return status;
  }
  if (!engine->options.require_op_contracts) return Status::ok;
  return fail(error, HUSK_UNSUPPORTED,
              "op '%s' has no contract, and husk_engine_options.require_op_contracts is set: fill "
              "husk_op.contract",
              name);
}

Status Program::load_module(uint32_t index, husk_error* error) {
  const fb::Image* image = rows()->images()->Get(index);
  const char* name = image->name()->c_str();
  // An image without bytes is code of the process, which needs no permission.
  const void* linked = image->blob()->size() == 0 ? file.linked() : nullptr;
  if (image->format() == HUSK_IMAGE_ELF && !linked && !engine->options.allow_host_images)
    return fail(error, HUSK_UNSUPPORTED,
                "image '%s' is native code: set husk_engine_options.allow_host_images if you trust "
                "it",
                name);
  const uint64_t size = image->blob()->size();
  HUSK_TRY(engine->count_memory(size, &memory_bytes, error));
  const uint8_t* bytes = file.blob(image->blob());
  // A file that somebody changes after the hash was compared does not change the code that runs.
  if (size && file.mapping().begin) {
    image_bytes[index] = allocate(engine->allocator, size, error);
    if (!image_bytes[index]) return to_status(HUSK_OUT_OF_MEMORY);
    bytes = static_cast<const uint8_t*>(memcpy(image_bytes[index], bytes, size));
  }
  HUSK_TRY(file.check_hash(index, bytes, nullptr, error));
  const husk_port_image data = {
      sizeof(husk_port_image), image->format(), bytes, size, name, linked};
  void* module = nullptr;
  HUSK_TRY(to_status(engine->port->module_load(engine->device, &data, &module, error)));
  modules[index] = module;
  return Status::ok;
}

Status Program::load_kernel(uint32_t index, husk_error* error) {
  const fb::Kernel* row = rows()->kernels()->Get(index);
  const uint32_t image = file.same_bytes[row->image()];
  if (!modules[image]) HUSK_TRY(load_module(image, error));
  const uint32_t* block = row->block()->data();
  const husk_port_kernel description = {sizeof(husk_port_kernel),
                                        count(row->params()),
                                        row->symbol()->c_str(),
                                        row->params() ? row->params()->data() : nullptr,
                                        row->shared(),
                                        row->cluster(),
                                        block[0] * block[1] * block[2],
                                        0};
  void* kernel = nullptr;
  Status status = to_status(
      engine->port->kernel_get(engine->device, modules[image], &description, &kernel, error));
  if (failed(status))
    prefix(error, "kernel '%s': ", row->name()->c_str());
  else
    kernels[index] = kernel;
  return status;
}

Status Program::update(const husk_constant_part* updates, uint32_t n, husk_error* error) {
  for (uint32_t i = 0; i < n; ++i)
    if (updates[i].constant >= constants.count() || !updates[i].bytes)
      return fail(error, HUSK_INVALID_ARGUMENT,
                  "update %u: no such constant (there are %u), or its bytes are NULL", i,
                  constants.count());
  for (uint32_t i = 0; i < n; ++i) {
    const uint64_t whole = constants.bytes(updates[i].constant);
    if (updates[i].size <= whole && updates[i].offset <= whole - updates[i].size) continue;
    return fail(error, HUSK_INVALID_ARGUMENT,
                "update %u: %llu bytes from %llu on are no part of constant '%s', which has %llu",
                i, static_cast<unsigned long long>(updates[i].size),
                static_cast<unsigned long long>(updates[i].offset),
                file.program()->constants()->Get(updates[i].constant)->name()->c_str(),
                static_cast<unsigned long long>(whole));
  }
  if (gate.holds_this_thread(nullptr))
    return fail(error, HUSK_INVALID_ARGUMENT,
                "constants cannot be updated in a callback: the update would wait for its run");
  ErrorScratch scratch;
  error = scratch.of(error);
  Array<void*> staged;
  PackedConstants::Staged copies(engine);
  Status status;
  {
    RunGate::Update update(gate);
    status = constants.stage(updates, n, &staged, error);
    if (!failed(status)) status = packed.stage(updates, n, staged, &copies, error);
    if (!failed(status)) status = update.close(error);
    if (!failed(status)) packed.swap(updates, n, copies);
    if (!failed(status)) status = constants.swap(updates, n, &staged, error);
    if (!failed(status) && fold) status = fold(this, error);
  }
  if (failed(status)) {  // uploads and copies may be under way
    husk_error ignored;
    (void)engine->port->stream_wait(engine->device, nullptr, &ignored);
  }
  for (void* memory : staged)
    if (memory) engine->port->free(engine->device, memory);
  return status;
}

}  // namespace husk::runtime
