"""Two hundred models of libraries, with small random configurations, the libraries' own code
and defaults, exported and compared with eager mode.

  python tests/torch/nets/hundred_models.py [--part 0/4] [--only NAME...] [--family NAME...] and
    nothing               artifacts of this host, and runs of them
    --target cuda:h100    exports alone, for that target
    --pack DIR            artifacts for a GPU, inputs and eager's results on the CPU
    --check DIR           runs them on that GPU

The rows of the table are in zoo/. Models of which a size varies run at other sizes, too. Each model
is exported in a process of its own. It has one of these results: equal; differs; torch.export
(which refuses the model); refused (by Husk); crashed (another error of the export, or an error of a
run); died or late (the process); narrowed (equal at the example's size, and no other size is
allowed); exported (if it does not run). The first models of all families come before the second
ones. A family whose library is not installed is left out, by its name.

Parameters and buffers that all have one value, such as biases of 0 and statistics of layers that
were not trained, become random ones, so that a model that leaves them out differs.

With --json, a file has the results, the seconds of an export by stage, its processor seconds with
those of compilers, and the numbers of nodes of the graph of torch.export, of the operations that
Inductor compiles after decomposition, of kernels for a GPU, and of parameters. A node such as a GRU
can be many operations, and several of these are a kernel. Triton's cache is empty when an export
begins, so that each compiles all of its kernels. --times prints them, and each time divided by the
median of the models of nearly the same number of kernels, operations, nodes or parameters. A model
that is the largest by one of these numbers has no neighbors by it, so the time is also compared
with what the kernels, operations and parameters of a model take together.

Products are in tf32 where PyTorch's defaults say so, as in an export of a user, but not with
--pack: what a GPU computes is compared with the CPU. Without tf32 a product is a loop without
tensor cores, of which Triton writes every multiplication, and which takes longer to compile."""

from __future__ import annotations

import argparse
import collections
import contextlib
import importlib
import itertools
import json
import logging
import math
import operator
import os
import pathlib
import resource
import shutil
import statistics
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterator
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = map(str, (HERE, HERE.parent / "helpers", HERE.parents[2] / "compiler" / "torch"))

import torch  # noqa: E402
from random_models import in_a_child, without_a_gpu, words  # noqa: E402
from torch.utils import _pytree as pytree  # noqa: E402
from zoo.row import Row  # noqa: E402

# The modules of zoo that have rows. Each is named like the library that it needs, if it needs one.
FAMILIES = (
  "timm",
  "transformers",
  "torchvision",
  "torchaudio",
  "diffusers",
  "ultralytics",
  "graph",
  "recommender",
  "series",
)
RAN = ("equal", "exported")


def all_rows(options: argparse.Namespace) -> Iterator[Row]:
  """The rows of all families, the first ones of each before the second ones."""
  columns = []
  for family in FAMILIES:
    if options.family and family not in options.family:
      continue
    try:
      columns.append(importlib.import_module(f"zoo.{family}_rows").rows())
    except ImportError as error:
      print(f"{family}: left out: {error}", flush=True)
  begin, step = map(int, options.part.split("/"))
  rows = [row for group in itertools.zip_longest(*columns) for row in group if row]
  if options.only:
    rows = [row for row in rows if row.name in options.only]
  yield from rows[begin::step]


def built(row: Row) -> torch.nn.Module:
  torch.manual_seed(0)
  model = row.build().eval()
  with torch.no_grad():
    if not row.boxes:  # whose layers are scaled already
      for name, one in [*model.named_parameters(), *model.named_buffers()]:
        if one.is_floating_point() and one.numel() > 1 and bool((one == one.flatten()[0]).all()):
          vary(name, one)
  return model


def vary(name: str, one: torch.Tensor) -> None:
  """Gives a tensor of equal values random ones around them."""
  if name.endswith("running_var"):
    one.copy_(torch.rand_like(one) + 0.5)
  elif float(one.flatten()[0]) in (0.0, 1.0) or abs(float(one.flatten()[0])) < 1e-3:
    one.add_(torch.randn_like(one) * 0.1)


def called_with(row: Row, size: int) -> Any:
  torch.manual_seed(size + 1)
  return row.inputs(size)


