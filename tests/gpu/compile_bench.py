"""Times of torch.compile(backend="husk") on a GPU against Inductor's own wrappers.

  python tests/gpu/compile_bench.py [NAME...] [--device cuda:0]

prints a table for each measurement. A NAME is a part of the name of a measurement; without one all
are made. compile.py has the checks.
"""

import argparse
import copy
import gc
import os
import statistics
import subprocess
import sys
import tempfile
import time
import traceback

import husk
import torch
import torch._inductor.compile_fx  # is no part of a first call
from compile import APART, PROGRAMS, Gpt, chain, count_launches, stats
from husk.jit.backend import backend as husk_backend
from torch import nn
from torch._inductor.utils import fresh_cache

MEASUREMENTS = []


def measurement(function):
  """Makes a function of a device one of the measurements."""
  MEASUREMENTS.append(function)
  return function


def timed(sides, seconds=0.5, rounds=7):
  """The median over rounds of the microseconds of a call, by side. The rounds of the sides
  alternate. A call is followed by others without waiting, and a round ends when all are done."""
  counts, times = {}, {name: [] for name in sides}
  for name, call in sides.items():
    for _ in range(5):
      call()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    call()
    torch.cuda.synchronize()
    counts[name] = max(3, min(2000, int(seconds / rounds / (time.perf_counter() - begin))))
  for _ in range(rounds):
    for name, call in sides.items():
      torch.cuda.synchronize()
      begin = time.perf_counter()
      for _ in range(counts[name]):
        call()
      torch.cuda.synchronize()
      times[name].append((time.perf_counter() - begin) / counts[name] * 1e6)
  return {name: statistics.median(values) for name, values in times.items()}


def report(title, times, base):
  print(f"{title}")
  for name, value in times.items():
    ratios = ", ".join(f"{value / times[other]:.3f} x {other}" for other in times if other != name)
    print(f"  {name:24} {value:10.1f} us" + (f"   {ratios}" if name.startswith(base) else ""))


@measurement
def chain_of_kernels(device):
  x = torch.randn(4, 256, device=device)

  def side(backend, **options):
    call = torch.compile(
      eval("lambda x: chain(x)", {"chain": chain}), backend=backend, options={**APART, **options}
    )
    begin = time.perf_counter()
    with torch.no_grad():
      call(x)
    torch.cuda.synchronize()
    print(f"  {options}: compiled in {time.perf_counter() - begin:.1f} s", flush=True)
    return lambda: call(x)

  sides = {"eager": lambda: chain(x)}
  for name, args in {
    "husk list": (husk_backend, {"mode": "list"}),
    "husk graph": (husk_backend, {"mode": "graph"}),
    "husk auto": (husk_backend, {}),
    "inductor": ("inductor", {}),
    "graph trees": ("inductor", {"triton.cudagraphs": True}),
    "cpp_wrapper": ("inductor", {"cpp_wrapper": True}),
  }.items():
    try:
      sides[name] = side(args[0], **args[1])
    except Exception:
      print(f"  {name}: {traceback.format_exc()[-1500:]}")
  with torch.no_grad():
    report("chain of 100 kernels, 4 x 256", timed(sides), "husk")


@measurement
def new_shapes(device):
  sides = {
    "husk list": (husk_backend, {"mode": "list"}),
    "husk graph": (husk_backend, {"mode": "graph"}),
    "husk auto": (husk_backend, {}),
    "inductor": ("inductor", {}),
    "graph trees": ("inductor", {"triton.cudagraphs": True}),
  }
  calls, programs, found = {}, {}, {}
  for name, (backend, options) in sides.items():
    PROGRAMS.clear()
    calls[name] = torch.compile(
      eval("lambda x: chain(x)", {"chain": chain}),
      backend=backend,
      options={**APART, **options},
      dynamic=True,
    )
    for rows in range(2, 6):
      calls[name](torch.randn(rows * 4, 256, device=device))
    programs[name] = [*PROGRAMS]
    found[name] = []
  for rows in range(8, 40):
    x = torch.randn(rows * 4, 256, device=device)
    for name, call in calls.items():
      torch.cuda.synchronize()
      begin = time.perf_counter()
      call(x)
      torch.cuda.synchronize()
      found[name].append((time.perf_counter() - begin) * 1e6)
  for name in sides:
    if name.startswith("husk"):
      PROGRAMS[:] = programs[name]
      counts = stats()
      print(f"  {name}: {counts['runs_as_graph']} graphs, {counts['runs_as_list']} lists")
  times = {name: statistics.median(values) for name, values in found.items()}
  report("the same at a shape that is seen for the first time", times, "husk")


