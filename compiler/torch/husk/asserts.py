"""Asserts of kernels on a GPU become a status.

Inductor writes `tl.device_assert(condition, "index out of bounds: ...")` before it reads or writes at an index that only the
data knows. Compiled, that is a trap, after which the process has lost its context. `rewritten` lets the kernel go on instead:
a lane whose condition does not hold stores the number of the assert where one more parameter points, the session's, and takes
index 0, which exists wherever a number bounds the index. What it would write at the index it does not write, and it reads
nothing where the bound may be 0. In a lane whose condition holds nothing changes, also where its index is out of range
because nobody asks for it there.

Other asserts stay traps: what they protect is not known. So do those of kernels that a user wrote, whose names may be given
new values.
"""

import ast
import dataclasses
import re

from . import sources

WAYS = ("status", "trap", "off")
PARAMETER = "husk_asserts"

_ASSERT = re.compile(r"( +)tl\.device_assert\((.*), ([\"'])(index out of bounds: .*)\3\)\s*")
# The position of a mask in what reads or writes memory, and whether it writes.
_MASKED = {"load": (1, False), "store": (2, True), "atomic_add": (2, True), "atomic_max": (2, True), "atomic_min": (2, True)}


@dataclasses.dataclass
class Rewritten:
  """`texts` are what the asserts that became numbers say, in order; `left` counts those that stay traps."""

  source: str
  texts: list
  left: int


def check_way(way):
  if way not in WAYS:
    raise ValueError(f"asserts={way!r}: give one of {', '.join(map(repr, WAYS))}")
  return way


def removed(source):
  """A module without asserts."""
  return re.sub(r"^( +)tl\.device_assert\(.*\)\s*$", r"\1pass", source, flags=re.M)


def rewritten(source, name, first):
  """The module `source`, the asserts of its kernel `name` numbered from `first` on."""
  lines = source.split("\n")
  texts, left = [], 0
  user, pointers = "user_autotune" in source, _pointers(source)
  for at, line in enumerate(lines):
    if "tl.device_assert(" not in line:
      continue
    made = None if user else _replaced(lines, at, first + len(texts), pointers)
    if made is None:
      left += 1
      continue
    lines[at:], text = made
    texts.append(text)
  made = "\n".join(lines)
  return Rewritten(sources.with_parameters(made, name, {PARAMETER: "*i32"}) if texts else source, texts, left)


def _replaced(lines, at, number, pointers):
  """(The lines from `at` on without the assert that stands there, its text), or None where it has to stay."""
  found = _ASSERT.fullmatch(lines[at])
  condition = found and _parsed(found.group(2))
  index = condition and _index(condition)
  if not index:
    return None
  indent, text = found.group(1), found.group(4)
  holds, safe = f"husk_holds{number}", f"husk_index{number}"
  rest = []
  for line in lines[at + 1:]:
    if line.strip() and len(line) - len(line.lstrip()) < len(indent):
      break
    rest.append(re.sub(rf"\b{index}\b", safe, line))
  for n, line in enumerate(rest):
    if safe in line:
      rest[n] = _masked(line, safe, holds, _is_bounded(condition), pointers)
      if rest[n] is None:
        return None
  before = [f"{indent}{holds} = {found.group(2)}",
            f"{indent}tl.store({PARAMETER} + {holds}.to(tl.int32) * 0, {number}, {holds} == 0)",
            f"{indent}{safe} = tl.where({holds}, {index}, 0).to({index}.dtype)"]
  # One line in place of one, so that the caller's walk goes on behind it.
  return ["\n".join(before), *rest, *lines[at + 1 + len(rest):]], text


def _parsed(text):
  try:
    return ast.parse(text.strip(), mode="eval").body
  except SyntaxError:
    return None


