"""Ops of the host that move elements by index, against PyTorch."""

import pytest
import torch
import vision_operators
from host_ops import (
  INVALID_ARGUMENT,
  INVALID_INPUT,
  UNSUPPORTED,
  IntResult,
  close,
  layouts,
  like,
  refused,
)

DTYPES = [
  torch.float32,
  torch.float64,
  torch.float16,
  torch.bfloat16,
  torch.int64,
  torch.int32,
  torch.uint8,
  torch.bool,
]


def values(shape, dtype, seed=0):
  generator = torch.Generator().manual_seed(seed)
  if dtype == torch.bool:
    return torch.randint(0, 2, shape, generator=generator).bool()
  if dtype.is_floating_point or dtype.is_complex:
    return torch.randn(
      shape, generator=generator, dtype=torch.complex128 if dtype.is_complex else torch.float64
    ).to(dtype)
  return torch.randint(0, 100, shape, generator=generator).to(dtype)


def ints(shape, size, seed=1, dtype=torch.int64):
  return torch.randint(0, size, shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize("dtype", [*DTYPES, torch.complex64, torch.complex128])
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_scatter(pack, dtype, dim):
  for self in layouts(values((5, 6, 7), dtype)):
    for index in [
      ints((5, 6, 7), (5, 6, 7)[dim]),
      ints((2, 3, 7), (5, 6, 7)[dim]),
      ints((0, 3, 2), 2),
      ints((5, 1, 7), 5).expand(5, 6, 7),
    ]:
      for source in layouts(values((5, 6, 7), dtype, 2)):
        unique = index[:1, :1, :1]
        expected = self.clone().scatter_(dim, unique, source)
        got = self.clone()
        pack("aten::scatter_.src", got, dim, unique, source)
        close(got, expected)
        got = like(expected)
        pack("aten::scatter.src", self, dim, unique, source, got)
        close(got, expected)
        if dtype != torch.bool:
          expected = self.clone().scatter_add_(dim, index, source)
          tolerance = {torch.float16: 1e-2, torch.bfloat16: 8e-2, torch.float32: 1e-5}.get(
            dtype, 1e-5
          )
          got = self.clone()
          pack("aten::scatter_add_", got, dim, index, source)
          close(
            got,
            expected,
            tolerance if dtype.is_floating_point or dtype.is_complex else 0,
            tolerance,
          )
      expected = self.clone().scatter_(dim, index, 1)
      got = self.clone()
      pack("aten::scatter_.value", got, dim, index, 1)
      close(got, expected)
      picked = ints((5, 6, 7), (5, 6, 7)[dim])
      expected = self.gather(dim, picked)
      got = like(expected)
      pack("aten::gather", self, dim, picked, False, got)
      close(got, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool, torch.complex64])
@pytest.mark.parametrize("dim", [0, 1])
def test_scatter_of_neighbouring_rows(pack, dtype, dim):
  """Rows that are side by side in memory, more than are read at once, with an index for each
  element or one for all rows."""
  shape = (6, 9, 70)
  for self in layouts(values(shape, dtype)):
    for every in [ints(shape, shape[dim]), ints((6, 9, 1), shape[dim]).expand(shape)]:
      for index in [every, every.int() if dtype is torch.float32 else every[:4, :5, :66]]:
        source = values(shape, dtype, 2)
        got, expected = self.clone(), self.clone()
        pack("aten::scatter_.value", got, dim, index.long(), 1)
        close(got, expected.scatter_(dim, index.long(), 1))
        got = like(expected[: index.shape[0], : index.shape[1], : index.shape[2]])
        pack("aten::gather", self, dim, index.long(), False, got)
        close(got, self.gather(dim, index.long()))
        if dtype is torch.bool:
          continue
        got, expected = self.clone(), self.clone()
        pack("aten::scatter_add_", got, dim, index, source)
        close(got, expected.scatter_add_(dim, index.long(), source), 1e-6, 1e-6)
        if dtype is torch.complex64:
          continue
        for include in [True, False]:
          got = self.clone()
          pack("aten::scatter_reduce_.two", got, dim, index, source, "amax", include)
          close(got, self.scatter_reduce(dim, index.long(), source, "amax", include_self=include))
  index = ints(shape, shape[dim])
  for place, wrong in [((5, 8, 69), shape[dim]), ((0, 1, 64), -1)]:
    bad = index.clone()
    bad[place] = wrong
    for name, args in [
      ("aten::scatter_add_", [values(shape, dtype)]),
      ("aten::gather", [False, values(shape, dtype)]),
    ]:
      refused(
        pack,
        INVALID_INPUT,
        f"index {wrong} is out of range",
        name,
        values(shape, dtype),
        dim,
        bad,
        *args,
      )


