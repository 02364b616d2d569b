// The port "toy", which ports/ADD-A-DEVICE.md follows: a device with the arithmetic of the
// CPU and memory of its own.
#pragma once

#include <husk/port.h>

extern "C" const husk_port* husk_port_toy(void);
