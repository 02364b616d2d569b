"""Models that launch Triton kernels of their own, exported and compared with eager PyTorch on a
GPU.

  python tests/gpu/user_kernels.py check DIR HUSK_RUN [--tune heuristic,max] [MODEL...]

MODELS has (model, args, dynamic shapes, more inputs for runs) by name;
tests/torch/cuda/test_user_kernels.py uses it too.
"""

import argparse
import pathlib
import subprocess
import sys
import time

import torch
import triton
import triton.language as tl
from torch.export import Dim
from torch.library import wrap_triton


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
  i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
  tl.store(out + i, tl.load(x + i, i < n) + tl.load(y + i, i < n), i < n)


@triton.jit
def turned(x, y):
  return x * x - y


@triton.autotune(
  configs=[
    triton.Config({"BLOCK": 128}, num_warps=4),
    triton.Config({"BLOCK": 256}, num_warps=8),
    triton.Config({"BLOCK": 64}, num_warps=2),
  ],
  key=["n"],
)
@triton.jit
def scale(x, out, n, factor, BLOCK: tl.constexpr):
  i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
  value = tl.load(x + i, i < n)
  tl.store(out + i, turned(value, factor), i < n)


@triton.autotune(
  configs=[triton.Config({"ROWS": 16, "COLUMNS": 32}), triton.Config({"ROWS": 32, "COLUMNS": 64})],
  key=["rows", "columns"],
)
@triton.jit
def transpose(
  x,
  out,
  rows,
  columns,
  stride_row,
  stride_column,
  bias,
  HAS_BIAS: tl.constexpr,
  ROWS: tl.constexpr,
  COLUMNS: tl.constexpr,
):
  i = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
  j = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
  inside = (i[:, None] < rows) & (j[None, :] < columns)
  value = tl.load(x + i[:, None] * stride_row + j[None, :] * stride_column, inside)
  if HAS_BIAS:
    value += tl.load(bias + j, j < columns)[None, :]
  tl.store(out + j[None, :] * rows + i[:, None], value, inside)


@triton.jit
def accumulate(total, x, n, BLOCK: tl.constexpr):
  i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
  tl.store(total + i, tl.load(total + i, i < n) + tl.load(x + i, i < n), i < n)


class Plain(torch.nn.Module):
  """A kernel that is launched between operators as in eager mode; one argument is a view with an
  offset."""

  def forward(self, x, y):
    x = x.relu()
    out = torch.empty_like(x)
    n = x.numel()
    add[(triton.cdiv(n, 128),)](x, y[1:], out, n, BLOCK=128)
    return out.sin()


class Tuned(torch.nn.Module):
  """An autotuned kernel whose grid depends on the configuration, called twice, also with fp16."""

  def forward(self, x):
    out, n = torch.empty_like(x), x.numel()
    wrap_triton(scale)[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, out, n, 2.5)
    half, last = out.half(), torch.empty_like(out, dtype=torch.float16)
    wrap_triton(scale)[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](half, last, n, 0.5)
    return out, last


class Transposed(torch.nn.Module):
  """Grids in two dimensions, strides, an argument that is None or a view, an int that is 1."""

  def __init__(self):
    super().__init__()
    self.bias = torch.nn.Parameter(torch.randn(3, 80))

  def forward(self, x):
    outputs = []
    for bias, matrix in ((None, x), (self.bias[1, :70], x[:, 5:75])):
      rows, columns = matrix.shape
      out = matrix.new_empty(columns, rows)
      grid = lambda meta: (  # noqa: E731
        triton.cdiv(rows, meta["ROWS"]),  # noqa: B023
        triton.cdiv(columns, meta["COLUMNS"]),  # noqa: B023
      )

      wrap_triton(transpose)[grid](
        matrix,
        out,
        rows,
        columns,
        matrix.stride(0),
        matrix.stride(1),
        bias,
        HAS_BIAS=bias is not None,
      )
      outputs.append(out)
    return tuple(outputs)


class Counting(torch.nn.Module):
  """A kernel that writes in place, into memory of the model and into a part of it."""

  def __init__(self):
    super().__init__()
    self.register_buffer("total", torch.zeros(4, 64))

  def forward(self, x):
    accumulate[(1,)](self.total[2], x, 64, BLOCK=64)
    return self.total * 2


