"""Operators with dtypes, dimensions and sizes that models seldom have, against eager mode. The
functions of a target are exported into one artifact."""

import functools
import math
import re

import husk
import pytest
import torch
from cuda_numerics import computed
from export_and_compare import ISAS
from function_module import FunctionModule
from husk.cuda import kernels
from husk.inductor.decompositions import special
from torch.nn import functional as F

GRID = ((5, 1, 6, 5, 6), (4, 2, 5, 7, 8), (9, 9, 7, 4, 2))


def ints(low, high, *shape, dtype=torch.int64):
  return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(1)).to(dtype)


def places(x):
  return x.argmin(), x.argmax(), x.argmin(0), x.argmax(1)


def linspace(ends, count, dtype, x):
  return torch.linspace(*ends, count, dtype=dtype) + x


# By name: a function and its arguments.
EXACT = {
  **{
    f"places of {dtype}": (places, torch.tensor(GRID, dtype=dtype))
    for dtype in (torch.int8, torch.uint8, torch.int16, torch.int32, torch.bfloat16)
  },
  **{
    f"{count} steps of {dtype} between {ends}": (
      functools.partial(linspace, ends, count, dtype),
      torch.zeros((), dtype=dtype),
    )
    for ends, count, dtype in (
      ((4.3, 70.9), 50, torch.uint8),
      ((4, -3), 50, torch.int32),
      ((9, 2), 1, torch.int32),
      ((9, 2), 0, torch.int32),
    )
  },
  **{
    f"sums of {count} {dtype}": (
      lambda x: (x.sum(dtype=x.dtype), x.reshape(-1, 5).sum(0, dtype=x.dtype), x.sum()),
      ints(0, 9, count, dtype=dtype),
    )
    for count in (15, 1000)
    for dtype in (torch.int8, torch.uint8)
  },
  "steps between tensors": (
    lambda x, y: torch.linspace(x, y, 50, dtype=torch.int16),
    torch.tensor(4.3),
    torch.tensor(-70.9, dtype=torch.float64),
  ),
  "powers of ints": (
    lambda x, y: x**y,
    torch.tensor([0, 2, -2, 1, -1, -1, 3, 10, 3, 7, -5, 0]),
    torch.tensor([-7, -7, -7, -7, -7, -8, 39, 30, 101, 0, 27, 0]),
  ),
  "powers of bytes": (
    lambda x, y: x**y,
    ints(0, 255, 20, dtype=torch.uint8),
    ints(0, 9, 20, dtype=torch.uint8),
  ),
  "any and all of bytes": (
    lambda x: (x.any(), x.any(0), x.all(), x.all(1), x.any((0, 1), keepdim=True)),
    torch.tensor([[0, 3], [0, 2]], dtype=torch.uint8),
  ),
  "distinct neighbours of a vector": (
    lambda x: torch.unique_consecutive(x, return_counts=True, dim=-1),
    torch.tensor([1.0, 1.0, 2.0, 2.0, 1.0]),
  ),
  "distinct slices": (
    lambda x: torch.unique_consecutive(x, dim=-2),
    torch.tensor(((1, 2), (1, 2), (0, 2))),
  ),
  "distinct sorted slices": (
    lambda x: torch.unique(x, dim=-1),
    torch.tensor(((1, 1, 0), (2, 2, 2))),
  ),
  "chosen of a vector that is broadcast": (
    lambda x, mask: x.masked_select(mask) * 2,
    torch.arange(10.0),
    ints(0, 2, 10, 10, dtype=torch.bool),
  ),
  "convolution of ints": (
    lambda x, w: F.conv2d(x, w, padding=1, stride=2),
    ints(-9, 9, 2, 3, 5, 5),
    ints(-9, 9, 4, 3, 3, 3),
  ),
  "transposed convolution of ints": (
    lambda x, w, b: F.conv_transpose1d(x, w, b, stride=2),
    ints(-9, 9, 2, 3, 5),
    ints(-9, 9, 3, 4, 3),
    ints(-9, 9, 4),
  ),
  "bilinear form of ints": (
    lambda x, y, w: F.bilinear(x, y, w),
    ints(-9, 9, 8, 8, dtype=torch.int8),
    ints(-9, 9, 8, 8, dtype=torch.int8),
    ints(-9, 9, 8, 8, 8, dtype=torch.int8),
  ),
}


@pytest.fixture(scope="module")
def hosts(tmp_path_factory):
  functions = {
    f"f{n}": husk.Function(FunctionModule(lambda self, *a, f=function: f(*a)), tuple(args))
    for n, (function, *args) in enumerate(EXACT.values())
  }
  path = tmp_path_factory.mktemp("dtypes") / "a.husk"
  husk.export(functions, path, targets=(f"host:{ISAS[0]}",), progress=False)
  return husk.load(path)


