"""Runs PyTorch's database of operators, forward and backward, with a backend of torch.compile, and
compares with eager mode. It prints a line for each operator and ends with the counts.

  python tests/torch/nets/compile_operators.py [--backend husk] [--device cuda] [--part 0/4]
                                          [--only NAME,NAME] [--json FILE] [--denominator]
                                          [--layers] [--dtypes float32,float64] [--samples 1]

`--backend inductor` shows what Inductor itself cannot compile, `--layers` takes PyTorch's database
of modules. An operator has `--samples` samples of each dtype, the middle one first, and each has
one of these results: equal, wrong (the values differ), refused (the backend fails), not traced
(Dynamo or eager mode cannot run it), late. A process cannot be forked after a backward, so a sample
that ends it ends the net: `--json` has what there is. With --denominator each sample
that is not equal runs with Inductor too: if that is not equal either, it counts as `Inductor`. The
last lines are a table of the counts, and the share of what Inductor compiles right."""

import argparse
import collections
import itertools
import json
import logging
import os
import pathlib
import signal
import sys
import time
import types
import unittest
import warnings

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "helpers"), str(HERE.parents[2] / "compiler" / "torch")]

import torch  # noqa: E402
from torch.utils import _pytree as pytree  # noqa: E402

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
  from torch.testing._internal.opinfo import core

  # The function looks through the stack for a test of unittest, and there is none here. It took
  # most of the time of the samples.
  core.extract_test_fn = common_utils.extract_test_fn = lambda: None
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


def samples_of(op, device, dtype):
  """The samples of an operator as pairs of a number and a sample, the middle one first."""
  torch.manual_seed(5)
  samples = op.sample_inputs(device, dtype, requires_grad=op.supports_autograd)
  if hasattr(op, "info"):  # a module is another one for each sample
    yield from enumerate(samples)
    return
  samples = list(enumerate(samples))
  middle = len(samples) // 2
  yield from [*samples[middle:], *samples[:middle]]


def outcome(op, backend, device, dtype, number):
  """The result of the n-th sample of an operator, and a text about it; None if there is none."""
  torch._dynamo.reset()
  try:
    place = next(itertools.islice(samples_of(op, device, dtype), number, None), None)
    if place is None:
      return None
    sample = place[1]
    function = calls_of(op)
    expected = run(function, sample)
  except Exception as error:  # whatever the database's own code raises
    return "not traced", str(error)
  compiled = torch.compile(function, backend=backend, options={"fallback_random": True})
  try:
    results = run(compiled, sample)
  except torch._dynamo.exc.Unsupported as error:
    return "not traced", str(error)
  except Exception as error:
    return "refused", str(getattr(error, "inner_exception", error))
  if op.name in UNWRITTEN:
    results, expected = pytree.tree_map_only(torch.Tensor, torch.zeros_like, (results, expected))
  close = {"rtol": 1e-3, "atol": 1e-4}
  if dtype in (torch.float16, torch.bfloat16):
    close = {"rtol": 2e-2, "atol": 2e-2}
  try:
    torch.testing.assert_close(results, expected, equal_nan=True, **close)
  except AssertionError as error:
    return "wrong", str(error)
  return "equal", ""


def calls_of(op):
  """A function that calls an operator, or the module of the last sample."""
  called = getattr(op, "op", None) if hasattr(op, "info") else op

  def function(first, args, kwargs):
    return called(first, *args, **kwargs)

  return function


class LateError(BaseException):
  """A sample takes too long. No code of PyTorch takes it for an error of its own."""


def late(*_):
  raise LateError


def in_time(seconds, *tried):
  """The outcome of a sample, `late` after so many seconds."""
  signal.alarm(round(seconds))
  try:
    return outcome(*tried)
  except LateError:
    return "late", f"no result after {seconds} s"
  finally:
    signal.alarm(0)


def main():
  parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
  parser.add_argument("--backend", default="husk")
  parser.add_argument("--device", default="cpu")
  parser.add_argument("--part", default="0/1", help="every n-th operator: 0/4, 1/4 and so on")
  parser.add_argument("--only", help="names of operators, with commas between them")
  parser.add_argument("--layers", action="store_true", help="the database of modules instead")
  parser.add_argument("--dtypes", default="float32", help="with commas between them, or `all`")
  parser.add_argument("--samples", type=int, default=1, help="of each dtype")
  parser.add_argument("--json", help="a file for the results by name")
  parser.add_argument("--limit", type=float, default=300, help="seconds for a sample")
  parser.add_argument("--seconds", type=float, default=1e9, help="at most so long")
  parser.add_argument("--denominator", action="store_true")
  options = parser.parse_args()
  warnings.simplefilter("ignore")
  logging.disable(logging.ERROR)
  torch.set_num_threads(1)
  backend = options.backend
  if backend == "husk":
    from husk.jit.backend import backend
  signal.signal(signal.SIGALRM, late)
  begin, step = map(int, options.part.split("/"))
  if options.layers:
    from export_operators import layers

    operators = layers()[begin::step]
  else:
    operators = database(options.device)[begin::step]
  if options.only:
    operators = [op for op in operators if op.formatted_name in options.only.split(",")]
  counts, found, start = collections.Counter(), {}, time.monotonic()
  # All operators have one sample before any has the second.
  for number, op in itertools.product(range(options.samples), operators):
    for dtype in sorted(op.supported_dtypes(options.device), key=str):
      if options.dtypes != "all" and str(dtype)[6:] not in options.dtypes.split(","):
        continue
      if time.monotonic() - start > options.seconds:
        continue
      tried = [op, backend, options.device, dtype, number]
      answer = in_time(options.limit, *tried)
      if answer is None:
        continue
      result, text = answer
      if options.denominator and result not in ("equal", "not traced"):
        tried[1] = "inductor"
        other, why = in_time(options.limit, *tried)
        if other != "equal":
          result, text = "Inductor", f"{other}: {why}; Husk: {result}: {text}"
      name = f"{op.formatted_name} {str(dtype)[6:]} #{number}"
      counts[result] += 1
      found[name] = {"result": result, "text": " ".join(text.split())}
      if result != "equal":
        print(f"{name}: {result}", found[name]["text"][:300], flush=True)
      if options.json:  # a whole file at any time
        pathlib.Path(f"{options.json}.part").write_text(json.dumps(found, indent=1))
        os.replace(f"{options.json}.part", options.json)
  print(f"{len(found)} samples: " + ", ".join(f"{n} {name}" for name, n in counts.most_common()))
  if options.denominator:
    of = counts.total() - counts["Inductor"] - counts["not traced"]
    print(f"of {of} that Inductor compiles right, {100 * counts['equal'] / max(of, 1):.2f} % equal")


if __name__ == "__main__":
  main()
