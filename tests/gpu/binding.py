"""husk.load on a GPU, with tensors of PyTorch, for the programs that tests/gpu/pack.sh made.

  python tests/gpu/binding.py pack DIR     writes DIR/dynamic.husk; needs huskc and no GPU
  python tests/gpu/binding.py check DIR [--device cpu]

DIR has model_{sum_of_two,mlp,branches,gpt}.husk, asserts_status.husk and dynamic.husk. `check`
prints a line for each check, and fails if one of them fails. With `--device cpu` it runs the checks
that need no GPU, with `--tool` those that hold under compute-sanitizer.
"""

import argparse
import asyncio
import contextlib
import gc
import mmap
import os
import pathlib
import subprocess
import sys
import threading
import time
import traceback

import husk
import torch
from husk import tools

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "examples"))

TOLERANCE = {"rtol": 2e-3, "atol": 2e-3}

# The first number of `count` says how many numbers of x are the output.
DYNAMIC = """hir 1
target cpu host "x86-64"
target gpu cuda "sm_80"
function forward {
  input x tensor f32 [1..100000]
  input count tensor i64 [1]
  output y tensor f32 rank 1
  variant cpu BODY
  variant gpu BODY
}
""".replace(
  "BODY",
  """{
    let n = size(x, 0)
    buffer x of input bytes mul(n, 4)
    buffer count of input bytes 8 align 8
    read i64 (read count)
    let u = result(0)
    buffer y of output bytes mul(u, 4)
    copy (write y[0, mul(u, 4)], read x[0, mul(u, 4)])
    return (tensor y f32 [u] [1])
  }""",
)

CHECKS = []


def check(needs_gpu=False, needs_quiet=False):
  """Makes a function of a Machine one of the checks. One that `needs_quiet` observes memory, times
  or what is asynchronous, which a tool such as compute-sanitizer changes."""

  def add(function):
    CHECKS.append((function, needs_gpu, needs_quiet))
    return function

  return add


class Machine:
  """The device and the programs."""

  def __init__(self, folder, device, tool):
    self.folder = folder
    self.turns = 5 if tool else 50  # of each thread
    self.device = torch.device(device)
    self.name = device
    # The port of the host has no graphs.
    self.modes = ("list", "graph", "auto") if self.device.type == "cuda" else ("list", "auto")

  def load(self, name, **options):
    return husk.load(self.folder / f"{name}.husk", device=self.name, **options)

  def model(self, name):
    import models

    return getattr(models, name)()[0].to(self.device)

  def random(self, *shape):
    return torch.randn(*shape, device=self.device)

  def synchronize(self):
    if self.device.type == "cuda":
      torch.cuda.synchronize()


@contextlib.contextmanager
def raises(kind, *texts):
  """The block must raise an exception of this kind whose text contains the texts."""
  try:
    yield
  except kind as error:
    for text in texts:
      assert text in str(error), f"{text!r} is not in {error}"
  else:
    raise AssertionError(f"no {kind.__name__} was raised")


def inputs(machine, name, size):
  """Inputs of a model, of one of four sizes."""
  if name == "sum_of_two":
    rows = (1, 7, 333, 1000)[size]
    return machine.random(rows, 5), machine.random(rows, 5)
  if name == "branches":
    rows = (2, 33, 100, 512)[size]
    return machine.random(rows, 48), machine.random(rows, 48), (1, 3, 2, 5)[size]
  if name == "mlp":
    return (machine.random((1, 5, 33, 64)[size], 32),)
  batch, length = ((1, 1), (1, 32), (3, 70), (8, 128))[size]
  return (torch.randint(0, 256, (batch, length), device=machine.device),)


@check()
def results_equal_eager(machine):
  for name in ("sum_of_two", "mlp", "branches", "gpt"):
    program = machine.load(f"model_{name}")
    for mode in machine.modes:
      session = program.session(mode=mode)
      model = machine.model(name)
      # Each size is new once, and then comes back at other addresses.
      for size in (0, 3, 1, 2, 2, 0, 3, 3):
        values = inputs(machine, name, size)
        with torch.no_grad():
          expected = model(*values)
        torch.testing.assert_close(session(*values), expected, **TOLERANCE)
      stats = session.stats(0)
      if machine.device.type == "cuda":
        assert (stats["runs_as_graph"] > 0) == (mode != "list"), (name, mode, stats)
        assert mode != "list" or stats["runs_as_list"] == 8, stats
      print(f"  {name}, {mode}: {stats['runs_as_graph']} graphs, {stats['runs_as_list']} lists")


