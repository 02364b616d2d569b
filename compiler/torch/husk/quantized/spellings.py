"""Graphs of PT2E in one spelling.

torchao writes a quantization of a tensor as `quantized_decomposed.quantize_per_tensor` or
`quantize_per_channel`, or, by observers of affine quantization, as `torchao.quantize_affine`; and
`convert_pt2e(fold_quantize=False)` leaves weights in floats, with their quantization in the graph.
`canonical` writes the first spelling for the others, and computes the codes of a constant.

Inductor takes a max pooling between codes for one that keeps them, also if scale and zero differ
before and after it, and its result is wrong then. `canonical` moves the quantization before such a
pooling. The result is the same, since rounding keeps the order of numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ..inductor import exported_programs, graphs
from ..inductor.added import AddedConstants
from ..inductor.lines import InductorObject
from .rewriting import Constants, Reached

if TYPE_CHECKING:
  import torch
  from torch.export import ExportedProgram

_AFFINE = ("torchao::quantize_affine", "torchao::dequantize_affine")
_OF_CONSTANTS = (
  "quantized_decomposed::quantize_per_tensor",
  "quantized_decomposed::quantize_per_channel",
)


def canonical(exported: ExportedProgram) -> ExportedProgram:
  """A copy of a program in which tensors are quantized by the operators of `quantized_decomposed`,
  and constants that a program quantizes are codes. A program without other spellings is returned
  itself."""
  return _of_constants(_of_pools(_of_affine(exported)))


def _of_pools(exported: ExportedProgram) -> ExportedProgram:
  if not any(_is_unequal_pool(node) for node in exported.graph.nodes):
    return exported
  import torch

  program = exported_programs.copied(exported)
  graph, ops = program.graph, torch.ops.quantized_decomposed
  for node in list(graph.nodes):
    if not _is_unequal_pool(node):
      continue
    pool: Any = node.args[0]
    numbers = node.args[1:]
    value = pool.args[0].meta["val"]
    with graph.inserting_before(pool):
      codes = graph.call_function(ops.quantize_per_tensor.default, (pool.args[0], *numbers))
      codes.meta["val"] = value.to(numbers[-1])
      floats = graph.call_function(ops.dequantize_per_tensor.default, (codes, *numbers))
      floats.meta["val"] = value
    pool.args = (floats, *pool.args[1:])
  program.graph_module.recompile()
  return program


def _is_unequal_pool(node: torch.fx.Node) -> bool:
  """Whether a node quantizes a max pooling, which nothing else reads, of a tensor that is
  dequantized by other numbers."""
  import torch

  if _name(node) != _OF_CONSTANTS[0]:
    return False
  ops = torch.ops
  if node.target != ops.quantized_decomposed.quantize_per_tensor.default:
    return False
  pool: Any = node.args[0]
  if pool.target != ops.aten.max_pool2d.default or len(pool.users) != 1:
    return False
  before = pool.args[0]
  is_dequantized = before.target == ops.quantized_decomposed.dequantize_per_tensor.default
  return is_dequantized and tuple(before.args[1:]) != tuple(node.args[1:])


def _of_affine(exported: ExportedProgram) -> ExportedProgram:
  if not any(_name(node) in _AFFINE for node in exported.graph.nodes):
    return exported
  program = exported_programs.copied(exported)
  constants, added = Constants(program), AddedConstants(program)
  vectors: dict[torch.fx.Node, torch.fx.Node] = {}
  for node in list(program.graph.nodes):
    if _name(node) in _AFFINE:
      _rewrite_affine(node, constants, added, vectors)
  return added.program(exported)


def _of_constants(exported: ExportedProgram) -> ExportedProgram:
  if not any(True for _ in _quantized_constants(exported, Constants(exported))):
    return exported
  program = exported_programs.copied(exported)
  constants, added = Constants(program), AddedConstants(program)
  for node, reached, name in list(_quantized_constants(program, constants)):
    codes = constants.results(reached)[node]
    node.replace_all_uses_with(added.node(f"{name}_codes", codes))
  return added.program(exported)


def _name(node: torch.fx.Node) -> str:
  schema = getattr(node.target, "_schema", None)
  return schema.name if node.op == "call_function" and schema is not None else ""


def _quantized_constants(
  program: ExportedProgram, constants: Constants
) -> Iterator[tuple[torch.fx.Node, Reached, str]]:
  """Quantizations of constants, with what they are computed from, and the name of the constant."""
  for node in program.graph.nodes:
    if _name(node) not in _OF_CONSTANTS:
      continue
    reached = constants.leading_to(node)
    if reached is not None:
      input: Any = node.args[0]
      floats = constants.leading_to(input)
      yield node, reached, node.name if floats is None else floats.name()


def _rewrite_affine(
  node: torch.fx.Node,
  constants: Constants,
  added: AddedConstants,
  vectors: dict[torch.fx.Node, torch.fx.Node],
) -> None:
  """Writes a call for whole tensors, or for the channels of one dimension, in the other spelling.
  Calls with other blocks stay, and so do those whose scales are no constants. `vectors` has the
  scales and zeros that became vectors: dimensions of one element are not reduced, so that some
  scales keep them."""
  import torch

  ops = torch.ops.quantized_decomposed
  values = graphs.arguments(node)
  input, block = values["input"], list(values["block_size"])
  if values.get("zero_point_domain", "INT") != "INT":
    return
  places = [values[name] for name in ("scale", "zero_point")]
  if not all(one in constants.tensors for one in places):
    return
  found = [constants.tensors[one] for one in places]
  shape = list(input.meta["val"].shape)
  quantizes = _name(node) == _AFFINE[0]
  dtype = values["output_dtype" if quantizes else "input_dtype"]
  if dtype not in (torch.int8, torch.uint8, torch.int16, torch.int32):
    return
  info = torch.iinfo(dtype)
  least, most = (
    limit if values[name] is None else int(values[name])
    for name, limit in (("quant_min", info.min), ("quant_max", info.max))
  )
  result = {}
  if not quantizes and values["output_dtype"] != torch.float32:
    result = {"out_dtype": values["output_dtype"]}
  channels = [dim for dim, (one, size) in enumerate(zip(block, shape, strict=True)) if one != size]
  (_, scale), (_, zero) = found
  if scale.numel() == 1:
    target = ops.quantize_per_tensor if quantizes else ops.dequantize_per_tensor
    arguments = (input, float(scale), int(zero), least, most, dtype)
  elif len(channels) == 1 and block[channels[0]] == 1 and scale.numel() == zero.numel():
    target = ops.quantize_per_channel if quantizes else ops.dequantize_per_channel
    parts = []
    for part, (title, tensor) in zip(places, found, strict=True):
      if tensor.dim() != 1 and part not in vectors:
        vectors[part] = added.node(f"{title}_vector", tensor.reshape(-1))
      parts.append(vectors.get(part, part))
    arguments = (input, *parts, channels[0], least, most, dtype)
  else:
    return
  node.target, node.args, node.kwargs = target.default, arguments, result


def lowerings() -> dict[Any, Callable[..., Any]]:
  """Inductor's lowerings by operator, for all targets. Inductor itself makes an operator of a max
  pooling between equal codes, for which targets have a kernel of Inductor's instead."""
  import torch

  return {torch.ops.quantized.max_pool2d.default: _max_pooled}


def _max_pooled(codes: InductorObject, *window: Any) -> InductorObject:
  import torch
  from torch._inductor.lowering import lowerings as table

  return table[torch.ops.aten.max_pool2d_with_indices.default](codes, *window)[0]