def leaves(value: Any) -> list[torch.Tensor]:
  """The tensors of a result, those of caches included."""
  found = []
  for leaf in pytree.tree_leaves(value):
    if isinstance(leaf, torch.Tensor):
      found.append(leaf.detach().cpu())
    elif hasattr(leaf, "__dlpack__"):
      found.append(torch.from_dlpack(leaf).cpu())
    elif hasattr(leaf, "__dict__") and not isinstance(leaf, type):
      found += leaves(list(vars(leaf).values()))
  return found


def difference(got: list[torch.Tensor], expected: list[torch.Tensor]) -> str:
  """Why results are not equal. Rounding errors are measured by the largest value of a result."""
  if len(got) != len(expected):
    return f"{len(got)} results, eager mode has {len(expected)}"
  for index, (left, right) in enumerate(zip(got, expected)):
    if left.shape != right.shape or left.dtype != right.dtype:
      return (
        f"result {index} is {left.dtype}{list(left.shape)}, not {right.dtype}{list(right.shape)}"
      )
    if not right.numel():
      continue
    if not (right.is_floating_point() or right.is_complex()):
      if not torch.equal(left, right):
        return f"{int((left != right).sum())} of {right.numel()} values of result {index} differ"
      continue
    finite = right.abs()[right.isfinite()]
    largest = float(finite.max()) if finite.numel() else 1.0
    if not torch.allclose(left, right, rtol=1e-3, atol=1e-4 * largest, equal_nan=True):
      return f"result {index} differs by {(left - right).abs().max().item():.2g} of {largest:.2g}"
  return ""


def box_difference(got: Any, expected: Any) -> str:
  import detection_models

  return detection_models.difference(got, expected) or ""


class Measured:
  """The time of an export, its stages and the nodes of its graph."""

  def __init__(self) -> None:
    self.found: dict[str, Any] = {}
    self.remarks: list[str] = []  # what the exporter logs as warnings

  @contextlib.contextmanager
  def export(self) -> Iterator[None]:
    from husk import exporter
    from husk.cuda.kernels import CudaKernels
    from torch._inductor import compile_fx

    stages: list[dict[str, float]] = []
    written, shown = exporter.Function.exported, exporter.Progress

    def counted(function: Any, *args: Any) -> Any:
      program = written(function, *args)
      graphs = [m.graph for m in program.graph_module.modules() if hasattr(m, "graph")]
      self.found["nodes"] = sum(len(graph.nodes) for graph in graphs)
      return program

    def progress(*args: Any) -> Any:
      export_progress = shown(*args)
      stages.append(export_progress.seconds)
      return export_progress

    compiled, define = compile_fx.compile_fx_inner, CudaKernels._define

    def define_kernel(*args: Any, **options: Any) -> Any:
      self.found["kernels"] = self.found.get("kernels", 0) + 1
      return define(*args, **options)

    def compile_graph(module: Any, *args: Any, **options: Any) -> Any:
      graphs = [m.graph for m in module.modules() if hasattr(m, "graph")]
      nodes = [node for graph in graphs for node in graph.nodes if node.op == "call_function"]
      self.found["operations"] = sum(node.target is not operator.getitem for node in nodes)
      return compiled(module, *args, **options)

    remarks = logging.Handler(logging.WARNING)
    remarks.emit = lambda record: self.remarks.append(record.getMessage())
    logging.getLogger("husk").addHandler(remarks)
    exporter.Function.exported, exporter.Progress = counted, progress
    compile_fx.compile_fx_inner, CudaKernels._define = compile_graph, define_kernel
    begin, cpu = time.perf_counter(), processor_seconds()
    try:
      yield
    finally:
      exporter.Function.exported, exporter.Progress = written, shown
      compile_fx.compile_fx_inner, CudaKernels._define = compiled, define
      logging.getLogger("husk").removeHandler(remarks)
      self.found["seconds"] = round(time.perf_counter() - begin, 1)
      self.found["cpu"] = round(processor_seconds() - cpu, 1)
      self.found["stages"] = {n: round(s, 1) for one in stages for n, s in one.items()}


def processor_seconds() -> float:
  parts = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
  return sum(part.ru_utime + part.ru_stime for part in parts)


