"""A deployment of Ray Serve, which answers by the KServe v2 protocol over HTTP.

    from ray import serve
    from husk.serve import ray as husk_ray

    models = {"mlp": {"path": "/models/mlp-1.husk", "max_batch_size": 16}}
    serve.run(husk_ray.application(models, deployment={"num_replicas": 2}))

A second `serve.run` with other models replaces one replica after the other, while the others go on
answering: Ray ends a replica after its requests, and starts a new one, which loads the models.
`build` is the same as `application` for `serve run` and `serve deploy`.
"""

from __future__ import annotations

import asyncio
import json
import os
import pathlib
import re
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any

from . import protocol, request, settings
from .errors import RequestError, SettingsError
from .http import MAX_BODY_BYTES, read_body
from .model import Model
from .request import Arrays, Request

try:
  from ray import serve
  from ray.serve import metrics
  from starlette.requests import Request as HttpRequest
  from starlette.responses import JSONResponse, Response, StreamingResponse
except ModuleNotFoundError as error:
  raise ModuleNotFoundError(
    f"husk.serve.ray needs Ray Serve ({error}): run `pip install './compiler/torch[ray]'`",
    name=error.name,
  ) from error

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


def application(
  models: Mapping[str, Mapping[str, Any]] | None = None,
  *,
  folder: str | None = None,
  folder_settings: Mapping[str, Any] | None = None,
  max_models: int = 4,
  batch_wait_seconds: float = 0.005,
  max_body_bytes: int = MAX_BODY_BYTES,
  deployment: Mapping[str, Any] | None = None,
) -> Any:
  """An application for `serve.run`.

  models: for each name the `path` of the artifact and the fields of `husk.serve.Settings`. Every
    replica loads all of them.
  folder: models that are loaded when they are first asked for: NAME.husk in this folder is the
    model NAME. A replica keeps the `max_models` that were used last. A request with the header
    `serve_multiplexed_model_id: NAME` goes to a replica that has the model, if there is one.
  folder_settings: the fields of `husk.serve.Settings` for the models of the folder.
  batch_wait_seconds: how long a request waits for others, for models with max_batch_size.
  max_body_bytes: the largest body of a request over HTTP, in bytes. A larger one is answered with
    413, and is not kept in memory.
  deployment: options of `serve.deployment`, such as num_replicas, ray_actor_options and
    max_ongoing_requests. A replica gets the GPUs that its models name, unless `num_gpus` of
    ray_actor_options says otherwise. Several GPUs are one bundle of a placement group, so that they
    are on one node.
  """
  config = {
    "models": {name: dict(values) for name, values in (models or {}).items()},
    "folder": folder,
    "folder_settings": dict(folder_settings or {}),
    "batch_wait_seconds": batch_wait_seconds,
    "max_body_bytes": max_body_bytes,
  }
  read, of_folder = _read_config(config)  # a mistake is an error here, before a replica is told
  options = {"name": "husk", "max_ongoing_requests": 100, "health_check_period_s": 5}
  every = [one for _, one in read.values()] + ([of_folder] if folder else [])
  options |= _placed(max((_gpus(one) for one in every), default=0), deployment or {})
  return serve.deployment(_server(max_models)).options(**options, user_config=config).bind()


def build(arguments: Mapping[str, Any]) -> Any:
  """An application for `serve run husk.serve.ray:build` and `import_path: husk.serve.ray:build`;
  the arguments are those of `application`."""
  return application(**arguments)


def _read_config(
  config: Mapping[str, Any],
) -> tuple[dict[str, tuple[str, settings.Settings]], settings.Settings]:
  """The paths and the settings of the models, and the settings for models of the folder."""
  limit = config.get("max_body_bytes", MAX_BODY_BYTES)
  if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
    raise SettingsError(f"max_body_bytes is {limit!r}, must be an integer of at least 1")
  read = {}
  for name, values in config["models"].items():
    if not NAME.fullmatch(name):
      raise SettingsError(f"model name {name!r} must consist of letters, digits, '_', '.' and '-'")
    rest = dict(values)
    path = rest.pop("path", None)
    if not isinstance(path, str):
      raise SettingsError(f"model '{name}' lacks the setting path, the path of its artifact")
    try:
      read[name] = path, settings.read(rest)
    except SettingsError as error:
      raise SettingsError(f"model '{name}': {error}") from error
  return read, settings.read(config["folder_settings"])


