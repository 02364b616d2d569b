"""An artifact that serves many clients."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np

from ..runtime import DeviceError, Program, RankedProgram, load, load_ranks
from . import signature as signatures
from .errors import RequestError, SettingsError, of_run
from .request import Arrays, Request
from .sessions import GENERATOR, Lane, Pool, Sequences
from .sessions import Sequence as LiveSequence
from .settings import Settings
from .signature import Signature

Result = TypeVar("Result")


class Model:
  """A loaded artifact, with sessions for requests that run at the same time.

  `infer`, `infer_batch` and `stream` run on threads of the model, off the event loop; the GIL is
  free during a run. Every failure of a request is a RequestError. `close` lets requests under way
  end, and frees the memory of the artifact after the last one.

  `seconds` gets the time of each run, by default nothing does.
  """

  def __init__(self, path: str | os.PathLike[str], settings: Settings | None = None) -> None:
    self.settings = settings or Settings()
    self.seconds: Callable[[float], None] = lambda seconds: None
    # The text of the failure after which the device answers nothing more.
    self.failure: str | None = None
    program = _load(path, self.settings)
    self._signatures = _signatures(program)
    states = [state["name"] for state in program.states()]
    self.has_states = any(name != GENERATOR for name in states)
    self._torch: Any = None
    if self.settings.device != "cpu":
      self._torch = _import_torch("a model on a GPU needs PyTorch, which copies arrays there")
    elif any(one.has_bf16 for one in self._signatures.values()):
      self._torch = _import_torch("a model with bf16 inputs or outputs needs PyTorch, which has it")
    self.function = self._default_function(program)
    self._check()
    self._program: Program | RankedProgram | None = program
    self._pool = Pool(self._make_lane, max(self.settings.sessions, 8))
    self._sequences = Sequences(self._pool, self.settings)
    self._executor = ThreadPoolExecutor(self.settings.sessions, "husk")
    self._lock = threading.Lock()
    self._under_way = 0
    self._is_closing = False
    with self._pool.lane():  # a session that cannot be made is an error of the load
      pass

  # Properties.

  @property
  def functions(self) -> dict[str, Signature]:
    """The functions that clients may call, by name."""
    return dict(self._signatures)

  @property
  def signature(self) -> Signature | None:
    """The function for requests that name none; None if every request must name one."""
    return self._signatures[self.function] if self.function else None

  @property
  def live_sequences(self) -> int:
    return len(self._sequences)

  @property
  def under_way(self) -> int:
    """The number of requests that wait or run."""
    return self._under_way

  def check_health(self) -> None:
    """Raises RequestError if the device has failed, after which only a new process helps."""
    if self.failure is not None:
      raise RequestError(500, self.failure)

  # Requests.

  async def infer(self, request: Request) -> Arrays:
    """Answers one request."""
    with self.request():
      return await self._in_thread(self.run, request)

  async def infer_batch(self, requests: Sequence[Request]) -> list[Arrays | RequestError]:
    """Answers requests by as few runs as possible; max_batch_size must be set. The caller keeps the
    model open by `request`."""
    return await self._in_thread(self.run_batch, requests)

  async def stream(self, request: Request) -> AsyncIterator[int]:
    """Yields the tokens that follow those of the request. The first function takes the tokens, the
    next function the last token; the state of the stream is its own."""
    with self.request():
      tokens = Tokens(self, request)
      try:
        while (token := await self._in_thread(tokens.next)) is not None:
          yield token
      finally:
        # A step may still run if the client has gone. Closing waits for it on a thread, since the
        # event loop must not wait.
        self._executor.submit(tokens.close)

  def run(self, request: Request) -> Arrays:
    """Answers one request on the calling thread."""
    self._sequences.drop_idle()
    if request.sequence_id is not None:
      return self._run_sequence(request)
    if request.sequence_start or request.sequence_end:
      raise RequestError(400, "sequence_start and sequence_end need the parameter sequence_id")
    signature = self._find(request.function or self.function)
    arguments = signature.arguments(request.inputs)
    with self._failures(), self._pool.lane() as lane:
      return signature.results(self._call(lane, signature, arguments))

  def run_batch(self, requests: Sequence[Request]) -> list[Arrays | RequestError]:
    """Answers requests on the calling thread. Requests whose sizes agree but for dim 0 share a run.
    If that run fails, each of them runs alone, so that no request fails by the fault of another."""
    answers: list[Any] = [None] * len(requests)
    groups: dict[Any, list[tuple[int, list[Any], int]]] = {}
    for index, request in enumerate(requests):
      try:
        if request.sequence_id is not None or request.sequence_start or request.sequence_end:
          raise RequestError(400, "a model with max_batch_size has no sequences")
        signature = self._find(request.function or self.function)
        if not _is_batched(signature):
          answers[index] = self.run(request)
          continue
        arguments = signature.arguments(request.inputs)
      except RequestError as error:
        answers[index] = error
        continue
      rows = signature.rows(arguments)
      # Arguments that do not fit get the error of a run of their own.
      shapes = tuple(argument.shape[1:] for argument in arguments) if rows is not None else index
      groups.setdefault((signature.function, shapes), []).append((index, arguments, rows or 0))
    for (function, _), members in groups.items():
      signature = self._signatures[function]
      for part in _parts(members, signature.max_rows, self.settings.max_batch_size):
        for index, answer in self._run_part(signature, part):
          answers[index] = answer
    return answers

  # Life.

  @contextmanager
  def request(self) -> Iterator[None]:
    """Keeps the model open while a request is under way, and refuses it if there are too many."""
    with self._lock:
      if self._program is None:
        raise RequestError(503, "the model has been unloaded: try again")
      if self._under_way >= self.settings.max_queue:
        raise RequestError(
          503, f"{self._under_way} requests are under way, which is max_queue: try again later"
        )
      self._under_way += 1
    try:
      yield
    finally:
      with self._lock:
        self._under_way -= 1
      self._free_if_done()

  def close(self) -> None:
    """Frees the artifact after the requests under way."""
    with self._lock:
      self._is_closing = True
    self._free_if_done()

  def _free_if_done(self) -> None:
    with self._lock:
      if not self._is_closing or self._under_way or self._program is None:
        return
      self._program = None
    # A stream that the client has left may still end its last step, so nothing waits here.
    self._executor.submit(self._sequences.clear)
    self._executor.shutdown(wait=False)
    self._pool.clear()

  # Runs.

  def _make_lane(self) -> Lane:
    program = self._program
    if program is None:
      raise RequestError(503, "the model has been unloaded: try again")
    return Lane(program, self.settings)

  async def _in_thread(self, function: Callable[..., Result], *arguments: Any) -> Result:
    return await asyncio.get_running_loop().run_in_executor(self._executor, function, *arguments)

  def _find(self, name: str | None) -> Signature:
    names = ", ".join(repr(one) for one in self._signatures)
    if name is None:
      raise RequestError(400, f"name one of the functions {names} by the parameter 'function'")
    if name not in self._signatures:
      raise RequestError(404, f"there is no function '{name}': the functions are {names}")
    return self._signatures[name]

  @contextmanager
  def _failures(self) -> Iterator[None]:
    """Makes exceptions of a run answers."""
    try:
      yield
    except RequestError:
      raise
    except Exception as error:
      if isinstance(error, DeviceError):
        self.failure = f"the device has failed: {error}"
      raise of_run(error) from error

  def _call(self, lane: Lane, signature: Signature, arguments: list[Any]) -> list[Any]:
    lane.is_initial = False
    begin = time.perf_counter()
    function = lane.functions[signature.function]
    if self._torch is None:
      results = function(*arguments)
    else:
      if signature.has_bf16:
        function = _with_bf16(self._torch, function, signature)
      results = self._call_on_gpu(function, arguments)
    self.seconds(time.perf_counter() - begin)
    return results

  def _call_on_gpu(self, function: Callable[..., Any], arguments: list[Any]) -> list[Any]:
    """Copies arrays to the device and results back, by PyTorch."""
    torch: Any = self._torch
    try:
      on_device = [
        torch.from_numpy(one if one.flags.writeable else one.copy()).to(self.settings.device)
        if isinstance(one, np.ndarray)
        else one
        for one in arguments
      ]
      results = function(*on_device)
      return [one.cpu().numpy() if isinstance(one, torch.Tensor) else one for one in results]
    except torch.OutOfMemoryError as error:
      raise MemoryError(str(error)) from error
    except torch.AcceleratorError as error:
      raise DeviceError(str(error)) from error

  def _run_part(
    self, signature: Signature, part: list[tuple[int, list[Any], int]]
  ) -> Iterator[tuple[int, Arrays | RequestError]]:
    """Answers requests by one run, or if it fails by one run each."""
    if len(part) > 1:
      try:
        yield from self._run_together(signature, part)
        return
      except RequestError:
        pass
    for member in part:
      try:
        yield from self._run_together(signature, [member])
      except RequestError as error:
        yield member[0], error

  def _run_together(
    self, signature: Signature, part: list[tuple[int, list[Any], int]]
  ) -> list[tuple[int, Arrays | RequestError]]:
    columns = list(zip(*(arguments for _, arguments, _ in part)))
    rows = sum(rows for _, _, rows in part)
    with self._failures(), self._pool.lane() as lane:
      joined = [column[0] if len(column) == 1 else np.concatenate(column) for column in columns]
      results = signature.results(self._call(lane, signature, joined))
    for name, array in results.items():
      if array.shape[:1] != (rows,):
        raise RequestError(
          500,
          f"output '{name}' has shape {list(array.shape)} for {rows} rows, so dim 0 is no batch: "
          "leave max_batch_size out",
        )
    answers: list[tuple[int, Arrays | RequestError]] = []
    start = 0
    for index, _, count in part:
      answers.append((index, {name: one[start : start + count] for name, one in results.items()}))
      start += count
    return answers

  def _run_sequence(self, request: Request) -> Arrays:
    """Answers a request of a sequence, in the session of the sequence."""
    if not self.has_states:
      raise RequestError(400, "the model has no state: leave the parameter sequence_id out")
    if self.settings.max_batch_size > 1:
      raise RequestError(400, "a model with max_batch_size has no sequences")
    name = request.sequence_id
    assert name is not None
    if request.sequence_start:
      # A request that cannot run must not end a live sequence.
      signature = self._find(request.function or self.function)
      arguments = signature.arguments(request.inputs)
      with self._failures():
        sequence = self._sequences.open(name)
    else:
      sequence = self._sequences.find(name)
      following = self.settings.next_function or self.function
      signature = self._find(request.function or following)
      arguments = signature.arguments(request.inputs)
    if not sequence.lock.acquire(blocking=False):
      raise RequestError(409, f"another request of sequence '{name}' is running: wait for it")
    try:
      if sequence.has_ended:
        raise RequestError(404, f"sequence '{name}' has ended")
      try:
        with self._failures():
          results = signature.results(self._call(sequence.lane, signature, arguments))
      except RequestError:
        self._sequences.end(sequence)  # its state may be half written
        raise
      sequence.last_used = time.monotonic()
      if request.sequence_end:
        self._sequences.end(sequence)
      return results
    finally:
      sequence.lock.release()

  # Checks at load.

  def _default_function(self, program: Program | RankedProgram) -> str | None:
    names = program.function_names()
    wanted = self.settings.function
    if wanted is None:
      wanted = "forward" if "forward" in names else names[0] if len(names) == 1 else None
    for name in (wanted, self.settings.next_function):
      if name is not None and name not in names:
        raise SettingsError(
          f"the artifact has no function '{name}', it has {', '.join(map(repr, names))}"
        )
      if name is not None and name not in self._signatures:
        signatures.of_function(program.functions[name])  # raises why
    return wanted

  def _check(self) -> None:
    if self.settings.max_batch_size <= 1:
      return
    if self.has_states:
      raise SettingsError(
        "the artifact has states, so requests cannot share a run: leave max_batch_size out"
      )
    if self.signature is not None:
      self.signature.check_batched()


def _load(path: str | os.PathLike[str], settings: Settings) -> Program | RankedProgram:
  threads = settings.threads or None
  if settings.ranks == 1:
    return load(path, settings.device, threads=threads)
  return load_ranks(path, settings.devices, threads=threads)


class Tokens:
  """The tokens of one stream. Its methods are called by one thread at a time, `close` by any.

  The first function gets the inputs of the request. The next function gets the last token as its
  first tensor of integers; each of its other inputs is the output of the same name of the step
  before, if both functions have such an output, or else an input of the request."""

  def __init__(self, model: Model, request: Request) -> None:
    self._model = model
    self._request = request
    self._sequence: LiveSequence | None = None
    self._left = request.max_tokens
    self._token: int | None = None
    self._lock = threading.Lock()
    self._is_closed = False
    self._first = model._find(request.function or model.function)
    self._next = model._find(model.settings.next_function or self._first.function)
    # The request gives these inputs for the later steps alone.
    later = {value.name for value in self._next.inputs} - {
      value.name for value in self._first.inputs
    }
    first = {name: one for name, one in request.inputs.items() if name not in later}
    self._arguments = self._first.arguments(first)
    self._results: Arrays = {}  # of the last step
    limit = model.settings.max_tokens
    if request.max_tokens > limit:
      raise RequestError(
        400, f"parameter 'max_tokens' is {request.max_tokens}, at most {limit} are allowed"
      )
    self._check()

  def next(self) -> int | None:
    """The next token, None after the last one."""
    with self._lock:
      if self._is_closed or not self._left:
        return None
      model = self._model
      with model._failures():
        if self._sequence is None:
          self._sequence = model._sequences.open(None)
          signature, arguments = self._first, self._arguments
        else:
          signature = self._next
          arguments = [self._argument(value) for value in signature.inputs]
        results = model._call(self._sequence.lane, signature, arguments)
        self._results = signature.results(results)
        self._token = _token(self._results[signature.outputs[0].name])
      self._left -= 1
      if self._token == self._request.stop_token:
        self._left = 0
      return self._token

  def close(self) -> None:
    """Frees the session of the stream."""
    with self._lock:
      self._is_closed = True
      if self._sequence is not None:
        self._model._sequences.close(self._sequence)
        self._sequence = None

  def _argument(self, value: signatures.Value) -> Any:
    """The argument of the next function for an input: the last token, or else the output of this
    name of the step before, or what the request gives."""
    if value is self._token_input:
      return np.full([1] * len(value.ranges), self._token, signatures.NUMPY[value.datatype])
    array = self._results.get(value.name)
    return value.argument(self._request.inputs[value.name] if array is None else array)

  def _check(self) -> None:
    """Refuses functions that are no steps of a stream of tokens."""
    for signature in (self._first, self._next):
      if not signature.outputs or signature.outputs[0].kind != "tensor":
        raise RequestError(
          400,
          f"function '{signature.function}' cannot be streamed: its first output must be logits or "
          "a token",
        )
    following = self._next
    tokens = [value for value in following.inputs if _takes_tokens(value)]
    if not tokens:
      raise RequestError(
        400,
        f"function '{following.function}' cannot be streamed: none of its inputs is a tensor of "
        "integers, which takes the token",
      )
    self._token_input = tokens[0]
    outputs = [{value.name for value in one.outputs} for one in (self._first, following)]
    for value in following.inputs:
      if value is self._token_input or value.name in outputs[0] & outputs[1]:
        continue
      if value.name not in self._request.inputs:
        raise RequestError(
          400,
          f"function '{following.function}' cannot be streamed: nothing gives its input "
          f"'{value.name}', which is neither an output of both functions nor in the request",
        )
      value.argument(self._request.inputs[value.name])  # refuses another type


def _takes_tokens(value: signatures.Value) -> bool:
  """Whether an input may take the token of a stream."""
  return not value.is_one_number and np.issubdtype(signatures.NUMPY[value.datatype], np.integer)


def _token(output: np.ndarray[Any, Any]) -> int:
  """The token of an output: the largest of the logits in the last row, or an integer itself."""
  if not output.size:
    raise RequestError(500, "the output of the function is empty, so there is no next token")
  if np.issubdtype(output.dtype, np.integer):
    return int(output.reshape(-1)[-1])
  return int(output.reshape(-1, output.shape[-1])[-1].argmax())


def _signatures(program: Program | RankedProgram) -> dict[str, Signature]:
  """The signatures of the functions that the protocol can express. The calling convention of each
  function becomes that of flat lists: its inputs in their order, and a tuple of all outputs."""
  found: dict[str, Signature] = {}
  errors = []
  for index, (name, function) in enumerate(program.functions.items()):
    try:
      found[name] = signatures.of_function(function)
    except SettingsError as error:
      errors.append(error)
    inputs, outputs = len(function.inputs), len(function.outputs)
    program.set_trees(index, tuple(range(inputs)), {}, tuple(range(outputs)))
  if not found:
    raise errors[0]
  return found


def _is_batched(signature: Signature) -> bool:
  try:
    signature.check_batched()
  except SettingsError:
    return False
  return True


def _parts(
  members: list[tuple[int, list[Any], int]], max_rows: int, max_requests: int
) -> Iterator[list[tuple[int, list[Any], int]]]:
  """Requests in lists of at most `max_requests`, whose rows together are at most `max_rows`."""
  part: list[tuple[int, list[Any], int]] = []
  rows = 0
  for member in members:
    if part and (rows + member[2] > max_rows or len(part) == max_requests):
      yield part
      part, rows = [], 0
    part.append(member)
    rows += member[2]
  yield part


def _import_torch(reason: str) -> Any:
  try:
    import torch
  except ModuleNotFoundError as error:
    raise SettingsError(f"{reason}: install torch") from error
  return torch


def _with_bf16(
  torch: Any, function: Callable[..., Any], signature: Signature
) -> Callable[..., Any]:
  """A function whose bf16 tensors are f32 for its callers."""

  def called(*arguments: Any) -> list[Any]:
    inputs = [
      one.to(torch.bfloat16) if value.is_bf16 else one
      for value, one in zip(signature.inputs, arguments)
    ]
    results = function(*inputs)
    return [
      one.float() if value.is_bf16 and one is not None else one
      for value, one in zip(signature.outputs, results)
    ]

  return called
