"""Writes two artifacts in text form, with their cubins, for experiments on a GPU. No GPU is needed.

  python tests/gpu/chain.py --out DIR [--target h200]

`chain.hir` has a function for each variant of one tiny kernel, y = x * 1.0001 + 0.5 over n floats
with cdiv(n, 128) blocks, launched 100 times in sequence through two arena buffers:

  plain       full edges only
  waits       `griddepcontrol.wait` comes first, so programmatic edges are possible
  triggers    `griddepcontrol.launch_dependents` comes before the wait

`branches.hir` has one function of two independent chains that meet at the end, with a float, an int
and a dynamic size, so that grids, scalars and pointers all change from call to call. `chain` and
`branches` below compute the same with NumPy.
"""

import argparse
import pathlib
import sys

import numpy as np
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "compiler" / "torch"))
from husk.cuda import fake_cuda, pdl
from husk.cuda import kernels as triton_kernels

LENGTH = 100  # kernels in a chain
BRANCH = 8  # kernels in each branch
BLOCK = 128  # elements a block, and threads
LARGEST = 1 << 22  # elements


@triton.jit
def plain(x, y, n, BLOCK: tl.constexpr):
  i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
  tl.store(y + i, tl.load(x + i, i < n) * 1.0001 + 0.5, i < n)


@triton.jit
def waits_kernel(x, y, n, BLOCK: tl.constexpr):
  tl.extra.cuda.gdc_wait()
  i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
  tl.store(y + i, tl.load(x + i, i < n) * 1.0001 + 0.5, i < n)


@triton.jit
def triggers_kernel(x, y, n, BLOCK: tl.constexpr):
  tl.extra.cuda.gdc_launch_dependents()
  tl.extra.cuda.gdc_wait()
  i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
  tl.store(y + i, tl.load(x + i, i < n) * 1.0001 + 0.5, i < n)


@triton.jit
def scale(x, y, t, n, WAIT: tl.constexpr, BLOCK: tl.constexpr):
  if WAIT:
    tl.extra.cuda.gdc_wait()
  i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
  tl.store(y + i, tl.load(x + i, i < n) * t + 0.25, i < n)


@triton.jit
def shift(x, y, k, n, WAIT: tl.constexpr, BLOCK: tl.constexpr):
  if WAIT:
    tl.extra.cuda.gdc_wait()
  i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
  tl.store(y + i, tl.load(x + i, i < n) * 0.5 + k, i < n)


@triton.jit
def join(a, b, y, n, WAIT: tl.constexpr, BLOCK: tl.constexpr):
  if WAIT:
    tl.extra.cuda.gdc_wait()
  i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
  tl.store(y + i, tl.load(a + i, i < n) - tl.load(b + i, i < n), i < n)


def chain(x):
  """The result of every function of chain.hir, apart from rounding (the kernels fuse multiply and
  add)."""
  x = x.astype(np.float32)
  for _ in range(LENGTH):
    x = (x * np.float64(1.0001) + 0.5).astype(np.float32)
  return x


def branches(x, t, k):
  """The result of branches.hir, apart from rounding."""
  a = b = x.astype(np.float32)
  for _ in range(BRANCH):
    a = (a * np.float64(np.float32(t)) + 0.25).astype(np.float32)
    b = (b * np.float64(0.5) + k).astype(np.float32)
  return a - b


