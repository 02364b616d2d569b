"""Triton kernels that a user wrote: how they pass through Inductor, with grids, views, and scratch
memory of each block."""

import re

import husk
import pytest
import torch
import triton
import triton.language as tl
from cuda_numerics import close, computed
from torch.library import triton_op, wrap_triton
from triton.tools.tensor_descriptor import TensorDescriptor

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
def transposed(x, y, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
  row, column = tl.program_id(0) * ROWS, tl.program_id(1) * COLUMNS
  y.store([column, row], x.load([row, column]).T)


@triton_op("husk_tests::transpose", mutates_args={})
def transpose(x: torch.Tensor) -> torch.Tensor:
  y = torch.empty(x.shape[1], x.shape[0], dtype=x.dtype, device=x.device)
  grid = (triton.cdiv(x.shape[0], 32), triton.cdiv(x.shape[1], 16))
  wrap_triton(transposed)[grid](
    TensorDescriptor.from_tensor(x, [32, 16]),
    TensorDescriptor.from_tensor(y, [16, 32]),
    ROWS=32,
    COLUMNS=16,
  )
  return y


class Transposed(torch.nn.Module):
  """A kernel over some columns, so that the strides do not follow from the sizes."""

  def forward(self, x):
    return transpose(x[:, 8:40])


@triton_op("husk_tests::part", mutates_args={})
def part(x: torch.Tensor) -> torch.Tensor:
  y = torch.empty_like(x)
  first = TensorDescriptor(x, [x.shape[0], 16], x.stride(), [32, 16])
  wrap_triton(transposed)[(1, 1)](
    first, TensorDescriptor.from_tensor(y, [16, 32]), ROWS=32, COLUMNS=16
  )
  return y


class Part(torch.nn.Module):
  def forward(self, x):
    return part(x)


@triton.jit
def scaled(x_ptr, y_ptr, n, factor, BLOCK: tl.constexpr):
  at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
  tl.store(y_ptr + at, tl.load(x_ptr + at, at < n) * factor, at < n)


@triton_op("husk_tests::halves", mutates_args={})
def halves(x: torch.Tensor) -> torch.Tensor:
  """The halves of a vector scaled by 2 and by 3: views, and two launches of one kernel."""
  y = torch.empty_like(x)
  n = x.shape[0] // 2
  for half, factor in ((slice(0, n), 2), (slice(n, 2 * n), 3)):
    wrap_triton(scaled)[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](
      x[half], y[half], n, factor, BLOCK=64
    )
  return y


class Halves(torch.nn.Module):
  def forward(self, x):
    return halves(x * 2)


def test_a_block_has_scratch_of_its_own(tmp_path):
  text = husk.write(
    Doubled(), (torch.randn(100, 16),), tmp_path, targets=("cuda:h200",), dynamic_shapes=({0: N},)
  ).read_text()
  assert re.search(
    r"buffer scratch bytes mul\(256, floordiv\(add\(s\d+, 31\), 32\)\) align 128\n +launch "
    r"h200_descriptors_0 "
    r"grid .*, write scratch, null\)",
    text,
  )


def test_descriptors_made_on_the_device(tmp_path):
  runs = [{"x": torch.randn(rows, 16)} for rows in (100, 1, 33)]
  for inputs, result in zip(
    runs, computed(Doubled(), (torch.randn(100, 16),), ({0: N},), runs, tmp_path)
  ):
    close(result["output"], (inputs["x"] + 1) * 2 - 1)


# Rows are 16 bytes apart, as TMA requires.
FOURS = {0: 4 * torch.export.Dim("fours", min=1, max=250)}


def test_descriptors_made_on_the_host(tmp_path):
  args = (torch.randn(100, 48),)
  text = husk.write(
    Transposed(), args, tmp_path, targets=("cuda:h200",), dynamic_shapes=(FOURS,)
  ).read_text()
  assert re.search(
    r"launch h200_transposed_0 grid .* \(read x\[32, .*\], write output, .*, 32, 48, 32, .*, write "
    r"scratch, null\)",
    text,
  )
  runs = [{"x": torch.randn(rows, 48)} for rows in (100, 4, 36)]
  for inputs, result in zip(runs, computed(Transposed(), args, (FOURS,), runs, tmp_path)):
    close(result["output"], inputs["x"][:, 8:40].T)


def test_measured_kernels_get_sizes_and_strides(tmp_path, monkeypatch):
  """The arguments of descriptors follow the arguments of the kernel, in the order of its
  parameters."""
  from husk.cuda import kernels as triton_kernels
  from husk.cuda import tuning

  calls, launched = [], triton_kernels.CudaKernels.call_kernel

  def call(self, name, call_args, ranges, extent, *rest):
    self._measure(name, self._definitions[self._names[name]], call_args, extent)
    return launched(self, name, call_args, ranges, extent, *rest)

  def measured(self, name, target, tuner, arguments, hint, extent):
    calls.append(
      [
        (each, str(extent(value)) if tuner.triton_meta["signature"][each][0] == "*" else str(value))
        for each, value in arguments
        if each in tuner.triton_meta["signature"]
      ]
    )
    return self.ordered(target, tuner)[0]

  monkeypatch.setattr(triton_kernels.CudaKernels, "call_kernel", call)
  monkeypatch.setattr(tuning.Tuning, "measured", measured)
  husk.write(Transposed(), (torch.randn(100, 48),), tmp_path, targets=("cuda:h200",))
  assert calls == [
    [
      ("x", str((99 * 48 + 32) * 4)),
      ("y", str(32 * 100 * 4)),
      ("husk_x_size0", "100"),
      ("husk_x_size1", "32"),
      ("husk_x_stride0", "48"),
      ("husk_y_size0", "32"),
      ("husk_y_size1", "100"),
      ("husk_y_stride0", "100"),
    ]
  ]


def test_a_descriptor_of_another_shape_is_refused(tmp_path):
  with pytest.raises(
    husk.Unsupported,
    match="parameter x of a kernel: a descriptor of another shape than its tensor's",
  ):
    husk.write(Part(), (torch.randn(32, 32),), tmp_path, targets=("cuda:h200",))


def test_views_and_a_grid_of_the_configuration(tmp_path):
  runs = [{"x": torch.randn(256)}]
  results = computed(Halves(), (torch.randn(256),), None, runs, tmp_path)
  x = runs[0]["x"] * 2
  close(results[0]["output"], torch.cat([x[:128] * 2, x[128:] * 3]))
