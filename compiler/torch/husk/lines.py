"""Inductor's wrapper lines to the statements of a variant.

Lines are told apart by the name of their class (`_LINES`), so that a line that only one version of torch has needs no
import. What is not in the table is refused by name.
"""

import contextlib
import dataclasses
import re

import sympy

from . import attention_launch, control, data, descriptors, extern, hir, outputs, prologue, versions
from .errors import Unsupported
from .expressions import Expressions


@dataclasses.dataclass
class Place:
  """Where the storage of one of Inductor's names begins: bytes into a buffer. `layout` has size, stride and dtype."""

  buffer: hir.Buffer
  offset: object = sympy.Integer(0)
  layout: object = None


def place(trace):
  """The model's own line in a stack trace, "model.py:12 x + 1"; the deepest that is not PyTorch's. Code that torch made
  stands in no file, and has no number that would be the same next time."""
  found = re.findall(r'File "([^"]*)", line (\d+), in [^\n]*(?:\n\s*([^\n]*))?', trace or "")
  files = [frame for frame in found if frame[0][:1] != "<"]
  own = [frame for frame in files if "/torch/" not in frame[0]] or files or found
  if not own:
    return ""
  path, line, code = own[-1]
  code = code.strip()
  code = code[:37] + "..." if len(code) > 40 else code
  return code if path[:1] == "<" else f"{path.rsplit('/', 1)[-1]}:{line} {code}".strip()


