"""Asserts of kernels on a GPU become a status.

Inductor writes `tl.device_assert(condition, "index out of bounds: ...")` before it reads or writes
at an index that depends on data. Compiled, the assert is a trap, after which the process has lost
its context. `rewrite` lets the kernel go on instead. If the condition of a lane does not hold, the
lane stores the number of the assert at the address of one more parameter, which belongs to the
session, and uses index 0, which exists whenever a number bounds the index. The lane does not write
at its index, and does not read if the bound may be 0. Nothing changes in a lane whose condition
holds, even if its index is out of range because the condition ignores it there.

An index may also be a sum of sizes and of places in the grid, which no name stands for. A lane
whose condition does not hold then neither reads nor writes where the address has all names of the
sum.

Other asserts stay traps, since it is not known what they protect. The asserts of a user's kernels
stay traps too, since names in them may be given new values.
"""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Collection, Sequence

from . import source_edit

PARAMETER = "husk_asserts"

CALL = "tl.device_assert("  # the beginning of an assert in a source

_ASSERT = re.compile(r"( +)tl\.device_assert\((.*), ([\"'])(index out of bounds: .*)\3\)\s*")
# The position of the mask in the arguments of a memory access, and whether the access writes.
_MASKED = {
  "load": (1, False),
  "store": (2, True),
  "atomic_add": (2, True),
  "atomic_max": (2, True),
  "atomic_min": (2, True),
}


@dataclasses.dataclass
class Rewrite:
  """A module after `rewrite`. `texts` are the messages of the asserts that became numbers, in
  order; `left` is the number of asserts that stay traps."""

  source: str
  texts: list[str]
  left: int


def removed(source: str) -> str:
  """A module without asserts."""
  return re.sub(r"^( +)tl\.device_assert\(.*\)\s*$", r"\1pass", source, flags=re.M)


def rewrite(source: str, name: str, first: int) -> Rewrite:
  """The module `source` in which the asserts of the kernel `name` are numbers from `first` on."""
  lines = source.split("\n")
  texts: list[str] = []
  left = 0
  is_users, pointers = source_edit.is_users(source), _pointers(source)
  for at, line in enumerate(lines):
    if CALL not in line:
      continue
    replacement = None if is_users else _replaced(lines, at, first + len(texts), pointers)
    if replacement is None:
      left += 1
      continue
    lines[at:], text = replacement
    texts.append(text)
  if not texts:
    return Rewrite(source, texts, left)
  module = source_edit.with_parameters("\n".join(lines), name, {PARAMETER: "*i32"})
  return Rewrite(module, texts, left)


def _replaced(
  lines: Sequence[str], at: int, number: int, pointers: Collection[str]
) -> tuple[list[str], str] | None:
  """The lines from `at` on without the assert in line `at`, and the message of the assert. None if
  the assert has to stay."""
  statement = _ASSERT.fullmatch(lines[at])
  if statement is None:
    return None
  indent, text = statement.group(1), statement.group(4)
  condition = _parsed(statement.group(2))
  if condition is None:
    return None
  holds, safe = f"husk_holds{number}", f"husk_index{number}"
  index = _index(condition)
  names = _names_of_sum(condition) if index is None else {safe}
  if not names:
    return None
  rest: list[str] = []
  is_used = False
  for line in lines[at + 1 :]:
    if line.strip() and len(line) - len(line.lstrip()) < len(indent):
      break
    if index is not None:
      line = re.sub(rf"\b{index}\b", safe, line)
    if all(re.search(rf"\b{name}\b", line) for name in names):
      bounded = index is not None and _is_bounded(condition)
      masked = _masked(line, names, holds, bounded, pointers)
      if masked is None:
        return None
      is_used = is_used or masked != line
      line = masked
    rest.append(line)
  statements = [
    f"{indent}{holds} = {statement.group(2)}",
    f"{indent}tl.store({PARAMETER} + {holds}.to(tl.int32) * 0, {number}, {holds} == 0)",
  ]
  if index is not None:
    statements.append(f"{indent}{safe} = tl.where({holds}, {index}, 0).to({index}.dtype)")
  elif not is_used:
    return None
  # One element replaces one line, so that the caller's loop goes on after it.
  return ["\n".join(statements), *rest, *lines[at + 1 + len(rest) :]], text


def _parsed(text: str) -> ast.expr | None:
  try:
    return ast.parse(text.strip(), mode="eval").body
  except SyntaxError:
    return None


def _comparisons(condition: ast.expr) -> list[ast.Compare]:
  """The comparisons of `(0 <= i) & (i < n)`, or of one of its halves, perhaps with `| ~mask` after
  it. Empty for other conditions."""
  if (
    isinstance(condition, ast.BinOp)
    and isinstance(condition.op, ast.BitOr)
    and isinstance(condition.right, ast.UnaryOp)
    and isinstance(condition.right.op, ast.Invert)
  ):
    condition = condition.left
  halves = [condition]
  if isinstance(condition, ast.BinOp) and isinstance(condition.op, ast.BitAnd):
    halves = [condition.left, condition.right]
  comparisons = [half for half in halves if isinstance(half, ast.Compare) and len(half.ops) == 1]
  return comparisons if len(comparisons) == len(halves) else []


