"""Runs PyTorch's database of operators, forward and backward, with a backend of torch.compile, and
compares with eager mode. It prints a line for each operator and ends with the counts.

  python tests/torch/nets/compile_operators.py [--backend husk] [--device cuda] [--part 0/4]
                                          [--only NAME,NAME] [--denominator]

`--backend inductor` shows what Inductor itself cannot compile. An operator has one of these
results: equal, wrong (the values differ), refused (the backend fails), not traced (Dynamo or eager
mode cannot run it). With --denominator each operator that is not equal runs with Inductor too, and
the last line tells how many of these Inductor compiles right."""

import argparse
import collections
import logging
import pathlib
import sys
import types
import unittest
import warnings

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "compiler" / "torch"))

import torch
from torch.utils import _pytree as pytree

DTYPE = torch.float32

# Operators whose results are memory that nobody has written: only their layouts are compared.
UNWRITTEN = {
  "empty",
  "empty_like",
  "empty_permuted",
  "empty_strided",
  "new_empty",
  "new_empty_strided",
}


def database(device="cpu"):
  """The operators that have DTYPE on the device. torch.testing imports a package that PyTorch does
  not require, of which the database uses nothing."""
  try:
    import expecttest  # noqa: F401
  except ImportError:
    stand_in = types.ModuleType("expecttest")
    stand_in.TestCase = unittest.TestCase
    stand_in.assert_expected_inline = None
    sys.modules["expecttest"] = stand_in
  from torch.testing._internal import common_utils
  from torch.testing._internal.common_methods_invocations import op_db

  # The function looks through the stack for a test of unittest, and there is none here. It took
  # most of the time of the samples.
  common_utils.extract_test_fn = lambda: None
  return [op for op in op_db if DTYPE in op.supported_dtypes(device)]


def run(function, sample):
  """The results and the gradients, from the same seed and copies of the arguments."""
  torch.manual_seed(5)
  arguments = pytree.tree_map_only(
    torch.Tensor,
    lambda tensor: tensor.detach().clone().requires_grad_(tensor.requires_grad),
    (sample.input, sample.args, sample.kwargs),
  )
  results = function(*arguments)
  wanted, of = (
    [leaf for leaf in pytree.tree_leaves(tree) if getattr(leaf, "requires_grad", False)]
    for tree in (arguments, results)
  )
  if not wanted or not of:
    return results, None
  total = sum((one.abs() if one.is_complex() else one).sum() for one in of)
  return results, torch.autograd.grad(total, wanted, allow_unused=True)


def outcome(op, backend, device):
  """The result of one operator, and a text about it."""

  def function(given, args, kwargs):
    return op(given, *args, **kwargs)

  torch._dynamo.reset()
  try:
    samples = list(op.sample_inputs(device, DTYPE, requires_grad=op.supports_autograd))
    sample = samples[len(samples) // 2]
    expected = run(function, sample)
  except Exception as error:  # whatever the database's own code raises
    return "not traced", str(error)
  compiled = torch.compile(function, backend=backend, options={"fallback_random": True})
  try:
    given = run(compiled, sample)
  except torch._dynamo.exc.Unsupported as error:
    return "not traced", str(error)
  except Exception as error:
    return "refused", str(getattr(error, "inner_exception", error))
  if op.name in UNWRITTEN:
    given, expected = pytree.tree_map_only(torch.Tensor, torch.zeros_like, (given, expected))
  try:
    torch.testing.assert_close(given, expected, rtol=1e-3, atol=1e-4, equal_nan=True)
  except AssertionError as error:
    return "wrong", str(error)
  return "equal", ""


def main():
  parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
  parser.add_argument("--backend", default="husk")
  parser.add_argument("--device", default="cpu")
  parser.add_argument("--part", default="0/1", help="every n-th operator: 0/4, 1/4 and so on")
  parser.add_argument("--only", help="names of operators, with commas between them")
  parser.add_argument("--denominator", action="store_true")
  options = parser.parse_args()
  warnings.simplefilter("ignore")
  logging.disable(logging.ERROR)
  backend = options.backend
  if backend == "husk":
    from husk.jit.backend import backend
  begin, step = map(int, options.part.split("/"))
  operators = database(options.device)[begin::step]
  if options.only:
    operators = [op for op in operators if op.formatted_name in options.only.split(",")]
  counts, missing = collections.Counter(), []
  for op in operators:
    result, text = outcome(op, backend, options.device)
    counts[result] += 1
    print(f"{op.formatted_name}: {result}", " ".join(text.split())[:200], flush=True)
    if options.denominator and result in ("wrong", "refused"):
      other, text = outcome(op, "inductor", options.device)
      print(f"  with Inductor: {other}", " ".join(text.split())[:200], flush=True)
      if other == "equal":
        missing.append(op.formatted_name)
  print(", ".join(f"{count} {result}" for result, count in counts.items()))
  if options.denominator:
    print(f"{len(missing)} that Inductor compiles right are missing:", " ".join(missing))


if __name__ == "__main__":
  main()
