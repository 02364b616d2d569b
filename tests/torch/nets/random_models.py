"""Random models of operators of PyTorch's database, exported and compared with eager mode at sizes
that the export did not see.

  python tests/torch/nets/random_models.py --seconds 3600 [--seed 0]
  python tests/torch/nets/random_models.py --seconds 3600 --target fake
  python tests/torch/nets/random_models.py --programs 200 --target pack DIR
  python tests/torch/nets/random_models.py --target check DIR
  python tests/torch/nets/random_models.py --only SEED       one model, its text, the reduced one
  python tests/torch/nets/random_models.py --summary LOG...  the sum of what --log LOG wrote

The target `host` runs artifacts by husk.load, `fake` runs the kernels of a CUDA variant by
Triton's interpreter. `pack` exports artifacts for a GPU into a folder, beside the inputs and the
results of eager mode; `check` runs that folder on a machine with the GPU, and needs neither the
seeds nor huskc there.

A model is a list of nodes that random_programs.py makes from a seed. A run prints each find with
its seed and the smallest model that still shows it, and at the end how many programs ran, how many
distinct pairs of operators they had, of which one feeds the other, what was refused by which words,
and what was found. What torch.export refuses is counted apart. Runs that write to a log each can
run at the same time, and on several machines; net_log.py sums them."""

import argparse
import contextlib
import functools
import logging
import os
import pathlib
import pickle
import re
import select
import signal
import sys
import tempfile
import time
import warnings

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "helpers"), str(HERE.parents[2] / "compiler" / "torch")]

import random_programs  # noqa: E402
import torch  # noqa: E402
from net_log import FINDS, Log, summary, words  # noqa: E402
from random_programs import Rejected  # noqa: E402
from torch._inductor.runtime.cache_dir_utils import cache_dir  # noqa: E402


def outcome(program, target, folder):
  """The result of a program, and a text about it. The results are: equal; rejected (the generator's
  own limits); torch.export (which refuses the model, or exports it wrong); refused (by Husk, with a
  reason); narrowed (Husk refuses a size that torch.export allows); wrong; failed (an error of a
  run); crashed (another error of the export)."""
  import husk

  try:
    exported = program.exported()
    runs = program.runs(exported)
  except Rejected as error:
    return "rejected", str(error)
  except Exception as error:
    return "torch.export", f"{type(error).__name__}: {error}"
  if len(runs) < 2:
    return "torch.export", "no other size is allowed"
  try:
    wanted = program.expected(runs)
  except Rejected as error:
    return "rejected", str(error)
  try:
    results = TARGETS[target](exported, program, runs, folder)
  except husk.Unsupported as error:
    return "refused", str(error)
  except husk.CompileError as error:
    return "crashed", f"CompileError: {error}"
  except Rejected as error:
    return "rejected", str(error)
  except Narrowed as error:
    return "narrowed", str(error)
  except RunFailed as error:
    return "failed", str(error)
  except Exception as error:
    return "crashed", f"{type(error).__name__}: {error}"
  for number, (outputs, expected) in enumerate(zip(results, wanted, strict=True)):
    if text := random_programs.difference(outputs, expected):
      return "wrong", f"sizes {program.sizes[runs[number]]}: {text}"
  return "equal", f"{len(runs)} sizes"


class Narrowed(Exception):
  pass


class RunFailed(Exception):
  pass


def on_host(exported, program, runs, folder, isa="host"):
  import husk

  artifact = folder / "model.husk"
  husk.export(exported, program.inputs(0), artifact, targets=(isa,), progress=False)
  loaded, results = husk.load(artifact), []
  for number in runs:
    sizes = f"sizes {program.sizes[number]}"
    try:
      results += session_results(loaded, [program.inputs(number)], sorted(program.written))
    except husk.InvalidInputError as error:
      raise Narrowed(f"{sizes}: {error}") from None
    except husk.Error as error:
      raise RunFailed(f"{sizes}: {type(error).__name__}: {error}") from None
  return results


def on_fake(exported, program, runs, folder):
  from cuda_numerics import computed

  named_inputs = [
    {f"tensors_{n}": x for n, x in enumerate(program.inputs(number))} for number in runs
  ]
  try:
    results = computed(exported, program.inputs(0), None, named_inputs, folder)
  except AssertionError as error:
    if re.search(r"libdevice.*has no attribute", str(error), re.S):  # CUDA's own functions
      raise Rejected("the interpreter lacks a function of libdevice") from None
    raise
  return [[*one.values()] for one in results]