@pytest.mark.parametrize("name", EXACT)
def test_equals_eager_mode(hosts, name):
  function, *args = EXACT[name]
  expected = function(*args)
  results = getattr(hosts, f"f{list(EXACT).index(name)}")(*args)
  if isinstance(expected, torch.Tensor):
    results, expected = (results,), (expected,)
  for one, other in zip(results, expected, strict=True):
    torch.testing.assert_close(torch.as_tensor(one), other, rtol=0, atol=0)


def host(tmp_path, function, *args):
  model = FunctionModule(lambda self, *a: function(*a))
  husk.export(model, args, tmp_path / "a.husk", targets=(f"host:{ISAS[0]}",), progress=False)
  return torch.as_tensor(husk.load(tmp_path / "a.husk")(*args))


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_bytes_of_an_image_are_rounded(tmp_path, mode):
  """Eager mode computes them in integers, and is off by 1 where the exact value is near a half."""
  image = ints(0, 256, 1, 3, 16, 16, dtype=torch.uint8)
  options = {"size": (7, 9), "mode": mode, "antialias": True}
  resized = host(tmp_path, lambda x: F.interpolate(x, **options), image)
  exact = F.interpolate(image.double(), **options).clamp(0, 255)
  assert resized.dtype is torch.uint8
  assert (resized.double() - exact).abs().max() <= 0.5 + 1e-4


def test_the_last_element_of_a_conversion(tmp_path):
  """GCC 12 and 13 have an internal error when they vectorize it."""
  model = FunctionModule(lambda self, x: x.double())
  x = torch.arange(625.0) / 8
  husk.export(model, (x,), tmp_path / "a.husk", targets=(f"host:{ISAS[0]}",), progress=False)
  if "avx2" in ISAS:
    doubles = torch.as_tensor(husk.load(tmp_path / "a.husk")(x))
    torch.testing.assert_close(doubles, x.double(), rtol=0, atol=0)


def test_exponential_of_a_matrix_of_bf16(tmp_path):
  x = torch.randn(2, 3, 3, generator=torch.Generator().manual_seed(1)).bfloat16()
  exponential = host(tmp_path, torch.linalg.matrix_exp, x)
  assert exponential.dtype is torch.bfloat16
  torch.testing.assert_close(
    exponential.double(), torch.linalg.matrix_exp(x.double()), rtol=2**-7, atol=1e-3
  )


def test_exponential_of_a_matrix_of_halves_for_cuda(tmp_path):
  x = torch.randn(2, 3, 3, generator=torch.Generator().manual_seed(1))

  def function(self, x):
    return torch.linalg.matrix_exp(x.half()), torch.linalg.matrix_exp(x.bfloat16())

  (results,) = computed(FunctionModule(function), (x,), None, [{"x": x}], tmp_path)
  for one, tolerance in zip(results.values(), (2**-10, 2**-7), strict=True):
    expected = torch.linalg.matrix_exp(x.to(one.dtype).double())
    torch.testing.assert_close(one.double(), expected, rtol=tolerance, atol=1e-3)


def test_incomplete_gamma_functions_of_doubles():
  """The decomposition itself: Triton's interpreter has a logarithm of the gamma function whose
  error is larger."""
  a, x = (
    torch.rand(400, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) * 9
    for seed in (1, 2)
  )
  decompositions = special.table()
  for op in (torch.ops.aten.igamma.default, torch.ops.aten.igammac.default):
    torch.testing.assert_close(decompositions[op](a, x), op(a, x), rtol=1e-13, atol=1e-15)


def hashes(x, half, byte):
  return (
    torch.hash_tensor(x),
    torch.hash_tensor(x, 1),
    torch.hash_tensor(x, (0, -1), keepdim=True),
    torch.hash_tensor(half, 0),
    torch.hash_tensor(byte.bool()),
    torch.hash_tensor(byte, 1),
    torch.hash_tensor(x[0, 0, 0]),
  )


@pytest.mark.parametrize("target", ["host", "cuda"])
def test_hashes(tmp_path, target):
  random = torch.Generator().manual_seed(1)
  inputs = {
    "x": torch.randn(3, 70, 5, generator=random),
    "half": torch.randn(40, 33, generator=random).half(),
    "byte": ints(-90, 90, 9, 130, dtype=torch.int8),
  }
  model = FunctionModule(lambda self, x, half, byte: hashes(x, half, byte))
  if target == "cuda":
    (results,) = computed(model, (*inputs.values(),), None, [inputs], tmp_path)
    results = results.values()
  else:
    path = tmp_path / "model.husk"
    husk.export(model, (*inputs.values(),), path, targets=(f"host:{ISAS[0]}",), progress=False)
    results = husk.load(path)(*inputs.values())
  for one, other in zip(results, hashes(**inputs), strict=True):
    assert one.dtype is torch.uint64
    assert torch.equal(one.view(torch.int64), other.view(torch.int64))


