"""Replaces products with weights of codes by `husk::linear_quantized`, those with stacks of weights
by `husk::grouped_linear_quantized`, and embeddings of weights by `husk::embedding_quantized`.

A weight that `husk::dequantized` computes has its codes already. Another one is computed here if it
depends on constants alone and some of them hold codes. `codes.codes_of` then looks for codes and
scales by which it is that matrix. A weight of floats for which the options have a scheme gets codes
by that scheme. The program has codes and scales as constants named after the weight, in place of
the steps that computed it. A weight whose codes are not found stays as the model computes it, which
is reported."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ..fusion.order import Order
from ..inductor import exported_programs, graphs, writes
from ..inductor.added import AddedConstants
from . import schemes, stacks
from .codes import Codes, codes_of, small
from .operator import dequantized, embedding, grouped_operator, operator
from .packed import codes_of_packed, layouts

if TYPE_CHECKING:
  import torch
  from torch.export import ExportedProgram


@dataclasses.dataclass(frozen=True)
class _Product:
  """A node that multiplies `input` with a matrix of k x n, or, if `has_rows`, of n x k; or one that
  looks up rows of the matrix. With `groups` the weight is a stack of such matrices. A weight that
  is packed codes has scales and offsets in `scales`, for groups of `group` elements."""

  node: torch.fx.Node
  input: torch.fx.Node
  weight: torch.fx.Node
  bias: torch.fx.Node | None
  has_rows: bool
  groups: stacks.Groups | None = None
  scales: torch.fx.Node | None = None
  group: int = 0

  @property
  def is_embedding(self) -> bool:
    import torch

    return self.node.target == torch.ops.aten.embedding.default


@dataclasses.dataclass
class Recognised:
  """Recognises weights of the functions of an export. Functions share what was found for a weight
  that they share. `quantize` is the option."""

  quantize: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  found: dict[Any, Codes | None] = dataclasses.field(default_factory=dict)
  not_found: int = 0

  def program(self, exported: ExportedProgram) -> ExportedProgram:
    """A copy of a program in which products with such weights are Husk's operator. A program
    without one is returned itself."""
    constants, products = _reached_products(exported)
    if constants.is_behind_writes:
      exported = exported_programs.functional(exported, {})
      constants, products = _reached_products(exported)
    matches = []
    for product, reached in products:
      if reached is None:
        continue
      if (own := _own_codes(product)) is not None:
        name = product.node.name
        matches.append(_Match(name, name, own, "", _replaced_by(product, reached)))
        continue
      codes = self._codes(product, reached, constants)
      if codes is not None:
        matches.append(self._match(product, codes, reached, constants))
    if not matches:
      return exported
    changed = exported_programs.copied(exported)
    return _replaced(changed, exported, matches)

  def lines(self) -> list[str]:
    """What was not found, for a log."""
    if not self.not_found:
      return []
    count = f"weights that are computed in each run: {self.not_found}"
    return [f"{count}; their codes and scales were not found"]

  def _codes(self, product: _Product, reached: Reached, constants: Constants) -> Codes | None:
    """The codes of a weight; None if it has none and gets none."""
    is_made_of_codes = any(map(_has_codes, reached.leaves))
    scheme = schemes.scheme_of(self.quantize, reached.name())
    if not is_made_of_codes and (scheme is None or not _is_worth_codes(product, reached)):
      return None
    dtype = str(product.weight.meta["val"].dtype)
    key = (product.has_rows, dtype, product.group, *reached.key())
    if key not in self.found:
      results = constants.results(reached)
      matrix = results[product.weight]
      if not product.has_rows:
        matrix = matrix.mT
      if product.scales is not None:
        scales = results[product.scales]
        codes = codes_of_packed(product.node.target, matrix, product.group, scales)
      else:
        search = codes_of if product.groups is None else stacks.codes_of_stack
        made_from = [*results.values(), *_numbers(reached)]
        codes = search(matrix, made_from) if is_made_of_codes else None
      if codes is None and scheme is not None:
        by_scheme = schemes.by_rows if product.groups is None else stacks.by_rows
        codes = by_scheme(scheme, reached.name(), matrix)
      self.found[key] = codes
      if codes is None:
        self.not_found += 1
        logging.getLogger("husk").warning(
          "the weight of %s is computed from %s in each run: no codes and scales were found",
          product.node.name,
          ", ".join(sorted(reached.leaves.values())),
        )
    return self.found[key]

  def _match(
    self, product: _Product, codes: Codes, reached: Reached, constants: Constants
  ) -> _Match:
    """A product with what multiplies its columns by constants: then the codes alone were its
    weight, and the scales stand there."""
    replaced = _replaced_by(product, reached)
    plain = _Match(product.node.name, product.node.name, codes, reached.name(), replaced)
    found = _factor_after(product, codes.scales.shape[-2], constants)
    if found is None:
      return plain
    scaled, factor, factors = found
    key = (id(codes), *factors.key())
    if key not in self.found:
      scales = small(codes.scales.float() * factor)
      self.found[key] = dataclasses.replace(codes, scales=scales)
    return dataclasses.replace(
      plain,
      last=scaled.name,
      codes=self.found[key],
      replaced=[*replaced, *(node.name for node in factors.nodes)],
    )


@dataclasses.dataclass
class _Match:
  """A product that is to be replaced: the name of its node; that of the last node that is a part of
  it, which may multiply it with scales; the name of the weight; and those of the nodes that the
  call replaces. `codes` are those to add, or the names of nodes that are in the program."""

  product: str
  last: str
  codes: Codes | _OwnCodes
  weight: str
  replaced: list[str]


def _replaced_by(product: _Product, reached: Reached) -> list[str]:
  """The names of the nodes that a call in place of a product replaces."""
  read = product.groups and product.groups.read
  return [node.name for node in (product.node, *reached.nodes, *([read] if read else []))]


@dataclasses.dataclass(frozen=True)
class _OwnCodes:
  """The arguments of the call of husk::dequantized that computes a weight: names of the nodes of
  codes, scales, zeros and values."""

  bits: int
  group: int
  nodes: list[str | None]


def _own_codes(product: _Product) -> _OwnCodes | None:
  """The codes of a weight that husk::dequantized computes; None if another operator does."""
  weight, is_transposed = stacks.without_transposes(product.weight)
  if weight.target is not dequantized() or is_transposed == product.has_rows:
    return None
  call = graphs.arguments(weight)
  parts = [call[name] for name in ("weight", "scales", "zeros", "values")]
  names = [None if part is None else part.name for part in parts]
  return _OwnCodes(call["bits"], call["group"], names)


def _factor_after(
  product: _Product, n: int, constants: Constants
) -> tuple[torch.fx.Node, torch.Tensor, Reached] | None:
  """The node that multiplies a product with constants, one for each column or one for all; the
  n x 1 or 1 x 1 constants, and what they are computed from. None if there is no such node."""
  import torch

  node = product.node
  users = [one for one in node.users if not _only_checks(one)]
  if product.bias is not None or product.is_embedding or product.groups or len(users) != 1:
    return None
  (scaled,) = users
  others = [one for one in scaled.all_input_nodes if one is not node]
  if scaled.target != torch.ops.aten.mul.Tensor or len(others) != 1:
    return None
  if scaled.meta["val"].dtype != node.meta["val"].dtype:
    return None
  if constants.order.is_written_between(node, scaled):
    return None
  factors = constants.leading_to(others[0])
  shape = others[0].meta["val"].shape
  if factors is None or (shape and shape[-1] not in (1, n)):
    return None
  if any(size != 1 for size in shape[:-1]):
    return None
  return scaled, constants.results(factors)[others[0]].reshape(-1, 1).float(), factors


def _only_checks(node: torch.fx.Node) -> bool:
  import torch

  return node.target == torch.ops.aten._assert_tensor_metadata.default


# The operators that multiply with a weight or look up its rows. A row: the operator -> the names of
# its input, weight and bias, and whether the weight is n x k.
def _rows() -> Mapping[Any, tuple[str, str, str, bool]]:
  import torch

  aten = torch.ops.aten
  return {
    aten.linear.default: ("input", "weight", "bias", True),
    aten.matmul.default: ("self", "other", "", False),
    aten.mm.default: ("self", "mat2", "", False),
    aten.addmm.default: ("mat1", "mat2", "self", False),
    aten.embedding.default: ("indices", "weight", "", True),
  }


def _products(exported: ExportedProgram) -> Iterator[_Product]:
  import torch

  aten = torch.ops.aten
  rows = _rows()
  floats = (torch.float32, torch.float16, torch.bfloat16)
  packed = layouts()
  order = Order(exported.graph)
  for node in exported.graph.nodes:
    if node.target in packed:
      parts: Any = node.args
      yield _Product(node, parts[0], parts[1], None, True, scales=parts[3], group=parts[2])
    if (stack := _stack_product(node, order)) is not None:
      yield stack
    if node.target not in rows:
      continue
    input_name, weight_name, bias_name, has_rows = rows[node.target]
    arguments = graphs.arguments(node)
    input, weight = arguments[input_name], arguments[weight_name]
    bias = arguments[bias_name] if bias_name else None
    values: list[Any] = [
      one.meta.get("val") for one in (input, weight) if isinstance(one, torch.fx.Node)
    ]
    if len(values) != 2 or not all(isinstance(one, torch.Tensor) for one in values):
      continue
    if values[1].dtype not in floats:
      continue
    if node.target != aten.embedding.default and values[0].dtype != values[1].dtype:
      continue
    if values[1].dim() != 2 or not all(isinstance(size, int) for size in values[1].shape):
      continue
    if bias is not None and (
      bias.meta["val"].dim() != 1
      or bias.meta["val"].dtype != values[0].dtype
      or arguments.get("alpha", 1) != 1
      or arguments.get("beta", 1) != 1
    ):
      continue
    yield _Product(node, input, weight, bias, has_rows)


def _stack_product(node: torch.fx.Node, order: Order) -> _Product | None:
  """A product with a stack of weights of floats in memory."""
  import torch

  found = stacks.product(node)
  if found is None:
    return None
  input, stack, has_rows, groups = found
  dtype = stack.meta["val"].dtype
  if dtype not in (torch.float32, torch.float16, torch.bfloat16):
    return None
  if input.meta["val"].dtype != dtype or node.meta["val"].dtype != dtype:
    return None
  if not all(isinstance(size, int) for size in stack.meta["val"].shape):
    return None
  if groups.read is not None and order.is_written_between(groups.read, node):
    return None
  return _Product(node, input, stack, None, has_rows, groups)


def _is_worth_codes(product: _Product, reached: Reached) -> bool:
  """Whether a weight is a matrix of floats in memory, and not a small one."""
  matrix = product.weight.meta["val"]
  is_small = matrix.numel() < schemes.LEAST_ELEMENTS or min(matrix.shape[-2:]) <= 1
  return len(reached.leaves) == 1 and not is_small


def _has_codes(leaf: torch.Tensor) -> bool:
  """Whether a constant may hold codes: ints or floats of 8 bits, or packed bits."""
  import torch

  return leaf.numel() > 1 and (
    (not leaf.is_floating_point() and not leaf.is_complex() and leaf.dtype != torch.bool)
    or (leaf.is_floating_point() and leaf.element_size() == 1)
  )


@dataclasses.dataclass
class Reached:
  """What a node is computed from: constants, with their names, and nodes in their order."""

  leaves: dict[torch.Tensor, str]
  nodes: list[torch.fx.Node]

  def key(self) -> tuple[Any, ...]:
    """Equal for what is computed alike from the same memory."""
    places = {node: place for place, node in enumerate(self.nodes)}

    def plain(value: Any) -> Any:
      return (
        places.get(value, str(value))
        if not isinstance(value, (list, tuple))
        else tuple(map(plain, value))
      )

    steps = tuple(
      (str(node.target), plain(node.args), str(node.kwargs))
      for node in self.nodes
      if node.op == "call_function"
    )
    return (steps, *((leaf.data_ptr(), tuple(leaf.shape)) for leaf in self.leaves))

  def name(self) -> str:
    """The name of the weight: that of the parameter that held the codes before it was taken apart,
    or one beside the constants."""
    names = sorted(self.leaves.values())
    codes = [name for leaf, name in self.leaves.items() if _has_codes(leaf)]
    parent, mark, rest = min(codes or names).rpartition(".parametrizations.")
    if mark:
      return f"{parent}.{rest.split('.')[0]}"
    return min(codes or names)


class Constants:
  """The constants of a program that nothing writes, and what is computed from them alone."""

  def __init__(self, exported: ExportedProgram) -> None:
    import torch

    signature: Any = exported.graph_signature
    self.tensors: dict[torch.fx.Node, tuple[str, torch.Tensor]] = {}
    names = {spec.arg.name: spec.target for spec in signature.input_specs if spec.target}
    tensors = {**exported.state_dict, **exported.constants}
    written = {node for node in exported.graph.nodes if writes.may_write(node)}
    changed = set(getattr(signature, "buffers_to_mutate", {}).values())
    for node in exported.graph.find_nodes(op="placeholder"):
      fqn = names.get(node.name, "")
      tensor = tensors.get(fqn)
      if isinstance(tensor, torch.Tensor) and fqn not in changed:
        if not any(user in written for user in node.users):
          self.tensors[node] = (fqn, tensor.detach())
    self._written = written
    self.order = Order(exported.graph)
    # Whether something is computed from constants alone, by operators of which one writes to what
    # another has computed. In a program without such operators, it can be evaluated.
    self.is_behind_writes = False

  def leading_to(self, *ends: torch.fx.Node | None) -> Reached | None:
    """What nodes are computed from, if these are constants alone, and at least one."""
    nodes: dict[torch.fx.Node, None] = {}
    leaves: dict[torch.Tensor, str] = {}
    if not all(self._visit(one, nodes, leaves) for one in ends if one is not None) or not leaves:
      return None
    return Reached(leaves, list(nodes))

  def _visit(
    self, node: torch.fx.Node, nodes: dict[torch.fx.Node, None], leaves: dict[torch.Tensor, str]
  ) -> bool:
    if node in nodes:
      return True
    if node in self.tensors:
      name, tensor = self.tensors[node]
      leaves[tensor] = name
      nodes[node] = None
      return True
    if node.op != "call_function" or not _is_known(node):
      return False
    if not all(self._visit(one, nodes, leaves) for one in node.all_input_nodes):
      return False
    if node in self._written:
      self.is_behind_writes = bool(leaves)
      return False
    nodes[node] = None
    return True

  def results(self, reached: Reached) -> dict[torch.fx.Node, torch.Tensor]:
    """The tensors of all nodes."""
    import torch

    results: dict[torch.fx.Node, Any] = {}
    with torch.no_grad():
      for node in reached.nodes:
        if node in self.tensors:
          results[node] = self.tensors[node][1]
          continue
        target: Any = node.target
        args, kwargs = torch.fx.map_arg((node.args, node.kwargs), results.__getitem__)
        results[node] = target(*args, **kwargs)
    return {node: value for node, value in results.items() if isinstance(value, torch.Tensor)}


def _numbers(reached: Reached) -> list[torch.Tensor]:
  """The numbers that operators take, each as a tensor: one may be the scale of a whole weight."""
  import torch

  found = {
    value for node in reached.nodes for value in node.args if isinstance(value, float) and value
  }
  return [torch.tensor(value) for value in sorted(found)]


def _reached_products(
  exported: ExportedProgram,
) -> tuple[Constants, list[tuple[_Product, Reached | None]]]:
  constants = Constants(exported)
  products = [(one, constants.leading_to(one.weight, one.scales)) for one in _products(exported)]
  return constants, products


def _is_known(node: torch.fx.Node) -> bool:
  """Whether a call has the same result each time that it has the same arguments."""
  import torch

  return torch.Tag.nondeterministic_seeded not in getattr(node.target, "tags", ())


def _replaced(
  program: ExportedProgram,
  exported: ExportedProgram,
  matches: list[_Match],
) -> ExportedProgram:
  """Replaces products in `program`, a copy of `exported`."""
  added = AddedConstants(program)
  products = {product.node.name: product for product in _products(program)}
  nodes = {node.name: node for node in program.graph.nodes}
  for match in matches:
    product, codes, weight = products[match.product], match.codes, match.weight
    # A check of a dtype would keep a step that nothing else needs any more.
    for name in match.replaced:
      for user in list(nodes[name].users):
        if _only_checks(user):
          program.graph.erase_node(user)
    if isinstance(codes, _OwnCodes):
      parts = [None if name is None else nodes[name] for name in codes.nodes]
    else:
      tensors = {
        "": codes.codes,
        "_scales": codes.scales,
        "_zeros": codes.zeros,
        "_values": codes.values,
      }
      parts = [
        None if tensor is None else added.node(weight + end, tensor)
        for end, tensor in tensors.items()
      ]
    # The last node becomes the call, because the outputs of a program have the names of nodes.
    node = nodes[match.last]
    if product.groups is not None:
      _become_grouped(node, product, product.groups, (*parts,), (codes.bits, codes.group))
    elif product.is_embedding:
      dtype = node.meta["val"].dtype
      node.target = embedding()
      node.args = (product.input, *parts, codes.bits, codes.group, dtype)
    else:
      node.target = operator()
      more = (product.bias, None, "none", codes.bits, codes.group)
      node.args = (product.input, *parts, *more)
    node.kwargs = {}
  return added.program(exported)


def _become_grouped(
  node: torch.fx.Node,
  product: _Product,
  groups: stacks.Groups,
  parts: tuple[torch.fx.Node | None, ...],
  numbers: tuple[int, int],
) -> None:
  """Makes a product with a stack the call of husk::grouped_linear_quantized, or what gives its
  result one more dimension."""
  import torch

  aten, row_dim = torch.ops.aten, groups.row_dim
  of = (groups.ends, groups.experts, *numbers)
  if row_dim is None:
    node.target, node.args = grouped_operator(), (product.input, *parts, *of)
    return
  graph = node.graph
  with graph.inserting_before(node), torch.no_grad():
    input = graph.call_function(aten.squeeze.dim, (product.input, row_dim))
    input.meta["val"] = product.input.meta["val"].squeeze(row_dim)
    arguments = (input, *parts, *of)
    call = graph.call_function(grouped_operator(), arguments)
    call.meta["val"] = node.meta["val"].squeeze(row_dim)
  node.target, node.args = aten.unsqueeze.default, (call, row_dim)
