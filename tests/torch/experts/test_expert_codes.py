"""Stacks of matrices whose weights have codes, on CUDA targets: values by Triton's interpreter
against those of the operator in eager mode (quantized/operator.py)."""

import re

import husk
import pytest
import torch
from cuda_numerics import close, computed
from husk.cuda.target import Target
from husk.experts import operator as experts
from husk.quantized.operator import grouped_operator
from husk.rows import node as tiles
from torch import nn
from torch.nn import functional as F

EXPERTS, ACTIVE = 5, 2


class Codes(nn.Module):
  """What husk::grouped_linear_quantized takes for a stack."""

  def __init__(self, n, k, bits=4, group=32, zeros=None, table=False, kind="int8"):
    super().__init__()
    torch.manual_seed(n)
    group = group or k
    if bits == 4:
      codes = torch.randint(0, 256, (EXPERTS, n, k // 2), dtype=torch.uint8)
    else:
      codes = torch.randn(EXPERTS, n, k) * (1 if kind == "float8_e4m3fn" else 40)
      codes = codes.clamp(-127, 127).to(getattr(torch, kind))
    self.register_buffer("codes", codes)
    # The spread of the numbers of codes, so that products stay near 1.
    spread = 1 if table or kind == "float8_e4m3fn" else 4 if bits == 4 else 40
    self.register_buffer("scales", torch.rand(EXPERTS, n, k // group) / (spread * k**0.5))
    shape = (EXPERTS, n, k // group)
    self.register_buffer("zeros", None if zeros is None else torch.randint(-7, 8, shape).to(zeros))
    self.register_buffer("table", torch.randn(16) if table else None)
    self.bits, self.group = bits, group

  def forward(self, x, ends=None, experts=None):
    return grouped_operator()(
      x, self.codes, self.scales, self.zeros, self.table, ends, experts, self.bits, self.group
    )


class Mixture(nn.Module):
  def __init__(self, dtype, width, between, norm=False, **codes):
    super().__init__()
    self.up, self.down = Codes(2 * between, width, **codes), Codes(width, between, **codes)
    self.router = nn.Parameter(torch.randn(EXPERTS, width).to(dtype))
    self.norm = nn.RMSNorm(width, dtype=dtype) if norm else nn.Identity()
    self.dtype = dtype

  def forward(self, x):
    rows = self.norm(x)
    weights, numbers = F.linear(rows, self.router).softmax(-1, torch.float32).topk(ACTIVE, -1)
    numbers = numbers.reshape(-1)
    gate, up = self.up(rows.repeat_interleave(ACTIVE, 0), experts=numbers).chunk(2, -1)
    y = self.down(F.silu(gate) * up, experts=numbers) * weights.to(x.dtype).reshape(-1, 1)
    return x + y.view(-1, ACTIVE, y.shape[-1]).sum(1)


FORMATS = {
  "4 bits": {},
  "4 bits with zeros": dict(zeros=torch.int8),
  "4 bits with zeros of floats": dict(zeros=torch.float32),
  "4 bits in groups of 64": dict(group=64),
  "4 bits by rows": dict(group=0),
  "4 bits of a table": dict(table=True),
  "int8 by rows": dict(bits=8, group=0),
  "int8 by rows with zeros": dict(bits=8, group=0, zeros=torch.int8),
  "int8 in groups": dict(bits=8),
  "fp8": dict(bits=8, group=0, kind="float8_e4m3fn"),
}


@pytest.fixture
def in_triton(monkeypatch):
  """The kernels that Triton's interpreter runs. Those of tensor cores are run by others
  (test_codes_of_experts.py)."""
  monkeypatch.setattr(tiles, "has_experts", lambda *_: False)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_rows_with_numbers(name, dtype, in_triton, tmp_path):
  if dtype != torch.bfloat16 and name not in ("4 bits", "int8 by rows", "fp8"):
    pytest.skip("formats with instructions show the types")
  # 192 elements are two pieces.
  model = Mixture(dtype, 128, 192, norm=name in ("4 bits", "int8 by rows"), **FORMATS[name]).eval()
  x = torch.randn(3, 128).to(dtype)
  (found,) = computed(model, (x,), None, [{"x": x}], tmp_path)
  close(next(iter(found.values())), model(x), 1e-5 if dtype == torch.float32 else 3e-2)
  text = (tmp_path / "model.hir").read_text()
  bits = FORMATS[name].get("bits", 4)
  assert re.search(rf"launch \S*expert_row_\S*_silu_{bits}bits\b", text)
  assert re.search(rf"launch \S*experts_of_row_\S*_{bits}bits\b", text)


@pytest.mark.parametrize(
  "name, dtype, change, is_tiled",
  [
    ("4 bits", torch.bfloat16, {}, True),
    ("4 bits with zeros of floats", torch.float16, {}, True),
    ("int8 by rows", torch.bfloat16, {}, True),
    ("int8 in groups", torch.bfloat16, {}, True),
    ("fp8", torch.bfloat16, {}, True),
    ("int8 by rows", torch.float32, {}, False),
    ("4 bits of a table", torch.bfloat16, {}, False),
    ("int8 by rows", torch.bfloat16, dict(between=20480), False),
  ],
)
def test_tiles_of_tensor_cores(name, dtype, change, is_tiled, tmp_path):
  model = Mixture(dtype, **{"width": 128, "between": 192, **change}, **FORMATS[name]).eval()
  args = (torch.randn(3, 128).to(dtype),)
  husk.export(model, args, tmp_path / "x.husk", targets=("cuda:h200",), keep=tmp_path)
  text = (tmp_path / "model.hir").read_text()
  assert bool(re.search(r"launch \S*experts_of_row_tiled_", text)) == is_tiled
  assert bool(re.search(r"launch \S*expert_row_tiled_\S*_silu_", text)) == (
    is_tiled or "between" in change
  )


@pytest.mark.parametrize(
  "times, k, bits, tiles_of",
  [
    (0, 2048, 4, dict(WARPS=4, SPLIT=4)),
    (0, 4096, 8, dict(WARPS=8, SPLIT=8)),
    (8, 768, 4, dict(WARPS=16, SPLIT=2)),
    (2, 14336, 8, dict(WARPS=16, SPLIT=8)),
    (3, 128, 4, dict(WARPS=4, SPLIT=1)),
    (16, 512, 8, dict(WARPS=16, SPLIT=1)),
  ],
)
def test_warps_of_tiles(times, k, bits, tiles_of):
  numbers = dict(TIMES=times or 8, K=k, BITS=bits)
  operands = {"weights": None} if times else {}
  found = tiles._config_of_experts(numbers, operands)
  assert {name: found[name] for name in tiles_of} == tiles_of


class Sorted(nn.Module):
  def __init__(self, codes):
    super().__init__()
    self.codes = codes

  def forward(self, x, ends):
    gate, up = self.codes(x, ends=ends).chunk(2, -1)
    return F.silu(gate) * up


@pytest.mark.parametrize("name", FORMATS)
def test_sorted_rows(name, tmp_path):
  model = Sorted(Codes(48, 192, **FORMATS[name])).eval()
  calls = [
    (torch.randn(ends[-1] + more, 192).bfloat16(), torch.tensor(ends, dtype=torch.int32))
    for ends, more in (([3, 3, 20, 20, 50], 0), ([0, 0, 0, 0, 3], 4))
  ]
  rows = torch.export.Dim("rows", min=2, max=128)
  runs = [dict(zip(("x", "ends"), call, strict=True)) for call in calls]
  found = computed(model, calls[0], {"x": {0: rows}, "ends": None}, runs, tmp_path)
  for call, result in zip(calls, found, strict=True):
    close(next(iter(result.values())), model(*call), 3e-2)
  assert re.search(r"launch \S*expert_tiles\S*bits\b", (tmp_path / "model.hir").read_text())


@pytest.mark.parametrize(
  "change", [dict(group=24), dict(group=16), dict(bits=8, kind="float8_e5m2", group=0)]
)
def test_others_are_arithmetic(change, tmp_path):
  """Groups that are no power of two, or less than 16 bytes, and other types of codes."""
  model = Mixture(torch.bfloat16, 96, 48, **change).eval()
  x = torch.randn(3, 96).bfloat16()
  husk.export(model, (x,), tmp_path / "x.husk", targets=("cuda:h200",), keep=tmp_path)
  assert "expert_row" not in (tmp_path / "model.hir").read_text()


class Shifted(Mixture):
  """Rows that begin behind `first` elements of others."""

  def __init__(self, first, **codes):
    super().__init__(torch.bfloat16, 128, 192, **codes)
    self.first = first

  def forward(self, x):
    return super().forward(x[self.first : self.first + 3 * 128].view(3, 128))


@pytest.mark.parametrize("codes, first", [({}, 1), ({}, 2), (FORMATS["int8 by rows"], 1)])
def test_pairs_begin_where_words_do(codes, first, in_triton, tmp_path):
  """Elements for codes of 4 bits are read in pairs, so that rows with an odd offset are copied."""
  model, x = Shifted(first, **codes).eval(), torch.randn(3 * 128 + 2).bfloat16()
  (found,) = computed(model, (x,), None, [{"x": x}], tmp_path)
  close(next(iter(found.values())), model(x), 3e-2)
  text = (tmp_path / "model.hir").read_text()
  (launch,) = re.findall(r"launch \S*expert_row_.*", text)
  assert (f"read x[{2 * first}, 768]" in launch) == (bool(codes) or first % 2 == 0), launch


@pytest.mark.parametrize("target", ["a100", "b200"])
def test_other_gpus(target, tmp_path):
  model = Mixture(torch.bfloat16, 128, 192, norm=True).eval()
  x = torch.randn(3, 128).bfloat16()
  husk.export(model, (x,), tmp_path / "x.husk", targets=(f"cuda:{target}",), keep=tmp_path)
  assert "expert_row" in (tmp_path / "model.hir").read_text()


@pytest.mark.parametrize("target, is_ours", [("orin", False), ("l4", True)])
def test_codes_of_e4m3_need_their_type(target, is_ours):
  model = Codes(48, 192, **FORMATS["fp8"])
  args = torch.randn(9, 192).bfloat16(), torch.tensor([1, 2, 3, 4, 9], dtype=torch.int32)
  exported = torch.export.export(Sorted(model).eval(), args)
  rewritten = experts.rewrite(exported, Target.load(target))
  assert (rewritten is not exported) == is_ours