def test_resizing_of_doubles_for_cuda(tmp_path):
  x = torch.randn(1, 1, 5, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))

  def resized(self, x):
    return F.interpolate(x, size=(3, 4), mode="bilinear", antialias=True)

  (results,) = computed(FunctionModule(resized), (x,), None, [{"x": x}], tmp_path)
  torch.testing.assert_close(results["output"], resized(None, x), rtol=1e-12, atol=1e-12)


def test_the_negative_of_zero_for_cuda(tmp_path):
  def negated(self, x):
    return 1 / -x, torch.digamma(x), -x.long()

  x = torch.tensor([0.0, -0.0, 2.0])
  (results,) = computed(FunctionModule(negated), (x,), None, [{"x": x}], tmp_path)
  assert results["output0"].tolist() == [-math.inf, math.inf, -0.5]
  torch.testing.assert_close(results["output1"], torch.digamma(x))
  assert results["output2"].tolist() == [0, 0, -2]


@pytest.mark.parametrize("shape", [(5, 0), (0,), (2, 0, 3)])
def test_a_search_among_no_elements_for_cuda(tmp_path, shape):
  """Triton compiles no such search."""
  model = FunctionModule(
    lambda self, x: (x + 1, torch.nonzero(x), torch.searchsorted(x, x[..., :1]))
  )
  husk.write(model, (torch.zeros(shape),), tmp_path, targets=("cuda:h200",), progress=False)


def searches(edges, rows, columns, order, x, table):
  return (
    torch.searchsorted(edges[3:], x),
    torch.bucketize(x, edges[1::2]),
    torch.searchsorted((edges * 2)[4:], x, right=True),
    torch.searchsorted(columns.t(), table),
    torch.searchsorted(edges[2:8].expand(5, 6), table),
    torch.searchsorted(rows, table, sorter=order),
    torch.searchsorted(rows[0], x, sorter=order[0], side="right"),
    torch.searchsorted(rows[0], 0.3, sorter=order[0]),
    torch.searchsorted(edges[3:], 7.5),
    torch.bucketize(2.5, edges.long()[1:]),
    torch.mode(table.round(), 0),
  )


def test_searches_among_the_elements_of_views_for_cuda(tmp_path, monkeypatch):
  """Inductor's kernel reads from the begin of the whole tensor, and reads behind the end of a
  tensor whose last dimension does not lie in a row."""
  found = []

  def load(name, source, _load=kernels._load):
    found.append(source)
    return _load(name, source)

  monkeypatch.setattr(kernels, "_load", load)
  random = torch.Generator().manual_seed(1)
  rows = torch.randn(5, 6, generator=random)
  inputs = {
    "edges": torch.arange(12.0),
    "rows": rows,
    "columns": torch.randn(6, 5, generator=random).sort(0).values,
    "order": rows.sort(-1).indices,
    "x": torch.rand(40, generator=random) * 12,
    "table": torch.randn(5, 3, generator=random) * 3,
  }
  model = FunctionModule(
    lambda self, edges, rows, columns, order, x, table: searches(
      edges, rows, columns, order, x, table
    )
  )
  (results,) = computed(model, (*inputs.values(),), None, [inputs], tmp_path)
  expected = torch.utils._pytree.tree_leaves(searches(**inputs))
  for one, other in zip(results.values(), expected, strict=True):
    torch.testing.assert_close(one, other, rtol=0, atol=0)
  searched = [re.findall(r"binary_search\(\w+, \w+, \w+, \w+, (\w+)", source) for source in found]
  assert {distance for each in searched for distance in each} == {"1"}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_means_of_norms_for_cuda_keep_the_dtype_of_the_export(tmp_path, dtype):
  """Eager mode returns them in the dtype of the input on a CPU, and in f32 on a GPU."""

  def normed(self, x):
    layer = torch.native_layer_norm(x, (8,), None, None, 1e-5)
    return *layer, *torch.native_batch_norm(x, None, None, None, None, True, 0.1, 1e-5)

  x = torch.randn(4, 8, generator=torch.Generator().manual_seed(1)).to(dtype)
  (results,) = computed(FunctionModule(normed), (x,), None, [{"x": x}], tmp_path)
  for one, other in zip(results.values(), normed(None, x), strict=True):
    torch.testing.assert_close(one, other, rtol=2**-7, atol=1e-2)
