"""Tensors of the KServe v2 protocol in JSON, as arrays of NumPy and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .errors import RequestError
from .signature import NUMPY

MAX_DIMS = 16
_DATATYPES = {str(dtype): name for name, dtype in NUMPY.items()}


def read(name: str, datatype: str, shape: Sequence[int], data: Any) -> np.ndarray[Any, Any]:
  """The array of an input of a request. `data` is a list of numbers, nested or not, or the bytes of
  the elements. Every mistake of the request raises RequestError."""
  dtype = NUMPY.get(datatype)
  if dtype is None:
    raise RequestError(
      400, f"input '{name}' has datatype {datatype}: the datatypes are {', '.join(NUMPY)}"
    )
  count = _count(name, shape)
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
    array = np.asarray(data)
  except (ValueError, OverflowError, TypeError, RecursionError):
    raise RequestError(400, f"the data of input '{name}' is not a tensor") from None
  if array.size != count:
    raise RequestError(
      400, f"input '{name}' has {array.size} elements, shape {list(shape)} has {count}"
    )
  return _converted(name, array, datatype, dtype).reshape(shape)


def datatype(array: np.ndarray[Any, Any]) -> str:
  """The datatype of an array of a result."""
  return _DATATYPES[str(array.dtype)]


def _count(name: str, shape: Sequence[int]) -> int:
  """The number of elements of a shape."""
  if len(shape) > MAX_DIMS:
    raise RequestError(400, f"input '{name}' has {len(shape)} dims, at most {MAX_DIMS} are allowed")
  count = 1
  for size in shape:
    if isinstance(size, bool) or not isinstance(size, int) or not 0 <= size < 2**63:
      raise RequestError(400, f"the shape of input '{name}' has the size {size!r}")
    count *= size
  if count >= 2**63:
    raise RequestError(400, f"the shape {list(shape)} of input '{name}' has too many elements")
  return count


def _converted(
  name: str, array: np.ndarray[Any, Any], datatype: str, dtype: np.dtype[Any]
) -> np.ndarray[Any, Any]:
  """Numbers of JSON with the dtype of the input. A number that the dtype does not have is refused,
  apart from the rounding of floats."""
  if not array.size:
    return np.empty(0, dtype)
  kinds = {"f": "fiub", "b": "b"}.get(dtype.kind, "iu")
  if array.dtype.kind not in kinds:
    found = {"f": "floats", "i": "integers", "u": "integers", "b": "bools"}.get(
      array.dtype.kind, "values that are no numbers, or too large ones"
    )
    raise RequestError(400, f"input '{name}' has the datatype {datatype}, its data has {found}")
  if dtype.kind in "iu":
    limits = np.iinfo(dtype)
    smallest, largest = int(array.min()), int(array.max())
    if smallest < limits.min or largest > limits.max:
      number = smallest if smallest < limits.min else largest
      raise RequestError(400, f"input '{name}' has the number {number}, which is no {datatype}")
  with np.errstate(over="ignore"):
    return array.astype(dtype)
