"""Matrix products of the host, against PyTorch."""

import pytest
import torch
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
  best = pack.device[3]
  a, b = random((33, 70), torch.float32, 0), random((70, 41), torch.float32, 1)
  for isa in range(1, best + 1):
    pack.use(isa)
    got = torch.zeros(33, 41)
    pack("aten::mm", a, b, got)
    close(got, a @ b, 1e-4, 1e-4)
  pack.use(best)
