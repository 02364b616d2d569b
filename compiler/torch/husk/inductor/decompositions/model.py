"""Operators in terms of other operators: attention as two products and a softmax, an LSTM as
cells, a pseudoinverse as singular values and a product, the edges of a histogram as distances; and
torchvision's operators (vision.py)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ...errors import Unsupported
from .. import own_operators, torch_compat
from ..layouts import order_in_memory
from . import composites, internal, pads, product, select, steps, vision

if TYPE_CHECKING:
  import torch


def table() -> dict[Any, Callable[..., Any]]:
  """The decompositions by operator."""
  import torch

  # The library transformers registers this operator when its layers of experts are imported.
  of_experts = getattr(torch.ops.transformers, "grouped_mm_fallback", None)
  return {
    **({} if of_experts is None else {of_experts.default: _grouped_mm}),
    torch.ops.aten.scaled_dot_product_attention.default: _attention,
    torch.ops.aten.lstm.input: _lstm,
    torch.ops.aten.lstm_cell.default: _lstm_cell,
    torch.ops.aten.gru_cell.default: _gru_cell,
    torch.ops.aten.scalar_tensor.default: _scalar_tensor,
    **steps.table(),
    **{op: _of_bytes(op) for op in _tests(torch.ops.aten)},
    torch.ops.aten.scatter.reduce: _scatter,
    torch.ops.aten.scatter.value_reduce: _scatter_value,
    torch.ops.aten.tensor_split.tensor_indices_or_sections: _tensor_split,
    torch.ops.aten.grid_sampler.default: _grid_sampler,
    torch.ops.aten.take.default: select.take,
    torch.ops.aten.pad.default: pads.circular,
    torch.ops.aten.histogramdd.default: _histogramdd,
    torch.ops.aten.pinverse.default: _pinv,
    torch.ops.aten.linalg_pinv.default: _pinv,
    torch.ops.aten.linalg_pinv.rcond_tensor: _pinv,
    torch.ops.aten.linalg_pinv.atol_rtol_float: _pseudoinverse,
    torch.ops.aten.linalg_pinv.atol_rtol_tensor: _pseudoinverse,
    torch.ops.aten._grouped_mm.default: _grouped_mm,
    torch.ops.aten._weight_int8pack_mm.default: _weight_int8pack_mm,
    **product.in_other_dtypes(),
    **composites.table(),
    torch.ops.aten._unsafe_masked_index.default: _masked_index,
    torch.ops.aten._unsafe_masked_index_put_accumulate.default: _masked_index_add,
    **vision.table(),
    **internal.table(),
    **own_operators.decompositions(),
  }


def _scalar_tensor(value: Any, *, dtype: torch.dtype | None = None, **options: Any) -> Any:
  """Without a dtype the tensor is one of floats in eager mode. Inductor would take the type of the
  number."""
  import torch

  if dtype is not None:
    return NotImplemented
  default = torch.get_default_dtype()
  dtype = default.to_complex() if isinstance(value, complex) else default
  return torch.ops.aten.scalar_tensor.default(value, dtype=dtype, **options)


def _tests(aten: Any) -> list[Any]:
  """The operators that tell whether any or all elements are set."""
  return [getattr(op, name) for op in (aten.any, aten.all) for name in ("default", "dim", "dims")]


def _of_bytes(test: Any) -> Callable[..., Any]:
  """A test of elements that are uint8, which has the same type. That of Inductor is bool."""
  import torch

  def tested(x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    if x.dtype is not torch.uint8:
      return NotImplemented
    return test(x.to(torch.bool), *args, **kwargs).to(torch.uint8)

  return tested


def _scatter(
  x: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor, *, reduce: str
) -> Any:
  """A scatter of complex numbers with a reduction, by the operator that every target has for it."""
  import torch

  if not x.is_complex():
    return NotImplemented
  name = {"add": "sum", "multiply": "prod"}[reduce]
  return torch.ops.aten.scatter_reduce.two(x, dim, index, source, name)


def _scatter_value(
  x: torch.Tensor, dim: int, index: torch.Tensor, value: Any, *, reduce: str
) -> Any:
  import torch

  source = torch.full(index.shape, value, dtype=x.dtype, device=x.device)
  return _scatter(x, dim, index, source, reduce=reduce)


def _inside(x: torch.Tensor, indices: Sequence[torch.Tensor | None]) -> list[torch.Tensor | None]:
  """Indices that the tensor has. Where the mask of an index is not set, it may be any number."""
  return [
    None if index is None else index.clamp(-size, size - 1) for index, size in zip(indices, x.shape)
  ]


def _masked_index(
  x: torch.Tensor, mask: torch.Tensor, indices: Sequence[torch.Tensor | None], fill: float
) -> torch.Tensor:
  """As in eager mode, an index that a model states is clamped. The decompositions of Inductor call
  the operator with indices which they know, and these stay as they are."""
  import torch

  return torch.ops.aten._unsafe_index(x, _inside(x, indices)).masked_fill(
    torch.logical_not(mask), fill
  )


def _masked_index_add(
  x: torch.Tensor,
  mask: torch.Tensor,
  indices: Sequence[torch.Tensor | None],
  values: torch.Tensor,
) -> torch.Tensor:
  import torch

  values = values.masked_fill(torch.logical_not(mask), 0)
  return torch.ops.aten._unsafe_index_put(x, _inside(x, indices), values, True)


def _grouped_mm(
  x: torch.Tensor,
  y: torch.Tensor,
  offs: torch.Tensor | None = None,
  bias: torch.Tensor | None = None,
  out_dtype: torch.dtype | None = None,
) -> Any:
  """The products of all groups, of which each element takes that of its group. `offs` are the ends
  of the groups: of the rows of x, of the columns of y, or of the depth. What lies behind the last
  group is zero; eager mode leaves it undefined."""
  import torch

  groups = y.shape[0] if y.dim() == 3 else x.shape[0] if x.dim() == 3 else _length(offs)
  if bias is not None or not isinstance(groups, int):
    return NotImplemented
  if offs is None:
    return torch.bmm(x, y).to(out_dtype or x.dtype)
  length = x.shape[0] if y.dim() == 3 else y.shape[1] if x.dim() == 3 else y.shape[0]
  places = torch.arange(length, device=x.device)
  group_of = (offs.unsqueeze(0) <= places.unsqueeze(1)).sum(1)
  if x.dim() == y.dim():
    parts = [torch.where((group_of == group).unsqueeze(0), x, 0) @ y for group in range(groups)]
    return torch.stack(parts).to(out_dtype or x.dtype)
  is_inside, result = group_of.unsqueeze(1 if y.dim() == 3 else 0), None
  for group in range(groups):
    part = x @ y[group] if y.dim() == 3 else x[group] @ y
    others = torch.zeros_like(part) if result is None else result
    result = torch.where(is_inside == group, part, others)
  return None if result is None else result.to(out_dtype or x.dtype)


def _length(offs: torch.Tensor | None) -> Any:
  return None if offs is None else offs.shape[0]


def _weight_int8pack_mm(x: torch.Tensor, weight: torch.Tensor, scales: torch.Tensor) -> Any:
  return ((x.float() @ weight.t().float()) * scales.float()).to(x.dtype)


@contextlib.contextmanager
def one_row() -> Iterator[None]:
  """Makes Inductor compute a product of one row with a bias as a sum, while open.

  Inductor does so for products without a bias if config.coordinate_descent_tuning is set.
  """
  import torch
  from torch._inductor import config, decomposition
  from torch.fx.experimental.symbolic_shapes import statically_known_true

  op = torch.ops.aten.addmm.default
  before = decomposition.decompositions[op]

  def addmm(
    bias: torch.Tensor,
    row: torch.Tensor,
    other: torch.Tensor,
    *args: Any,
    beta: float = 1,
    alpha: float = 1,
    **more: Any,
  ) -> Any:
    if (
      args
      or more
      or not config.coordinate_descent_tuning
      or row.device.type != "cuda"
      or (not statically_known_true(row.shape[0] == 1))
    ):
      return before(bias, row, other, *args, beta=beta, alpha=alpha, **more)
    product = (row.unsqueeze(2) * other.unsqueeze(0)).sum(dim=1)
    product = product if alpha == 1 else product * alpha
    return product if beta == 0 else product + (bias if beta == 1 else bias * beta)

  with torch_compat.decomposed({op: addmm}):
    yield


def _attention(
  query: torch.Tensor,
  key: torch.Tensor,
  value: torch.Tensor,
  attn_mask: torch.Tensor | None = None,
  dropout_p: float = 0.0,
  is_causal: bool = False,
  *,
  scale: float | None = None,
  enable_gqa: bool = False,
) -> torch.Tensor:
  import torch

  if dropout_p:
    raise Unsupported(f"attention with dropout ({dropout_p}): export the model in eval mode")
  if enable_gqa:
    key, value = (
      part.repeat_interleave(query.size(-3) // part.size(-3), -3) for part in (key, value)
    )
  # Each factor is scaled by the root of the scale, which keeps half-precision products in range.
  root = scale**0.5 if scale is not None else query.size(-1) ** -0.25
  scores = (query * root) @ (key * root).transpose(-2, -1)
  if is_causal:
    rows = torch.arange(query.size(-2), device=query.device).unsqueeze(-1)
    columns = torch.arange(key.size(-2), device=query.device)
    scores = torch.where(columns <= rows, scores, float("-inf"))
  if attn_mask is not None:
    if attn_mask.dtype is torch.bool:
      scores = torch.where(attn_mask, scores, float("-inf"))
    else:
      scores = scores + attn_mask
  dtype = torch.promote_types(query.dtype, torch.float32)
  result = torch.softmax(scores, -1, dtype=dtype).to(query.dtype) @ value
  # In eager mode the result has the query's order in memory, and torch leaves out a copy after the
  # call that this makes unnecessary.
  order = order_in_memory(torch.empty_like(query))
  if order == list(range(len(order))):
    return result
  return result.permute(order).contiguous().permute([order.index(d) for d in range(len(order))])


def _lstm(
  input: torch.Tensor,
  hx: Sequence[torch.Tensor],
  params: Sequence[torch.Tensor],
  has_biases: bool,
  num_layers: int,
  dropout: float,
  train: bool,
  bidirectional: bool,
  batch_first: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
  """An LSTM as cells. The products of a layer's inputs with its weights are one product for all
  steps. The last states of torch's own decomposition have one dimension too many."""
  import torch

  if dropout and train:
    raise Unsupported(f"an LSTM with dropout ({dropout}): export the model in eval mode")
  values = input.transpose(0, 1) if batch_first else input
  directions = 2 if bidirectional else 1
  # A direction of a layer has two weights, perhaps two biases and perhaps a projection.
  per_direction = len(params) // (num_layers * directions)
  hidden_states: list[torch.Tensor] = []
  cell_states: list[torch.Tensor] = []
  for layer in range(num_layers):
    layer_outputs: list[torch.Tensor] = []
    for direction in range(directions):
      index = layer * directions + direction
      weights = params[index * per_direction : (index + 1) * per_direction]
      outputs, hidden, cell = _lstm_layer(
        values, hx[0][index], hx[1][index], weights, has_biases, direction == 1
      )
      layer_outputs.append(outputs)
      hidden_states.append(hidden)
      cell_states.append(cell)
    values = torch.cat(layer_outputs, -1) if directions == 2 else layer_outputs[0]
  return (
    values.transpose(0, 1) if batch_first else values,
    torch.stack(hidden_states),
    torch.stack(cell_states),
  )


