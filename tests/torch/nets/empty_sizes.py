"""Operators of PyTorch's database with a dimension of 0, on the host.

  python tests/torch/nets/empty_sizes.py [--only NAME...] [--samples N] [--seconds S]

Each operator is exported with all sizes dynamic from 0 on, and runs with each size in turn 0. A
line tells of each run whose outcome is not that of eager mode:

  crash    the process ended by a signal
  differs  other numbers or shapes than in eager mode
  returns  eager mode refuses the tensors, the program does not
  refuses  eager mode takes the tensors, the program does not

The exit code is 1 if a program crashed or gave other numbers."""

import argparse
import collections
import os
import pathlib
import sys
import tempfile
import time
import types
import unittest
import warnings

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "helpers"))

import built_tools  # noqa: F401  (where the exporter lies)
import husk
import torch
from torch.utils import _pytree as pytree

SIZES = torch.export.Dim.AUTO(max=64)


def database():
  if "expecttest" not in sys.modules:
    stand_in = types.ModuleType("expecttest")
    stand_in.TestCase = unittest.TestCase
    sys.modules["expecttest"] = stand_in
  from torch.testing._internal.common_methods_invocations import op_db

  return op_db


class Call(torch.nn.Module):
  """An operator with the arguments of a sample, of which the tensors are inputs."""

  def __init__(self, operator, sample):
    super().__init__()
    self.operator = operator
    self.leaves, self.spec = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
    self.places = [i for i, leaf in enumerate(self.leaves) if isinstance(leaf, torch.Tensor)]

  def tensors(self):
    return tuple(self.leaves[i].detach().clone() for i in self.places)

  def forward(self, *tensors):
    leaves = list(self.leaves)
    for i, tensor in zip(self.places, tensors, strict=True):
      leaves[i] = tensor
    first, args, kwargs = pytree.tree_unflatten(leaves, self.spec)
    return self.operator.op(first, *args, **kwargs)


def allow_empty(exported):
  """Lets all sizes of a program be 0, as Dim(..., min=0) does, which needs a name for each."""
  for symbol, sizes in exported.range_constraints.items():
    exported.range_constraints[symbol] = type(sizes)(0, sizes.upper)


def outcome(function, tensors):
  """The results, or the error as a text."""
  try:
    with torch.no_grad():
      return pytree.tree_leaves(function(*[tensor.clone() for tensor in tensors])), ""
  except Exception as error:
    return None, f"{type(error).__name__}: {str(error).splitlines()[0][:120]}"


def is_same(results, expected):
  return len(results) == len(expected) and all(
    one == other
    if not isinstance(other, torch.Tensor)
    else one.shape == other.shape
    and one.dtype == other.dtype
    and torch.allclose(one, other, rtol=1e-4, atol=1e-4, equal_nan=True)
    for one, other in zip(results, expected)
  )


def emptied(exported, tensors):
  """The tensors with each symbol of their sizes in turn 0."""
  shapes = [node.meta["val"].shape for node in exported.graph.find_nodes(op="placeholder")][
    -len(tensors) :
  ]
  hints = {
    size.node.expr: int(value)
    for shape, tensor in zip(shapes, tensors)
    for size, value in zip(shape, tensor.shape)
    if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol
  }
  for symbol in hints:
    values = {**hints, symbol: 0}
    inputs = []
    for shape, tensor in zip(shapes, tensors):
      sizes = [
        size if isinstance(size, int) else int(size.node.expr.xreplace(values)) for size in shape
      ]
      index = tuple(slice(0, size) for size in sizes)
      inputs.append(tensor[index].contiguous())
    yield inputs


def run(operator, samples, random):
  """Prints the outcomes that differ, and returns the number of each outcome."""
  counts = collections.Counter()
  for sample in list(operator.sample_inputs("cpu", torch.float32))[:samples]:
    call = Call(operator, sample)
    tensors = call.tensors()
    if not any(tensor.dim() and 0 not in tensor.shape for tensor in tensors):
      continue
    shapes = (tuple(dict.fromkeys(range(tensor.dim()), SIZES) for tensor in tensors),)
    with tempfile.TemporaryDirectory() as folder:
      try:
        with torch.no_grad():
          exported = torch.export.export(call, tensors, dynamic_shapes=shapes, strict=False)
        allow_empty(exported)
        path = husk.export(exported, (), f"{folder}/made.husk", targets=("host:avx2",))
      except Exception as error:
        counts["no export"] += 1
        print("  no export", operator.name, str(error).splitlines()[0][:150], flush=True)
        continue
      program = husk.load(path)
      for inputs in emptied(exported, tensors):
        expected, refusal = outcome(call, inputs)
        print(f"  {operator.name} {[tuple(x.shape) for x in inputs]}", file=sys.stderr, flush=True)
        results, error = outcome(program, inputs)
        kind = (
          ("refused" if refusal else "refuses")
          if results is None
          else "returns"
          if expected is None
          else "same"
          if random or is_same(results, expected)
          else "differs"
        )
        counts[kind] += 1
        if kind in ("refuses", "returns", "differs"):
          print(" ", kind, operator.name, [tuple(x.shape) for x in inputs], refusal or error)
  return counts


def main():
  parser = argparse.ArgumentParser()
  parser.add_argument("--only", nargs="*", default=[])
  parser.add_argument("--samples", type=int, default=2)
  parser.add_argument("--seconds", type=float, default=float("inf"))
  options = parser.parse_args()
  warnings.simplefilter("ignore")
  torch.set_num_threads(1)
  begin, total = time.monotonic(), collections.Counter()
  for operator in database():
    if options.only and operator.name not in options.only or torch.float32 not in operator.dtypes:
      continue
    if time.monotonic() - begin > options.seconds:
      break
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
      os.close(reader)
      code = 0
      try:
        random = operator.name.startswith(("bernoulli", "multinomial", "normal", "rand", "empty"))
        counts = run(operator, options.samples, random or "empty" in operator.name)
        os.write(writer, repr(dict(counts)).encode())
      except Exception as error:
        print("  no samples", operator.name, str(error)[:100])
      sys.stdout.flush()
      os._exit(code)
    os.close(writer)
    with os.fdopen(reader) as stream:
      counts = stream.read()
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
      total["crash"] += 1
      print("  crash", operator.name, "signal", os.WTERMSIG(status), flush=True)
    else:
      total.update(eval(counts or "{}"))  # the repr of a dict of ints
    total["operators"] += 1
  print(dict(total), f"{time.monotonic() - begin:.0f} s")
  return 1 if total["crash"] or total["differs"] else 0


if __name__ == "__main__":
  sys.exit(main())
