"""The `.hir` text: what a program consists of, and how it is written (compiler/ir/HIR.md).

Expressions are text already (expressions.py makes them). Buffers are objects here, because their names are decided
last: an arena buffer that turns out to be an output becomes the output's.
"""

import dataclasses
import re

_DTYPES = {"bool": "bool", "uint8": "u8", "int8": "i8", "uint16": "u16", "int16": "i16", "uint32": "u32",
           "int32": "i32", "uint64": "u64", "int64": "i64", "float16": "f16", "bfloat16": "bf16", "float32": "f32",
           "float64": "f64", "complex64": "c64", "complex128": "c128", "float8_e4m3fn": "f8e4m3fn", "float8_e5m2":
           "f8e5m2", "float8_e4m3fnuz": "f8e4m3fnuz", "float8_e5m2fnuz": "f8e5m2fnuz"}


def dtype(what):
  """The name of a torch dtype, or None if a `.hir` has none."""
  return _DTYPES.get(str(what).removeprefix("torch."))


def alignment(what):
  """What every kernel assumes of the address of a tensor of a torch dtype: that of a number of it."""
  return what.itemsize // 2 if what.is_complex else what.itemsize


def quoted(text):
  """A STRING."""
  plain = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t"}
  return '"' + "".join(plain.get(c, c if c >= " " and c != "\x7f" else f"\\x{ord(c):02x}") for c in text) + '"'


def number(value):
  """An int, bool or float literal."""
  if isinstance(value, bool):
    return "true" if value else "false"
  if isinstance(value, int):
    return str(value)
  text = repr(float(value))
  return text if re.search(r"[.en]", text) else text + ".0"     # inf and nan hold an n


def names_in(text):
  """The names that an expression's text holds."""
  return re.findall(r"[A-Za-z_][A-Za-z0-9_.:]*", text)


class Names:
  """Gives each thing a name of its own that the grammar allows. A name is known in its scope and those within: a child
  takes none of its parents', a parent none of its children's, and children may have equal ones."""

  def __init__(self, parent=None):
    self._parent, self._taken, self._below = parent, set(), set()

  def child(self):
    return Names(self)

  def take(self, wanted):
    base = re.sub(r"[^A-Za-z0-9_.:]", "_", wanted)
    if not base or not (base[0].isalpha() or base[0] == "_"):
      base = "_" + base
    name, n = base, 1
    while name in _WORDS or self._has(name):
      n += 1
      name = f"{base}_{n}"
    self._taken.add(name)
    above = self._parent
    while above is not None:
      above._below.add(name)
      above = above._parent
    return name

  def _has(self, name):
    above = self._parent
    while above is not None:
      if name in above._taken:
        return True
      above = above._parent
    return name in self._taken or name in self._below


# What stands in arguments and expressions, and so names nothing (HIR.md).
_WORDS = set("read write both atomic tensor tensors floats result dtype null asserts none true false inf nan".split())


@dataclasses.dataclass(eq=False)
class Buffer:
  """A row of memory. `space` is arena, input, output, constant or state; `bytes` an expression; `align` is what the
  kernels assume of its address, 0 says nothing. A buffer may turn out to be another one: `stands_for`."""

  name: str
  space: str
  bytes: str = ""
  align: int = 0
  stands_for: "Buffer | None" = None

  def row(self):
    """The buffer that is meant in the end."""
    return self if self.stands_for is None else self.stands_for.row()

  def text(self):
    of = f" of {self.space}" if self.space in ("input", "output") else ""
    align = f" align {self.align}" if self.align > 1 else ""
    return f"buffer {self.name}{of} bytes {self.bytes}{align}"


@dataclasses.dataclass
class View:
  """Bytes of a buffer; offset and extent None: the whole of it."""

  access: str
  buffer: Buffer
  offset: str | None = None
  extent: str | None = None

  def text(self):
    part = "" if self.offset is None else f"[{self.offset}, {self.extent}]"
    return f"{self.access} {self.buffer.row().name}{part}"

  def rows(self):
    return [self.buffer.row()]


@dataclasses.dataclass
class Tensor:
  """A typed view; the offset is in elements. As a result of a function it has no access."""

  access: str
  buffer: Buffer
  dtype: str
  sizes: list
  strides: list
  offset: str = "0"

  def text(self):
    sizes, strides = (f"[{', '.join(part)}]" for part in (self.sizes, self.strides))
    offset = "" if self.offset == "0" else f" offset {self.offset}"
    access = f"{self.access} " if self.access else ""
    return f"{access}tensor {self.buffer.row().name} {self.dtype} {sizes} {strides}{offset}"

  def rows(self):
    return [self.buffer.row()]