class Converter:
  """Makes one variant. `signature` says the inputs and outputs, `constants` holds the weights of the whole program,
  `backend` makes kernels (host_kernels.py, triton_kernels.py)."""

  def __init__(self, target, signature, constants, backend, names):
    self.target, self.signature, self.constants, self.backend, self.names = target, signature, constants, backend, names
    self.statements = []      # of the block that is being written
    self.places = {}          # Inductor's name -> Place, in the graph that is being written
    self.exprs = Expressions()
    self.defined_by = {}      # "size(x, 0)" -> the symbol that it defines
    self.asserts = []         # (condition, text) whose symbols are not all defined yet
    self.called_at = ""       # of a subgraph
    self.buffers = {signed.name: hir.Buffer(signed.name, space) for space, part in
                    (("input", signature.inputs), ("output", signature.outputs)) for signed in part}

  def convert(self, wrapper, guards=()):
    """The variant. `guards` are (condition, value) that Inductor took for granted."""
    from torch._inductor.virtualized import V
    self.graph = V.graph
    self.ranges = self.graph.sizevars.shape_env.var_to_range
    self.backend.begin_function()
    prologue.write(self, guards)
    self.write(wrapper.lines)
    results = outputs.write(self, wrapper)
    self.statements = _without_unused(self.statements)
    return hir.Variant(self.target, self.statements, results)

  def write(self, lines):
    for line in lines:
      self._line(line)

  @contextlib.contextmanager
  def block(self):
    """What is said while it is open goes to the list that it gives."""
    before, self.statements = self.statements, []
    try:
      yield self.statements
    finally:
      self.statements = before

  @contextlib.contextmanager
  def inside(self, graph, node):
    """While open, lines are those of a subgraph that `node` calls, whose names are its own; it knows the symbols known
    outside."""
    before = self.graph, self.places, self.exprs, self.asserts, self.called_at
    self.called_at = self.origin(node)
    self.graph, self.places, self.exprs = graph, {}, self.exprs.child()
    self.asserts = prologue.asserts(graph)
    try:
      yield
    finally:
      self.graph, self.places, self.exprs, self.asserts, self.called_at = before

  def _line(self, line):
    kind = type(line).__name__
    if kind in versions.IGNORED_LINES or isinstance(line, str) and line.lstrip()[:1] in ("#", ""):
      return
    method = _LINES.get(kind)
    if method is None:
      shown = f"the line {line.strip()!r}" if isinstance(line, str) else f"a {kind}"
      raise Unsupported(f"{shown} of Inductor's wrapper{self._near()}")
    try:
      method(self, line)
    except Unsupported as error:
      if " (near " in str(error):
        raise
      raise Unsupported(f"{error}{self._near(line)}") from error

  def _near(self, line=None):
    node = getattr(line, "node", None)
    origin = self.origin(node) if node is not None else ""
    origin = origin or next((s.origin for s in reversed(self.statements) if s.origin), "")
    return f" (near {origin})" if origin else ""

  # Names, sizes, places

  def span(self, sizes, strides):
    """Elements from the first to the last, an expression; 0 if there are none."""
    sizes, strides = [sympy.sympify(size) for size in sizes], [sympy.sympify(stride) for stride in strides]
    left, dense = [pair for pair in zip(sizes, strides) if pair[0] != 1], sympy.Integer(1)
    while innermost := next((pair for pair in reversed(left) if pair[1] == dense), None):
      left.remove(innermost)
      dense *= innermost[0]
    if not left:
      return dense
    last = 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides))
    for size in sizes:
      if self._may_be_zero(size):
        last *= sympy.Min(size, 1)
    return last

  def _may_be_zero(self, size):
    from torch.utils._sympy.value_ranges import bound_sympy
    return size == 0 or not size.is_Integer and bool(bound_sympy(size, self.ranges).lower <= 0)

  def bind(self, name, buffer, layout):
    self.places[name] = Place(buffer, layout=layout)

  def known_place(self, name):
    """The place of a name, which may be a constant that nothing has used before."""
    if name not in self.places:
      if name not in self.graph.constants:
        raise Unsupported(f"the buffer {name} is used before anything makes it")
      buffer, offset = self.constants.place(self.graph, name)
      self.places[name] = Place(buffer, sympy.Integer(offset), self.graph.constants[name])
    return self.places[name]

  def view(self, access, what):
    """The bytes that a name of Inductor's stands for, or those of a Place, as a kernel gets them."""
    at = self._place(what)
    self.note(access, at.buffer)
    if at.offset == 0:
      return hir.View(access, at.buffer)
    return hir.View(access, at.buffer, self.exprs.int(at.offset), self.exprs.int(self._bytes(at)))

  def tensor(self, access, node):
    """A tensor argument: a buffer of Inductor or a view of one."""
    name, sizes, strides, dtype, extra = unwrapped(node)
    at = self.known_place(name)
    self.note(access, at.buffer)
    return self.typed(access, at.buffer, dtype, sizes, strides, at.offset + extra)

  def typed(self, access, buffer, dtype, sizes, strides, offset):
    """A typed view; `offset` in bytes."""
    if hir.dtype(dtype) is None:
      raise Unsupported(f"a tensor of dtype {dtype}")
    offset = sympy.sympify(offset)
    elements = offset / dtype.itemsize
    return hir.Tensor(access, buffer, hir.dtype(dtype), self.exprs.ints(sizes), self.exprs.ints(strides),
                      self.exprs.int(sympy.expand(elements)))

  def note(self, access, buffer):
    """Remembers that a constant is written: it is state then."""
    if access != "read" and buffer.space == "constant":
      buffer.space = "state"

  def say(self, head, arguments=None, origin=""):
    self.statements.append(hir.Statement(head, arguments, origin))

  def declare(self, name, sizes, strides, dtype):
    """A buffer of the arena."""
    buffer = hir.Buffer(self.names.take(name), "arena", self.exprs.int(self.span(sizes, strides) * dtype.itemsize), 64)
    self.statements.append(hir.Statement("", buffer=buffer))
    return buffer

  def let(self, name, text):
    """Names a number; returns the name."""
    name = self.names.take(name)
    self.say(f"let {name} = {text}")
    return name

  def origin(self, node):
    """Where in the model a node comes from: of a subgraph's nodes, where it is called, if nothing more is known."""
    text = origin(node)
    return text if not self.called_at or re.search(r"\.py:\d", text) else f"{self.called_at}: {text}"

  # Lines

  def _allocate(self, line):
    node = line.node
    if node.get_name() in self.graph.removed_buffers:
      return
    if getattr(line, "comm_buffer", False):
      raise Unsupported("a buffer for communication between devices")
    sizes = versions.allocation_size(self.graph, node)
    name, _, strides, dtype, _ = unwrapped(node)
    self.places[name] = Place(self.declare(name, sizes, strides, dtype), layout=node)

  def _reuse(self, line):
    old = self.known_place(line.node.get_name())
    self.places[line.reused_as.get_name()] = Place(old.buffer, old.offset, line.reused_as)

  def _reinterpret(self, line):
    name, _, _, _, extra = unwrapped(line.layout.view)
    base = self.known_place(name)
    self.places[line.reused_as.get_name()] = Place(base.buffer, base.offset + extra, line.layout)

  def _zero(self, line):
    at = self.known_place(line.name)
    self.say("fill u8", [hir.View("write", at.buffer), "0"])

  def _symbolic_arg(self, line):
    self.exprs.define(line.arg.inner, self.exprs.any(line.arg.inner_expr))

  def _kernel_definition(self, line):
    self.backend.define_kernel(line.kernel_name, line.kernel_body, line.metadata)

  def _kernel_call(self, line):
    nodes = line.raw_args if line.raw_args and len(line.raw_args) == len(line.call_args) else [None] * len(line.call_args)
    given = [self._given(value, node) for value, node in zip(line.call_args, nodes)]
    launch = self.backend.call_kernel(line.kernel_name, given, self.ranges, self._bytes)
    arguments, written = [], []
    for kind, *rest in launch.arguments:
      if kind in ("null", "asserts"):
        arguments.append(kind)
      elif kind == "value":
        arguments.append(self._value(rest[0]))
      elif kind == "scratch":
        arguments.append(self._scratch(*rest))
      else:
        access, what = rest
        arguments.append(self.view(access, what))
        written += [what] if access != "read" else []
    grid = ", ".join(self.exprs.int(side) for side in launch.grid)
    origins = [self.origin(what.layout if isinstance(what, Place) else self.graph.try_get_buffer(str(what))) for what in written]
    self.say(f"launch {launch.kernel} grid ({grid})", arguments, next(filter(None, origins), ""))

  def _scratch(self, size, align):
    """Memory that a launch has for itself."""
    buffer = hir.Buffer(self.names.take("scratch"), "arena", self.exprs.int(size), align)
    self.statements.append(hir.Statement("", buffer=buffer))
    return hir.View("write", buffer)

  def _place(self, what):
    return what if isinstance(what, Place) else self.known_place(str(what))

  def _bytes(self, what):
    """How many bytes a name or a Place stands for, an expression."""
    sizes, strides, dtype = layout_of(self._place(what).layout)
    return self.span(sizes, strides) * dtype.itemsize

  def _given(self, value, node=None):
    """An argument of a call: a buffer's name, or an expression (None where there is none). A kernel of the user's is given views
    too: `node` is one, and it is the Place of it then. A tensor descriptor's is known by the text."""
    if type(node).__name__ == "TMADescriptorStable":
      name, sizes, strides, _, extra = unwrapped(node.tensor)
      at = self.known_place(name)
      self.places[value] = Place(at.buffer, at.offset + extra, node.tensor)
      return descriptors.Descriptor(value, sizes, strides)
    if type(node).__name__ == "ReinterpretView":
      name, _, _, _, extra = unwrapped(node)
      at = self.known_place(name)
      return Place(at.buffer, at.offset + extra, node)
    if hasattr(value, "inner_expr"):
      return value.inner_expr
    if not isinstance(value, str) or value in self.places or value in self.graph.constants:
      return value
    if re.fullmatch(r"[-+]?\d+", value):
      return sympy.Integer(int(value))
    symbol = sympy.Symbol(value, integer=True)
    if not self.exprs.knows(symbol):
      raise Unsupported(f"the argument {value} of a kernel is neither a buffer nor a symbol")
    return next((known for known in self.ranges if str(known) == value), symbol)

  def _value(self, value):
    if isinstance(value, (bool, int, float)):
      return hir.number(value)
    return self.exprs.any(value)

  def _symbol_defs(self, line):
    """What makes something with sizes of its own has defined their symbols."""
    unknown = [str(symbol) for symbol in line.unbacked_bindings or () if not self.exprs.knows(symbol)]
    if unknown:
      raise Unsupported(f"{line.output_name} decides {', '.join(unknown)}")

  def _multi_output(self, line):
    if line.result_name not in self.places:
      raise Unsupported(f"{line.result_name}, one of the results of {line.arg_name}, has no place")

  def _node(self, line):
    kind = type(line.node).__name__
    if kind not in _NODES:
      raise Unsupported(f"a {kind}")
    _NODES[kind](self, line.node)


