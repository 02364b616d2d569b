"""Literals of a `.hir`: strings, numbers and the names of dtypes."""

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
  import torch

_DTYPES = {
  "bool": "bool",
  "uint8": "u8",
  "int8": "i8",
  "uint16": "u16",
  "int16": "i16",
  "uint32": "u32",
  "int32": "i32",
  "uint64": "u64",
  "int64": "i64",
  "float16": "f16",
  "bfloat16": "bf16",
  "float32": "f32",
  "float64": "f64",
  "complex64": "c64",
  "complex128": "c128",
  "float8_e4m3fn": "f8e4m3fn",
  "float8_e5m2": "f8e5m2",
  "float8_e4m3fnuz": "f8e4m3fnuz",
  "float8_e5m2fnuz": "f8e5m2fnuz",
}


def dtype(torch_dtype: "torch.dtype | str") -> str | None:
  """The name of a torch dtype in a `.hir`; None if a `.hir` does not have it."""
  return _DTYPES.get(str(torch_dtype).removeprefix("torch."))


def itemsize(name: str) -> int:
  """The bytes of an element of a dtype, by the name in a `.hir`."""
  if name == "bool":
    return 1
  digits = re.match(r"(?:[uif]|bf|c)(\d+)", name)
  assert digits is not None, name
  return int(digits[1]) // 8


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
