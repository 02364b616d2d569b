"""What nets of small programs share: a program with arguments of several sizes, and the driver that
exports each in a process of its own and compares it with eager mode.

A net has a table of names and of functions without arguments that return a Program. The options of
its command line are

    --part 0/4              every n-th program: 0/4, 1/4 and so on
    --only NAME,NAME        these programs alone
    --json FILE             a file for the results
    --target host:avx2      runs them on this machine (the default)
    --target cuda:h100      exports alone: kernels are compiled, and nothing runs
    --pack DIR              artifacts for the GPU of --gpu, inputs and eager's results
    --check DIR             runs them on that GPU, in one process until a program fails
    --compile               by torch.compile(backend="husk") in place of an export
    --static                the sizes of the example alone, which do not vary

A program has one of these results: equal; exported (nothing ran); wrong; failed (it exports, and
does not run); torch.export (which refuses it, with or without Husk); refused (by Husk, in words
that the text has); not applicable (eager mode fails); crashed (another error of the export); died
or late (the process); told (refused for a reason, in the words that the net's list has); Dynamo
(which finds no single graph for torch.compile)."""

import argparse
import collections
import copy
import dataclasses
import json
import logging
import multiprocessing
import os
import pathlib
import shutil
import sys
import tempfile
import time
import warnings

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "helpers"), str(HERE.parents[2] / "compiler" / "torch")]

import torch  # noqa: E402
from random_models import in_a_child, without_a_gpu  # noqa: E402
from torch import nn  # noqa: E402
from torch.export import Dim  # noqa: E402
from torch.utils import _pytree as pytree  # noqa: E402


@dataclasses.dataclass
class Program:
  """A model, the arguments of the export, its dynamic shapes, and arguments of other sizes."""

  model: nn.Module
  args: tuple
  shapes: object = None
  others: list = dataclasses.field(default_factory=list)


class Calling(nn.Module):
  """A function with tensors as arguments."""

  def __init__(self, function):
    super().__init__()
    self.function = function

  def forward(self, *args):
    return self.function(*args)


def of(function, *args, dims=None, others=(), least=None):
  """The program of a function or a model. `dims` has for each argument the dimensions that vary, as
  {0: "n"}, `others` the arguments at other sizes, and `least` the least sizes that are not 2."""
  model = function if isinstance(function, nn.Module) else Calling(function)
  if dims is None:
    return Program(model.eval(), args)
  names = sorted({name for one in dims for name in (one or {}).values()})
  known = {name: Dim(name, min=(least or {}).get(name, 2), max=64) for name in names}
  shapes = tuple(one and {dim: known[name] for dim, name in one.items()} for one in dims)
  if not isinstance(function, nn.Module):
    shapes = (shapes,)
  return Program(model.eval(), args, shapes, list(others))


def clones(tree):
  return pytree.tree_map_only(torch.Tensor, lambda x: x.detach().clone(), tree)


CALLS = 2  # of each program at each size: a model with a state has another result


class Programs(dict):
  """The functions that build the programs of a net, by name."""

  def add(self, build):
    """A decorator."""
    self[build.__name__] = build
    return build


def expected(one):
  """The results of eager mode: a list for each set of arguments, with one for each call."""
  found = []
  for args in (one.args, *one.others):
    model = copy.deepcopy(one.model)
    with torch.no_grad():
      found.append([clones(leaves(model(*clones(args)))) for _ in range(CALLS)])
  return found


def leaves(tree):
  """The tensors of a result, those of objects too, and its numbers as tensors."""
  found = []
  for leaf in pytree.tree_leaves(tree):
    if isinstance(leaf, torch.Tensor):
      found.append(leaf)
    elif hasattr(leaf, "__dlpack__"):
      found.append(torch.from_dlpack(leaf))
    elif isinstance(leaf, (int, float)):
      found.append(torch.tensor(leaf))
    elif dataclasses.is_dataclass(leaf):
      found += leaves([getattr(leaf, field.name) for field in dataclasses.fields(leaf)])
  return found


