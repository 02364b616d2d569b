"""Literals of a `.hir`: strings, numbers and the names of dtypes."""

import re
from typing import TYPE_CHECKING

from .. import dtypes
from ..errors import Unsupported

if TYPE_CHECKING:
  import torch

_NAMES = {torch_name: name for name, torch_name in dtypes.TORCH.items()}


def dtype(torch_dtype: "torch.dtype | str") -> str | None:
  """The name of a torch dtype in a `.hir`; None if a `.hir` does not have it."""
  return _NAMES.get(str(torch_dtype).removeprefix("torch."))


def required_dtype(torch_dtype: "torch.dtype", owner: str) -> str:
  """The name of a torch dtype in a `.hir`. Raises Unsupported if a `.hir` does not have it; `owner`
  is what has this dtype."""
  name = dtype(torch_dtype)
  if name is None:
    raise Unsupported(
      f"{owner} has the dtype {torch_dtype}, which artifacts do not have",
      remedy=f"convert it by .to() to one that they have ({', '.join(dtypes.TORCH.values())})",
    )
  return name


def itemsize(name: str) -> int:
  """The bytes of an element of a dtype, by the name in a `.hir`."""
  return dtypes.BYTES[name]


def alignment(torch_dtype: "torch.dtype") -> int:
  """The alignment in bytes that every kernel assumes of the address of a tensor: that of one
  number, which is half of a complex element."""
  return torch_dtype.itemsize // 2 if torch_dtype.is_complex else torch_dtype.itemsize


def quoted(text: str) -> str:
  """A string literal."""
  plain = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t"}
  return (
    '"'
    + "".join(plain.get(c, c if c >= " " and c != "\x7f" else f"\\x{ord(c):02x}") for c in text)
    + '"'
  )


def number(value: bool | int | float) -> str:
  """An int, bool or float literal."""
  if isinstance(value, bool):
    return "true" if value else "false"
  if isinstance(value, int):
    return str(value)
  text = repr(float(value))
  return text if re.search(r"[.en]", text) else text + ".0"  # "inf" and "nan" contain an n
