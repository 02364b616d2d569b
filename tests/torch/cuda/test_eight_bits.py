"""Products whose factors have 8 bits: values of the template by the interpreter, those of hosts,
and the calls that are such products."""

import re

import husk
import pytest
import torch
from cuda_numerics import computed
from husk.cuda import eight_bits, epilogues
from husk.cuda.target import Target
from husk.inductor.decompositions import blocks
from torch import nn

E4M3 = torch.float8_e4m3fn


def fp8(*shape, seed):
  return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(E4M3)


def scales(*shape, seed):
  return torch.rand(shape, generator=torch.Generator().manual_seed(seed)) * 0.1 + 0.01


class Product(nn.Module):
  """`aten::_scaled_mm` with scales of 128 columns of x, and of 1 or 128 columns of the weight."""

  def __init__(self, n, k, columns, bias=False):
    super().__init__()
    self.register_buffer("weight", fp8(n, k, seed=1))
    self.register_buffer("scales", scales(-(-n // columns), k // 128, seed=2))
    self.register_buffer("bias", torch.randn(n).bfloat16() if bias else None)

  def forward(self, x, x_scales):
    return torch._scaled_mm(
      x, self.weight.T, x_scales, self.scales.T, bias=self.bias, out_dtype=torch.bfloat16
    )

  def exact(self, x, x_scales):
    columns = 128 if self.scales.shape[0] < self.weight.shape[0] else 1
    of_rows = self.scales.repeat_interleave(columns, 0)[: self.weight.shape[0]]
    a, b = (
      one.double() * each.double().repeat_interleave(128, 1)
      for one, each in ((x, x_scales), (self.weight, of_rows))
    )
    result = a @ b.T
    return result if self.bias is None else result + self.bias.double()


def inputs(m, k):
  return fp8(m, k, seed=3), scales(m, k // 128, seed=4)


def close(got, right):
  torch.testing.assert_close(got.double(), right, rtol=2**-7, atol=1e-3 * float(right.abs().mean()))


@pytest.mark.parametrize(
  "m, n, k, columns", [(1, 208, 256, 128), (20, 256, 384, 1), (70, 144, 128, 128)]
)
def test_values(m, n, k, columns, tmp_path):
  model = Product(n, k, columns, bias=m == 20)
  x, x_scales = inputs(m, k)
  (result,) = computed(model, (x, x_scales), None, [{"x": x, "x_scales": x_scales}], tmp_path)
  close(result["output"], model.exact(x, x_scales))
  assert "_triton_tem_" in (tmp_path / "model.hir").read_text()


def test_many_rows_have_other_tiles(tmp_path):
  rows = torch.export.Dim("rows", max=1000)
  model = Product(256, 256, 128)
  shapes = {"x": {0: rows}, "x_scales": {0: rows}}
  runs = [dict(zip(("x", "x_scales"), inputs(m, 256))) for m in (1, 77)]
  for result, run in zip(computed(model, inputs(300, 256), shapes, runs, tmp_path), runs):
    close(result["output"], model.exact(**run))


class Rows(nn.Module):
  """A product with a scale for each row and each column, of ints or of fp8."""

  def __init__(self, n, k, dtype):
    super().__init__()
    self.dtype = dtype
    weight = torch.randint(-127, 128, (n, k), generator=torch.Generator().manual_seed(5))
    self.register_buffer(
      "weight", weight.to(torch.int8) if dtype == torch.int8 else fp8(n, k, seed=5)
    )
    self.register_buffer("scales", scales(n, 1, seed=6))

  def forward(self, x, of_rows):
    if self.dtype == torch.int8:
      return torch._int_mm(x, self.weight.T).float() * of_rows * self.scales.T
    return torch._scaled_mm(x, self.weight.T, of_rows, self.scales.T, out_dtype=torch.bfloat16)

  def exact(self, x, of_rows):
    return x.double() @ self.weight.double().T * of_rows.double() * self.scales.double().T


@pytest.mark.parametrize("dtype", [torch.int8, E4M3])
def test_scales_of_rows_are_vectors(dtype, tmp_path, monkeypatch):
  """A kernel loads a scale once for a row or column of its tile, and rows behind the last one have
  none."""
  sources = []
  rewrite = epilogues.rewrite
  monkeypatch.setattr(
    epilogues, "rewrite", lambda source: sources.append(rewrite(source)) or sources[-1]
  )
  model, m, k = Rows(208, 256, dtype), 19, 256
  rows = torch.randint(-127, 128, (m, k), generator=torch.Generator().manual_seed(7))
  x = rows.to(torch.int8) if dtype == torch.int8 else fp8(m, k, seed=7)
  inputs = {"x": x, "of_rows": scales(m, 1, seed=8)}
  (result,) = computed(model, tuple(inputs.values()), None, [inputs], tmp_path)
  close(result["output"], model.exact(**inputs))
  (source,) = {one for one in sources if "SCALED_COLUMNS" in one}
  loads = [line.split("=", 1)[1].strip() for line in source.splitlines() if "tl.load(in_" in line]
  assert sorted(load.split(",")[1].strip() for load in loads) == ["idx_m < M", "idx_n < N"]


def test_loads_of_other_kernels_stay():
  mask = "    mask = (idx_m < M) & (idx_n < N)\n"
  load = "    a = tl.load(in_ptr2 + (tl.broadcast_to(idx_m, [A, B])), mask, eviction_policy='x')\n"
  own = "    SCALED_COLUMNS : tl.constexpr = 0\n"
  assert epilogues.rewrite(mask + load) == mask + load
  assert epilogues.rewrite(own + load) == own + load
  assert epilogues.rewrite(own + load + mask + load) == (
    own + load + mask + "    a = tl.load(in_ptr2 + idx_m, idx_m < M, eviction_policy='x')\n"
  )
  whole = "    a = tl.load(in_ptr2 + (tl.broadcast_to(xindex, [A, B])), mask)\n"
  assert epilogues.rewrite(own + mask + whole) == own + mask + whole


def test_tiles():
  target = Target.load("h100")

  def sizes(*problem):
    one = eight_bits.tiles(target, *problem)
    assert (one.rows + one.columns) * 128 * one.stages <= target.shared_memory_per_block_optin
    return one.rows, one.columns

  assert [sizes(m, 4096) for m in (1, 40, 256, 1024, 4096)] == [
    (16, 64),
    (64, 64),
    (64, 128),
    (256, 128),
    (256, 128),
  ]
  assert [sizes(m, 4096, True) for m in (1, 1024)] == [(16, 64), (128, 128)]


class Whole(nn.Module):
  """A product with scales for the tensors or for rows, or of ints."""

  def __init__(self, n, k, of, fast=False, bias=False):
    super().__init__()
    self.of, self.fast = of, fast
    weight = fp8(n, k, seed=1)
    self.register_buffer("weight", weight if of != "ints" else (weight.float() * 30).to(torch.int8))
    self.register_buffer("scales", scales(*(() if of == "tensors" else (n, 1)), seed=2))
    self.register_buffer("bias", scales(n, seed=5).bfloat16() if bias else None)

  def forward(self, x, x_scales):
    if self.of == "ints":
      return (torch._int_mm(x, self.weight.T) * x_scales * self.scales.T).bfloat16()
    return torch._scaled_mm(
      x,
      self.weight.T,
      x_scales,
      self.scales.T if self.of == "rows" else self.scales,
      bias=self.bias,
      out_dtype=torch.bfloat16,
      use_fast_accum=self.fast,
    )

  def inputs(self, m, k):
    x = fp8(m, k, seed=3)
    x = (x.float() * 30).to(torch.int8) if self.of == "ints" else x
    return x, scales(*(() if self.of == "tensors" else (m, 1)), seed=4)

  def exact(self, x, x_scales):
    of_columns = self.scales.double().T if self.of != "tensors" else self.scales.double()
    result = (x.double() @ self.weight.double().T) * x_scales.double() * of_columns
    return result if self.bias is None else result + self.bias.double()


@pytest.mark.parametrize(
  "of, m, fast, bias",
  [
    ("tensors", 20, True, False),
    ("rows", 40, False, True),
    ("rows", 3, True, True),
    ("ints", 70, 0, 0),
  ],
)
def test_scales_of_tensors_and_rows(of, m, fast, bias, tmp_path):
  model = Whole(208, 256, of, fast, bias)
  x, x_scales = model.inputs(m, 256)
  (result,) = computed(model, (x, x_scales), None, [{"x": x, "x_scales": x_scales}], tmp_path)
  close(result["output"], model.exact(x, x_scales))
  # Scales, bias and the conversion are in the kernel.
  assert len(re.findall(r"^ *launch ", (tmp_path / "model.hir").read_text(), re.M)) == 1


@pytest.mark.parametrize("target", ["cuda:a100", "cuda:b200", "cuda:orin"])
def test_other_gpus(target, tmp_path):
  model = Whole(208, 256, "ints")
  text = husk.write(model, model.inputs(20, 256), tmp_path, targets=(target,)).read_text()
  assert "_triton_tem_" in text


def test_a_weight_that_is_not_transposed_has_another_kernel(tmp_path):
  class Plain(Whole):
    def forward(self, x, x_scales):
      return torch._int_mm(x, self.weight)

  model = Plain(256, 256, "ints")
  x, x_scales = model.inputs(20, 256)
  (result,) = computed(model, (x, x_scales), None, [{"x": x, "x_scales": x_scales}], tmp_path)
  assert torch.equal(result["output"].long(), x.long() @ model.weight.long())


def test_a_host(tmp_path):
  model = Product(208, 256, 128, bias=True)
  x, x_scales = inputs(5, 256)
  path = husk.export(model, (x, x_scales), tmp_path / "model.husk", targets=("host:avx2",))
  close(husk.load(path)(x, x_scales), model.exact(x, x_scales))


class TorchaoProduct(Product):
  def forward(self, x, x_scales):
    return torch.ops.ao.blockwise_fp8_gemm(x, x_scales, self.weight, self.scales)


@pytest.fixture
def torchao_operator():
  if hasattr(torch.ops.ao, "blockwise_fp8_gemm"):
    yield
    return
  library = torch.library.Library("ao", "FRAGMENT")
  library.define(
    "blockwise_fp8_gemm(Tensor a, Tensor a_s, Tensor b, Tensor b_s, int block_size=128) -> Tensor"
  )

  def fake(a, a_s, b, b_s, block_size=128):
    return a.new_empty([*a.shape[:-1], b.shape[0]], dtype=torch.bfloat16)

  torch.library.register_fake("ao::blockwise_fp8_gemm", fake, lib=library)
  yield
  library._destroy()


def test_torchao_s_operator(torchao_operator, tmp_path):
  model = TorchaoProduct(128, 256, 128)
  x, x_scales = inputs(6, 256)
  x, x_scales = x.reshape(2, 3, 256), x_scales.reshape(2, 3, 2)
  right = model.exact(x.reshape(6, 256), x_scales.reshape(6, 2)).reshape(2, 3, 128)
  path = husk.export(model, (x, x_scales), tmp_path / "model.husk", targets=("host:avx2",))
  close(husk.load(path)(x, x_scales), right)
  text = husk.write(model, (x, x_scales), tmp_path / "gpu", targets=("cuda:h100",)).read_text()
  assert "_triton_tem_" in text


def test_other_scales_are_not_blocks():
  def refused(x_scale, y_scale, k=256):
    x, y = fp8(4, k, seed=1), fp8(208, k, seed=2).T
    return blocks.scaled(blocks.arithmetic, x, y, x_scale, y_scale)

  good = scales(4, 2, seed=1), scales(2, 2, seed=2)
  assert refused(*good) is not NotImplemented
  assert refused(good[0].to(torch.float8_e8m0fnu), good[1]) is NotImplemented
  assert refused(torch.tensor(1.0), torch.tensor(1.0)) is NotImplemented
  assert refused(scales(4, 1, seed=1), good[1]) is NotImplemented
  assert refused(good[0], scales(2, 3, seed=1)) is NotImplemented
  assert refused(good[0], scales(1, 208, seed=1)) is NotImplemented
