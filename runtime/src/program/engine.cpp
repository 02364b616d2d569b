#include "program/engine.h"

#include <cstring>

#include <husk/detail/struct_size.h>

#include "program/contract.h"

namespace husk::runtime {

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
  port = chosen.port;
  ErrorScratch scratch;
  Status status = to_status(port->open(port->user, options.device_index, &allocator,
                                       options.threads, &device, scratch.of(error)));
  if (failed(status)) {
    device = nullptr;
    return status;
  }
  port->properties(device, &properties);
  return Status::ok;
}

Status Engine::add_op(const husk_op& op, husk_error* error) {
  husk_op copy = HUSK_OP_INIT;
  detail::read_struct(op, &copy);
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

Status Engine::find_op(const char* name, husk_op* out, husk_error* error) {
  {
    Lock lock(mutex);
    for (size_t i = ops.size(); i-- > 0;)
      if (strcmp(ops[i].name, name) == 0) {
        *out = ops[i];
        return Status::ok;
      }
  }
  *out = HUSK_OP_INIT;
  HUSK_TRY(to_status(port->find_op ? port->find_op(device, name, out, error) : HUSK_NOT_FOUND));
  return check_contract(name, out->contract, error);
}

}  // namespace husk::runtime