def pack(program, folder, target):
  """Writes the artifact of a program for a GPU, its inputs and what eager mode makes of them."""
  import husk

  exported = program.exported()
  runs = program.runs(exported)
  if len(runs) < 2:
    return "torch.export", "no other size is allowed"
  path = folder / f"{program.seed}.husk"
  try:
    with torch.backends.cudnn.flags(allow_tf32=False):  # the expected results are those of a CPU
      husk.export(exported, program.inputs(0), path, targets=(target,), progress=False)
  except husk.Unsupported as error:
    return "refused", str(error)
  inputs, written = [program.inputs(number) for number in runs], sorted(program.written)
  kept = (program, inputs, written, program.expected(runs))
  try:
    torch.save(kept, path.with_suffix(".pt.part"))
  except Exception as error:
    path.unlink()
    return "rejected", f"the program cannot be saved: {error}"
  os.replace(path.with_suffix(".pt.part"), path.with_suffix(".pt"))
  return "equal", f"{len(runs)} sizes"


def check(folder, log):
  """Runs what `pack` has written, and logs whether the results are right."""
  import husk

  saved = [path for path in folder.glob("*.husk") if path.with_suffix(".pt").exists()]
  for path in sorted(saved, key=lambda path: int(path.stem)):
    program, inputs, written, expected = torch.load(path.with_suffix(".pt"), weights_only=False)

    def function(path=path, inputs=inputs, written=written, expected=expected):
      try:
        results = session_results(husk.load(path, device="cuda"), inputs, written, "cuda")
      except Exception as error:
        return "failed", f"{type(error).__name__}: {error}"
      for number, (outputs, wanted) in enumerate(zip(results, expected, strict=True)):
        if wrong := random_programs.difference(outputs, wanted):
          return "wrong", f"run {number}: {wrong}"
      return "equal", ""

    result, reason = in_a_child(function, 120)
    log.add("check", int(path.stem), result, reason, program)
    if result != "equal":
      print(f"{path.stem}: {result}: {' '.join(reason.split())[:600]}", flush=True)
      print(program.text(), flush=True)


def session_results(program, inputs, written, device="cpu"):
  """The results of runs of a program one after the other, each followed by the inputs that it
  writes."""
  results = []
  for arguments in inputs:
    arguments = [tensor.to(device) for tensor in arguments]
    outputs = program(*arguments)
    outputs = outputs if isinstance(outputs, (tuple, list)) else (outputs,)
    tensors = [one if isinstance(one, torch.Tensor) else torch.from_dlpack(one) for one in outputs]
    results.append([one.cpu().clone() for one in [*tensors, *(arguments[n] for n in written)]])
  return results


TARGETS = {"host": on_host, "fake": on_fake}


def without_a_gpu():
  """Lets torch take a machine for one without a GPU, which no export needs. The driver's calls fail
  in the children of a process that has asked it for GPUs. torch's fake mode asks it, in C++
  (`_ensureCUDADeviceGuardSet`), if Python knows of none. So the driver is told to show none."""
  import torch

  os.environ["CUDA_VISIBLE_DEVICES"] = ""  # read by the driver when it is first asked
  torch.cuda.is_available = lambda: False
  torch.cuda.device_count = lambda: 0
  torch._C._cuda_getDeviceCount = lambda: 0


@contextlib.contextmanager
def folder_of_a_child():
  """A folder for the temporary files of a child and of the compilers that it starts. It is removed
  afterwards, also if SIGTERM ends this process meanwhile. Inductor's caches stay where they are."""
  cache_dir()  # sets TORCHINDUCTOR_CACHE_DIR
  before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
  try:
    with tempfile.TemporaryDirectory(prefix="husk-net-", ignore_cleanup_errors=True) as folder:
      yield folder
  finally:
    signal.signal(signal.SIGTERM, before)


def in_a_child(function, seconds):
  """What a function returns in a child of this process, or how the child ends without it. Nothing
  that the child writes to the folder of temporary files stays."""
  with folder_of_a_child() as folder:
    return _in_a_child(function, seconds, folder)


def _in_a_child(function, seconds, folder):
  reader, writer = os.pipe()
  child = os.fork()
  if not child:
    os.setpgid(0, 0)
    os.close(reader)
    code = 1
    try:
      signal.signal(signal.SIGTERM, signal.SIG_DFL)
      tempfile.tempdir = os.environ["TMPDIR"] = folder
      torch.set_num_threads(1)  # a child would wait for the threads of this process, which it lacks
      null = os.open(os.devnull, os.O_WRONLY)
      os.dup2(null, 2)
      result = function()
      with os.fdopen(writer, "wb") as pipe:
        pickle.dump(result, pipe)
      code = 0
    finally:
      os._exit(code)
  os.close(writer)
  parts, end = [], time.monotonic() + seconds
  late = True
  try:
    with os.fdopen(reader, "rb", buffering=0) as pipe:
      while (left := end - time.monotonic()) > 0 and select.select([pipe], [], [], left)[0]:
        part = pipe.read(1 << 20)
        if not part:
          late = False
          break
        parts.append(part)
  finally:
    if late:  # or this process is about to end
      with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
  if late:
    return "late", f"no result after {seconds} s"
  if status or not parts:
    signalled = os.WIFSIGNALED(status) and signal.Signals(os.WTERMSIG(status)).name
    return "died", f"the process ended with {signalled or os.waitstatus_to_exitcode(status)}"
  return pickle.loads(b"".join(parts))


