"""Exports every operator of PyTorch's database with all sizes dynamic, and runs it at sizes that
the export did not see.

  python tests/torch/nets/database_sizes.py [--part 0/4] [--only NAME,NAME] [--json FILE] and one of
    --target fake        the kernels of a CUDA variant, by Triton's interpreter
    --target cuda        exports alone, for a CUDA target
    --zero               each size 0 in turn, as Dim(min=0) allows it
    --alone              each size in turn is another, and the rest stay
    --static             every sample of every dtype, with its own sizes; --dtypes names some
    --layers             PyTorch's database of modules instead, with --static
    --fence [--asan HUSK_RUN]   under watch, see below
    --pack DIR           artifacts for a GPU, inputs and eager's results
    --check DIR          runs them on that GPU; --one-process is for `compute-sanitizer python ...`

An operator has one of these results: equal (at the example's sizes and at three others); example
only (right there, and wrong, refused or failing at another size that torch.export allows); wrong
(at the example's sizes already); torch.export (which refuses the sample, or allows no other size);
refused (by Husk, at export); crashed (another error of the export); died or late (the process); not
applicable (eager mode cannot run the sample, or it has no sizes). With `--target cuda` nothing
runs, and no kernel is compiled: the results are exported, and narrowed (the program checks that
sizes are as its kernels assume).

With --fence, each size runs twice more on the host, with inputs that lie between pages which nobody
may touch: first in front of one, then behind one. With --asan, a husk-run that was built with
sanitizers runs each size, too, for the operators that Husk's own library computes.

The arguments at another size are the sample's own, continued periodically, so that values stay in
their range and indices stay valid. If eager mode refuses them, a size counts with --zero and
--alone only: then Husk must refuse it, too.

Several operators are exported into one artifact, since the compiler's start takes most of the time.
If that fails in any way, each of them is exported alone."""

import argparse
import collections
import dataclasses
import itertools
import json
import logging
import os
import pathlib
import re
import shutil
import signal
import sys
import tempfile
import time
import warnings

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "helpers"), str(HERE.parents[2] / "compiler" / "torch")]

import random_programs  # noqa: E402
import torch  # noqa: E402
from built_tools import husk_run  # noqa: E402
from compile_operators import database  # noqa: E402
from export_operators import Layer, Sample, compared_part, layers, numbers, uncompiled  # noqa: E402
from export_operators import shapes as shapes_of  # noqa: E402
from fenced import fenced  # noqa: E402
from random_models import in_a_child, words  # noqa: E402
from torch.utils import _pytree as pytree  # noqa: E402

# The sizes that are tried for an example's size n, one after the other, until three sets run.
OTHER = (
  lambda n: n + 1,
  lambda n: 2 * n,
  lambda n: n + 3,
  lambda n: max(n - 1, 2),
  lambda n: 3 * n,
)
# Husk refuses these calls although eager mode takes them. With --zero and --alone such a refusal
# counts as equal.
STRICTER = {
  "_segment_reduce_offsets": "offsets behind the data, where eager mode reads other memory",
  "nn_functional_scaled_dot_product_attention": "keys and values of different numbers, of which "
  "eager mode reads behind the fewer ones",
  "index_add": "an index into a dimension of size 0, if eager mode has nothing to add",
  "nn_functional_conv1d": "no input channels: eager mode returns no output channels",
  "nn_functional_conv2d": "no input channels, too",
  "_unsafe_masked_index": "indices into a dimension of size 0, whose values eager mode fills in",
  "_unsafe_masked_index_put_accumulate": "such indices, whose values eager mode leaves out",
  "linalg_cond": "matrices without elements, of which eager mode says 0",
}
# Programs for a GPU refuse these calls, too.
STRICTER_ON_A_GPU = {"median": "no numbers", "nanmedian": "no numbers"}
# Eager mode leaves the result of these losses unwritten if the batch is empty.
UNDETERMINED_IF_EMPTY = ("nn_functional_multi_margin_loss", "nn_functional_multilabel_margin_loss")
# These write several values to one place if indices repeat. A GPU keeps any of them.
UNORDERED = (
  "index_copy",
  "nn_functional_max_unpool1d",
  "nn_functional_max_unpool2d",
  "nn_functional_max_unpool3d",
  "scatter",
)
# These return places of elements, of which several may be equal in the samples that have few
# values. Any of their places is right, and an operator without `stable` keeps no order.
PLACES = ("argsort", "kthvalue", "median", "mode", "msort", "nanmedian", "sort", "topk")
# In eager mode a CPU computes these in integers if the image has bytes, with an error of 1, and a
# GPU does not take them (tests/torch/exports/test_rare_dtypes.py).
RESIZED = ("interpolate_bilinear", "interpolate_bicubic", "upsample_bilinear", "upsample_bicubic")
# In float64 eager mode computes these with an error of up to 1e-7, and of integers it computes
# numbers where they have poles. A GPU has functions that are closer to those of mpmath.
INEXACT = (
  "polygamma",
  "special_airy_ai",
  "special_bessel_j",
  "special_bessel_y",
  "special_polygamma",
)
FEW_VALUES = frozenset(
  {torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16}
  | {torch.bfloat16}
)

