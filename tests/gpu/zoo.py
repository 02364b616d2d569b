"""Counts how many models of public collections Husk exports for a GPU and runs right.

  python tests/gpu/zoo.py [--collection torchvision] [--target cuda:h100] [--jobs 8] [--json FILE]
                          [--limit 120] [--no-run] [--all-denominators] [NAME...]
  python tests/gpu/zoo.py --denominator-only [--json FILE] [NAME...]

The collection `torchvision` is every model for classification, segmentation and detection that the
installed torchvision lists, with its own sizes. The collection `transformers` is 40 architectures
of the package transformers, with the sizes of the table in zoo_models.py. All weights are random
and seeded, and nothing is downloaded. Models for classification and segmentation are in fp16, all
others in fp32: which boxes a detector keeps depends on comparisons, which fp16 would change.

Each model is exported by rules and records, without measuring. If this machine has a GPU, the
artifact runs there as a list of launches and in the mode of the session's own choice, two times
each, and the results are compared with eager mode in fp32 without tf32. The error is the largest
difference, divided by the largest number that eager mode returns. In fp16 it may be twice the error
of eager mode in fp16, or 1e-2; in fp32 it may be 1e-3. Without a GPU, or with --no-run, `ok` means
that the export succeeded.

A model has one of these results: ok, refused (husk.export raises an error), wrong (the artifact
does not load, a run fails, or the results differ), crashed (the process ends), late (no result
within the limit), and not applicable (the installed packages lack the model, or torch.export and
Inductor without Husk cannot compile it). The line of a model also names the operators that the
artifact runs on the host.

A percentage is the part of the applicable models that is ok. A model that Husk exports is
applicable. The other models are compiled by torch.export and Inductor alone, on the GPU if this
machine has one, else on the CPU in fp32. They are applicable if that succeeds, and also if it takes
longer than the limit. --all-denominators compiles every model in this way, and --denominator-only
exports none. The file of --json has all results that there are at any time.
"""

import argparse
import collections
import contextlib
import copy
import importlib.metadata
import json
import logging
import math
import multiprocessing
import multiprocessing.connection
import os
import pathlib
import signal
import sys
import tempfile
import time
import warnings

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))  # a process that is started has the path that is left below
import zoo_models  # noqa: E402
from zoo_models import Inapplicable, first_line, make  # noqa: E402

# Packages that transformers looks for have the names of files of this folder. An installed husk, or
# one of PYTHONPATH, goes before that of the tree.
sys.path[:] = [path for path in sys.path if not path or pathlib.Path(path).resolve() != HERE]
sys.path.append(str(HERE.parents[1] / "compiler" / "torch"))

import torch  # noqa: E402
from torch.utils import _pytree as pytree  # noqa: E402

COLLECTIONS = ("torchvision", "transformers")
RESULTS = ("ok", "refused", "wrong", "crashed", "late", "not applicable", "applicable")

# The environment of the processes that export. Each of them has one thread, since several run at a
# time.
ENVIRONMENT = {
  "OMP_NUM_THREADS": "1",
  "TORCHINDUCTOR_COMPILE_THREADS": "1",
  "HF_HUB_OFFLINE": "1",
}


# The steps that the process of a model does


def halved(tensors):
  return tuple(x.half() if x.is_floating_point() else x for x in tensors)


def export(collection, name, options, folder, send):
  """Exports a model, runs the artifact if there is a GPU, and sends what it finds."""
  import husk

  model = make(collection, name)
  module, inputs = copy.deepcopy(model.module), model.inputs
  if model.half:
    module, inputs = module.half(), halved(inputs)
  path = folder / "model.husk"
  begin = time.perf_counter()
  try:
    husk.export(module, inputs, path, targets=[options.target], tune="heuristic", progress=False)
  except Exception as error:
    send(status="refused", text=first_line(error))
    return
  seconds = round(time.perf_counter() - begin, 1)
  artifact = husk.inspect(path)
  send(seconds=seconds, host=host_operators(artifact), operators=list(artifact.operators))
  send(exported=True)
  if options.no_run or not torch.cuda.is_available():
    send(status="ok", text="")
    return
  del module
  run(path, model, inputs, send)


