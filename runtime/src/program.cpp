#include "program.h"

#include "verify.h"

#include <cstdio>
#include <cstring>

namespace husk {
namespace {

// How well a target runs on the device: the best of its images; a target without images runs wherever its port does.
int32_t target_rank(const husk_program* p, uint32_t index) {
  const fb::Target* target = p->rows()->targets()->Get(index);
  const husk_engine* engine = p->engine;
  if (strcmp(target->port()->c_str(), engine->port->name) != 0) return 0;
  int32_t best = 0;
  bool images = false;
  for (uint32_t i = 0; i < count(p->rows()->images()); ++i) {
    const fb::Image* image = p->rows()->images()->Get(i);
    if (image->target() != index) continue;
    images = true;
    const int32_t rank = engine->port->fit(engine->device, target->arch()->c_str(), image->format());
    if (rank > best) best = rank;
  }
  return images ? best : 1;
}

Status no_variant(const husk_program* p, const fb::Function* f, husk_error* error) {
  char held[120] = "";
  size_t used = 0;
  for (uint32_t v = 0; v < count(f->variants()) && used < sizeof(held) - 1; ++v) {
    const fb::Target* target = p->rows()->targets()->Get(f->variants()->Get(v)->target());
    const int n = snprintf(held + used, sizeof(held) - used, "%s%s %s", v ? ", " : "", target->port()->c_str(),
                           target->arch()->c_str());
    used += n > 0 ? static_cast<size_t>(n) : 0;
  }
  return fail(error, HUSK_UNSUPPORTED, "function '%s' has no variant for this device (%s %s): the file holds %s; export "
              "for this target", f->name()->c_str(), p->engine->port->name, p->engine->properties.arch, held);
}

}  // namespace

uint64_t dense_bytes(husk_dtype dtype, const flatbuffers::Vector<int64_t>* dims) {
  uint64_t bytes = husk_dtype_size(dtype);
  for (uint32_t d = 0; d < count(dims); ++d) bytes *= static_cast<uint64_t>(dims->Get(d));
  return bytes;
}

}  // namespace husk

using husk::Status;

husk_program::~husk_program() {
  for (void* module : modules)
    if (module) engine->port->module_unload(engine->device, module);
  for (void* memory : replaced)
    if (memory) engine->port->free(engine->device, memory);
  if (mapped) engine->port->unmap(engine->device, mapped, mapped_bytes);
  drop_constants();
}

Status husk_program::load(husk_error* error) {
  HUSK_TRY(husk::verify(file, engine->allocator, error));
  const husk_engine_options& options = engine->options;
  if (options.accept && !options.accept(options.accept_user, file.content_hash()))
    return husk::fail(error, HUSK_UNSUPPORTED, "the application did not accept the artifact's content hash");
  HUSK_TRY(choose(error));
  HUSK_TRY(resolve(error));
  HUSK_TRY(load_constants(error));
  file.release_file();
  return Status::ok;
}

Status husk_program::choose(husk_error* error) {
  HUSK_TRY(chosen.allocate(engine->allocator, functions(), error));
  for (uint32_t i = 0; i < functions(); ++i) {
    const husk::fb::Function* f = rows()->functions()->Get(i);
    int32_t best = 0;
    for (uint32_t v = 0; v < husk::count(f->variants()); ++v) {
      const int32_t rank = husk::target_rank(this, f->variants()->Get(v)->target());
      if (rank <= best) continue;
      best = rank;
      chosen[i].variant = v;
    }
    if (best == 0) return husk::no_variant(this, f, error);
    const husk::fb::Target* target = rows()->targets()->Get(f->variants()->Get(chosen[i].variant)->target());
    snprintf(chosen[i].target, sizeof(chosen[i].target), "%s %s", target->port()->c_str(), target->arch()->c_str());
  }
  return Status::ok;
}

// What the steps of the chosen variants call.
Status husk_program::resolve(husk_error* error) {
  HUSK_TRY(modules.allocate(engine->allocator, husk::count(rows()->images()), error));
  HUSK_TRY(kernels.allocate(engine->allocator, husk::count(rows()->kernels()), error));
  HUSK_TRY(ops.allocate(engine->allocator, husk::count(rows()->ops()), error));
  for (uint32_t f = 0; f < functions(); ++f) {
    const husk::Code c = code(f);
    for (uint32_t s = 0; s < c.steps.size; ++s) {
      const husk::fb::Instruction& step = c.steps[s];
      const uint32_t i = step.a();
      if (static_cast<husk::Step>(step.op()) == husk::Step::op_launch) {
        if (!kernels[i]) HUSK_TRY(load_kernel(i, error));
      } else if (static_cast<husk::Step>(step.op()) == husk::Step::op_extern && !ops[i].call) {
        const char* name = rows()->ops()->Get(i)->c_str();
        const Status found = engine->find_op(name, &ops[i], error);
        if (found == Status(HUSK_NOT_FOUND))
          return husk::fail(error, HUSK_NOT_FOUND, "function '%s' calls op '%s' (%s), which is not registered: "
                            "husk_engine_add_op before opening", c.function->name()->c_str(), name, c.origin(s));
        HUSK_TRY(found);
      }
    }
  }
  return Status::ok;
}

