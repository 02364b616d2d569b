#include "engine.h"

#include <cstring>

husk_engine::~husk_engine() {
  for (const husk_op& op : ops) allocator.release(allocator.user, const_cast<char*>(op.name));
  if (device) port->close(device);
}

husk::Status husk_engine::find_op(const char* name, husk_op* out, husk_error* error) {
  {
    husk::Lock lock(mutex);
    for (size_t i = ops.size(); i-- > 0;)  // the latest wins
      if (strcmp(ops[i].name, name) == 0) {
        *out = ops[i];
        return husk::Status::ok;
      }
  }
  return husk::to_status(port->find_op ? port->find_op(device, name, out, error) : HUSK_NOT_FOUND);
}

namespace husk {
namespace {

Status create_engine(const husk_engine_options& given, husk_engine** out, husk_error* error) {
  const husk_port* port = given.port;
  if (!port) return fail(error, HUSK_INVALID_ARGUMENT, "husk_engine_options.port is NULL: pass husk_port_host()");
  if (port->abi != HUSK_PORT_ABI || port->struct_size < sizeof(husk_port))
    return fail(error, HUSK_UNSUPPORTED, "port '%s' has interface %u, not %u: build both from one version",
                port->name ? port->name : "", port->abi, HUSK_PORT_ABI);
  const husk_allocator allocator = given.allocator ? *given.allocator : *default_allocator();
  husk_engine* engine = create<husk_engine>(allocator, error);
  if (!engine) return to_status(HUSK_OUT_OF_MEMORY);
  engine->allocator = allocator;
  engine->options = given;
  engine->port = port;
  husk_error spare;
  Status status = to_status(port->open(port->user, given.device_index, &engine->allocator, given.threads,
                                       &engine->device, error ? error : &spare));
  if (failed(status)) {
    engine->device = nullptr;
    destroy(allocator, engine);
    return status;
  }
  port->properties(engine->device, &engine->properties);
  *out = engine;
  return Status::ok;
}

}  // namespace
}  // namespace husk

husk_status husk_engine_create(const husk_engine_options* options, husk_engine** engine, husk_error* error) {
  if (!options || !engine)
    return husk::null_argument(error, "engine_create");
  *engine = nullptr;
  husk_engine_options full = HUSK_ENGINE_OPTIONS_INIT;
  const size_t size = options->struct_size < sizeof(full) ? options->struct_size : sizeof(full);
  memcpy(&full, options, size);
  return husk_status(husk::create_engine(full, engine, error));
}

void husk_engine_release(husk_engine* engine) {
  if (!engine || !engine->references.drop()) return;
  const husk_allocator allocator = engine->allocator;
  husk::destroy(allocator, engine);
}

husk_status husk_engine_add_op(husk_engine* engine, const husk_op* op, husk_error* error) {
  if (!engine || !op || !op->name || !op->call)
    return husk::null_argument(error, "engine_add_op");
  size_t size = 1;
  while (op->name[size - 1]) ++size;
  char* name = static_cast<char*>(husk::allocate(engine->allocator, size, error));
  if (!name) return HUSK_OUT_OF_MEMORY;
  memcpy(name, op->name, size);
  husk_op kept = *op;
  kept.name = name;
  husk::Status status;
  {
    husk::Lock lock(engine->mutex);
    status = engine->ops.push(engine->allocator, kept, error);
  }
  if (husk::failed(status)) engine->allocator.release(engine->allocator.user, name);
  return husk_status(status);
}

void husk_engine_properties(const husk_engine* engine, husk_port_properties* out) {
  if (engine && out) *out = engine->properties;
}