def host_operators(artifact):
  """The operators that an artifact runs on the host, beside the device."""
  found = {
    way.removesuffix(" on the host")
    for function in artifact.functions.values()
    for variant in function.variants
    for way in variant.ways
    if way.endswith(" on the host")
  }
  return sorted(found)


def tensors_of(tree):
  return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def run(path, model, inputs, send):
  """Compares an artifact with eager mode on the GPU. `inputs` are those of the artifact."""
  import husk

  there = [tensor.cuda() for tensor in inputs]
  limit, eager = 1e-3, ""
  try:
    module = model.module.cuda()
    expected = tensors_of(module(*(tensor.cuda() for tensor in model.inputs)))
    if model.half:
      eager_error = difference(tensors_of(module.half()(*there)), expected)
      limit = max(2 * eager_error, 1e-2) if math.isfinite(eager_error) else 1e-2
      eager = f", eager in fp16 {eager_error:.1e}"
    torch.cuda.synchronize()
  except torch.cuda.OutOfMemoryError:
    raise
  except Exception as error:
    raise Inapplicable(f"eager mode on the GPU: {first_line(error)}") from error
  worst = 0.0
  mode = "load"
  try:
    program = husk.load(path, device="cuda")
    for mode in ("list", "auto"):
      session = program.session(mode=mode)
      for _ in range(2):
        results = tensors_of(session(*map(torch.clone, there)))
        torch.cuda.synchronize()
        error = difference(results, expected)
        if error > limit:
          send(status="wrong", text=f"{mode}: error {error:.1e}, limit {limit:.1e}{eager}")
          return
        worst = max(worst, error)
  except Exception as error:
    send(status="wrong", text=f"{mode}: {first_line(error)}")
    return
  send(status="ok", text=f"error {worst:.1e}{eager}", error=worst)


def difference(results, expected):
  """The largest difference between tensors, divided by the largest number of the expected tensor.
  It is infinite if shapes, integers, or numbers that are not finite differ."""
  if [one.shape for one in results] != [other.shape for other in expected]:
    return math.inf
  largest = 0.0
  for one, other in zip(results, expected, strict=True):
    if not other.is_floating_point():
      if not torch.equal(one.to(other), other):
        return math.inf
      continue
    if not other.numel():
      continue
    one, other = one.to(other).double(), other.double()
    scale = other[other.isfinite()].abs()
    scale = scale.max().item() if scale.numel() else 0.0
    error = (one - other).abs().masked_fill(one == other, 0.0).max().item() / (scale or 1.0)
    if not math.isfinite(error):
      return math.inf
    largest = max(largest, error)
  return largest


def denominator(collection, name, options, folder, send):
  """Compiles and calls a model by torch.export and Inductor without Husk."""
  model = make(collection, name)
  module, inputs = model.module, model.inputs
  if torch.cuda.is_available():
    if model.half:
      module, inputs = module.half(), halved(inputs)
    module, inputs = module.cuda(), tuple(tensor.cuda() for tensor in inputs)
  # Sizes that depend on data are no reason to exclude a model.
  torch._dynamo.config.capture_dynamic_output_shape_ops = True
  torch._dynamo.config.capture_scalar_outputs = True
  step = "torch.export"
  try:
    exported = torch.export.export(module, inputs, strict=False)
    step = "Inductor"
    torch.compile(exported.module(), fullgraph=True)(*inputs)
    if torch.cuda.is_available():
      torch.cuda.synchronize()
  except Exception as error:
    raise Inapplicable(f"{step}: {first_line(error)}") from error
  send(status="ok", text="")


STEPS = {"export": export, "denominator": denominator}


