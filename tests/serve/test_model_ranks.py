"""A model of two ranks in one server: both run in its process, and clients see rank 0."""

import asyncio

import husk
import numpy as np
import pytest
from husk.serve import Model, RequestError, SettingsError, request, settings


@pytest.fixture
def path(artifacts):
  return artifacts / "ranks.husk"


X = np.arange(6, dtype=np.float32).reshape(3, 2)


def test_one_process_has_all_ranks(path):
  program = husk.load_ranks(path, ["cpu", "cpu"], threads=1)
  for rows in (3, 1):
    assert np.array_equal(program.add(X[:rows]), 3 * X[:rows])
  assert np.array_equal(program(X), 3 * X)
  assert program.function_names() == ["add", "count"]
  assert "on cpu, cpu" in repr(program) and "on cpu, cpu" in repr(program.add)
  session = program.session()
  for call in range(1, 3):
    assert np.array_equal(session.count(X[:1]), 2 * call * X[:1])
  session.state_reset(0)
  assert np.array_equal(session.functions["count"](X[:1]), 2 * X[:1])


def test_errors_of_ranks(path):
  with pytest.raises(ValueError, match="give the device of each rank, of 2 at least"):
    husk.load_ranks(path, "cpu")
  with pytest.raises(husk.InvalidArgumentError, match="for rank 0 of 2, the engine is rank"):
    husk.load_ranks(path, ["cpu", "cpu", "cpu"])
  program = husk.load_ranks(path, ["cpu", "cpu"], threads=1)
  with pytest.raises(husk.InvalidInputError):
    program.add(np.zeros((65, 2), np.float32))
  assert np.array_equal(program.add(X), 3 * X)  # nobody has communicated yet
  with pytest.raises(AttributeError, match="no function 'sub'"):
    program.sub(X)


def test_a_server_has_all_ranks(path):
  one = Model(path, settings.read({"ranks": 2, "sessions": 2}))
  try:
    answer = one.run(request.read({"x": X}, {"function": "add"}))
    assert np.array_equal(answer["y"], 3 * X)

    async def together():
      asked = (one.infer(request.read({"x": X + i}, {"function": "add"})) for i in range(8))
      return await asyncio.gather(*asked)

    for i, answer in enumerate(asyncio.run(together())):
      assert np.array_equal(answer["y"], 3 * (X + i))
    ids = {"function": "count", "sequence_id": "a"}
    first = one.run(request.read({"x": X[:1]}, {**ids, "sequence_start": True}))
    second = one.run(request.read({"x": X[:1]}, {**ids, "sequence_end": True}))
    assert np.array_equal(first["y"], 2 * X[:1]) and np.array_equal(second["y"], 4 * X[:1])
    with pytest.raises(RequestError) as caught:
      one.run(request.read({"x": np.zeros((65, 2), np.float32)}, {"function": "add"}))
    assert caught.value.status == 400
  finally:
    one.close()


def test_settings():
  assert settings.read({"ranks": 2}).devices == ["cpu", "cpu"]
  assert settings.read({"ranks": 2, "device": "cuda"}).devices == ["cuda:0", "cuda:1"]
  assert settings.read({"ranks": 2, "device": "cuda:2"}).devices == ["cuda:2", "cuda:3"]
  assert settings.read({"device": "cuda"}).devices == ["cuda"]
  with pytest.raises(SettingsError, match="setting ranks is 0, must be at least 1"):
    settings.read({"ranks": 0})
