"""Changes to the text of a kernel's module, which keep its lines if possible."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping


def function(source: str, name: str) -> ast.FunctionDef:
  """The definition of a kernel in the syntax tree of its module."""
  for node in ast.parse(source).body:
    if isinstance(node, ast.FunctionDef) and node.name == name:
      return node
  raise ValueError(f"kernel {name}: no function of that name in its source")


def is_users(source: str) -> bool:
  """Whether a module that Inductor wrote has a kernel of the model's author."""
  return "user_autotune" in source


def renamed(source: str, name: str, new_name: str) -> str:
  """The module in which the kernel `name` is called `new_name`. No other function may mention the
  kernel."""
  kernel = function(source, name)
  lines = source.split("\n")
  lines[kernel.lineno - 1] = lines[kernel.lineno - 1].replace(name, new_name, 1)
  return "\n".join(lines)


def with_statements(source: str, name: str, statements: Iterable[str]) -> str:
  """The module in which `statements` are the first statements of a kernel. A kernel without
  statements stays as it is."""
  kernel = function(source, name)
  body = kernel.body
  has_docstring = isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant)
  if has_docstring and len(body) == 1:
    return source
  first = body[1] if has_docstring else body[0]
  if first.lineno == kernel.lineno:
    raise ValueError(
      f"kernel {name}: its body begins on the line of its `def`; put it on a line of its own"
    )
  lines = source.split("\n")
  lines[first.lineno - 1 : first.lineno - 1] = [
    " " * first.col_offset + statement for statement in statements
  ]
  return "\n".join(lines)


def with_parameters(source: str, name: str, types: Mapping[str, str]) -> str:
  """The module in which a kernel has more parameters, after its own and in its signature. `types`
  are the types of the parameters by name."""
  last = function(source, name).args.args[-1]
  assert last.end_lineno is not None  # the parser sets it
  lines = source.split("\n")
  line = lines[last.end_lineno - 1].encode()  # columns of a syntax tree are counted in bytes
  added = "".join(f", {parameter}" for parameter in types).encode()
  lines[last.end_lineno - 1] = (
    line[: last.end_col_offset] + added + line[last.end_col_offset :]
  ).decode()
  entries = "".join(f", {parameter!r}: {kind!r}" for parameter, kind in types.items())
  return re.sub(
    r"('signature': \{[^{}]*)\}",
    lambda signature: f"{signature.group(1)}{entries}}}",
    "\n".join(lines),
    count=1,
  )


def with_whole_ranks(source: str) -> str:
  """The module in which constants have as many dimensions as the blocks of a template. If a factor
  of a product is a constant, Inductor loads it as `tl.full([1], ...)` and broadcasts it to the two
  dimensions of a block, which Triton refuses."""
  if not re.search(r"= \w+\.broadcast_to\(\w+\.shape\)", source):
    return source
  return source.replace("tl.full([1], ", "tl.full([1, 1], ")
