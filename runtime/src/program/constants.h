// The constants of a program in device memory.
#pragma once

#include "model/container.h"
#include "model/shape.h"
#include "program/shared_memory.h"

namespace husk::runtime {

// Places every constant where the device reads it best: in the pages of the file, if the port can
// map them or the device uses host memory; otherwise in allocations of the device. Constants with
// the same bytes (by hash) lie on a device once, those of other programs of the engine included.
class ConstantStore {
 public:
  ConstantStore() = default;
  ConstantStore(const ConstantStore&) = delete;
  ConstantStore& operator=(const ConstantStore&) = delete;
  ~ConstantStore();

  // `file` must be verified, and must live as long as the store.
  // `memory` is the sum of the memory that opening the program takes.
  Status load(Engine* engine, const Container* file, uint64_t* memory, husk_error* error);

  // The constants whose bytes the file has; those that are folded follow.
  uint32_t count() const { return file_->stored_constants; }
  // Null for a folded constant whose function does not run on the device.
  uint8_t* address(uint32_t constant) const { return addresses_[constant]; }
  uint64_t bytes(uint32_t constant) const {
    return verified_bytes(file_->program()->constants()->Get(constant));
  }
  // Says where a folded constant lies. No run may be in progress.
  void place(uint32_t constant, uint8_t* address) { addresses_[constant] = address; }
  // The hash of the bytes in the file, 32 bytes.
  const uint8_t* hash(uint32_t constant) const { return blob(constant)->hash().bytes()->Data(); }
  // A number that grows when an update moves a constant.
  uint64_t version() const { return version_; }

  // Brings new values to the device, next to the old ones, and writes their addresses to `staged`,
  // also if it fails. Of several parts of a constant the first one has its address, the others have
  // null.
  Status stage(const husk_constant_part* updates, uint32_t n, Array<void*>* staged,
               husk_error* error);
  // Puts staged values in the place of the old ones. No run may be in progress. Afterwards `staged`
  // has the allocations that are not in use any more.
  Status swap(const husk_constant_part* updates, uint32_t n, Array<void*>* staged,
              husk_error* error);

 private:
  const fb::Blob* blob(uint32_t constant) const {
    return file_->program()->constants()->Get(constant)->blob();
  }
  Status map(const uint8_t* begin, uint64_t size, husk_error* error);
  Status bring(uint64_t* memory, husk_error* error);
  Status upload(husk_upload* uploads, uint32_t n, husk_error* error);
  Status upload_part(const husk_upload* uploads, uint32_t n, husk_error* error);

  Engine* engine_ = nullptr;
  const Container* file_ = nullptr;
  Array<uint8_t*> addresses_;  // device address, by constant
  SharedMemory memory_;        // empty if the constants are used from the mapped file
  // Start and size of the file pages that port->map made visible to the device; null if none.
  const uint8_t* mapped_ = nullptr;
  uint64_t mapped_bytes_ = 0;
  Array<void*> replaced_;  // by constant: the allocation of an updated value; null if none
  uint64_t version_ = 0;
};

}  // namespace husk::runtime
