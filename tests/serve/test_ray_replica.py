"""A replica of Ray Serve without Ray: this test calls it as Ray does."""

import asyncio
import json
import shutil
import types

import numpy as np
import pytest
from conftest import linear, linear_2, tensor
from husk.serve import RequestError, SettingsError
from husk.serve import ray as husk_ray

X = np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32)


class Metric:
  """A metric that nobody reads."""

  def __init__(self, *_, **__):
    pass

  def inc(self, **_):
    pass

  def observe(self, *_, **__):
    pass


class Replica(husk_ray.Server):
  """A replica whose models of the folder are kept in a dict, of which Ray would drop some."""

  _gather = types.SimpleNamespace(
    set_max_batch_size=lambda _: None, set_batch_wait_timeout_s=lambda _: None
  )

  def __init__(self):
    super().__init__()
    self.kept = {}
    self.asked = []

  async def _of_folder(self, name):
    self.asked.append(name)
    if name not in self.kept:
      self.kept[name] = await self._load_of_folder(name)
    return self.kept[name]


class Http:
  """A request of HTTP. `wait` runs before its body has arrived."""

  method, headers = "POST", {}

  def __init__(self, model, wait):
    self.url = types.SimpleNamespace(path=f"/v2/models/{model}/infer")
    self.wait = wait

  async def stream(self):
    await self.wait()
    yield json.dumps({"inputs": [tensor("x", X)]}).encode()


@pytest.fixture
def replica(monkeypatch):
  monkeypatch.setattr(husk_ray.metrics, "Counter", Metric)
  monkeypatch.setattr(husk_ray.metrics, "Histogram", Metric)
  return Replica()


@pytest.fixture
def folders(artifacts, tmp_path):
  """Two folders with a model `a`, which differ."""
  for folder, artifact in [("one", "functions"), ("two", "functions-2")]:
    (tmp_path / folder).mkdir()
    shutil.copyfile(artifacts / f"{artifact}.husk", tmp_path / folder / "a.husk")
  return [str(tmp_path / "one"), str(tmp_path / "two")]


def config(models=None, folder=None, **folder_settings):
  return {
    "models": {name: {"path": path, "function": "linear"} for name, path in (models or {}).items()},
    "folder": folder,
    "folder_settings": folder_settings,
    "batch_wait_seconds": 0.01,
  }


async def y(replica, name):
  return (await replica.infer(name, {"x": X}))["y"]


def test_a_device_that_has_failed(replica, folders):
  """A failure of any model is one of the replica, also of a model of the folder."""

  async def run():
    await replica.reconfigure(config({"m": f"{folders[0]}/a.husk"}, folders[0], function="linear"))
    await y(replica, "a")
    replica.check_health()
    for model in [replica.kept["a"].model, replica._models["m"]]:
      model.failure = "the device has failed"
      with pytest.raises(RequestError, match="the device has failed"):
        replica.check_health()
      model.failure = None

  asyncio.run(run())


def test_unknown_names_drop_no_model(replica, folders):
  """Ray, which makes room for a model before it asks for it, is not asked for them."""

  async def run():
    await replica.reconfigure(config(None, folders[0], function="linear"))
    for name in ["b", "..", "../one/a", "a\0"]:
      with pytest.raises(RequestError, match="no model"):
        await y(replica, name)
    await y(replica, "a")
    assert replica.asked == ["a"]

  asyncio.run(run())


def test_an_update_reaches_the_models_of_the_folder(replica, folders):
  async def run():
    await replica.reconfigure(config(None, folders[0], function="linear"))
    np.testing.assert_allclose(await y(replica, "a"), linear(X), rtol=1e-5)
    old = replica.kept["a"].model
    await replica.reconfigure(config(None, folders[1], function="linear"))
    answers = await asyncio.gather(*(y(replica, "a") for _ in range(3)))
    for answer in answers:
      np.testing.assert_allclose(answer, linear_2(X), rtol=1e-5)
    with pytest.raises(RequestError, match="unloaded"):
      await old.infer(None)
    await replica.reconfigure(config(None, folders[1], function="linear", max_queue=7))
    await y(replica, "a")
    assert replica.kept["a"].model.settings.max_queue == 7
    await replica.reconfigure(config())
    with pytest.raises(RequestError, match="no model"):
      await y(replica, "a")

  asyncio.run(run())


def test_an_update_that_fails_changes_nothing(replica, folders):
  async def run():
    await replica.reconfigure(config(None, folders[0], function="linear"))
    with pytest.raises(SettingsError, match="does not load"):
      await replica.reconfigure(config({"m": "none.husk"}, folders[1], function="pick"))
    np.testing.assert_allclose(await y(replica, "a"), linear(X), rtol=1e-5)

  asyncio.run(run())


def test_an_update_while_a_body_arrives(replica, folders):
  """The request is answered, by the new model."""

  async def run():
    await replica.reconfigure(config({"m": f"{folders[0]}/a.husk"}))

    async def update():
      await replica.reconfigure(config({"m": f"{folders[1]}/a.husk"}))

    response = await replica(Http("m", update))
    assert response.status_code == 200, response.body
    outputs = {one["name"]: one for one in json.loads(response.body)["outputs"]}
    np.testing.assert_allclose(np.reshape(outputs["y"]["data"], (2, 2)), linear_2(X), rtol=1e-4)

  asyncio.run(run())
