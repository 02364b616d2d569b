// husk_port.enter and leave: a run makes the device current once.
#include <thread>

#include "port_case.h"

namespace husk::port_test {

class CudaEnter : public Cuda {
 protected:
  void* entered_ = nullptr;
};
class OverFakeEnter : public OverFake {
 protected:
  void* entered_ = nullptr;
};

TEST_F(CudaEnter, GivesAHandleThatWorksLikeTheDevice) {
  ASSERT_EQ(port->enter(device, &entered_, &error), HUSK_OK) << error.text;
  void* plain = device;
  device = entered_;  // the calls below use the entered handle
  int32_t* a = device_array(std::vector<int32_t>(8, 1));
  int32_t value = 1, n = 8;
  void* params[] = {&a, &a, &value, &n};
  const husk_launch launch = launch_for(8, params);
  ASSERT_EQ(port->launch(device, stream, add_scalar(), &launch, &error), HUSK_OK) << error.text;
  ASSERT_EQ(port->fill(device, stream, a, 5, 4, 4, &error), HUSK_OK) << error.text;
  EXPECT_EQ(read(a, 8), (std::vector<int32_t>{5, 5, 5, 5, 2, 2, 2, 2}));
  husk_port_properties properties = HUSK_PORT_PROPERTIES_INIT;
  port->properties(device, &properties);
  EXPECT_EQ(properties.dl_device_type, 2);
  device = plain;
  EXPECT_EQ(read(a, 1)[0], 5);  // the plain handle works between enter and leave too
  port->leave(entered_);
  EXPECT_EQ(read(a, 1)[0], 5);
}

TEST_F(CudaEnter, LeavesOtherThreadsAlone) {
  int32_t* a = device_array(std::vector<int32_t>(8, 1));
  ASSERT_EQ(port->enter(device, &entered_, &error), HUSK_OK) << error.text;
  std::string wrong;
  std::thread other([&] {
    husk_error mine{};
    int32_t value = 0;
    void* again = nullptr;
    if (port->download(device, nullptr, &value, a, 4, &mine) != HUSK_OK) wrong = mine.text;
    if (port->enter(device, &again, &mine) != HUSK_OK)
      wrong = mine.text;
    else if (port->download(again, nullptr, &value, a, 4, &mine) != HUSK_OK)
      wrong = mine.text;
    if (again) port->leave(again);
    if (value != 1) wrong = "another value";
  });
  other.join();
  port->leave(entered_);
  EXPECT_EQ(wrong, "");
}

TEST_F(OverFakeEnter, ARunMakesOneCallPerLaunchAndTwoMore) {
  int32_t *a = device_array(std::vector<int32_t>(8, 1)),
          *b = device_array(std::vector<int32_t>(8, 1));
  int32_t value = 1, n = 8;
  void* params[] = {&a, &a, &value, &n};
  const husk_launch launch = launch_for(8, params);
  void* add = add_scalar();
  fake().reset();
  ASSERT_EQ(port->enter(device, &entered_, &error), HUSK_OK);
  for (int i = 0; i < 98; ++i)
    ASSERT_EQ(port->launch(entered_, stream, add, &launch, &error), HUSK_OK);
  ASSERT_EQ(port->copy(entered_, stream, b, a, 32, &error), HUSK_OK);
  ASSERT_EQ(port->fill(entered_, stream, a, 0, 4, 8, &error), HUSK_OK);
  port->leave(entered_);
  EXPECT_EQ(fake().calls(nullptr), 102u);
  EXPECT_EQ(read(b, 8), std::vector<int32_t>(8, 99));
}

TEST_F(OverFakeEnter, RestoresTheCallersContext) {
  fake().set_devices(2);
  void* second = nullptr;
  ASSERT_EQ(port->open(port->user, 1, &allocator, nullptr, &second, &error), HUSK_OK) << error.text;
  void *first_entered = nullptr, *second_entered = nullptr, *piece = nullptr;
  ASSERT_EQ(port->enter(device, &first_entered, &error), HUSK_OK);
  ASSERT_EQ(port->enter(second, &second_entered, &error), HUSK_OK);  // another device
  ASSERT_EQ(port->alloc(second_entered, 64, &piece, &error), HUSK_OK) << error.text;
  port->free(second_entered, piece);
  port->leave(second_entered);
  // `stream` belongs to the first device, whose context is current again.
  EXPECT_EQ(port->stream_wait(first_entered, stream, &error), HUSK_OK) << error.text;
  port->leave(first_entered);
  port->close(second);
}

}  // namespace husk::port_test
