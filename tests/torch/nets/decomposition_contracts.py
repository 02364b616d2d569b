"""Compares each decomposition of Husk's with the operator in eager mode, for the operators of
PyTorch's database with all dtypes that they take: dtype, shape, device, which results share memory
with arguments, and values.

  python tests/torch/nets/decomposition_contracts.py [--only NAME,NAME] [--samples N]
  python tests/torch/nets/decomposition_contracts.py --fake or --complex [...]

prints the decompositions that differ, and those that no sample reaches; the ones with other strides
are only listed, since inductor/writes.py sees to it that strides do not matter. With `--fake` it
compares the dtypes, shapes, strides and devices that PyTorch traces for the operators of the host
with those of eager mode, because an export trusts what is traced. With `--complex` it compares what
CUDA targets compute of complex numbers in real ones (inductor/complex_numbers) with eager mode.
`test_decomposed_contracts.py` runs a part of all."""

import argparse
import collections
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "helpers"))

import built_tools  # noqa: F401  (where the exporter lies)
import compile_operators
import torch
from husk.host import operators
from husk.inductor import shape_functions
from husk.inductor.complex_numbers import dispatch
from husk.inductor.complex_numbers.parts import Parts
from husk.inductor.decompositions.kernels import table as kernel_table
from husk.inductor.decompositions.model import table as model_table
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

# Decompositions whose results are random, or factors of which there are several.
RANDOM = {"aten::multinomial", "aten::uniform", "aten::normal_functional", "prims::normal"}
# Results whose values PyTorch leaves open, by index: the places of elements that are equal, and
# what an embedding bag keeps for a backward, whose shapes differ from device to device.
OPEN = {
  **dict.fromkeys(("aten::topk", "aten::sort", "aten::kthvalue", "aten::median"), {1}),
  **dict.fromkeys(("aten::nanmedian", "aten::mode"), {1}),
  **dict.fromkeys(("aten::_embedding_bag", "aten::_embedding_bag_forward_only"), {1, 2, 3}),
}
# Operators that eager mode computes less exactly, in fixed point for instance.
DTYPES_ALONE = {
  "aten::_upsample_bilinear2d_aa",
  "aten::_upsample_bicubic2d_aa",
  "aten::grid_sampler_3d",  # coordinates in half precision
  "aten::polygamma",
}
LOOSE = {torch.float16: 2e-2, torch.bfloat16: 6e-2, torch.float32: 1e-4, torch.complex64: 1e-3}


def table():
  """All decompositions by operator."""
  return {**model_table(), **kernel_table()}


def database():
  compile_operators.database()  # what the import of the other needs
  from torch.testing._internal.common_methods_invocations import op_db

  return op_db


def host_operators():
  """The names of the operators that hosts have, without those of overloads."""
  return {name.partition(".")[0].partition(":sizes")[0] for name in operators.names()}


class Traced(TorchDispatchMode):
  """Runs operators, and traces those of hosts. `found` has the differences by operator, `reached`
  the dtypes that were compared."""

  def __init__(self):
    super().__init__()
    self.names = host_operators()
    self.found = collections.defaultdict(set)
    self.reached = collections.defaultdict(set)

  def __torch_dispatch__(self, op, types, args=(), kwargs=None):
    kwargs = kwargs or {}
    if op._schema.name not in self.names or op._schema.is_mutable:
      return op(*args, **kwargs)
    shapes = ShapeEnv(allow_scalar_outputs=True, allow_dynamic_output_shape_ops=True)
    mode = FakeTensorMode(shape_env=shapes, allow_fallback_kernels=False)
    expected = op(*args, **kwargs)
    dtypes = _dtypes((args, kwargs))
    try:
      with shape_functions.right_dtypes():
        fakes = pytree.tree_map_only(
          torch.Tensor, lambda x: mode.from_tensor(x, static_shapes=True), (args, kwargs)
        )
        with mode:
          result = op(*fakes[0], **fakes[1])
    except Exception as error:
      if type(error).__name__ not in (
        "UnsupportedOperatorException",
        "DynamicOutputShapeException",
      ):
        self.found[op].add(f"{dtypes}: {type(error).__name__}: {str(error).splitlines()[0][:160]}")
      return expected
    self.reached[op].add(dtypes)
    pairs = zip(pytree.tree_leaves(result), pytree.tree_leaves(expected))
    for index, (one, other) in enumerate(pairs):
      if not isinstance(other, torch.Tensor) or index in OPEN.get(op._schema.name, ()):
        continue
      if (one.dtype, one.device, one.dim()) != (other.dtype, other.device, other.dim()):
        self.found[op].add(
          f"{dtypes}: result {index} is traced as {one.dtype}, {one.device}, rank {one.dim()}, not "
          f"{other.dtype}, {other.device}, rank {other.dim()}"
        )
      elif all(isinstance(size, int) for size in one.shape) and one.shape != other.shape:
        shapes = f"{tuple(one.shape)}, not {tuple(other.shape)}"
        self.found[op].add(f"{dtypes}: result {index} is traced as {shapes}")
    return expected