def work(pipe, collection, name, step, options, folder):
  """The process of a step. It sends dicts; the last one has a `status`."""
  os.setpgid(0, 0)  # the processes that it starts are ended with it
  with open(folder / "log", "w") as log:
    os.dup2(log.fileno(), 1)
    os.dup2(log.fileno(), 2)
  os.environ.update(TORCHINDUCTOR_CACHE_DIR=str(folder / "inductor"), TMPDIR=str(folder))
  tempfile.tempdir = None
  warnings.simplefilter("ignore")
  logging.disable(logging.ERROR)
  torch.backends.cudnn.allow_tf32 = False  # that of products is off by default

  def send(**found):
    pipe.send(found)

  send()  # the limit begins here
  try:
    with torch.no_grad():
      STEPS[step](collection, name, options, folder, send)
  except Inapplicable as error:
    send(status="not applicable", text=str(error))
  except Exception as error:
    send(status="crashed", text=first_line(error))


# Processes


class Attempt:
  """A process that does a step for a model."""

  def __init__(self, context, collection, name, step, options):
    self.name, self.step, self.limit = name, step, options.limit
    self.found = {}
    self.begin = time.monotonic()
    self.folder = tempfile.TemporaryDirectory(prefix="husk-zoo-", ignore_cleanup_errors=True)
    self.pipe, other = context.Pipe(duplex=False)
    self.process = context.Process(
      target=work,
      args=(other, collection, name, step, options, pathlib.Path(self.folder.name)),
    )
    self.process.start()
    other.close()

  def done(self):
    """Takes what the process has sent. Returns whether the step has a status."""
    ended = not self.process.is_alive()
    try:
      while self.pipe.poll():
        sent = self.pipe.recv()
        if not sent:
          self.begin = time.monotonic()
        self.found.update(sent)
    except (EOFError, OSError):
      self.process.join(10)
      ended = True
    if ended and "status" not in self.found:
      code = self.process.exitcode
      self.found.update(status="crashed", text=f"the process ended with {code}: {self.said()}")
    if "status" not in self.found and time.monotonic() - self.begin > self.limit:
      self.found.update(status="late", text=f"no result after {self.limit:g} s: {self.said()}")
    return "status" in self.found

  def said(self):
    """The last line that the process has printed."""
    try:
      lines = (pathlib.Path(self.folder.name) / "log").read_text(errors="replace").split("\n")
    except OSError:
      return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")

  def stop(self):
    with contextlib.suppress(ProcessLookupError):
      os.killpg(self.process.pid, signal.SIGKILL)
    self.process.kill()
    self.process.join()
    self.pipe.close()
    self.folder.cleanup()


def attempts(models, options):
  """Yields the name, the step and the findings of each step that ends. A caller appends to the
  queue `models` of collections, names and steps what is to be done next."""
  context = multiprocessing.get_context("spawn")
  running = []
  try:
    while models or running:
      while models and len(running) < options.jobs:
        running.append(Attempt(context, *models.popleft(), options))
      multiprocessing.connection.wait([one.pipe for one in running], timeout=0.5)
      for one in [one for one in running if one.done()]:
        one.stop()
        running.remove(one)
        yield one.name, one.step, one.found
  finally:
    for one in running:
      one.stop()


# Results


def include(record, step, found):
  """Adds the findings of a step to the record of a model."""
  if step == "export":
    record.update(found)
    return
  status, reason = found["status"], found["text"]
  if status == "crashed":
    status, reason = "not applicable", f"PyTorch alone: {reason}"
  record["denominator"] = {"status": status, "text": reason}
  if "status" not in record:  # --denominator-only
    record.update(status="applicable" if status == "ok" else status, text=reason)
  elif status == "not applicable" and not record.get("exported"):
    record["export"] = {"status": record["status"], "text": record["text"]}
    record.update(status=status, text=reason)
  elif status == "late":
    record["text"] += " (PyTorch alone is late too)"


def line_of(record):
  parts = [record["status"]]
  if "seconds" in record:
    parts.append(f"exported in {record['seconds']:g} s")
  if record["text"]:
    parts.append(" ".join(record["text"].split())[:300])
  if record.get("host"):
    parts.append(f"on the host: {', '.join(record['host'])}")
  return ", ".join(parts)


