"""Operators of which Inductor alone makes no kernel run on CUDA targets: they are exported, and run
by Triton's interpreter."""

import json
import math

import husk
import pytest
import torch
from cuda_numerics import computed
from function_module import FunctionModule
from torch.nn import functional as F

DIM = torch.export.Dim


def check(function, args, folder, shapes=None, others=(), tolerance=1e-4, **buffers):
  """Exports a function of tensors, runs it with `args` and with `others`, and compares."""
  model = FunctionModule(function, **buffers)
  names = function.__code__.co_varnames[1 : 1 + len(args)]
  runs = [dict(zip(names, tensors)) for tensors in (args, *others)]
  for inputs, result in zip(runs, computed(model, args, shapes, runs, folder)):
    expected = torch.utils._pytree.tree_leaves(model(*inputs.values()))
    for one, other in zip(result.values(), expected, strict=True):
      torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance, equal_nan=True)


CONVOLUTIONS = {
  "1d": (torch.nn.Conv1d(8, 16, 3, 2, 1), 8, 1),
  "1d depthwise": (torch.nn.Conv1d(8, 8, 4, padding=3, groups=8), 8, 1),
  "2d depthwise": (torch.nn.Conv2d(8, 8, 3, 2, 1, groups=8), 8, 2),
  "2d dilated": (torch.nn.Conv2d(8, 16, 3, padding=4, dilation=4), 8, 2),
  "2d transposed": (torch.nn.ConvTranspose2d(8, 4, 2, 2), 8, 2),
  "2d transposed, overlapping": (torch.nn.ConvTranspose2d(8, 4, 3, 2, 1, 1), 8, 2),
  "2d large depthwise": (torch.nn.Conv2d(4, 4, 9, padding=4, groups=4), 4, 2),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
@pytest.mark.parametrize("dynamic", [False, True])
def test_convolution(name, dynamic, tmp_path):
  torch.manual_seed(5)
  layer, channels, rank = CONVOLUTIONS[name]
  sizes = [(2, 13), (1, 20), (3, 11)] if dynamic else [(2, 13), (2, 13)]
  inputs = [(torch.randn(batch, channels, *[size] * rank),) for batch, size in sizes]
  shapes = None
  if dynamic:
    shapes = {"x": {0: DIM("batch", min=1, max=4), 2: DIM("height", min=8, max=64)}}
    if rank == 2:
      shapes["x"][3] = DIM("width", min=8, max=64)

  def function(self, x):
    return torch.relu(layer(x))

  function_with_layer = FunctionModule(function)
  function_with_layer.layer = layer
  with torch.no_grad():
    results = computed(
      function_with_layer, inputs[0], shapes, [{"x": x} for (x,) in inputs], tmp_path
    )
    for (x,), result in zip(inputs, results, strict=True):
      (one,) = result.values()
      torch.testing.assert_close(one, torch.relu(layer(x)), rtol=2e-3, atol=2e-3)


def with_ties(*sizes, dtype=torch.float32):
  return torch.randn(*sizes).mul(50).round().to(dtype)


def test_sort(tmp_path):
  torch.manual_seed(5)
  x, y = with_ties(2, 600), with_ties(1100, dtype=torch.float16)
  x[1, 5] = float("nan")

  def function(self, x, y):
    return (
      torch.sort(x, stable=True),
      torch.sort(y, descending=True, stable=True),
      torch.topk(y, 40)[0],
    )

  check(function, (x, y), tmp_path)


def test_sort_of_many_runs(tmp_path):
  """A kernel that reduces over the runs, of which there are ten, merges them."""
  torch.manual_seed(5)

  def function(self, x):
    return torch.sort(x, stable=True)

  check(function, (with_ties(4700),), tmp_path)


def test_tensor_split_by_a_tensor(tmp_path):
  def function(self, x, cuts):
    first, second, third = torch.tensor_split(x, cuts)
    return first + 1, second * 2, third.sum(0)

  args = torch.arange(21.0).reshape(7, 3), torch.tensor([2, 3])
  others = [(args[0], torch.tensor(cuts)) for cuts in ([0, 7], [4, 4], [3, 9])]
  check(function, args, tmp_path, None, others)


def test_batch_norm_with_update(tmp_path):
  torch.manual_seed(5)

  def function(self, x, weight, bias):
    mean, variance = torch.zeros(3), torch.ones(3)
    op = torch.ops.aten._batch_norm_with_update
    result, _, _, _ = op(x, weight, bias, mean, variance, 0.5, 1e-5)
    return result, mean, variance

  check(function, (torch.randn(4, 3, 5), torch.randn(3), torch.randn(3)), tmp_path)


def test_sort_of_a_length_that_varies(tmp_path):
  torch.manual_seed(5)

  def function(self, x):
    return torch.sort(x, stable=True), torch.topk(x, 3)[0]

  others = [(with_ties(2, size),) for size in (3, 512)]
  shapes = {"x": {1: DIM("n", min=3, max=4000)}}
  check(function, (with_ties(2, 700),), tmp_path, shapes, others)


def test_a_scan_that_several_blocks_share_beside_a_number_of_each_row(tmp_path):
  # The candidates of a language model's sampling: a row is longer than a block, and few rows are
  # one kernel with their limits.
  def kept(self, x, limit):
    rank = torch.arange(x.shape[-1])
    sums = torch.where(rank < limit[:, None], x, 0.0).cumsum(-1)
    return sums, (sums <= limit[:, None] / 8).sum(-1)

  x, limit = torch.rand(2, 9_000), torch.tensor([40, 6_000])
  check(kept, (x, limit), tmp_path)
  text = next(tmp_path.glob("*.hir")).read_text()
  assert text.count("triton_spl_fused") > 0


def test_padded_codes_of_8_bits(tmp_path):
  # A pool over the codes of a quantized image, and an image of shorts with a negative border.
  def function(self, x, y):
    return F.max_pool2d(x, 3, 2, 1), F.pad(y, (1, 2, 1, 1), value=-7)

  torch.manual_seed(5)
  x = torch.randint(-128, -90, (2, 16, 9, 9), dtype=torch.int8)
  y = torch.randint(-300, 300, (2, 4, 5), dtype=torch.int16)
  check(function, (x, y), tmp_path)
  kernels = json.loads((tmp_path / "kernels.json").read_text())
  text = json.dumps(kernels)
  assert "other=-" not in text and "other=0), -128).to(tl.int8)" in text


def test_scans_of_narrow_ints_of_a_length_that_varies(tmp_path):
  torch.manual_seed(5)

  def function(self, x):
    return x.cumsum(0, dtype=torch.int16), x.cumprod(0, dtype=torch.int8), x.cummax(0)[0]

  args = [(torch.randint(-5, 5, (size, 2), dtype=torch.int8),) for size in (6, 40, 3)]
  check(function, args[0], tmp_path, {"x": {0: DIM("n", min=2, max=64)}}, args[1:])


def test_selections(tmp_path):
  torch.manual_seed(5)
  x = with_ties(3, 40)
  x[1, 7] = float("nan")

  def function(self, x):
    return (
      torch.median(x, 1)[0],
      torch.nanmedian(x),
      torch.kthvalue(x, 5)[0],
      torch.mode(x)[0],
      torch.topk(x[:, :8], 2),
    )

  check(function, (x,), tmp_path)


def test_sizes_that_the_data_decides(tmp_path):
  torch.manual_seed(5)

  def function(self, x, ids):
    return (
      torch.nonzero(x > 0),
      x[x > 0.5] * 2,
      torch.unique(ids, return_inverse=True, return_counts=True),
      torch.bincount(ids),
    )

  others = [(torch.randn(6, 4), torch.randint(0, 3, (30,)))]
  check(function, (torch.randn(6, 4), torch.randint(0, 9, (30,))), tmp_path, None, others)


def test_reductions_by_an_index(tmp_path):
  torch.manual_seed(5)

  def function(self, x, index, weight):
    return (
      torch.zeros(5).scatter_reduce(0, index[:, 0], x[:, 0], "amax", include_self=False),
      torch.zeros(5, dtype=torch.int64).scatter_add(0, index[:, 1], torch.ones_like(index[:, 1])),
      torch.nn.functional.embedding_bag(index, weight, mode="mean"),
      torch.histc(x, 4),
    )

  check(function, (torch.randn(8, 3), torch.randint(0, 5, (8, 3)), torch.randn(5, 6)), tmp_path)


def test_pools(tmp_path):
  torch.manual_seed(5)

  def function(self, x, y):
    return (
      torch.nn.functional.avg_pool2d(x, 6, 3, 2),
      torch.nn.functional.max_pool2d(x, 6, 5, return_indices=True),
      torch.nn.functional.adaptive_avg_pool2d(x, (2, 1)),
      torch.nn.functional.adaptive_avg_pool3d(y, (2, 3, 1)),
    )

  others = [(torch.randn(1, 2, 14, 9), torch.randn(1, 2, 3, 4, 5))]
  shapes = {"x": {0: DIM("batch", min=1, max=4)}, "y": {}}
  args = (torch.randn(2, 2, 14, 9), torch.randn(1, 2, 3, 4, 5))
  check(function, args, tmp_path, shapes, others)


def test_an_adaptive_pool_of_a_size_that_varies(tmp_path):
  torch.manual_seed(5)

  def function(self, x):
    return torch.nn.functional.adaptive_avg_pool2d(x, (2, 3))

  others = [(torch.randn(1, 2, 5, 9),), (torch.randn(1, 2, 40, 7),)]
  shapes = {"x": {2: DIM("height", min=4, max=40), 3: DIM("width", min=4, max=40)}}
  check(function, (torch.randn(1, 2, 14, 9),), tmp_path, shapes, others)


def test_resizing_with_antialiasing(tmp_path):
  torch.manual_seed(5)

  def function(self, x):
    return torch.nn.functional.interpolate(x, (3, 5), mode="bicubic", antialias=True)

  check(function, (torch.randn(1, 2, 8, 7),), tmp_path)


def test_special_functions(tmp_path):
  torch.manual_seed(5)

  def function(self, x, y):
    return torch.special.i1e(x) + torch.digamma(y), torch.special.legendre_polynomial_p(x / 6, 7)

  check(function, (torch.randn(40) * 4, torch.rand(40) * 8 + 0.1), tmp_path)


def test_the_incomplete_gamma_function(tmp_path):
  torch.manual_seed(5)

  def function(self, a, x):
    return torch.igamma(a, x)

  check(function, (torch.rand(20) * 9, torch.rand(20) * 9), tmp_path)


def test_polynomials_of_degrees_in_a_tensor(tmp_path):
  def function(self, x, n):
    return torch.special.hermite_polynomial_he(x, n)

  x, n = torch.linspace(-2, 2, 15), torch.arange(15) % 6
  others = [(x, torch.zeros(15, dtype=torch.int64)), (x, n * 2)]
  check(function, (x, n), tmp_path, None, others)


def test_samples_of_images_with_aligned_corners(tmp_path):
  """On a GPU, torch itself takes an operator of cuDNN for them."""
  torch.manual_seed(14)

  def function(self, x, grid):
    return torch.nn.functional.grid_sample(x, grid, align_corners=True)

  check(function, (torch.randn(2, 3, 4, 5), torch.rand(2, 6, 7, 2) * 3 - 1.5), tmp_path)


def test_take(tmp_path):
  def function(self, x, index, one):
    return torch.take(x, index), torch.take(x, one)

  index = torch.tensor([[3, -1], [0, 5]])
  check(function, (torch.arange(6.0).reshape(2, 3), index, torch.tensor(-2)), tmp_path)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("rows", [(), (3,)])
def test_cells(bias, rows, tmp_path):
  """On a GPU, torch itself takes operators for their gates that no target has."""
  torch.manual_seed(14)
  lstm, gru = torch.nn.LSTMCell(5, 6, bias), torch.nn.GRUCell(5, 6, bias)

  def function(self, x, hidden, cell):
    return lstm(x, (hidden, cell)), gru(x, hidden), gru(x)

  model = FunctionModule(function)
  model.lstm, model.gru = lstm, gru
  inputs = {name: torch.randn(*rows, n) for name, n in (("x", 5), ("hidden", 6), ("cell", 6))}
  with torch.no_grad():
    (results,) = computed(model, tuple(inputs.values()), None, [inputs], tmp_path)
    expected = torch.utils._pytree.tree_leaves(model(*inputs.values()))
  for one, other in zip(results.values(), expected, strict=True):
    torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_a_model_without_a_computation_is_refused(tmp_path):
  class Sizes(torch.nn.Module):
    def forward(self, x):
      return torch.broadcast_shapes(x.shape, (4, 1))

  with pytest.raises(husk.Unsupported, match="a model without a computation"):
    husk.write(Sizes(), (torch.ones(3),), tmp_path, targets=["cuda:h200"])


def largest_with_one(self, x):
  return torch.cat([x.clamp(min=0).reshape(-1), x.new_ones(1)]).amax()


# The sizes of rows that a kernel reads without a loop.
@pytest.mark.parametrize("shape", [(2, 2), (1, 3), (2, 1)])
def test_an_element_of_a_view_is_at_a_number(tmp_path, shape):
  x = torch.arange(math.prod(shape)).reshape(shape)
  check(largest_with_one, (x,), tmp_path, others=[(-x,)])
