#include <husk/port_host.h>

#include "arguments.h"

namespace husk::host {

namespace {

constexpr husk_op ops[] = {
    {"aten::mm.out", mm_out, nullptr},   {"aten::addmm.out", addmm_out, nullptr},
    {"aten::bmm.out", bmm_out, nullptr}, {"aten::baddbmm.out", baddbmm_out, nullptr},
    {"aten::copy_", copy_into, nullptr},
};

}  // namespace

}  // namespace husk::host

const husk_op* husk_host_ops(uint32_t* count) {
  *count = sizeof husk::host::ops / sizeof *husk::host::ops;
  return husk::host::ops;
}
