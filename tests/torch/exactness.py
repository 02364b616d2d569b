"""Compares the errors of results with those of eager PyTorch, whatever library PyTorch calls.

Which library that is, and in which order it sums, depends on the CPU: the largest error of 70
elements may be half of that on another machine. So errors are compared over thousands of elements,
drawn by many seeds, and a result may also be as wrong as a *plain* one, whose sums are made in
order, one term after another, in float32. That is the error of a correct algorithm that no library
and no CPU decides.
"""

import torch

# How many elements are compared, at least. The ratio of two roots of mean squares of so many
# independent errors is known to 3 %, and the ratio of their largest to about 15 %.
ELEMENTS = 2000
# How far the errors of a result may exceed the others.
RMS, LARGEST = 1.5, 2.0


def seeds(elements):
  """As many seeds as give ELEMENTS elements."""
  return range(max(2, -(-ELEMENTS // elements)))


class Errors:
  """Errors of results and of what they are compared with, over several seeds."""

  def __init__(self):
    self.squares, self.largest, self.count = {}, {}, 0

  def add(self, exact, **sides):
    """Adds the errors of one seed: of `got`, and of one or more others, against `exact` in
    float64."""
    for side, result in sides.items():
      error = (result.double() - exact).abs()
      assert not error.isnan().any(), side
      self.squares[side] = self.squares.get(side, 0.0) + error.square().sum().item()
      self.largest[side] = max(self.largest.get(side, 0.0), error.max().item())
    self.count += exact.numel()

  def check(self, *what):
    """Fails if the errors of `got` are larger than those of all others."""
    assert self.count >= ELEMENTS, f"{self.count} elements say too little"
    rms = {side: (total / self.count) ** 0.5 for side, total in self.squares.items()}
    for name, found, factor in (("rms", rms, RMS), ("largest", self.largest, LARGEST)):
      most = max(value for side, value in found.items() if side != "got")
      assert found["got"] <= factor * most, (*what, name, found)


def product(x, weight):
  """x @ weight.T in float32, of which each sum is made in order. Batches are possible."""
  x, weight = x.float(), weight.float()
  total = x.new_zeros(*torch.broadcast_shapes(x.shape[:-2], weight.shape[:-2]), x.shape[-2],
                      weight.shape[-2])  # fmt: skip
  for k in range(x.shape[-1]):
    total += x[..., :, k, None] * weight[..., None, :, k]
  return total


def convolution(x, weight, bias, stride, padding, dilation, groups=1):
  """A convolution of images as plain products of float32."""
  x, (outputs, _, *kernel) = x.float(), weight.shape
  columns = torch.nn.functional.unfold(x, kernel, dilation, padding, stride)
  columns = columns.unflatten(1, (groups, -1)).transpose(2, 3)  # batch, group, position, depth
  result = product(columns, weight.flatten(1).unflatten(0, (groups, -1))[None])
  sides = [
    (size + 2 * pad - gap * (taps - 1) - 1) // step + 1
    for size, pad, gap, taps, step in zip(x.shape[2:], padding, dilation, kernel, stride)
  ]
  result = result.transpose(2, 3).reshape(x.shape[0], outputs, *sides)
  return result if bias is None else result + bias.float().view(1, -1, 1, 1)