SYMMETRIC = ("chol", "inv", "linalg", "logdet", "lu", "solve")


@dataclasses.dataclass
class Case:
  """An operator with a sample."""

  name: str
  op: object
  dtype: torch.dtype
  number: int
  model: Sample

  @property
  def text(self):
    return f"{self.name} {str(self.dtype)[6:]} #{self.number}"


def samples(op, dtype, most):
  torch.manual_seed(5)
  try:
    for number, sample in enumerate(
      itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=False), most)
    ):
      model = Sample(op.op if isinstance(op, Layer) else op, sample)
      yield Case(op.formatted_name, op, dtype, number, model)
  except Exception:  # whatever the database's own code raises
    return


def best_sample(op, dtype):
  """The sample with most sizes of at least 2, among the first ones: sizes 0 and 1 are constants of
  an export."""

  def sizes(case):
    tensors = case.model.inputs
    small = all(tensor.numel() < 20000 and tensor.layout == torch.strided for tensor in tensors)
    first = tensors[0].shape if tensors else ()
    return small and sum(size > 1 for size in first)

  return max(samples(op, dtype, 12), key=sizes, default=None)


def exported(case, options):
  shapes = None
  if not options.static:
    dim = torch.export.Dim.AUTO(max=4096) if options.zero else torch.export.Dim.AUTO
    shapes = (tuple(dict.fromkeys(range(x.ndim), dim) for x in case.model.inputs),)
  if not case.model.inputs:
    shapes = None
  with torch.no_grad():
    program = torch.export.export(
      case.model, case.model.inputs, dynamic_shapes=shapes, strict=False
    )
  if options.zero:  # as Dim(..., min=0) does, which needs a name for each size
    for symbol, sizes in program.range_constraints.items():
      program.range_constraints[symbol] = type(sizes)(0, sizes.upper)
  return program


def symbols_of(program):
  """The symbols of the inputs' sizes with the example's values, and the sizes themselves."""
  values, shapes = {}, []
  for node in program.graph.find_nodes(op="placeholder"):
    if isinstance(value := node.meta["val"], torch.Tensor) and node.name.startswith("tensors"):
      shapes.append(value.shape)
      for size in value.shape:
        if not isinstance(size, int):
          environment = size.node.shape_env
          for symbol in size.node.expr.free_symbols:
            values[symbol] = int(environment.backed_var_to_val[symbol])
  return values, shapes


def with_sizes(case, shapes, values):
  """The inputs at these values of the symbols."""
  inputs = []
  for tensor, shape in zip(case.model.inputs, shapes, strict=True):
    sizes = [n if isinstance(n, int) else int(n.node.expr.subs(values)) for n in shape]
    inputs.append(continued(case, tensor, sizes))
  return tuple(inputs)


def continued(case, tensor, sizes):
  if list(tensor.shape) == sizes:
    return tensor.clone()
  grown = tensor
  for dim, size in enumerate(sizes):
    if tensor.shape[dim]:
      grown = grown.index_select(dim, torch.arange(size) % tensor.shape[dim])
    else:
      grown = grown.new_zeros([*grown.shape[:dim], size, *grown.shape[dim + 1 :]])
  grown = grown.contiguous()
  if "embedding_bag" in case.name and grown.dtype == torch.int64:  # the offsets of bags grow
    grown = grown.sort().values
  if grown.is_floating_point() or grown.is_complex():
    generator = torch.Generator().manual_seed(7)
    factor = 1 - torch.rand(grown.shape, generator=generator) / 4
    whole = bool((tensor.real == tensor.real.round()).all()) if tensor.numel() else True
    if not whole:
      grown = (grown * factor).to(tensor.dtype)
    if (
      grown.ndim > 1
      and grown.shape[-1] == grown.shape[-2]
      and any(part in case.name for part in SYMMETRIC)
    ):
      grown = (grown + grown.mT.conj()) / 2 + 10 * grown.shape[-1] * torch.eye(grown.shape[-1])
      grown = grown.to(tensor.dtype)
  order = sorted(range(grown.ndim), key=lambda dim: -tensor.stride(dim))
  back = sorted(range(grown.ndim), key=order.__getitem__)
  return grown.permute(order).contiguous().permute(back)  # the memory format of the example


