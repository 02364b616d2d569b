#include "program/engine.h"

#include <cstring>

#include <husk/detail/struct_size.h>

#include "program/contract.h"

namespace husk::runtime {

namespace {
constexpr uint32_t kGroupTimeout = 60000;  // milliseconds
}  // namespace

Status no_groups(const husk_port& port, husk_error* error) {
  return fail(error, HUSK_UNSUPPORTED,
              "port '%s' has no groups of ranks (husk_port.join): leave "
              "husk_engine_options.group NULL and register ops that communicate",
              port.name);
}

Engine::~Engine() {
  for (const husk_op& op : ops) allocator.release(allocator.user, const_cast<char*>(op.name));
  if (device) port->close(device);
}

Status Engine::open(const husk_engine_options& chosen, husk_error* error) {
  if (!chosen.port)
    return fail(error, HUSK_INVALID_ARGUMENT,
                "husk_engine_options.port is NULL: pass husk_port_host()");
  if (chosen.port->abi != HUSK_PORT_ABI)
    return fail(error, HUSK_UNSUPPORTED,
                "port '%s' has interface %u, not %u: build both from one version",
                chosen.port->name ? chosen.port->name : "", chosen.port->abi, HUSK_PORT_ABI);
  HUSK_TRY(to_status(HUSK_CHECK_STRUCT(husk_port, chosen.port, free_host_flag, error)));
  if (chosen.port->graphs)
    HUSK_TRY(
        to_status(HUSK_CHECK_STRUCT(husk_port_graphs, chosen.port->graphs, exec_destroy, error)));
  options = chosen;
  if (options.world == 0) options.world = 1;
  if (options.rank >= options.world)
    return fail(error, HUSK_INVALID_ARGUMENT,
                "husk_engine_options.rank is %u, world is %u: number the processes from 0",
                options.rank, options.world);
  detail::read_struct(*chosen.port, &table);
  ErrorScratch scratch;
  Status status = to_status(port->open(port->user, options.device_index, &allocator,
                                       options.threads, &device, scratch.of(error)));
  if (failed(status)) {
    device = nullptr;
    return status;
  }
  port->properties(device, &properties);
  if (!options.group || options.world == 1) return Status::ok;
  if (!port->join) return no_groups(*port, error);
  const uint32_t timeout = options.group_timeout_ms ? options.group_timeout_ms : kGroupTimeout;
  const husk_port_group group = {sizeof group,  options.rank,   options.world,      timeout,
                                 options.group, options.cancel, options.cancel_user};
  status = to_status(port->join(device, &group, scratch.of(error)));
  options.group = nullptr;  // the application's memory
  is_joined = !failed(status);
  return status;
}

Status Engine::add_op(const husk_op& op, husk_error* error) {
  husk_op copy = HUSK_OP_INIT;
  detail::read_struct(op, &copy);
  if (copy.place != HUSK_OP_ON_DEVICE && copy.place != HUSK_OP_ON_HOST)
    return fail(error, HUSK_INVALID_ARGUMENT, "op '%s': there is no place %d: husk_op.place",
                copy.name, int(copy.place));
  HUSK_TRY(check_contract(copy.name, copy.contract, error));
  const size_t size = strlen(op.name) + 1;
  char* name = static_cast<char*>(allocate(allocator, size, error));
  if (!name) return to_status(HUSK_OUT_OF_MEMORY);
  memcpy(name, op.name, size);
  copy.name = name;
  Lock lock(mutex);
  Status status = ops.push(allocator, copy, error);
  if (failed(status)) allocator.release(allocator.user, name);
  return status;
}

Status Engine::find_op(const char* name, Device where, husk_op* out, husk_error* error) {
  const bool on_host = where == Device::host;
  const auto fits = [&](const husk_op& op) {
    return properties.host_memory || on_host == (op.place == HUSK_OP_ON_HOST);
  };
  bool elsewhere = false;
  {
    Lock lock(mutex);
    for (size_t i = ops.size(); i-- > 0;) {
      if (strcmp(ops[i].name, name) != 0) continue;
      *out = ops[i];
      if (fits(*out)) return Status::ok;
      elsewhere = true;
    }
  }
  *out = HUSK_OP_INIT;
  const Status status = to_status(port->find_op ? port->find_op(device, name, out, error)
                                                : HUSK_NOT_FOUND);
  if (!failed(status) && fits(*out)) return check_contract(name, out->contract, error);
  out->call = nullptr;
  if (failed(status) && !(status == Status(HUSK_NOT_FOUND) && elsewhere)) return status;
  return fail(error, HUSK_UNSUPPORTED,
              "op '%.43s' computes on the %s, the tensors of its step lie on the %s: export the "
              "model for this target again, or register an op with husk_op.place HUSK_OP_ON_%s",
              name, on_host ? "device" : "host", on_host ? "host" : "device",
              on_host ? "HOST" : "DEVICE");
}

Status Engine::count_memory(uint64_t bytes, uint64_t* sum, husk_error* error) const {
  *sum += bytes;  // blobs have at most 2^62 bytes together
  const uint64_t most = options.max_program_bytes;
  if (most == 0 || *sum <= most) return Status::ok;
  return fail(error, HUSK_LIMIT,
              "the program takes at least %llu bytes for images and constants, "
              "husk_engine_options.max_program_bytes is %llu",
              static_cast<unsigned long long>(*sum), static_cast<unsigned long long>(most));
}

}  // namespace husk::runtime