@check()
def programs_from_bytes_and_mmap(machine):
  path = machine.folder / "model_sum_of_two.husk"
  x, y = inputs(machine, "sum_of_two", 1)
  with open(path, "rb") as file:
    mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
  for source in (path.read_bytes(), mapped):
    program = husk.load(source, device=machine.name)
    torch.testing.assert_close(program(x, y), (x + y).sum(), **TOLERANCE)
  print(f"  {program!r}")


@check(needs_gpu=True, needs_quiet=True)
def a_run_is_on_the_current_stream(machine):
  program, model = machine.load("model_gpt"), machine.model("gpt")
  tokens = inputs(machine, "gpt", 2)[0]
  with torch.no_grad():
    expected = model(tokens)
  for mode in machine.modes:
    session = program.session(mode=mode)
    session(tokens)
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
      late = torch.zeros_like(tokens)
      torch.cuda._sleep(400_000_000)  # a fifth of a second
      late.copy_(tokens)
      result = session(late)
      assert not stream.query(), f"{mode}: the call waited for the stream"
      doubled = result * 2
    stream.synchronize()
    torch.testing.assert_close(doubled, expected * 2, **TOLERANCE)

    # `stream=` takes another one, here as the number that PyTorch has for it.
    out = torch.full_like(expected, float("nan"))
    torch.cuda.synchronize()
    session(tokens, out=out, stream=stream.cuda_stream)
    stream.synchronize()
    torch.testing.assert_close(out, expected, **TOLERANCE)


@check(needs_gpu=True, needs_quiet=True)
def results_are_memory_of_pytorchs_allocator(machine):
  program = machine.load("model_gpt")
  tokens = inputs(machine, "gpt", 3)[0]
  program(tokens)
  torch.cuda.synchronize()
  before = torch.cuda.memory_allocated()
  result = program(tokens)
  grown = torch.cuda.memory_allocated() - before
  assert result.device == machine.device and result.is_contiguous()
  assert result.nbytes <= grown <= result.nbytes + 1024, (grown, result.nbytes)
  address = result.data_ptr()
  del result
  assert torch.cuda.memory_allocated() == before
  again = program(tokens)
  assert again.data_ptr() == address, "the allocator did not get the memory back"


@check()
def out_takes_the_callers_memory(machine):
  program, model = machine.load("model_mlp"), machine.model("mlp")
  x = inputs(machine, "mlp", 1)[0]
  with torch.no_grad():
    expected = model(x)["logits"]
  out = torch.empty(5, 10, device=machine.device)
  result = program(x, out={"logits": out, "calls": None})
  assert result["logits"] is out and result["calls"].item() == 1
  torch.testing.assert_close(out, expected, **TOLERANCE)
  with raises(husk.InvalidInputError, "logits"):
    program(x, out={"logits": torch.empty(6, 10, device=machine.device), "calls": None})
  with raises(husk.InvalidInputError, "logits"):
    program(x, out={"logits": out.double(), "calls": None})
  assert program(x)["calls"].item() == 2, "a refused run counted"


@check()
def sessions_have_their_own_state(machine):
  program = machine.load("model_mlp")
  x = inputs(machine, "mlp", 2)[0]
  one, two = program.session(), program.session()
  for calls in (1, 2, 3):
    assert one(x)["calls"].item() == calls
  assert two(x)["calls"].item() == 1
  assert list(one.state) == ["counter"] and one.state["counter"].torch().item() == 3
  two.state["counter"].copy_from(one.state["counter"])
  assert two(x)["calls"].item() == 4
  two.state["counter"].copy_from(torch.tensor(10, device=machine.device))
  assert two(x)["calls"].item() == 11
  two.state["counter"].reset()
  assert two(x)["calls"].item() == 1 and one(x)["calls"].item() == 4


