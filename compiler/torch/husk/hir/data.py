"""Statements of a `.hir` as values of JSON, and back. Other functions find the names in statements,
and copy statements with other names. Buffers keep their identity."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from . import expr, statements
from .expr import Expr, Name, Op
from .statements import Buffer, CheckStride, Let

_CLASSES = {
  name: one
  for module in (expr, statements)
  for name, one in vars(module).items()
  if isinstance(one, type) and dataclasses.is_dataclass(one)
}


@functools.cache
def _fields(one: type[Any]) -> tuple[str, ...]:
  return tuple(field.name for field in dataclasses.fields(one))


def encoded(value: Any) -> dict[str, Any]:
  """Statements, results and lists of them as a value of JSON."""
  buffers: dict[int, int] = {}  # the number of a buffer by its id
  rows: list[dict[str, Any]] = []

  def encode(one: Any) -> Any:
    if isinstance(one, Buffer):
      buffer = one.row()
      if id(buffer) not in buffers:
        buffers[id(buffer)] = len(rows)
        rows.append({})
        rows[buffers[id(buffer)]] = fields(buffer)
      return {"buffer": buffers[id(buffer)]}
    if isinstance(one, list):
      return [encode(item) for item in one]
    if isinstance(one, tuple):
      return {"tuple": [encode(item) for item in one]}
    if dataclasses.is_dataclass(one):
      return {"class": type(one).__name__, **fields(one)}
    return one

  def fields(one: Any) -> dict[str, Any]:
    return {name: encode(getattr(one, name)) for name in _fields(type(one))}

  return {"value": encode(value), "buffers": rows}


def decoded(data: Mapping[str, Any]) -> Any:
  """What `encoded` was given."""
  buffers = [Buffer(row["name"], row["space"]) for row in data["buffers"]]

  def decode(one: Any) -> Any:
    if isinstance(one, list):
      return [decode(item) for item in one]
    if not isinstance(one, dict):
      return one
    if "buffer" in one and "class" not in one:
      return buffers[one["buffer"]]
    if "tuple" in one:
      return tuple(decode(item) for item in one["tuple"])
    values = {key: decode(item) for key, item in one.items() if key != "class"}
    return _CLASSES[one["class"]](**values)

  for buffer, row in zip(buffers, data["buffers"]):
    for key, value in row.items():
      setattr(buffer, key, decode(value))
  return decode(data["value"])


def parts(value: Any) -> Iterator[Any]:
  """The objects that a statement, or a list of them, consists of. A buffer comes once."""
  seen: set[int] = set()
  stack = [value]
  while stack:
    one = stack.pop()
    if isinstance(one, Buffer):
      one = one.row()
      if id(one) in seen:
        continue
      seen.add(id(one))
    if isinstance(one, list | tuple):
      stack += one
    elif dataclasses.is_dataclass(one):
      yield one
      stack += [getattr(one, name) for name in _fields(type(one))]


def names_of(value: Any) -> set[str]:
  """The names of numbers, inputs and buffers in statements."""
  return {one.name for one in parts(value) if isinstance(one, Name | Buffer | Let | CheckStride)}


def rewritten(
  value: Any, names: Mapping[str, str], replace: Callable[[Op], Expr | None] = lambda one: None
) -> Any:
  """A copy with other names of numbers, inputs and buffers, and with what `replace` returns, unless
  that is None, in place of operations."""
  buffers: dict[int, Buffer] = {}

  def copied(one: Any) -> Any:
    if isinstance(one, list | tuple):
      return type(one)(copied(item) for item in one)
    if isinstance(one, Buffer):
      buffer = one.row()
      if id(buffer) not in buffers:
        own = buffers[id(buffer)] = dataclasses.replace(buffer)
        own.name, own.bytes = names.get(buffer.name, buffer.name), copied(buffer.bytes)
      return buffers[id(buffer)]
    if isinstance(one, Op) and (other := replace(one)) is not None:
      return other
    if not dataclasses.is_dataclass(one):
      return one
    changes = {name: copied(getattr(one, name)) for name in _fields(type(one))}
    if isinstance(one, Name | Let | CheckStride):
      changes["name"] = names.get(one.name, one.name)
    return type(one)(**changes)

  return copied(value)
