"""husk::linear_quantized of the host, against the float64 product of the numbers that the codes
stand for."""

import itertools

import pytest
import torch
from host_ops import INVALID_ARGUMENT, INVALID_INPUT, UNSUPPORTED, layouts, refused

NAME = "husk::linear_quantized"
FLOAT8 = [
  torch.float8_e4m3fn,
  torch.float8_e5m2,
  torch.float8_e4m3fnuz,
  torch.float8_e5m2fnuz,
]


def packed_pairs(codes):
  """Codes of 4 bits, two in a byte, the first one in its low half."""
  codes = torch.nn.functional.pad(codes, (0, codes.shape[1] % 2))
  return (codes[:, ::2] | codes[:, 1::2] << 4).contiguous()


class Weight:
  """A weight of n x k codes: the arguments of the operator, and the numbers in float64."""

  def __init__(self, n, k, group, dtype, scales=torch.float32, zeros=None, values=None, seed=0):
    random = torch.Generator().manual_seed(seed)
    groups = k // group if group else 0
    self.bits, self.group = 4 if dtype == "int4" else 8, group
    self.scales = (torch.rand(n, groups, generator=random) * 0.1 + 0.01).to(scales)
    self.values = values
    if dtype == "int4":
      codes = torch.randint(0, 16, (n, k), generator=random, dtype=torch.uint8)
      table = torch.arange(16.0) - 8 if values is None else values
      self.codes, numbers = packed_pairs(codes), table[codes.long()].double()
    elif dtype in FLOAT8:
      self.codes = torch.randn(n, k, generator=random).to(dtype)
      numbers = self.codes.float().double()
    else:
      low, high = (-128, 128) if dtype == torch.int8 else (0, 256)
      self.codes = torch.randint(low, high, (n, k), generator=random).to(dtype)
      numbers = self.codes.double()
    self.zeros = None
    if zeros is not None:
      self.zeros = torch.randint(0, 8, (n, groups), generator=random).to(zeros)
      numbers = numbers - self.zeros.double().repeat_interleave(group, 1)
    self.numbers = numbers * self.scales.double().repeat_interleave(group, 1)

  def call(self, pack, x, bias=None, residual=None, activation="none", packed=(1, 2, 3), name=NAME):
    out = torch.full((x.shape[0], self.codes.shape[0]), 7.0, dtype=x.dtype)
    packed = [at for at in packed if at != 3 or self.zeros is not None]
    sizes = pack(
      name,
      x,
      self.codes,
      self.scales,
      self.zeros,
      self.values,
      bias,
      residual,
      activation,
      self.bits,
      self.group,
      out,
      packed=packed,
    )
    return out, sizes


def check(weight, pack, x, bias=None, residual=None, packed=(1, 2, 3)):
  """Compares with float64. The tolerance is that of sums of k products in f32."""
  got, sizes = weight.call(pack, x, bias, residual, packed=packed)
  right = x.double() @ weight.numbers.T
  size = (x.double().abs() @ weight.numbers.abs().T).clamp(min=1e-30)
  for more in (bias, residual):
    if more is not None:
      right = right + more.double()
      size = size + more.double().abs()
  rounding = {torch.float32: 2**-24, torch.float16: 2**-11, torch.bfloat16: 2**-8}[x.dtype]
  bound = size * 2**-24 * (8 + x.shape[1] ** 0.5) + right.abs() * rounding
  wrong = (got.double() - right).abs() > bound
  assert not wrong.any(), (x.shape, weight.codes.shape, int(wrong.sum()))
  return sizes


def inputs(m, k, dtype=torch.float32, seed=1):
  return torch.randn(m, k, generator=torch.Generator().manual_seed(seed)).to(dtype)


FORMATS = ["int4", torch.int8, torch.uint8, torch.float8_e4m3fn]


def test_codes_of_each_format(pack):
  for _ in pack.each_use():
    for dtype, zeros, m in itertools.product(
      FORMATS, (None, torch.int8, torch.float32), (1, 2, 3, 5, 12, 13, 40)
    ):
      weight = Weight(37, 96, 32, dtype, zeros=zeros)
      for packed in ((), (1, 2, 3)):
        check(weight, pack, inputs(m, 96), packed=packed)