@pytest.mark.parametrize("dtype", DTYPES[:-1])
@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax", "amin"])
@pytest.mark.parametrize("include", [True, False])
def test_scatter_reduce(pack, dtype, reduce, include):
  for shape, dim in [((4, 9), 1), ((4, 9), 0), ((9,), 0), ((), 0), ((5000, 2), 0), ((3, 0), 0)]:
    self, source = values(shape, dtype), values(shape, dtype, 2)
    index = ints(shape, shape[dim] if shape else 1)
    if dtype.is_floating_point and source.numel() > 5:
      source.view(-1)[3] = float("nan")
    expected = self.clone().scatter_reduce_(dim, index, source, reduce, include_self=include)
    tolerance = {torch.float16: 1e-2, torch.bfloat16: 6e-2, torch.float32: 1e-5}.get(dtype, 1e-6)
    got = self.clone()
    pack("aten::scatter_reduce_.two", got, dim, index, source, reduce, include)
    close(
      got,
      expected,
      tolerance if dtype.is_floating_point else 0,
      tolerance if dtype.is_floating_point else 0,
    )
    got = like(expected)
    pack("aten::scatter_reduce.two", self, dim, index, source, reduce, include, got)
    close(
      got,
      expected,
      tolerance if dtype.is_floating_point else 0,
      tolerance if dtype.is_floating_point else 0,
    )


def test_scatter_refuses(pack):
  self, source = torch.zeros(3, 4), torch.ones(3, 4)
  index = torch.zeros(3, 4, dtype=torch.int64)
  for bad in (4, -1, 2**40):
    wrong = index.clone()
    wrong[1, 2] = bad
    for name, *rest in [
      ("aten::scatter_.src", source),
      ("aten::scatter_.value", 1.0),
      ("aten::scatter_add_", source),
      ("aten::scatter_reduce_.two", source, "mean", True),
    ]:
      refused(
        pack,
        INVALID_INPUT,
        f"index {bad} is out of range for dimension 1 of size 4",
        name,
        self,
        1,
        wrong,
        *rest,
      )
      # Elements before the wrong index may be written (ops.h), those after it are not.
      assert not self[2].any()
      self.zero_()
    refused(
      pack, INVALID_INPUT, f"index {bad}", "aten::gather", self, 1, wrong, False, source.clone()
    )
  refused(pack, INVALID_ARGUMENT, "dim", "aten::scatter_.src", self, 2, index, source)
  refused(
    pack, UNSUPPORTED, "argument index has dtype f32", "aten::scatter_.src", self, 1, self, source
  )
  refused(
    pack,
    INVALID_ARGUMENT,
    "argument src has dtype f64",
    "aten::scatter_.src",
    self,
    1,
    index,
    source.double(),
  )
  refused(
    pack, INVALID_ARGUMENT, "size 3 along 0", "aten::scatter_.src", self[:2], 1, index, source
  )
  refused(pack, INVALID_ARGUMENT, "rank", "aten::scatter_.src", self, 1, index[0], source)
  refused(
    pack,
    INVALID_ARGUMENT,
    "is none of",
    "aten::scatter_reduce_.two",
    self,
    1,
    index,
    source,
    "median",
    True,
  )