class Compiled:
  """A compiled kernel of this file: its image, and the rows that name the image."""

  def __init__(self, target, name, function, signature, constants):
    compiled_kernel = triton.compile(
      ASTSource(
        function,
        signature | dict.fromkeys(constants, "constexpr"),
        {(function.arg_names.index(key),): value for key, value in constants.items()},
      ),
      target=GPUTarget("cuda", target.capability, target.warp_size),
      options={"num_warps": BLOCK // target.warp_size},
    )
    found = pdl.check(compiled_kernel.asm["ptx"], compiled_kernel.metadata.name)
    parameters = [
      (key, "ptr" if kind.startswith("*") else {"i32": "i32", "fp32": "f32"}[kind])
      for key, kind in signature.items()
    ]
    self.name = name
    self.kernel = triton_kernels.Kernel(
      name=name,
      symbol=compiled_kernel.metadata.name,
      cubin=compiled_kernel.asm["cubin"],
      ptx=compiled_kernel.asm["ptx"],
      arguments=[],
      parameters=parameters,
      access={},
      block=(BLOCK, 1, 1),
      shared=compiled_kernel.metadata.shared,
      cluster=1,
      pdl_wait_first=found.first,
      triggers_early=found.triggers,
      cooperative=False,
      scratch=[],
      config={},
      inductor_meta={},
    )

  def rows(self):
    return [
      f'image {self.name}.cubin gpu cubin "{self.name}.cubin"',
      triton_kernels.row(self.name, f"{self.name}.cubin", self.kernel),
    ]


def head(target, kernels):
  lines = [
    "hir 1",
    f'producer "chain.py, triton {triton.__version__}"',
    f'target gpu cuda "{target.arch}"',
  ]
  return lines + [line for kernel in kernels for line in kernel.rows()]


def chain_function(name):
  """A function of LENGTH launches of kernel `name`, through the arena buffers a and b in turns."""
  lines = [
    f"function {name} {{",
    f"  input x tensor f32 [0..{LARGEST}]",
    "  output y tensor f32 rank 1",
    "  variant gpu {",
    "    let n = size(x, 0)",
    "    check_stride(x, 0, 1)",
    "    let blocks = cdiv(n, 128)",
    "    buffer x of input bytes mul(n, 4)",
    "    buffer y of output bytes mul(n, 4)",
    "    buffer a bytes mul(n, 4) align 64",
    "    buffer b bytes mul(n, 4) align 64",
  ]
  source = "x"
  for step in range(LENGTH):
    target = "y" if step == LENGTH - 1 else "ab"[step % 2]
    lines.append(
      f"    launch {name} grid (blocks, 1, 1) (read {source}, write {target}, n, null, null) "
      f'at "chain.py step {step}"'
    )
    source = target
  return lines + ["    return (tensor y f32 [n] [1])", "  }", "}"]


def branches_function():
  """Two chains from x, each through two buffers of its own, and their difference."""
  lines = [
    "function branches {",
    f"  input x tensor f32 [0..{LARGEST}]",
    "  input t float",
    "  input k int -1000000..1000000",
    "  output y tensor f32 rank 1",
    "  variant gpu {",
    "    let n = size(x, 0)",
    "    check_stride(x, 0, 1)",
    "    let blocks = cdiv(n, 128)",
    "    buffer x of input bytes mul(n, 4)",
    "    buffer y of output bytes mul(n, 4)",
  ]
  lines += [f"    buffer {name} bytes mul(n, 4) align 64" for name in ("a0", "a1", "b0", "b1")]
  ends = {}
  for branch, kernel, scalar in (("a", "scale", "t"), ("b", "shift", "k")):
    source = "x"
    for step in range(BRANCH):
      target = f"{branch}{step % 2}"
      lines.append(
        f"    launch {kernel} grid (blocks, 1, 1) (read {source}, write {target}, {scalar}, n, "
        "null, null) "
        f'at "chain.py branch {branch} step {step}"'
      )
      source = target
    ends[branch] = source
  lines.append(
    f"    launch join grid (blocks, 1, 1) (read {ends['a']}, read {ends['b']}, write y, n, null, "
    "null) "
    'at "chain.py join"'
  )
  return lines + ["    return (tensor y f32 [n] [1])", "  }", "}"]


def write(out, name, lines, kernels):
  out.mkdir(parents=True, exist_ok=True)
  for kernel in kernels:
    (out / f"{kernel.name}.cubin").write_bytes(kernel.kernel.cubin)
  (out / name).write_text("\n".join(lines) + "\n")
  return out / name


def main(arguments=None):
  parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
  parser.add_argument("--out", type=pathlib.Path, required=True, help="folder to write to")
  parser.add_argument(
    "--target", default="h200", help=f"one of {', '.join(fake_cuda.names())}, or a JSON file"
  )
  options = parser.parse_args(arguments)
  target = fake_cuda.Target.load(options.target)
  wait = pdl.supported(target.capability)
  with fake_cuda.cuda(target):
    xyn = {"x": "*fp32", "y": "*fp32", "n": "i32"}
    flavours = [("plain", plain)] + (
      [("waits", waits_kernel), ("triggers", triggers_kernel)] if wait else []
    )
    steps = [Compiled(target, name, function, xyn, {"BLOCK": BLOCK}) for name, function in flavours]
    constants = {"WAIT": wait, "BLOCK": BLOCK}
    parts = [
      Compiled(
        target, "scale", scale, {"x": "*fp32", "y": "*fp32", "t": "fp32", "n": "i32"}, constants
      ),
      Compiled(
        target, "shift", shift, {"x": "*fp32", "y": "*fp32", "k": "i32", "n": "i32"}, constants
      ),
      Compiled(
        target, "join", join, {"a": "*fp32", "b": "*fp32", "y": "*fp32", "n": "i32"}, constants
      ),
    ]
  lines = head(target, steps)
  for step in steps:
    lines += chain_function(step.name)
  print(write(options.out, "chain.hir", lines, steps))
  print(write(options.out, "branches.hir", head(target, parts) + branches_function(), parts))


if __name__ == "__main__":
  main()
