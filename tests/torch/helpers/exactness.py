"""Compares the errors of results with those of plain float32, which no library and no CPU decides.

Which library eager PyTorch calls, and in which order it sums, depends on the CPU: the largest error
of 70 elements may be half of that on another machine. So a result may be as wrong as a *plain* one:
its products and sums are elementwise operations of float32, one term after another, and it is
rounded once to the dtype of the result. Both are compared over thousands of elements, drawn by many
seeds.
"""

import torch

# How many elements are compared, at least. The ratio of two roots of mean squares of so many
# independent errors is known to 3 %, and the ratio of their largest to about 15 %.
ELEMENTS = 2000
# How far the errors of a result may exceed the plain ones.
RMS, LARGEST = 1.5, 2.0
# How many terms of a plain sum are added in order. The sums of blocks are then added in order, too.
BLOCK = 256


def seeds(elements):
  """As many seeds as give ELEMENTS elements, and at least two."""
  return range(max(2, -(-ELEMENTS // elements)))


class Errors:
  """Errors of results and of plain ones, over several seeds."""

  def __init__(self):
    self.count = 0
    self.squares, self.largest = ({"got": 0.0, "plain": 0.0} for _ in range(2))

  def add(self, exact, got, plain):
    """Adds the errors of one seed against `exact`, which is in float64."""
    for side, result in (("got", got), ("plain", plain.to(got.dtype))):
      error = (result.double() - exact).abs()
      assert not error.isnan().any(), side
      self.squares[side] += error.square().sum().item()
      self.largest[side] = max(self.largest[side], error.max().item())
    self.count += exact.numel()

  def check(self, *what, rms=RMS, largest=LARGEST):
    """Fails if the errors of `got` are larger than those of `plain` by more than the factors."""
    assert self.count >= ELEMENTS, f"{self.count} elements say too little"
    means = {side: (total / self.count) ** 0.5 for side, total in self.squares.items()}
    for name, found, factor in (("rms", means, rms), ("largest", self.largest, largest)):
      assert found["got"] <= factor * found["plain"], (*what, name, found)


def product(x, weight):
  """x @ weight.T in float32, of which each sum is made in order. Batches are possible."""
  total = 0
  for columns in zip(x.float().split(BLOCK, -1), weight.float().split(BLOCK, -1)):
    block = 0
    for a, b in zip(*(side.unbind(-1) for side in columns)):
      block = block + a[..., :, None] * b[..., None, :]
    total = total + block
  return total


def convolution(x, weight, stride, padding, dilation, groups=1):
  """A convolution of images as plain products of float32."""
  outputs, _, *kernel = weight.shape
  columns = torch.nn.functional.unfold(x.float(), kernel, dilation, padding, stride)
  columns = columns.unflatten(1, (groups, -1)).mT  # batch, group, position, depth
  result = product(columns, weight.flatten(1).unflatten(0, (groups, -1))[None])
  sides = [
    (size + 2 * pad - gap * (taps - 1) - 1) // step + 1
    for size, pad, gap, taps, step in zip(x.shape[2:], padding, dilation, kernel, stride)
  ]
  return result.mT.reshape(x.shape[0], outputs, *sides)