def _gpus(one: settings.Settings) -> int:
  """How many GPUs a replica needs for a model: one more than the largest number of its GPUs."""
  places = [place.partition(":") for place in one.devices]
  return max(1 + int(number or 0) if name == "cuda" else 0 for name, _, number in places)


def _placed(gpus: int, deployment: Mapping[str, Any]) -> dict[str, Any]:
  """The options of a deployment, with what its replicas need on a node."""
  options = dict(deployment)
  actor = {"num_cpus": 1, "num_gpus": gpus, **(options.get("ray_actor_options") or {})}
  if not actor["num_gpus"]:
    return options
  options["ray_actor_options"] = actor
  if actor["num_gpus"] > 1 and "placement_group_bundles" not in options:
    bundle = {"CPU": actor["num_cpus"], "GPU": actor["num_gpus"]}
    options["placement_group_bundles"] = [{kind: size for kind, size in bundle.items() if size}]
    options["placement_group_strategy"] = "STRICT_PACK"
  return options


def _server(max_models: int) -> type[Server]:
  """The class of the deployment: the number of models is a part of a decorator."""

  class Husk(Server):
    @serve.multiplexed(max_num_models_per_replica=max_models)
    async def _of_folder(self, name: str) -> _Kept:
      return await self._load_of_folder(name)

  return Husk


# The folder of a model and its settings.
_Source = tuple[str, settings.Settings]


class _Kept:
  """A model of the folder. Ray deletes it when others take its place."""

  def __init__(self, model: Model, source: _Source) -> None:
    self.model = model
    self.source = source
    self.lock = asyncio.Lock()

  def __del__(self) -> None:
    self.model.close()


