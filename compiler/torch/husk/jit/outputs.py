"""The end of a graph's program: what it returns, and what the module makes of that.

A graph may return inputs, parts of inputs, and several views of one buffer. The program returns
each buffer once, and the module makes the views, so that they share memory as torch expects."""

from __future__ import annotations

import dataclasses
from typing import Any

import sympy

from .. import hir
from ..errors import Unsupported
from ..inductor.one_device import Kept
from ..lower.body import Body
from ..lower.nodes import IrNode, NodeView, Place, layout_of, node_view, unboxed
from ..program.values import Output


@dataclasses.dataclass
class Returned:
  """The outputs and results of the program, and for each output of the graph a Python expression of
  the arguments and of `output0`, `output1`, and so on."""

  outputs: list[Output]
  results: list[hir.Result]
  expressions: list[str]
  values: list[Value]

  @property
  def on_host(self) -> bool:
    """Whether an output is a tensor in host memory beside the device."""
    rows = (
      row for result in self.results if isinstance(result, hir.Tensor) for row in result.rows()
    )
    return any(row.on_host for row in rows)


@dataclasses.dataclass
class Value:
  """An output of the graph as `husk.save_compiled` needs it: a tensor in memory of the program, or
  a number, or None. `text` is the number, or the sizes and strides of the tensor."""

  text: str
  buffer: hir.Buffer | None = None
  dtype: str = ""
  offset: str = ""  # in bytes
  bytes: str = ""

  def json(self) -> list[str]:
    name = "" if self.buffer is None else self.buffer.row().name
    return [self.text, name, self.dtype, self.offset, self.bytes]


def write(body: Body, kept: Kept) -> Returned:
  """Writes the end of a program. `kept` says which inputs and outputs are on the CPU beside the
  device."""
  return _Writer(body, kept).write()


