"""The model that the servers in Python share: batches, sequences, streams, errors, limits."""

import asyncio
import dataclasses
import gc
import os
import subprocess
import sys
import threading
import time
import tracemalloc
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from conftest import HANG, ROOT, continued, eventually, linear
from husk.serve import Model, RequestError, SettingsError, protocol, request, settings


def model(artifacts, name="functions", **values):
  return Model(artifacts / f"{name}.husk", settings.read(values))


def ask(inputs, **parameters):
  return request.read(inputs, parameters)


def rows(count, seed=0):
  return np.random.default_rng(seed).standard_normal((count, 3)).astype(np.float32)


X = rows(2)


def refused(call, status, *words):
  with pytest.raises(RequestError) as caught:
    call()
  assert caught.value.status == status, caught.value
  for word in words:
    assert word in str(caught.value)


def test_import_husk_needs_no_server():
  text = (
    "import husk, sys; sys.exit(any(n.split('.')[0] in ('mlserver','ray') for n in sys.modules))"
  )
  subprocess.run(
    [sys.executable, "-c", text], check=True, env={"PYTHONPATH": str(ROOT / "compiler/torch")}
  )


@pytest.mark.parametrize("name", ["mlserver", "ray"])
def test_a_server_that_is_missing_is_named(name):
  text = f"import sys; sys.modules[{name!r}] = None; import husk.serve.{name}"
  done = subprocess.run(
    [sys.executable, "-c", text],
    env={"PYTHONPATH": str(ROOT / "compiler/torch")},
    capture_output=True,
    text=True,
  )
  assert done.returncode == 1
  assert f"pip install './compiler/torch[{name}]'" in done.stderr.splitlines()[-1]


def test_functions_and_numbers(artifacts):
  served = model(artifacts, function="linear")
  np.testing.assert_allclose(served.run(ask({"x": X}))["y"], linear(X), rtol=1e-6)
  numbers = {
    "one": np.array([2.5], "f4"),
    "n": np.array([3]),
    "t": np.array([1.25]),
    "flag": np.array([True]),
  }
  results = served.run(ask(numbers, function="numbers"))
  assert {name: one.tolist() for name, one in results.items()} == {
    "same": [2.5],
    "next": [4],
    "twice": [2.5],
    "many": [3, 3, 3],
  }
  assert [one.shape for one in results.values()] == [(1,), (1,), (1,), (3,)]
  described = served.functions["numbers"].describe()["inputs"]
  assert described[1] == {"name": "n", "datatype": "INT64", "shape": [1]}


def test_the_default_function(artifacts):
  refused(lambda: model(artifacts).run(ask({"x": X})), 400, "'linear'", "parameter 'function'")
  assert model(artifacts, "state").signature.function == "add"


WRONG = {
  "dtype": ({"x": X.astype("f8")}, {}, 400, "float64"),
  "name": ({"z": X}, {}, 400, "no input 'z'"),
  "missing": ({}, {}, 400, "lacks input 'x'"),
  "rank": ({"x": X[0]}, {}, 400, "dims"),
  "columns": ({"x": np.ones((2, 4), "f4")}, {}, 400, "must be 3"),
  "no rows": ({"x": rows(0)}, {}, 400, "1..64"),
  "many rows": ({"x": rows(65)}, {}, 400, "1..64"),
  "function": ({"x": X}, {"function": "no"}, 404, "no function 'no'"),
  "sequence": ({"x": X}, {"sequence_id": 7}, 400, "no state"),
  "start without id": ({"x": X}, {"sequence_start": True}, 400, "sequence_id"),
  "index": ({"rows": np.array([0, 3])}, {"function": "pick"}, 400, "index 3"),
}


