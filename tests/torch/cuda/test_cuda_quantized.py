"""Layers whose weights have codes on GPUs: the templates' values by Triton's interpreter, which
computes their instructions of assembly too, and which layers have a template."""

import re

import husk
import numpy
import ptx
import pytest
import torch
from cuda_numerics import computed
from husk.cuda import formats, quantized
from husk.cuda.target import Target
from husk.quantized.operator import numbers, operator
from torch import nn

E4M3 = torch.float8_e4m3fn


class Layer(nn.Module):
  """A layer of n x k codes of a dtype, with random scales."""

  def __init__(self, n, k, dtype, group=None, zeros=None, bias=False, scales=torch.float32, seed=0):
    super().__init__()
    generator = torch.Generator().manual_seed(seed)
    self.bits, self.group = (4 if dtype == torch.uint8 else 8), group or k
    codes = torch.randint(0, 256, (n, k * self.bits // 8), generator=generator, dtype=torch.uint8)
    if dtype == E4M3:
      codes[codes & 127 == 127] = 0  # no NaN
    self.register_buffer("codes", codes.view(dtype))
    shape = (n, k // self.group)
    factor = 0.002 if dtype == torch.int8 else 0.05
    self.register_buffer("scales", (torch.rand(shape, generator=generator) * factor).to(scales))
    zero = torch.randint(-8, 8, shape, generator=generator)
    self.register_buffer("zeros", None if zeros is None else zero.to(zeros))
    self.register_buffer("bias", torch.rand(n, generator=generator) if bias else None)

  def forward(self, x):
    bias = None if self.bias is None else self.bias.to(x.dtype)
    return operator()(
      x, self.codes, self.scales, self.zeros, None, bias, None, "none", self.bits, self.group
    )

  def is_rounded(self, rows):
    """Whether the template of such rows multiplies scales with numbers, not with sums."""
    has_float_zeros = self.zeros is not None and self.zeros.is_floating_point()
    has_groups = self.scales.shape[1] > 1 or self.zeros is not None
    return has_groups and not has_float_zeros and rows > (1 if self.bits == 4 else 16)

  def exact(self, x, rows=1):
    weight = numbers(self.codes, self.scales, self.zeros, None, self.bits, self.group)
    if self.is_rounded(rows):
      weight = weight.to(x.dtype)
    result = x.double() @ weight.double().T
    return result if self.bias is None else result + self.bias.double()


class Layers(nn.Module):
  def __init__(self, layers):
    super().__init__()
    self.layers = nn.ModuleList(layers)

  def forward(self, x):
    return [layer(x) for layer in self.layers]


# Groups of one line, of several and of a row; codes that fill no tile, and columns that do not.
def layers(k):
  return [
    Layer(20, k, torch.uint8, 32, scales=torch.float16, seed=1),
    Layer(33, k, torch.uint8, 64, zeros=torch.float32, bias=True, scales=torch.bfloat16, seed=2),
    Layer(17, k, torch.uint8, zeros=torch.float16, seed=3),
    Layer(19, k, torch.int8, bias=True, seed=4),
    Layer(40, k, torch.int8, 64, zeros=torch.int8, seed=5),
    Layer(21, k, E4M3, seed=6),
    Layer(16, k, E4M3, 64, scales=torch.bfloat16, seed=7),
    Layer(24, k, torch.uint8, 32, zeros=torch.int8, seed=8),
    Layer(18, k, torch.uint8, bias=True, seed=9),
  ]


def close(layer, value, x, rows):
  """The results differ by their rounding, and by that of sums in f32. A weight that is rounded, and
  is nearly between two numbers, may be the other one."""
  right = layer.exact(x, rows)
  tolerance = torch.finfo(value.dtype).eps
  near = 1e-3 if layer.is_rounded(rows) else 1e-4
  torch.testing.assert_close(
    value.double(), right, rtol=tolerance, atol=near * float(right.abs().mean())
  )


def launches(folder):
  text = (folder / "model.hir").read_text()
  return re.findall(r"^\s*launch \w*?_triton_(\w+?)_", text, re.M)


@pytest.mark.parametrize(
  "rows, dtype",
  [
    (1, torch.bfloat16),
    (1, torch.float16),
    (3, torch.bfloat16),
    (20, torch.float16),
    (70, torch.bfloat16),
  ],
)
def test_values(rows, dtype, tmp_path):
  k = 2560 if rows == 3 else 192  # several steps of a loop, and less than one
  some = [
    layer
    for layer in layers(k)
    if rows <= 64 or layer.zeros is None or not layer.zeros.is_floating_point()
  ]
  model = Layers(some).eval()
  x = torch.randn(rows, k, generator=torch.Generator().manual_seed(rows)).to(dtype)
  (result,) = computed(model, (x,), None, [{"x": x}], tmp_path, target="h100")
  assert launches(tmp_path).count("tem") == len(some)
  for layer, value in zip(model.layers, result.values(), strict=True):
    close(layer, value, x, rows)


def test_rows_that_vary(tmp_path):
  model = Layers(layers(128)[:5:2]).eval()
  generator = torch.Generator().manual_seed(0)
  runs = [{"x": torch.randn(2, n, 128, generator=generator).bfloat16()} for n in (4, 1, 40)]
  shapes = {"x": {1: torch.export.Dim("rows", min=1, max=64)}}
  results = computed(model, (runs[0]["x"],), shapes, runs, tmp_path, target="h100")
  for inputs, result in zip(runs, results):
    for layer, value in zip(model.layers, result.values(), strict=True):
      close(layer, value, inputs["x"], 8)  # the template is that of the example's rows


def test_inputs_of_any_layout(tmp_path):
  """A row without a batch, one that begins at an odd element, transposed rows, and one column."""

  class Model(nn.Module):
    def __init__(self):
      super().__init__()
      self.four, self.eight = Layer(1, 64, torch.uint8, 32), Layer(24, 64, torch.int8)

    def forward(self, x):
      parts = (x[0, :64], x[1:2, 1:65], x[:2, 3:67], x[:64, :3].t(), x[:2, :64].reshape(2, 1, 64))
      return [self.four(part) for part in parts] + [self.eight(part) for part in parts]

  model = Model().eval()
  x = torch.randn(64, 67, generator=torch.Generator().manual_seed(2)).half()
  (result,) = computed(model, (x,), None, [{"x": x}], tmp_path, target="h100")
  assert launches(tmp_path).count("tem") == 10
  values = list(result.values())
  parts = (x[0, :64], x[1:2, 1:65], x[:2, 3:67], x[:64, :3].t(), x[:2, :64].reshape(2, 1, 64))
  for layer, some in ((model.four, values[:5]), (model.eight, values[5:])):
    for part, value in zip(parts, some, strict=True):
      close(layer, value, part, part.numel() // 64)


def test_layers_that_read_the_same_memory_as_other_rows(tmp_path):
  class Model(nn.Module):
    def __init__(self):
      super().__init__()
      self.long, self.short = Layer(24, 128, torch.uint8, 32), Layer(16, 64, torch.uint8, 32)

    def forward(self, x):
      x = x * 2
      return self.long(x), self.long(x[:2]), self.short(x.view(8, 64)), self.short(x.view(8, 64))

  model = Model().eval()
  x = torch.randn(4, 128, generator=torch.Generator().manual_seed(3)).bfloat16()
  (result,) = computed(model, (x,), None, [{"x": x}], tmp_path, target="h100")
  y = x * 2
  layers = (model.long, model.long, model.short, model.short)
  rows = (y, y[:2], y.view(8, 64), y.view(8, 64))
  for layer, part, value in zip(layers, rows, result.values(), strict=True):
    close(layer, value, part, part.shape[0])


@pytest.mark.parametrize("format", formats.FORMATS, ids=lambda one: one.dtype)
@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
def test_the_numbers_of_all_codes_are_exact(format, kind):
  text = re.search(r'"\{ (.*) \}"', format.call(kind))[1]
  codes = numpy.arange(256, dtype=numpy.uint8)
  count = 2 if format.bits == 4 else 1
  kinds = [numpy.uint16] * count
  results = ptx.elementwise(text, "=r," * 2 * count + "r", [codes], kinds, 4)
  to_float = ptx.bf16_to_float if kind == "bfloat16" else ptx.f16_to_float
  plain = torch.from_numpy(codes)
  if format.bits == 4:
    right = [(plain & 15).float() - 8, (plain >> 4).float() - 8]
  else:
    right = [plain.view(getattr(torch, format.dtype)).float()]
  for bits, one in zip(results, right, strict=True):
    is_number = torch.isfinite(one)
    assert torch.equal(torch.from_numpy(to_float(bits)).float()[is_number], one[is_number])


@pytest.mark.parametrize(
  "layer, dtype, rows, has_template",
  [
    (Layer(8, 64, torch.uint8, 32), torch.bfloat16, 1, True),
    (Layer(8, 64, torch.uint8, 32), torch.bfloat16, 64, True),
    (Layer(8, 64, torch.uint8, 32), torch.bfloat16, 1024, True),
    (Layer(8, 64, torch.uint8, 32), torch.bfloat16, 1025, False),
    (Layer(8, 64, torch.uint8, 32, zeros=torch.float16), torch.bfloat16, 65, False),
    (Layer(8, 64, torch.uint8, 32), torch.float32, 1, False),
    (Layer(8, 64, torch.uint8, 16), torch.bfloat16, 1, False),
    (Layer(8, 64, torch.int8, 16), torch.float16, 1, True),
    (Layer(8, 64, torch.int8, 8), torch.float16, 1, False),
    (Layer(8, 48, torch.uint8), torch.float16, 1, False),
  ],
)
def test_which_layers_have_a_template(layer, dtype, rows, has_template, tmp_path):
  x = torch.zeros(rows, layer.scales.shape[1] * layer.group, dtype=dtype)
  husk.write(layer.eval(), (x,), tmp_path, targets=("cuda:h100",))
  assert ("linear_quantized" in " ".join(launches_in_full(tmp_path))) == has_template


def launches_in_full(folder):
  return re.findall(r"^\s*launch (\w+)", (folder / "model.hir").read_text(), re.M)


def test_what_follows_is_fused(tmp_path):
  class Model(nn.Module):
    def __init__(self):
      super().__init__()
      self.one = Layer(64, 128, torch.uint8, 32, bias=True)

    def forward(self, x, y):
      return nn.functional.silu(self.one(x)) * y

  x, y = torch.zeros(2, 128, dtype=torch.float16), torch.zeros(2, 64, dtype=torch.float16)
  husk.write(Model().eval(), (x, y), tmp_path, targets=("cuda:h100",))
  # The first one puts even elements before odd ones.
  assert [re.search("_(poi|tem)_", one)[1] for one in launches_in_full(tmp_path)] == ["poi", "tem"]


def test_tiles_fill_the_multiprocessors():
  h100 = Target.load("h100")
  chosen = [quantized.tiles(h100, 16, n, 64).columns for n in (1024, 4096, 8192, 32000)]
  assert chosen == [16, 32, 64, 64]
  assert [quantized.tiles(h100, 8, n, 64).columns for n in (1024, 4096, 8192)] == [16, 16, 32]


def test_tiles_in_shared_memory_fit_and_fill_the_multiprocessors():
  (four, eight, _) = formats.FORMATS
  h100 = Target.load("h100")
  chosen = [
    quantized.shared_tiles(h100, four, rows, 4096, 4096, 32) for rows in (2, 32, 64, 96, 256, 1024)
  ]
  assert [(one.rows, one.columns, one.split) for one in chosen] == [
    (16, 64, 4),
    (32, 64, 4),
    (64, 64, 2),
    (128, 64, 2),
    (128, 64, 1),
    (256, 128, 1),
  ]
  for name in ("l4", "a100", "h100", "b200", "orin"):
    target = Target.load(name)
    for format in (four, eight):
      for rows in (2, 20, 64, 128, 1024):
        one = quantized.shared_tiles(target, format, rows, 14336, 4096, 128)
        of_rows = one.depth * 16 // format.bits * one.rows
        bytes = one.stages * (one.depth * one.columns + of_rows)
        assert bytes <= target.shared_memory_per_block_optin
