"""The access of a Triton kernel to each of its pointers, from the kernel's loads and stores.

`accesses` reads the kernel's first intermediate form (TTIR, or TTGIR of a Gluon kernel). It follows
every value that holds pointers to the parameters from which the value may come, through arithmetic,
loops and branches. The order of statements is ignored: a name that occurs in two regions counts as
one value, which can only add accesses. A pointer that goes anywhere else (a call, a descriptor, a
cast to an int) counts as read and written. If the origin of a pointer is not known, its access
counts for every parameter.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

_VALUE = r"%[\w$.-]+(?:#\d+)?"
# The head of a region that only some warps of a block execute.
_PARTITION = re.compile(r"\s*(partition\d+)\(")
# A location in the source.
_LOCATION = re.compile(r"\bloc\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)")

# The result of these operations points to the memory of their operands.
_SAME_POINTER = {
  "tt.addptr",
  "tt.splat",
  "tt.broadcast",
  "tt.expand_dims",
  "tt.reshape",
  "tt.trans",
  "tt.bitcast",
  "arith.select",
  "ttg.convert_layout",
}

# These operations take only numbers unless the types that they print have a pointer (a reduction
# always takes numbers). They have to be known since a name counts in all regions: a number of one
# loop may have the name of a pointer of another loop.
_NUMBERS = ("arith.", "math.", "tt.trans", "tt.dot", "tt.reduce")


def accesses(ttir: str, symbol: str, pointers: Sequence[str]) -> dict[str, str] | None:
  """The access ("read", "write" or "both") to each pointer parameter of the function `symbol`.
  `pointers` are the parameters' names in order. None if the function is missing, or has other
  pointers."""
  head = re.search(r"tt\.func (?:public )?@" + re.escape(symbol) + r"\(([^\n]*)\n", ttir)
  values = re.findall(rf"({_VALUE}): !tt\.ptr<", head.group(1)) if head else []
  if not head or len(values) != len(pointers):
    return None
  lines = []
  for line in ttir[head.end() :].splitlines():
    if re.match(r"\s*tt\.func\b", line):
      break
    lines.append(_LOCATION.sub("", line))
  flow = _Flow(list(_with_partition_names(lines)))
  origins = flow.origins(dict(zip(values, pointers)))
  read: set[str] = set()
  written: set[str] = set()
  for access, value in flow.accesses:
    touched = origins.get(value, set() if access == "escape" else set(pointers))
    if access != "write":
      read |= touched
    if access != "read":
      written |= touched
  return {name: _access(name in read, name in written) for name in pointers}


def _access(is_read: bool, is_written: bool) -> str:
  if is_read and is_written:
    return "both"
  return "write" if is_written else "read"


def _with_partition_names(lines: Iterable[str]) -> Iterator[str]:
  """The lines in which the values of each partition have names of their own. A partition sees only
  its arguments, and its names occur outside for other values."""
  depth = 0
  partition = None
  for line in lines:
    begin = _PARTITION.match(line)
    if begin:
      depth, partition = 0, begin.group(1)
    if partition is None:
      yield line
      continue
    suffix = f".{partition}"
    yield re.sub(r"%[\w$.-]+", lambda name, suffix=suffix: name.group() + suffix, line)
    depth += line.count("{") - line.count("}")
    if depth <= 0:
      partition = None


class _Flow:
  """The flow of pointers in a function. `sources` has the values that each value may be equal to or
  point into, `accesses` has (access, value): "read", "write", "both" or "escape"."""

  def __init__(self, lines: Sequence[str]) -> None:
    self.sources: dict[str, set[str]] = {}
    self.accesses: list[tuple[str, str]] = []
    self._captured: list[str] = []  # operands of the last warp_specialize
    self._blocks = _block_arguments(lines)
    # For each open brace the values that become what the region yields; None if it yields nothing.
    self._regions: list[list[list[str]] | None] = []
    self._opening: list[list[str]] | None = None  # the same for the next brace
    for line in lines:
      self._line(line)

  def origins(self, roots: Mapping[str, str]) -> dict[str, set[str]]:
    """The parameters into which each value may point. `roots` are the names of the parameters by
    value."""
    known = {value: {name} for value, name in roots.items()}
    changed = True
    while changed:
      changed = False
      for value, sources in self.sources.items():
        parameters = set().union(*(known.get(each, ()) for each in (value, *sources)))
        if parameters and parameters != known.get(value):
          known[value] = parameters
          changed = True
    return known

  def _may_be(self, value: str, source: str) -> None:
    self.sources.setdefault(value, set()).add(source)

  def _line(self, line: str) -> None:
    parts = re.match(r'\s*(?:(%[^=]*?) = )?"?([a-z]\w*\.[\w.]+)"?(.*)', line)
    if parts:
      result, op, rest = parts.groups()
      self._operation([] if result is None else _results(result), op, rest)
    elif _PARTITION.match(line):  # every partition gets the same arguments
      for argument, operand in zip(re.findall(rf"({_VALUE}):", line), self._captured):
        self._may_be(argument, operand)
    elif "tt.ptr" in line and not re.match(r"\s*\^", line):
      self._escape(line)
    self._nesting(line)

  def _operation(self, results: Sequence[str], op: str, rest: str) -> None:
    operands = re.findall(_VALUE, rest)
    if op in _SAME_POINTER and results:
      for operand in operands:
        self._may_be(results[0], operand)
    elif op == "tt.make_tensor_descriptor" and results:
      self._may_be(results[0], operands[0])
    elif op in (
      "tt.load",
      "tt.descriptor_load",
      "tt.descriptor_gather",
      "ttg.async_copy_global_to_local",
    ):
      self.accesses.append(("read", operands[0]))
    elif op in ("tt.descriptor_store", "tt.descriptor_scatter"):
      self.accesses.append(("write", operands[0]))
    elif op == "tt.store":
      self.accesses.append(("write", operands[0]))
      if "ptr<!tt.ptr" in rest:  # a pointer is stored
        self.accesses += [("escape", operand) for operand in operands[1:]]
    elif op in ("tt.atomic_rmw", "tt.atomic_cas", "tt.descriptor_reduce"):
      self.accesses.append(("both", operands[0]))
      self.accesses += [("escape", operand) for operand in operands[1:]]
    elif op == "ttg.warp_specialize":
      self._captured = re.findall(_VALUE, rest.split(")")[0])
    elif op in ("scf.for", "scf.if") and rest.rstrip().endswith("{"):
      self._region(results, rest)
    elif op == "scf.yield" and self._regions and self._regions[-1]:
      for targets, operand in zip(self._regions[-1], re.findall(_VALUE, rest.split(" : ")[0])):
        for target in targets:
          self._may_be(target, operand)
    elif op in ("cf.br", "cf.cond_br"):
      for block, values in re.findall(r"\^(\w+)(?:\(([^:)]*)[^)]*\))?", rest):
        for argument, operand in zip(self._blocks.get(block, ()), re.findall(_VALUE, values)):
          self._may_be(argument, operand)
    elif "tt.ptr" in rest or not op.startswith(_NUMBERS):
      self.accesses += [("escape", operand) for operand in operands]

  def _region(self, results: Sequence[str], rest: str) -> None:
    """Begins a loop or branch. The variables and results of a loop may be its initial values or the
    values that it yields."""
    targets = [[result] for result in results]
    carried = re.search(r"iter_args\((.*?)\)", rest)
    if carried:
      pairs = re.findall(rf"({_VALUE}) = ({_VALUE})", carried.group(1))
      targets = [[variable, *target] for (variable, _), target in zip(pairs, targets)]
      for (_, start), target in zip(pairs, targets):
        for value in target:
          self._may_be(value, start)
    self._opening = targets

  def _nesting(self, line: str) -> None:
    for brace in re.findall(r"[{}]", re.sub(r"\{[^{}]*\}", "", line)):
      if brace == "{":
        self._regions.append(self._opening)
        self._opening = None
      elif self._regions:
        closed = self._regions.pop()
        if re.match(r"\s*\}\s*else\s*\{", line):
          self._opening = closed

  def _escape(self, text: str) -> None:
    self.accesses += [("escape", value) for value in re.findall(_VALUE, text)]


def _results(text: str) -> list[str]:
  """The values that a statement defines: `%a` is one, `%a:3` is %a#0, %a#1 and %a#2."""
  name, _, count = text.strip().partition(":")
  return [f"{name}#{index}" for index in range(int(count))] if count else [name]


def _block_arguments(lines: Iterable[str]) -> dict[str, list[str]]:
  """The arguments of the function's blocks by label."""
  arguments = {}
  for line in lines:
    block = re.match(r"\s*\^(\w+)(?:\((.*)\))?\s*:", line)
    if block:
      arguments[block.group(1)] = re.findall(rf"({_VALUE}):", block.group(2) or "")
  return arguments
