#include <husk/port_host.h>

#include <utility>

#include "arguments.h"

namespace husk::host {

namespace {

constexpr Op table[] = {
#define HUSK_HOST_OP(name, run, names) {name, run, names},
#include "pack.def"
#undef HUSK_HOST_OP
};
constexpr uint32_t table_size = sizeof table / sizeof *table;

template <size_t... I>
struct Rows {
  static constexpr husk_op all[] = {{table[I].name, op_enter, const_cast<Op*>(&table[I]), nullptr}...};
};

template <size_t... I>
constexpr const husk_op* rows(std::index_sequence<I...>) { return Rows<I...>::all; }

}  // namespace

}  // namespace husk::host

const husk_op* husk_host_ops(uint32_t* count) {
  *count = husk::host::table_size;
  return husk::host::rows(std::make_index_sequence<husk::host::table_size>());
}
