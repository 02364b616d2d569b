"""Inputs and outputs of a function as tensors of the KServe v2 protocol.

The protocol has tensors only: an int, a float or a bool of a function is a tensor of one element
there, and so is a tensor without dimensions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .. import dtypes
from ..runtime import Function
from ..runtime.ranked import RankedFunction
from .errors import RequestError, SettingsError

# Datatypes of the protocol by dtype of Husk. The protocol has no complex numbers and no floats of 8
# bits.
DATATYPES = {name: word for name, word in dtypes.KSERVE.items() if name in dtypes.NUMPY}
NUMPY: dict[str, np.dtype[Any]] = {
  word: np.dtype(dtypes.NUMPY[name]) for name, word in DATATYPES.items()
}
# Neither JSON nor NumPy has bf16, so it is FP32 for clients, which has all of its values.
DATATYPES["bf16"] = DATATYPES["f32"]
_NUMBERS = {"int": "i64", "float": "f64", "bool": "bool"}
UNBOUNDED = 2**63 - 1


@dataclasses.dataclass(frozen=True)
class Value:
  """An input or an output. `ranges` has the smallest and the largest size of each dimension; those
  of outputs are not known."""

  name: str
  kind: str
  datatype: str
  ranges: tuple[tuple[int, int], ...]
  is_written: bool = False  # a run writes to the input
  is_bf16: bool = False  # in the artifact

  @property
  def is_one_number(self) -> bool:
    """Whether the value has no dimensions, and is a tensor of one element for clients."""
    return self.kind != "tensor" or not self.ranges

  @property
  def shape(self) -> list[int]:
    """The shape for clients, with -1 for sizes that may vary."""
    if self.is_one_number:
      return [1]
    return [low if low == high else -1 for low, high in self.ranges]

  def describe(self) -> dict[str, Any]:
    return {"name": self.name, "datatype": self.datatype, "shape": self.shape}

  def argument(self, array: np.ndarray[Any, Any]) -> Any:
    """An array of a client as the argument of the function. If the function writes to the input, it
    gets a copy: the bytes of a request are read-only, or several requests have the array."""
    if str(array.dtype) != str(NUMPY[self.datatype]):
      raise RequestError(
        400, f"input '{self.name}' has the type {array.dtype}, must be {self.datatype}"
      )
    if self.is_written:
      array = array.copy()
    if not self.is_one_number:
      return np.ascontiguousarray(array)
    if array.size != 1:
      raise RequestError(
        400, f"input '{self.name}' has shape {list(array.shape)}, must have one element: [1]"
      )
    return np.ascontiguousarray(array).reshape(()) if self.kind == "tensor" else array.item()

  def result(self, value: Any) -> np.ndarray[Any, Any]:
    """A result of the function as an array for a client."""
    array = np.asarray(value, dtype=NUMPY[self.datatype])
    return np.ascontiguousarray(array).reshape(1) if self.is_one_number else array


@dataclasses.dataclass(frozen=True)
class Signature:
  """Inputs and outputs of one function."""

  function: str
  inputs: tuple[Value, ...]
  outputs: tuple[Value, ...]

  def describe(self) -> dict[str, list[dict[str, Any]]]:
    return {
      "inputs": [value.describe() for value in self.inputs],
      "outputs": [value.describe() for value in self.outputs if value.kind != "none"],
    }

  def arguments(self, inputs: Mapping[str, np.ndarray[Any, Any]]) -> list[Any]:
    """The arguments of the function in their order."""
    known = [value.name for value in self.inputs]
    names = ", ".join(repr(name) for name in known) or "none"
    for name in inputs:
      if name not in known:
        raise RequestError(
          400, f"function '{self.function}' has no input '{name}': its inputs are {names}"
        )
    for name in known:
      if name not in inputs:
        raise RequestError(400, f"the request lacks input '{name}' of '{self.function}'")
    return [value.argument(inputs[value.name]) for value in self.inputs]

  def results(self, values: Sequence[Any]) -> dict[str, np.ndarray[Any, Any]]:
    """The results of the function by name. An output that is None is left out."""
    return {
      value.name: value.result(result)
      for value, result in zip(self.outputs, values)
      if value.kind != "none"
    }

  def rows(self, arguments: Sequence[Any]) -> int | None:
    """The size of dim 0 of the arguments, if each of them may be run as part of a batch: its sizes
    lie in their ranges, and dim 0 of all has the same size."""
    sizes = set()
    for value, argument in zip(self.inputs, arguments):
      if argument.ndim != len(value.ranges):
        return None
      if any(not low <= n <= high for n, (low, high) in zip(argument.shape, value.ranges)):
        return None
      sizes.add(argument.shape[0])
    return sizes.pop() if len(sizes) == 1 else None

  @property
  def has_bf16(self) -> bool:
    return any(value.is_bf16 for value in (*self.inputs, *self.outputs))

  @property
  def max_rows(self) -> int:
    return min(value.ranges[0][1] for value in self.inputs)

  def check_batched(self) -> None:
    """Refuses a function that cannot have a batch in dim 0."""
    for value in (*self.inputs, *self.outputs):
      if value.is_one_number:
        raise SettingsError(
          f"function '{self.function}' cannot run batches: '{value.name}' has no dim 0; leave "
          "max_batch_size out"
        )
    if not self.inputs:
      raise SettingsError(f"function '{self.function}' has no inputs: leave max_batch_size out")


def of_function(function: Function | RankedFunction) -> Signature:
  """The signature of a function. Values that the protocol does not have are refused."""
  signature = Signature(
    function.name,
    tuple(_value(function, value) for value in function.inputs),
    tuple(_value(function, value) for value in function.outputs),
  )
  if signature.has_bf16 and not any(value.kind == "tensor" for value in signature.inputs):
    raise SettingsError(
      f"function '{function.name}' has bf16 outputs and no tensor as input, from which the server "
      "takes the memory of outputs: export with another dtype"
    )
  return signature


def _value(function: Function | RankedFunction, value: Mapping[str, Any]) -> Value:
  kind, name = value["kind"], value["name"]
  dtype = value.get("dtype") or _NUMBERS.get(kind)
  if kind == "none" and value in function.outputs:
    return Value(name, kind, "BOOL", ())
  if dtype not in DATATYPES:
    raise SettingsError(
      f"'{name}' of function '{function.name}' is {dtype or kind}, which the protocol of the "
      "server does not have: export with another dtype"
    )
  ranges = value.get("ranges") if kind == "tensor" else ()
  if ranges is None:
    ranges = [(0, UNBOUNDED)] * value["rank"]
  sizes = tuple((low, high) for low, high in ranges)
  return Value(
    name, kind, DATATYPES[dtype], sizes, bool(value.get("written")), is_bf16=dtype == "bf16"
  )