def _indices(condition: ast.expr) -> list[ast.expr]:
  """The index of each comparison of a condition; empty if one of them bounds none."""
  found = []
  for comparison in _comparisons(condition):
    operator, left = comparison.ops[0], comparison.left
    if isinstance(operator, ast.LtE) and isinstance(left, ast.Constant) and left.value == 0:
      found.append(comparison.comparators[0])
    elif isinstance(operator, ast.Lt):
      found.append(left)
    else:
      return []
  return found


def _index(condition: ast.expr) -> str | None:
  """The name of the index in a condition, if it is one of Inductor's names."""
  names: set[str | None] = set()
  for index in _indices(condition):
    if isinstance(index, ast.Call) and ast.unparse(index.func) == "tl.broadcast_to":
      index = index.args[0]
    names.add(index.id if isinstance(index, ast.Name) else None)
  name = names.pop() if len(names) == 1 else None
  return name if name and re.fullmatch(r"tmp\d+|husk_index\d+", name) else None


# Names of sizes, and of places in the grid and in loops of reductions.
_SIZE_OR_PLACE = re.compile(r"(ks|ps|[xyz]|r\d+_)\d+")


def _names_of_sum(condition: ast.expr) -> set[str]:
  """The names of the index in a condition, if it is computed of sizes and places alone."""
  indices = _indices(condition)
  names = {one.id for each in indices for one in ast.walk(each) if isinstance(one, ast.Name)}
  is_one = len({ast.unparse(each) for each in indices}) == 1
  return names if is_one and all(map(_SIZE_OR_PLACE.fullmatch, names)) else set()


def _is_bounded(condition: ast.expr) -> bool:
  """Whether a number bounds the index, so that index 0 exists."""
  for comparison in _comparisons(condition):
    bound = comparison.comparators[0]
    if isinstance(comparison.ops[0], ast.Lt) and isinstance(bound, ast.Constant):
      if isinstance(bound.value, int) and bound.value > 0:
        return True
  return False


def _masked(
  line: str, names: set[str], holds: str, bounded: bool, pointers: Collection[str]
) -> str | None:
  """A statement that has all names of an index, with masks on its accesses to memory if they need
  them. None if the statement may access memory in an unknown way."""
  statement = _parsed_statement(line)
  if statement is None:
    return None
  changed = False
  addresses: list[ast.expr] = []
  for call in [node for node in ast.walk(statement) if isinstance(node, ast.Call)]:
    position, writes = _MASKED.get(ast.unparse(call.func).removeprefix("tl."), (None, False))
    if position is None or not call.args:
      continue
    addresses.append(call.args[0])
    has_all = all(_count_names(call.args[0], {name}) for name in names)
    if has_all and (writes or not bounded):
      _put_mask(call, position, holds)
      changed = True
  known = sum(_count_names(address, pointers) for address in addresses)
  if _count_names(statement, pointers) != known:
    return None
  if not changed:
    return line
  if not isinstance(statement, (ast.Assign, ast.Expr)):
    return None
  return line[: len(line) - len(line.lstrip())] + ast.unparse(statement)


def _parsed_statement(line: str) -> ast.stmt | None:
  """The statement in a line. A loop or branch has an empty body."""
  text = line.strip()
  try:
    return ast.parse(text + " pass" if text.endswith(":") else text).body[0]
  except (SyntaxError, IndexError):
    return None


def _put_mask(call: ast.Call, position: int, holds: str) -> None:
  """Lets a call access memory only if `holds`, and if its own mask holds."""
  keyword = next((keyword for keyword in call.keywords if keyword.arg == "mask"), None)
  mask: ast.expr = ast.Name(holds)
  if keyword:
    keyword.value = _both(keyword.value, mask)
  elif len(call.args) > position:
    call.args[position] = _both(call.args[position], mask)
  else:
    call.keywords.insert(0, ast.keyword("mask", mask))


def _both(mask: ast.expr, other: ast.expr) -> ast.expr:
  """The mask that holds if both hold. The mask None always holds."""
  if isinstance(mask, ast.Constant) and mask.value is None:
    return other
  return ast.BinOp(mask, ast.BitAnd(), other)


def _count_names(node: ast.AST, names: Collection[str]) -> int:
  """The number of occurrences of the names in a syntax tree."""
  return sum(isinstance(inner, ast.Name) and inner.id in names for inner in ast.walk(node))


def _pointers(source: str) -> set[str]:
  """The names of pointers to memory: parameters, and values that are computed from pointers without
  a load."""
  signature = re.search(r"'signature': \{([^{}]*)\}", source)
  names = set(re.findall(r"'(\w+)': '\*", signature.group(1) if signature else ""))
  for line in source.split("\n"):
    statement = _parsed_statement(line) if re.match(r" +\w+ = ", line) else None
    if not isinstance(statement, ast.Assign) or _loads(statement):
      continue
    target = statement.targets[0]
    if isinstance(target, ast.Name) and _count_names(statement.value, names):
      names.add(target.id)
  return names


def _loads(statement: ast.stmt) -> bool:
  """Whether a statement reads memory."""
  calls = [node for node in ast.walk(statement) if isinstance(node, ast.Call)]
  return any(ast.unparse(call.func).startswith("tl.load") for call in calls)
