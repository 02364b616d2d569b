"""Kernels that records choose, against kernels that an export measures.

  python tests/gpu/tuned.py export DIR [--target cuda:h200] [--jobs 4] [--tuners 1]
                                       [--only records] [--records FILE] [MODEL...]
  python tests/gpu/tuned.py run DIR [--jobs 4] [MODEL...]

`export` writes DIR/MODEL.BATCH.records.husk with tune="heuristic", which needs no GPU, and
DIR/MODEL.BATCH.max.husk with tune="max", which needs the target. So many jobs export the first ones
at a time, and so many tuners the second ones. What is measured is wrong if the launches of a kernel
wait for a CPU. So each tuner has CPUs of its own, the jobs share the others, and one tuner at a
time measures. `run` compares both with eager mode, and measures them as graphs, in turns in one
process. The ratio is the time by records divided by that by measuring. It may be 1.15.

The models are those of image_models.py, and BERT-base with 128 tokens and ViT-B/16 of
transformers_models.py, for 1 and 8 inputs. A MODEL is a name, or one with a number as resnet50.8.
Each artifact is for one size of its input.
"""

import argparse
import concurrent.futures
import multiprocessing
import os
import pathlib
import sys
import time

import image_models
import torch
import transformers_models

MODELS = (*image_models.MODELS, "bert", "vit")
BATCHES = (1, 8)
WAYS = {"records": "heuristic", "max": "max"}
MOST = 1.15


def model(name, batch):
  """A model and its inputs in fp32."""
  if name not in transformers_models.MODELS:
    return image_models.model(name), (image_models.image(batch, name),)
  image_models.hide_folder()
  network, _, cases = transformers_models.make(name, False)
  return network.float(), as_dtype(next(x for x in cases if len(x[0]) == batch), torch.float32)


def as_dtype(inputs, dtype):
  return tuple(x.to(dtype) if x.is_floating_point() else x for x in inputs)


def path_of(folder, name, batch, way):
  return pathlib.Path(folder) / f"{name}.{batch}.{way}.husk"


def initialize(cpus, alone=None):
  """Gives a process CPUs. It measures kernels while it holds the lock `alone`."""
  os.sched_setaffinity(0, cpus.get())
  if alone is None:
    return
  from husk.cuda import products, tuning

  def milliseconds(*args, **kwargs):
    with alone:
      return tuning.milliseconds(*args, **kwargs)

  products.milliseconds = milliseconds


def pool(processes, cpus, *arguments):
  """Processes that have these CPUs, a list for each of them."""
  context = multiprocessing.get_context("spawn")
  waiting = context.Queue()
  for each in cpus:
    waiting.put(each)
  return concurrent.futures.ProcessPoolExecutor(
    processes, context, initializer=initialize, initargs=(waiting, *arguments)
  )


def export(name, batch, way, options):
  import husk

  begin = time.perf_counter()
  network, inputs = model(name, batch)
  path = path_of(options.folder, name, batch, way)
  husk.export(
    network.half(),
    as_dtype(inputs, torch.float16),
    path,
    targets=[options.target],
    tune=WAYS[way],
    records=options.records,
  )
  found = husk.inspect(path).metadata
  texts = [text for key, text in found.items() if key.startswith("husk.tuned.")]
  return f"{path.name}: {time.perf_counter() - begin:.0f} s, {'; '.join(texts)}"


def export_all(cases, options):
  """Writes all artifacts. Returns the number of those that failed."""
  cpus, failed = sorted(os.sched_getaffinity(0)), 0
  size = max(1, len(cpus) // (options.tuners + 1))
  parts = [cpus[size * i : size * (i + 1)] or cpus for i in range(options.tuners)]
  others = cpus[size * options.tuners :] or cpus
  alone = multiprocessing.get_context("spawn").Lock()
  pools = {
    "records": pool(options.jobs, [others] * options.jobs),
    "max": pool(options.tuners, parts, alone),
  }
  futures = {
    pools[way].submit(export, name, batch, way, options): f"{name}.{batch}.{way}"
    for name, batch in cases
    for way in options.only or WAYS
  }
  for result in concurrent.futures.as_completed(futures):
    error = result.exception()
    failed += error is not None
    text = f"FAILED  {futures[result]}: {error!r}" if error else result.result()
    print(text, flush=True)
  for each in pools.values():
    each.shutdown()
  return failed


def prepare(name, folder, batch):
  """Compares both artifacts with eager mode. Returns what is to be measured."""
  import husk

  torch.backends.cudnn.allow_tf32 = False  # products in fp32 have it off by default
  network, inputs = model(name, batch)
  network, inputs = network.cuda(), tuple(x.cuda() for x in inputs)
  expected = listed(network(*inputs))
  small = as_dtype(inputs, torch.float16)
  eager = listed(network.half()(*small))
  sides = {}
  for way in WAYS:
    program = husk.load(path_of(folder, name, batch, way), device="cuda")
    session = program.session(mode="graph")
    for number, one in enumerate(zip(listed(session(*small)), eager, expected, strict=True)):
      image_models.compare(f"{name}.{batch}.{way}, result {number}", *one)
    sides[way] = lambda session=session: session(*small)
  return sides


def listed(result):
  return [result] if isinstance(result, torch.Tensor) else list(result)


def show(name, batch, times):
  ratio = times["records"] / times["max"]
  line = f"| {name}, {batch} | {times['records']:.1f} | {times['max']:.1f} | {ratio:.3f} |"
  print(line + ("" if ratio <= MOST else f" above {MOST}"))


def main():
  arguments = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  arguments.add_argument("command", choices=("export", "run"))
  arguments.add_argument("folder", type=pathlib.Path)
  arguments.add_argument("names", nargs="*", metavar="MODEL")
  arguments.add_argument("--target", default="cuda:h200")
  arguments.add_argument("--jobs", type=int, default=4)
  arguments.add_argument("--tuners", type=int, default=1)
  arguments.add_argument("--only", action="append", choices=tuple(WAYS), help="export one of both")
  arguments.add_argument("--records", action="append", default=[], help="as for husk.export")
  options = arguments.parse_intermixed_args()
  cases = []
  for word in options.names or MODELS:
    name, _, batch = word.partition(".")
    cases += [(name, int(each)) for each in ([batch] if batch else BATCHES)]
  options.folder.mkdir(parents=True, exist_ok=True)
  if options.command == "export":
    return export_all(cases, options) != 0
  return image_models.run(cases, options.folder, options.jobs, prepare, show) != 0


if __name__ == "__main__":
  sys.exit(main())