def other_sizes(case, program, options):
  """Pairs of inputs and whether eager mode takes them, the example's first."""
  runs = [(case.model.inputs, True)]
  if options.static:
    return runs
  values, shapes = symbols_of(program)
  if len(shapes) != len(case.model.inputs) or not values:
    return None
  tried, grown = [], []
  if options.zero:
    tried = [{**values, symbol: 0} for symbol in values] + [dict.fromkeys(values, 0)]
    grown = [{symbol: change(n) for symbol, n in values.items()} for change in OTHER[:2]]
  elif options.alone:
    tried = [{**values, s: m} for s, n in values.items() for m in (n + 3, max(n - 2, 2)) if m != n]
  else:
    order = sorted(values, key=str)
    for change in OTHER:
      tried.append({symbol: change(n) for symbol, n in values.items()})
    for number in range(len(OTHER)):
      tried.append(
        {s: OTHER[(number + 2 * place) % len(OTHER)](values[s]) for place, s in enumerate(order)}
      )
  limits = program.range_constraints
  for one in tried + grown:
    inside = all(limits[s].lower <= n <= limits[s].upper for s, n in one.items() if s in limits)
    if not inside:
      continue
    inputs = with_sizes(case, shapes, one)
    try:
      with torch.no_grad():
        case.model(*clones(inputs))
    except Exception:
      if (options.zero or options.alone) and one not in grown:
        runs.append((inputs, False))
      continue
    try:
      with torch.no_grad():
        program.module()(*clones(inputs))
    except Exception:  # a guard of the export
      continue
    runs.append((inputs, True))
    if not options.zero and not options.alone and len(runs) == 4:
      break
  return runs if len(runs) > 1 else None


def clones(tensors):
  return tuple(random_programs.clone(tensor) for tensor in tensors)


def leaves_of(tree):
  return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def expected(case, inputs, compared):
  """What eager mode gives, with what is uncertain about it."""
  with torch.no_grad():
    eager = leaves_of(case.model(*clones(inputs)))
    double = None
    try:
      with random_programs.default_dtype(torch.float64):
        model = Sample.__new__(Sample)
        model.__dict__.update(case.model.__dict__)
        model.leaves = [
          random_programs.DOUBLE.get(x, x) if isinstance(x, torch.dtype) else x
          for x in case.model.leaves
        ]
        double = compared(leaves_of(model(*map(random_programs.as_double, inputs))))
    except Exception:
      pass
    others = []
    for seed in range(random_programs.JITTERS):
      change = random_programs.jittered(torch.Generator().manual_seed(seed))
      try:
        others.append(compared(leaves_of(case.model(*map(change, inputs)))))
      except Exception:
        pass
  return [
    random_programs.Expected(
      one,
      double[n] if double and len(double) > n else None,
      [other[n] for other in others if len(other) > n],
    )
    for n, one in enumerate(compared(eager))
  ]


def values_alone(tensors):
  """The results, of which those that are places count by their shapes only."""
  places = [n for n, one in enumerate(tensors) if one.dtype is torch.int64]
  first = 0 if places == [0] else 1  # argsort returns places alone
  return [*tensors[:first], *shapes_of(tensors[first:])]


def first_alone(tensors):
  return tensors[:1]


