// Groups of ranks on the host, for tests.
#pragma once

#include <gtest/gtest.h>

#include <husk/husk.h>
#include <husk/port_host.h>

namespace husk::test {

inline husk_group_id new_id() {
  husk_group_id id;
  husk_error error = {};
  EXPECT_EQ(husk_group_id_create(husk_port_host(), &id, &error), HUSK_OK) << error.text;
  return id;
}

}  // namespace husk::test
