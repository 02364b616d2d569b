// A loaded artifact: which variants run here, their kernels, the constants on the device.
#pragma once

#include "container.h"
#include "engine.h"

#include <pthread.h>

#include <atomic>

namespace husk {

struct Chosen {
  uint32_t variant;    // of the function
  char target[64];     // "cuda sm_90a"
};

// An allocation of constants on the device, of one program or of several with the same ones.
struct Weights {
  References references;
  void* memory = nullptr;
  uint64_t bytes = 0;
};

}  // namespace husk

struct husk_session;

struct husk_program {
  husk::References references;
  husk_engine* engine = nullptr;
  husk::Container file;
  husk::Array<husk::Chosen> chosen;      // by function
  husk::Array<void*> modules;            // by image; null where it is not of a chosen target
  husk::Array<void*> kernels;            // by kernel, likewise
  husk::Array<husk_op> ops;              // by op; call is null where no chosen variant needs it
  husk::Array<uint8_t*> constants;       // device address, by constant
  // What holds them: what others may use too, and what was not in there. Null where the file's own pages serve.
  husk::Weights *shared = nullptr, *rest = nullptr;
  husk_program* next_lender = nullptr;   // of those with `shared`; under the engine's mutex, as the next one
  bool changed = false;                  // by an update: the hashes are not those of the values any more
  const uint8_t* mapped = nullptr;       // those of them that the port has mapped for the device, and their size
  uint64_t mapped_bytes = 0;
  husk::Array<void*> replaced;           // by constant: memory of its own, once it was updated in the file's pages
  uint64_t constants_version = 0;        // grows when an update moves a constant
  // Held while constants change, and around the list of sessions. A session's calls look at `updating` first.
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  std::atomic<uint32_t> updating{0};
  husk_session* sessions = nullptr;
  husk::Sink sink;   // of the call that loads it, then under the mutex

  ~husk_program();

  const husk::fb::Program* rows() const { return file.program(); }
  husk::Code code(uint32_t function) const {
    const husk::fb::Function* f = rows()->functions()->Get(function);
    return husk::Code(rows(), f, f->variants()->Get(chosen[function].variant));
  }
  uint32_t functions() const { return husk::count(rows()->functions()); }
  // After the container was read: verifies, chooses, loads.
  husk::Status load(husk_error* error);
  husk::Status update(const husk_constant_update* updates, uint32_t count, husk_error* error);
  // A session keeps its program, and the program knows its sessions.
  void add(husk_session* session);
  void remove(husk_session* session);

 private:
  husk::Status choose(husk_error* error);
  husk::Status resolve(husk_error* error);
  husk::Status load_kernel(uint32_t index, husk_error* error);
  husk::Status load_constants(husk_error* error);
  husk::Status bring_constants(uint64_t total, husk_error* error);
  void borrow_constants(uint64_t* total);
  void lend_constants();
  void drop_constants();
  bool change_constants();
  husk::Status map_constants(const uint8_t* begin, uint64_t size, husk_error* error);
  husk::Status upload(const husk_load* loads, uint32_t n, husk_error* error);
  husk::Status stage(const husk_constant_update* updates, uint32_t count, husk::Array<void*>* fresh, husk_error* error);
  husk::Status swap(const husk_constant_update* updates, uint32_t count, bool in_place, husk::Array<void*>* fresh,
                    husk_error* error);
};

namespace husk {
// Bytes of a tensor without gaps; of verified metadata, so the product fits.
inline uint64_t padded(uint64_t size) { return (size + 255) & ~uint64_t{255}; }  // of a constant among others
uint64_t dense_bytes(husk_dtype dtype, const flatbuffers::Vector<int64_t>* dims);
inline uint64_t state_bytes(const fb::State* state) { return dense_bytes(state->dtype(), state->dims()); }
}