def attempt(cases, options, folder):
  """The results of cases, from one artifact. Raises if it cannot be made."""
  import husk

  results, functions, tasks = {}, {}, {}
  for n, case in enumerate(cases):
    try:
      with torch.no_grad():
        eager = leaves_of(case.model(*clones(case.model.inputs)))
    except Exception as error:
      results[n] = "not applicable", str(error)
      continue
    try:
      program = exported(case, options)
      runs = other_sizes(case, program, options)
      if options.static:  # torch.export may have stated what the sample does not keep
        program.module()(*clones(case.model.inputs))
    except Exception as error:
      results[n] = "torch.export", f"{type(error).__name__}: {error}"
      continue
    if runs is None:
      dynamic = any(size > 1 for x in case.model.inputs for size in x.shape)
      results[n] = (
        ("torch.export", "it allows no other size")
        if dynamic
        else ("not applicable", "the sample has no sizes")
      )
      continue
    functions[f"f{n}"] = husk.Function(program, case.model.inputs)
    refused = {**STRICTER, **STRICTER_ON_A_GPU} if options.pack else STRICTER
    stricter = (options.zero or options.alone) and case.name in refused
    compared = compared_part(case.op, program)
    if options.pack and case.name.removesuffix("_grad") in UNORDERED:
      compared = shapes_of
    if options.pack and case.name.startswith(INEXACT) and case.dtype is not torch.float32:
      compared = shapes_of
    if options.pack and "native_batch_norm" in case.name and not eager[1].numel():
      compared = first_alone  # in eval mode a GPU returns statistics, and a CPU returns none
    if case.name in PLACES and case.dtype in FEW_VALUES:
      compared = values_alone
    if case.dtype is torch.uint8 and any(part in case.name for part in RESIZED):
      compared = shapes_of
    tasks[n] = Task(case, runs, compared, stricter)
  if not functions:
    return results
  run = EXPORTS[options.target](functions, folder, options)
  for n, task in tasks.items():
    try:
      results[n] = compare(task, run(f"f{n}", task.runs))
    except Unrun as unrun:
      results[n] = unrun.args
  if options.pack:
    packed = {f"f{n}": task for n, task in tasks.items()}
    for task in packed.values():
      task.keep()
    first = cases[min(tasks)]
    path = pathlib.Path(options.pack) / f"{first.name}-{str(first.dtype)[6:]}-{first.number}"
    torch.save(packed, folder / "packed.pt")  # fails for tensors that share memory and not dtypes
    shutil.copy(folder / "packed.pt", f"{path}.pt")
    shutil.copy(folder / "model.husk", f"{path}.husk")
  return results


@dataclasses.dataclass
class Task:
  """What to run of a case, and how to compare it. What eager mode gives is computed when it is
  asked for; keep() computes all of it, after which the case itself is not needed."""

  case: Case | None
  runs: list  # pairs of inputs, and whether eager mode takes them
  compared: object
  stricter: bool  # may refuse inputs that eager mode takes
  kept: list | None = None

  def __post_init__(self):
    self.name, self.text = self.case.name, self.case.text

  def expected(self, place):
    if self.kept:
      return self.kept[place]
    return expected(self.case, self.runs[place][0], self.compared)

  def keep(self):
    self.kept = [self.expected(n) if taken else None for n, (_, taken) in enumerate(self.runs)]
    self.case = None


def compare(task, run_results):
  runs, compared, stricter = task.runs, task.compared, task.stricter
  for place, ((inputs, taken), result) in enumerate(zip(runs, run_results, strict=True)):
    sizes = " ".join(str(tuple(x.shape)) for x in inputs)
    if isinstance(result, Exception):
      if not taken or (place and stricter):
        continue
      what = "wrong" if not place else "example only"
      return what, f"at {sizes}: {type(result).__name__}: {result}"
    if not taken:
      return "example only", f"at {sizes}: runs, and eager mode refuses it"
    if task.name in UNDETERMINED_IF_EMPTY and not any(x.numel() for x in inputs):
      continue
    wanted = task.expected(place)
    result = compared(result) if compared is not numbers else result
    if text := random_programs.difference(result, wanted):
      return ("wrong" if not place else "example only"), f"at {sizes}: {text}"
  return "equal", f"{len(runs)} sizes"


def on_host(functions, folder, options):
  import husk

  artifact = folder / "model.husk"
  husk.export(functions, artifact, targets=(options.isa,), progress=False)
  program = husk.load(artifact)

  def run(name, runs):
    run_results = []
    for inputs, _ in runs:
      run_results.append(called(getattr(program, name), clones(inputs)))
      if options.fence:
        for side in ("back", "front"):
          called(getattr(program, name), [fenced(x, side) for x in inputs])
      if options.asan and (found := sanitized(artifact, name, inputs, options.asan, folder)):
        run_results[-1] = found
    return run_results

  return run


def called(function, inputs):
  """The tensors that a function of a program returns, on the CPU, or its error."""
  import husk

  try:
    results = function(*inputs)
  except husk.Error as error:
    return error
  return [
    (one if isinstance(one, torch.Tensor) else torch.from_dlpack(one)).cpu().clone()
    for one in pytree.tree_leaves(results)
    if hasattr(one, "__dlpack__")
  ]