class Complex(TorchDispatchMode):
  """Runs operators, and computes those with complex arguments or results in real numbers. `found`
  has the differences by operator, `reached` the dtypes that were compared, `missing` the operators
  that nothing computes so."""

  RANDOM = ("rand", "normal", "uniform", "bernoulli", "dropout")
  # Empty tensors have no values, and `resolve_conj` returns its argument or a copy of it.
  UNDEFINED = ("empty", "new_empty", "empty_like")

  def __init__(self):
    super().__init__()
    self.found = collections.defaultdict(set)
    self.reached = collections.defaultdict(set)
    self.missing = set()
    self.computing = dispatch.computing(lambda name, make: make(), False)

  def __torch_dispatch__(self, op, types, args=(), kwargs=None):
    kwargs = kwargs or {}
    name = op._schema.name.partition("::")[2]
    if op._schema.is_mutable or any(part in name for part in self.RANDOM):
      return op(*args, **kwargs)
    leaves = pytree.tree_leaves((args, kwargs))
    if any(torch.complex32 in (leaf, getattr(leaf, "dtype", None)) for leaf in leaves):
      return op(*args, **kwargs)  # exports refuse complex numbers of half precision
    own = pytree.tree_map(_in_parts, (args, kwargs))
    if not dispatch._is_complex(op, *own):
      return op(*args, **kwargs)
    expected = op(*args, **kwargs)
    if name in self.UNDEFINED:
      return expected
    dtypes = _dtypes((args, kwargs))
    try:
      result = self.computing.call(op, *own)
    except dispatch.Missing:
      self.missing.add(op)
      return expected
    except Exception as error:
      self.found[op].add(f"{dtypes}: {type(error).__name__}: {str(error).splitlines()[0][:160]}")
      return expected
    self.reached[op].add(dtypes)
    result = pytree.tree_map(_whole, result)
    for one, other in zip(pytree.tree_leaves(result), pytree.tree_leaves(expected), strict=True):
      # Parts have memory of their own, in another order.
      for text in differences(op._schema.name, one, _resolved(other), (), ()):
        self.found[op].add(f"{dtypes}: {text}")
    return expected


def _in_parts(value):
  """A complex tensor as two real ones."""
  if not isinstance(value, torch.Tensor) or not value.is_complex():
    return value
  whole = _resolved(value)
  return dispatch.tensor(Parts(whole.real.clone(), whole.imag.clone()))


def _whole(value):
  """The inverse of `_in_parts`."""
  parts = dispatch.parts_of(value)
  return value if parts is None else torch.complex(parts.re, parts.im)


def _resolved(value):
  return value.resolve_conj().resolve_neg() if isinstance(value, torch.Tensor) else value


