"""Mixtures of experts whose stacks of weights have codes: exported as one operator for each stack,
however the model multiplies with it, and equal to eager mode."""

import export_and_compare
import husk
import pytest
import torch
from torch.nn import functional as F

EXPERTS, N, K, TOP = 4, 24, 64, 2


def random(*shape, seed=0):
  return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def integers(high, *shape, seed=1):
  return torch.randint(0, high, shape, generator=torch.Generator().manual_seed(seed))


def scales(groups=2):
  """Powers of two, so that sums of products with ints are exact."""
  return 2.0 ** (integers(4, EXPERTS, N, groups, seed=2) - 6)


class Nibbles(torch.nn.Module):
  def __init__(self):
    super().__init__()
    self.register_buffer("packed", integers(256, EXPERTS, N, K // 2).to(torch.uint8))
    self.register_buffer("s", scales())

  def forward(self, dtype):
    both = torch.stack([self.packed & 15, self.packed >> 4], -1).reshape(EXPERTS, N, -1, 32)
    return ((both - 8.0) * self.s[..., None]).reshape(EXPERTS, N, K).to(dtype)


class Bytes(torch.nn.Module):
  """Ints of 8 bits with one scale for each expert."""

  def __init__(self):
    super().__init__()
    self.register_buffer("codes", (integers(256, EXPERTS, N, K) - 128).to(torch.int8))
    self.register_buffer("s", torch.tensor([0.25, 0.125, 0.5, 0.0625]))

  def forward(self, dtype):
    return (self.codes.float() * self.s[:, None, None]).to(dtype)


class Floats(torch.nn.Module):
  """Floats of 8 bits, K x N for each expert."""

  def __init__(self):
    super().__init__()
    self.register_buffer("codes", random(EXPERTS, K, N).to(torch.float8_e4m3fn))
    self.register_buffer("s", scales(1)[..., 0])

  def forward(self, dtype):
    return (self.codes.float() * self.s[:, None, :]).mT.to(dtype)


class Plain(torch.nn.Module):
  def __init__(self):
    super().__init__()
    self.weight = torch.nn.Parameter(random(EXPERTS, N, K))

  def forward(self, dtype):
    return self.weight.to(dtype) if dtype != torch.float32 else self.weight


class Integers(torch.nn.Module):
  """A stack of floats, whose products with ints are exact."""

  def __init__(self):
    super().__init__()
    self.weight = torch.nn.Parameter(integers(7, EXPERTS, N, K) - 3.0)

  def forward(self, dtype):
    return self.weight.to(dtype)


def columns(weight, x, experts):
  return torch.bmm(weight[experts], x.unsqueeze(-1)).squeeze(-1)


def rows(weight, x, experts):
  return torch.bmm(x[:, None], weight.transpose(-2, -1)[experts])[:, 0]


def rows_of_selected(weight, x, experts):
  selected = torch.index_select(weight, 0, experts.int())
  return torch.matmul(x.unsqueeze(1), selected.permute(0, 2, 1)).squeeze(1)


def sorted_rows(weight, x, experts):
  """As grouped_mm_experts_forward of transformers."""
  order = torch.argsort(experts)
  counts = torch.histc(experts[order].float(), bins=EXPERTS, min=0, max=EXPERTS - 1)
  ends = torch.cumsum(counts, 0, dtype=torch.int32)
  y = torch._grouped_mm(x[order], weight.transpose(-2, -1), offs=ends)
  return torch.empty_like(y).index_copy(0, order, y)


class Mixture(torch.nn.Module):
  def __init__(self, weight, product, dtype=torch.float32):
    super().__init__()
    self.weight, self.product, self.dtype = weight, product, dtype

  def forward(self, x, experts):
    return F.silu(self.product(self.weight(self.dtype), x.to(self.dtype), experts))


def calls(text):
  return [line for line in text.splitlines() if "husk::grouped_linear_quantized" in line]


@pytest.mark.parametrize(
  ("weight", "product"),
  [(Nibbles, columns), (Bytes, rows), (Floats, rows_of_selected), (Floats, columns)],
)
def test_selected_matrices(tmp_path, weight, product):
  args = (random(5, K, seed=5), integers(EXPERTS, 5))
  text = export_and_compare.run(tmp_path, Mixture(weight(), product), args)
  assert len(calls(text)) == 1 and "f32 [4, 24, 64]" not in text


@pytest.mark.parametrize("weight", (Nibbles, Floats))
def test_sorted_rows(tmp_path, weight):
  args = (integers(5, 6, K) - 2.0, integers(EXPERTS, 6))
  model = Mixture(weight(), sorted_rows, torch.bfloat16)
  text = export_and_compare.run(tmp_path, model, args)
  assert len(calls(text)) == 1 and "bf16 [4, 24, 64]" not in text


def products(text):
  return [line for line in text.splitlines() if "husk::grouped_product" in line]


def test_sorted_rows_of_floats(tmp_path):
  dim = torch.export.Dim("rows", min=1, max=64)
  text = export_and_compare.run(
    tmp_path,
    Mixture(Integers(), sorted_rows, torch.bfloat16),
    (integers(5, 6, K) - 2.0, integers(EXPERTS, 6)),
    shapes=({0: dim}, {0: dim}),
    others=[
      (integers(5, rows, K) - 2.0, integers(EXPERTS, rows, seed=rows)) for rows in (1, 3, 50)
    ],
  )
  assert len(products(text)) == 1


def test_products_of_whole_stacks_are_arithmetic(tmp_path):
  def product(weight, x, experts):
    rows = x.expand(EXPERTS, *x.shape).contiguous()
    return torch._grouped_mm(rows, weight.transpose(-2, -1)).sum(0)

  args = (integers(5, 6, K) - 2.0, integers(EXPERTS, 6))
  model = Mixture(Integers(), product, torch.bfloat16)
  assert not products(export_and_compare.run(tmp_path, model, args))


@pytest.mark.parametrize("product", (columns, sorted_rows))
def test_an_artifact_multiplies_with_codes(tmp_path, product):
  args = (integers(5, 7, K) - 2.0, integers(EXPERTS, 7))
  dtype = torch.bfloat16 if product is sorted_rows else torch.float32
  model = Mixture(Nibbles(), product, dtype)
  model, text, program = export_and_compare.exported(tmp_path, model, args)
  assert len(calls(text)) == 1
  export_and_compare.run_artifact(tmp_path, model, program, args)


def test_sizes_that_vary_and_numbers_from_the_end(tmp_path):
  dim = torch.export.Dim("rows", min=1, max=64)
  text = export_and_compare.run(
    tmp_path,
    Mixture(Nibbles(), columns),
    (random(5, K), integers(EXPERTS, 5)),
    shapes=({0: dim}, {0: dim}),
    others=[
      (random(1, K), torch.tensor([-1])),
      (random(40, K), integers(2 * EXPERTS, 40) - EXPERTS),
    ],
  )
  assert len(calls(text)) == 1


def test_a_scheme_makes_codes_of_a_stack(tmp_path):
  model, args = Mixture(Plain(), columns), (random(3, K), torch.tensor([0, 3, 1]))
  text = husk.write(model, args, tmp_path, quantize="int4").read_text()
  assert calls(text) and "constant weight.weight u8 [4, 24, 32]" in text
  assert not calls(husk.write(model, args, tmp_path / "floats").read_text())


def test_what_is_no_product_of_selected_matrices(tmp_path):
  """Several rows for a matrix; a stack that another operand selects from with a mask."""

  class Model(torch.nn.Module):
    def __init__(self):
      super().__init__()
      self.weight = Bytes()

    def forward(self, x, experts):
      weight = self.weight(torch.float32)
      return torch.bmm(x.expand(3, 2, K), weight[experts].mT), torch.bmm(x[None, :1], weight.mT[:1])

  args = (random(2, K), torch.tensor([0, 3, 1]))
  assert not calls(export_and_compare.run(tmp_path, Model(), args))


def test_a_gpu_computes_the_selected_matrices(tmp_path):
  model, args = Mixture(Nibbles(), columns), (random(3, K), torch.tensor([0, 3, 1]))
  text = husk.write(model, args, tmp_path, targets=("cuda:h100",)).read_text()
  assert not calls(text) and "constant weight.packed u8" in text
  assert "[4, 24, 64]" not in text