def _without_unused(statements):
  """Buffers that no step touches, or that stand for others, are not declared."""
  used = {id(row) for statement in hir.walk(statements) for row in statement.rows()}

  def kept(block):
    for statement in block:
      for inner in statement.blocks():
        inner[:] = kept(inner)
    return [statement for statement in block if (buffer := statement.buffer) is None or
            buffer.stands_for is None and (buffer.space != "arena" or id(buffer) in used)]

  return kept(statements)


def origin(node):
  """Where in the model an IR node comes from: the module and the source line; empty if nothing says it."""
  first = None
  try:
    first = node.get_origin_node() or next(iter(node.get_origins()), None)
  except (AttributeError, NotImplementedError):
    pass
  meta = getattr(first, "meta", None) or {}
  modules = [path for path, _ in (meta.get("nn_module_stack") or {}).values() if path]
  module = re.sub(r"^L\['self'\]\.?", "", str(modules[-1])) if modules else ""
  return " ".join(part for part in (module, place(meta.get("stack_trace"))) if part)


def layout_of(layout):
  """(sizes, strides, dtype) of a layout, a buffer of Inductor or a torch tensor."""
  if hasattr(layout, "get_layout") and not hasattr(layout, "untyped_storage"):
    return layout.get_size(), layout.get_stride(), layout.get_dtype()
  if hasattr(layout, "untyped_storage"):
    return list(layout.shape), list(layout.stride()), layout.dtype
  if hasattr(layout, "get_size"):     # a workspace
    return layout.get_size(), layout.get_stride(), layout.get_dtype()
  return layout.size, layout.stride, layout.dtype