@pytest.mark.parametrize("dtype", FLOAT8)
def test_each_code_of_8_bit_floats(pack, dtype):
  codes = torch.arange(256, dtype=torch.uint8).view(dtype)
  weight = Weight(256, 8, 8, dtype, scales=torch.float32)
  weight.codes, weight.scales = codes[:, None].repeat(1, 8).contiguous(), torch.ones(256, 1)
  x = torch.zeros(2, 8)
  x[:, 3] = 1
  for packed in ((), (1, 2)):
    got, _ = weight.call(pack, x, packed=packed)
    number = codes.float()
    # Infinities times the zeros of x are NaN.
    number[number.isinf()] = float("nan")
    torch.testing.assert_close(got[1], number, rtol=0, atol=0, equal_nan=True)


def test_dtypes_of_inputs_scales_and_zeros(pack):
  for dtype, scales, zeros in itertools.product(
    (torch.float32, torch.float16, torch.bfloat16),
    (torch.float32, torch.float16, torch.bfloat16),
    (None, torch.uint8, torch.int32, torch.bfloat16),
  ):
    weight = Weight(48, 64, 16, "int4", scales=scales, zeros=zeros)
    for m in (1, 20):
      check(weight, pack, inputs(m, 64, dtype))


def test_shapes_and_groups(pack):
  """Depths that end inside a word or a slice, groups of any size, columns that fill no panel."""
  for n, k, group in [
    (1, 8, 8),
    (16, 7, 7),  # one group, which no word divides
    (17, 13, 13),
    (300, 40, 8),
    (33, 30, 10),  # groups that are not packed
    (5, 4096 + 64, 32),
    (5, 5000, 5000),
    (64, 260, 260),
    (70, 24, 24),
    (3, 1, 1),
  ]:
    for dtype in ("int4", torch.int8):
      weight = Weight(n, k, group, dtype, zeros=torch.int8)
      for m in (1, 4, 6, 17):
        sizes = check(weight, pack, inputs(m, k))
        assert (sizes == [0, 0, 0]) == (group % 8 != 0)
        check(weight, pack, inputs(m, k), packed=())


