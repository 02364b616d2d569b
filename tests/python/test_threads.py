"""Threads, asyncio, signals and forks; memory that stays flat."""

import asyncio
import faulthandler
import gc
import os
import signal
import subprocess
import sys
import threading

import conftest
import husk
import numpy as np
import pytest
import torch
from memory_growth import least_growth
from patience import HANG


def test_threads_may_call_one_program(load):
  program = load(conftest.COPY)
  failures = []

  def work(seed):
    x = torch.full((seed + 1, 4), float(seed))
    for _ in range(300):
      if not torch.equal(program(x)[0], x):
        failures.append(seed)

  threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  assert not failures


def test_the_gil_is_free_during_a_run(load):
  entered, leave = threading.Event(), threading.Event()

  def scale(x, k, half, text, sizes, y):
    entered.set()
    assert leave.wait(HANG)
    y[:] = x

  program = load(conftest.CUSTOM, ops={"my::scale": scale})
  session = program.session()
  x = torch.ones(3)
  thread = threading.Thread(target=session, args=(x, 1))
  thread.start()
  assert entered.wait(HANG)
  with pytest.raises(husk.InvalidArgumentError, match="use a session for each thread"):
    session(x, 1)
  leave.set()
  assert torch.equal(program(x, 1), x)  # another session
  thread.join()


def test_asyncio(load):
  program = load(conftest.COPY)
  session = program.session()

  async def work():
    x = torch.ones(2, 4)
    results = await asyncio.gather(*(program.run_async(x * i) for i in range(8)))
    return [*results, await session.run_async(x), await session.forward.run_async(x=x)]

  results = asyncio.run(work())
  assert [float(y[0, 0]) for y, _ in results] == [0, 1, 2, 3, 4, 5, 6, 7, 1, 1]


def test_a_session_may_be_deleted_with_a_pending_run(load):
  session = load(conftest.COPY).session()

  async def work():
    nonlocal session
    pending = asyncio.ensure_future(session.run_async(torch.ones(2, 4)))
    await asyncio.sleep(0)
    session = None
    gc.collect()
    return await pending

  assert float(asyncio.run(work())[0].sum()) == 8


def test_ctrl_c_ends_a_run(load):
  session = load(conftest.ENDLESS).session()
  # A shell starts what runs in its background with the signal ignored.
  handler = signal.signal(signal.SIGINT, signal.default_int_handler)
  timer = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
  faulthandler.dump_traceback_later(HANG, exit=True)  # if the run goes on for ever
  try:
    with pytest.raises(KeyboardInterrupt):
      timer.start()
      session(torch.tensor([True]))
  finally:
    signal.signal(signal.SIGINT, handler)
    faulthandler.cancel_dump_traceback_later()
  timer.join()
  session(torch.tensor([False]))  # the session stays usable


FORK = """
import os, sys, husk, numpy as np
program = husk.load(sys.argv[1], threads=2)
session = program.session()
x = np.ones((256, 256), np.float32)
expected = program(x, x)
assert expected[0, 0] == 256
child = os.fork()
assert (program(x, x) == expected).all() and (session(x, x) == expected).all()
if child == 0:
  os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""

PRODUCT = """
function forward {
  input a tensor f32 [256, 256]
  input b tensor f32 [256, 256]
  output c tensor f32 rank 2
  variant cpu {
    buffer a of input bytes 262144
    buffer b of input bytes 262144
    buffer c of output bytes 262144
    extern "aten::mm.out" (read tensor a f32 [256, 256] [256, 1],
      read tensor b f32 [256, 256] [256, 1], write tensor c f32 [256, 256] [256, 1])
    return (tensor c f32 [256, 256] [256, 1])
  }
}
"""


def test_the_child_of_a_fork_runs_programs(compiled, environment):
  """The child has none of the threads of its parent."""
  command = [sys.executable, "-c", FORK, str(compiled(PRODUCT))]
  subprocess.run(command, check=True, env=environment, timeout=HANG)


def test_runs_leak_nothing(load):
  program = load(conftest.COPY)
  session = program.session()
  function = session.forward
  tensor, array = torch.ones(64, 4), np.ones((64, 4), np.float32)
  wrong = array.astype(np.float64)
  out = torch.empty(64, 4)

  def work(n):
    for _ in range(n):
      program(tensor)
      program(array)
      function(x=tensor)
      session(tensor, out=(out, None))
    for _ in range(n // 10):
      with pytest.raises(husk.InvalidInputError):
        program(wrong)

  limits = (256 << 10, 100)
  growth, objects = least_growth(work, 8500, enough=limits)
  assert growth < limits[0]
  assert objects < limits[1]


def test_programs_and_sessions_are_freed(compiled):
  data = compiled(conftest.NONZERO).read_bytes() + bytes(0)
  x = torch.ones(5)

  def work(n):
    for _ in range(n):
      program = husk.load(data, threads=1)
      program(x)
      program.session()(x)
      program.session().forward(x)

  limits = (512 << 10, 100)
  growth, objects = least_growth(work, 500, enough=limits)
  assert growth < limits[0]
  assert objects < limits[1]