class Compared(TorchDispatchMode):
  """Runs operators, and the decompositions of those that have one. `found` has the differences by
  operator, `reached` the dtypes that were compared."""

  def __init__(self):
    super().__init__()
    self.table = table()
    self.found = collections.defaultdict(set)
    self.reached = collections.defaultdict(set)
    self.other_strides = set()

  def __torch_dispatch__(self, op, types, args=(), kwargs=None):
    kwargs = kwargs or {}
    if op not in self.table or op._schema.name in RANDOM:
      return op(*args, **kwargs)
    return self.call(op, args, kwargs)

  def call(self, op, args, kwargs):
    """Compares a call of an operator that has a decomposition; returns its result."""
    own = pytree.tree_map(_copied, (args, kwargs))
    expected = op(*args, **kwargs)
    dtypes = _dtypes((args, kwargs))
    try:
      result = self.table[op](*own[0], **own[1])
    except Exception as error:
      self.found[op].add(f"{dtypes}: {type(error).__name__}: {str(error).splitlines()[0][:160]}")
      return expected
    if result is not NotImplemented:
      self.reached[op].add(dtypes)
      pairs = zip(pytree.tree_leaves(result), pytree.tree_leaves(expected))
      if any(_strides(one) != _strides(other) for one, other in pairs):
        self.other_strides.add(op)
      for text in differences(op._schema.name, result, expected, own, (args, kwargs)):
        self.found[op].add(f"{dtypes}: {text}")
    return expected


def _copied(value):
  """A tensor with the same layout and memory of its own."""
  if not isinstance(value, torch.Tensor):
    return value
  copied = torch.empty_strided(value.size(), value.stride(), dtype=value.dtype)
  return copied.copy_(value) if 0 not in value.stride() else value.clone()


def _strides(value):
  """The strides that place elements."""
  if not isinstance(value, torch.Tensor) or not value.numel():
    return []
  return [stride for stride, size in zip(value.stride(), value.shape) if size > 1]


def _dtypes(tree):
  leaves = pytree.tree_leaves(tree)
  return ", ".join(str(x.dtype)[6:] for x in leaves if isinstance(x, torch.Tensor))


def differences(name, results, expected, own_arguments, arguments):
  """How the results of a decomposition differ from the operator's. The arguments of both tell which
  results share memory with them."""
  has_open, has_values = OPEN.get(name, set()), name not in DTYPES_ALONE
  pairs = list(zip(pytree.tree_leaves(results), pytree.tree_leaves(expected)))
  if len(pytree.tree_leaves(results)) != len(pytree.tree_leaves(expected)):
    yield "another number of results"
  for index, (one, other) in enumerate(pairs):
    if not isinstance(other, torch.Tensor):
      continue
    if one.dtype != other.dtype:
      yield f"result {index} is {one.dtype}, not {other.dtype}"
    elif index in has_open:
      continue
    elif one.shape != other.shape:
      yield f"result {index} has the shape {tuple(one.shape)}, not {tuple(other.shape)}"
    elif one.device != other.device:
      yield f"result {index} is on {one.device}, not {other.device}"
    elif _shared(one, own_arguments) != _shared(other, arguments):
      shared = f"{_shared(one, own_arguments)}, not {_shared(other, arguments)}"
      yield f"result {index} shares memory with {shared}"
    elif has_values:
      tolerance = LOOSE.get(other.dtype, 1e-6)
      try:
        torch.testing.assert_close(
          one, other, rtol=tolerance, atol=5 * tolerance, equal_nan=True, check_stride=False
        )
      except AssertionError as error:
        yield f"result {index}: {' '.join(str(error).split())[:120]}"


def _shared(tensor, arguments):
  """The positions of the arguments whose memory a result has."""
  leaves = [leaf for leaf in pytree.tree_leaves(arguments) if isinstance(leaf, torch.Tensor)]
  place = tensor.untyped_storage().data_ptr()
  return [
    n for n, leaf in enumerate(leaves) if place and leaf.untyped_storage().data_ptr() == place
  ]