def batch(name="rows", least=2):
  return Dim(name, min=least, max=4096)


def make(name):
  torch.manual_seed(0)
  rows = batch()
  return {
    "plain": lambda: (Plain(), (torch.randn(8, 48), torch.randn(9, 48)), None, []),
    "plain_dynamic": lambda: (
      Plain(),
      (torch.randn(8, 48), torch.randn(9, 48)),
      {"x": {0: rows}, "y": {0: rows + 1}},
      [(torch.randn(n, 48), torch.randn(n + 1, 48)) for n in (2, 77)],
    ),
    "tuned": lambda: (Tuned(), (torch.randn(37, 50),), None, []),
    "tuned_dynamic": lambda: (
      Tuned(),
      (torch.randn(37, 50),),
      {"x": {0: rows}},
      [(torch.randn(n, 50),) for n in (2, 200)],
    ),
    "transposed": lambda: (Transposed().requires_grad_(False), (torch.randn(40, 80),), None, []),
    "transposed_dynamic": lambda: (
      Transposed().requires_grad_(False),
      (torch.randn(40, 80),),
      {"x": {0: rows}},
      [(torch.randn(n, 80),) for n in (2, 100)],
    ),
    "counting": lambda: (Counting(), (torch.randn(64),), None, []),
  }[name]()


MODELS = (
  "plain",
  "plain_dynamic",
  "tuned",
  "tuned_dynamic",
  "transposed",
  "transposed_dynamic",
  "counting",
)


def check(name, tune, options):
  """A line for each wrong result."""
  import husk
  from safetensors.torch import save_file

  model, args, shapes, more = make(name)
  artifact = options.dir / f"{name}.{tune}.husk"
  begin = time.perf_counter()
  husk.export(model, args, artifact, dynamic_shapes=shapes, targets=["cuda:h200"], tune=tune)
  print(f"{name}, {tune}: exported in {time.perf_counter() - begin:.0f} s", flush=True)
  wrong = []
  for number, arguments in enumerate([args, *more]):
    fresh = make(name)[0].cuda()  # whose state is at its beginning
    with torch.no_grad():
      results = fresh(*(x.cuda() for x in arguments))
    results = results if isinstance(results, tuple) else (results,)
    files = [options.dir / f"{name}.{number}.{what}.safetensors" for what in ("in", "out")]
    for file, tensors in zip(files, (arguments, results)):
      save_file({str(i): x.contiguous().cpu() for i, x in enumerate(tensors)}, file)
    # If a sum differs in the last bit of an f32, it may round to the next f16, and its square then
    # differs by two steps of an f16.
    for mode in ("list", "auto"):
      done = subprocess.run(
        [
          options.program,
          artifact,
          "--device=cuda",
          f"--mode={mode}",
          f"--inputs={files[0]}",
          f"--expected={files[1]}",
          "--rtol=4e-3",
          "--atol=4e-3",
        ],
        capture_output=True,
        text=True,
      )
      if done.returncode:
        wrong.append(
          f"{name}.{number}, {tune}, {mode}: "
          + "\n".join((done.stdout + done.stderr).strip().splitlines()[-3:])
        )
  return wrong


def main():
  parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
  parser.add_argument("what", choices=("check",))
  parser.add_argument("dir", type=pathlib.Path)
  parser.add_argument("program", help="husk-run")
  parser.add_argument("models", nargs="*", default=list(MODELS), metavar="MODEL")
  parser.add_argument("--tune", default="heuristic,max")
  options = parser.parse_args()
  options.dir.mkdir(parents=True, exist_ok=True)
  sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "compiler" / "torch"))
  wrong = []
  for name in options.models:
    for tune in options.tune.split(","):
      try:
        wrong += check(name, tune, options)
      except Exception as error:
        wrong.append(f"{name}, {tune}: {type(error).__name__}: {str(error)[-800:]}")
  print(*(wrong or [f"{len(options.models)} models equal eager"]), sep="\n")
  return int(bool(wrong))


if __name__ == "__main__":
  sys.exit(main())
