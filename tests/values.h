// Numbers as husk_value, for tests.
#pragma once

#include <husk/husk.h>

namespace husk::test {

inline husk_value integer(int64_t i) {
  husk_value v = {HUSK_VALUE_INT, 0, {}};
  v.as.i = i;
  return v;
}

inline husk_value floating(double f) {
  husk_value v = {HUSK_VALUE_FLOAT, 0, {}};
  v.as.f = f;
  return v;
}

inline husk_value boolean(bool b) {
  husk_value v = {HUSK_VALUE_BOOL, 0, {}};
  v.as.i = b;
  return v;
}

inline husk_value none() { return {HUSK_VALUE_NONE, 0, {}}; }

}  // namespace husk::test