def calls(dtype):
  """Calls of operators that no sample of the database reaches: those that consist of others, which
  eager mode takes apart before a mode sees them, and overloads for numbers."""
  aten = torch.ops.aten
  generator = torch.Generator().manual_seed(6)

  def numbers(*shape):
    values = torch.randn(shape, generator=generator, dtype=torch.float64) * 3
    return values.to(torch.complex128).to(dtype) if dtype.is_complex else values.to(dtype)

  def places(limit, *shape):
    return torch.randint(0, limit, shape, generator=generator)

  x, square = numbers(4, 6), numbers(3, 3)
  yield aten.take.default, (x, places(24, 5)), {}
  yield aten.take.default, (x, places(24)), {}
  yield aten.tensor_split.tensor_indices_or_sections, (x, torch.tensor([1, 3])), {"dim": 1}
  for kind in ("add", "multiply"):
    yield aten.scatter.value_reduce, (x, 1, places(6, 4, 3), 2), {"reduce": kind}
    yield aten.scatter.reduce, (x, 1, places(6, 4, 3), numbers(4, 3)), {"reduce": kind}
  yield aten.nonzero_static.default, (x.abs() > 2,), {"size": 5}
  yield aten.scatter.src, (x, 1, places(6, 4, 3), numbers(4, 3)), {}
  yield aten.masked_select.default, (x, places(2, 4, 6).bool()), {}
  if dtype.is_complex:
    return
  for kind in ("sum", "prod", "amin", "amax", "mean"):
    yield aten.index_reduce.default, (x, 1, places(6, 6), numbers(4, 6), kind), {}
  for name in ("median", "nanmedian"):
    yield getattr(aten, name).default, (x,), {}
    yield getattr(aten, name).dim, (x, 1), {}
  yield aten.mode.default, (x, 1), {}
  yield aten.repeat_interleave.Tensor, (places(4, 5),), {}
  for name in ("chebyshev_polynomial_", "shifted_chebyshev_polynomial_"):
    for letter in "tuvw":
      yield getattr(aten, f"special_{name}{letter}").n_scalar, (x / 8, 3), {}
  for name in ("hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l"):
    yield getattr(aten, f"special_{name}").n_scalar, (x / 8, 3), {}
  yield aten.special_legendre_polynomial_p.n_scalar, (x / 8, 3), {}
  if not dtype.is_floating_point:
    return
  images, volumes = numbers(1, 2, 13, 12), numbers(1, 2, 9, 8, 7)
  for mode, padding, aligned in ((0, 0, False), (1, 1, True), (0, 2, False)):
    grids = numbers(1, 3, 4, 2) / 3, numbers(1, 3, 4, 2, 3) / 3
    yield aten.grid_sampler.default, (images, grids[0], mode, padding, aligned), {}
    yield aten.grid_sampler.default, (volumes, grids[1], mode, padding, aligned), {}
    yield aten.grid_sampler_3d.default, (volumes, grids[1], mode, padding, aligned), {}
  yield aten.avg_pool2d.default, (images, [6, 6], [3, 3], [2, 2]), {}
  yield aten.avg_pool3d.default, (volumes, [4, 4, 4], [2, 2, 2], [1, 1, 1], True, False), {}
  yield aten.max_pool2d_with_indices.default, (images, [6, 6], [3, 3], [2, 2]), {}
  yield aten.max_pool3d_with_indices.default, (volumes, [4, 4, 4], [2, 2, 2]), {}
  yield aten.adaptive_max_pool3d.default, (volumes, [2, 3, 4]), {}
  yield aten._adaptive_avg_pool3d.default, (volumes, [2, 3, 4]), {}
  yield aten.adaptive_max_pool2d.default, (images, [1, 2]), {}
  yield aten._adaptive_avg_pool2d.default, (images, [1, 2]), {}
  weights = numbers(18, 5) / 9, numbers(18, 6) / 9, numbers(18) / 9, numbers(18) / 9
  yield aten.gru_cell.default, (numbers(2, 5), numbers(2, 6), *weights), {}
  weights = numbers(24, 5) / 9, numbers(24, 6) / 9, numbers(24) / 9, numbers(24) / 9
  states = [numbers(2, 6) / 9, numbers(2, 6) / 9]
  yield aten.lstm_cell.default, (numbers(2, 5), states, *weights), {}
  states = [numbers(2, 2, 6) / 9, numbers(2, 2, 6) / 9]
  weights = [*weights, *weights]
  inputs = numbers(2, 4, 5), states, weights, True, 1, 0.0, False, True, True
  yield aten.lstm.input, inputs, {}
  for causal in (False, True):
    parts = [numbers(2, 3, 7, 8) / 3 for _ in range(3)]
    yield aten.scaled_dot_product_attention.default, parts, {"is_causal": causal}
  if dtype in (torch.float32, torch.float64):
    yield aten.histogramdd.default, (numbers(20, 2), [3, 4]), {}
    for shape in ((5, 3), (2, 3, 5)):
      yield aten.pinverse.default, (numbers(*shape),), {}
      yield aten.linalg_pinv.default, (numbers(*shape),), {}
      yield aten.linalg_pinv.atol_rtol_float, (numbers(*shape),), {"rtol": 1e-5}
      tolerance = torch.tensor(1e-5, dtype=torch.float64)
      yield aten.linalg_pinv.atol_rtol_tensor, (numbers(*shape),), {"rtol": tolerance}
      yield aten.linalg_pinv.rcond_tensor, (numbers(*shape), tolerance), {}
    yield aten.linalg_pinv.default, (square + square.T,), {"hermitian": True}
    for name in ("bilinear", "bicubic"):
      yield getattr(aten, f"_upsample_{name}2d_aa").default, (images, [5, 6], False), {}
    yield aten._cdist_forward.default, (numbers(4, 6), numbers(5, 6), 3.0, None), {}
    yield aten._pdist_forward.default, (numbers(4, 6), 1.5), {}