def inference(title, model, args, kinds):
  """Times of a model, and of its first call, with each of the kinds: by name the backend and what
  torch.compile gets."""
  sides, first = {}, {}
  with torch.no_grad():
    expected = model(*args)
    sides["eager"] = lambda: model(*args)
    for name, (backend, options) in kinds.items():
      torch._dynamo.reset()
      try:
        call = torch.compile(copy.deepcopy(model), backend=backend, **options)
        with fresh_cache():
          begin = time.perf_counter()
          result = call(*args)
          torch.cuda.synchronize()
          first[name] = (time.perf_counter() - begin) * 1e6
        error = (result.float() - expected.float()).abs().max().item()
        print(f"  {name}: largest difference from eager {error:.4f}", flush=True)
        sides[name] = lambda call=call: call(*args)
      except Exception:
        print(f"  {name}: {traceback.format_exc()[-1500:]}")
    report(f"{title}: first call", first, "husk")
    report(f"{title}: inference", timed(sides), "husk")


# What torch.compile gets for the kinds of runs that are compared.
PLAIN = {
  "husk": (husk_backend, {}),
  "husk graph": (husk_backend, {"options": {"mode": "graph"}}),
  "inductor": ("inductor", {}),
  "graph trees": ("inductor", {"options": {"triton.cudagraphs": True}}),
}
TUNED = {
  "husk max-autotune": (husk_backend, {"mode": "max-autotune"}),
  "inductor max-autotune": ("inductor", {"mode": "max-autotune"}),
}


def gpt_and_ids(device):
  torch.manual_seed(0)
  model = Gpt().to(device).half().eval()
  return model, (torch.randint(0, 50257, (1, 128), device=device),)


@measurement
def gpt(device):
  inference("GPT-2 small in fp16, 1 x 128", *gpt_and_ids(device), PLAIN)


@measurement
def gpt_tuned(device):
  inference("GPT-2 small in fp16, 1 x 128, tuned", *gpt_and_ids(device), TUNED)


@measurement
def resnet(device):
  from torchvision.models import resnet50

  torch.manual_seed(0)
  model = resnet50().to(device).half().eval().to(memory_format=torch.channels_last)
  image = torch.randn(1, 3, 224, 224, device=device).half()
  image = image.to(memory_format=torch.channels_last)
  inference("ResNet-50 in fp16, 1 image", model, (image,), PLAIN)


PROCESS = """
import sys, time
import torch
sys.path.insert(0, FOLDER)
import compile
BACKEND, OPTIONS = SIDE
backend = compile.husk_backend if BACKEND == "husk" else BACKEND
torch.manual_seed(0)
model = compile.Gpt().to(DEVICE).half().eval()
ids = torch.randint(0, 50257, (1, 128), device=DEVICE)
torch.cuda.synchronize()
# torch.compile imports Inductor for Inductor's own backend, and Husk's first call does for Husk.
compiling = time.perf_counter()
call = torch.compile(model, backend=backend, options=OPTIONS)
with torch.no_grad():
  call(ids)
  torch.cuda.synchronize()
print(time.perf_counter() - compiling)
"""


@measurement
def processes(device):
  """The first call in a process with empty caches, and in the one after it."""
  cold, second = {}, {}
  for name, side in {
    "husk": ("husk", {}),
    "inductor": ("inductor", {}),
    "cpp_wrapper": ("inductor", {"cpp_wrapper": True}),
  }.items():
    text = PROCESS.replace("FOLDER", repr(os.path.dirname(os.path.abspath(__file__))))
    text = text.replace("SIDE", repr(side)).replace("DEVICE", repr(device))
    with tempfile.TemporaryDirectory() as folder:
      environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": folder}
      for times in (cold, second):
        run = subprocess.run(
          [sys.executable, "-c", text], env=environment, capture_output=True, text=True, check=False
        )
        if run.returncode != 0:
          print(f"  {name}: {run.stderr[-1500:]}")
          break
        times[name] = float(run.stdout.split()[-1]) * 1e6
        print(f"  {name}: {times[name] / 1e6:.1f} s", flush=True)
  report("GPT-2 small in fp16, 1 x 128, first call with empty caches", cold, "husk")
  report("the same in the process after it", second, "husk")


def training_step(title, make, inputs, loss_of, device):
  """Times and memory of a step of training, AdamW and fp16 autocast, by side."""
  sides, peaks = {}, {}
  for name, (backend, options) in {
    "eager": (None, {}),
    "inductor": ("inductor", {}),
    "cpp_wrapper": ("inductor", {"cpp_wrapper": True}),
    "husk": (husk_backend, {}),
    "husk graph": (husk_backend, {"mode": "graph"}),
  }.items():
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = make().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    run = torch.compile(model, backend=backend, options=options) if backend else model

    def step(run=run, optimizer=optimizer):
      with torch.autocast("cuda", dtype=torch.float16):
        loss = loss_of(run(inputs))
      loss.backward()
      optimizer.step()
      optimizer.zero_grad()
      return loss

    try:
      begin = time.perf_counter()
      with fresh_cache():  # the C++ wrapper does not take kernels that another side has compiled
        losses = [step().item() for _ in range(3)]
      print(f"  {name}: {time.perf_counter() - begin:.1f} s, losses {losses}", flush=True)
      peaks[name] = peak_of(step)
      sides[name] = step
    except Exception:
      print(f"  {name}: {traceback.format_exc()[-1500:]}")
  report(title, timed(sides, 1.0), "husk")
  for side in ("husk", "husk graph"):
    print_peaks("above the start of a step", peaks, side)


