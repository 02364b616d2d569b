"""From the lines of Inductor's wrapper to the text of a Python module that runs an artifact.

torch keeps the text in its caches, so the artifact is part of it. Parameters are inputs of the
graph and constants of the graph are attributes of the module: the artifact has no weights. The text
also holds the program's source, from which `husk.save_compiled` makes a file with weights."""

from __future__ import annotations

import pathlib
import tempfile
from collections.abc import Sequence
from typing import Any

import sympy

from .. import hir
from ..devices.device import Device, GraphKernels
from ..errors import Unsupported
from ..hir import huskc
from ..inductor import one_device, torch_compat
from ..inductor.assumed import Assumption
from ..inductor.layouts import span
from ..inductor.lines import InductorObject
from ..lower import lines, prologue
from ..lower.body import Body
from ..lower.nodes import Graph
from ..program.constants import Places
from ..program.signature import Signature, limits
from ..program.values import Input
from ..version import VERSION
from . import beside, outputs, sections, waits


class Constants(Places):
  """The constants of a graph, which are further inputs of its program."""

  def __init__(self, names: hir.Names) -> None:
    self._names = names
    self.rows: dict[str, tuple[Input, hir.Buffer]] = {}  # by Inductor's name

  def inputs(self) -> list[Input]:
    return [value for value, _ in self.rows.values()]

  def place(self, graph: Graph, name: str) -> tuple[hir.Buffer, int]:
    if name not in self.rows:
      tensor = graph.constants[name]
      dtype = hir.required_dtype(tensor.dtype, f"the constant {name}")
      value = Input(self._names.take(name), "tensor", dtype, tuple(map(str, tensor.shape)))
      size = hir.Literal(span(tensor.shape, tensor.stride()) * tensor.element_size())
      buffer = hir.Buffer(value.name, "input", size, hir.alignment(tensor.dtype))
      self.rows[name] = value, buffer
    return self.rows[name][1], 0

  def counters(self, count: int) -> hir.Buffer:
    raise ValueError("a graph of torch.compile has no state of its own")

  def generator(self) -> None:
    """The operators draw random numbers from torch's generators."""


class Writer:
  """Writes the module of one graph. `mode` is that of the sessions, `kept` says what the graph
  takes and returns on the CPU beside its device. `waited` names the inputs that a collective may
  not have written yet."""

  def __init__(
    self,
    device: Device,
    kernels: GraphKernels,
    mode: str,
    kept: one_device.Kept,
    waited: Sequence[str] = (),
  ) -> None:
    self.device, self.kernels, self.mode, self.kept = device, kernels, mode, kept
    self.waited = waited

  def write(self, wrapper: InductorObject, guards: list[tuple[Any, Any]]) -> Any:
    """The compiled program for Inductor. The graph of the wrapper is the current one."""
    from torch._inductor.virtualized import V

    graph = V.graph
    names = hir.Names()
    row = names.take(self.device.row)
    constants = Constants(names)
    signature = Signature(_inputs(graph, self.device, names, self.kept), [], {}, names, [])
    body = Body(graph, signature, constants, self.kernels, names)
    self.kernels.begin_function()
    # torch itself keeps the other conditions, for all graphs but those of a backward.
    limits = [
      Assumption(condition)
      for condition, value in guards
      if value == sympy.true and prologue.indexed(condition) is not None
    ]
    prologue.write(body, limits)
    numbers = set(body.scalars)
    inputs = beside.Beside(body, self.kept)
    inputs.enter(graph, signature.inputs)
    lines.LineVisitor(body, {**lines.NODES, **self.kernels.nodes}).visit(wrapper.lines)
    inputs.leave()
    for note in inputs.large():
      self.device.note(note)
    returned = outputs.write(body, self.kept)
    writes = inputs.writes or returned.on_host
    body.statements[:0] = [hir.Declare(buffer) for _, buffer in constants.rows.values()]
    waits.pair(body.statements)
    self.kernels.note_statements(body.statements)
    self.kernels.finish()
    program = hir.Program(f"husk {VERSION}, torch {torch_compat.torch_version()}")
    program.targets.append(self.device.line)
    program.rows = self.kernels.rows(row)
    variant = hir.Variant(row, lines.without_unused(body.statements), returned.results)
    function = hir.Function(
      "forward",
      [value.line() for value in [*signature.inputs, *constants.inputs()]],
      [value.line() for value in returned.outputs],
      [variant],
    )
    program.functions.append(function)
    arguments = [f"{name}.item()" if name in numbers else name for name in graph.graph_input_names]
    arguments += constants.rows
    source = sections.Source(
      target=self.device.line,
      rows=program.rows,
      inputs=function.inputs,
      code=hir.encoded([variant.statements, returned.results]),
      outputs=function.outputs,
      arguments=arguments,
      expressions=returned.expressions,
      values=[value.json() for value in returned.values],
      called=self.kernels.called.names,
      symbols={
        value.name: str(graph.graph_inputs[name])
        for name, value in zip(graph.graph_input_names, signature.inputs)
        if isinstance(graph.graph_inputs.get(name), sympy.Basic)
      },
    )
    return torch_compat.program_of_text(
      _module(
        [*sections.text(_artifact(program, self.kernels.files()), source)],
        [
          repr(self.device.name),
          repr(self.kernels.called.names),
          repr(self.mode),
          *([repr(inputs.read), repr(writes)] if inputs.read or writes else []),
        ],
        graph.graph_input_names,
        arguments,
        returned,
        self.waited,
      )
    )


