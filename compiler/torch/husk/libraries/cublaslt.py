"""Matrix products that cuBLASLt computes where the program runs (`gemm="cublaslt"`), as calls of
the CUDA port's `husk::matmul`.

Dtypes and layouts decide which products are called. All others stay Triton templates: integers,
fp8, a factor that lies neither by rows nor by columns, a scaled row of bias.
"""

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import sympy

from .. import hir
from ..errors import Unsupported
from ..inductor import torch_compat
from ..lower.body import Body
from ..lower.nodes import IrNode, TensorLayout, layout_of

PRODUCTS = ("mm", "addmm", "bmm", "baddbmm")


@contextlib.contextmanager
def called(wanted: bool) -> Iterator[None]:
  """While open, and if `wanted`, Inductor calls the library for the products that it supports,
  and uses templates for all others."""
  from torch._inductor import config, select_algorithm

  if not wanted:
    yield
    return
  cache = select_algorithm.get_algorithm_selector_cache()
  cache.add_preprocessing_fn(_pick)
  try:
    with config.patch(max_autotune_gemm_backends="ATEN,TRITON"):
      yield
  finally:
    cache.preprocessing_fns.remove(_pick)


def _pick(choices: list[Any]) -> list[Any]:
  """The library, of Inductor's choices for a product, if the library supports the product, else the
  templates."""
  from torch._inductor.select_algorithm import ExternKernelCaller

  calls = [choice for choice in choices if isinstance(choice, ExternKernelCaller)]
  supported = [
    choice
    for choice in calls
    if choice.choice.name in PRODUCTS
    and _is_supported([*choice.input_nodes, choice], choice.kwargs.get("beta", 1))
  ]
  return supported[:1] or [choice for choice in choices if choice not in calls] or choices


def workspace(major: int) -> int:
  """Bytes of scratch memory for a product, as in PyTorch. `major` is that of the GPU's compute
  capability."""
  return 32 << 20 if major >= 9 else 4 << 20


@dataclasses.dataclass(frozen=True)
class Products(hir.Library):
  """Calls of matrix products that write to an existing buffer. `workspace` is their scratch memory
  in bytes. `has_others` says whether something else computes a product that cuBLASLt does not
  support; otherwise such a product is refused."""

  workspace: int
  has_others: bool = False

  def takes(self, op: Any) -> bool:
    namespace, _, name = op._schema.name.partition("::")
    return namespace == "aten" and name in PRODUCTS and op._schema.overload_name == "out"

  def supports(self, values: Mapping[str, Any]) -> bool:
    if not self.has_others:
      return True
    bias, left, right = _operands(values)
    return _is_supported([*bias, left, right, values["out"]], float(values.get("beta", 1)))

  def call(self, body: Body, node: IrNode, values: Mapping[str, Any], result: hir.Argument) -> None:
    bias, left, right = _operands(values)
    alpha, beta = (float(values.get(name, 1)) for name in ("alpha", "beta"))
    if not _is_supported([*bias, left, right, values["out"]], beta):
      raise Unsupported(
        "cuBLASLt does not support the layout of the operands of a matrix product: export with "
        "gemm='triton'"
      )
    size = hir.Literal(self.workspace)
    workspace = body.declare("workspace", size, align=256)
    arguments: list[hir.Argument] = [
      body.tensor("read", left),
      body.tensor("read", right),
      body.tensor("read", bias[0]) if bias else hir.NoneArg(),
      hir.Literal(alpha),
      hir.Literal(beta if bias else 0.0),
      hir.Literal(torch_compat.are_products_in_tf32()),
    ]
    results: list[hir.Argument] = [
      result,
      hir.Tensor("write", workspace, "u8", [size], [hir.Literal(1)]),
    ]
    body.call_operator(hir.OperatorCall("husk::matmul", arguments, results, body.origin(node)))


def _operands(values: Mapping[str, Any]) -> tuple[list[IrNode], IrNode, IrNode]:
  """The bias, if it counts, and the factors."""
  *bias, left, right = [
    values[name] for name in ("self", "input", "mat1", "batch1", "mat2", "batch2") if name in values
  ]
  return bias if float(values.get("beta", 1)) else [], left, right


def _is_supported(nodes: Sequence[IrNode], beta: float) -> bool:
  """Whether the port's operator supports [bias,] factor, factor, result. The operator checks the
  sizes of each run again."""
  import torch

  *bias, left, right, out = (_layout_of(node) for node in nodes)
  matrices = (left, right, out)
  dtypes = {operand.dtype for operand in (*bias, *matrices)}
  supported = {torch.float16, torch.bfloat16, torch.float32, torch.float64}
  if len(dtypes) != 1 or not dtypes <= supported:
    return False
  if len({len(matrix.sizes) for matrix in matrices}) != 1:
    return False
  if not all(_by_rows(matrix) or _by_columns(matrix) for matrix in matrices):
    return False
  if not bias:
    return True
  sizes, strides = bias[0].sizes, bias[0].strides
  is_row = len(sizes) == 1 or len(sizes) == 2 and (_equals(strides[0], 0) or _equals(sizes[0], 1))
  if is_row:  # one row that is added to all rows
    return beta == 1 and _equals(strides[-1], 1) and _by_rows(out) and len(out.sizes) == 2
  if len(sizes) != len(out.sizes) or len(sizes) != 2 and _equals(strides[0], 0):
    return False
  return _by_rows(bias[0]) if _by_rows(out) else _by_columns(bias[0])


def _layout_of(node: IrNode) -> TensorLayout:
  """The layout of a node of Inductor's IR, or of the result of one of its choices."""
  return layout_of(node if hasattr(node, "get_size") else node.layout)


def _by_rows(matrix: TensorLayout) -> bool:
  """Whether the elements of each row are adjacent, and the rows are not all the same memory."""
  sizes, strides = matrix.sizes, matrix.strides
  return (_equals(strides[-1], 1) or _equals(sizes[-1], 1)) and not (
    _equals(strides[-2], 0) and not _equals(sizes[-2], 1)
  )


def _by_columns(matrix: TensorLayout) -> bool:
  """Whether the elements of each column are adjacent, and the columns are not all the same
  memory."""
  return _by_rows(
    TensorLayout(_transposed(matrix.sizes), _transposed(matrix.strides), matrix.dtype)
  )


def _transposed(sizes: Sequence[Any]) -> list[Any]:
  return [*sizes[:-2], sizes[-1], sizes[-2]]


def _equals(value: Any, number: int) -> bool:
  from torch._inductor.virtualized import V

  return bool(V.graph.sizevars.statically_known_equals(sympy.sympify(value), number))
