"""The operators that the library libhusk_ops has for hosts."""

from __future__ import annotations

import functools
import pathlib


@functools.cache
def names() -> frozenset[str]:
  """The names of the operators, such as "aten::mm.out". A test compares the file with the table of
  the library (tests/torch/lower/test_operators.py)."""
  path = pathlib.Path(__file__).with_name("operators.txt")
  return frozenset(path.read_text(encoding="utf-8").split())