def _inputs(graph: Graph, device: Device, names: hir.Names, kept: one_device.Kept) -> list[Input]:
  """The inputs of a graph."""
  ranges = graph.sizevars.shape_env.var_to_range
  return [
    _input(name, graph.graph_inputs.get(name), device, ranges, names, kept)
    for name in graph.graph_input_names
  ]


def _input(
  name: str, node: Any, device: Device, ranges: Any, names: hir.Names, kept: one_device.Kept
) -> Input:
  taken = names.take(name)
  if node is None:
    return Input(taken, "none")
  if isinstance(node, sympy.Basic):
    if not node.is_integer:
      raise Unsupported(f"the input {name} is the number {node}, which is no int")
    bounds = limits(node, ranges)
    return Input(taken, "int", ranges=() if bounds is None else (bounds,))
  if type(node).__name__ != "TensorBox":
    raise Unsupported(f"the input {name} is a {type(node).__name__}")
  if node.get_device().type != device.torch_type or name in kept.numbers:
    return _scalar(name, taken, node, device)
  sizes = tuple(limits(size, ranges) for size in node.get_size())
  dtype = hir.required_dtype(node.get_dtype(), f"the input {name}")
  return Input(taken, "tensor", dtype, sizes)


def _scalar(name: str, taken: str, node: Any, device: Device) -> Input:
  """A tensor of the CPU without dimensions is a number for kernels of a GPU."""
  dtype = node.get_dtype()
  if node.get_size() or dtype.is_complex:
    raise Unsupported(
      f"the input {name} is a tensor on {node.get_device()}, the graph runs on {device.name}: move "
      f'it there by .to("{device.name}")'
    )
  if dtype.is_floating_point:
    return Input(taken, "float")
  return Input(taken, "bool" if str(dtype) == "torch.bool" else "int")


def _artifact(program: hir.Program, files: dict[str, bytes]) -> bytes:
  """The artifact of a program and the images that it names."""
  with tempfile.TemporaryDirectory(prefix="husk-") as name:
    folder = pathlib.Path(name)
    for file, content in files.items():
      (folder / file).write_bytes(content)
    source = folder / "model.hir"
    source.write_text(program.text(), encoding="utf-8")
    artifact = folder / "model.husk"
    huskc.compile(source, artifact)
    return artifact.read_bytes()


def _module(
  head: list[str],
  options: list[str],
  parameters: list[str],
  arguments: list[str],
  returned: outputs.Returned,
  waited: Sequence[str],
) -> str:
  """The text of the module. `head` has the artifact, in comments, so that Python keeps no copy of
  it. `options` are further arguments of `module.load`. torch takes `call` from the module once and
  keeps the module for ever, so the module itself does not refer to the program: the program goes
  with the compiled graph. torch calls `call` with a list, which it empties, so that tensors which
  nobody else needs can be freed."""
  targets = [f"output{index}" for index in range(len(returned.outputs))]
  unpacked = {0: "", 1: f"{targets[0] if targets else ''} = "}.get(
    len(targets), f"{', '.join(targets)} = "
  )
  return "\n".join(
    [
      *head,
      "from husk.jit.module import load, part, remembered, wait",
      "",
      "def __getattr__(name):",
      '  if name != "call":',
      "    raise AttributeError(name)",
      f"  program = load(__file__, {', '.join(options)})",
      "  def call(args):",
      *([f"    ({', '.join(parameters)},) = args"] if parameters else []),
      "    args.clear()",
      *([f"    wait({', '.join(waited)})"] if waited else []),
      f"    {unpacked}program({', '.join(arguments)})",
      f"    return ({''.join(f'{one}, ' for one in returned.expressions)})",
      "  return remembered(call)",
      "",
    ]
  )
