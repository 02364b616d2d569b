"""Ops of the host that complex tensors need, against PyTorch."""

import pytest
import torch
from host_ops import (
  INVALID_ARGUMENT,
  INVALID_INPUT,
  LATER,
  UNSUPPORTED,
  close,
  layouts,
  like,
  refused,
)

COMPLEX = [torch.complex64, torch.complex128]
ATEN = torch.ops.aten


def random(shape, dtype, seed=0):
  generator = torch.Generator().manual_seed(seed)
  if dtype.is_complex:
    return torch.randn(shape, generator=generator, dtype=torch.complex128).to(dtype)
  if dtype.is_floating_point:
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)
  return torch.randint(-9, 9, shape, generator=generator).to(dtype)


def near(got, expected):
  wide = expected.dtype in (torch.complex128, torch.float64)
  close(
    got.resolve_conj(), expected.resolve_conj(), 1e-12 if wide else 2e-5, 1e-12 if wide else 2e-5
  )


def test_logarithm_near_one(pack):
  small = torch.tensor([1e-20, -1e-20j, 1e-9 + 1e-12j, -1e-9 + 1e-5j, -0.4j], dtype=COMPLEX[1])
  expected = torch.log1p(small)
  got = like(expected)
  pack("aten::log1p", small, got)
  close(torch.view_as_real(got), torch.view_as_real(expected), 1e-15, 0)


UNARY = """
neg _conj _conj_physical conj_physical real imag abs angle sgn exp log sqrt rsqrt sin cos tan sinh
cosh tanh asin acos atan asinh acosh atanh log2 log10 log1p exp2 expm1 sigmoid reciprocal square
isnan isinf isfinite logical_not
""".split()


@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize("dtype", COMPLEX)
def test_unary(pack, name, dtype):
  for self in [
    *layouts(random((4, 5), dtype)),
    random((), dtype),
    random((0, 3), dtype),
    random((300,), dtype),
  ]:
    expected = (
      getattr(torch if name in ("real", "imag") else ATEN, name)(self).resolve_conj().clone()
    )
    got = like(expected)
    pack(f"aten::{name}", self, got)
    near(got, expected)
  special = torch.tensor([0, complex("inf"), complex("nan"), complex(1, float("inf"))], dtype=dtype)
  if name in ("isnan", "isinf", "isfinite", "logical_not", "abs", "neg", "sgn")[:-1]:
    expected = getattr(ATEN, name)(special)
    got = like(expected)
    pack(f"aten::{name}", special, got)
    near(got, expected)


BINARY = {
  "add.Tensor": [1],
  "sub.Tensor": [1],
  "mul.Tensor": [],
  "div.Tensor": [],
  "pow.Tensor_Tensor": [],
  "eq.Tensor": [],
  "ne.Tensor": [],
}


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("dtype", COMPLEX)
def test_binary(pack, name, dtype):
  op, overload = name.split(".")
  for a, b in [((4, 5), (4, 5)), ((4, 5), (5,)), ((4, 1), (1, 5)), ((), (3,)), ((0, 2), (2,))]:
    for other_dtype in (dtype, torch.float32, torch.int64):
      for self in layouts(random(a, dtype)):
        for other in layouts(random(b, other_dtype, 1)):
          extra = {"alpha": BINARY[name][0]} if BINARY[name] else {}
          expected = getattr(getattr(ATEN, op), overload)(self, other, **extra)
          got = like(expected)
          pack("aten::" + name, self, other, *BINARY[name], got)
          near(got, expected)