def close(result, wanted):
  """Raises AssertionError if tensors are not equal within some roundings of their dtype."""
  assert len(result) == len(wanted), f"{len(result)} results, not {len(wanted)}"
  for left, right in zip(result, wanted, strict=True):
    floats = right.dtype.is_floating_point or right.dtype.is_complex
    rounding = torch.finfo(right.dtype).eps if floats else 0.0
    largest = float(right.abs().nan_to_num(0, 0, 0).max()) if floats and right.numel() else 0.0
    bounds = {"rtol": max(2e-3, 2 * rounding), "atol": max(1e-4, 2 * rounding * largest)}
    torch.testing.assert_close(left, right, **bounds, equal_nan=True)


def compare(artifact, argument_sets, wanted, device=None):
  """The result of an artifact, and a text about it."""
  import husk

  options = {"device": device} if device else {}
  for args, calls in zip(argument_sets, wanted, strict=True):
    loaded = husk.load(artifact, **options)
    sizes = " ".join(str(tuple(x.shape)) for x in leaves(args))
    for call, wanted_leaves in enumerate(calls):
      arguments = clones(args)
      if device:
        arguments = pytree.tree_map_only(torch.Tensor, lambda x: x.to(device), arguments)
      try:
        result = [x.cpu().clone() for x in leaves(loaded(*arguments))]
      except Exception as error:
        return "failed", f"at {sizes}, call {call}: {type(error).__name__}: {error}"
      try:
        close(result, wanted_leaves)
      except AssertionError as error:
        return "wrong", f"at {sizes}, call {call}: {error}"
  return "equal", f"{len(wanted)} sizes"


def outcome(name, build, words, options, folder):
  """The result of a program, and a text about it. `words` are those of a known refusal."""
  import husk

  torch.manual_seed(3)
  one = build()
  if options.static:
    one = Program(one.model, one.args)
  try:
    wanted = expected(one)
  except Exception as error:
    return "not applicable", f"{type(error).__name__}: {error}"
  if options.compile:
    return compiled(one, wanted)
  artifact = folder / f"{name}.husk"
  named = {"dynamic_shapes": one.shapes, "progress": False}
  try:
    if options.target.startswith("cuda") and not options.pack:
      husk.write(one.model, one.args, folder, targets=(options.target,), **named)
      return "exported", ""
    target = options.gpu if options.pack else options.target
    husk.export(one.model, one.args, artifact, targets=(target,), **named)
  except Exception as error:
    text = f"{type(error).__name__}: {error}"
    if words and words in text:
      return "told", text
    try:
      with torch.no_grad():
        torch.export.export(one.model, one.args, dynamic_shapes=one.shapes, strict=False)
    except Exception:
      return "torch.export", text
    return "refused" if isinstance(error, husk.Unsupported) else "crashed", text
  if options.pack:
    torch.save(([one.args, *one.others], wanted), pathlib.Path(options.pack) / f"{name}.pt")
    shutil.move(artifact, pathlib.Path(options.pack) / f"{name}.husk")
    return "exported", ""
  return compare(artifact, [one.args, *one.others], wanted)


def compiled(one, wanted):
  """The result of a program by torch.compile, and a text about it."""
  import husk
  from husk.jit.backend import backend

  for args, calls in zip([one.args, *one.others], wanted, strict=True):
    model = copy.deepcopy(one.model)
    function = torch.compile(model, backend=backend, fullgraph=True, dynamic=one.shapes is not None)
    sizes = " ".join(str(tuple(x.shape)) for x in leaves(args))
    for call, wanted_leaves in enumerate(calls):
      try:
        with torch.no_grad():
          result = clones(leaves(function(*clones(args))))
      except torch._dynamo.exc.BackendCompilerFailed as error:
        inner = error.inner_exception
        return "refused" if isinstance(inner, husk.Unsupported) else "crashed", str(error)
      except torch._dynamo.exc.TorchDynamoException as error:
        return "Dynamo", str(error)
      except Exception as error:
        return "failed", f"at {sizes}, call {call}: {type(error).__name__}: {error}"
      try:
        close(result, wanted_leaves)
      except AssertionError as error:
        return "wrong", f"at {sizes}, call {call}: {error}"
  return "equal", f"{len(wanted)} sizes"


def checked(name, options):
  kept = pathlib.Path(options.check)
  argument_sets, wanted = torch.load(kept / f"{name}.pt", weights_only=False)
  return compare(kept / f"{name}.husk", argument_sets, wanted, "cuda")