MASK = torch.tensor([[1, 0, 1, 1, 0, 0], [0, 1, 0, 0, 0, 1], [0] * 6, [1] * 6]).bool()
LISTS = {
  "rows": lambda: [torch.tensor([3, 0, -1])],
  "int32": lambda: [torch.tensor([3, 0, -1], dtype=torch.int32)],
  "pair": lambda: [torch.tensor([3, 0, -1]), torch.tensor([5, -6, 0])],
  "second": lambda: [None, torch.tensor([[3, 0], [1, -1]])],
  "split": lambda: [torch.tensor([0, 2]), None, torch.tensor([1, 1])],
  "last": lambda: [None, None, torch.tensor([1, 0])],
  "broadcast": lambda: [torch.tensor([[0], [2]]), torch.tensor([1, 3, 5])],
  "scalar": lambda: [torch.tensor(2)],
  "mask": lambda: [MASK],
  "mask rows": lambda: [torch.tensor([True, False, True, True])],
  "mask second": lambda: [None, torch.tensor([True, False, True, True, False, False])],
  "mask and int": lambda: [torch.tensor([True, False, True, True]), torch.tensor([0, 5, 2])],
  "mask and one": lambda: [torch.tensor([True, False, True, True]), torch.tensor([3])],
  "one and mask": lambda: [
    torch.tensor([[1], [2]]),
    torch.tensor([True, False, True, True, False, False]),
  ],
  "nothing": lambda: [torch.zeros(4, 6, dtype=torch.bool)],
  "no rows": lambda: [torch.zeros(0, dtype=torch.int64)],
  "bytes": lambda: [MASK.to(torch.uint8)],
}


@pytest.mark.parametrize("name", LISTS)
@pytest.mark.parametrize(
  "dtype", [torch.float32, torch.int64, torch.bfloat16, torch.bool, torch.complex64]
)
def test_index(pack, name, dtype):
  indices = LISTS[name]()
  for self in layouts(values((4, 6, 3), dtype)):
    expected = torch.ops.aten.index.Tensor(self, indices)
    got = like(expected)
    pack("aten::index.Tensor", self, indices, got)
    close(got, expected)
    for source in [
      values(expected.shape, dtype, 3),
      *([values((), dtype, 3)] if name != "bytes" else []),
    ]:
      for accumulate in [False, True] if dtype != torch.bool else [False]:
        expected = torch.ops.aten.index_put(self, indices, source, accumulate)
        got = self.clone()
        pack("aten::index_put_", got, indices, source, accumulate)
        close(
          got,
          expected,
          1e-2 if dtype == torch.bfloat16 else 1e-6,
          1e-6 if dtype.is_floating_point else 1e-6,
        )
        got = like(expected)
        pack("aten::index_put", self, indices, source, accumulate, got)
        close(got, expected, 1e-2 if dtype == torch.bfloat16 else 1e-6, 1e-6)
  if "mask" in name or name in ("nothing", "bytes"):
    size = IntResult()
    pack("aten::index.Tensor:sizes", self, indices, size)
    shape = torch.ops.aten.index.Tensor(self, indices).shape
    assert size.value in shape


def test_index_refuses(pack):
  self, out = torch.zeros(4, 6), torch.zeros(3, 6)
  for bad in (4, -5, 2**40):
    index = torch.tensor([0, bad, 1])
    text = f"index {bad} is out of range for dimension 0 of size 4"
    refused(pack, INVALID_INPUT, text, "aten::index.Tensor", self, [index], out)
    refused(pack, INVALID_INPUT, text, "aten::index_put_", self, [index], torch.ones(()), False)
    refused(pack, INVALID_INPUT, text, "aten::index_put_", self, [index], torch.ones(()), True)
  index = torch.tensor([0, 1, 2])
  refused(
    pack, INVALID_ARGUMENT, "more indices", "aten::index.Tensor", self, [index, index, index], out
  )
  refused(pack, INVALID_ARGUMENT, "no tensor", "aten::index.Tensor", self, [None, None], out)
  refused(
    pack,
    INVALID_ARGUMENT,
    "argument out has size 3 along 0",
    "aten::index.Tensor",
    self,
    [index[:2]],
    out,
  )
  refused(
    pack,
    INVALID_ARGUMENT,
    "a mask has size 3",
    "aten::index.Tensor",
    self,
    [torch.ones(3).bool()],
    out,
  )
  refused(
    pack, INVALID_INPUT, "do not broadcast", "aten::index.Tensor", self, [index, index[:2]], out
  )
  refused(pack, INVALID_INPUT, "values", "aten::index_put_", self, [index], torch.ones(5), False)
  refused(pack, UNSUPPORTED, "dtype f32", "aten::index.Tensor", self, [torch.zeros(3)], out)
  refused(pack, INVALID_ARGUMENT, "indices", "aten::index.Tensor", self, index, out)