@pytest.mark.parametrize("dtype", COMPLEX)
def test_scalars(pack, dtype):
  self = random((4, 5), dtype)
  for scalar in (2, 0.5, 1 + 2j, -1.0, 3, 0, -2):
    for name, extra, expected in [
      ("add.Tensor", [1], self + scalar),
      ("sub.Tensor", [2], self - 2 * scalar),
      ("mul.Tensor", [], self * scalar),
      ("div.Tensor", [], self / (scalar or 1)),
      ("pow.Tensor_Scalar", [], self**scalar),
      ("eq.Scalar", [], self == scalar),
      ("rsub.Scalar", [1], scalar - self),
    ]:
      got = like(expected)
      pack("aten::" + name, self, (scalar or 1) if name == "div.Tensor" else scalar, *extra, got)
      near(got, expected)
  expected = 1 - self
  got = like(expected)
  pack("aten::sub.Tensor", 1, self, 1, got)
  near(got, expected)
  expected = (1 + 1j) ** self
  got = like(expected)
  pack("aten::pow.Scalar", 1 + 1j, self, got)
  near(got, expected)
  close(got := got, got)
  real, imag = random((3, 4), self.real.dtype), random((3, 4), self.real.dtype, 1)
  for name, function in (("complex", torch.complex), ("polar", torch.polar)):
    expected = function(real, imag)
    got = like(expected)
    pack("aten::" + name, real, imag, got)
    near(got, expected)


@pytest.mark.parametrize("dtype", [*COMPLEX, torch.float32, torch.int64])
def test_reductions(pack, dtype):
  for self in layouts(random((3, 4, 5), dtype)):
    for dims in ([0], [1, 2], [-1], [], [0, 1, 2]):
      for keep in (False, True):
        expected = ATEN.sum.dim_IntList(self, dims, keep)
        got = like(expected)
        pack("aten::sum.dim_IntList", self, dims, keep, None, got)
        near(got, expected)
        if dtype != torch.int64:
          expected = ATEN.mean.dim(self, dims, keep)
          got = like(expected)
          pack("aten::mean.dim", self, dims, keep, None, got)
          near(got, expected)
          for correction in (None, 0, 1.0):
            expected = ATEN.var.correction(self, dims, correction=correction, keepdim=keep)
            got = like(expected)
            pack("aten::var.correction", self, dims, correction, keep, got)
            near(got, expected)
    for name in ("sum", "prod") if dtype == torch.int64 else ("sum", "mean", "prod"):
      expected = getattr(ATEN, name)(self)
      got = like(expected)
      pack("aten::" + name, self, None, got)
      near(got, expected)
    for dim in (0, 2, -2):
      expected = ATEN.prod.dim_int(self, dim, True)
      got = like(expected)
      pack("aten::prod.dim_int", self, dim, True, None, got)
      near(got, expected)
    for name in ("all", "any"):
      expected = getattr(ATEN, name)(self)
      got = like(expected)
      pack("aten::" + name, self, got)
      close(got, expected)
      expected = getattr(ATEN, name).dim(self, 1, False)
      got = like(expected)
      pack(f"aten::{name}.dim", self, 1, False, got)
      close(got, expected)
  refused(
    pack,
    INVALID_ARGUMENT,
    "names no dimension",
    "aten::sum.dim_IntList",
    self,
    [3],
    False,
    None,
    torch.zeros(3),
  )
  refused(
    pack,
    INVALID_ARGUMENT,
    "argument out",
    "aten::sum.dim_IntList",
    self,
    [0],
    False,
    None,
    torch.zeros(3),
  )


