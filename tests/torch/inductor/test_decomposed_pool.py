"""Pools on CUDA targets whose windows Inductor does not unroll."""

import functools

import decomposed
import pytest
import torch
import torch.nn.functional as F

REFUSED = {"aten::avg_pool3d", "aten::adaptive_max_pool3d", "aten::_adaptive_avg_pool3d"}


def check(function, *args, stays=False):
  traced = decomposed.graph(function, args)
  names = decomposed.operators(traced)
  assert stays == any("pool" in name for name in names), names
  decomposed.equal(traced(*args), function(*args), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("ceil_mode", [False, True])
@pytest.mark.parametrize("padding", [0, 2])
def test_pools_with_large_windows(ceil_mode, padding):
  torch.manual_seed(8)
  for rank, kernel, stride in ((2, [6, 7], [3, 4]), (2, [7, 7], [7, 7]), (3, [4, 5, 6], [2, 3, 5])):
    x = torch.randn(2, 3, *[15, 14, 13][:rank])
    average, largest = ((F.avg_pool2d, F.max_pool2d), (F.avg_pool3d, F.max_pool3d))[rank - 2]
    args = {"kernel_size": kernel, "stride": stride, "padding": padding, "ceil_mode": ceil_mode}
    for include in (True, False):
      check(functools.partial(average, **args, count_include_pad=include), x)
    check(functools.partial(average, **args, divisor_override=7), x)
    check(functools.partial(largest, **args, return_indices=True), x)


def test_largest_with_dilation_and_nan():
  torch.manual_seed(8)
  x = torch.randn(2, 3, 20, 20)
  x[0, 1, 3, 4] = float("nan")
  check(lambda x: F.max_pool2d(x, [6, 5], 2, 1, 2, return_indices=True), x)
  check(lambda x: F.max_pool2d(x.int(), [6, 5], 2, return_indices=True), x.nan_to_num())


@pytest.mark.parametrize("sizes", [(2, 3), (1, 1), (4, 5)])
def test_adaptive_pools(sizes):
  torch.manual_seed(8)
  x = torch.randn(2, 3, 30, 31)
  check(lambda x: F.adaptive_avg_pool2d(x, sizes), x)
  check(lambda x: F.adaptive_max_pool2d(x, sizes, return_indices=True), x)
  x = torch.randn(2, 3, 7, 9, 6)
  check(lambda x: F.adaptive_avg_pool3d(x, (3, *sizes)), x)
  check(lambda x: F.adaptive_max_pool3d(x, (3, *sizes), True), x)


def test_half_sums_are_rounded_once():
  x = torch.full((1, 1, 64, 64), 0.1, dtype=torch.float16)
  check(lambda x: F.avg_pool2d(x, 64), x)


def test_small_windows_stay():
  x = torch.randn(1, 2, 8, 8)
  check(lambda x: F.avg_pool2d(x, 3), x, stays=True)
  check(lambda x: F.adaptive_avg_pool2d(x, 4), x, stays=True)
