// The table of a linked image: what the port finds in it, and every reason to refuse it.
#include <string>

#include <husk/detail/linked.h>

#include "../host/host_device.h"
#include "image.h"

namespace husk::host_test {
namespace {

using detail::LinkedImage, detail::LinkedState, detail::LinkedSymbol, detail::LinkedTable;

int32_t seven(void**) { return 7; }

class TableOfKernels : public HostDevice {
 protected:
  void SetUp() override {
    port = husk_port_host_linked();
    HostDevice::SetUp();
  }
  husk_status load(void** module) {
    *module = this;
    return port->module_load(device, &image, module, &error);
  }
  husk_status kernel(void* module, const char* symbol, void** out) {
    const husk_port_kernel desc{sizeof(husk_port_kernel), 0, symbol, nullptr, 0, 1, 1, 0};
    return port->kernel_get(device, module, &desc, out, &error);
  }
  void refuses(husk_status status, const char* text) {
    void* module;
    const int before = memory.live;
    EXPECT_EQ(load(&module), status);
    EXPECT_EQ(module, nullptr);
    EXPECT_NE(std::string(error.text).find(text), std::string::npos) << error.text;
    EXPECT_NE(std::string(error.text).find("image twelve"), std::string::npos) << error.text;
    EXPECT_EQ(memory.live, before);
  }

  uint32_t count = 1;
  const husk_threads* slot = nullptr;
  LinkedState state{};
  LinkedSymbol symbols[3] = {{"seven", reinterpret_cast<void*>(seven), 0, detail::kLinkedFunction},
                             {"husk_text_count", &count, sizeof(count), detail::kLinkedObject},
                             {"husk_image_threads", &slot, sizeof(slot), detail::kLinkedObject}};
  LinkedImage images[2] = {{"other", nullptr, 0, nullptr}, {"twelve", symbols, 3, &state}};
  LinkedTable table{detail::kLinkedMagic, host::kMachine, images, 2, nullptr, 0};
  husk_port_image image{sizeof(husk_port_image), HUSK_IMAGE_ELF, nullptr, 0, "twelve", &table};
};

TEST_F(TableOfKernels, HasKernels) {
  void *module, *found;
  ASSERT_EQ(load(&module), HUSK_OK) << error.text;
  ASSERT_EQ(kernel(module, "seven", &found), HUSK_OK) << error.text;
  const husk_launch launch = HUSK_LAUNCH_INIT;
  EXPECT_EQ(port->launch(device, nullptr, found, &launch, &error), HUSK_KERNEL);
  // An image without texts has none for any number.
  EXPECT_NE(std::string(error.text).find("failed with 7"), std::string::npos) << error.text;
  EXPECT_EQ(state.users, 1u);
  port->module_unload(device, module);
  EXPECT_EQ(state.users, 0u);
}

TEST_F(TableOfKernels, LacksAKernel) {
  void *module, *found;
  ASSERT_EQ(load(&module), HUSK_OK) << error.text;
  for (const char* name : {"eight", "husk_text_count", ""}) {  // an object is no kernel
    EXPECT_EQ(kernel(module, name, &found), HUSK_NOT_FOUND);
    EXPECT_NE(std::string(error.text).find(std::string("kernel ") + name), std::string::npos);
    EXPECT_EQ(found, nullptr);
  }
  port->module_unload(device, module);
}

TEST_F(TableOfKernels, AnObjectHasItsSize) {
  symbols[2].size = 4;
  void* module;
  slot = reinterpret_cast<const husk_threads*>(1);
  ASSERT_EQ(load(&module), HUSK_OK) << error.text;
  EXPECT_EQ(slot, reinterpret_cast<const husk_threads*>(1));  // is not what the port looks for
  port->module_unload(device, module);
  symbols[2].size = sizeof(slot);
  ASSERT_EQ(load(&module), HUSK_OK) << error.text;
  EXPECT_EQ(slot, nullptr);
  port->module_unload(device, module);
}

TEST_F(TableOfKernels, Mismatches) {
  image.name = "thirteen";
  void* module;
  EXPECT_EQ(load(&module), HUSK_NOT_FOUND);
  EXPECT_NE(std::string(error.text).find("image thirteen"), std::string::npos) << error.text;
  image.name = "twelve";
  table.machine = 8;
  refuses(HUSK_UNSUPPORTED, "for ELF machine 8, this is");
  table.magic++;
  refuses(HUSK_INVALID_FILE, "another version of huskc");
  image.linked = nullptr;
  refuses(HUSK_UNSUPPORTED, "--linkable");
  image.struct_size = offsetof(husk_port_image, linked);
  refuses(HUSK_UNSUPPORTED, "--linkable");
  image.struct_size = offsetof(husk_port_image, name);
  void* none;
  EXPECT_EQ(load(&none), HUSK_INVALID_ARGUMENT);
}

TEST_F(TableOfKernels, WithoutMemory) {
  void* module;
  memory.fail_at = 0;
  refuses(HUSK_OUT_OF_MEMORY, "no memory for its module");
  EXPECT_EQ(state.users, 0u);
  ASSERT_EQ(load(&module), HUSK_OK) << error.text;
  port->module_unload(device, module);
}

}  // namespace
}  // namespace husk::host_test