@dataclasses.dataclass
class TensorList:
  """Tensors, and None where one is missing."""

  items: list

  def text(self):
    return f"tensors [{', '.join('none' if item is None else item.text() for item in self.items)}]"

  def rows(self):
    return [item.buffer.row() for item in self.items if item is not None]


@dataclasses.dataclass
class Statement:
  """`head (arguments) at "origin"`, or only a head. `buffer` is the row that a `buffer` statement declares."""

  head: str
  arguments: list | None = None
  origin: str = ""
  buffer: Buffer | None = None

  def text(self):
    if self.buffer is not None:
      return self.buffer.text()
    if self.arguments is None:
      return self.head
    arguments = ", ".join(argument if isinstance(argument, str) else argument.text() for argument in self.arguments)
    return f"{self.head} ({arguments})" + (f" at {quoted(self.origin)}" if self.origin else "")

  def lines(self):
    return [self.text()]

  def rows(self):
    """The buffers that its arguments lie in."""
    return [row for argument in self.arguments or () if not isinstance(argument, str) for row in argument.rows()]

  def blocks(self):
    """Lists of statements inside of it."""
    return []


@dataclasses.dataclass
class When(Statement):
  """`when head { yes } else { no }`."""

  yes: list = dataclasses.field(default_factory=list)
  no: list = dataclasses.field(default_factory=list)

  def lines(self):
    otherwise = ["} else {", *_indented(self.no)] if self.no else []
    return [f"when {self.head} {{", *_indented(self.yes), *otherwise, "}"]

  def blocks(self):
    return [self.yes, self.no]


@dataclasses.dataclass
class Loop(Statement):
  """`loop { before while head after }`."""

  before: list = dataclasses.field(default_factory=list)
  after: list = dataclasses.field(default_factory=list)

  def lines(self):
    return ["loop {", *_indented([*self.before, Statement(f"while {self.head}"), *self.after]), "}"]

  def blocks(self):
    return [self.before, self.after]


def _indented(statements):
  return ["  " + line for statement in statements for line in statement.lines()]


def walk(statements):
  """All statements, those of blocks behind the one that holds them."""
  for statement in statements:
    yield statement
    for block in statement.blocks():
      yield from walk(block)


@dataclasses.dataclass
class Variant:
  target: str
  statements: list
  results: list      # Tensors and texts

  def text(self):
    lines = [f"  variant {self.target} {{"]
    lines += ["    " + line for statement in self.statements for line in statement.lines()]
    results = ", ".join(result if isinstance(result, str) else result.text() for result in self.results)
    return "\n".join([*lines, f"    return ({results})", "  }"])


@dataclasses.dataclass
class Function:
  """`inputs` and `outputs` are lines: "x tensor f32 [1..8, 10]"."""

  name: str
  inputs: list
  outputs: list
  variants: list = dataclasses.field(default_factory=list)

  def text(self):
    lines = [f"function {self.name} {{"]
    lines += [f"  input {line}" for line in self.inputs] + [f"  output {line}" for line in self.outputs]
    return "\n".join([*lines, *(variant.text() for variant in self.variants), "}"])


@dataclasses.dataclass
class Program:
  """`targets`, `data` (constants and states) and `rows` (images and kernels) are lines as they stand in the text; `notes` are
  for its readers."""

  producer: str
  user: dict = dataclasses.field(default_factory=dict)
  tree: str = ""
  asserts: list = dataclasses.field(default_factory=list)
  targets: list = dataclasses.field(default_factory=list)
  data: list = dataclasses.field(default_factory=list)
  rows: list = dataclasses.field(default_factory=list)
  functions: list = dataclasses.field(default_factory=list)
  notes: list = dataclasses.field(default_factory=list)

  def text(self):
    lines = ["hir 1", f"producer {quoted(self.producer)}", *(f"# {' '.join(note.split())}" for note in self.notes)]
    lines += [f"user {quoted(key)} {quoted(value)}" for key, value in self.user.items()]
    lines += [f"tree {quoted(self.tree)}"] if self.tree else []
    lines += [f"assert {quoted(text)}" for text in self.asserts]
    for part in (self.targets, self.data, self.rows):
      lines += ["", *part] if part else []
    for function in self.functions:
      lines += ["", function.text()]
    return "\n".join(lines) + "\n"
