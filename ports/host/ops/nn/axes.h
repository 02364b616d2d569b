#pragma once

namespace husk::host {

// The largest number of spatial dimensions of an operator of images. Unused ones have size 1.
constexpr int kAxes = 3;

}  // namespace husk::host
