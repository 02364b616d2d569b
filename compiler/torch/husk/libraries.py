"""Matrix products that cuBLASLt makes where the program runs (`libraries=True`), as calls of the CUDA port's `husk::matmul`.

What the library takes is a rule of dtypes and of how the operands lie; all else stays a Triton template: integers, fp8,
factors that lie neither by rows nor by columns, a row of bias that is scaled.
"""

import contextlib

import sympy

from . import hir
from .errors import Unsupported

PRODUCTS = ("mm", "addmm", "bmm", "baddbmm")


@contextlib.contextmanager
def called(wanted):
  """While open, Inductor calls the library for the products that it takes, if that is wanted, and has its templates for all
  others."""
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


def workspace(target):
  """Bytes that the library may use for what it computes in parts: as much as PyTorch gives it."""
  return 32 << 20 if target.major >= 9 else 4 << 20


def _pick(choices):
  """Of Inductor's choices for a product the library, where that takes it, else the templates."""
  from torch._inductor.select_algorithm import ExternKernelCaller
  calls = [choice for choice in choices if isinstance(choice, ExternKernelCaller)]
  taken = [choice for choice in calls if choice.choice.name in PRODUCTS and _takes([*choice.input_nodes, choice], choice.kwargs)]
  return taken[:1] or [choice for choice in choices if choice not in calls] or choices


def takes(op):
  """Whether an operator that writes to memory which is there is one of those products."""
  namespace, _, name = op._schema.name.partition("::")
  return namespace == "aten" and name in PRODUCTS and op._schema.overload_name == "out"


def call(converter, node, values):
  """Says a product; `values` are the operator's, by name."""
  given = [values.pop(name) for name in ("self", "input", "mat1", "batch1", "mat2", "batch2") if name in values]
  *bias, one, other = given
  out, numbers = values.pop("out"), {name: float(values.pop(name, 1)) for name in ("alpha", "beta")}
  if numbers["beta"] == 0:
    bias = []
  if not _takes([*bias, one, other, out], numbers):
    raise Unsupported("a matrix product whose operands lie as cuBLASLt does not take them: export without libraries=True")
  size = workspace(converter.backend.target)
  space = hir.Buffer(converter.names.take("workspace"), "arena", str(size), 256)
  converter.statements.append(hir.Statement("", buffer=space))
  arguments = [converter.tensor("read", one), converter.tensor("read", other),
               converter.tensor("read", bias[0]) if bias else "none", hir.number(numbers["alpha"]),
               hir.number(numbers["beta"] if bias else 0.0), hir.number(_may_be_tf32()), converter.tensor("write", out),
               hir.Tensor("write", space, "u8", [space.bytes], ["1"])]
  converter.say('extern "husk::matmul"', arguments, converter.origin(node))


def _may_be_tf32():
  import torch
  return torch.backends.cuda.matmul.fp32_precision == "tf32"


def _takes(nodes, numbers):
  """Whether the port's op takes [bias,] factor, factor, result. It looks again at the sizes of each run."""
  import torch
  *bias, one, other, out = map(_lying, nodes)
  types = {dtype for dtype, _, _ in (*bias, one, other, out)}
  if len(types) != 1 or not types <= {torch.float16, torch.bfloat16, torch.float32, torch.float64}:
    return False
  if len({len(sizes) for _, sizes, _ in (one, other, out)}) != 1 or not all(_by_rows(*each) or _by_columns(*each)
                                                                            for each in (one, other, out)):
    return False
  if not bias:
    return True
  (_, sizes, strides), = bias
  if len(sizes) == 1 or len(sizes) == 2 and (_is(strides[0], 0) or _is(sizes[0], 1)):      # one row for all
    return numbers.get("beta", 1) == 1 and _is(strides[-1], 1) and _by_rows(*out) and len(out[1]) == 2
  return len(sizes) == len(out[1]) and (len(sizes) == 2 or not _is(strides[0], 0)) and (
      _by_rows(*out) and _by_rows(*bias[0]) or not _by_rows(*out) and _by_columns(*bias[0]))


def _lying(node):
  """(dtype, sizes, strides) of a node of Inductor's IR, or of what a choice would make."""
  layout = node if hasattr(node, "get_size") else node.layout
  if hasattr(layout, "get_size"):
    return layout.get_dtype(), list(layout.get_size()), list(layout.get_stride())
  return layout.dtype, list(layout.size), list(layout.stride)


def _by_rows(_, sizes, strides):
  return (_is(strides[-1], 1) or _is(sizes[-1], 1)) and not (_is(strides[-2], 0) and not _is(sizes[-2], 1))


def _by_columns(dtype, sizes, strides):
  return _by_rows(dtype, [*sizes[:-2], sizes[-1], sizes[-2]], [*strides[:-2], strides[-1], strides[-2]])


def _is(value, number):
  from torch._inductor.virtualized import V
  return bool(V.graph.sizevars.statically_known_equals(sympy.sympify(value), number))