def unwrapped(node):
  """(name of the buffer, sizes, strides, dtype, bytes into the buffer's place) of an IR node."""
  kind = type(node).__name__
  if kind in ("TensorBox", "StorageBox", "MutableBox"):
    return unwrapped(node.data)
  if kind == "ReinterpretView":
    name, _, _, base_dtype, extra = unwrapped(node.data)
    layout = node.layout
    if layout.dtype != base_dtype and layout.offset != 0:
      raise Unsupported(f"a view of {name} as another dtype with an offset")
    return name, layout.size, layout.stride, layout.dtype, extra + layout.offset * layout.dtype.itemsize
  if not hasattr(node, "get_name") or not hasattr(node, "get_size"):
    raise Unsupported(f"a {kind} where a tensor is needed")
  return node.get_name(), node.get_size(), node.get_stride(), node.get_dtype(), sympy.Integer(0)


_LINES = {
    "AllocateLine": Converter._allocate,
    "ReuseLine": Converter._reuse,
    "ReinterpretLine": Converter._reinterpret,
    "ZeroLine": Converter._zero,
    "SymbolicCallArgLine": Converter._symbolic_arg,
    "KernelDefinitionLine": Converter._kernel_definition,
    "KernelCallLine": Converter._kernel_call,
    "ExternKernelOutLine": lambda converter, line: extern.out(converter, line.node),
    "ExternKernelAllocLine": lambda converter, line: extern.alloc(converter, line.node),
    "ExternKernelMultiOutLine": lambda converter, line: extern.multi_out(converter, line.node),
    "ScatterFallbackLine": lambda converter, line: extern.scatter(converter, line.node),
    "IndexPutFallbackLine": lambda converter, line: extern.index_put(converter, line.node, line.indices),
    "MultiOutputLine": Converter._multi_output,
    "DynamicScalarLine": lambda converter, line: data.scalar(converter, line.node),
    "UnbackedSymbolDefsLine": Converter._symbol_defs,
    "NodeLine": Converter._node,
    "BranchLine": control.branch,
    "LoopLine": control.loop,
    "CallLine": control.call,
}

_NODES = {
    "InplaceBernoulliFallback": extern.in_place,
    "InplaceCopyFallback": extern.copy,
    "DeviceCopy": extern.device_copy,
    "DynamicSelectStorageOffset": data.select_offset,
    "DynamicSliceSize": data.slice_size,
    "TensorAssert": data.tensor_assert,
    "Attention": attention_launch.launch,
}
