"""Which pointers a Triton kernel reads and writes, from its own loads and stores.

Reads the kernel's first intermediate form (TTIR, or TTGIR of a Gluon kernel). Every value that holds pointers is followed
to the parameters that it may come from, through arithmetic, loops and branches, regardless of order: names that occur in
two regions count as one value, which can only add to what is found. What goes somewhere else (a call, a descriptor, a
cast to an int) is read and written; an access whose pointer comes from nowhere known makes every parameter so.
"""

import re

_VALUE = r"%[\w$.-]+(?:#\d+)?"
_PARTITION = re.compile(r"\s*(partition\d+)\(")     # begins what some warps of a block do for themselves
_PLACE = re.compile(r"\bloc\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)")     # where in the source

# Results of these point where their operands point.
_SAME_POINTER = {"tt.addptr", "tt.splat", "tt.broadcast", "tt.expand_dims", "tt.reshape", "tt.trans", "tt.bitcast",
                 "arith.select", "ttg.convert_layout"}

# These take numbers only where no pointer stands among the types that they print (a reduction, always). It matters since
# names count over regions: the number of one loop may be the pointer of another.
_NUMBERS = ("arith.", "math.", "tt.trans", "tt.dot", "tt.reduce")


def accesses(ttir, symbol, pointers):
  """Name -> "read", "write" or "both" of the pointer parameters `pointers`, in their order, of the function `symbol`;
  None if it is not there, or has other pointers."""
  head = re.search(r"tt\.func (?:public )?@" + re.escape(symbol) + r"\(([^\n]*)\n", ttir)
  values = re.findall(rf"({_VALUE}): !tt\.ptr<", head.group(1)) if head else []
  if not head or len(values) != len(pointers):
    return None
  lines = []
  for line in ttir[head.end():].splitlines():
    if re.match(r"\s*tt\.func\b", line):
      break
    lines.append(_PLACE.sub("", line))
  flow = _Flow(list(_apart(lines)))
  roots = flow.closed(dict(zip(values, pointers)))
  read, written = set(), set()
  for access, value in flow.accesses:
    touched = roots.get(value, set(pointers)) if access != "escape" else roots.get(value, set())
    if access != "write":
      read |= touched
    if access != "read":
      written |= touched
  return {name: "both" if name in read and name in written else "write" if name in written else "read"
          for name in pointers}


def _apart(lines):
  """A partition sees only its arguments: names of its own, since others' are the same."""
  depth, which = 0, None
  for line in lines:
    begin = _PARTITION.match(line)
    if begin:
      depth, which = 0, begin.group(1)
    if which is None:
      yield line
      continue
    yield re.sub(r"%[\w$.-]+", lambda name: f"{name.group()}.{which}", line)
    depth += line.count("{") - line.count("}")
    if depth <= 0:
      which = None


class _Flow:
  """`sources` has the values that a value may be, `accesses` what is done: (read, write, both or escape, value)."""

  def __init__(self, lines):
    self.sources, self.accesses, self._regions, self._captured, self._blocks = {}, [], [], [], _block_arguments(lines)
    for line in lines:
      self._line(line)

  def closed(self, roots):
    """Value -> the parameters that it may point into."""
    known = {value: {name} for value, name in roots.items()}
    changed = True
    while changed:
      changed = False
      for value, sources in self.sources.items():
        found = set().union(known.get(value, ()), *(known.get(source, ()) for source in sources))
        if found and found != known.get(value):
          known[value] = found
          changed = True
    return known

  def _may_be(self, value, source):
    self.sources.setdefault(value, set()).add(source)

  def _line(self, line):
    parts = re.match(r'\s*(?:(%[^=]*?) = )?"?([a-z]\w*\.[\w.]+)"?(.*)', line)
    if parts:
      result, op, rest = parts.groups()
      self._operation([] if result is None else _results(result), op, rest)
    elif _PARTITION.match(line):     # its arguments are what all of these are given
      for argument, operand in zip(re.findall(rf"({_VALUE}):", line), self._captured):
        self._may_be(argument, operand)
    elif "tt.ptr" in line and not re.match(r"\s*\^", line):
      self._escape(line)
    self._nesting(line)

  def _operation(self, results, op, rest):
    operands = re.findall(_VALUE, rest)
    if op in _SAME_POINTER and results:
      for operand in operands:
        self._may_be(results[0], operand)
    elif op == "tt.make_tensor_descriptor" and results:
      self._may_be(results[0], operands[0])
    elif op in ("tt.load", "tt.descriptor_load", "tt.descriptor_gather", "ttg.async_copy_global_to_local"):
      self.accesses.append(("read", operands[0]))
    elif op in ("tt.descriptor_store", "tt.descriptor_scatter"):
      self.accesses.append(("write", operands[0]))
    elif op == "tt.store":
      self.accesses.append(("write", operands[0]))
      if "ptr<!tt.ptr" in rest:     # a pointer is stored
        self.accesses += [("escape", operand) for operand in operands[1:]]
    elif op in ("tt.atomic_rmw", "tt.atomic_cas", "tt.descriptor_reduce"):
      self.accesses.append(("both", operands[0]))
      self.accesses += [("escape", operand) for operand in operands[1:]]
    elif op == "ttg.warp_specialize":
      self._captured = re.findall(_VALUE, rest.split(")")[0])
    elif op in ("scf.for", "scf.if") and rest.rstrip().endswith("{"):
      self._region(results, op, rest)
    elif op == "scf.yield" and self._regions and self._regions[-1]:
      for targets, operand in zip(self._regions[-1], re.findall(_VALUE, rest.split(" : ")[0])):
        for target in targets:
          self._may_be(target, operand)
    elif op in ("cf.br", "cf.cond_br"):
      for block, given in re.findall(r"\^(\w+)(?:\(([^:)]*)[^)]*\))?", rest):
        for argument, operand in zip(self._blocks.get(block, ()), re.findall(_VALUE, given)):
          self._may_be(argument, operand)
    elif "tt.ptr" in rest or not op.startswith(_NUMBERS):
      self.accesses += [("escape", operand) for operand in operands]

  def _region(self, results, op, rest):
    """A loop's variables are what it starts with or what it yields, and so are its results."""
    targets = [[result] for result in results]
    carried = re.search(r"iter_args\((.*?)\)", rest)
    if carried:
      pairs = re.findall(rf"({_VALUE}) = ({_VALUE})", carried.group(1))
      targets = [[variable, *target] for (variable, _), target in zip(pairs, targets)]
      for (_, start), target in zip(pairs, targets):
        for value in target:
          self._may_be(value, start)
    self._opening = targets

  _opening = None

  def _nesting(self, line):
    for brace in re.findall(r"[{}]", re.sub(r"\{[^{}]*\}", "", line)):
      if brace == "{":
        self._regions.append(self._opening)
        self._opening = None
      elif self._regions:
        closed = self._regions.pop()
        if re.match(r"\s*\}\s*else\s*\{", line):
          self._opening = closed

  def _escape(self, text):
    self.accesses += [("escape", value) for value in re.findall(_VALUE, text)]


def _results(text):
  """`%a`, or `%a:3`, which are %a#0, %a#1, %a#2."""
  name, _, count = text.strip().partition(":")
  return [f"{name}#{index}" for index in range(int(count))] if count else [name]


def _block_arguments(lines):
  """Label -> arguments of the blocks of the function."""
  found = {}
  for line in lines:
    block = re.match(r"\s*\^(\w+)(?:\((.*)\))?\s*:", line)
    if block:
      found[block.group(1)] = re.findall(rf"({_VALUE}):", block.group(2) or "")
  return found