VIEWS = {
  "permute": lambda x: [("aten::permute", [2, 0, 1], x.permute(2, 0, 1))],
  "transpose": lambda x: [("aten::transpose.int", 0, -1, x.transpose(0, -1))],
  "unsqueeze": lambda x: [("aten::unsqueeze", dim, x.unsqueeze(dim)) for dim in (0, 2, 3, -1, -4)],
  "squeeze": lambda x: [("aten::squeeze.dim", 0, x.unsqueeze(1).squeeze(1)), ("aten::squeeze", x)],
  "expand": lambda x: [("aten::expand", [2, 3, 4, 5], False, x.expand(2, 3, 4, 5))],
  "reshape": lambda x: [
    ("aten::reshape", [-1], x.reshape(-1)),
    ("aten::view", [5, 12], x.reshape(5, 12)),
  ],
  "slice": lambda x: [
    ("aten::slice.Tensor", dim, start, end, step, ATEN.slice.Tensor(x, dim, start, end, step))
    for dim in (0, 2, -1)
    for start in (0, 1, -2, None, 9)
    for end in (None, 2, 2**63 - 1, -1, -9)
    for step in (1, 2)
  ],
  "select": lambda x: [
    ("aten::select.int", dim, index, x.select(dim, index))
    for dim in (0, 1, -1)
    for index in (0, 2, -3)
  ],
  "diagonal": lambda x: [
    ("aten::diagonal", offset, a, b, x.diagonal(offset, a, b))
    for offset in (-9, -1, 0, 2)
    for a, b in ((0, 1), (2, 0), (-1, -2))
  ],
  "rev": lambda x: (
    [("prims::rev", dims, x.flip(dims)) for dims in ([0], [2, 1], [])]
    + [("aten::flip", [-1], x.flip(-1))]
  ),
  "repeat": lambda x: [
    ("aten::repeat", list(r), x.repeat(r)) for r in ((2, 1, 3), (2, 1, 1, 1), (0, 1, 1))
  ],
  "pad": lambda x: [
    ("aten::constant_pad_nd", pad, 2, ATEN.constant_pad_nd(x, pad, 2))
    for pad in ([1, 2], [0, 1, 2, 0], [-1, 2], [-1, -1, 1, 1, 0, 1], [])
  ],
  "clone": lambda x: [("aten::clone", None, x.clone())],
}


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize(
  "dtype", [torch.complex64, torch.complex128, torch.float32, torch.bfloat16, torch.bool]
)
def test_views(pack, name, dtype):
  for self in layouts(random((3, 4, 5), dtype)):
    for op, *args, expected in VIEWS[name](self):
      got = like(expected.contiguous())
      pack(op, self, *args, got)
      close(got, expected)


def test_views_of_other_dtypes(pack):
  for self in layouts(random((3, 4), torch.complex64)):
    expected = torch.view_as_real(self).contiguous()
    got = like(expected)
    pack("aten::view_as_real", self, got)
    close(got, expected)
    back = like(self)
    pack("aten::view_as_complex", expected, back)
    close(back, self)
  for source, target in [
    (torch.complex64, torch.float32),
    (torch.float32, torch.complex64),
    (torch.float32, torch.int32),
    (torch.int64, torch.uint8),
    (torch.uint8, torch.int64),
    (torch.complex128, torch.float64),
  ]:
    self = random((3, 16), source)
    expected = self.view(target)
    got = like(expected)
    pack("aten::view.dtype", self, target, got)
    assert torch.equal(got.view(torch.uint8), expected.view(torch.uint8))
  refused(
    pack,
    INVALID_ARGUMENT,
    "multiple",
    "aten::view.dtype",
    torch.zeros(3, 3),
    torch.complex64,
    torch.zeros(3, 1, dtype=torch.complex64),
  )
  refused(
    pack,
    INVALID_ARGUMENT,
    "shape",
    "aten::view_as_real",
    torch.zeros(3, dtype=torch.complex64),
    torch.zeros(3, 3),
  )
  refused(
    pack,
    INVALID_ARGUMENT,
    "12 elements, the output 11",
    "aten::reshape",
    torch.zeros(3, 4),
    [11],
    torch.zeros(11),
  )
  refused(
    pack,
    INVALID_ARGUMENT,
    "is not a permutation",
    "aten::permute",
    torch.zeros(3, 4),
    [0, 0],
    torch.zeros(3, 3),
  )
  refused(
    pack,
    INVALID_INPUT,
    "index 3 is out of range",
    "aten::select.int",
    torch.zeros(3, 4),
    0,
    3,
    torch.zeros(4),
  )