class _Writer:
  def __init__(self, body: Body, kept: Kept) -> None:
    self.body, self.kept = body, kept
    self.returned = Returned([], [], [], [])
    graph = body.graph
    # The Python names of the inputs' buffers and of the symbols that are inputs.
    self.arguments = {id(place.buffer): name for name, place in _input_places(body)}
    self.symbols = {
      node: name for name, node in graph.graph_inputs.items() if isinstance(node, sympy.Symbol)
    }
    self.numbers: dict[Any, str] = {}  # expression -> the output that has its value
    # id of a buffer -> the output that is the buffer, with its sizes or as bytes
    self.whole: dict[int, str] = {}
    self.buffers: dict[int, str] = {}
    # id of a buffer of the device -> the copy of it in host memory that is returned
    self.copies: dict[int, hir.Buffer] = {}

  def write(self) -> Returned:
    nodes = [unboxed(node) for node in self.body.graph.graph_outputs]
    views = [None if _is_number(node) else node_view(node) for node in nodes]
    on_host = self.kept.outputs or (False,) * len(nodes)
    uses: dict[int, set[Any]] = {}  # id of a buffer -> the views of it that are returned
    for view, is_there in zip(views, on_host, strict=True):
      if view is not None and view.name not in self.body.scalars:
        uses.setdefault(id(self._returned_place(view, is_there).buffer), set()).add(_key(view))
    for node, view, is_there in zip(nodes, views, on_host):
      expression = self._number(node) if view is None else self._tensor(view, uses, is_there)
      self.returned.expressions.append(expression)
      self.returned.values.append(self._described(node, view, is_there))
    return self.returned

  def _returned_place(self, view: NodeView, on_host: bool) -> Place:
    """The place of the memory that is returned for a view. `on_host` tells whether that is memory
    of the host, to which a buffer of the device is copied."""
    place = self.body.place(view.name)
    buffer = place.buffer.row()
    if on_host and id(buffer) not in self.arguments:
      buffer = self._copy(buffer)
    return Place(buffer, place.offset, place.layout)

  def _copy(self, buffer: hir.Buffer) -> hir.Buffer:
    """The copy of a buffer in host memory."""
    if id(buffer) not in self.copies:
      body = self.body
      copy = hir.Buffer(
        body.names.take(f"{buffer.name}_on_host"), "output", buffer.bytes, on_host=True
      )
      body.emit(hir.Declare(copy))
      source = hir.View("read", buffer)
      body.emit(hir.Copy(hir.View("write", copy), source, "an output on the CPU"))
      self.copies[id(buffer)] = copy
    return self.copies[id(buffer)]

  def _described(self, node: IrNode, view: NodeView | None, on_host: bool) -> Value:
    body = self.body
    if view is None:
      if type(node).__name__ == "NoneAsConstantBuffer":
        return Value("none")
      number = body.exprs.any(getattr(node, "expr", node))
      return Value(str(hir.Number(number, number.is_float)))
    dtype = hir.dtype(view.dtype)
    if view.name in body.scalars or dtype is None:
      return Value("")  # nothing that a file could return
    place = self._returned_place(view, on_host)
    offset = body.exprs.int(sympy.expand(place.offset + view.byte_offset))
    span = body.exprs.int(body.span(view.sizes, view.strides) * view.dtype.itemsize)
    sizes, strides = (
      f"[{', '.join(map(str, body.exprs.ints(numbers)))}]" for numbers in (view.sizes, view.strides)
    )
    return Value(f"{sizes} {strides}", place.buffer, dtype, str(offset), str(span))

  def _output(self, output: Output, result: hir.Result) -> str:
    self.returned.outputs.append(output)
    self.returned.results.append(result)
    return f"output{len(self.returned.outputs) - 1}"

  # Numbers

  def _number(self, node: IrNode) -> str:
    if type(node).__name__ == "NoneAsConstantBuffer":
      return "None"
    return self._value(getattr(node, "expr", node))

  def _value(self, expression: Any) -> str:
    """A number as Python text: a literal, an argument, or an output of the program."""
    expression = sympy.sympify(expression)
    if expression.is_Integer:
      return str(int(expression))
    if expression in self.symbols:
      return self.symbols[expression]
    if expression not in self.numbers:
      value = self.body.exprs.any(expression)
      kind = "float" if value.is_float else "int"
      name = self._name()
      self.numbers[expression] = self._output(Output(name, kind), hir.Number(value, value.is_float))
    return self.numbers[expression]

  def _name(self) -> str:
    return self.body.names.take(f"output{len(self.returned.outputs)}")

  # Tensors

  def _tensor(self, view: NodeView, uses: dict[int, set[Any]], on_host: bool) -> str:
    if view.name in self.body.scalars:
      return view.name
    place = self._returned_place(view, on_host)
    offset = sympy.expand(place.offset + view.byte_offset)
    argument = self.arguments.get(id(place.buffer))
    if argument is not None:
      if (argument in self.kept.inputs) != on_host:
        raise Unsupported(f"the output {view.name} shares memory with an input on another device")
      layout = layout_of(self.body.places[argument].layout)
      whole = NodeView(argument, layout.sizes, layout.strides, layout.dtype, sympy.Integer(0))
      return self._part(argument, whole, view, offset)
    if place.buffer.space not in ("arena", "output"):
      raise Unsupported(f"the output {view.name} lies in memory of the kind {place.buffer.space}")
    span = self.body.exprs.int(self.body.span(view.sizes, view.strides) * view.dtype.itemsize)
    key = id(place.buffer)
    if key in self.whole:
      return self.whole[key]
    if len(uses[key]) == 1 and offset == 0 and place.buffer.bytes == span:
      self.whole[key] = self._whole(place.buffer, view)
      return self.whole[key]
    if key not in self.buffers:
      self.buffers[key] = self._flat(place.buffer, view)
    return self._part(self.buffers[key], None, view, offset)

  def _whole(self, buffer: hir.Buffer, view: NodeView) -> str:
    """A buffer that is one output becomes memory of the caller."""
    body = self.body
    name = self._returned(buffer, view)
    result = body.typed_view("", buffer, view.dtype, view.sizes, view.strides, 0)
    return self._output(Output(name, "tensor", result.dtype, len(view.sizes)), result)

  def _flat(self, buffer: hir.Buffer, view: NodeView) -> str:
    """A buffer of which parts are outputs is returned as bytes."""
    assert buffer.bytes is not None
    name = self._returned(buffer, view)
    result = hir.Tensor("", buffer, "u8", [buffer.bytes], [hir.Literal(1)])
    return self._output(Output(name, "tensor", "u8", 1), result)

  def _returned(self, buffer: hir.Buffer, view: NodeView) -> str:
    name = self._name()
    buffer.space, buffer.name = "output", name
    buffer.align = hir.alignment(view.dtype)
    if not buffer.on_host:
      buffer.align = max(buffer.align, self.body.backend.alignment)
    return name

  def _part(self, name: str, whole: NodeView | None, view: NodeView, offset: Any) -> str:
    """A view of the tensor `name`, whose sizes, strides and dtype are those of `whole`; None: the
    tensor has the bytes of a buffer."""
    same = whole is not None and (list(whole.sizes), list(whole.strides), whole.dtype) == (
      list(view.sizes),
      list(view.strides),
      view.dtype,
    )
    if same and offset == 0:
      return name
    offset = sympy.expand(offset / view.dtype.itemsize)
    sizes, strides = (
      f"({''.join(f'{self._value(one)}, ' for one in numbers)})"
      for numbers in (view.sizes, view.strides)
    )
    dtype = str(view.dtype)
    return f"part({name}, {sizes}, {strides}, {self._value(offset)}, {dtype!r})"


def _key(view: NodeView) -> Any:
  return tuple(view.sizes), tuple(view.strides), view.dtype, view.byte_offset


def _input_places(body: Body) -> list[tuple[str, Place]]:
  names = [*body.graph.graph_input_names, *body.graph.constants]
  return [(name, body.place(name)) for name in names if name in body.places]


def _is_number(node: IrNode) -> bool:
  """Whether an output is a number or None."""
  return isinstance(node, sympy.Basic) or type(node).__name__ in (
    "NoneAsConstantBuffer",
    "ShapeAsConstantBuffer",
  )
