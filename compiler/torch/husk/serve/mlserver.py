"""A runtime of MLServer, which serves an artifact by the KServe v2 protocol.

In model-settings.json, "implementation" is "husk.serve.mlserver.HuskModel", "parameters.uri" the
path of the artifact, and "parameters.extra" has the fields of `husk.serve.Settings`. More than 1 in
"max_batch_size" says that dim 0 is a batch; that is the only way to say so.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

from . import protocol, request, settings
from .errors import RequestError, SettingsError
from .model import Model
from .request import Arrays, Request

try:
  from mlserver import MLModel, types
  from mlserver.batching import load_batching
  from mlserver.errors import MLServerError
  from mlserver.utils import get_model_uri
except ModuleNotFoundError as error:
  raise ModuleNotFoundError(
    f"husk.serve.mlserver needs MLServer ({error}): run `pip install './compiler/torch[mlserver]'`",
    name=error.name,
  ) from error

from . import mlserver_metrics as metrics

# MLServer's batching joins requests along dim 0 of their inputs. Each request that Husk passes it
# has one input of this name, with one element: the request itself.
GATHERED = "husk.requests"


class HuskModel(MLModel):
  """An artifact behind MLServer."""

  _model: Model | None = None
  _is_gathering = False

  async def load(self) -> bool:
    try:
      uri = await get_model_uri(self.settings, wellknown_filenames=["model.husk"])
      chosen = self._read_settings()
      self._model = await asyncio.to_thread(Model, uri, chosen)
      self._describe(self._model)
      if self.settings.cache_enabled and self._model.has_states:
        raise SettingsError(
          "the artifact has states, so an answer cannot be used again: leave cache_enabled out"
        )
      if chosen.max_batch_size > 1:
        await self._gather_requests()
    except (SettingsError, ValueError, OSError) as error:
      raise MLServerError(f"model '{self.name}': {error}", 400) from error
    except MLServerError:
      raise
    except Exception as error:
      raise MLServerError(f"model '{self.name}': {error}", 500) from error
    self._observe(self._model)
    return True

  async def unload(self) -> bool:
    """Requests under way are answered; the memory is free after the last one."""
    if self._model is not None:
      self._model.close()
    return True

  async def predict(self, payload: Any) -> Any:
    """Answers one request, or those that MLServer has gathered."""
    model = self._loaded()
    if self._is_gathering:
      requests = payload.inputs[0].data.root
      answers = await model.infer_batch(requests)
      self._batch_requests.observe(len(requests))
      return self._gathered_response(answers)
    with self._answering():
      asked = self._read(payload)
      with self._requests.track_inprogress():
        return self._response(payload, await model.infer(asked))

  async def predict_stream(self, payloads: AsyncIterator[Any]) -> AsyncIterator[Any]:
    """Yields one response for each token. MLServer has sent the status before it asks for the
    first one, so an error is a last response, with the parameters `error` and `status`."""
    model = self._loaded()
    async for payload in payloads:
      try:
        with self._requests.track_inprogress():
          async for token in model.stream(self._read(payload)):
            yield self._token_response(payload, token)
      except RequestError as error:
        self._note_failure()
        parameters = types.Parameters(error=error.text, status=error.status)
        yield self._make_response(payload, [], parameters)

  async def metadata(self) -> Any:
    described = await super().metadata()
    described.platform = "husk"
    model = self._loaded()
    described.parameters = types.Parameters(
      functions={name: one.describe() for name, one in model.functions.items()}
    )
    return described

  # Load.

  def _read_settings(self) -> settings.Settings:
    parameters = self.settings.parameters
    extra = dict(parameters.extra or {}) if parameters else {}
    if "max_batch_size" in extra:
      raise SettingsError("max_batch_size belongs beside 'parameters', where MLServer reads it")
    size = self.settings.max_batch_size
    if size > 1:
      if self.settings.max_batch_time <= 0:
        raise SettingsError(
          "max_batch_size needs max_batch_time, the seconds to wait for further requests: MLServer "
          "gathers none without it"
        )
      if multiprocessing.parent_process() is not None:
        raise SettingsError(
          'max_batch_size needs "parallel_workers": 0 in settings.json: MLServer would join '
          "requests before Husk could check them. Sessions run in parallel without workers"
        )
    return settings.read({**extra, "max_batch_size": size})

  def _describe(self, model: Model) -> None:
    """Takes inputs and outputs from the artifact, and refuses others in model-settings.json."""
    signature = model.signature
    described: Mapping[str, list[dict[str, Any]]] = (
      signature.describe() if signature else {"inputs": [], "outputs": []}
    )
    for kind, declared in [("inputs", self.settings.inputs), ("outputs", self.settings.outputs)]:
      for tensor in declared or []:
        one = {
          "name": tensor.name,
          "datatype": getattr(tensor.datatype, "value", tensor.datatype),
          "shape": list(tensor.shape),
        }
        if one not in described[kind]:
          raise SettingsError(
            f"model-settings.json declares {one} in '{kind}', the artifact has {described[kind]}: "
            "leave it out"
          )
    self.inputs = [types.MetadataTensor(**one) for one in described["inputs"]]
    self.outputs = [types.MetadataTensor(**one) for one in described["outputs"]]

  async def _gather_requests(self) -> None:
    """Puts a check of each request before MLServer's batching, which joins whatever it gets and
    fails all requests of a batch if one is wrong."""
    if "predict" not in self.__dict__:  # MLServer has left it out, as it does when it loads again
      await load_batching(self)
    self._gather = self.predict
    self._is_gathering = True
    self.predict = self._predict_gathered

  async def _predict_gathered(self, payload: Any) -> Any:
    with self._answering(), contextlib.ExitStack() as entered:
      # From here on the model stays open, though the task begins later.
      entered.enter_context(self._loaded().request())
      # A client that vanishes cancels its request. MLServer's batching would then lose the answers
      # of the batch, so the request goes on.
      task = asyncio.create_task(self._answer_gathered(payload, entered.pop_all()))
      return await asyncio.shield(task)

  async def _answer_gathered(self, payload: Any, entered: contextlib.ExitStack) -> Any:
    with entered, self._requests.track_inprogress():
      asked = self._read(payload)
      one = types.RequestInput(name=GATHERED, datatype="BYTES", shape=[1], data=[asked])
      response = await self._gather(types.InferenceRequest(inputs=[one]))
      answer = response.outputs[0].data.root[0]
      if isinstance(answer, RequestError):
        raise answer
      return self._response(payload, answer)

  def _gathered_response(self, answers: list[Any]) -> Any:
    output = types.ResponseOutput(
      name=GATHERED, datatype="BYTES", shape=[len(answers)], data=answers
    )
    return types.InferenceResponse(model_name=self.name, outputs=[output])

  # Requests and responses.

  @contextlib.contextmanager
  def _answering(self) -> Iterator[None]:
    """Makes the errors of Husk those of MLServer."""
    try:
      yield
    except RequestError as error:
      self._note_failure()
      raise MLServerError(error.text, error.status) from error

  def _note_failure(self) -> None:
    """Makes the model, and with it the server, not ready after its device has failed."""
    if self._model is not None and self._model.failure is not None:
      self.ready = False

  def _loaded(self) -> Model:
    if self._model is None:
      raise MLServerError(f"model '{self.name}' is not loaded", 503)
    return self._model

  def _read(self, payload: Any) -> Request:
    inputs = protocol.read_inputs(
      (
        one.name,
        getattr(one.datatype, "value", one.datatype),
        one.shape,
        getattr(one.data, "root", one.data),
      )
      for one in payload.inputs
    )
    parameters = payload.parameters.model_dump() if payload.parameters else {}
    return request.read(inputs, parameters)

  def _response(self, payload: Any, results: Arrays) -> Any:
    selected = protocol.select_outputs(results, [one.name for one in payload.outputs or []])
    outputs = [
      types.ResponseOutput(
        name=name,
        datatype=protocol.datatype(array),
        shape=list(array.shape),
        data=array.reshape(-1).tolist(),
      )
      for name, array in selected.items()
    ]
    return self._make_response(payload, outputs)

  def _token_response(self, payload: Any, token: int) -> Any:
    output = types.ResponseOutput(name=protocol.TOKEN, datatype="INT64", shape=[1], data=[token])
    return self._make_response(payload, [output])

  def _make_response(self, payload: Any, outputs: list[Any], parameters: Any = None) -> Any:
    return types.InferenceResponse(
      id=payload.id,
      model_name=self.name,
      model_version=self.version,
      outputs=outputs,
      parameters=parameters,
    )

  # Metrics.

  def _observe(self, model: Model) -> None:
    labels = (self.name, self.version or "")
    model.seconds = metrics.run_seconds.labels(*labels).observe
    self._batch_requests = metrics.batch_requests.labels(*labels)
    self._requests = metrics.requests.labels(*labels)
    # Streams end on a thread after their request, so the number is looked up when it is asked for.
    metrics.sequences.labels(*labels).set_function(lambda: model.live_sequences)