def attempt(row: Row, options: argparse.Namespace, measured: Measured) -> tuple[str, str]:
  """Exports a model, and runs it if it can; the result, and a text."""
  import husk

  model = built(row)
  args, kwargs = called_with(row, row.size)
  path = pathlib.Path(tempfile.mkdtemp()) / "model.husk"
  measured.found["parameters"] = max(1, sum(one.numel() for one in model.parameters()))
  shapes = None if options.static else row.shapes
  with measured.export():
    husk.export(
      model,
      args,
      path,
      kwargs=kwargs,
      dynamic_shapes=shapes,
      targets=(options.target,),
      progress=False,
      tune="none",
    )
  if options.pack:
    keep(row, options, path)
  if options.target.startswith("cuda"):
    return "exported", ""
  program, eager, excluded = husk.load(path), built(row), []
  for size in (row.size, *row.others) if shapes is not None else (row.size,):
    for step in range(row.steps):
      args, kwargs = called_with(row, size + step)
      with torch.no_grad():
        expected = eager(*args, **kwargs)
      args, kwargs = called_with(row, size + step)
      try:
        got = program(*args, **kwargs)
      except husk.InvalidInputError as error:
        if size == row.size:
          raise
        excluded.append(f"not at {size}: {husk.errors.message(error)}")
        break
      if row.boxes:
        text = box_difference(got, expected)
      else:
        text = difference(leaves(got), leaves(expected))
      if text:
        return "differs", f"at {size}: {text}"
  if len(excluded) == len(row.others) > 0:
    return "narrowed", excluded[0]
  remarks = [one for one in measured.remarks if " takes " in one]
  return "equal", "; ".join(excluded and [excluded[0], *remarks])


def keep(row: Row, options: argparse.Namespace, artifact: pathlib.Path) -> None:
  """Writes the artifact of a row into the folder of --pack, with calls of all its sizes."""
  eager, calls = built(row), []
  for size in (row.size, *row.others) if row.shapes is not None else (row.size,):
    for step in range(row.steps):
      args, kwargs = called_with(row, size + step)
      with torch.no_grad():
        expected = eager(*args, **kwargs)
      calls.append((called_with(row, size + step), expected if row.boxes else leaves(expected)))
  put(options.pack, f"{row.family}-{row.name}", artifact, calls, row.boxes)


def put(folder: str, name: str, artifact: pathlib.Path, calls: Any, boxes: bool = False) -> None:
  """Moves an artifact into a folder for --check, beside its calls: for each, positional and named
  arguments, and what eager mode returns."""
  torch.save({"calls": calls, "boxes": boxes}, pathlib.Path(folder) / f"{name}.pt")
  shutil.move(artifact, pathlib.Path(folder) / f"{name}.husk")


def check_one(path: pathlib.Path) -> tuple[str, str]:
  """Runs what --pack has written on a GPU."""
  import husk

  kept = torch.load(path.with_suffix(".pt"), weights_only=False)
  program = husk.load(path, device="cuda")
  excluded = 0
  for place, ((args, kwargs), expected) in enumerate(kept["calls"]):
    args, kwargs = pytree.tree_map_only(torch.Tensor, torch.Tensor.cuda, (args, kwargs))
    try:
      got = program(*args, **kwargs)
    except husk.InvalidInputError:  # a size that the model's code excludes
      if not place:
        raise
      excluded += 1
      continue
    if kept["boxes"]:
      text = box_difference({name: one.cpu() for name, one in got.items()}, expected)
    else:
      text = difference(leaves(got), expected)
    if text:
      return "differs", text
  return "equal", f"{len(kept['calls']) - excluded} calls"


def named(error: Exception) -> tuple[str, str]:
  """The result and the text of an error of an export or a run."""
  import husk

  places = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
  text = f"{type(error).__name__}: {husk.errors.message(error)}"
  if isinstance(error, husk.Unsupported):
    return "refused", text
  traced = any(place.endswith("husk/program/tracing.py") for place in places)
  return ("torch.export" if traced else "crashed"), text


def outcome(row: Row, options: argparse.Namespace) -> dict[str, Any]:
  """The result of a row, from a process of its own."""

  def function() -> dict[str, Any]:
    measured = Measured()
    os.environ["TRITON_CACHE_DIR"] = tempfile.mkdtemp()
    try:
      result, text = attempt(row, options, measured)
    except Exception as error:
      if options.traceback:
        pathlib.Path(options.traceback).write_text(traceback.format_exc())
      result, text = named(error)
    return {"result": result, "text": " ".join(text.split())[:1500], **measured.found}

  begin = time.perf_counter()
  found = in_a_child(function, options.limit)
  if not isinstance(found, dict):
    found = {"result": found[0], "text": found[1]}
  return {"family": row.family, "name": row.name, "wall": time.perf_counter() - begin, **found}