class Server:
  """A replica."""

  def __init__(self) -> None:
    self._models: dict[str, Model] = {}
    self._config: dict[str, tuple[str, settings.Settings]] = {}
    self._folder: str | None = None
    self._folder_settings = settings.Settings()
    self._max_body_bytes = MAX_BODY_BYTES
    self._loaded: weakref.WeakSet[Model] = weakref.WeakSet()  # of the folder, too
    self._requests = metrics.Counter(
      "husk_requests", description="Requests by their status", tag_keys=("model", "status")
    )
    self._run_seconds = metrics.Histogram(
      "husk_run_seconds",
      description="Seconds of a run of a function",
      boundaries=protocol.SECONDS,
      tag_keys=("model",),
    )

  async def reconfigure(self, config: Mapping[str, Any]) -> None:
    """Takes other models. Those that did not change stay; the others are loaded before the old ones
    are closed, and requests under way are answered by the model with which they began."""
    wanted, folder_settings = _read_config(config)
    changed = {name: one for name, one in wanted.items() if self._config.get(name) != one}
    loaded = {name: await self._load(name, *one) for name, one in changed.items()}
    old = [model for name, model in self._models.items() if name not in wanted or name in loaded]
    kept = {name: model for name, model in self._models.items() if name in wanted}
    self._models, self._config = kept | loaded, wanted
    self._folder, self._folder_settings = config["folder"], folder_settings
    self._max_body_bytes = config.get("max_body_bytes", MAX_BODY_BYTES)
    sizes = [one.max_batch_size for _, one in wanted.values()]
    sizes.append(folder_settings.max_batch_size)
    self._gather.set_max_batch_size(max(*sizes, 1))
    self._gather.set_batch_wait_timeout_s(config["batch_wait_seconds"])
    for model in old:
      model.close()

  def check_health(self) -> None:
    """Raises RequestError if the device of a model has failed; Ray then replaces the replica."""
    for model in list(self._loaded):
      model.check_health()

  # Calls of Python: handle.infer.remote(...).

  async def infer(
    self, model: str, inputs: Arrays, parameters: Mapping[str, Any] | None = None
  ) -> Arrays:
    """Answers a request of another deployment or of the driver. A failure is a RequestError."""
    return await self._answer(await self._find(model), _read(inputs, parameters or {}))

  def process(self) -> int:
    """The process of a replica, for tests of failures."""
    return os.getpid()

  # HTTP.

  async def __call__(self, http: HttpRequest) -> Response:
    label = ""  # only names of models: a client may send any
    try:
      name, action = _route(http)
      if not name:
        return JSONResponse({"name": "husk", "extensions": ["multiplexed"]})
      # An update may close a model while a slow client sends its body, so the model is looked up
      # afterwards. Nothing waits between that and the start of the request.
      length = http.headers.get("content-length")
      text = await read_body(http.stream(), length, self._max_body_bytes)
      model = await self._find(name)
      label = name
      if action == "metadata":
        response = JSONResponse(_metadata(name, model))
      elif action == "ready":
        model.check_health()
        response = JSONResponse({"name": name, "ready": True})
      else:
        response = await self._respond(name, model, action, _body(text))
    except RequestError as error:
      retry = {"Retry-After": "1"} if error.is_retryable else None
      response = JSONResponse({"error": error.text}, error.status, retry)
    self._requests.inc(tags={"model": label, "status": str(response.status_code)})
    return response

  async def _respond(
    self, name: str, model: Model, action: str, body: Mapping[str, Any]
  ) -> Response:
    asked = _read(_inputs(body), _mapping(body, "parameters"))
    start = {"model_name": name}
    if body.get("id") is not None:
      start["id"] = str(body["id"])
    if action == "infer":
      names = [one["name"] for one in _list(body, "outputs")]
      results = protocol.select_outputs(await self._answer(model, asked), names)
      return Response(_json(start | {"outputs": _outputs(results)}), media_type="application/json")
    # The first token decides the status.
    tokens = model.stream(asked)
    first = await anext(tokens)
    return StreamingResponse(_events(start, first, tokens), media_type="text/event-stream")

  async def _answer(self, model: Model, asked: Request) -> Arrays:
    if model.settings.max_batch_size <= 1:
      return await model.infer(asked)
    with model.request():
      answer = await self._gather((model, asked))
    if isinstance(answer, RequestError):
      raise answer
    return answer

  @serve.batch(max_batch_size=1, batch_wait_timeout_s=0.0, max_concurrent_batches=64)
  async def _gather(self, asked: Any) -> Any:
    """Answers requests that arrived at about the same time, with a result or an error for each."""
    answers: list[Any] = [None] * len(asked)
    models = {id(model): model for model, _ in asked}

    async def answer(model: Model) -> None:
      places = [place for place, (one, _) in enumerate(asked) if one is model]
      try:
        found: list[Any] = await model.infer_batch([asked[place][1] for place in places])
      except RequestError as error:
        found = [error] * len(places)
      for place, one in zip(places, found):
        answers[place] = one

    await asyncio.gather(*(answer(model) for model in models.values()))
    return answers

  # Models.

  async def _find(self, name: str) -> Model:
    if name in self._models:
      return self._models[name]
    # Ray drops another model before it asks for this one, so it must not be asked in vain.
    self._path(name)
    kept = await self._of_folder(name)
    while kept.source != self._source:  # an update has changed it since the model was loaded
      async with kept.lock:
        if kept.source != self._source:
          old = kept.model
          kept.model, kept.source = await self._open(name)
          old.close()
    return kept.model

  @property
  def _source(self) -> _Source:
    return self._folder or "", self._folder_settings

  def _path(self, name: str) -> pathlib.Path:
    """The artifact of a model of the folder."""
    path = pathlib.Path(self._folder or "") / f"{name}.husk"
    if self._folder is None or not NAME.fullmatch(name) or not path.is_file():
      raise RequestError(404, f"there is no model '{name}'")
    return path

  async def _of_folder(self, name: str) -> _Kept:
    raise NotImplementedError  # `_server` defines it

  async def _load_of_folder(self, name: str) -> _Kept:
    return _Kept(*await self._open(name))

  async def _open(self, name: str) -> tuple[Model, _Source]:
    """Loads a model of the folder."""
    source = self._source
    try:
      return await self._load(name, str(self._path(name)), source[1]), source
    except SettingsError as error:
      raise RequestError(500, str(error)) from error

  async def _load(self, name: str, path: str, chosen: settings.Settings) -> Model:
    try:
      model = await asyncio.to_thread(Model, path, chosen)
    except Exception as error:
      raise SettingsError(f"model '{name}' does not load: {error}") from error
    seconds = self._run_seconds
    self._loaded.add(model)
    model.seconds = lambda value: seconds.observe(value, tags={"model": name})
    return model