@pytest.mark.parametrize("case", WRONG)
@pytest.mark.parametrize("batched", [0, 8])
def test_wrong_requests(artifacts, case, batched):
  inputs, parameters, status, word = WRONG[case]
  served = model(artifacts, function="linear", max_batch_size=batched)
  if batched:
    wrong, right = served.run_batch([ask(inputs, **parameters), ask({"x": X})])
    assert wrong.status == status
    assert word in str(wrong) or "sequence" in str(wrong)
  else:
    refused(lambda: served.run(ask(inputs, **parameters)), status, word)
    right = served.run(ask({"x": X}))
  np.testing.assert_allclose(right["y"], linear(X), rtol=1e-6)


@pytest.mark.parametrize(
  "parameters",
  [
    {"function": 3},
    {"sequence_id": 1.5},
    {"sequence_id": True},
    {"sequence_start": "yes"},
    {"max_tokens": 0},
    {"max_tokens": "many"},
    {"max_tokens": 2**40},
    {"stop_token": -1},
    {"stop_token": 1.5},
  ],
)
def test_wrong_parameters(parameters):
  refused(lambda: request.read({}, parameters), 400, f"parameter '{next(iter(parameters))}'")


def test_limits_on_outputs(artifacts):
  served = model(artifacts, function="numbers", memory_limit=1_000_000)

  def numbers(n):
    one, t, flag = np.array([1], "f4"), np.array([1.0]), np.array([False])
    return ask({"one": one, "n": np.array([n]), "t": t, "flag": flag})

  for n in (300_000, 1 << 40, 1 << 62, -1):
    refused(lambda n=n: served.run(numbers(n)), 400)
  assert len(served.run(numbers(200_000))["many"]) == 200_000
  wide = ask({"x": np.ones(200_000, "f4")}, function="nonzero")
  refused(lambda: served.run(wide), 400)


def test_one_wrong_request_of_a_run_fails_alone(artifacts):
  served = model(artifacts, function="pick", max_batch_size=8)
  indices = [0, 3, 1, 2, -4, 0]
  answers = served.run_batch([ask({"rows": np.array([one])}) for one in indices])
  for index, answer in zip(indices, answers):
    if index in (3, -4):
      assert answer.status == 400 and f"index {index}" in str(answer)
    else:
      np.testing.assert_array_equal(answer["picked"], [[[1, 0], [0, 2], [3, 1]][index]])


def test_the_number_of_requests_of_a_run(artifacts):
  served = model(artifacts, function="linear", max_batch_size=4)
  runs = []
  served.seconds = runs.append
  for seed, results in enumerate(served.run_batch([ask({"x": rows(1, n)}) for n in range(10)])):
    np.testing.assert_allclose(results["y"], linear(rows(1, seed)), rtol=1e-6, atol=1e-6)
  assert len(runs) == 3


