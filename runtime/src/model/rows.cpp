#include "model/rows.h"

#include <cstdio>

namespace husk {

Code::Label Code::label(uint32_t buffer) const {
  Label out;
  if (*name(buffer))
    snprintf(out.text, sizeof(out.text), "'%.36s'", name(buffer));
  else
    snprintf(out.text, sizeof(out.text), "#%u", buffer);
  return out;
}

uint32_t Code::segment_of(uint32_t reg) const {
  uint32_t first = 0, last = segments.size - 1;
  while (first < last) {
    const uint32_t middle = first + (last - first) / 2;
    if (reg < segments[middle].scalar_end())
      last = middle;
    else
      first = middle + 1;
  }
  return first;
}

uint32_t Code::result_count(const fb::Instruction& step) const {
  if (static_cast<Step>(step.op()) == Step::op_read) return 1;
  uint32_t n = 0;
  if (static_cast<Step>(step.op()) == Step::op_extern)
    for (uint32_t i = step.b(); i < step.b() + step.aux(); ++i)
      n += static_cast<ArgumentKind>(arguments[i].kind()) == ArgumentKind::result;
  return n;
}

Device Code::device_of(const fb::Instruction& step) const {
  if (static_cast<Step>(step.op()) != Step::op_extern) return Device::target;
  for (uint32_t i = step.b(); i < step.b() + step.c(); ++i)
    if (const uint32_t view = view_of(arguments[i]); view != kNone)
      return device_of(views[view].buffer());
  return Device::target;
}

bool Code::has_host_buffers() const {
  for (uint32_t b = 0; b < buffers.size; ++b)
    if (device_of(b) == Device::host) return true;
  return false;
}

}  // namespace husk
