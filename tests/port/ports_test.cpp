// The list of ports, <husk/ports.h>.
#include <gtest/gtest.h>

#include <husk/port_cuda.h>
#include <husk/port_host.h>
#include <husk/ports.h>

namespace husk::port_test {

TEST(Ports, AreFoundByTheirNames) {
  EXPECT_EQ(husk_port_find("host"), husk_port_host());
  EXPECT_EQ(husk_port_find("cuda"), husk_port_cuda());
  EXPECT_EQ(husk_port_find("cuda:12"), husk_port_cuda());
  for (const char* name : {"", ":", ":cuda", "cud", "cudas", "CUDA", "vulkan", "vulkan:0"})
    EXPECT_EQ(husk_port_find(name), nullptr) << name;
}

TEST(Ports, AreListedWithoutGaps) {
  uint32_t count = 0;
  while (const husk_port* port = husk_port_at(count)) {
    EXPECT_EQ(husk_port_find(port->name), port);
    ++count;
  }
  EXPECT_EQ(count, 2u);
  EXPECT_EQ(husk_port_at(count + 1), nullptr);
  EXPECT_EQ(husk_port_at(UINT32_MAX), nullptr);
}

}  // namespace husk::port_test
