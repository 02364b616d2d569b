# Builds for 64-bit Arm with Debian's cross compiler, and runs the programs by qemu. Headers of
# libraries are the host's; fmt-config.cmake and GTestConfig.cmake define the two libraries that
# are more than headers.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L /usr/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(fmt_DIR ${CMAKE_CURRENT_LIST_DIR})
set(GTest_DIR ${CMAKE_CURRENT_LIST_DIR})