def summary(records):
  """The numbers of results in the records of a collection."""
  counts = collections.Counter(record["status"] for record in records)
  applicable = len(records) - counts["not applicable"]
  return {
    "models": len(records),
    "applicable": applicable,
    "percent": round(100 * counts["ok"] / applicable, 1) if applicable else None,
    "on the host": sum(record["status"] == "ok" and bool(record.get("host")) for record in records),
    "results": {result: counts[result] for result in RESULTS if counts[result]},
  }


def summary_line(collection, numbers, options):
  counts = ", ".join(f"{count} {result}" for result, count in numbers["results"].items())
  text = f"{collection}: {numbers['models']} models, {counts}"
  if options.denominator_only or numbers["percent"] is None:
    return f"{text}; {numbers['applicable']} count as applicable"
  return (
    f"{text}; {numbers['percent']} % of {numbers['applicable']} applicable models are ok, "
    f"{numbers['on the host']} of them with steps on the host"
  )


def versions():
  found = {}
  for package in ("torch", "triton", *COLLECTIONS):
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
      found[package] = importlib.metadata.version(package)
  return found


def save(path, records, options):
  """Writes the results; the file is a whole one at any time."""
  done = {name: record for name, record in records.items() if "status" in record}
  content = {
    "target": options.target,
    "versions": versions(),
    "summary": {
      collection: summary([one for one in done.values() if one["collection"] == collection])
      for collection in options.collection
    },
    "excluded": {
      name: record["text"] for name, record in done.items() if record["status"] == "not applicable"
    },
    "models": done,
  }
  pathlib.Path(f"{path}.part").write_text(json.dumps(content, indent=1) + "\n")
  os.replace(f"{path}.part", path)


def selected(options):
  """The collection of each model, by the name of the model."""
  found = {}
  for collection in options.collection:
    try:
      importlib.metadata.version(collection)
    except importlib.metadata.PackageNotFoundError:
      raise SystemExit(f"{collection} is not installed: give another --collection") from None
    names = zoo_models.names(collection)
    found.update(dict.fromkeys(names, collection))
  if not options.names:
    return found
  unknown = sorted(set(options.names) - set(found))
  if unknown:
    raise SystemExit(f"no collection has the models {', '.join(unknown)}")
  return {name: found[name] for name in options.names}


def main():
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument("names", nargs="*", metavar="NAME", help="these models only")
  parser.add_argument(
    "--collection", action="append", choices=COLLECTIONS, help="may be repeated; default: both"
  )
  parser.add_argument("--target", default="cuda:h100", help="as for husk.export")
  parser.add_argument("--limit", type=float, default=120, help="seconds for a step of a model")
  parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
  parser.add_argument("--json", metavar="FILE", help="a file for the results")
  parser.add_argument("--no-run", action="store_true", help="only export, on any machine")
  parser.add_argument(
    "--denominator-only", action="store_true", help="only find out which models are applicable"
  )
  parser.add_argument(
    "--all-denominators", action="store_true", help="compile all models without Husk, too"
  )
  options = parser.parse_intermixed_args()
  options.collection = options.collection or list(COLLECTIONS)
  os.environ.update(ENVIRONMENT)
  signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the processes are ended then, too
  chosen = selected(options)
  records = {name: {"collection": collection} for name, collection in chosen.items()}
  first = "denominator" if options.denominator_only else "export"
  waiting = collections.deque((collection, name, first) for name, collection in chosen.items())
  start, count = time.monotonic(), 0
  for name, step, found in attempts(waiting, options):
    record = records[name]
    include(record, step, found)
    if step == "export" and found["status"] != "not applicable":
      if options.all_denominators or not found.get("exported"):
        waiting.appendleft((record["collection"], name, "denominator"))
        continue
    count += 1
    seconds = time.monotonic() - start
    print(
      f"{seconds:4.0f} s {count}/{len(chosen)} {record['collection']} {name}: {line_of(record)}",
      flush=True,
    )
    if options.json:
      save(options.json, records, options)
  for collection in options.collection:
    some = [record for record in records.values() if record["collection"] == collection]
    if some:
      print(summary_line(collection, summary(some), options))


if __name__ == "__main__":
  main()
