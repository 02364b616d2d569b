"""Products on CUDA targets for which there is no template, and distances."""

import decomposed
import export_and_compare
import pytest
import torch


def check(function, *args, refused=(), **close):
  traced = decomposed.graph(function, args)
  assert not decomposed.operators(traced) & set(refused)
  decomposed.equal(traced(*args), function(*args), **close)


@pytest.mark.parametrize("dtype", [torch.float64, torch.int64])
def test_products_of_other_dtypes(dtype):
  torch.manual_seed(9)
  x, y, bias = (torch.randn(*s).mul(9).to(dtype) for s in ((3, 4, 5), (3, 5, 6), (6,)))
  products = ("aten::mm", "aten::bmm", "aten::addmm", "aten::baddbmm")
  check(lambda x, y: x @ y, x, y, refused=products)
  check(lambda x, y: x[0] @ y[0], x, y, refused=products)
  check(lambda b, x, y: torch.addmm(b, x[0], y[0], beta=2, alpha=3), bias, x, y, refused=products)
  check(lambda b, x, y: torch.baddbmm(b, x, y), bias, x, y, refused=products)


def test_a_product_without_elements():
  products = ["aten::mm", "aten::bmm", "aten::addmm"]
  for rows, depth, columns in ((0, 3, 4), (3, 4, 0), (0, 0, 0)):
    x, y = torch.randn(rows, depth), torch.randn(depth, columns)
    check(lambda x, y: x @ y, x, y, refused=products)
    check(lambda b, x, y: torch.addmm(b, x, y), torch.randn(columns), x, y, refused=products)
    check(torch.bmm, x.expand(2, -1, -1), y.expand(2, -1, -1), refused=products)
  check(torch.bmm, torch.randn(0, 3, 4), torch.randn(0, 4, 5), refused=products)


def test_a_product_without_columns_is_zero():
  x, y, bias = torch.randn(3, 0), torch.randn(0, 4), torch.randn(4)
  check(lambda x, y: x @ y, x, y, refused=["aten::mm"])
  check(lambda b, x, y: torch.addmm(b, x, y), bias, x, y, refused=["aten::addmm"])


def test_products_with_a_template_stay():
  x, y = torch.randn(3, 4), torch.randn(4, 5)
  assert "aten::mm" in decomposed.operators(decomposed.graph(torch.mm, (x, y)))


def test_addbmm_and_bilinear():
  torch.manual_seed(9)
  x, y, bias = torch.randn(3, 4, 5), torch.randn(3, 5, 6), torch.randn(4, 6)
  close = {"rtol": 1e-4, "atol": 1e-4}
  check(
    lambda b, x, y: torch.addbmm(b, x, y, beta=2, alpha=0.5),
    bias,
    x,
    y,
    refused=["aten::addbmm"],
    **close,
  )
  check(
    torch.nn.functional.bilinear,
    torch.randn(7, 4),
    torch.randn(7, 5),
    torch.randn(6, 4, 5),
    torch.randn(6),
    refused=["aten::_trilinear"],
    **close,
  )


@pytest.mark.parametrize("p", [0.0, 1.0, 2.0, 2.5, float("inf")])
def test_distances(p):
  torch.manual_seed(9)
  x, y = torch.randn(2, 6, 3), torch.randn(2, 5, 3)
  y[:, 0] = x[:, 1]
  close = {"rtol": 1e-4, "atol": 1e-4, "refused": ["aten::_cdist_forward", "aten::_pdist_forward"]}
  check(lambda x, y: torch.cdist(x, y, p), x, y, **close)
  check(lambda x: torch.nn.functional.pdist(x[0], p), x, **close)


ENDS = torch.tensor([8, 8, 20, 32], dtype=torch.int32)


def integers(*sizes):
  """Small integers, whose products and sums are exact in each dtype."""
  return torch.randint(-3, 4, sizes)


@pytest.mark.parametrize(
  "x, y, offs",
  [
    ((32, 16), (4, 16, 24), ENDS),  # rows of experts, of which one has none
    ((4, 8, 16), (16, 32), ENDS),  # columns
    ((8, 32), (32, 24), ENDS),  # the depth
    ((4, 8, 16), (4, 16, 24), None),
  ],
)
def test_grouped_products(x, y, offs, tmp_path):
  """torch.export takes them in bf16 only."""
  torch.manual_seed(9)
  args = integers(*x).bfloat16(), integers(*y).bfloat16()
  if offs is None:
    export_and_compare.run(tmp_path, lambda self, x, y: torch._grouped_mm(x, y), args)
  else:
    export_and_compare.run(
      tmp_path, lambda self, x, y, offs: torch._grouped_mm(x, y, offs=offs), (*args, offs)
    )


def test_products_of_weights_in_int8(tmp_path):
  def function(self, x, weight, scales):
    return torch._weight_int8pack_mm(x, weight, scales)

  torch.manual_seed(9)
  x, weight = integers(3, 64).bfloat16(), integers(64, 64).to(torch.int8)
  export_and_compare.run(tmp_path, function, (x, weight, (2.0 ** integers(64)).bfloat16()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int32, torch.bool])
def test_a_number_that_is_scattered_does_not_decide_the_dtype(tmp_path, dtype):
  """The mask of a router: its next operator expects the dtype of the tensor."""

  def chosen(self, x, index):
    mask = torch.zeros_like(x, dtype=dtype).scatter_(1, index, 1)
    return mask, mask.reshape(-1).to(torch.float64)

  export_and_compare.run(tmp_path, chosen, (torch.randn(3, 5), torch.tensor([[1], [4], [0]])))


def test_experts_of_transformers(tmp_path):
  """The library transformers multiplies rows by the weights of their experts by an operator of its
  own. It is not installed here, so the operator is defined as it does that."""
  library = torch.library.Library("transformers", "FRAGMENT")
  library.define("grouped_mm_fallback(Tensor input, Tensor weight, Tensor offs) -> Tensor")

  def products(x, weight, ends):
    parts, start = [], 0
    for end, factor in zip(ends.tolist(), weight):
      parts.append(x[start:end] @ factor)
      start = end
    return torch.cat(parts)

  def shape(x, weight, ends):
    return x.new_empty(x.shape[0], weight.shape[2])

  library.impl("grouped_mm_fallback", products, "CPU")
  torch.library.register_fake("transformers::grouped_mm_fallback", shape, lib=library)
  args = torch.randn(7, 4), torch.randn(3, 4, 5), torch.tensor([2, 2, 7], dtype=torch.int32)
  text = export_and_compare.run(
    tmp_path,
    lambda self, x, weight, ends: torch.ops.transformers.grouped_mm_fallback(x, weight, ends),
    args,
    {"x": {0: torch.export.Dim.AUTO}, "weight": None, "ends": None},
    [(torch.randn(9, 4), args[1], torch.tensor([0, 6, 9], dtype=torch.int32))],
  )
  assert "transformers" not in text