def _lstm_layer(
  values: torch.Tensor,
  hidden: torch.Tensor,
  cell: torch.Tensor,
  weights: Sequence[torch.Tensor],
  has_biases: bool,
  is_reverse: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
  """The outputs of one direction of one layer, and its last hidden and cell states."""
  import torch
  from torch.nn.functional import linear

  input_weight, hidden_weight = weights[:2]
  input_bias, hidden_bias = weights[2:4] if has_biases else (None, None)
  projection = weights[-1] if len(weights) % 2 else None
  if _is_layer_of_host(values, projection):
    return _lstm_layer_of_host(values, hidden, cell, weights, has_biases, is_reverse)
  if not isinstance(values.shape[0], int):
    raise Unsupported(
      "an LSTM whose number of steps varies, with a projection or with other numbers than float32: "
      "here it has kernels for each step; export it for one number of steps"
    )
  steps = linear(values, input_weight, input_bias).unbind(0)
  outputs = []
  for step in reversed(steps) if is_reverse else steps:
    gates = linear(hidden, hidden_weight, hidden_bias) + step
    input_gate, forget_gate, cell_gate, output_gate = gates.chunk(4, -1)
    cell = torch.sigmoid(forget_gate) * cell + torch.sigmoid(input_gate) * torch.tanh(cell_gate)
    hidden = torch.sigmoid(output_gate) * torch.tanh(cell)
    hidden = hidden if projection is None else linear(hidden, projection)
    outputs.append(hidden)
  return torch.stack(outputs[::-1] if is_reverse else outputs), hidden, cell


def _is_layer_of_host(values: torch.Tensor, projection: torch.Tensor | None) -> bool:
  """Whether an operator of hosts computes a layer. Without it the program has kernels for each
  step, which take most of the time of an export."""
  import torch

  return values.device.type == "cpu" and values.dtype == torch.float32 and projection is None


def _lstm_layer_of_host(
  values: torch.Tensor,
  hidden: torch.Tensor,
  cell: torch.Tensor,
  weights: Sequence[torch.Tensor],
  has_biases: bool,
  is_reverse: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
  import torch

  size = hidden.shape[-1]
  # The operator has no optional tensors. It does not read biases if has_biases is false. torch's
  # own implementation, unlike Husk's, takes the input for contiguous.
  biases = weights[2:4] if has_biases else [values.new_zeros(4 * size)] * 2
  layer = torch.ops.aten.mkldnn_rnn_layer.default
  lstm, layers, bidirectional, batch_first, train = 2, 1, False, False, False
  outputs, hidden, cell, _ = layer(
    values.contiguous(),
    *weights[:2],
    *biases,
    hidden.unsqueeze(0),
    cell.unsqueeze(0),
    is_reverse,
    [],
    lstm,
    size,
    layers,
    has_biases,
    bidirectional,
    batch_first,
    train,
  )
  return outputs, hidden.squeeze(0), cell.squeeze(0)


def _lstm_cell(
  x: torch.Tensor,
  states: Sequence[torch.Tensor],
  input_weight: torch.Tensor,
  hidden_weight: torch.Tensor,
  input_bias: torch.Tensor | None = None,
  hidden_bias: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
  """A step of an LSTM. For GPUs torch itself has an operator for the gates of a step, and for those
  of a GRU."""
  import torch

  linear = torch.nn.functional.linear
  hidden, cell = states
  gates = linear(x, input_weight, input_bias) + linear(hidden, hidden_weight, hidden_bias)
  input_gate, forget_gate, cell_gate, output_gate = gates.chunk(4, -1)
  cell = torch.sigmoid(forget_gate) * cell + torch.sigmoid(input_gate) * torch.tanh(cell_gate)
  return torch.sigmoid(output_gate) * torch.tanh(cell), cell


def _gru_cell(
  x: torch.Tensor,
  hidden: torch.Tensor,
  input_weight: torch.Tensor,
  hidden_weight: torch.Tensor,
  input_bias: torch.Tensor | None = None,
  hidden_bias: torch.Tensor | None = None,
) -> torch.Tensor:
  import torch

  linear = torch.nn.functional.linear
  x_reset, x_update, x_new = linear(x, input_weight, input_bias).chunk(3, -1)
  h_reset, h_update, h_new = linear(hidden, hidden_weight, hidden_bias).chunk(3, -1)
  update = torch.sigmoid(x_update + h_update)
  new = torch.tanh(x_new + torch.sigmoid(x_reset + h_reset) * h_new)
  return new + update * (hidden - new)


def _tensor_split(
  x: torch.Tensor, tensor_indices_or_sections: torch.Tensor, dim: int = 0
) -> list[torch.Tensor]:
  """The parts of a tensor, cut where a tensor of ints says, which are read to the host."""
  import torch

  if tensor_indices_or_sections.dim() == 0:
    raise Unsupported("tensor_split into a number of parts that a tensor holds: give an int")
  cuts = tensor_indices_or_sections.tolist()
  return [
    torch.ops.aten.slice.Tensor(x, dim, begin, end) for begin, end in zip([0, *cuts], [*cuts, None])
  ]


def _grid_sampler(
  x: torch.Tensor, grid: torch.Tensor, mode: int, padding: int, align_corners: bool
) -> torch.Tensor:
  """Samples of images or volumes. For images on a GPU with aligned corners, torch itself takes an
  operator of cuDNN, which it cannot trace."""
  import torch

  images = x.dim() == 4
  op = torch.ops.aten.grid_sampler_2d if images else torch.ops.aten.grid_sampler_3d
  return op(x, grid, mode, padding, align_corners)


def _pinv(x: torch.Tensor, rcond: Any = 1e-15, hermitian: bool = False) -> torch.Tensor:
  return _pseudoinverse(x, rtol=rcond, hermitian=hermitian)


def _pseudoinverse(
  x: torch.Tensor, *, atol: Any = None, rtol: Any = None, hermitian: bool = False
) -> torch.Tensor:
  """The pseudoinverse. Singular values that are at most `atol`, or `rtol` times the largest one,
  count as 0. Both are numbers or tensors with one number for each matrix."""
  import torch

  if any(isinstance(size, int) and size == 0 for size in x.shape[-2:]):
    return x.mH.contiguous()  # has no elements
  if hermitian:
    values, right = torch.linalg.eigh(x)
    left, sizes = right, values.abs()
    largest = sizes.amax(-1, keepdim=True)
  else:
    left, values, adjoint = torch.linalg.svd(x, full_matrices=False)
    right, sizes, largest = adjoint.mH, values, values[..., :1]
  if rtol is None:
    rtol = torch.finfo(x.dtype).eps * torch.sym_max(x.size(-2), x.size(-1))
    if isinstance(atol, torch.Tensor):
      rtol = torch.where(atol > 0, 0.0, rtol)
    elif atol:
      rtol = 0.0
  atol, rtol = (
    tolerance.unsqueeze(-1) if isinstance(tolerance, torch.Tensor) else tolerance
    for tolerance in (atol, rtol)
  )
  counted = sizes > rtol * largest
  if atol is not None:
    counted = counted & (sizes > atol)
  inverse = torch.where(counted, values.reciprocal(), 0.0).to(x.dtype)
  return (right * inverse.unsqueeze(-2)) @ left.mH


def _histogramdd(
  x: torch.Tensor,
  bins: Sequence[int],
  range: Sequence[float] | None = None,
  weight: torch.Tensor | None = None,
  density: bool = False,
) -> tuple[torch.Tensor, list[torch.Tensor]]:
  """The histogram of points, whose operator computes the same edges for itself."""
  import torch

  edges = []
  for dim, count in enumerate(bins):
    low, high = torch.zeros((), dtype=x.dtype), torch.ones((), dtype=x.dtype)
    if range is not None:
      low, high = (torch.full((), range[2 * dim + end], dtype=x.dtype) for end in (0, 1))
    elif x.numel():
      low, high = torch.aminmax(x.select(-1, dim))
    half = torch.where(low == high, 0.5, 0.0).to(x.dtype)
    low, high = low - half, high + half
    step = (high - low) / count
    upwards = torch.arange(count + 1, dtype=x.dtype)
    ascending, descending = low + step * upwards, high - step * (count - upwards)
    edges.append(torch.where(upwards < (count + 1) // 2, ascending, descending))
  hist = torch.ops.aten._histogramdd_from_bin_cts(
    x, bins, range=range, weight=weight, density=density
  )
  return hist, edges