DTYPES = (
  torch.float32,
  torch.float64,
  torch.float16,
  torch.bfloat16,
  torch.int64,
  torch.int32,
  torch.int16,
  torch.int8,
  torch.uint8,
  torch.complex64,
)


def compare_calls(compared):
  """Compares the calls of `calls` in all dtypes that eager mode takes."""
  for dtype in DTYPES:
    for op, args, kwargs in calls(dtype):
      if op not in compared.table:
        continue
      with torch.no_grad():
        try:
          op(*pytree.tree_map(_copied, args), **kwargs)
        except Exception:
          continue  # eager mode refuses the dtype
        compared.call(op, args, kwargs)


def compare(names=None, samples=None, kind=Compared):
  """Runs samples of the operators with these names, or of all."""
  compared = kind()
  for op in database():
    if names is not None and op.name not in names:
      continue
    for dtype in sorted(op.supported_dtypes("cpu"), key=str):
      torch.manual_seed(3)
      try:
        for number, sample in enumerate(op.sample_inputs("cpu", dtype, requires_grad=False)):
          if number == samples:
            break
          with compared, torch.no_grad():
            try:
              op(sample.input, *sample.args, **sample.kwargs)
            except Exception:
              continue  # eager mode refuses the sample
      except Exception as error:
        print(f"{op.name}, {dtype}: no samples ({str(error)[:80]})", file=sys.stderr)
  return compared


def main():
  parser = argparse.ArgumentParser()
  parser.add_argument("--only", type=lambda text: text.split(","))
  parser.add_argument("--samples", type=int)
  parser.add_argument("--fake", action="store_true")
  parser.add_argument("--complex", action="store_true")
  options = parser.parse_args()
  kind = Traced if options.fake else Complex if options.complex else Compared
  compared = compare(options.only, options.samples, kind)
  if kind is Compared and options.only is None:
    compare_calls(compared)
  for op, texts in compared.found.items():
    print(op)
    for text in sorted(texts):
      print("   ", text)
  reached = {op: len(dtypes) for op, dtypes in compared.reached.items()}
  if options.complex:
    print("nothing computes:", ", ".join(sorted(map(str, compared.missing))))
    whole = compared.computing.table
    missed = whole.keys() - {op._schema.name for op in reached}
  elif options.fake:
    whole = compared.names
    missed = whole - {op._schema.name for op in reached}
  else:
    whole = compared.table
    missed = [str(op) for op in whole if op not in reached]
    print("other strides:", ", ".join(sorted(map(str, compared.other_strides))))
  print(f"{len(reached)} of {len(whole)} reached, {sum(reached.values())} combinations of dtypes")
  print("not reached:", ", ".join(missed))
  return bool(compared.found)


if __name__ == "__main__":
  sys.exit(main())