def check_in_order(names, options, pipe):
  """Sends the result of each program, and ends at a failure, after which a GPU may be lost to its
  process."""
  warnings.simplefilter("ignore")
  torch.set_num_threads(1)
  for name in names:
    try:
      result = checked(name, options)
    except Exception as error:
      result = "failed", f"{type(error).__name__}: {error}"
    pipe.send(result)
    if result[0] == "failed":
      return


def all_checked(names, options, *rest):
  """Yields the result of each program and a text, from as few processes as possible."""
  context = multiprocessing.get_context("spawn")
  place = 0
  while place < len(names):
    pipe, other = context.Pipe(duplex=False)
    process = context.Process(target=check_in_order, args=(names[place:], options, other))
    process.start()
    other.close()
    result, text = None, ""
    while place < len(names) and result not in ("failed", "died", "late"):
      if not pipe.poll(options.limit):
        result, text = "late", f"no result after {options.limit} s"
      else:
        try:
          result, text = pipe.recv()
        except EOFError:
          process.join()
          result, text = "died", f"the process ended with {process.exitcode}"
      place += 1
      yield result, text
    process.kill()
    process.join()


def all_outcomes(names, options, programs, refused):
  """Yields the result of each program and a text, each from a process of its own."""
  for name in names:
    with tempfile.TemporaryDirectory(prefix="programs-") as folder:
      path = pathlib.Path(folder)
      yield in_a_child(
        lambda name=name, path=path: outcome(
          name, programs[name], refused.get(name), options, path
        ),
        options.limit,
      )


def warm_up(options):
  """Exports one program, so that no child of this process needs to import what an export does."""
  import husk

  without_a_gpu()
  with tempfile.TemporaryDirectory() as folder:
    target = options.gpu if options.pack else options.target
    husk.write(nn.Linear(3, 3), (torch.ones(2, 3),), folder, targets=(target,), progress=False)


def main(text, programs, refused):
  """Runs a net: the text of its command line, its table, and by program the words of refusals."""
  parser = argparse.ArgumentParser(description=text.split("\n\n")[0])
  parser.add_argument("--target", default="host:avx2")
  parser.add_argument("--part", default="0/1", help="every n-th program: 0/4, 1/4 and so on")
  parser.add_argument("--only", help="names of programs, with commas between them")
  parser.add_argument("--json", help="a file for the results by name")
  parser.add_argument("--limit", type=float, default=300, help="seconds for a program")
  parser.add_argument("--gpu", default="cuda:h100", help="the target that --pack compiles for")
  parser.add_argument("--pack", metavar="DIR", help="only write artifacts for a GPU into a folder")
  parser.add_argument("--check", metavar="DIR", help="only run that folder, on the GPU")
  parser.add_argument("--compile", action="store_true", help="torch.compile, and no export")
  parser.add_argument("--static", action="store_true", help="sizes do not vary")
  options = parser.parse_args()
  warnings.simplefilter("ignore")
  logging.disable(logging.ERROR)
  torch.set_num_threads(1)
  torch.backends.cudnn.allow_tf32 = False  # the expected results are those of a CPU
  begin, step = map(int, options.part.split("/"))
  names = list(programs)[begin::step]
  if options.only:
    names = options.only.split(",")
  if options.pack:
    pathlib.Path(options.pack).mkdir(parents=True, exist_ok=True)
  if options.check:
    names = [name for name in names if (pathlib.Path(options.check) / f"{name}.husk").exists()]
  else:
    warm_up(options)
  counts, found, start = collections.Counter(), {}, time.monotonic()
  results = all_checked if options.check else all_outcomes
  for name, (result, text) in zip(names, results(names, options, programs, refused), strict=True):
    counts[result] += 1
    found[name] = {"result": result, "text": " ".join(text.split())}
    seconds = time.monotonic() - start
    text = "" if result in ("equal", "exported") else found[name]["text"]
    print(f"{seconds:4.0f} s {name}: {result} {text[:500]}", flush=True)
    if options.json:  # a whole file at any time
      pathlib.Path(f"{options.json}.part").write_text(json.dumps(found, indent=1))
      os.replace(f"{options.json}.part", options.json)
  print(f"{len(found)} programs: " + ", ".join(f"{n} {name}" for name, n in counts.most_common()))
