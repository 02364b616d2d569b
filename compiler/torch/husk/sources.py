"""Changes to the text of a kernel's module, which keep its lines where they can."""

import ast
import re


def function(source, name):
  """The definition of a kernel, in the tree of its module."""
  found = next((node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef) and node.name == name), None)
  if found is None:
    raise ValueError(f"kernel {name}: no function of that name in its source")
  return found


def with_statements(source, name, statements):
  """The module with these as the first statements of a kernel; as it is where the kernel has none."""
  kernel = function(source, name)
  body = kernel.body
  documented = isinstance(body[0], ast.Expr) and isinstance(getattr(body[0], "value", None), ast.Constant)
  if documented and len(body) == 1:
    return source
  first = body[1] if documented else body[0]
  if first.lineno == kernel.lineno:
    raise ValueError(f"kernel {name}: its body begins on the line of its `def`; put it on a line of its own")
  lines = source.split("\n")
  lines[first.lineno - 1:first.lineno - 1] = [" " * first.col_offset + statement for statement in statements]
  return "\n".join(lines)


def with_parameters(source, name, types):
  """The module with these parameters (name to type) behind those of a kernel, and in its signature."""
  last = function(source, name).args.args[-1]
  lines = source.split("\n")
  line = lines[last.end_lineno - 1].encode()
  added = "".join(f", {parameter}" for parameter in types).encode()
  lines[last.end_lineno - 1] = (line[:last.end_col_offset] + added + line[last.end_col_offset:]).decode()
  entries = "".join(f", {parameter!r}: {kind!r}" for parameter, kind in types.items())
  return re.sub(r"('signature': \{[^{}]*)\}", lambda found: f"{found.group(1)}{entries}}}", "\n".join(lines), count=1)


def with_whole_ranks(source):
  """The module with constants of as many dimensions as the blocks of a template. Where a factor of a product is a constant,
  Inductor loads it as `tl.full([1], ...)` and broadcasts that to the two dimensions of a block, which Triton refuses."""
  if not re.search(r"= \w+\.broadcast_to\(\w+\.shape\)", source):
    return source
  return source.replace("tl.full([1], ", "tl.full([1, 1], ")
