// A device, and the operators that programs on it may call.
#pragma once

#include <husk/husk.h>

#include "base/memory.h"
#include "base/sync.h"
#include "model/rows.h"

// A program that links libhusk.a may include husk.hpp, which defines husk::Engine, husk::Program
// and husk::Session. The classes behind the handles have the same names, so they need their own
// namespace.
namespace husk::runtime {

class SharedMemory;

// The failure of a call that needs a port with groups of ranks.
Status no_groups(const husk_port& port, husk_error* error);

struct Engine {
  References references;
  husk_allocator allocator = {};
  husk_engine_options options = {};
  husk_port table = {};  // a copy, in which fields that an older port lacks are null
  const husk_port* port = &table;
  void* device = nullptr;
  bool is_joined = false;  // whether the device has joined a group of ranks
  husk_port_properties properties = HUSK_PORT_PROPERTIES_INIT;
  Mutex mutex;        // guards `ops` and the lists of lenders
  List<husk_op> ops;  // in the order of registration; the engine owns the names
  // Lists of the constants, and of their packed copies, that other programs may use.
  SharedMemory *lent_constants = nullptr, *lent_copies = nullptr;

  ~Engine();

  // Opens the device of `options.port`. `allocator` must be set already.
  Status open(const husk_engine_options& options, husk_error* error);
  // Registers a copy of `op`.
  Status add_op(const husk_op& op, husk_error* error);
  // Finds an op by name for tensors that lie on `where`: the application's latest, then the port's.
  // Returns HUSK_NOT_FOUND if neither has it.
  Status find_op(const char* name, Device where, husk_op* out, husk_error* error);
  // Adds memory that opening a program takes to `*sum`, and compares it with the limit.
  Status count_memory(uint64_t bytes, uint64_t* sum, husk_error* error) const;
  // Returns whether the device has host memory beside it.
  bool has_host_memory() const { return table.alloc_host && table.free_host; }
};

}  // namespace husk::runtime

struct husk_engine : husk::runtime::Engine {};