@pytest.mark.parametrize(
  "dtype", [torch.complex64, torch.complex128, torch.float32, torch.int64, torch.bool]
)
def test_fill(pack, dtype):
  values = [1 + 2j, 2.5, 3] if dtype.is_complex else [2.5, 3] if dtype.is_floating_point else [1]
  for value in values:
    expected = torch.full((3, 4), value, dtype=dtype)
    got = torch.zeros(4, 3, dtype=dtype).T
    pack("aten::full", [3, 4], value, dtype, None, None, None, got)
    close(got, expected)
    got = torch.zeros(3, 4, dtype=dtype)
    pack("aten::fill_.Scalar", got, value)
    close(got, expected)
    got = torch.zeros(3, 4, dtype=dtype)
    pack("aten::fill_.Tensor", got, torch.tensor(value))
    close(got, expected)
  a, b = random((3, 4), dtype), random((4,), dtype, 1)
  condition = random((3, 1), torch.int64) > 0
  expected = torch.where(condition, a, b)
  got = like(expected)
  pack("aten::where.self", condition, a, b, got)
  close(got, expected)
  expected = torch.cat([a, a[:, :2], a[:, :0]], 1)
  got = like(expected)
  pack("aten::cat", [a, a[:, :2], a[:, :0]], -1, got)
  close(got, expected)
  refused(
    pack,
    INVALID_ARGUMENT,
    "size 10",
    "aten::cat",
    [a, a[:, :2]],
    -1,
    torch.zeros(3, 10, dtype=dtype),
  )
  refused(
    pack,
    INVALID_ARGUMENT,
    "tensor 1 does not fit",
    "aten::cat",
    [a, a[:, :2]],
    -1,
    torch.zeros(3, 5, dtype=dtype),
  )


DTYPES = [
  torch.bool,
  torch.uint8,
  torch.int8,
  torch.int16,
  torch.int32,
  torch.int64,
  torch.uint16,
  torch.uint32,
  torch.uint64,
  torch.float16,
  torch.bfloat16,
  torch.float32,
  torch.float64,
  torch.complex64,
  torch.complex128,
  torch.float8_e4m3fn,
  torch.float8_e5m2,
  torch.float8_e4m3fnuz,
  torch.float8_e5m2fnuz,
]


@pytest.mark.parametrize("source", DTYPES)
@pytest.mark.filterwarnings("ignore:Casting complex")
def test_conversions(pack, source):
  """Every dtype to every other one. Numbers that a target cannot hold are left out, since C++ does
  not define their conversion."""
  base = torch.tensor([[0, 1, 2, 3.5, 17, 100], [0.3, 44, 1.25, 0.01, 5, 99]], dtype=torch.float64)
  for self in layouts(base.to(source)):
    for target in DTYPES:
      expected = torch.zeros(2, 2, 6).to(target)
      got = expected.clone()
      expected.copy_(self)
      pack("aten::copy_", got, self, False)
      assert torch.equal(
        got.contiguous().view(torch.uint8), expected.contiguous().view(torch.uint8)
      ), target
  numbers = torch.cat(
    [torch.randn(3000, generator=torch.Generator().manual_seed(0)) * 10.0**e for e in range(-9, 6)]
    + [
      torch.tensor(
        [448, 464, 465, 57344, 61440, 61441, float("inf"), -float("inf"), float("nan"), 0, -0.0]
      )
    ]
  )
  if LATER and source == torch.float8_e4m3fn:
    numbers = numbers[
      ~(numbers.abs() > 448)
    ]  # PyTorch 2.15 returns the largest number for these, 2.11 and the op return NaN
  if source.is_floating_point:
    expected = numbers.to(source)
    got = torch.empty_like(expected)
    pack("aten::copy_", got, numbers, False)
    bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[got.element_size()]
    different = (got.view(bits) != expected.view(bits)) & ~expected.float().isnan()
    assert not different.any(), numbers[different]
    assert torch.equal(got.float().isnan(), expected.float().isnan())


def test_refuses(pack):
  c, f8 = torch.zeros(3, dtype=torch.complex64), torch.zeros(3).to(torch.float8_e5m2)
  refused(
    pack,
    INVALID_ARGUMENT,
    "argument out has size 4",
    "aten::exp",
    c,
    torch.zeros(4, dtype=torch.complex64),
  )
  refused(pack, UNSUPPORTED, "argument self has dtype f8e5m2", "aten::exp", f8, c)
  refused(pack, UNSUPPORTED, "argument out has dtype f8e5m2", "aten::mul.Tensor", c, c, f8)
  refused(
    pack, INVALID_ARGUMENT, "argument other has a shape", "aten::mul.Tensor", c, torch.zeros(2), c
  )
  refused(pack, INVALID_ARGUMENT, "argument other is not a tensor", "aten::mul.Tensor", c, "x", c)
  refused(
    pack, INVALID_ARGUMENT, "argument alpha is not a number", "aten::add.Tensor", c, c, None, c
  )
