"""Matrix products of the host, against PyTorch."""

import functools
import itertools

import exactness
import pytest
import torch
from activation_functions import ACTIVATIONS
from host_ops import INVALID_ARGUMENT, UNSUPPORTED, close, layouts, like, refused

TOLERANCE = {
  torch.float32: 1e-4,
  torch.float64: 1e-11,
  torch.float16: 5e-3,
  torch.bfloat16: 4e-2,
  torch.complex64: 1e-4,
  torch.complex128: 1e-11,
  torch.int64: 0,
  torch.int32: 0,
  torch.int16: 0,
  torch.int8: 0,
  torch.uint8: 0,
}


def random(shape, dtype, seed):
  generator = torch.Generator().manual_seed(seed)
  if dtype.is_complex or dtype.is_floating_point:
    return torch.randn(
      shape, generator=generator, dtype=torch.complex128 if dtype.is_complex else torch.float64
    ).to(dtype)
  return torch.randint(0, 100, shape, generator=generator).to(dtype)


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_products(pack, dtype):
  for m, k, n in [(3, 4, 5), (1, 7, 1), (70, 130, 65), (0, 3, 4), (3, 0, 4), (5, 6, 0)]:
    for a in layouts(random((m, k), dtype, 0)):
      for b in layouts(random((k, n), dtype, 1)):

        def check(name, expected, *args):
          got = like(expected)
          pack(name, *args, got)
          close(got, expected, TOLERANCE[dtype], TOLERANCE[dtype] * 4)

        check("aten::mm", a @ b, a, b)
        check("aten::mm.out", a @ b, a, b)
        check("aten::bmm", torch.bmm(a[None], b[None]), a[None], b[None])
        bias = random((n,), dtype, 2)
        for beta, alpha in ((1, 1), (2, 3), (0, 1)):
          check(
            "aten::addmm", torch.addmm(bias, a, b, beta=beta, alpha=alpha), bias, a, b, beta, alpha
          )
  a, b = random((3, 4, 5), dtype, 0), random((3, 5, 6), dtype, 1)
  for self in (random((4, 6), dtype, 2), random((6,), dtype, 2)):
    for beta, alpha in ((1, 1), (2, 3), (0, 1)):
      check(
        "aten::baddbmm", torch.baddbmm(self, a, b, beta=beta, alpha=alpha), self, a, b, beta, alpha
      )
      check(
        "aten::addbmm", torch.addbmm(self, a, b, beta=beta, alpha=alpha), self, a, b, beta, alpha
      )
      check(
        "aten::addbmm",
        torch.addbmm(self, a[:0], b[:0], beta=beta, alpha=alpha),
        self,
        a[:0],
        b[:0],
        beta,
        alpha,
      )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("gelu", [False, True])
def test_activation(pack, dtype, gelu):
  bias, a, b = random((6,), dtype, 0), random((4, 5), dtype, 1), random((5, 6), dtype, 2)
  expected = torch._addmm_activation(bias, a, b, use_gelu=gelu)
  got = like(expected)
  pack("aten::_addmm_activation", bias, a, b, 1, 1, gelu, got)
  close(got, expected, TOLERANCE[dtype], TOLERANCE[dtype])


def test_int_mm_of_each_size(pack):
  """Sums at the ends of the range, sizes that fill no panel, word or slice, packed and not."""
  random = torch.Generator().manual_seed(5)
  for _ in pack.each_use():
    for m, k, n in [
      (1, 1, 1),
      (1, 64, 16),
      (3, 7, 17),
      (5, 1030, 40),
      (98, 30, 300),
      (4, 4096, 33),
    ]:
      a = torch.randint(-128, 128, (m, k), generator=random, dtype=torch.int8)
      b = torch.randint(-128, 128, (n, k), generator=random, dtype=torch.int8).T
      a[0], b[:, 0] = -128, -128
      expected = (a.long() @ b.long()).int()
      for packed in ((), (1,)):
        for left, right in zip(layouts(a), layouts(b)):
          got = torch.empty(m, n, dtype=torch.int32)
          sizes = pack("aten::_int_mm", left, right, got, packed=packed)
          assert torch.equal(got, expected) and all(sizes)
  got = torch.empty(3, 4, dtype=torch.int32)
  a, b = torch.empty(3, 0, dtype=torch.int8), torch.empty(0, 4, dtype=torch.int8)
  pack("aten::_int_mm", a, b, got)
  assert not got.any()


def test_int_mm(pack):
  a, b = (
    (random((40, 64), torch.int8, 0) - 50).to(torch.int8),
    (random((64, 24), torch.int8, 1) - 50).to(torch.int8),
  )
  expected = torch._int_mm(a, b)
  for left in layouts(a):
    for right in layouts(b):
      got = like(expected)
      pack("aten::_int_mm.out", left, right, got)
      close(got, expected)
  refused(
    pack, INVALID_ARGUMENT, "argument out has dtype i8; it must be i32", "aten::_int_mm", a, b, a
  )
  refused(pack, INVALID_ARGUMENT, "argument mat2 has size 40", "aten::_int_mm", a, a, expected)
  refused(pack, UNSUPPORTED, "dtype bool", "aten::mm", a.bool(), b.bool(), (a @ b).bool())


def test_instruction_sets(pack):
  a, b = random((33, 70), torch.float32, 0), random((70, 41), torch.float32, 1)
  for _ in pack.each_use():
    got = torch.zeros(33, 41)
    pack("aten::mm", a, b, got)
    close(got, a @ b, 1e-4, 1e-4)


