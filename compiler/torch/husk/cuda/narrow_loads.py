"""Masked loads of 8 and 16 bits in kernels of Inductor.

Where the mask is false, a load gives the value `other`. Triton 3.6 reads neighbouring elements as
one word, and fills it with copies of `other` that are or-ed together: if the sign bit of `other` is
set, all elements of the word but the first are -1. A maximum of int8 codes over a padded window was
-1 there, in place of the largest code. `rewrite` loads 0 in such places and selects afterwards."""

from __future__ import annotations

import ast
import re

# A literal may be such a value if it is below 0 or above 127.
_LITERAL = re.compile(r"\bother=(?:-\d|1[3-9]\d|12[89]|[2-9]\d\d|\d{4})")
_POINTER = re.compile(r"'(\w+)': '\*([iu])(8|16)'")


def rewrite(source: str) -> str:
  """The module `source` with these loads. Lines keep their numbers."""
  if not _LITERAL.search(source):
    return source
  types = {
    name: f"tl.{'u' * (sign == 'u')}int{bits}" for name, sign, bits in _POINTER.findall(source)
  }
  lines = source.encode().split(b"\n")  # columns of a syntax tree are counted in bytes
  loads = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
  for load in sorted(loads, key=lambda node: (node.lineno, node.col_offset), reverse=True):
    dtype = _type(load, types)
    if dtype is None or load.end_lineno != load.lineno:
      continue
    (other,) = (each for each in load.keywords if each.arg == "other")
    value = ast.unparse(other.value)
    other.value = ast.Constant(0)
    text = f"tl.where({ast.unparse(load.args[1])}, {ast.unparse(load)}, {value}).to({dtype})"
    line = lines[load.lineno - 1]
    lines[load.lineno - 1] = line[: load.col_offset] + text.encode() + line[load.end_col_offset :]
  return b"\n".join(lines).decode()


def _type(call: ast.Call, types: dict[str, str]) -> str | None:
  """The type of the elements, if a call is a load that needs another text."""
  if ast.unparse(call.func) != "tl.load" or len(call.args) < 2:
    return None
  values = [each.value for each in call.keywords if each.arg == "other"]
  try:
    value = ast.literal_eval(values[0]) if values else 0
  except ValueError:
    return None  # no number
  names = (node.id for node in ast.walk(call.args[0]) if isinstance(node, ast.Name))
  dtype = next((types[name] for name in names if name in types), None)
  return dtype if isinstance(value, int) and (value < 0 or value > 127) else None
