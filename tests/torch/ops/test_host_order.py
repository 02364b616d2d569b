"""Ops of the host that sort, search, count and scan, against PyTorch."""

import math

import pytest
import torch
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

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
INTS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]


def random(shape, dtype, seed=0, special=True):
  generator = torch.Generator().manual_seed(seed)
  if dtype == torch.bool:
    return torch.randint(0, 2, shape, generator=generator).bool()
  if not dtype.is_floating_point:
    return torch.randint(0 if dtype == torch.uint8 else -50, 50, shape, generator=generator).to(
      dtype
    )
  values = (torch.randn(shape, generator=generator, dtype=torch.float64) * 100).to(dtype)
  if special and values.numel() > 20:
    flat = values.view(-1)
    flat[3], flat[4], flat[5], flat[6], flat[7], flat[8] = [
      float(x) for x in ("nan", "inf", "-inf", "0.0", "-0.0", "nan")
    ]
  return values


SHAPES = [
  ((7, 30), 1),
  ((7, 30), 0),
  ((3, 4, 5), -2),
  ((), 0),
  ((1,), -1),
  ((0,), 0),
  ((3, 0), 1),
  ((0, 3), 1),
  ((2, 9000), 1),
]


@pytest.mark.parametrize("dtype", [*FLOATS, *INTS, torch.bool])
@pytest.mark.parametrize("descending", [False, True])
def test_sort(pack, dtype, descending):
  for shape, dim in SHAPES:
    for self in layouts(random(shape, dtype)):
      for output in (
        lambda x: like(x),
        lambda x: like(x.transpose(0, -1).contiguous()).transpose(0, -1) if x.dim() else like(x),
      ):
        expected = torch.sort(self, stable=True, dim=dim, descending=descending)
        values, indices = output(expected.values), output(expected.indices)
        pack("aten::sort.stable", self, False, dim, descending, values, indices)
        close(indices, expected.indices)
        close(values, expected.values)
  refused(
    pack,
    INVALID_ARGUMENT,
    "dim is 2; the tensor has 1",
    "aten::sort.stable",
    torch.zeros(3),
    True,
    2,
    False,
    torch.zeros(3),
    torch.zeros(3, dtype=torch.int64),
  )
  refused(
    pack,
    INVALID_ARGUMENT,
    "argument values has dtype f64",
    "aten::sort.stable",
    torch.zeros(3),
    True,
    0,
    False,
    torch.zeros(3).double(),
    torch.zeros(3, dtype=torch.int64),
  )
  refused(
    pack,
    INVALID_ARGUMENT,
    "argument indices has size 2",
    "aten::sort.stable",
    torch.zeros(3),
    True,
    0,
    False,
    torch.zeros(3),
    torch.zeros(2, dtype=torch.int64),
  )
  c = torch.zeros(3, dtype=torch.complex64)
  refused(
    pack,
    UNSUPPORTED,
    "argument self has dtype c64",
    "aten::sort.stable",
    c,
    True,
    0,
    False,
    c,
    torch.zeros(3, dtype=torch.int64),
  )


@pytest.mark.parametrize("descending", [False, True])
def test_sort_of_long_rows(pack, descending):
  """Rows that are sorted digit by digit. In some of them all keys have the same digits."""
  generator = torch.Generator().manual_seed(3)

  def whole(low, high, dtype=torch.int64, count=3000):
    return torch.randint(low, high, (2, count), generator=generator).to(dtype)

  rows = [torch.full((2, 512), 7.5), torch.arange(2048.0).view(2, 1024).flip(1)]
  rows += [whole(0, 2**bits) for bits in (1, 11, 12, 22, 23, 34, 45, 56, 62)]
  rows += [whole(-(2**62), 2**62, count=count) for count in (511, 512, 513)]
  rows += [whole(0, 2**bits, torch.int32) << 31 - bits for bits in (1, 11, 23, 31)]
  rows.append(whole(0, 5, torch.uint8))
  rows.append(torch.randn(2, 5000, generator=generator, dtype=torch.float64))
  for self in rows:
    expected = torch.sort(self, stable=True, dim=1, descending=descending)
    values, indices = like(expected.values), like(expected.indices)
    pack("aten::sort.stable", self, True, 1, descending, values, indices)
    close(indices, expected.indices)
    close(values, expected.values)