def sanitized(artifact, name, inputs, runner, folder):
  """An error, if a husk-run that was built with sanitizers reports one."""
  named = {f"tensors_{n}": x for n, x in enumerate(clones(inputs))}
  libraries = str(pathlib.Path(runner).parents[1] / "lib")
  environment = {**os.environ, "HUSK_RUN": runner, "LD_LIBRARY_PATH": libraries}
  code, _, text = husk_run(
    artifact, folder, named, f"--function={name}", "--print=none", environment=environment
  )
  report = re.search(r"(AddressSanitizer|runtime error|LeakSanitizer).*", text, re.S)
  # husk-run has no strides for its inputs, and cannot write results in complex128: 4 and 2.
  if report or code not in (0, 1, 2, 4):
    return RuntimeError(report.group()[:1500] if report else f"exit {code}: {text[:500]}")
  return None


def packed(functions, folder, options):
  """Writes an artifact for a GPU, which attempt() keeps."""
  import husk

  with torch.backends.cudnn.flags(allow_tf32=False):  # the expected results are those of a CPU
    husk.export(functions, folder / "model.husk", targets=(options.gpu,), progress=False)

  def run(name, runs):
    raise Unrun("exported", "")

  return run


def checked(path, kept):
  """The results of an artifact on a GPU, and the number of calls."""
  import husk

  program, results, calls = husk.load(path, device="cuda"), {}, 0
  for name, task in kept.items():
    function = getattr(program, name)
    run_results = [called(function, [x.cuda() for x in clones(x)]) for x, _ in task.runs]
    calls += len(run_results)
    results[task.text] = compare(task, run_results)
  return results, calls


def check(options):
  """Runs what --pack has written. Returns the number of artifacts that are not right."""
  begin, step = map(int, options.part.split("/"))
  counts, calls, bad = collections.Counter(), 0, 0
  for path in sorted(pathlib.Path(options.check).glob("*.husk"))[begin::step]:
    kept = torch.load(path.with_suffix(".pt"), weights_only=False)
    if options.one_process:
      results, number = checked(path, kept)
    else:
      found = in_a_child(lambda path=path, kept=kept: checked(path, kept), options.limit)
      if not isinstance(found[0], dict):
        found = {task.text: found for task in kept.values()}, 0
      results, number = found
    calls += number
    for name, (result, text) in results.items():
      counts[result] += 1
      bad += result != "equal"
      if result != "equal":
        print(f"{path.stem}: {name}: {result}: {' '.join(text.split())[:400]}", flush=True)
  text = ", ".join(f"{n} {name}" for name, n in counts.most_common())
  print(f"{counts.total()} cases, {calls} calls: {text}", flush=True)
  return bad


def on_fake(functions, folder, options):
  from cuda_numerics import computed

  (function,) = functions.values()
  shared = folder / "shared"
  shared.mkdir(exist_ok=True)

  def run(name, runs):
    run_results = []
    try:
      named = [{f"tensors_{n}": x for n, x in enumerate(clones(inputs))} for inputs, _ in runs]
      results = computed(function.model, function.args, None, named, shared)
      run_results = [leaves_of([*result.values()]) for result in results]
    except AssertionError as error:
      run_results = [error] * len(runs)
    return run_results

  return run


def on_paper(functions, folder, options):
  """Writes the text of a program without its kernels, in which `run` looks for checks of sizes."""
  import husk

  with uncompiled():
    text = husk.write(functions, folder, targets=("cuda:h200",), progress=False).read_text()
  checks = re.findall(r"the kernels assume [^\"]*", text)

  def run(name, runs):
    raise Unrun("narrowed" if checks else "exported", "; ".join(checks))

  return run


class Unrun(Exception):
  """The result of a program that is only written, and a text about it."""


EXPORTS = {"host": on_host, "fake": on_fake, "cuda": on_paper, "pack": packed}


def outcomes(cases, options):
  """The results of cases, in the order of the cases."""

  def function():
    import husk

    try:
      return attempt(cases, options, pathlib.Path(tempfile.mkdtemp()))
    except husk.Unsupported as error:
      return "refused", str(error)
    except Exception as error:
      return "crashed", f"{type(error).__name__}: {error}"

  found = in_a_child(function, options.limit * len(cases))
  if isinstance(found, dict):
    return [found[n] for n in range(len(cases))]
  if len(cases) == 1:
    return [found]
  return [one for case in cases for one in outcomes([case], options)]