def check(options: argparse.Namespace) -> int:
  begin, step = map(int, options.part.split("/"))
  counts: collections.Counter[str] = collections.Counter()
  for path in sorted(pathlib.Path(options.check).glob("*.husk"))[begin::step]:
    if options.only and path.stem.split("-", 1)[1] not in options.only:
      continue
    result, text = in_a_child(lambda path=path: tried(path), options.limit)
    counts[result] += 1
    if result != "equal":
      print(f"{path.stem}: {result}: {' '.join(text.split())[:600]}", flush=True)
  print(", ".join(f"{count} {name}" for name, count in counts.most_common()))
  return counts.total() - counts["equal"]


def tried(path: pathlib.Path) -> tuple[str, str]:
  try:
    return check_one(path)
  except Exception as error:
    return "crashed", f"{type(error).__name__}: {error}"


def summary(found: list[dict[str, Any]]) -> Iterator[str]:
  """A line for each family, and the reasons."""
  for family in dict.fromkeys(one["family"] for one in found):
    rows = [one for one in found if one["family"] == family]
    counts = collections.Counter(one["result"] for one in rows)
    cpu = [one["cpu"] for one in rows if "cpu" in one and one["result"] in RAN]
    text = ", ".join(f"{count} {name}" for name, count in counts.most_common())
    took = f"; exports took {sum(cpu):.0f} s of processor time" if cpu else ""
    yield f"{family}: {len(rows)} models: {text}{took}"
  counts = collections.Counter(one["result"] for one in found)
  text = ", ".join(f"{count} {name}" for name, count in counts.most_common())
  yield f"{len(found)} models: {text}"
  reasons = collections.defaultdict(list)
  for one in found:
    if one["result"] not in RAN:
      reasons[one["result"], words(one["text"])].append(one["name"])
  for (result, text), names in reasons.items():
    yield f"  {result} {len(names)} ({', '.join(names)}): {text}"


# How many models of nearly its size a model is compared with, itself included.
NEIGHBOURS = 15


def slowness(rows: list[dict[str, Any]], size: str) -> dict[str, float]:
  """For each model, its processor time divided by the median of the models of nearly its size."""
  ratios = {}
  for one in rows:
    near = sorted(rows, key=lambda other: abs(math.log(other[size] / one[size])))
    ratios[one["name"]] = one["cpu"] / statistics.median(n["cpu"] for n in near[:NEIGHBOURS])
  return ratios


def above_the_line(rows: list[dict[str, Any]]) -> Iterator[str]:
  """The time that an export takes for each kernel, operation and parameter, by least squares of
  relative errors, and the models that take the most beyond that."""
  cpu = torch.tensor([one["cpu"] for one in rows], dtype=torch.float64)
  columns = [[1.0, one["kernels"], one["operations"], one["parameters"] / 1e6] for one in rows]
  sizes = torch.tensor(columns, dtype=torch.float64)
  solution = torch.linalg.lstsq(sizes / cpu[:, None], torch.ones_like(cpu)[:, None]).solution
  ratios = (cpu / (sizes @ solution)[:, 0]).tolist()
  base, kernel, operation, parameter = solution[:, 0].tolist()
  within = sum(ratio <= 1.5 for ratio in ratios)
  yield (
    f"{base:.2f} s, {kernel:.3f} s a kernel, {operation:.4f} s an operation and {parameter:.4f} s "
    f"a million of parameters: {within} of {len(rows)} take at most 1.5 times as long"
  )
  largest = sorted(zip(ratios, rows), key=lambda pair: -pair[0])[:5]
  yield "  " + ", ".join(f"{one['name']} {ratio:.2f}" for ratio, one in largest)


