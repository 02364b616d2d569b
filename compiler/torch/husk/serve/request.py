"""A request to a model, independent of the server."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from .errors import RequestError

Arrays = dict[str, np.ndarray[Any, Any]]


@dataclasses.dataclass(frozen=True)
class Request:
  """Inputs by name, and what the parameters of the request say."""

  inputs: Arrays
  function: str | None = None
  sequence_id: str | None = None
  sequence_start: bool = False
  sequence_end: bool = False
  max_tokens: int = 32
  stop_token: int | None = None


def read(inputs: Arrays, parameters: Mapping[str, Any]) -> Request:
  """A request with the parameters that a client has sent. Parameters that Husk does not know are
  left to the server."""
  function = parameters.get("function")
  if function is not None and not isinstance(function, str):
    raise RequestError(400, f"parameter 'function' is {function!r}, must be a string")
  sequence = parameters.get("sequence_id")
  if isinstance(sequence, bool) or not isinstance(sequence, (str, int, type(None))):
    raise RequestError(400, f"parameter 'sequence_id' is {sequence!r}, must be a string or an int")
  return Request(
    inputs,
    function,
    str(sequence) if sequence else None,  # 0 and "" mean that there is none
    _bool(parameters, "sequence_start"),
    _bool(parameters, "sequence_end"),
    _int(parameters, "max_tokens", 1, 32),
    _int(parameters, "stop_token", 0, None),
  )


def _bool(parameters: Mapping[str, Any], name: str) -> bool:
  value = parameters.get(name)
  if value is not None and not isinstance(value, bool):
    raise RequestError(400, f"parameter '{name}' is {value!r}, must be true or false")
  return bool(value)


def _int(parameters: Mapping[str, Any], name: str, smallest: int, default: Any) -> Any:
  value = parameters.get(name)
  if value is None:
    return default
  if isinstance(value, bool) or not isinstance(value, int) or not smallest <= value < 2**31:
    raise RequestError(400, f"parameter '{name}' is {value!r}, must be an int from {smallest} on")
  return value
