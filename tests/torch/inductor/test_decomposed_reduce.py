"""Operators on CUDA targets that combine elements by an index."""

import functools

import decomposed
import pytest
import torch

REFUSED = {
  "aten::scatter_reduce.two",
  "aten::index_reduce",
  "aten::segment_reduce",
  "aten::histc",
  "aten::_embedding_bag",
  "aten::_embedding_bag_forward_only",
}


def check(function, *args, **tolerances):
  traced = decomposed.graph(function, args)
  assert not decomposed.operators(traced) & REFUSED
  decomposed.equal(traced(*args), function(*args), **tolerances)


def scatter_reduce(dim, reduce, include_self, x, index, src):
  return x.scatter_reduce(dim, index, src, reduce, include_self=include_self)


def segment_reduce(reduce, initial, data, lengths):
  return torch.segment_reduce(data, reduce, lengths=lengths, initial=initial, unsafe=True)


@pytest.mark.parametrize("reduce", ["prod", "mean", "amax", "amin"])
@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.float16])
def test_scatter_reduce(reduce, include_self, dtype):
  torch.manual_seed(6)
  x, src = (torch.randn(5, 7, 4).mul(3).round().to(dtype) for _ in range(2))
  index = torch.randint(0, 5, (4, 6, 4))
  close = {"rtol": 1e-2, "atol": 1e-2} if dtype is torch.float16 else {}
  for dim, indices in ((0, index), (1, index), (-1, index.clamp(max=3))):
    check(
      functools.partial(scatter_reduce, dim, reduce, include_self),
      x,
      indices,
      src,
      **close,
    )
  row = torch.randint(0, 7, (4,))
  check(
    lambda x, index, src: x.index_reduce(1, index, src, reduce, include_self=include_self),
    x,
    row,
    torch.randn(5, 4, 4).mul(3).round().to(dtype),
    **close,
  )


@pytest.mark.parametrize("reduce", ["prod", "mean", "amax", "amin"])
def test_index_reduce_without_dimensions(reduce):
  for index in (torch.tensor(0), torch.tensor([0])):
    check(
      lambda x, index, src: x.index_reduce(0, index, src, reduce),
      torch.tensor(2.0),
      index,
      torch.tensor(3.0),
    )


def test_nan_is_the_largest_and_the_smallest():
  x, index = torch.zeros(3), torch.tensor([0, 0, 1])
  src = torch.tensor([float("nan"), 2.0, 5.0])
  check(lambda x, index, src: x.scatter_reduce(0, index, src, "amax"), x, index, src)
  check(lambda x, index, src: x.scatter_reduce(0, index, src, "amin"), x, index, src)


def test_scatter_of_ints():
  torch.manual_seed(6)
  x, src, index = torch.arange(20).reshape(4, 5), torch.randint(0, 99, (3, 5)), None
  index = torch.stack([torch.randperm(4)[:3] for _ in range(5)], 1)
  check(lambda x, index, src: x.scatter(0, index, src), x, index, src)
  check(lambda x, index, src: x.scatter_add(0, index, src), x, index.clamp(max=1), src)
  check(lambda x, index, src: x.scatter(0, index, src, reduce="multiply"), x, index, src)
  check(lambda x, index: x.scatter(0, index, 3, reduce="add"), x, index)
  check(
    lambda x, index, src: x.index_add(1, index, src, alpha=2), x, torch.tensor([1, 1]), x[:, :2]
  )
  number = torch.tensor(5)
  check(lambda x, i, s: x.scatter_reduce(0, i, s, "prod"), number, torch.tensor(0), number + 1)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_embedding_bag(mode):
  torch.manual_seed(6)
  weight, indices = torch.randn(10, 4), torch.randint(0, 10, (12,))
  offsets = torch.tensor([0, 3, 3, 7, 12])
  bag = torch.nn.functional.embedding_bag
  close = {"rtol": 1e-5, "atol": 1e-5}
  for last in (False, True):
    check(
      functools.partial(bag, mode=mode, include_last_offset=last),
      indices,
      weight,
      offsets if last else offsets[:4],
      **close,
    )
  check(lambda i, w: bag(i, w, mode=mode, padding_idx=3), indices.reshape(3, 4), weight, **close)
  if mode == "sum":
    factors = torch.rand(3, 4)
    check(
      lambda i, w, f: bag(i, w, mode="sum", per_sample_weights=f),
      indices.reshape(3, 4),
      weight,
      factors,
      **close,
    )


@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min", "prod"])
def test_segment_reduce(reduce):
  torch.manual_seed(6)
  data, lengths = torch.randn(9, 3), torch.tensor([2, 0, 4, 3])
  for initial in (None, 0.5):
    check(
      functools.partial(segment_reduce, reduce, initial),
      data,
      lengths,
      rtol=1e-5,
      atol=1e-5,
    )
  offsets = torch.tensor([0, 2, 2, 6, 9])
  check(
    lambda d, o: torch.segment_reduce(d[:, 0], reduce, offsets=o, unsafe=True),
    data,
    offsets,
    rtol=1e-5,
    atol=1e-5,
  )


def test_histc():
  torch.manual_seed(6)
  x = torch.randn(40, 20)
  check(lambda x: torch.histc(x, 17, -1.5, 2), x)
  check(lambda x: torch.histc(x, 10), x)
  check(lambda x: torch.histc(x * 0 + 3, 5), x)


SUMS = {
  "index_add": lambda x, i, places, y: x.index_add(0, i, y, alpha=3),
  "scatter_add": lambda x, i, places, y: x.scatter_add(0, places, y),
  "scatter_reduce": lambda x, i, places, y: x.scatter_reduce(0, places, y, "sum"),
  "index_put": lambda x, i, places, y: x.index_put((i,), y, accumulate=True),
  "put": lambda x, i, places, y: x.put(places, y, accumulate=True),
}


@pytest.mark.parametrize("name", SUMS)
@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.bfloat16])
def test_sums_in_small_types(name, dtype):
  """Triton adds no small ints in memory, and Inductor leaves index_add of bfloat16 to a library.
  Sums of ints that do not fit wrap around."""
  torch.manual_seed(0)
  x, y = (torch.randint(0, 120, size).to(dtype) for size in ((4, 3), (6, 3)))
  i, places = torch.tensor([0, 1, 0, 3, 0, 0]), torch.randint(0, 4, (6, 3))
  function = SUMS[name]
  traced = decomposed.graph(function, (x, i, places, y))
  decomposed.equal(traced(x, i, places, y), function(x, i, places, y), rtol=2e-2, atol=0)
  ops = torch.ops.aten
  sums = (ops.index_add, ops.scatter_add, ops.scatter_reduce, ops.index_put)
  for node in traced.graph.nodes:
    if getattr(node.target, "overloadpacket", None) in sums:
      added_in = node.args[0].meta["val"].dtype
      is_left = dtype is torch.bfloat16 and node.target is not ops.index_add.default
      assert added_in is dtype if is_left else added_in in (torch.int32, torch.float32)