def all_cases(options):
  wanted = options.only.split(",") if options.only else None
  begin, step = map(int, options.part.split("/"))
  for op in (layers() if options.layers else database())[begin::step]:
    if wanted and op.formatted_name not in wanted:
      continue
    if options.static:
      for dtype in sorted(op.supported_dtypes("cpu"), key=str):
        if options.dtypes and str(dtype)[6:] not in options.dtypes.split(","):
          continue
        yield from samples(op, dtype, options.samples)
    elif case := best_sample(op, torch.float32):
      yield case


def parsed(arguments=None):
  """The options of a command line."""
  parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
  parser.add_argument("--target", default="host", choices=list(EXPORTS))
  parser.add_argument("--isa", default="host:avx2")
  parser.add_argument("--part", default="0/1", help="every n-th operator: 0/4, 1/4 and so on")
  parser.add_argument("--only", help="names of operators, with commas between them")
  parser.add_argument("--zero", action="store_true", help="each size 0 in turn")
  parser.add_argument("--alone", action="store_true", help="each size in turn is another")
  parser.add_argument("--static", action="store_true", help="every sample and dtype, static")
  parser.add_argument("--layers", action="store_true", help="the database of modules instead")
  parser.add_argument("--dtypes", help="with --static, dtypes with commas between them")
  parser.add_argument("--samples", type=int, default=60, help="with --static, at most so many")
  parser.add_argument("--batch", type=int, default=8, help="cases in one artifact")
  parser.add_argument("--json", help="a file for the results by name")
  parser.add_argument("--limit", type=float, default=120, help="seconds for a case")
  parser.add_argument("--seconds", type=float, default=1e9, help="at most so long")
  parser.add_argument("--fence", action="store_true", help="inputs beside forbidden memory, too")
  parser.add_argument("--asan", metavar="HUSK_RUN", help="a husk-run built with sanitizers")
  parser.add_argument("--gpu", default="cuda:h200", help="the target that --pack compiles for")
  parser.add_argument("--pack", metavar="DIR", help="only write artifacts for a GPU into a folder")
  parser.add_argument("--check", metavar="DIR", help="only run that folder, on the GPU")
  parser.add_argument("--one-process", action="store_true", help="all of --check in this process")
  options = parser.parse_args(arguments)
  if options.pack:
    options.target = "pack"
    pathlib.Path(options.pack).mkdir(parents=True, exist_ok=True)
  return options


def restart_interpreter():
  from cuda_numerics import interpreter

  os.killpg(interpreter().pid, signal.SIGKILL)
  interpreter.cache_clear()
  interpreter()


def warm_up(options):
  """Exports one operator, so that no child of this process needs to import what an export does.
  Nothing of it is packed: the file would take the place of the one that begins with `add`."""
  options = argparse.Namespace(**{**vars(options), "pack": None})
  (add,) = [op for op in database() if op.formatted_name == "add"]
  with tempfile.TemporaryDirectory() as folder:
    attempt([best_sample(add, torch.float32)], options, pathlib.Path(folder))


def main():
  options = parsed()
  warnings.simplefilter("ignore")
  logging.disable(logging.ERROR)
  torch.set_num_threads(1)
  if options.check:
    return 1 if check(options) else 0
  import husk.exporter  # noqa: F401

  if options.target not in ("host", "pack"):
    options.batch = 1
  if options.target == "fake":
    from cuda_numerics import interpreter

    interpreter()
  counts, found, start = collections.Counter(), {}, time.monotonic()
  warm_up(options)
  cases = all_cases(options)
  while batch := list(itertools.islice(cases, options.batch)):
    for case, (result, text) in zip(batch, outcomes(batch, options), strict=True):
      text = " ".join(text.split())
      counts[result] += 1
      found[case.text] = {"result": result, "text": text}
      if result not in ("equal", "exported"):
        print(f"{time.monotonic() - start:5.0f} s {case.text}: {result}: {text[:400]}", flush=True)
      if options.target == "fake" and result in ("late", "died"):
        restart_interpreter()  # it may still work on that case
    if options.json:  # a whole file at any time
      pathlib.Path(f"{options.json}.part").write_text(json.dumps(found, indent=1))
      os.replace(f"{options.json}.part", options.json)
    if time.monotonic() - start > options.seconds:
      break
  print(f"{len(found)} cases: " + ", ".join(f"{n} {name}" for name, n in counts.most_common()))
  for name in counts:
    if name not in ("equal", "exported"):
      reasons = collections.Counter(
        words(one["text"]) for one in found.values() if one["result"] == name
      )
      for text, count in reasons.most_common(12):
        print(f"  {name} {count}: {text}")


if __name__ == "__main__":
  main()
