#include <husk/detail/try.h>
#include <husk/ops.h>

husk_status husk_ops_add_all(husk_engine* engine, husk_error* error) {
  uint32_t count = 0;
  const husk_op* ops = husk_host_ops(&count);
  for (uint32_t i = 0; i < count; ++i) HUSK_TRY(husk_engine_add_op(engine, &ops[i], error));
  return HUSK_OK;
}