Status husk_program::load_kernel(uint32_t index, husk_error* error) {
  const husk::fb::Kernel* kernel = rows()->kernels()->Get(index);
  const husk::fb::Image* image = rows()->images()->Get(kernel->image());
  void*& module = modules[kernel->image()];
  if (!module) {
    if (image->format() == HUSK_IMAGE_ELF && !engine->options.allow_host_images)
      return husk::fail(error, HUSK_UNSUPPORTED, "image '%s' is native code: set "
                        "husk_engine_options.allow_host_images if you trust it", image->name()->c_str());
    HUSK_TRY(file.check_hash(image->blob(), "image", image->name()->c_str(), error));
    const husk_port_image data = {image->format(), file.blob(image->blob()), image->blob()->size(), image->name()->c_str()};
    void* loaded = nullptr;
    HUSK_TRY(husk::to_status(engine->port->module_load(engine->device, &data, &loaded, error)));
    module = loaded;
  }
  const uint32_t* block = kernel->block()->data();
  const husk_port_kernel desc = {kernel->symbol()->c_str(), kernel->params() ? kernel->params()->data() : nullptr,
                                 husk::count(kernel->params()), kernel->shared(), kernel->cluster(),
                                 block[0] * block[1] * block[2]};
  void* found = nullptr;
  Status status = husk::to_status(engine->port->kernel_get(engine->device, module, &desc, &found, error));
  if (husk::failed(status))
    husk::prefix(error, "kernel '%s': ", kernel->name()->c_str());
  else
    kernels[index] = found;
  return status;
}

// On a device that has its own memory one allocation holds them all; else the file's pages do, as they lie.
Status husk_program::load_constants(husk_error* error) {
  const uint32_t n = husk::count(rows()->constants());
  HUSK_TRY(constants.allocate(engine->allocator, n, error));
  uint64_t total = 0;
  const uint8_t *begin = nullptr, *end = nullptr;  // of what holds bytes
  for (uint32_t i = 0; i < n; ++i) {
    const husk::fb::Blob* blob = rows()->constants()->Get(i)->blob();
    const uint8_t* bytes = file.blob(blob);
    constants[i] = const_cast<uint8_t*>(bytes);  // read-only by rule 8
    if (blob->size() == 0) continue;
    if (total == 0 || bytes < begin) begin = bytes;
    if (total == 0 || bytes + blob->size() > end) end = bytes + blob->size();
    total += husk::padded(blob->size());
  }
  if (total == 0 || engine->properties.host_memory) return Status::ok;
  const Status mapping = map_constants(begin, static_cast<uint64_t>(end - begin), error);
  if (mapping != Status(HUSK_UNSUPPORTED)) return mapping;

  borrow_constants(&total);
  if (total > 0) HUSK_TRY(bring_constants(total, error));
  lend_constants();
  return Status::ok;
}

// Those that are where the file has them, `total` bytes, to memory of their own.
Status husk_program::bring_constants(uint64_t total, husk_error* error) {
  const uint32_t n = static_cast<uint32_t>(constants.size());
  husk::Array<husk_load> loads;
  HUSK_TRY(loads.allocate(engine->allocator, n, error));
  husk::Weights* made = husk::create<husk::Weights>(engine->allocator, error);
  if (!made) return husk::to_status(HUSK_OUT_OF_MEMORY);
  made->bytes = total;
  (shared ? rest : shared) = made;
  Status status = husk::to_status(engine->port->alloc(engine->device, total, &made->memory, error));
  if (husk::failed(status)) {
    made->memory = nullptr;
    husk::prefix(error, "the constants, %llu bytes: ", static_cast<unsigned long long>(total));
    return status;
  }
  uint32_t used = 0;
  uint8_t* to = static_cast<uint8_t*>(made->memory);
  for (uint32_t i = 0; i < n; ++i) {
    const husk::fb::Blob* blob = rows()->constants()->Get(i)->blob();
    const uint64_t size = blob->size();
    if (size == 0 || constants[i] != file.blob(blob)) continue;
    loads[used++] = {to, constants[i], size};
    constants[i] = to;
    to += husk::padded(size);
  }
  return upload(loads.data(), used, error);
}

// HUSK_UNSUPPORTED: the device wants them in memory of its own.
Status husk_program::map_constants(const uint8_t* begin, uint64_t size, husk_error* error) {
  if (!engine->port->map) return Status(HUSK_UNSUPPORTED);
  void* address = nullptr;
  HUSK_TRY(husk::to_status(engine->port->map(engine->device, begin, size, &address, error)));
  mapped = begin;
  mapped_bytes = size;
  for (uint8_t*& constant : constants) constant = static_cast<uint8_t*>(address) + (constant - begin);
  return Status::ok;
}

// Sessions run on streams of their own: nothing may still be on its way when the first one starts.
Status husk_program::upload(const husk_load* loads, uint32_t n, husk_error* error) {
  const husk_port* port = engine->port;
  if (port->load) {
    const husk_mapping mapping = file.mapping();
    return husk::to_status(port->load(engine->device, loads, n, mapping.begin ? &mapping : nullptr, error));
  }
  for (uint32_t i = 0; i < n; ++i)
    HUSK_TRY(husk::to_status(port->upload(engine->device, nullptr, loads[i].to, loads[i].from, loads[i].size, error)));
  return husk::to_status(port->stream_wait(engine->device, nullptr, error));
}