def sized(pack, name, *args):
  size = IntResult()
  pack(name + ":sizes", *args, size)
  return size.value


@pytest.mark.parametrize("dtype", [*DTYPES, torch.complex64])
@pytest.mark.parametrize("shape", [(), (0,), (7,), (4, 5), (2, 0, 3), (3, 4, 5)])
def test_nonzero(pack, dtype, shape):
  for self in layouts(values(shape, dtype) * values(shape, torch.bool, 5)):
    expected = self.nonzero()
    assert sized(pack, "aten::nonzero", self) == len(expected)
    got = like(expected)
    pack("aten::nonzero", self, got)
    close(got, expected)
    for size in (0, 3, 200):
      expected = torch.nonzero_static(self, size=size, fill_value=-7)
      got = like(expected)
      pack("aten::nonzero_static", self, size, -7, got)
      close(got, expected)
  refused(
    pack,
    INVALID_INPUT,
    "has room for 1000",
    "aten::nonzero",
    self,
    torch.zeros(1000, len(shape), dtype=torch.int64),
  )


@pytest.mark.parametrize("dtype", [*DTYPES, torch.complex128])
def test_masked(pack, dtype):
  for shape, mask_shape in [
    ((4, 6), (4, 6)),
    ((4, 6), (6,)),
    ((6,), (4, 6)),
    ((), (3,)),
    ((4, 1), (4, 6)),
    ((0, 2), (2,)),
    ((4, 6), ()),
  ]:
    for mask in layouts(values(mask_shape, torch.bool, 4)):
      for self in layouts(values(shape, dtype)):
        expected = self.masked_select(mask)
        assert sized(pack, "aten::masked_select", self, mask) == len(expected)
        got = like(expected)
        pack("aten::masked_select", self, mask, got)
        close(got, expected)
        refused(
          pack,
          INVALID_INPUT,
          "room for",
          "aten::masked_select",
          self,
          mask,
          torch.zeros(len(got) + 1, dtype=dtype),
        )
        try:
          torch.broadcast_to(mask, shape)
        except RuntimeError:
          continue
        for source in layouts(values((3, 11), dtype, 8)):
          expected = self.masked_scatter(mask, source)
          got = like(expected)
          pack("aten::masked_scatter", self, mask, source, got)
          close(got, expected)
  refused(
    pack,
    INVALID_INPUT,
    "the mask has 6 true elements, source has 5",
    "aten::masked_scatter",
    torch.zeros(6),
    torch.ones(6).bool(),
    torch.zeros(5),
    torch.zeros(6),
  )


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_repeat_interleave(pack, dtype):
  for repeats in ([], [0], [3, 0, 1, 2], [1] * 20):
    for tensor in layouts(torch.tensor(repeats, dtype=dtype)):
      expected = torch.repeat_interleave(tensor)
      assert sized(pack, "aten::repeat_interleave.Tensor", tensor, None) == len(expected)
      got = like(expected)
      pack("aten::repeat_interleave.Tensor", tensor, None, got)
      close(got, expected)
  refused(
    pack,
    INVALID_INPUT,
    "repeat 1 is -2",
    "aten::repeat_interleave.Tensor",
    torch.tensor([1, -2]),
    None,
    torch.zeros(1, dtype=torch.int64),
  )
  refused(
    pack,
    INVALID_INPUT,
    "room for 2",
    "aten::repeat_interleave.Tensor",
    torch.tensor([1, 2]),
    None,
    torch.zeros(2, dtype=torch.int64),
  )
  refused(
    pack,
    INVALID_INPUT,
    "repeat 2",
    "aten::repeat_interleave.Tensor",
    torch.tensor([1, 2**62, 2**62 + 2**61]),
    None,
    torch.zeros(2, dtype=torch.int64),
  )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("mode", [0, 1, 2])