@pytest.mark.parametrize("dtype", [*FLOATS, *INTS])
@pytest.mark.parametrize("largest", [False, True])
def test_topk(pack, dtype, largest):
  for shape, dim in SHAPES:
    for self in layouts(random(shape, dtype)):
      length = self.shape[dim] if shape else 1
      for k in {0, min(1, length), length // 2, length}:
        expected = torch.topk(self, k, dim, largest)
        values, indices = like(expected.values), like(expected.indices)
        pack("aten::topk", self, k, dim, largest, True, values, indices)
        close(values, expected.values)
        if shape:
          close(torch.gather(self, dim, indices), expected.values)
          if length:
            in_order = torch.sort(self, dim=dim, descending=largest, stable=True).indices.narrow(
              dim, 0, k
            )
            close(indices, in_order)
  refused(
    pack,
    INVALID_INPUT,
    "argument k",
    "aten::topk",
    torch.zeros(3),
    4,
    0,
    True,
    True,
    torch.zeros(4),
    torch.zeros(4, dtype=torch.int64),
  )


@pytest.mark.parametrize("dtype", [*FLOATS, *INTS])
def test_order(pack, dtype):
  for shape, dim in [
    ((7, 30), 1),
    ((7, 30), 0),
    ((3, 4, 5), -2),
    ((), 0),
    ((1,), -1),
    ((3, 1), 1),
    ((2, 20000), 1),
  ]:
    for self in layouts(random(shape, dtype)):
      length = self.shape[dim] if shape else 1

      def check(name, expected, *args, self=self, shape=shape, dim=dim):
        values, indices = like(expected.values), like(expected.indices)
        pack(name, self, *args, values, indices)
        close(values, expected.values)
        if shape:
          keep = args[-1]
          at = indices if keep else indices.unsqueeze(dim)
          close(torch.gather(self, dim, at), values if keep else values.unsqueeze(dim))

      for keep in (False, True):
        for k in {1, length, (length + 1) // 2}:
          check("aten::kthvalue", torch.kthvalue(self, k, dim, keep), k, dim, keep)
        check("aten::median.dim", torch.median(self, dim, keep), dim, keep)
        check("aten::nanmedian.dim", torch.nanmedian(self, dim, keep), dim, keep)
        if not self.isnan().any():
          check("aten::mode", torch.mode(self, dim, keep), dim, keep)
      for name in ("median", "nanmedian"):
        expected = getattr(torch, name)(self)
        got = like(expected)
        pack("aten::" + name, self, got)
        close(got, expected)
  nan = torch.full((3,), float("nan"), dtype=torch.float32)
  got = torch.zeros(())
  for name in ("median", "nanmedian"):
    for self in (nan, nan[:0]):
      pack("aten::" + name, self, got)
      assert got.isnan()
  refused(
    pack,
    INVALID_INPUT,
    "argument k",
    "aten::kthvalue",
    torch.zeros(3),
    0,
    0,
    False,
    torch.zeros(()),
    torch.zeros((), dtype=torch.int64),
  )
  refused(
    pack,
    INVALID_INPUT,
    "no elements",
    "aten::median.dim",
    torch.zeros(3, 0),
    1,
    False,
    torch.zeros(3),
    torch.zeros(3, dtype=torch.int64),
  )
  refused(
    pack,
    INVALID_ARGUMENT,
    "argument values has rank 1",
    "aten::median.dim",
    torch.zeros(3, 2),
    1,
    True,
    torch.zeros(3),
    torch.zeros(3, dtype=torch.int64),
  )


@pytest.mark.parametrize("dtype", [*FLOATS, *INTS, torch.bool, torch.complex64, torch.complex128])
def test_scans(pack, dtype):
  base = [
    (
      torch.randn(
        s,
        generator=torch.Generator().manual_seed(0),
        dtype=torch.complex128 if dtype.is_complex else torch.float64,
      )
      * 2
    ).to(dtype)
    for s in ((7, 30), (3, 4, 5), (), (0,), (3, 0))
  ]
  tolerance = {
    torch.float16: 1e-2,
    torch.bfloat16: 8e-2,
    torch.float32: 1e-5,
    torch.complex64: 1e-4,
    torch.complex128: 1e-9,
  }.get(dtype, 1e-12)
  if not dtype.is_floating_point and not dtype.is_complex:
    tolerance = 0
  for tensor in base:
    for self in layouts(tensor):
      for dim in {0, -1}:
        for name in ("cumsum", "cumprod"):
          for asked in (
            None,
            torch.float64 if dtype.is_floating_point else None,
            torch.int32 if tolerance == 0 else None,
          ):
            expected = getattr(torch, name)(self, dim, dtype=asked)
            got = like(expected)
            pack("aten::" + name, self, dim, asked, got)
            close(got, expected, tolerance, tolerance)
        if dtype.is_complex or dtype.is_floating_point:
          expected = torch.logcumsumexp(self, dim)
          got = like(expected)
          pack("aten::logcumsumexp", self, dim, got)
          close(got, expected, tolerance, tolerance)
        if dtype.is_complex:
          continue
        for name in ("cummax", "cummin"):
          expected = getattr(torch, name)(self, dim)
          values, indices = like(expected.values), like(expected.indices)
          pack("aten::" + name, self, dim, values, indices)
          close(values, expected.values)
          close(indices, expected.indices)
  if dtype in FLOATS:
    special = torch.tensor([1, float("-inf"), 3, float("nan"), 2, float("inf")], dtype=dtype)
    for name in ("cummax", "cummin"):
      expected = getattr(torch, name)(special, 0)
      values, indices = like(expected.values), like(expected.indices)
      pack("aten::" + name, special, 0, values, indices)
      close(values, expected.values)
      close(indices, expected.indices)
    for values in (
      special,
      special[:3],
      torch.tensor([float("-inf")] * 3, dtype=dtype),
      torch.tensor([float("inf"), 1, float("inf")], dtype=dtype),
    ):
      expected = torch.logcumsumexp(values, 0)
      got = like(expected)
      pack("aten::logcumsumexp", values, 0, got)
      close(got, expected, tolerance, tolerance)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_logarithms_of_sums_of_complex_numbers_at_the_edges(pack, dtype):
  inf, nan = float("inf"), float("nan")
  for values in (
    [complex(-inf, 2), 1 + 2j, complex(nan, 0), 3],
    [complex(-inf, inf), 1 + 2j, complex(0, nan), 3],
    [complex(-inf, 1), complex(-inf, 2), 1j],
    [inf, 1 + 2j, complex(inf, 1)],
    [complex(inf, 1), complex(inf, 2)],
    [-800 + 1j, 800 - 2j, -800j],
    [0j, complex(0, math.pi / 2), -40j],
  ):
    values = torch.tensor(values, dtype=dtype)
    expected = torch.logcumsumexp(values, 0)
    got = like(expected)
    pack("aten::logcumsumexp", values, 0, got)
    close(torch.view_as_real(got), torch.view_as_real(expected), 1e-5, 1e-5)


@pytest.mark.parametrize("dtype", [*FLOATS, *INTS])
@pytest.mark.parametrize("right", [False, True])
def test_search(pack, dtype, right):
  sequence = random((40,), dtype, special=False)
  values = random((3, 40), dtype, 1)
  rows = random((3, 25), dtype, 2, special=False)
  for int32 in (False, True):
    for elements in layouts(values):
      for boundaries in layouts(sequence.sort().values):
        expected = torch.searchsorted(boundaries, elements, out_int32=int32, right=right)
        for side in (None, "right" if right else "left"):
          got = like(expected)
          pack("aten::searchsorted.Tensor", boundaries, elements, int32, right, side, None, got)
          close(got, expected)
        got = like(expected)
        pack("aten::bucketize.Tensor", elements, boundaries, int32, right, got)
        close(got, expected)
      order = sequence.argsort()
      expected = torch.searchsorted(sequence, elements, right=right, sorter=order)
      got = like(expected)
      pack("aten::searchsorted.Tensor", sequence, elements, False, right, None, order, got)
      close(got, expected)
      order = rows.argsort()
      expected = torch.searchsorted(rows, elements, right=right, sorter=order)
      got = like(expected)
      pack("aten::searchsorted.Tensor", rows, elements, False, right, None, order, got)
      close(got, expected)
  for number in (3, 2.5):
    expected = torch.searchsorted(sequence.sort().values, number, right=right)
    if dtype.is_floating_point or isinstance(number, int):
      got = like(expected)
      pack(
        "aten::searchsorted.Scalar", sequence.sort().values, number, False, right, None, None, got
      )
      close(got, expected)
      got = like(expected)
      pack("aten::bucketize.Scalar", number, sequence.sort().values, False, right, got)
      close(got, expected)
  out = torch.zeros(3, dtype=torch.int64)
  refused(
    pack,
    INVALID_INPUT,
    "sorter has index 9",
    "aten::searchsorted.Tensor",
    torch.zeros(3),
    torch.zeros(3),
    False,
    False,
    None,
    torch.tensor([0, 9, 1]),
    out,
  )
  refused(
    pack,
    INVALID_ARGUMENT,
    "side",
    "aten::searchsorted.Tensor",
    torch.zeros(3),
    torch.zeros(3),
    False,
    False,
    "up",
    None,
    out,
  )
  refused(
    pack,
    INVALID_ARGUMENT,
    "size 4 along 0",
    "aten::searchsorted.Tensor",
    torch.zeros(4, 2),
    torch.zeros(3, 2),
    False,
    False,
    None,
    None,
    torch.zeros(3, 2, dtype=torch.int64),
  )
  refused(
    pack,
    UNSUPPORTED,
    "out has dtype f32",
    "aten::searchsorted.Tensor",
    torch.zeros(3),
    torch.zeros(3),
    False,
    False,
    None,
    None,
    torch.zeros(3),
  )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_histc(pack, dtype):
  for self in [
    *layouts(random((7, 30), dtype, special=False)),
    torch.zeros(5, dtype=dtype),
    torch.zeros(0, dtype=dtype),
  ]:
    for low, high in ((0, 0), (-50, 50), (-10.5, 30)):
      for bins in (1, 5, 100):
        expected = torch.histc(self, bins, low, high)
        got = like(expected)
        pack("aten::histc", self, bins, low, high, got)
        close(got, expected)
  refused(
    pack,
    INVALID_INPUT,
    "not finite",
    "aten::histc",
    torch.tensor([1, float("inf")]),
    3,
    0,
    0,
    torch.zeros(3),
  )
  refused(
    pack, INVALID_ARGUMENT, "max is less", "aten::histc", torch.zeros(3), 3, 2, 1, torch.zeros(3)
  )


@pytest.mark.parametrize("dtype", INTS)
def test_bincount(pack, dtype):
  for self in layouts(random((50,), dtype).abs()):
    for weights in (
      None,
      random((50,), torch.float32, special=False),
      random((50,), torch.float64, special=False),
      random((50,), torch.int32),
    ):
      for least in (0, 3, 100):
        expected = torch.bincount(self, weights, least)
        size = IntResult()
        pack("aten::bincount:sizes", self, weights, least, size)
        assert size.value == len(expected)
        got = like(expected)
        pack("aten::bincount", self, weights, least, got)
        close(
          got, expected, 1e-5, 1e-5
        ) if weights is not None and weights.dtype == torch.float32 else close(got, expected)
  refused(
    pack,
    INVALID_INPUT,
    "element 1 is -4",
    "aten::bincount:sizes",
    torch.tensor([1, -4]),
    None,
    0,
    IntResult(),
  )
  refused(
    pack,
    INVALID_ARGUMENT,
    "size 2",
    "aten::bincount",
    torch.tensor([1, 4]),
    None,
    0,
    torch.zeros(2, dtype=torch.int64),
  )


def sized(pack, name, *args, after=()):
  size = IntResult()
  pack(name + ":sizes", *args, size, *after)
  return size.value


@pytest.mark.parametrize("dtype", [*FLOATS, *INTS, torch.bool])
def test_unique(pack, dtype):
  many = (
    random((200, 150), torch.float32, special=False).to(dtype)
    if dtype != torch.bool
    else random((9, 9), dtype)
  )
  for tensor in (
    random((4, 30), dtype),
    random((), dtype),
    random((0,), dtype),
    random((3, 4, 5), dtype, special=False),
    many,
  ):
    for self in layouts(tensor):
      for inverse in (False, True):
        for counts in (False, True):
          expected = torch.ops.aten._unique2(self, True, inverse, counts)
          scratch = torch.zeros(2 * self.numel(), dtype=torch.float64)
          for workspace in ([], [scratch]):
            args = (self, True, inverse, counts)
            assert sized(pack, "aten::_unique2", *args, after=workspace) == len(expected[0])
            got = [like(result) for result in expected]
            pack("aten::_unique2", *args, *got, *workspace)
            close(got[0], expected[0])
            if inverse and not self.isnan().any():
              close(got[1], expected[1])
            if counts:
              close(got[2], expected[2])
          if self.numel() > 1:
            refused(
              pack,
              INVALID_ARGUMENT,
              "workspace is smaller",
              "aten::_unique2",
              *args,
              *got,
              scratch[1:],
            )
          for args in ([inverse, counts, None], [inverse, counts, 0]):
            if args[2] is not None and (self.dim() == 0 or self.shape[0] == 0):
              continue
            expected = torch.ops.aten.unique_consecutive(self, *args)
            assert sized(pack, "aten::unique_consecutive", self, *args) == expected[0].shape[0]
            got = [like(result) for result in expected]
            pack("aten::unique_consecutive", self, *args, *got)
            for result, right, asked in zip(got, expected, (True, inverse, counts)):
              if asked:
                close(result, right)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool, torch.bfloat16])
