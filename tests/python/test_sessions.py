"""Sessions: states, ranges, options, memory of the caller, results that outlive them."""

import conftest
import husk
import numpy as np
import pytest
import torch


def test_each_session_has_its_own_states(load):
  program = load(conftest.CACHE)
  one, two = program.session(), program.session()
  one.put(torch.arange(4.0))
  assert torch.equal(two.get(), torch.ones(4))
  two.state["cache"].copy_from(one.state["cache"])
  assert torch.equal(two.get(), torch.arange(4.0))
  one.state["cache"].reset()
  assert np.array_equal(one.state["cache"], np.ones(4))
  assert torch.equal(two.state["cache"].torch(), torch.arange(4.0))


@pytest.mark.parametrize("value", [torch.full((4,), 7.0), np.full(4, 7, np.float32)])
def test_a_state_takes_the_value_of_a_tensor(load, value):
  session = load(conftest.CACHE).session()
  session.state["cache"].copy_from(value)
  assert np.array_equal(session.state["cache"].numpy(), np.full(4, 7))


def test_wrong_values_of_states(load):
  session = load(conftest.CACHE).session()
  cache = session.state["cache"]
  assert list(session.state) == ["cache"] and repr(cache) == "husk.State cache f32[4]"
  with pytest.raises(KeyError, match="no state 'x', the program has 'cache'"):
    session.state["x"]
  with pytest.raises(ValueError, match=r"is float32\[4\], not float64\[4\]"):
    cache.copy_from(np.zeros(4))
  with pytest.raises(ValueError, match=r"is float32\[4\], not float32\[5\]"):
    cache.copy_from(torch.zeros(5))
  with pytest.raises(husk.InvalidArgumentError, match="different programs"):
    cache.copy_from(load(conftest.CACHE).session().state["cache"])
  with pytest.raises(husk.InvalidInputError, match="'cache' has 16 bytes, the memory for it has 3"):
    session.state_set(0, b"abc")


def test_ranges(load):
  program = load(conftest.COPY)
  session = program.session(ranges={"x": {0: (2, 8)}})
  assert torch.equal(session(torch.ones(8, 4))[0], torch.ones(8, 4))
  with pytest.raises(husk.InvalidInputError, match="must be in 2..8"):
    session(torch.ones(9, 4))
  with pytest.raises(ValueError, match="no function has an input 'tokens'"):
    program.session(ranges={"tokens": {0: (1, 2)}})
  with pytest.raises(husk.InvalidArgumentError, match="does not lie in the file's"):
    program.session(ranges={"x": {0: (0, 8)}})
  numbers = load(conftest.NUMBERS).session(ranges={"i": (0, 3)})
  with pytest.raises(husk.InvalidInputError, match="must be in 0..3"):
    numbers(4, 1.0, True, None)


def test_options(load):
  program = load(conftest.ENDLESS)
  with pytest.raises(husk.LimitError, match="loop_limit of 10"):
    program.session(loop_limit=10)(torch.tensor([True]))
  with pytest.raises(TypeError, match="a session has no option 'speed'"):
    program.session(speed=1)
  with pytest.raises(ValueError, match="mode 'fast': give one of 'auto', 'list', 'graph'"):
    program.session(mode="fast")


@pytest.mark.parametrize("strides", ["[4, 1]", "[1, n]"])
def test_results_have_the_alignment_of_the_kernels(load, strides):
  """NumPy aligns its arrays to 16 bytes only."""
  text = conftest.COPY.replace("output bytes mul(n, 16)", "output bytes mul(n, 16) align 256")
  program = load(text.replace("[n, 4] [4, 1], int", f"[n, 4] {strides}, int"))
  x = np.ones((3, 4), np.float32)
  results = [program(x)[0] for _ in range(50)]
  assert all(one.ctypes.data % 256 == 0 and np.array_equal(one, x) for one in results)


def test_a_limit_on_results(load):
  session = load(conftest.COPY).session(output_limit=320)
  x = torch.randn(20, 4)
  assert torch.equal(session(x)[0], x)
  for library in (torch, np):
    with pytest.raises(husk.LimitError, match="output 'y' .* output_limit of 320 bytes"):
      session(library.ones((21, 4), dtype=library.float32))
  out = torch.empty(30, 4)  # memory of the caller does not count
  assert session(torch.ones(30, 4), out=(out, None))[0] is out
  assert torch.equal(session(x)[0], x)


@pytest.mark.parametrize("make", [lambda n: torch.empty(n, dtype=torch.uint8), bytearray])
def test_memory_of_the_caller(load, make):
  program = load(conftest.SCRATCH)
  memory = make(16384 + 256)
  if isinstance(memory, torch.Tensor):
    memory = memory[-memory.data_ptr() % 256 :]
  else:
    start = -np.frombuffer(memory, np.uint8).ctypes.data % 256
    memory = memoryview(memory)[start:]
  session = program.session(arena=memory)
  x = torch.randn(1024, 4)
  assert torch.equal(session(x)[0], x)
  assert x.numpy().tobytes() in bytes(memory if isinstance(memory, memoryview) else memory.numpy())


def test_a_lent_arena_must_suffice(load):
  memory = torch.empty(1024, dtype=torch.uint8)
  session = load(conftest.SCRATCH).session(arena=memory[-memory.data_ptr() % 256 :])
  with pytest.raises(husk.NeedsResizeError, match="call session.lend with more memory first"):
    session(torch.randn(1024, 4))


def test_an_arena_is_lent_taken_back_and_lent_again(load):
  session = load(conftest.SCRATCH).session(external_arena=1)
  x = torch.randn(1024, 4)
  for _ in range(2):
    with pytest.raises(husk.NeedsResizeError):
      session(x)
    memory = torch.empty(session.arena_bytes + 256, dtype=torch.uint8)
    memory = memory[-memory.data_ptr() % 256 :]
    session.lend(memory)
    assert torch.equal(session(x)[0], x)
    assert x.numpy().tobytes() in bytes(memory.numpy())
    session.lend(None)


def test_results_outlive_program_and_session(compiled):
  import gc

  for library in (torch, np):
    program = husk.load(compiled(conftest.COPY))
    session = program.session()
    x = library.ones((3, 4), dtype=library.float32)
    results = [program(x)[0], session(x)[0]]
    get = session.forward
    del session
    results.append(get(x)[0])  # the function keeps its session
    del program, get
    gc.collect()
    assert all(bool((y == 1).all()) for y in results)


def test_stats(load):
  session = load(conftest.COPY).session()
  session(torch.ones(2, 4))
  stats = session.stats(0)
  assert stats["steps"] == 1 and stats["runs_as_list"] == 1 and stats["bounded"]
  session.wait()