def _comparisons(condition):
  """Those of `(0 <= i) & (i < n)`, or one of the two, perhaps beside `| ~mask`."""
  if isinstance(condition, ast.BinOp) and isinstance(condition.op, ast.BitOr) and isinstance(
      condition.right, ast.UnaryOp) and isinstance(condition.right.op, ast.Invert):
    condition = condition.left
  both = isinstance(condition, ast.BinOp) and isinstance(condition.op, ast.BitAnd)
  found = [condition.left, condition.right] if both else [condition]
  return found if all(isinstance(one, ast.Compare) and len(one.ops) == 1 for one in found) else []


def _index(condition):
  """The name of the index, where it is one of Inductor's."""
  names = set()
  for one in _comparisons(condition):
    if isinstance(one.ops[0], ast.LtE) and isinstance(one.left, ast.Constant) and one.left.value == 0:
      index = one.comparators[0]
    elif isinstance(one.ops[0], ast.Lt):
      index = one.left
    else:
      return None
    if isinstance(index, ast.Call) and ast.unparse(index.func) == "tl.broadcast_to":
      index = index.args[0]
    names.add(index.id if isinstance(index, ast.Name) else None)
  name = names.pop() if len(names) == 1 else None
  return name if name and re.fullmatch(r"tmp\d+|husk_index\d+", name) else None


def _is_bounded(condition):
  """Whether index 0 exists for certain."""
  return any(isinstance(one.ops[0], ast.Lt) and isinstance(one.comparators[0], ast.Constant) and
             isinstance(one.comparators[0].value, int) and one.comparators[0].value > 0 for one in _comparisons(condition))


def _masked(line, safe, holds, bounded, pointers):
  """A statement that uses the index; None where it may reach memory in a way that is not known."""
  statement = _parsed_statement(line)
  if statement is None:
    return None
  changed, addresses = False, []
  for call in [node for node in ast.walk(statement) if isinstance(node, ast.Call)]:
    position, writes = _MASKED.get(ast.unparse(call.func).removeprefix("tl."), (None, False))
    if position is None or not call.args:
      continue
    addresses.append(call.args[0])
    if _names(call.args[0], {safe}) and (writes or not bounded):
      _put_mask(call, position, holds)
      changed = True
  known = sum(_names(address, pointers) for address in addresses)
  if _names(statement, pointers) != known or (changed and not isinstance(statement, (ast.Assign, ast.Expr))):
    return None
  return line[:len(line) - len(line.lstrip())] + ast.unparse(statement) if changed else line


def _parsed_statement(line):
  """One line of its own; that of a loop or branch has no body here."""
  text = line.strip()
  try:
    return ast.parse(text + " pass" if text.endswith(":") else text).body[0]
  except (SyntaxError, IndexError):
    return None


def _put_mask(call, position, holds):
  given = next((keyword for keyword in call.keywords if keyword.arg == "mask"), None)
  before = given.value if given else call.args[position] if len(call.args) > position else ast.Constant(None)
  name = ast.Name(holds)
  mask = name if isinstance(before, ast.Constant) and before.value is None else ast.BinOp(before, ast.BitAnd(), name)
  if given:
    given.value = mask
  elif len(call.args) > position:
    call.args[position] = mask
  else:
    call.keywords.insert(0, ast.keyword("mask", mask))


def _names(node, names):
  """How often one of them stands there."""
  return sum(isinstance(inner, ast.Name) and inner.id in names for inner in ast.walk(node))


def _pointers(source):
  """The names of what points to memory: parameters, and what is made of them but by reading."""
  signature = re.search(r"'signature': \{([^{}]*)\}", source)
  names = set(re.findall(r"'(\w+)': '\*", signature.group(1) if signature else ""))
  for line in source.split("\n"):
    statement = _parsed_statement(line) if re.match(r" +\w+ = ", line) else None
    reads = statement and any(isinstance(node, ast.Call) and ast.unparse(node.func).startswith("tl.load")
                              for node in ast.walk(statement))
    if isinstance(statement, ast.Assign) and not reads and _names(statement.value, names):
      names.add(statement.targets[0].id)
  return names