def peak_of(call):
  """The most bytes of torch's allocator during a call, above those before it."""
  gc.collect()
  torch.cuda.synchronize()
  torch.cuda.reset_peak_memory_stats()
  base = torch.cuda.memory_allocated()
  call()
  torch.cuda.synchronize()
  return torch.cuda.max_memory_allocated() - base


def print_peaks(what, peaks, side="husk"):
  own = peaks.get(side, 0)
  print(
    f"  peak {what}, in brackets that of {side} divided by it: "
    + ", ".join(f"{name} {p >> 20} MiB ({own / p:.3f})" for name, p in peaks.items() if p)
  )


@measurement
def training(device):
  ids, targets = torch.randint(0, 50257, (2, 4, 256), device=device)
  training_step(
    "GPT-2 small, a step of training, fp16 autocast, 4 x 256",
    Gpt,
    ids,
    lambda result: nn.functional.cross_entropy(result.flatten(0, 1), targets.flatten()),
    device,
  )


@measurement
def resnet_training(device):
  from torchvision.models import resnet50

  images = torch.randn(16, 3, 224, 224, device=device).to(memory_format=torch.channels_last)
  targets = torch.randint(0, 1000, (16,), device=device)
  training_step(
    "ResNet-50, a step of training, fp16 autocast, 16 images",
    lambda: resnet50().to(memory_format=torch.channels_last),
    images,
    lambda result: nn.functional.cross_entropy(result, targets),
    device,
  )


SHAPES = """
import sys
import torch
sys.path.insert(0, FOLDER)
import compile
import compile_bench
BACKEND, OPTIONS = SIDE
torch.manual_seed(0)
torch._dynamo.config.recompile_limit = 16
model = compile.Gpt().to(DEVICE).half().eval()
backend = compile.husk_backend if BACKEND == "husk" else BACKEND
run = torch.compile(model, backend=backend, options=OPTIONS, dynamic=False)

def ten():
  for rows in range(1, 11):
    ids = torch.randint(0, 50257, (rows, 128), device=DEVICE)
    for _ in range(3):
      run(ids)

with torch.no_grad():
  before = torch.cuda.memory_reserved()
  print(compile_bench.peak_of(ten), torch.cuda.max_memory_reserved() - before)
"""


@measurement
def memory_of_shapes(device):
  """The most memory while ten shapes are compiled, each for itself, and run three times. What a
  side keeps after that counts: the peak is above what was held before the first shape. Each side
  has a process of its own, and they run at the same time."""
  text = SHAPES.replace("FOLDER", repr(os.path.dirname(os.path.abspath(__file__))))
  text = text.replace("DEVICE", repr(device))
  running, peaks, held = {}, {}, {}
  with tempfile.TemporaryDirectory() as folder:
    for name, side in {
      "inductor": ("inductor", {}),
      "graph trees": ("inductor", {"triton.cudagraphs": True}),
      "husk": ("husk", {}),
      "husk graph": ("husk", {"mode": "graph"}),
    }.items():
      own = {"TORCHINDUCTOR_CACHE_DIR": f"{folder}/{name}", "TORCHINDUCTOR_COMPILE_THREADS": "4"}
      running[name] = subprocess.Popen(
        [sys.executable, "-c", text.replace("SIDE", repr(side))],
        env={**os.environ, **own},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
      )
    for name, process in running.items():
      out, error = process.communicate()
      if process.returncode != 0:
        print(f"  {name}: {error[-1500:]}")
        continue
      peaks[name], held[name] = map(int, out.split()[-2:])
  print("GPT-2 small in fp16, ten shapes of 1 to 10 x 128, each compiled for itself")
  for side in ("husk", "husk graph"):
    print_peaks("of allocated memory", peaks, side)
    print_peaks("of reserved memory", held, side)


def main():
  arguments = argparse.ArgumentParser(description=__doc__)
  arguments.add_argument("names", nargs="*")
  arguments.add_argument("--device", default="cuda:0")
  options = arguments.parse_args()
  print(f"Python {sys.version.split()[0]}, torch {torch.__version__}, husk {husk.__version__}")
  count_launches()
  failed = 0
  for function in MEASUREMENTS:
    if options.names and not any(one in function.__name__ for one in options.names):
      continue
    torch._dynamo.reset()
    PROGRAMS.clear()
    try:
      function(options.device)
    except Exception:
      failed += 1
      print(f"FAILED  {function.__name__}\n{traceback.format_exc()[-3500:]}", flush=True)
  return failed != 0


if __name__ == "__main__":
  sys.exit(main())