@check()
def only_the_data_decides_the_size(machine):
  program = machine.load("dynamic")
  x = machine.random(50000)
  for n in (3, 40000, 0, 17, 50000):
    y = program(x, torch.tensor([n], device=machine.device))
    assert y.device == machine.device and y.shape == (n,)
    assert torch.equal(y, x[:n]), n
  kept = program(x, torch.tensor([100], device=machine.device))
  program(x + 1, torch.tensor([100], device=machine.device))
  assert torch.equal(kept, x[:100]), "a result changed in the next run"
  if machine.device.type == "cuda":
    stream = torch.cuda.Stream()
    for n in (20000, 5, 30000):
      count = torch.tensor([n], device=machine.device)
      torch.cuda.synchronize()
      assert torch.equal(program(x, count, stream=stream.cuda_stream), x[:n]), n


@check()
def a_wrong_call_says_what_is_wrong(machine):
  program = machine.load("model_sum_of_two")
  x, y = inputs(machine, "sum_of_two", 1)
  good = program(x, y)
  other = "cpu" if machine.device.type == "cuda" else "meta"
  if machine.device.type == "cuda":
    with raises(husk.InvalidInputError, "'y' lies on cpu", "runs on cuda:0", 'y.to("cuda:0")'):
      program(x, y.to(other))
    with raises(husk.InvalidInputError, "'x' lies on cpu", "copy it there"):
      program(x.cpu().numpy(), y)
    if torch.cuda.device_count() > 1:
      with raises(husk.InvalidInputError, "'x' lies on cuda:1"):
        program(x.to("cuda:1"), y)
    with raises(husk.Error, "99"):
      husk.load(machine.folder / "model_sum_of_two.husk", device="cuda:99")
    on_host = husk.load(machine.folder / "model_sum_of_two.husk")
    with raises(husk.InvalidInputError, "'x' lies on cuda:0", 'x.to("cpu")'):
      on_host(x, y)
    torch.testing.assert_close(on_host(x.cpu(), y.cpu()), good.cpu(), **TOLERANCE)
  with raises(husk.InvalidInputError, "'x'", "f64"):
    program(x.double(), y)
  with raises(husk.InvalidInputError, "'x'", "1..1024"):
    program(machine.random(2000, 5), machine.random(2000, 5))
  with raises(TypeError, "lacks"):
    program(x)
  # Rows that are not equal are a guard of the program.
  with raises(husk.Error, "size 0"):
    program(x, y[:2])
  torch.testing.assert_close(program(x, y), good)


@check()
def an_index_out_of_range_fails_the_run_alone(machine):
  program = machine.load("asserts_status")
  x = machine.random(50, 16)
  rows = torch.randint(0, 50, (37,), device=machine.device)
  for mode in machine.modes:
    session = program.session(mode=mode)
    assert torch.equal(session.embed(x, rows), x[rows])
    wrong = rows.clone()
    wrong[5] = 50
    with raises(husk.KernelError):
      session.embed(x, wrong)
      session.wait()
    assert torch.equal(session.embed(x, rows), x[rows])
    session.wait()


@check()
def threads_run_at_the_same_time(machine):
  program, model = machine.load("model_gpt"), machine.model("gpt")
  values = [inputs(machine, "gpt", size)[0] for size in range(4)]
  with torch.no_grad():
    expected = [model(value) for value in values]
  machine.synchronize()
  failures = []

  def work(value, wanted):
    try:
      stream = torch.cuda.Stream() if machine.device.type == "cuda" else None
      with torch.cuda.stream(stream):
        for _ in range(machine.turns):
          torch.testing.assert_close(program(value), wanted, **TOLERANCE)
    except BaseException:
      failures.append(traceback.format_exc())

  threads = [
    threading.Thread(target=work, args=pair) for pair in zip(values, expected, strict=True)
  ]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  assert not failures, failures[0]

  async def gathered():
    return await asyncio.gather(*(program.run_async(value) for value in values))

  for result, wanted in zip(asyncio.run(gathered()), expected, strict=True):
    torch.testing.assert_close(result, wanted, **TOLERANCE)


