// The table of husk_host_ops(), made from pack.def.
#include <utility>

#include <husk/ops.h>

#include "core/arguments.h"

namespace husk::host {

namespace {

constexpr Op kTable[] = {
#define HUSK_HOST_OP(name, run, contract) {name, run, contract},
#include "core/pack.def"
#undef HUSK_HOST_OP
};
constexpr uint32_t kTableSize = sizeof kTable / sizeof *kTable;

template <size_t... I>
struct Rows {
  static constexpr husk_op kRows[] = {{sizeof(husk_op), 0, kTable[I].name, op_enter,
                                       const_cast<Op*>(&kTable[I]), nullptr,
                                       kTable[I].contract}...};
};

template <size_t... I>
constexpr const husk_op* rows(std::index_sequence<I...>) {
  return Rows<I...>::kRows;
}

}  // namespace

}  // namespace husk::host

const husk_op* husk_host_ops(uint32_t* count) {
  *count = husk::host::kTableSize;
  return husk::host::rows(std::make_index_sequence<husk::host::kTableSize>());
}