def times(found: list[dict[str, Any]]) -> Iterator[str]:
  """The processor time of exports, and how much longer each takes than the median of the models of
  its size, the number of kernels, operations, nodes or parameters; the longest first."""
  rows = [one for one in found if one.get("nodes") and one["result"] in RAN]
  known = ("kernels", "operations", "nodes", "parameters")
  sizes = [size for size in known if all(one.get(size) for one in rows)]
  slow = {size: slowness(rows, size) for size in sizes}
  for size in sizes:
    within = sum(ratio <= 1.5 for ratio in slow[size].values())
    yield f"{within} of {len(rows)} take at most 1.5 times the median of their number of {size}"
  if "kernels" in sizes:
    yield from above_the_line(rows)
  rows.sort(key=lambda one: -slow[sizes[0]][one["name"]])
  yield " ".join(f"/{size}" for size in sizes) + f"  ms/{sizes[0]}     cpu  {sizes[0]}"
  for one in rows:
    rate = 1000 * one["cpu"] / one[sizes[0]]
    stages = ", ".join(f"{name} {seconds}" for name, seconds in one["stages"].items())
    ratios = " ".join(f"{slow[size][one['name']]:{len(size) + 1}.2f}" for size in sizes)
    name = f"{one['family']} {one['name']}"
    yield f"{ratios} {rate:8.1f} {one['cpu']:7.1f} {one[sizes[0]]:6d}  {name}: {stages}"


def parsed() -> argparse.Namespace:
  parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
  parser.add_argument("--target", default="host")
  parser.add_argument("--part", default="0/1", help="every n-th model: 0/4, 1/4 and so on")
  parser.add_argument("--only", nargs="*", default=[], metavar="NAME")
  parser.add_argument("--family", nargs="*", default=[], choices=FAMILIES)
  parser.add_argument("--static", action="store_true", help="sizes do not vary")
  parser.add_argument("--limit", type=float, default=600, help="seconds for a model")
  parser.add_argument("--json", help="a file for the results; those in it are not tried again")
  parser.add_argument("--times", metavar="JSON", help="only print the times of a file")
  parser.add_argument("--traceback", help="a file for the traceback of the last error")
  parser.add_argument("--pack", metavar="DIR", help="write artifacts for a GPU into a folder, too")
  parser.add_argument("--check", metavar="DIR", help="only run that folder, on the GPU")
  options = parser.parse_args()
  if options.pack:
    pathlib.Path(options.pack).mkdir(parents=True, exist_ok=True)
    if options.target == "host":
      options.target = "cuda:h100"
  return options


def main() -> int:
  options = parsed()
  os.environ.setdefault("HF_HUB_OFFLINE", "1")
  os.environ.setdefault("HUSK_TRACEBACK", "1")  # which tells whose errors are torch.export's
  warnings.simplefilter("ignore")
  logging.getLogger("husk").propagate = False
  logging.getLogger("torch").setLevel(logging.CRITICAL)
  torch.set_num_threads(1)
  if options.pack or options.check:
    torch.backends.cudnn.allow_tf32 = False
  if options.times:
    print(*times(json.loads(pathlib.Path(options.times).read_text())), sep="\n")
    return 0
  if options.check:
    return 1 if check(options) else 0
  import husk.exporter  # noqa: F401

  found = []
  if options.json and pathlib.Path(options.json).exists():
    found = json.loads(pathlib.Path(options.json).read_text())
  seen = {one["name"] for one in found}
  rows = [row for row in all_rows(options) if row.name not in seen]
  warm_up(options)  # no child imports what an export needs
  for row in rows:
    one = outcome(row, options)
    found.append(one)
    detail = f", {one['cpu']} s of processor time, {one.get('nodes')} nodes" if "cpu" in one else ""
    text = f": {one['text']}" if one["text"] else ""
    print(f"{row.family} {row.name}: {one['result']}{detail}{text}", flush=True)
    if options.json:
      pathlib.Path(f"{options.json}.part").write_text(json.dumps(found, indent=1))
      os.replace(f"{options.json}.part", options.json)
  print(*summary(found), sep="\n")
  return 0 if all(one["result"] in RAN for one in found) else 1


def warm_up(options: argparse.Namespace) -> None:
  import husk

  without_a_gpu()
  with tempfile.TemporaryDirectory() as folder:
    path = pathlib.Path(folder) / "model.husk"
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Softmax(-1))
    husk.export(model, (torch.randn(2, 4),), path, targets=(options.target,), progress=False)
    if not options.target.startswith("cuda"):
      husk.load(path)(torch.randn(2, 4))


if __name__ == "__main__":
  sys.exit(main())