def test_packed_copies_are_small(pack):
  weight = Weight(64, 256, 32, "int4", scales=torch.bfloat16)
  _, sizes = weight.call(pack, inputs(1, 256))
  assert sizes == [64 * 256 // 2, 64 * 8 * 2]


def test_bias_residual_activation_and_strides(pack):
  weight = Weight(40, 64, 32, "int4", values=torch.linspace(-1, 1, 16) ** 3)
  bias = inputs(1, 40)[0]
  for m in (3, 30):
    x, residual = inputs(m, 64), inputs(m, 40, seed=3)
    check(weight, pack, x, bias, residual)
    for view in layouts(x):
      check(weight, pack, view, bias)
    got, _ = weight.call(pack, x, bias, activation="relu")
    plain, _ = weight.call(pack, x, bias)
    assert torch.equal(got, plain.relu())
  weight = Weight(40, 64, 32, torch.int8)
  for codes in layouts(weight.codes):
    weight.codes = codes
    check(weight, pack, inputs(2, 64))


def test_a_product_without_rows_or_depth(pack):
  weight = Weight(8, 32, 32, torch.int8)
  assert weight.call(pack, inputs(0, 32))[0].shape == (0, 8)
  bias = torch.arange(8.0)
  out = torch.empty(2, 8)
  codes, scales = torch.empty(8, 0, dtype=torch.int8), torch.empty(8, 0)
  pack(NAME, torch.empty(2, 0), codes, scales, None, None, bias, None, "none", 8, 1, out)
  assert torch.equal(out, bias.expand(2, 8))


def test_refusals(pack):
  codes = torch.zeros(8, 32, dtype=torch.int8)
  scales, x, out = torch.ones(8, 1), torch.ones(2, 32), torch.empty(2, 8)

  def refuses(code, text, **changes):
    arguments = {
      "input": x,
      "weight": codes,
      "scales": scales,
      "zeros": None,
      "values": None,
      "bias": None,
      "residual": None,
      "activation": "none",
      "bits": 8,
      "group": 32,
      "out": out,
    }
    refused(pack, code, text, NAME, *{**arguments, **changes}.values())

  refuses(UNSUPPORTED, "bits is neither 8 nor 4", bits=5)
  refuses(UNSUPPORTED, "weight has dtype i8", bits=4)
  refuses(UNSUPPORTED, "weight has dtype i32", weight=codes.int())
  refuses(INVALID_ARGUMENT, "group does not divide the columns of the input", group=12)
  refuses(INVALID_ARGUMENT, "group does not divide the columns of the input", group=0)
  refuses(INVALID_ARGUMENT, "scales", scales=torch.ones(8, 2))
  refuses(UNSUPPORTED, "scales has dtype i32", scales=torch.ones(8, 1, dtype=torch.int32))
  refuses(UNSUPPORTED, "zeros has dtype i64", zeros=torch.ones(8, 1, dtype=torch.int64))
  refuses(INVALID_ARGUMENT, "values", values=torch.ones(15), bits=4, weight=codes.byte()[:, :16])
  refuses(INVALID_ARGUMENT, "values is for codes of 4 bits", values=torch.ones(16))
  refuses(
    UNSUPPORTED,
    "weight has codes that are not adjacent",
    bits=4,
    weight=codes.byte()[:, ::2],
  )
  double = {"input": x.double(), "out": out.double()}
  refuses(UNSUPPORTED, "input has dtype f64", **double)


# ---- inputs that are rounded ----

ROUNDED = "husk::linear_rounded"


def rounded(x):
  """Numbers that a row is rounded to: ints of a step for each block of 32 elements."""
  blocks = x.float().reshape(x.shape[0], -1, 32)
  largest = blocks.abs().amax(2, keepdim=True)
  steps = largest / 127
  # torch divides a number by a tensor by way of the reciprocal, which is rounded twice.
  ints = (blocks.double() * (torch.full_like(largest, 127) / largest)).round()
  return (ints.double() * steps.double()).nan_to_num().reshape(x.shape)


def check_rounded(weight, pack, x, **kwargs):
  """Compares with float64. The tolerance is that of a sum in f32 of each block."""
  got, _ = weight.call(pack, x, name=ROUNDED, **kwargs)
  size = rounded(x).abs() @ weight.numbers.abs().T
  if weight.zeros is not None:
    zeros = weight.zeros.double() * weight.scales.double()
    size += rounded(x).abs() @ zeros.abs().repeat_interleave(weight.group, 1).T
  rounding = {torch.float32: 2**-24, torch.float16: 2**-11, torch.bfloat16: 2**-8}[x.dtype]
  right = rounded(x) @ weight.numbers.T
  bound = size * 2**-24 * (8 + (x.shape[1] / 32) ** 0.5) + right.abs() * rounding
  wrong = (got.double() - right).abs() > bound
  assert not wrong.any(), (x.shape, weight.codes.shape, int(wrong.sum()))


def rounding_uses(pack):
  """The sets of features that pack codes: without AVX2, x86-64 does not, and so does not round."""
  numbers = 0
  for number in pack.each_use():
    _, sizes = Weight(16, 32, 32, torch.int8).call(pack, inputs(1, 32))
    if sizes[0]:
      numbers += 1
      yield number
  assert numbers


def test_rounded_inputs(pack):
  for _ in rounding_uses(pack):
    for dtype, zeros, m in itertools.product(
      ("int4", torch.int8, torch.uint8), (None, torch.int8, torch.float32), (1, 2, 4, 5, 113)
    ):
      check_rounded(Weight(37, 96, 32, dtype, zeros=zeros), pack, inputs(m, 96))


def test_rounded_inputs_of_other_shapes_and_dtypes(pack):
  for _ in rounding_uses(pack):
    for n, k, group in [
      (1, 32, 32),
      (300, 64, 64),
      (48, 1024 + 96, 1024 + 96),
      (17, 16384 + 64, 32),
    ]:
      for dtype in ("int4", torch.int8):
        weight = Weight(n, k, group, dtype, scales=torch.bfloat16, zeros=torch.uint8)
        for m in (1, 6):
          check_rounded(weight, pack, inputs(m, k))
    weight = Weight(40, 64, 32, "int4", scales=torch.float16)
    for dtype, m in itertools.product((torch.float16, torch.bfloat16), (1, 7)):
      check_rounded(weight, pack, inputs(m, 64, dtype))
    for view in layouts(inputs(6, 64)):
      check_rounded(weight, pack, view)


def test_scales_of_16_bits_that_one_row_reads_in_place(pack):
  """One row gets the bits that the same scales in f32 give, exact and rounded."""
  for _ in rounding_uses(pack):
    for dtype, (n, k), kind in itertools.product(
      ("int4", torch.int8, torch.uint8),
      [(37, 96), (300, 1024 + 96), (17, 16384 + 64)],
      (torch.float32, torch.bfloat16),
    ):
      weight, x = Weight(n, k, 32, dtype, scales=torch.float16), inputs(1, k, kind)
      halves = [weight.call(pack, x, name=name)[0] for name in (NAME, ROUNDED)]
      weight.scales = weight.scales.float()
      floats = [weight.call(pack, x, name=name)[0] for name in (NAME, ROUNDED)]
      assert all(map(torch.equal, halves, floats)), (dtype, n, k, kind)


def test_rows_that_are_rounded_in_several_turns(pack):
  """More rows than there is scratch memory for, and more columns than a part has."""
  for _ in rounding_uses(pack):
    for m, k, n in ((90, 8192, 20), (300, 2048, 20), (30, 32, 4300)):
      weight, x = Weight(n, k, 32, "int4"), inputs(m, k)
      check_rounded(weight, pack, x)
      plain, _ = weight.call(pack, x, name=ROUNDED)
      bias, residual = inputs(1, n)[0], inputs(m, n, seed=3)
      got, _ = weight.call(pack, x, bias, residual, name=ROUNDED)
      torch.testing.assert_close(got, plain + bias + residual, rtol=1e-6, atol=1e-5)
      # A row is rounded and summed alone.
      alone, _ = weight.call(pack, x[m - 1 :].contiguous(), name=ROUNDED)
      torch.testing.assert_close(alone[0], plain[m - 1], rtol=0, atol=0)


def test_rounded_extremes(pack):
  """The largest codes and ints; blocks of zeros, of tiny and of large numbers, and of NaN."""
  for _ in rounding_uses(pack):
    for dtype, extreme in ((torch.int8, -128), (torch.int8, 127), (torch.uint8, 255)):
      weight = Weight(16, 64, 64, dtype)
      weight.codes = torch.full_like(weight.codes, extreme)
      weight.numbers = weight.codes.double() * weight.scales.double()
      for m in (1, 5):
        check_rounded(weight, pack, torch.full((m, 64), -3.0))
    weight = Weight(16, 160, 32, "int4")
    x = inputs(5, 160)
    x[0] = 0
    x[1, :32], x[2, 32:64], x[3, :32] = 0, 1e30, 1e-38
    # What is below 2^-120 counts as 0.
    got, _ = weight.call(pack, x, name=ROUNDED)
    x[3, :32] = 0
    plain, _ = weight.call(pack, x, name=ROUNDED)
    assert torch.equal(got, plain) and not got[0].any()
    check_rounded(weight, pack, x)
    x[2, 40], x[4, 3] = float("nan"), float("inf")
    got, _ = weight.call(pack, x, name=ROUNDED)
    assert got[[2, 4]].isnan().all() and torch.equal(got[[0, 1, 3]], plain[[0, 1, 3]])


def test_rounded_layers_have_what_others_have(pack):
  weight, x = Weight(40, 64, 32, "int4"), inputs(3, 64)
  bias, residual = inputs(1, 40)[0], inputs(3, 40, seed=3)
  plain, _ = weight.call(pack, x, name=ROUNDED)
  got, _ = weight.call(pack, x, bias, residual, "relu", name=ROUNDED)
  torch.testing.assert_close(got, (plain + bias).relu() + residual, rtol=0, atol=1e-6)


def test_what_is_not_rounded(pack):
  """Tables of values, floats, groups that blocks do not divide, and weights that are not packed."""
  x = inputs(3, 64)
  for weight, packed in (
    (Weight(20, 64, 32, "int4", values=torch.linspace(-1, 1, 16)), (1, 2, 3)),
    (Weight(20, 64, 32, torch.float8_e4m3fn), (1, 2, 3)),
    (Weight(20, 64, 16, torch.int8), (1, 2, 3)),
    (Weight(20, 64, 32, torch.int8), (1,)),
    (Weight(20, 64, 32, torch.int8), ()),
  ):
    exact, _ = weight.call(pack, x, packed=packed)
    got, _ = weight.call(pack, x, packed=packed, name=ROUNDED)
    assert torch.equal(got, exact)


# ---- one row, which may become a sum of rows of ints ----


def test_one_row_of_any_numbers(pack):
  """The error is at most a few roundings of the largest element of each block."""
  random = torch.Generator().manual_seed(4)
  rows = [torch.randn(1, 192, generator=random) * size for size in (1, 1e30, 1e-30)]
  rows += [
    torch.randint(-(2**23), 2**23, (1, 192), generator=random).float(),
    torch.arange(1.0, 385, 2)[None] * 0.5,  # halves of steps
    torch.full((1, 192), 255.0),
    torch.randn(1, 192, generator=random) * 10.0 ** torch.randint(-8, 8, (1, 192)),
    torch.zeros(1, 192),
  ]
  rows[0][0, 40] = 1e36
  for number in pack.each_use():
    # Without AVX2, x86-64 adds all products of a column one by one.
    unit = 2**-20 if number == 1 else 2**-22
    for dtype, zeros in (("int4", None), (torch.int8, None), (torch.uint8, torch.int8)):
      weight = Weight(37, 192, 64, dtype, zeros=zeros)
      for x in rows:
        got, _ = weight.call(pack, x)
        right = (x.double() @ weight.numbers.T)[0]
        largest = x.double().abs().reshape(-1, 32).amax(1).repeat_interleave(32)
        size = weight.scales.double().repeat_interleave(64, 1) * 16
        bound = ((weight.numbers.abs() + size) @ largest) * unit + right.abs() * unit
        error = (got[0].double() - right).abs()
        assert (error <= bound + 1e-44).all()


def test_the_error_of_one_row_is_that_of_eager_mode(pack):
  for _ in pack.each_use():
    for dtype in ("int4", torch.int8):
      weight, mine, eager = Weight(128, 2048, 32, dtype), 0.0, 0.0
      for seed in range(8):
        x = inputs(1, 2048, seed=seed)
        right = x.double() @ weight.numbers.T
        got, _ = weight.call(pack, x)
        mine += float(((got.double() - right) ** 2).mean())
        eager += float((((x @ weight.numbers.float().T).double() - right) ** 2).mean())
      if pack.number > 1:
        assert mine < 1.1**2 * eager


def test_one_row_with_infinities(pack):
  for _ in pack.each_use():
    weight = Weight(37, 64, 32, torch.int8)
    for extreme in (float("inf"), float("-inf"), float("nan")):
      x = inputs(1, 64)
      x[0, 50] = extreme
      got, _ = weight.call(pack, x)
      plain, _ = weight.call(pack, x, packed=())
      torch.testing.assert_close(got, plain, equal_nan=True)


# ---- stacks of weights ----

GROUPED = "husk::grouped_linear_quantized"


class Stack:
  """Weights of n x k for some experts."""

  def __init__(self, experts, *args, **kwargs):
    self.weights = [Weight(*args, **kwargs, seed=seed) for seed in range(experts)]
    first = self.weights[0]
    self.bits, self.group, self.values = first.bits, first.group, first.values
    self.codes, self.scales, self.zeros = (
      None if first.zeros is None and part == "zeros" else self._stacked(part)
      for part in ("codes", "scales", "zeros")
    )

  def _stacked(self, part):
    tensors = [getattr(weight, part) for weight in self.weights]
    return torch.stack([one.view(torch.uint8) for one in tensors]).view(tensors[0].dtype)

  def check(self, pack, x, ends=None, experts=None, packed=(1, 2, 3)):
    """Compares with float64."""
    m, n = x.shape[0], self.codes.shape[1]
    out = torch.full((m, n), 7.0, dtype=x.dtype)
    packed = [at for at in packed if at != 3 or self.zeros is not None]
    arguments = (x, self.codes, self.scales, self.zeros, self.values, ends, experts)
    sizes = pack(GROUPED, *arguments, self.bits, self.group, out, packed=packed)
    if ends is not None:
      places = torch.arange(m)
      experts = (ends[None, :] <= places[:, None]).sum(1)
    for row, expert in enumerate(experts.tolist()):
      if expert == len(self.weights):
        assert not out[row].any()
        continue
      numbers = self.weights[expert].numbers
      right, size = x[row].double() @ numbers.T, x[row].double().abs() @ numbers.abs().T
      rounding = {torch.float32: 2**-24, torch.bfloat16: 2**-8}[x.dtype]
      bound = size * 2**-24 * (8 + x.shape[1] ** 0.5) + right.abs() * rounding
      assert ((out[row].double() - right).abs() <= bound).all(), (row, expert)
    return sizes


def test_stacks_of_each_format(pack):
  chosen = torch.randint(-4, 4, (45,), generator=torch.Generator().manual_seed(1))
  chosen[3:20] = 2
  for _ in pack.each_use():
    for dtype, zeros, packed in itertools.product(FORMATS, (None, torch.int8), ((), (1, 2, 3))):
      stack = Stack(4, 37, 64, 32, dtype, zeros=zeros)
      x = inputs(45, 64)
      stack.check(pack, x, experts=chosen, packed=packed)
      stack.check(pack, x[:3], experts=torch.tensor([3, 0, 3]), packed=packed)
      for ends in ([1, 1, 20, 45], [0, 40, 41, 41], [0, 0, 0, 0]):
        stack.check(pack, x, ends=torch.tensor(ends, dtype=torch.int32), packed=packed)


def test_stacks_of_many_columns_in_other_layouts(pack):
  stack = Stack(3, 600, 48, 16, "int4", scales=torch.bfloat16)
  for x in layouts(inputs(30, 48)):
    stack.check(pack, x, experts=torch.arange(30) % 3)
    stack.check(pack, x, ends=torch.tensor([13, 14, 29]))
  assert stack.check(pack, inputs(2, 48, torch.bfloat16), experts=torch.tensor([2, 1])) == [
    3 * 38 * 16 * 24,
    3 * 38 * 16 * 3 * 2,
  ]
  stack = Stack(3, 40, 48, 16, torch.int8)
  for codes in layouts(stack.codes):
    stack.codes = codes
    stack.check(pack, inputs(2, 48), experts=torch.tensor([2, 1], dtype=torch.int32))


def test_stacks_without_rows_experts_or_columns(pack):
  none = torch.empty(0, dtype=torch.int64)
  Stack(2, 5, 16, 16, torch.int8).check(pack, inputs(0, 16), experts=none)
  Stack(2, 5, 16, 16, torch.int8).check(pack, inputs(0, 16), ends=torch.zeros(2, dtype=torch.int32))
  codes, scales, out = torch.empty(0, 5, 16, dtype=torch.int8), torch.empty(0, 5, 1), inputs(3, 5)
  pack(GROUPED, inputs(3, 16), codes, scales, None, None, none, None, 8, 16, out)
  assert not out.any()


def test_refusals_of_stacks(pack):
  codes, ends = torch.zeros(2, 8, 32, dtype=torch.int8), torch.tensor([1, 3])

  def refuses(code, text, **changes):
    arguments = {
      "input": torch.ones(3, 32),
      "weight": codes,
      "scales": torch.ones(2, 8, 1),
      "zeros": None,
      "values": None,
      "ends": ends,
      "experts": None,
      "bits": 8,
      "group": 32,
      "out": torch.empty(3, 8),
    }
    refused(pack, code, text, GROUPED, *{**arguments, **changes}.values())

  refuses(INVALID_ARGUMENT, "exactly one of them must be given", ends=None)
  refuses(INVALID_ARGUMENT, "exactly one of them must be given", experts=torch.zeros(3).long())
  refuses(INVALID_ARGUMENT, "ends has size 3 along 0, not 2", ends=torch.tensor([1, 2, 3]))
  refuses(INVALID_ARGUMENT, "ends that descend", ends=torch.tensor([2, 1]))
  refuses(INVALID_ARGUMENT, "or lie behind the rows", ends=torch.tensor([2, 4]))
  refuses(INVALID_ARGUMENT, "ends that descend", ends=torch.tensor([-1, 3]))
  refuses(UNSUPPORTED, "ends has dtype f32", ends=torch.ones(2))
  only = {"ends": None}
  refuses(INVALID_INPUT, "index 2", experts=torch.tensor([0, 1, 2]), **only)
  refuses(INVALID_INPUT, "index -3", experts=torch.tensor([0, 1, -3]), **only)
  refuses(INVALID_ARGUMENT, "experts", experts=torch.tensor([0, 1]), **only)
  refuses(INVALID_ARGUMENT, "weight", weight=codes[0])
  refuses(INVALID_ARGUMENT, "the experts", scales=torch.ones(3, 8, 1))
  refuses(INVALID_ARGUMENT, "scales", scales=torch.ones(2, 7, 1))
  refuses(UNSUPPORTED, "bits is neither 8 nor 4", bits=2)
  refuses(INVALID_ARGUMENT, "group does not divide", group=24)
  double = {"input": torch.ones(3, 32).double(), "out": torch.empty(3, 8).double()}
  refuses(UNSUPPORTED, "input has dtype f64", **double)
  refuses(INVALID_ARGUMENT, "out", out=torch.empty(3, 9))