def test_embedding_bag(pack, dtype, mode):
  table = values((11, 300), dtype)
  for weight in layouts(table):
    for index_dtype in (torch.int64, torch.int32):
      indices = ints((20,), 11, dtype=index_dtype)
      for offsets, last in [([0, 4, 4, 17], False), ([0], False), ([0, 5, 20], True), ([], False)]:
        for padding in (-1, 3):
          for scale in [None, values((20,), dtype)] if mode == 0 else [None]:
            if not offsets:
              continue
            args = [
              weight,
              indices,
              torch.tensor(offsets, dtype=index_dtype),
              False,
              mode,
              False,
              scale,
              last,
              padding,
            ]
            expected = torch.ops.aten._embedding_bag_forward_only(*args)
            got = [like(tensor) for tensor in expected]
            pack("aten::_embedding_bag_forward_only", *args, *got)
            tolerance = {torch.float16: 5e-3, torch.bfloat16: 4e-2, torch.float32: 1e-5}.get(
              dtype, 1e-12
            )
            close(got[0], expected[0], tolerance, tolerance)
            full = torch.ops.aten._embedding_bag(*args)
            got = [like(tensor) for tensor in full]
            pack("aten::_embedding_bag", *args, *got)
            close(got[0], full[0], tolerance, tolerance)
            close(got[2], full[2])
            if full[1].numel() and mode:
              close(got[1], full[1])
            if mode == 2:
              close(got[3], full[3])


def test_embedding_bag_refuses(pack):
  weight, indices, out = torch.zeros(5, 3), torch.tensor([0, 1, 5]), torch.zeros(2, 3)

  def call(code, text, index, offsets, target=out):
    refused(
      pack,
      code,
      text,
      "aten::_embedding_bag",
      weight,
      index,
      torch.tensor(offsets),
      False,
      0,
      False,
      None,
      False,
      -1,
      target,
      None,
      None,
      None,
    )

  call(INVALID_INPUT, "index 5 is out of range for a table of 5 rows", indices, [0, 2])
  call(INVALID_INPUT, "index -1", torch.tensor([-1]), [0, 0])
  for offsets in ([1, 2], [0, 7], [0, -1]):
    call(INVALID_INPUT, "offsets", indices[:2], offsets)
  call(INVALID_ARGUMENT, "output", indices[:2], [0, 1], torch.zeros(3, 3))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_unsuppressed(pack, dtype):
  """The operator, of boxes in the order of their scores, against loops over numbers."""
  torch.manual_seed(5)
  corners = torch.rand(60, 2) * 8
  boxes = torch.cat([corners, corners + torch.rand(60, 2) * 6], 1)
  boxes[7] = boxes[3]  # equal boxes
  boxes[9, 2:] = boxes[9, :2]  # no area
  boxes[11] = boxes[11].flip(0)  # sides in the wrong order
  boxes = boxes.to(dtype)
  in_order = torch.arange(60, 0, -1)
  for threshold in (0.0, 0.3, 0.99):
    for candidates in (*layouts(boxes), boxes[:1], boxes[:0]):
      kept = vision_operators.nms(candidates, in_order[: len(candidates)], threshold)
      expected = torch.zeros(len(candidates), dtype=torch.bool).index_fill(0, kept, True)
      got = like(expected)
      pack("husk::unsuppressed", candidates, threshold, got)
      close(got, expected)


def test_unsuppressed_without_numbers(pack):
  """A box with a NaN or without an end overlaps none, as in torchvision."""
  boxes = torch.tensor([[0.0, 0, 4, 4]] * 4)
  boxes[1, 0], boxes[2, 3] = float("nan"), float("inf")
  got = torch.zeros(4, dtype=torch.bool)
  pack("husk::unsuppressed", boxes, 0.5, got)
  assert got.tolist() == [True, True, True, False]
  wrong = torch.zeros(4, 5)
  refused(pack, INVALID_ARGUMENT, "boxes has size 5", "husk::unsuppressed", wrong, 0.5, got)
  refused(pack, UNSUPPORTED, "dtype i64", "husk::unsuppressed", boxes.long(), 0.5, got)
  refused(pack, INVALID_ARGUMENT, "size 3", "husk::unsuppressed", boxes, 0.5, got[:3])