def _route(http: HttpRequest) -> tuple[str, str]:
  """The model and the action of a path, "" for paths of the server."""
  parts = http.url.path.strip("/").split("/")
  method = http.method
  if method == "GET" and parts in (["v2"], ["v2", "health", "live"], ["v2", "health", "ready"]):
    return "", "server"
  if parts[:2] == ["v2", "models"] and len(parts) == 3 and method == "GET":
    return parts[2], "metadata"
  if parts[:2] == ["v2", "models"] and len(parts) == 4:
    if parts[3] == "ready" and method == "GET":
      return parts[2], "ready"
    if parts[3] in ("infer", "infer_stream") and method == "POST":
      return parts[2], parts[3]
  raise RequestError(404, f"there is nothing at {method} {http.url.path}")


def _metadata(name: str, model: Model) -> dict[str, Any]:
  described: dict[str, Any] = {"name": name, "platform": "husk", "inputs": [], "outputs": []}
  if model.signature is not None:
    described |= model.signature.describe()
  functions = {key: one.describe() for key, one in model.functions.items()}
  return described | {"parameters": {"functions": functions}}


def _body(text: bytes) -> Mapping[str, Any]:
  try:
    body = json.loads(text)
  except (ValueError, RecursionError):
    raise RequestError(400, "the body of the request is not JSON") from None
  if not isinstance(body, dict):
    raise RequestError(400, "the body of the request is no object of JSON")
  return body


def _mapping(body: Mapping[str, Any], name: str) -> Mapping[str, Any]:
  value = body.get(name) or {}
  if not isinstance(value, dict):
    raise RequestError(400, f"'{name}' of the request is no object of JSON")
  return value


def _list(body: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
  value = body.get(name) or []
  if not isinstance(value, list) or any(
    not isinstance(one, dict) or not isinstance(one.get("name"), str) for one in value
  ):
    raise RequestError(400, f"'{name}' of the request is no list of objects with a name")
  return value


def _inputs(body: Mapping[str, Any]) -> Arrays:
  def tensor(one: Mapping[str, Any]) -> tuple[str, str, list[Any], list[Any]]:
    name, shape, data = one["name"], one.get("shape"), one.get("data")
    if not isinstance(shape, list) or not isinstance(data, list):
      raise RequestError(400, f"input '{name}' lacks its shape or its data, which are lists")
    return name, str(one.get("datatype")), shape, data

  return protocol.read_inputs(map(tensor, _list(body, "inputs")))


def _read(inputs: Arrays, parameters: Mapping[str, Any]) -> Request:
  asked = request.read(inputs, parameters)
  if asked.sequence_id is not None or asked.sequence_start or asked.sequence_end:
    raise RequestError(
      400, "any replica may get a request, so there are no sequences: ask for infer_stream"
    )
  return asked


def _outputs(results: Arrays) -> list[dict[str, Any]]:
  return [
    {
      "name": name,
      "datatype": protocol.datatype(array),
      "shape": list(array.shape),
      "data": array.reshape(-1).tolist(),
    }
    for name, array in results.items()
  ]


def _json(value: dict[str, Any]) -> str:
  """JSON, with null for numbers that are not finite: JSON has none."""
  try:
    return json.dumps(value, allow_nan=False)
  except ValueError:
    for output in value["outputs"]:
      output["data"] = [
        None if isinstance(one, float) and one - one != 0 else one for one in output["data"]
      ]
    return json.dumps(value, allow_nan=False)


async def _events(
  start: Mapping[str, Any], first: int, tokens: AsyncGenerator[int]
) -> AsyncIterator[str]:
  """An event for each token. An error after the first one is the last event."""

  def event(more: Mapping[str, Any]) -> str:
    return f"data: {json.dumps({**start, **more})}\n\n"

  def token_event(token: int) -> str:
    output = {"name": protocol.TOKEN, "datatype": "INT64", "shape": [1], "data": [token]}
    return event({"outputs": [output]})

  try:
    yield token_event(first)
    async for token in tokens:
      yield token_event(token)
  except RequestError as error:
    yield event({"outputs": [], "parameters": {"error": error.text, "status": error.status}})
  finally:
    await tokens.aclose()
