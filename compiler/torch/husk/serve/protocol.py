"""Tensors of the KServe v2 protocol in JSON, as arrays of NumPy and back, and the names that all
servers use."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from .errors import RequestError, of_run
from .request import Arrays
from .signature import NUMPY

MAX_DIMS = 16
# The output of a stream.
TOKEN = "token"
# The bounds of the histogram husk_run_seconds.
SECONDS = [factor * 10**power for power in range(-5, 2) for factor in (1, 2.5, 5)]
_DATATYPES = {str(dtype): name for name, dtype in NUMPY.items()}
_TYPES: dict[type, str] = {bool: "bools", int: "integers", float: "floats"}


def read_inputs(tensors: Iterable[tuple[str, str, Sequence[int], Any]]) -> Arrays:
  """The arrays of the inputs of a request. A tensor is a name, a datatype, a shape and the data."""
  inputs: Arrays = {}
  for name, datatype, shape, data in tensors:
    if name in inputs:
      raise RequestError(400, f"the request has two inputs '{name}'")
    inputs[name] = read(name, datatype, shape, data)
  return inputs


def select_outputs(results: Arrays, names: Sequence[str]) -> Arrays:
  """The outputs of these names; all of them if there are no names."""
  for name in names:
    if name not in results:
      known = ", ".join(repr(one) for one in results)
      raise RequestError(400, f"there is no output '{name}': the outputs are {known}")
  return {name: results[name] for name in names or results}


def read(name: str, datatype: str, shape: Sequence[int], data: Any) -> np.ndarray[Any, Any]:
  """The array of an input of a request. `data` is a list of numbers, nested or not, or the bytes of
  the elements. Every mistake of the request raises RequestError."""
  dtype = NUMPY.get(datatype)
  if dtype is None:
    raise RequestError(
      400, f"input '{name}' has datatype {datatype}: the datatypes are {', '.join(NUMPY)}"
    )
  count = _count(name, shape, dtype.itemsize)
  if isinstance(data, (bytes, bytearray)):
    if len(data) != count * dtype.itemsize:
      raise RequestError(
        400,
        f"input '{name}' has {len(data)} bytes, shape {list(shape)} of {datatype} has "
        f"{count * dtype.itemsize}",
      )
    if datatype == "BOOL":  # a byte other than 0 and 1 is no bool of C++
      return (np.frombuffer(data, np.uint8) != 0).reshape(shape)
    return np.frombuffer(data, dtype).reshape(shape)
  try:
    # As objects: NumPy would otherwise take one type for all elements, which can be large (text as
    # long as the longest one) or not exact (floats for 2**63 and 1).
    array = np.asarray(data, dtype=object)
    _check_elements(name, array, datatype, count)
    with np.errstate(over="ignore"):
      return array.astype(dtype).reshape(shape)
  except MemoryError as error:
    raise of_run(error) from error
  except (ValueError, OverflowError, TypeError, RecursionError):
    raise RequestError(400, f"the data of input '{name}' is not a tensor of {datatype}") from None


def datatype(array: np.ndarray[Any, Any]) -> str:
  """The datatype of an array of a result."""
  return _DATATYPES[str(array.dtype)]


def _count(name: str, shape: Sequence[int], itemsize: int) -> int:
  """The number of elements of a shape."""
  if len(shape) > MAX_DIMS:
    raise RequestError(400, f"input '{name}' has {len(shape)} dims, at most {MAX_DIMS} are allowed")
  for size in shape:
    if isinstance(size, bool) or not isinstance(size, int) or not 0 <= size < 2**63:
      raise RequestError(400, f"the shape of input '{name}' has the size {size!r}")
  # NumPy leaves out sizes of 0 when it computes the largest stride.
  if math.prod(max(size, 1) for size in shape) * itemsize >= 2**63:
    raise RequestError(400, f"the shape {list(shape)} of input '{name}' has too many elements")
  return math.prod(shape)


def _check_elements(name: str, array: np.ndarray[Any, Any], datatype: str, count: int) -> None:
  """Refuses elements that the datatype does not have, apart from the rounding of floats."""
  types = set(map(type, array.reshape(-1)))
  if types & {list, tuple}:
    raise RequestError(400, f"the data of input '{name}' is not a tensor: its lists differ in size")
  if array.size != count:
    raise RequestError(400, f"input '{name}' has {array.size} elements, its shape has {count}")
  dtype = NUMPY[datatype]
  allowed = {"f": {int, float, bool}, "b": {bool}}.get(dtype.kind, {int})
  for wrong in types - allowed:
    found = _TYPES.get(wrong, "values that are no numbers")
    raise RequestError(400, f"input '{name}' has the datatype {datatype}, its data has {found}")
  if dtype.kind in "iu" and count:
    limits = np.iinfo(dtype)
    for number in (array.min(), array.max()):
      if not limits.min <= number <= limits.max:
        text = f"the number {number}" if number.bit_length() <= 64 else "a number of many digits"
        raise RequestError(400, f"input '{name}' has {text}, which is no {datatype}")