def linear_in(kind, activation, x, weight, bias, residual):
  """A linear layer, its activation and its residual, each computed in the dtype `kind`."""
  x, weight, bias, residual = (
    None if tensor is None else tensor.to(kind) for tensor in (x, weight, bias, residual)
  )
  result = ACTIVATIONS[activation](torch.nn.functional.linear(x, weight, bias))
  return result if residual is None else result + residual


@functools.cache
def many_linear(m, k, n, dtype):
  """Arguments of many linear layers, and their products in f64 and plain f32."""
  count = max(3, len(exactness.seeds(m * n)))
  sizes = (m, k), (n, k), (1, n), (m, n)
  x, weight, *added = (random((count, *size), dtype, seed) for seed, size in enumerate(sizes))
  return x, weight, *added, (x.double() @ weight.double().mT, exactness.product(x, weight))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_errors_of_linear(pack, dtype, activation):
  """Errors are those of plain f32, with each instruction set."""
  for shape in [(1, 40, 70), (3, 300, 5), (16, 33, 65), (50, 7, 3), (197, 300, 130), (400, 9, 80)]:
    x, weight, bias, residual, products = many_linear(*shape, dtype)
    for added in itertools.product((None, bias), (None, residual)):
      exact, plain = products
      if added[0] is not None:
        exact, plain = exact + bias.double(), plain + bias.float()
      exact, plain = (ACTIVATIONS[activation](value) for value in (exact, plain))
      if added[1] is not None:
        exact, plain = exact + residual.double(), plain + residual.float()
      for isa in pack.each_use():
        got = torch.ones(exact.shape, dtype=dtype)
        for i, one in enumerate(x):
          layout = list(layouts(one))[i % 3]
          one_bias, one_residual = (None if each is None else each[i] for each in added)
          one_bias = None if one_bias is None else one_bias[0]
          pack("husk::linear", layout, weight[i], one_bias, one_residual, activation, got[i])
        errors = exactness.Errors()
        errors.add(exact, got, plain)
        errors.check(shape, isa)


def test_linear_of_f64(pack):
  for activation in ACTIVATIONS:
    arguments = [random(size, torch.float64, 0) for size in ((20, 30), (40, 30), (40,), (20, 40))]
    expected = linear_in(torch.float64, activation, *arguments)
    got = like(expected)
    pack("husk::linear", *arguments, activation, got)
    close(got, expected, 1e-12, 1e-12)


def test_linear_of_any_strides(pack):
  x, weight, bias, residual = (
    random(size, torch.float32, seed)
    for seed, size in enumerate([(18, 20), (33, 20), (33,), (18, 33)])
  )
  expected = linear_in(torch.float32, "gelu", x, weight, bias, residual)
  for weight_layout in layouts(weight):
    for residual_layout in layouts(residual):
      for transposed in (False, True):
        got = like(expected.t()).t() if transposed else like(expected)
        pack("husk::linear", x, weight_layout, bias, residual_layout, "gelu", got)
        close(got, expected, 1e-4, 1e-4)
  # The residual may be the result.
  pack("husk::linear", x, weight, bias, residual, "gelu", residual)
  close(residual, expected, 1e-4, 1e-4)


def test_linear_of_nothing(pack):
  bias, residual = random((4,), torch.float32, 0), random((3, 4), torch.float32, 1)
  got = like(residual)
  pack("husk::linear", torch.empty(3, 0), torch.empty(4, 0), bias, residual, "relu", got)
  close(got, torch.relu(bias) + residual, 1e-6, 1e-6)
  pack("husk::linear", torch.empty(0, 5), torch.empty(4, 5), bias, None, "none", torch.empty(0, 4))


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations_of_extreme_numbers(pack, activation):
  """Large numbers, infinities and NaN give what eager PyTorch gives for f64."""
  x = torch.tensor(
    [0, -0.0, 1e-30, -1e-30, 3.9, -3.9, 9, -9, 88, -88, 90, -90, 1e4, -1e4, 3e38, -3e38]
  )
  x = torch.cat([x, torch.tensor([float("inf"), float("-inf"), float("nan")])])
  expected = ACTIVATIONS[activation](x.double()).float()
  got = torch.empty(len(x), 1)
  pack("husk::linear", x[:, None], torch.ones(1, 1), None, None, activation, got)
  torch.testing.assert_close(got[:, 0], expected, rtol=1e-5, atol=1e-6, equal_nan=True)


def test_refusals_of_linear(pack):
  x, weight, bias = torch.ones(3, 4), torch.ones(5, 4), torch.ones(5)
  residual, out = torch.ones(3, 5), torch.ones(3, 5)

  def check(code, word, *arguments):
    refused(pack, code, word, "husk::linear", *arguments)

  check(INVALID_ARGUMENT, "activation", x, weight, bias, residual, "swish", out)
  check(INVALID_ARGUMENT, "activation", x, weight, bias, residual, None, out)
  check(INVALID_ARGUMENT, "columns of the input", x, torch.ones(5, 3), bias, residual, "relu", out)
  check(INVALID_ARGUMENT, "rows of the weight", x, weight, torch.ones(4), residual, "relu", out)
  check(INVALID_ARGUMENT, "residual", x, weight, bias, torch.ones(1, 5), "relu", out)
  check(INVALID_ARGUMENT, "residual", x, weight, bias, residual.double(), "relu", out)
  check(INVALID_ARGUMENT, "rows of the input", x, weight, bias, None, "relu", torch.ones(4, 5))
  ints = [tensor.int() for tensor in (x, weight, bias, residual)]
  check(UNSUPPORTED, "input", *ints, "relu", out.int())