def test_batches(artifacts):
  served = model(artifacts, function="linear", max_batch_size=100)
  runs = []
  served.seconds = runs.append
  inputs = [rows(1 + seed % 5, seed) for seed in range(30)]
  for x, results in zip(inputs, served.run_batch([ask({"x": x}) for x in inputs])):
    np.testing.assert_allclose(results["y"], linear(x), rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(results["z"], x)
  assert len(runs) == 2  # 90 rows; a run takes at most 64
  # Functions and shapes do not mix; a function without a batch runs alone.
  mixed = [ask({"x": X}), ask({"rows": np.array([1])}, function="pick"), ask({"x": X})]
  one = {"one": np.array([1], "f4"), "n": np.array([0])}
  mixed.append(ask(one | {"t": np.array([2.0]), "flag": np.array([True])}, function="numbers"))
  runs.clear()
  answers = served.run_batch(mixed)
  assert len(runs) == 3
  np.testing.assert_array_equal(answers[1]["picked"], [[0, 2]])
  assert answers[3]["next"] == [1]


def test_a_wrong_output_is_no_batch(artifacts):
  served = model(artifacts, function="transpose", max_batch_size=4)
  (answer,) = served.run_batch([ask({"x": X})])
  assert answer.status == 500 and "dim 0 is no batch" in str(answer)


def test_sequences(artifacts):
  served = model(artifacts, "state", max_sequences=2)
  x = np.array([[1, 2]], np.float32)

  def add(**parameters):
    return served.run(ask({"x": x}, **parameters))["sum"].tolist()

  assert add() == add() == [[11, 12]]  # without an id each request begins with the initial state
  refused(lambda: add(sequence_id=1), 404, "no live sequence '1'", "sequence_start")
  assert add(sequence_id=1, sequence_start=True) == [[11, 12]]
  assert add(sequence_id="b", sequence_start=True) == [[11, 12]]
  assert add(sequence_id=1) == [[12, 14]]
  with pytest.raises(RequestError, match="max_sequences") as caught:
    add(sequence_id="c", sequence_start=True)
  assert caught.value.status == 503 and caught.value.__cause__ is None
  assert add(sequence_id=1, sequence_end=True) == [[13, 16]]
  refused(lambda: add(sequence_id=1), 404)
  assert add(sequence_id="c", sequence_start=True) == [[11, 12]]
  assert add(sequence_id="b", sequence_start=True) == [[11, 12]]  # anew
  assert served.live_sequences == 2
  # A request that does not fit leaves its sequence as it was; a run that fails ends it.
  refused(lambda: served.run(ask({}, sequence_id="b")), 400)
  refused(lambda: served.run(ask({}, sequence_id="b", sequence_start=True)), 400)
  assert add(sequence_id="b") == [[12, 14]]
  wide = np.ones((1, 3), np.float32)
  refused(lambda: served.run(ask({"x": wide}, sequence_id="b")), 400)
  refused(lambda: add(sequence_id="b"), 404)
  assert served.live_sequences == 1


def test_a_sequence_that_idles_is_dropped(artifacts):
  served = model(artifacts, "state", max_sequences=1, sequence_idle_seconds=60)
  x = {"x": np.ones((1, 2), "f4")}
  served.run(ask(x, sequence_id=1, sequence_start=True))
  served._sequences.find("1").last_used -= 61
  served.run(ask(x, sequence_id=2, sequence_start=True))
  refused(lambda: served.run(ask(x, sequence_id=1)), 404, "idle")
  # A request without a sequence drops it, too.
  served._sequences.find("2").last_used -= 61
  served.run(ask(x))
  assert served.live_sequences == 0


def test_a_sequence_that_is_used_stays(artifacts):
  served = model(artifacts, "state", sequence_idle_seconds=60)
  x = {"x": np.ones((1, 2), "f4")}
  served.run(ask(x, sequence_id=1, sequence_start=True))
  for _ in range(3):  # 120 s after its start
    served._sequences.find("1").last_used -= 40
    served.run(ask(x, sequence_id=1))


def test_a_sequence_ends_after_its_run(artifacts):
  """Its session must not go to another client before."""
  served = model(artifacts, "state")
  x = {"x": np.ones((1, 2), "f4")}
  served.run(ask(x, sequence_id=1, sequence_start=True))
  sequence = served._sequences.find("1")
  with ThreadPoolExecutor(1) as pool:
    with sequence.lock:
      ended = pool.submit(served._sequences.close, sequence)
      time.sleep(0.05)
      assert not ended.done() and not sequence.has_ended
    ended.result()
  assert sequence.has_ended and served.live_sequences == 0


def test_two_requests_of_a_sequence(artifacts):
  served = model(artifacts, "state")
  x = {"x": np.ones((1, 2), "f4")}
  served.run(ask(x, sequence_id=1, sequence_start=True))
  with served._sequences.find("1").lock:
    refused(lambda: served.run(ask(x, sequence_id=1)), 409, "is running")
  assert served.run(ask(x, sequence_id=1))["sum"].tolist() == [[12, 12]]


def test_sequences_of_many_threads(artifacts):
  served = model(artifacts, "state", max_sequences=4)
  wrong = []

  def client(name):
    generator = np.random.default_rng(name)
    for _ in range(50):
      total = np.full((1, 2), 10, np.float32)
      for step in range(4):
        x = generator.integers(0, 9, (1, 2)).astype(np.float32)
        total += x
        ends = dict(sequence_start=step == 0, sequence_end=step == 3)
        result = served.run(ask({"x": x}, sequence_id=f"s{name}", **ends))
        if not np.array_equal(result["sum"], total):
          wrong.append((name, step))

  with ThreadPoolExecutor(4) as pool:
    for each in [pool.submit(client, name) for name in range(4)]:
      each.result()
  assert wrong == [] and served.live_sequences == 0


def prompt(*tokens, **parameters):
  return ask({"tokens": np.array(tokens, np.int64)}, **parameters)


GENERATE = {"function": "prefill", "next_function": "decode"}


async def tokens_of(served, asked):
  return [token async for token in served.stream(asked)]


def test_streams(artifacts):
  served = model(artifacts, "generate", max_sequences=2, **GENERATE)
  expected = continued([3, 1, 4], 40)

  async def run():
    assert await tokens_of(served, prompt(3, 1, 4, max_tokens=40)) == expected
    assert await tokens_of(served, prompt(3, 1, 4)) == expected[:32]
    stop = expected.index(expected[4]) + 1
    assert await tokens_of(served, prompt(3, 1, 4, stop_token=expected[4])) == expected[:stop]
    both = [prompt(3, 1, 4, max_tokens=9), prompt(0, max_tokens=9)]
    answers = await asyncio.gather(*(tokens_of(served, one) for one in both))
    assert answers == [expected[:9], continued([0], 9)]
    # Clients that go leave no session behind.
    for _ in range(5):
      stream = served.stream(prompt(3, 1, 4))
      await anext(stream)
      await stream.aclose()
      task = asyncio.create_task(tokens_of(served, prompt(3, 1, 4, max_tokens=1000)))
      await asyncio.sleep(0.01)
      task.cancel()
      await asyncio.wait([task])
    while served.live_sequences or served.under_way:
      await asyncio.sleep(0.02)
    streams = [served.stream(prompt(3)) for _ in range(3)]
    await anext(streams[0])
    await anext(streams[1])
    with pytest.raises(RequestError, match="max_sequences"):
      await anext(streams[2])
    for stream in streams:
      await stream.aclose()

  asyncio.run(run())


def test_wrong_streams(artifacts):
  async def first(served, asked):
    async for token in served.stream(asked):
      return token

  functions = model(artifacts, function="linear")
  generate = model(artifacts, "generate", **GENERATE)
  for served, asked, status, word in [
    (
      functions,
      ask({"x": X}),
      400,
      "'linear' cannot be streamed: none of its inputs is a tensor of integers",
    ),
    (functions, ask({}, function="numbers"), 400, "lacks input"),
    (functions, ask({"x": X}, function="no"), 404, "no function"),
    (generate, prompt(), 400, "1..6"),
    (generate, prompt(*range(7)), 400, "1..6"),
    (generate, prompt(8), 400, "index 8"),
    (generate, prompt(1, max_tokens=4097), 400, "at most 4096"),
    (generate, ask({}), 400, "lacks input 'tokens'"),
  ]:
    refused(lambda s=served, a=asked: asyncio.run(first(s, a)), status, word)
    eventually(lambda s=served: s.live_sequences == 0)  # a stream is closed on another thread


def test_sessions_run_at_the_same_time(artifacts):
  served = model(artifacts, function="linear", sessions=3)
  together = threading.Barrier(3, timeout=HANG)
  call = served._call
  served._call = lambda *arguments: together.wait() is not None and call(*arguments)

  async def run():
    inputs = [rows(2, seed) for seed in range(3)]
    answers = await asyncio.gather(*(served.infer(ask({"x": x})) for x in inputs))
    for x, results in zip(inputs, answers):
      np.testing.assert_allclose(results["y"], linear(x), rtol=1e-6, atol=1e-6)

  asyncio.run(run())


def test_the_queue_is_bounded(artifacts):
  served = model(artifacts, function="linear", max_queue=3)

  async def run():
    block = threading.Event()
    busy = [
      asyncio.get_running_loop().run_in_executor(served._executor, block.wait),
    ]
    waiting = [asyncio.create_task(served.infer(ask({"x": X}))) for _ in range(3)]
    while served.under_way < 3:
      await asyncio.sleep(0)
    with pytest.raises(RequestError, match="max_queue") as caught:
      await served.infer(ask({"x": X}))
    assert caught.value.is_retryable
    block.set()
    await asyncio.gather(*busy, *waiting)
    await served.infer(ask({"x": X}))

  asyncio.run(run())


def test_close_lets_requests_end(artifacts):
  served = model(artifacts, "generate", **GENERATE)
  program = weakref.ref(served._program)

  async def run():
    stream = served.stream(prompt(3, 1, 4, max_tokens=20))
    tokens = [await anext(stream)]
    served.close()
    tokens += [token async for token in stream]
    assert tokens == continued([3, 1, 4], 20)
    with pytest.raises(RequestError, match="unloaded") as caught:
      await served.infer(prompt(1))
    assert caught.value.is_retryable

  asyncio.run(run())
  eventually(lambda: gc.collect() >= 0 and program() is None)
  served.close()


def test_a_device_that_failed(artifacts):
  import husk

  served = model(artifacts, function="linear")
  served.check_health()

  def fail(*_):
    raise husk.DeviceError("no answer", 7, 700)

  served._call = fail
  refused(lambda: served.run(ask({"x": X})), 500, "the device has failed: no answer")
  refused(served.check_health, 500, "no answer")


@pytest.mark.parametrize(
  ("values", "text"),
  [
    ({"sesions": 2}, "no setting 'sesions': the settings are device"),
    ({"sessions": "2"}, "setting sessions is '2', must be an integer"),
    ({"sessions": 0}, "setting sessions is 0, must be at least 1"),
    ({"sessions": True}, "must be an integer"),
    ({"sequence_idle_seconds": -1}, "at least 0"),
    ({"sequence_idle_seconds": float("nan")}, "at least 0"),
    ({"function": "no"}, "no function 'no', it has 'linear'"),
    ({"next_function": "no"}, "no function 'no'"),
    ({"function": "numbers", "max_batch_size": 2}, "'one' has no dim 0"),
  ],
)
def test_wrong_settings(artifacts, values, text):
  with pytest.raises(SettingsError) as caught:
    model(artifacts, **values)
  assert text in str(caught.value)


@pytest.mark.parametrize(("text", "limit"), [("4096\n", 2048), ("max\n", None), (None, None)])
def test_the_memory_of_a_container(monkeypatch, tmp_path, text, limit):
  file = tmp_path / "memory.max"
  if text is not None:
    file.write_text(text)
  monkeypatch.setattr(settings, "_CONTAINER_LIMIT", file)
  machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
  assert settings.read({}).bytes_limit == (limit or machine // 2)
  assert settings.read({"memory_limit": 7}).bytes_limit == 7


def test_a_model_with_states_has_no_batches(artifacts):
  with pytest.raises(SettingsError, match="has states"):
    model(artifacts, "state", max_batch_size=2)


def test_every_setting_is_described():
  names = {field.name for field in dataclasses.fields(settings.Settings)}
  assert names == set(settings._KINDS)
  assert all(f"  {name}: " in settings.Settings.__doc__ for name in names)


READ = {
  "flat": ("FP32", [2, 2], [1, 2, 3, 4], "float32"),
  "nested": ("FP64", [2, 2], [[1, 2.5], [3, 4]], "float64"),
  "ints": ("UINT8", [2], [0, 255], "uint8"),
  "bools": ("BOOL", [2], [True, False], "bool"),
  "bytes": ("INT16", [2], b"\1\0\2\0", "int16"),
  "half": ("FP16", [1], [0.5], "float16"),
  "empty": ("INT64", [0, 3], [], "int64"),
  "unsigned": ("UINT64", [1], [2**64 - 1], "uint64"),
  "large and small": ("UINT64", [2], [2**64 - 1, 1], "uint64"),
  "2^63 and 1": ("UINT64", [2, 1], [[2**63], [1]], "uint64"),
  "large ints for floats": ("FP64", [2], [2**70, 0.5], "float64"),
  "limits": ("INT64", [2], [-(2**63), 2**63 - 1], "int64"),
}


@pytest.mark.parametrize("case", READ)
def test_tensors(case):
  datatype, shape, data, dtype = READ[case]
  array = protocol.read("x", datatype, shape, data)
  assert str(array.dtype) == dtype and list(array.shape) == shape
  if not isinstance(data, bytes):
    assert array.tolist() == np.array(data, object).reshape(shape).tolist()
  assert protocol.datatype(array) == datatype


def test_bools_of_other_bytes():
  assert protocol.read("x", "BOOL", [3], b"\0\2\1").view("u1").tolist() == [0, 1, 1]


UNREADABLE = {
  "datatype": ("BF16", [1], [1], "datatype BF16"),
  "strings": ("FP32", [1], ["1"], "no numbers"),
  "nulls": ("FP32", [2], [1, None], "no numbers"),
  "objects": ("FP32", [1], [{"a": 1}], "no numbers"),
  "ragged": ("FP32", [3], [[1, 2], [3]], "not a tensor"),
  "fraction": ("INT64", [1], [1.5], "floats"),
  "bools for ints": ("INT64", [1], [True], "bools"),
  "bools among ints": ("INT64", [2], [True, 1], "bools"),
  "ints for bools": ("BOOL", [1], [1], "integers"),
  "range": ("UINT8", [2], [1, 256], "256, which is no UINT8"),
  "sign": ("UINT64", [1], [-1], "-1, which is no UINT64"),
  "large": ("INT64", [1], [2**70], "many digits, which is no INT64"),
  "2^20000": ("UINT64", [2], [2**20000, 1], "many digits"),
  "large for floats": ("FP32", [1], [10**400], "not a tensor of FP32"),
  "count": ("FP32", [2, 2], [1, 2, 3], "3 elements, its shape has 4"),
  "no data": ("FP32", [2], [], "0 elements"),
  "negative": ("FP32", [-2], [1, 2], "size -2"),
  "fractional size": ("FP32", [1.5], [1], "size 1.5"),
  "2^62 elements": ("FP32", [1 << 62], [1], "too many"),
  "2^60 elements": ("FP32", [1 << 60], [1], "1 elements"),
  "0 x 2^62": ("FP32", [0, 1 << 62], [], "too many"),
  "0 x 2^62 of bytes": ("FP32", [0, 1 << 62], b"", "too many"),
  "product wraps": ("FP32", [1 << 32, 1 << 32], [], "too many"),
  "17 dims": ("FP32", [1] * 17, [1], "17 dims"),
  "bytes": ("FP32", [2], b"\0" * 7, "7 bytes"),
  "ragged at 40 dims": ("FP32", [2], eval("[" * 40 + "[1], [1, 2]" + "]" * 40), "not a tensor"),
  "deep": ("FP32", [1], eval("[" * 80 + "1" + "]" * 80), "x"),
}


@pytest.mark.parametrize("case", UNREADABLE)
def test_wrong_tensors(case):
  datatype, shape, data, words = UNREADABLE[case]
  refused(lambda: protocol.read("x", datatype, shape, data), 400, words)


def test_a_small_request_takes_little_memory():
  """NumPy would keep room for the longest text in every element."""
  data = ["a" * 50_000] + [1] * 25_000
  tracemalloc.start()
  try:
    refused(lambda: protocol.read("x", "FP32", [25_001], data), 400, "no numbers")
    assert tracemalloc.get_traced_memory()[1] < 4_000_000
  finally:
    tracemalloc.stop()


def test_a_tensor_without_memory(monkeypatch):
  def no_memory(*_, **__):
    raise MemoryError

  monkeypatch.setattr(protocol.np, "asarray", no_memory)
  refused(lambda: protocol.read("x", "FP32", [1], [1]), 503, "no memory")