def test_unique_dim(pack, dtype):
  base = torch.randint(0, 2, (3, 40, 2), generator=torch.Generator().manual_seed(0)).to(dtype)
  for self in [
    *layouts(base),
    *layouts(torch.randint(0, 9, (300,), generator=torch.Generator().manual_seed(1)).to(dtype)),
  ]:
    for dim in range(self.dim()):
      for inverse, counts in ((True, True), (False, False)):
        expected = torch.ops.aten.unique_dim(self, dim, True, inverse, counts)
        assert (
          sized(pack, "aten::unique_dim", self, dim, True, inverse, counts)
          == expected[0].shape[dim]
        )
        got = [like(result) for result in expected]
        pack("aten::unique_dim", self, dim, True, inverse, counts, *got)
        close(got[0], expected[0])
        if inverse:
          close(got[1], expected[1])
          close(got[2], expected[2])


def test_unique_refuses(pack):
  self = torch.tensor([1, 2, 1])
  none = torch.zeros(0, dtype=torch.int64)
  refused(
    pack,
    INVALID_INPUT,
    "room for 3 elements, the data has 2",
    "aten::_unique2",
    self,
    True,
    False,
    False,
    torch.zeros(3).long(),
    none,
    none,
  )
  refused(
    pack,
    INVALID_INPUT,
    "room for 1 elements, the data has 2",
    "aten::_unique2",
    self,
    True,
    False,
    False,
    torch.zeros(1).long(),
    none,
    none,
  )
  refused(
    pack,
    INVALID_INPUT,
    "room for 2 elements, the data has 3",
    "aten::unique_consecutive",
    self,
    False,
    False,
    None,
    torch.zeros(2).long(),
    none,
    none,
  )
  refused(
    pack,
    INVALID_ARGUMENT,
    "argument inverse has",
    "aten::_unique2",
    self,
    True,
    True,
    False,
    torch.zeros(2).long(),
    none,
    none,
  )
  refused(
    pack,
    INVALID_ARGUMENT,
    "argument counts has",
    "aten::_unique2",
    self,
    True,
    False,
    True,
    torch.zeros(2).long(),
    none,
    none,
  )
  refused(
    pack,
    UNSUPPORTED,
    "has 70000 slices",
    "aten::unique_dim:sizes",
    torch.zeros(70000),
    0,
    True,
    False,
    False,
    IntResult(),
  )
  refused(
    pack,
    UNSUPPORTED,
    "dtype c64",
    "aten::_unique2:sizes",
    torch.zeros(3, dtype=torch.complex64),
    True,
    False,
    False,
    IntResult(),
  )
