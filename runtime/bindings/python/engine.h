// The engine of a program: its device, threads and operators.
#ifndef HUSK_PYTHON_ENGINE_H
#define HUSK_PYTHON_ENGINE_H

#include <nanobind/nanobind.h>

#include <memory>
#include <vector>

#include <husk/husk.h>

#include "op.h"

namespace husk::python {

namespace nb = nanobind;

// An id of a group of ranks, for engines on `device`.
nb::bytes group_id(const char* device, bool one_machine);

class Engine {
 public:
  // `device` is "cpu", "cuda" or "cuda:N". `options` are the numbers of husk_engine_options by
  // name, and `threads`, `group`, `accept`, `progress` and `log`.
  Engine(const char* device, nb::dict options);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Registers a Python function as an operator, for programs that are opened afterwards.
  void add_op(const char* name, nb::callable function);

  husk_engine* handle() const { return handle_; }
  const husk_port_properties& properties() const { return properties_; }
  bool on_host() const { return properties_.host_memory != 0; }

 private:
  static int32_t accept(void* self, const uint8_t* content_hash);
  static int32_t progress(void* self, uint64_t done, uint64_t total);
  static void log(void* self, int32_t level, const char* text);

  husk_engine* handle_ = nullptr;
  husk_port_properties properties_ = HUSK_PORT_PROPERTIES_INIT;
  nb::object accept_, progress_, log_;
  nb::ft_mutex mutex_;  // of `ops_`
  std::vector<std::unique_ptr<PythonOp>> ops_;
};

}  // namespace husk::python

#endif