def memory(machine):
  """Bytes of this process on the host, of PyTorch on the device, and of all on the device."""
  gc.collect()
  machine.synchronize()
  pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
  host = pages * os.sysconf("SC_PAGE_SIZE")
  if machine.device.type == "cpu":
    return host, 0, 0
  free, total = torch.cuda.mem_get_info()
  return host, torch.cuda.memory_allocated(), total - free


def expect_flat(what, before, after):
  host, allocated, device = (b - a for a, b in zip(before, after, strict=True))
  print(f"  {what}: host {host:+}, PyTorch {allocated:+}, device {device:+} bytes")
  assert host < 8 << 20 and allocated == 0 and device <= 0, what


@check(needs_quiet=True)
def runs_and_sessions_leak_nothing(machine):
  program = machine.load("model_gpt")
  values = [inputs(machine, "gpt", size)[0] for size in range(4)]
  for mode in machine.modes:
    session = program.session(mode=mode)
    for i in range(40):
      session(values[i % 4])
    before = memory(machine)
    for i in range(1000):
      session(values[i % 4])
    expect_flat(f"1000 runs, {mode}", before, memory(machine))
  del session
  for counted in (False, True):
    before = memory(machine)
    for i in range(60):
      program.session(mode=machine.modes[i % len(machine.modes)])(values[i % 4])
    if counted:
      expect_flat("60 sessions", before, memory(machine))
  for counted in (False, True):
    before = memory(machine)
    for _ in range(10):
      machine.load("model_gpt")(values[1])
    if counted:
      expect_flat("10 programs", before, memory(machine))


@check(needs_quiet=True)
def times_of_calls(machine):
  """Prints only: what a call takes on the host, and until its result is there."""
  for name in ("sum_of_two", "mlp", "gpt"):
    program, model = machine.load(f"model_{name}"), machine.model(name)
    values = inputs(machine, name, 1)
    calls = {"eager": model}
    for mode in machine.modes:
      calls[mode] = program.session(mode=mode)
    line = []
    with torch.inference_mode():
      for label, call in calls.items():
        for _ in range(20):
          call(*values)
        machine.synchronize()
        begin = time.perf_counter()
        for _ in range(200):
          call(*values)
        returned = time.perf_counter() - begin
        machine.synchronize()
        done = time.perf_counter() - begin
        line.append(f"{label} {returned * 5e3:.1f} / {done * 5e3:.1f}")
    print(f"  {name}: us on the host / in all: {', '.join(line)}")


def run_checks(machine, tool):
  failed = 0
  torch.manual_seed(7)
  for function, needs_gpu, needs_quiet in CHECKS:
    name = function.__name__.replace("_", " ")
    if needs_gpu and machine.device.type != "cuda" or needs_quiet and tool:
      print(f"skip    {name}", flush=True)
      continue
    begin = time.perf_counter()
    try:
      function(machine)
      machine.synchronize()
      print(f"ok      {name} ({time.perf_counter() - begin:.1f} s)", flush=True)
    except Exception:
      failed += 1
      print(f"FAILED  {name}\n{traceback.format_exc()}", flush=True)
  print(f"{len(CHECKS)} checks, {failed} failed")
  return failed


def pack(folder):
  source = folder / "dynamic.hir"
  source.write_text(DYNAMIC)
  huskc = tools.find("huskc")
  assert huskc, "huskc was not found"
  subprocess.run([huskc, source, "-o", folder / "dynamic.husk"], check=True)


def main():
  arguments = argparse.ArgumentParser(description=__doc__)
  arguments.add_argument("command", choices=("pack", "check"))
  arguments.add_argument("folder", type=pathlib.Path)
  arguments.add_argument("--device", default="cuda:0")
  arguments.add_argument("--tool", action="store_true", help="the checks that a tool may observe")
  options = arguments.parse_args()
  if options.command == "pack":
    return pack(options.folder)
  print(f"Python {sys.version.split()[0]}, torch {torch.__version__}, husk {husk.__version__}")
  print(f"the extension: {sys.modules[husk.Program.__mro__[1].__module__].__file__}")
  machine = Machine(options.folder, options.device, options.tool)
  return run_checks(machine, options.tool) != 0


if __name__ == "__main__":
  sys.exit(main())
