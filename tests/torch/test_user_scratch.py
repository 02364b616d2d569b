"""Triton kernels that a user wrote: as they come through Inductor, with a grid of their own, views, and memory for each block."""

import pathlib
import re
import sys

import torch
import triton
import triton.language as tl
from torch.library import triton_op, wrap_triton

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "compiler" / "torch")]
import husk  # noqa: E402
from test_cuda_numerics import close, computed  # noqa: E402

N = torch.export.Dim("n", min=1, max=1000)


@triton.jit
def descriptors(x_ptr, y_ptr, n, columns, BLOCK: tl.constexpr):
  x = tl.make_tensor_descriptor(x_ptr, [n, columns], [columns, 1], [BLOCK, 16])
  y = tl.make_tensor_descriptor(y_ptr, [n, columns], [columns, 1], [BLOCK, 16])
  row = tl.program_id(0) * BLOCK
  y.store([row, 0], x.load([row, 0]) * 2)


@triton_op("husk_tests::doubled", mutates_args={})
def doubled(x: torch.Tensor) -> torch.Tensor:
  y = torch.empty_like(x)
  wrap_triton(descriptors)[(triton.cdiv(x.shape[0], 32),)](x, y, x.shape[0], 16, BLOCK=32)
  return y


class Doubled(torch.nn.Module):
  def forward(self, x):
    return doubled(x + 1) - 1


@triton.jit
def scaled(x_ptr, y_ptr, n, factor, BLOCK: tl.constexpr):
  at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
  tl.store(y_ptr + at, tl.load(x_ptr + at, at < n) * factor, at < n)


@triton_op("husk_tests::halves", mutates_args={})
def halves(x: torch.Tensor) -> torch.Tensor:
  """The halves of a vector scaled by 2 and by 3: views, two launches of one kernel."""
  y = torch.empty_like(x)
  n = x.shape[0] // 2
  for half, factor in ((slice(0, n), 2), (slice(n, 2 * n), 3)):
    wrap_triton(scaled)[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x[half], y[half], n, factor, BLOCK=64)
  return y


class Halves(torch.nn.Module):
  def forward(self, x):
    return halves(x * 2)


def test_a_block_has_scratch_of_its_own(tmp_path):
  text = husk.write(Doubled(), (torch.randn(100, 16),), tmp_path, targets=("cuda:h200",), dynamic_shapes=({0: N},)).read_text()
  assert re.search(r"buffer scratch bytes mul\(256, floordiv\(add\(s\d+, 31\), 32\)\) align 128\n +launch h200_descriptors_0 "
                   r"grid .*, write scratch, null\)", text)


def test_views_and_a_grid_of_the_configuration(tmp_path):
  runs = [{"x": torch.randn(256)}]
  results = computed(Halves(), (torch.randn(256),), None, runs, tmp_path)
  x = runs[0]["x"] * 2
  close(results[0]["output"], torch.cat([x[:128] * 2, x[128:] * 3]))
