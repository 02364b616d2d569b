#include <husk/port_cuda.h>

#include "port_case.h"

namespace husk::port_test {

// A driver whose settings each test chooses before it opens the port.
class OverFakeOpen : public OverFake {
 protected:
  void SetUp() override {
    NEEDS_FAKE;
    fake().reset();
  }
  int32_t arch_rank(const char* arch, int32_t format = HUSK_IMAGE_CUBIN) {
    const int32_t rank = port->arch_rank(device, arch, format);
    husk_port_properties properties = HUSK_PORT_PROPERTIES_INIT;
    port->properties(device, &properties);
    EXPECT_EQ(port->arch_rank_on(properties.arch, arch, format), rank) << arch;
    return rank;
  }
};

TEST_F(OverFakeOpen, HasThePropertiesOfTheDevice) {
  ASSERT_EQ(open(), HUSK_OK) << error.text;
  husk_port_properties properties = HUSK_PORT_PROPERTIES_INIT;
  port->properties(device, &properties);
  EXPECT_STREQ(properties.name, "Fake GPU");
  EXPECT_STREQ(properties.arch, "sm_90a");
  EXPECT_EQ(properties.memory_bytes, uint64_t{16} << 30);
  EXPECT_EQ(properties.host_memory, 0);
}

TEST_F(OverFakeOpen, OpensTheSecondDeviceToo) {
  fake().set_devices(2);
  ASSERT_EQ(open(1), HUSK_OK) << error.text;
  husk_port_properties properties = HUSK_PORT_PROPERTIES_INIT;
  port->properties(device, &properties);
  EXPECT_EQ(properties.device_index, 1);
}

TEST_F(OverFakeOpen, ReportsThatThereIsNoDevice) {
  fake().set_devices(0);
  EXPECT_EQ(open(), HUSK_UNSUPPORTED);
  EXPECT_EQ(device, nullptr);
  EXPECT_TRUE(error_says("cuInit CUDA_ERROR_NO_DEVICE nvidia-smi CUDA_VISIBLE_DEVICES"));
  EXPECT_EQ(error.driver_code, 100);
}

TEST_F(OverFakeOpen, ReportsTheNumberOfDevices) {
  fake().set_devices(3);
  EXPECT_EQ(open(3), HUSK_INVALID_ARGUMENT);
  EXPECT_TRUE(error_says("device 3 shows 3"));
  EXPECT_EQ(open(-1), HUSK_INVALID_ARGUMENT);
}

TEST_F(OverFakeOpen, ReportsThatTheDriverIsTooOld) {
  fake().set_driver_version(11080);
  EXPECT_EQ(open(), HUSK_UNSUPPORTED);
  EXPECT_TRUE(error_says("11.8 12.0 update"));
}

TEST_F(OverFakeOpen, NamesTheMissingSymbol) {
  fake().hide("cuGraphLaunch");
  EXPECT_EQ(open(), HUSK_UNSUPPORTED);
  EXPECT_TRUE(error_says("libcuda.so.1 cuGraphLaunch update"));
}

TEST_F(OverFakeOpen, WorksWithoutOptionalFunctions) {
  for (const int32_t version : {12000, 12020, 12030, 12040, 13000}) {
    fake().set_driver_version(version);
    ASSERT_EQ(open(), HUSK_OK) << version << error.text;
    ASSERT_EQ(port->stream_create(device, &stream, &error), HUSK_OK);
    int32_t* a = device_array(std::vector<int32_t>(8, 1));
    int32_t value = 1, n = 8;
    void* params[] = {&a, &a, &value, &n};
    const husk_launch launch = launch_for(8, params);
    ASSERT_EQ(port->launch(device, stream, add_scalar(), &launch, &error), HUSK_OK) << error.text;
    EXPECT_EQ(read(a, 8), std::vector<int32_t>(8, 2));
    close();
  }
}

TEST_F(OverFakeOpen, ReportsAFailedAllocation) {
  memory.fail_at = 1;
  EXPECT_EQ(open(), HUSK_OUT_OF_MEMORY);
  EXPECT_EQ(device, nullptr);
}

TEST_F(OverFakeOpen, RanksCodeForTheDevice) {
  const auto opened_at = [this](int32_t major, int32_t minor) {
    close();
    fake().set_capability(major, minor);
    ASSERT_EQ(open(), HUSK_OK) << error.text;
  };
  opened_at(9, 0);
  EXPECT_GT(arch_rank("sm_90a"), arch_rank("sm_90"));
  EXPECT_GT(arch_rank("sm_90"), arch_rank("sm_90a", HUSK_IMAGE_PTX));
  EXPECT_GT(arch_rank("sm_90a", HUSK_IMAGE_PTX), arch_rank("sm_90", HUSK_IMAGE_PTX));
  EXPECT_GT(arch_rank("sm_90", HUSK_IMAGE_PTX), arch_rank("sm_80", HUSK_IMAGE_PTX));
  EXPECT_GT(arch_rank("sm_50", HUSK_IMAGE_PTX), 0);
  for (const char* arch : {"sm_80", "sm_100", "sm_100a", "sm_89", "sm_9", "sm_", "sm_90b",
                           "sm_90aa", "90", "", "sm_90 "}) {
    EXPECT_EQ(arch_rank(arch), 0) << arch;
  }
  EXPECT_EQ(arch_rank("sm_100", HUSK_IMAGE_PTX), 0);
  EXPECT_EQ(arch_rank("sm_90a", HUSK_IMAGE_ELF), 0);
  EXPECT_EQ(port->arch_rank(device, nullptr, HUSK_IMAGE_CUBIN), 0);

  opened_at(8, 9);
  EXPECT_GT(arch_rank("sm_89"), arch_rank("sm_86"));
  EXPECT_GT(arch_rank("sm_86"), arch_rank("sm_80"));
  EXPECT_GT(arch_rank("sm_80"), arch_rank("sm_89", HUSK_IMAGE_PTX));
  EXPECT_EQ(arch_rank("sm_90"), 0);
  EXPECT_EQ(arch_rank("sm_87"), 0);  // code for Orin runs on Orin only
  husk_port_properties properties = HUSK_PORT_PROPERTIES_INIT;
  port->properties(device, &properties);
  EXPECT_STREQ(properties.arch, "sm_89");

  opened_at(8, 7);
  EXPECT_GT(arch_rank("sm_87"), 0);
  EXPECT_EQ(arch_rank("sm_86"), 0);
  EXPECT_EQ(arch_rank("sm_80"), 0);
  EXPECT_GT(arch_rank("sm_80", HUSK_IMAGE_PTX), 0);

  opened_at(10, 3);
  EXPECT_GT(arch_rank("sm_103a"), arch_rank("sm_103f"));
  EXPECT_GT(arch_rank("sm_103"), arch_rank("sm_100f"));
  EXPECT_GT(arch_rank("sm_100f"), 0);
  EXPECT_EQ(arch_rank("sm_100a"), 0);
  EXPECT_EQ(arch_rank("sm_100a", HUSK_IMAGE_PTX), 0);
  EXPECT_EQ(arch_rank("sm_120f", HUSK_IMAGE_PTX), 0);
  port->properties(device, &properties);
  EXPECT_STREQ(properties.arch, "sm_103a");
}

// Started by CMakeLists.txt with a libcuda.so.1 that cannot be used.
TEST(CudaWithout, ADriverTheErrorSaysWhatToDo) {
  if (fake()) GTEST_SKIP() << "the fake driver is there";
  const char* wanted = getenv("HUSK_TEST_OPEN_SAYS");
  if (!wanted) GTEST_SKIP() << "only where the build says which driver is missing";
  CountedMemory memory;
  const husk_allocator allocator = memory.allocator();
  void* device = &device;
  husk_error error{};
  EXPECT_EQ(husk_port_cuda()->open(nullptr, 0, &allocator, nullptr, &device, &error),
            HUSK_UNSUPPORTED);
  EXPECT_EQ(device, nullptr);
  EXPECT_EQ(error.code, HUSK_UNSUPPORTED);
  EXPECT_NE(std::string(error.text).find(wanted), std::string::npos) << error.text;
  EXPECT_EQ(memory.live, 0);
}

}  // namespace husk::port_test