def isolated(program, options):
  """The outcome of a program in a child. The program may be a seed: then the child makes it, too,
  and what it returns has a third and a fourth member, the program and the samples that it took."""

  def function():
    if not isinstance(program, random_programs.Program):
      random_programs.taken.clear()
      random_program = random_programs.program_of(program)
      with tempfile.TemporaryDirectory(prefix="random-model-") as folder:
        try:
          if options.target[0] == "pack":
            result = pack(random_program, pathlib.Path(options.target[1]), options.gpu)
          else:
            result = outcome(random_program, options.target[0], pathlib.Path(folder))
        except Exception as error:
          result = "rejected", f"{type(error).__name__}: {error}"
      return *result, random_program, random_programs.taken
    return outcome(program, options.target[0], pathlib.Path(tempfile.mkdtemp()))

  return in_a_child(function, options.limit)


def made_in_a_child(seed):
  """The program of a seed, or none if making it ends the process: eager mode is at fault then."""
  found = in_a_child(lambda: random_programs.program_of(seed), 100)
  return found if isinstance(found, random_programs.Program) else None


def reduced(program, result, options):
  """The smallest program found with an equal outcome."""
  wanted = result[0], words(result[1])[:60]
  progress, end = True, time.monotonic() + options.reduce
  while progress:
    progress = False
    for smaller in program.smaller():
      if time.monotonic() > end:
        return program
      found = isolated(smaller, options)
      if found[0] == wanted[0] and (
        found[0] in ("wrong", "died", "late") or words(found[1])[:60] == wanted[1]
      ):
        program, progress = smaller, True
        break
  return program


def main():
  parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
  parser.add_argument("--seconds", type=float, default=600)
  parser.add_argument("--programs", type=int, default=10**9, help="at most so many programs")
  parser.add_argument("--seed", type=int, default=0, help="the first seed")
  parser.add_argument("--only", type=int, help="one seed")
  parser.add_argument("--target", nargs="+", default=["host"])
  parser.add_argument("--limit", type=float, default=600, help="seconds for a program")
  parser.add_argument("--reduce", type=float, default=240, help="seconds to reduce a find")
  parser.add_argument("--isa", default="host:avx2")
  parser.add_argument("--gpu", default="cuda:h200", help="the target that `pack` compiles for")
  parser.add_argument("--finds", help="a folder for the finds")
  parser.add_argument("--log", help="a file to which a line for each program is appended")
  parser.add_argument("--summary", nargs="+", metavar="LOG", help="sum what was written to logs")
  options = parser.parse_args()
  if options.summary:
    print(*summary(options.summary), sep="\n")
    return 0
  log = Log(options.log)
  TARGETS["host"] = functools.partial(on_host, isa=options.isa)
  warnings.simplefilter("ignore")
  logging.disable(logging.ERROR)
  torch.set_num_threads(1)
  if options.target[0] == "check":
    check(pathlib.Path(options.target[1]), log)
    print(*log.summary(), sep="\n")
    return 1 if log.finds else 0
  if options.target[0] == "pack":
    pathlib.Path(options.target[1]).mkdir(parents=True, exist_ok=True)
  import husk.exporter  # noqa: F401  # the children need not import it

  if options.target[0] == "fake":
    from cuda_numerics import interpreter

    interpreter()
  known, start, seed = {}, time.monotonic(), options.seed
  if options.only is not None:
    seed, options.programs = options.only, 1
  while time.monotonic() - start < options.seconds and log.counts.total() < options.programs:
    result, text, *rest = isolated(seed, options)
    program, taken = rest or (None, ())
    for each in taken:  # the next children need not make them again
      random_programs.samples(*each)
    if options.only is not None and program:
      print(program.text())
    if result in FINDS and not program:
      program = made_in_a_child(seed)
      result = result if program else "rejected"
    log.add(options.target[0], seed, result, text, program)
    if result in FINDS:
      print(
        f"{time.monotonic() - start:5.0f} s seed {seed}: {result}: {' '.join(text.split())[:600]}",
        flush=True,
      )
      key = result, words(text)[:60]
      if result != "late" and (result == "wrong" or key not in known):
        smallest = reduced(program, (result, text), options)
        print(smallest.text(), flush=True)
        if options.finds:
          pathlib.Path(options.finds).mkdir(parents=True, exist_ok=True)
          smallest.save(pathlib.Path(options.finds) / f"{seed}.pt")
      known.setdefault(key, seed)
    elif options.only is not None or result != "equal":
      print(f"seed {seed}: {result}: {' '.join(text.split())[:300]}", flush=True)
    seed += 1
    if log.counts.total() % 50 == 0:
      print(f"{time.monotonic() - start:.0f} s, next seed {seed}:", *log.summary(True), flush=True)
  print(f"{time.monotonic() - start:.0f} s, next seed {seed}:", *log.summary(), sep="\n")
  return 1 if log.finds else 0


if __name__ == "__main__":
  sys.exit(main())
