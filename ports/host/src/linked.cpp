// Images that an object file of `huskc --emit=obj` has linked into the process as code.
#include <cstring>

#include <husk/detail/struct_size.h>
#include <husk/detail/try.h>

#include "error.h"
#include "image.h"
#include "module.h"

namespace husk::host {

namespace {

// Finds the image in the table of the object file.
husk_status find_image(const husk_port_image& image, const detail::LinkedImage*& found,
                       husk_error* error) {
  const auto& table = *static_cast<const detail::LinkedTable*>(image.linked);
  if (table.magic != detail::kLinkedMagic) {
    return fail(error, HUSK_INVALID_FILE,
                "image %s: its object file is of another version of huskc; write it again",
                image.name);
  }
  if (table.machine != kMachine) {
    return fail(error, HUSK_UNSUPPORTED,
                "image %s: its object file is for ELF machine %u, this is %s", image.name,
                static_cast<unsigned>(table.machine), kMachineName);
  }
  for (uint64_t i = 0; i < table.image_count; ++i) {
    found = &table.images[i];
    if (strcmp(found->name, image.name) == 0) return HUSK_OK;
  }
  return fail(error, HUSK_NOT_FOUND,
              "image %s: its object file has no code of that name; write it again by "
              "`huskc --emit=obj`",
              image.name);
}

// Holds LinkedState::lock.
class StateLock {
 public:
  explicit StateLock(detail::LinkedState& state) : lock_(&state.lock) {
    while (__atomic_exchange_n(lock_, 1, __ATOMIC_ACQUIRE) != 0) {
    }
  }
  StateLock(const StateLock&) = delete;
  StateLock& operator=(const StateLock&) = delete;
  ~StateLock() { __atomic_store_n(lock_, 0, __ATOMIC_RELEASE); }

 private:
  uint32_t* lock_;
};

void* find_in_table(const Module& module, const char* name, detail::LinkedSymbolType type,
                    uint64_t size) {
  for (uint64_t i = 0; i < module.linked->symbol_count; ++i) {
    const detail::LinkedSymbol& symbol = module.linked->symbols[i];
    if (symbol.type == type && (size == 0 || symbol.size == size) && strcmp(symbol.name, name) == 0)
      return symbol.address;
  }
  return nullptr;
}

// Counts a user of the image, and sets the threads of its kernels. The process has the image once,
// so all users at a time must have the same threads.
husk_status enter(const husk_port_image& image, const husk_threads* threads, Module& module,
                  husk_error* error) {
  const husk_threads** slot = module.read_symbols();
  detail::LinkedState& state = *module.linked->state;
  const husk_threads wanted = slot && threads ? *threads : husk_threads{};
  const StateLock lock(state);
  if (state.users != 0 &&
      (wanted.user != state.threads.user || wanted.count != state.threads.count ||
       wanted.parallel != state.threads.parallel)) {
    return fail(error, HUSK_UNSUPPORTED,
                "image %s: its kernels are linked into the process, and another engine uses them "
                "with other threads; give both engines the same husk_threads",
                image.name);
  }
  if (state.users++ != 0) return HUSK_OK;
  state.threads = wanted;
  if (slot) *slot = wanted.parallel ? &state.threads : nullptr;
  return HUSK_OK;
}

void leave(Module& module) {
  const StateLock lock(*module.linked->state);
  --module.linked->state->users;
}

}  // namespace

husk_status module_link(void* handle, const husk_port_image* image, void** module,
                        husk_error* error) {
  *module = nullptr;
  HUSK_TRY(HUSK_CHECK_STRUCT(husk_port_image, image, name, error));
  if (!HUSK_HAS_FIELD(image, linked) || !image->linked) {
    return fail(error, HUSK_UNSUPPORTED,
                "image %s: husk_port_host_linked has no loader; write an object file by `huskc "
                "--emit=obj` from an artifact that was exported with --linkable",
                image->name);
  }
  const detail::LinkedImage* found = nullptr;
  HUSK_TRY(find_image(*image, found, error));
  auto* device = static_cast<Device*>(handle);
  Module* linked = module_create(device, *image, find_in_table, leave, error);
  if (!linked) return HUSK_OUT_OF_MEMORY;
  linked->linked = found;
  if (husk_status status = enter(*image, device->threads, *linked, error)) {
    linked->close = [](Module&) {};  // it is no user
    module_unload(device, linked);
    return status;
  }
  *module = linked;
  return HUSK_OK;
}

}  // namespace husk::host
