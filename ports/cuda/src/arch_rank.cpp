#include <cstring>

#include "device.h"

namespace husk::cuda {

namespace {

struct Architecture {
  int major, minor;
  char suffix;  // 'a': for this version only; 'f': for its family; 0: no suffix
};

// Reads names such as "sm_90a"; the last digit is the minor version.
bool parse(const char* text, Architecture* out) {
  if (strncmp(text, "sm_", 3) != 0) return false;
  text += 3;
  int number = 0, digits = 0;
  for (; *text >= '0' && *text <= '9' && digits < 4; ++text, ++digits)
    number = number * 10 + (*text - '0');
  if (digits < 2) return false;
  out->major = number / 10;
  out->minor = number % 10;
  out->suffix = *text;
  if (*text == 0) return true;
  return (*text == 'a' || *text == 'f') && text[1] == 0;
}

// Machine code for a Tegra device runs on that version only, and a Tegra device runs no other code.
// Source: CUDA C++ Programming Guide, "Binary Compatibility"; the versions are those of
// "CUDA-Enabled Jetson Products". Version 10.1 is 11.0 in CUDA 13.
bool is_tegra(int major, int minor) {
  const int version = major * 10 + minor;
  return version == 53 || version == 62 || version == 72 || version == 87 || version == 101 ||
         version == 110;
}

// Ranks: 1000 for machine code with the device's own features, 950 for code with its family's
// features, 900 for plain code of its version, 800 and more for code of an older minor version,
// less than 500 for PTX, which the driver must compile.
int32_t rank(int major, int minor, const char* arch, int32_t format) {
  Architecture code;
  if (!arch || !parse(arch, &code)) return 0;
  const bool exact = code.major == major && code.minor == minor;
  const bool family = code.major == major && code.minor <= minor;
  if (code.suffix == 'a' && !exact) return 0;
  if (code.suffix == 'f' && !family) return 0;

  if (format == HUSK_IMAGE_PTX) {
    if (code.suffix) return 400 + (exact ? 50 : 0) + code.minor;
    if (code.major > major || (code.major == major && code.minor > minor)) return 0;
    return 10 + code.major * 10 + code.minor;
  }
  if (format != HUSK_IMAGE_CUBIN) return 0;
  if (exact) return code.suffix == 'a' ? 1000 : code.suffix == 'f' ? 950 : 900;
  if (!family || is_tegra(code.major, code.minor) || is_tegra(major, minor)) return 0;
  return 800 + code.minor;
}

}  // namespace

int32_t arch_rank(void* handle, const char* arch, int32_t format) {
  const Device& device = as_device(handle);
  return rank(device.major, device.minor, arch, format);
}

int32_t arch_rank_on(const char* device_arch, const char* arch, int32_t format) {
  Architecture device;
  if (!device_arch || !parse(device_arch, &device)) return 0;
  return rank(device.major, device.minor, arch, format);
}

}  // namespace husk::cuda
