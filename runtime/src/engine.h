// A device and the operators that programs on it may call.
#pragma once

#include "memory.h"

#include <husk/husk.h>

#include <atomic>
#include <mutex>

namespace husk {

// An extern op as it was registered; the name is owned by the engine.
struct OpEntry {
  char* name;
  husk_op_fn call;
  void* user;
};

// Shared by the handles: one reference for the caller, one for each child.
class References {
 public:
  void retain() { count_.fetch_add(1, std::memory_order_relaxed); }
  bool drop() { return count_.fetch_sub(1, std::memory_order_acq_rel) == 1; }  // true: it was the last

 private:
  std::atomic<uint32_t> count_{1};
};

}  // namespace husk

struct husk_engine {
  husk::References references;
  husk_allocator allocator;
  husk_engine_options options;
  const husk_port* port;
  void* device;
  husk_port_properties properties;
  std::mutex mutex;  // guards ops
  husk::List<husk::OpEntry> ops;

  explicit husk_engine(const husk_engine_options& o, const husk_allocator& a)
      : allocator(a), options(o), port(o.port), device(nullptr), properties() {}
  ~husk_engine();

  // False if there is none by that name.
  bool find_op(const char* name, husk::OpEntry* out);
};
