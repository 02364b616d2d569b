"""Products in tf32 have rounded operands: in the text of every template, in the machine code of
every kernel, and in the values."""

import ast
import json
import os
import pathlib
import re
import subprocess
import sys

import husk
import numpy
import pytest
import torch
import triton_interpreter
from cuda_numerics import HERE, computed
from function_module import FunctionModule
from husk.cuda import kernels, rounded_weights, rounding, tuning
from torch import nn
from torch._inductor import config
from torch._inductor.select_algorithm import TritonTemplate

# The text


def rewritten(call):
  """A call in a module of a kernel, after the rewriting."""
  source = f"import triton\n\n@triton.jit\ndef kernel(a, b):\n    return {call}\n"
  text = rounding.rewrite(source)
  assert text.startswith("import triton\n\n@triton.jit\ndef kernel(a, b):\n")
  ast.parse(text)
  return text.split("return ", 1)[1].split("\n\n@triton.jit\ndef husk_rounded")[0].rstrip()


@pytest.mark.parametrize(
  "call, expected",
  [
    ("tl.dot(a, b)", "tl.dot(R(a, None, None), R(b, None, None))"),
    (
      "tl.dot(a, b, c, allow_tf32=T)",
      "tl.dot(R(a, None, T), R(b, None, T), c, allow_tf32=T)",
    ),
    (
      "tl.dot(a, b, c, 'ieee', None)",
      "tl.dot(R(a, 'ieee', None), R(b, 'ieee', None), c, 'ieee', None)",
    ),
    (
      "tl.dot(other=b, input=(a + 1), input_precision=P)",
      "tl.dot(other=R(b, P, None), input=(R(a + 1, P, None)), input_precision=P)",
    ),
    (
      "tl.dot(\n        a if ROW else a.T,  # é\n        tl.dot(a, b),\n    )",
      "tl.dot(\n        R(a if ROW else a.T, None, None),  # é\n"
      "        R(tl.dot(R(a, None, None), R(b, None, None)), None, None),\n    )",
    ),
  ],
)
def test_operands_are_rounded(call, expected):
  assert rewritten(call) == expected.replace("R(", "husk_rounded(")


def test_products_are_added_with_what_the_sum_has_lost():
  source = """@triton.jit
def kernel(a, b, begin):
  s = tl.zeros((16, 16), tl.float32)
  for i in range(4):
    s += tl.dot(a, b, allow_tf32=T)
  t = tl.full((16, 16), 0, tl.float32)
  for i in range(4):
    x = tl.dot(a, b, input_precision="ieee")
    y = tl.broadcast_to(x, (16, 16))
    u = t + y
    t = u
"""
  lines = rounding.rewrite(source).replace("husk_rounded(", "R(").splitlines()
  product = "tl.dot(R(a, None, T), R(b, None, T), allow_tf32=T), a, None, T)"
  assert lines[2] == "  s = tl.zeros((16, 16), tl.float32); s_husk_lost = tl.zeros_like(s)"
  assert lines[4] == f"    s, s_husk_lost = husk_added(s, s_husk_lost, {product}"
  assert lines[5] == "  t = tl.full((16, 16), 0, tl.float32); t_husk_lost = tl.zeros_like(t)"
  assert lines[9] == "    u, t_husk_lost = husk_added(t, t_husk_lost, y, a, 'ieee', None)"
  assert lines[10] == "    t = u"
  # Neither a sum that begins with other numbers, nor one of factors without a name.
  for before, behind in (("tl.zeros((16, 16), tl.float32)", "begin"), ("dot(a,", "dot(a + 1,")):
    assert "    s += tl.dot(" in rounding.rewrite(source.replace(before, behind))


def test_a_module_without_products_stays_as_it_is():
  source = "import triton\n\ndef kernel(a):\n    return tl.sum(a)\n"
  assert rounding.rewrite(source) == source


def test_the_precision_of_the_environment_counts(monkeypatch):
  from triton import knobs

  monkeypatch.setattr(knobs.language, "fp32_default", "ieee")
  assert rewritten("tl.dot(a, b, allow_tf32=True)").startswith("tl.dot(husk_rounded(a, 'ieee', ")
  assert rewritten("tl.dot(a, b, input_precision='tf32')").startswith(
    "tl.dot(husk_rounded(a, 'tf32', "
  )


def calls(text, name):
  """The calls of a function in a text that need not be Python as a whole."""
  for match in re.finditer(rf"\b{re.escape(name)}\(", text):
    depth, end = 1, match.end()
    while depth:
      depth += {"(": 1, ")": -1}.get(text[end], 0)
      end += 1
    yield text[match.start() : end]


def test_every_product_of_inductors_templates_is_found():
  """The files that have templates, and the number of products in them. Comments count as well."""
  folder = pathlib.Path(torch.__file__).parent / "_inductor"
  files = [*folder.rglob("*.jinja"), *folder.glob("kernel/*.py"), folder / "fx_passes/b2b_gemm.py"]
  count = 0
  for file in files:
    text = file.read_text()
    assert not re.search(r"language\.dot\(|\bimport dot\b", text), file
    for call in calls(text, "tl.dot"):
      assert rewritten(call).count("husk_rounded(") == 2, (file, call)
      count += 1
  assert count >= 30


# The machine code


# Operations of Triton's GPU form that pass values on, with other layouts or in other memory.
_PASS_ON = (
  "ttg.convert_layout",
  "ttg.local_alloc",
  "ttg.local_load",
  "ttg.memdesc_reinterpret",
  "ttg.memdesc_reshape",
  "ttg.memdesc_subslice",
  "ttg.memdesc_trans",
  "tt.reshape",
  "tt.split",
  "tt.trans",
)
_VALUE = r"%[\w$.-]+"


def unrounded_tiles(text, factors=2):
  """Those of the first `factors` operands of products in tf32 that no conversion rounded, in
  Triton's GPU form. A name may be used again in another region, so the lines are read in order."""
  rounded, found = {}, []
  for line in text.splitlines():
    product = re.search(
      rf"(?:tt\.dot|ttng\.warp_group_dot|ttng\.tc_gen5_mma) ({_VALUE}), ({_VALUE}),", line
    )
    # Precision 0 is tf32, which is also that of products of other types than f32.
    if product and re.search(r"inputPrecision = (tf32|0 )", line):
      if re.search(r": (?:tensor|!ttg\.memdesc)<[\dx]+xf32", line):
        found += [value for value in product.groups()[:factors] if not rounded.get(value)]
    if definition := re.match(rf'\s*({_VALUE}(?:, {_VALUE})*) = "?([\w.]+)"? ?(.*)', line):
      values, operation, rest = definition.groups()
      first = re.search(_VALUE, rest)
      is_rounded = (
        '"cvt.rna.tf32.f32 $0, $1;"' in rest
        or operation in _PASS_ON
        and bool(first and rounded.get(first.group()))
      )
      rounded.update(dict.fromkeys(re.findall(_VALUE, values), is_rounded))
  return found


# Instructions that move registers, with the number of their sources that are data.
_MOVES = {"mov": 1, "selp": 2, "shfl": 1, "prmt": 2}


def unrounded_registers(ptx, factors=2):
  """The registers of the first `factors` operands that instructions of tensor cores multiply in
  tf32, and that come neither from the conversion nor from shared memory. What lies there,
  `unrounded_tiles` tells. The last matrix of mma, and the first of wgmma, is the sum."""
  rounded = set(re.findall(r"cvt\.rna\.tf32\.f32\s+(%\w+),", ptx))
  for line in re.findall(r"(?:ldmatrix|ld\.shared)\S*\s+([^\[]*), \[", ptx):
    rounded |= set(re.findall(r"%\w+", line))
  moves = [
    (to, re.findall(r"%\w+", sources)[: _MOVES[name]])
    for name, to, sources in re.findall(r"(mov|selp|shfl|prmt)\.\S+\s+(%r\d+), ([^;]*);", ptx)
  ]
  size = 0
  while size < len(rounded):
    size = len(rounded)
    rounded |= {to for to, sources in moves if sources and rounded.issuperset(sources)}
  found = []
  for text in re.findall(r"mma\.sync\S*tf32\.tf32\S*\s([^;]*);", ptx):
    groups = _groups(text)[1 : 1 + factors]
    found += [each for group in groups for each in group if each not in rounded]
  for text in re.findall(r"wgmma\.mma_async\S*tf32\.tf32\s([^;]*);", ptx):
    found += [each for group in _groups(text)[1:] for each in group if each not in rounded]
  return found


def _groups(text):
  return [re.findall(r"%\w+", group) for group in re.findall(r"\{([^}]*)\}", text)]


class Products(nn.Module):
  """Products and convolutions of all kinds that become different kernels."""

  def __init__(self):
    super().__init__()
    self.convolutions = nn.ModuleList(
      [
        nn.Conv2d(16, 64, 3, padding=1),  # Inductor's template
        nn.Conv2d(64, 64, 3, padding=2, dilation=2),  # Husk's, whole steps of a tap
        nn.Conv2d(3, 64, 7, stride=2),  # Husk's, steps of several taps
        nn.Conv2d(64, 64, 3, groups=4),
        nn.Conv2d(32, 32, 3, groups=32),  # no product
        nn.ConvTranspose2d(32, 32, 2, stride=2),
        nn.Conv2d(64, 32, 1),  # a product
        nn.Conv1d(16, 32, 3),
        nn.Conv3d(16, 32, 3),
      ]
    )
    self.linear = nn.Linear(128, 256)

  def forward(self, images, lines, boxes, x, y, z):
    by_channels = {image.shape[1]: image for image in images}
    results = [
      layer(lines if isinstance(layer, nn.Conv1d) else boxes)
      if isinstance(layer, (nn.Conv1d, nn.Conv3d))
      else layer(by_channels[layer.in_channels])
      for layer in self.convolutions
    ]
    attention = nn.functional.scaled_dot_product_attention(x, x, x)
    sums = torch.baddbmm(z, z, z.mT), y[:1] @ y, x[0] @ y[:64, :64]
    return *results, self.linear(y), y @ y + y @ (y + 1), attention, *sums


def inputs():
  images = [torch.randn(2, channels, 40, 40) for channels in (3, 16, 32, 64)]
  x, y, z = torch.randn(1, 4, 256, 64), torch.randn(128, 128), torch.randn(4, 128, 128)
  return images, torch.randn(1, 16, 100), torch.randn(1, 16, 9, 9, 9), x, y, z


@pytest.fixture
def forms(monkeypatch):
  """The PTX, Triton's GPU form and its first form of each kernel that is compiled, and how many
  operands it rounds, by name; and the names of the templates of which one was chosen."""
  found, chosen = {}, set()
  kernel, pick = kernels._kernel, tuning.Tuning.pick_template

  def recorded(name, tuner, result, *more):
    factors = 1 if rounded_weights.LINE in tuner.fn.src else 2
    found[name] = *(result.kernel.asm[form] for form in ("ptx", "ttgir", "ttir")), factors
    return kernel(name, tuner, result, *more)

  def picked(self, target, choices):
    choice = pick(self, target, choices)
    chosen.add(re.sub(r"^triton_|_\d+$", "", choice.name))
    return choice

  monkeypatch.setattr(kernels, "_kernel", recorded)
  monkeypatch.setattr(tuning.Tuning, "pick_template", picked)
  matmul, before = torch.backends.cuda.matmul, torch.backends.cuda.matmul.allow_tf32
  matmul.allow_tf32 = True
  yield found, chosen
  matmul.allow_tf32 = before


def in_tf32(forms):
  """The kernels that multiply in tf32. All operands were rounded, but those of Triton's own three
  products in tf32 for one in f32, which need the bits that rounding leaves over."""
  found = {name for name, (ptx, *_) in forms.items() if re.search(r"mma\S*tf32\.tf32", ptx)}
  for name in found:
    ptx, tiles, first, factors = forms[name]
    if "inputPrecision = tf32x3" in first:
      assert name.startswith("attention_f32") or "convolution" in name, name
      continue
    assert not unrounded_registers(ptx, factors), name
    assert not unrounded_tiles(tiles, factors), name
    assert "inputPrecision = tf32" in tiles or "inputPrecision = 0 " in tiles, name
  return found


# Templates of Inductor, and why a product in tf32 cannot be one of them. The others are chosen in
# the test below.
_OTHERS = {
  "flex_attention": "torch.export refuses it",
  "flex_attention_backward": "torch.export refuses it",
  "flex_decoding": "torch.export refuses it",
  "mm_persistent_tma": "Inductor asks the GPU of this machine whether it has tensor maps",
  "grouped_mm": "takes bf16 only",
  "scaled_grouped_mm": "takes fp8 only",
  "scaled_mm_device_tma_epilogue_scaling": "takes fp8 only",
  "scaled_mm_device_tma_main_loop_scaling": "takes fp8 only",
  "blackwell_ws_persistent_device_tma": "Inductor offers it for compute capability 10 only",
  "b2b_gemm_right": "has the products of b2b_gemm_left in another order",
}


def test_every_template_is_rounded(forms, tmp_path):
  found, chosen = forms
  for target in ("a100", "h200", "h200:fused"):
    found.clear()
    husk.write(Products().eval(), inputs(), tmp_path / "all", targets=(f"cuda:{target}",))
    number = len(in_tf32(found))
    assert number >= 12, (target, number, sorted(found))
    # The weights of five convolutions are rounded once.
    assert sum(factors == 1 for *_, factors in found.values()) >= 4, (
      target,
      {k: v[3] for k, v in found.items()},
    )
  found.clear()
  args = torch.randn(512, 32), torch.randn(32, 512), torch.randn(512, 32)
  with config.patch(b2b_gemm_pass=True):
    husk.write(Chain(), args, tmp_path / "chain", targets=("cuda:h200",))
  assert in_tf32(found)
  # Other tests add variants of templates, whose names end with a number.
  names = {re.sub(r"_\d+$", "", name) for name in TritonTemplate.all_templates}
  # These take inputs of 16 or 8 bits only, and are made when a layer needs them.
  templates = ("husk_quantized_", "husk_eight_bits_", "husk_few_rows_", "husk_tensor_maps")
  names = {name for name in names if not name.startswith(templates)}
  assert names - chosen == set(_OTHERS), chosen


class Chain(nn.Module):
  def forward(self, a, b, c):
    return (a @ b) @ c


# The values


def interpreted_exactly(model, args, folder, gemm_set="templates"):
  """The results of a model on a GPU whose products in tf32 cut what is not rounded."""
  computed(model, args, None, [], folder, gemm_set=gemm_set)
  inputs, outputs = folder / "inputs.pt", folder / "outputs.pt"
  named = dict(zip("abcdefg", args))
  torch.save([named], inputs)
  done = subprocess.run(
    [sys.executable, HERE / "triton_interpreter.py"],
    env={**os.environ, "TRITON_INTERPRET": "1", "HUSK_INTERPRETED_TF32": "exact"},
    input=json.dumps([str(folder), "cuda_h200", str(inputs), str(outputs)]) + "\n",
    capture_output=True,
    text=True,
  )
  assert json.loads(done.stdout) == "", done.stdout + done.stderr
  (results,) = torch.load(outputs)
  return [results[name] for name in sorted(results)]


class Layers(nn.Module):
  """A product of factors that no bias hides, and a convolution."""

  def forward(self, a, b, c, d):
    return a @ b, nn.functional.conv2d(c, d, dilation=2)


def test_errors_have_no_direction(tmp_path):
  """All factors are positive, so that numbers that were cut would make every result smaller, by
  2**-11 of it on average for each factor."""
  torch.manual_seed(0)
  args = tuple(torch.rand(size) for size in ((48, 64), (64, 48), (1, 16, 12, 12), (16, 16, 3, 3)))
  matmul, before = torch.backends.cuda.matmul, torch.backends.cuda.matmul.allow_tf32
  matmul.allow_tf32 = True
  try:
    results = interpreted_exactly(Layers(), args, tmp_path)
  finally:
    matmul.allow_tf32 = before
  for result, exact in zip(results, Layers()(*(x.double() for x in args)), strict=True):
    error = (result.double() / exact - 1).flatten()
    # The sums of a row or a column share factors, so that not all errors are independent.
    independent = error.numel() ** 0.5
    assert 1e-6 < error.std() < 2e-4
    assert error.mean().abs() < 4 * error.std() / independent**0.5


@pytest.mark.parametrize("gemm_set", ["templates", "fused"])
def test_sums_of_a_deep_product_in_f32(gemm_set, tmp_path):
  """A chain of additions of all blocks has larger errors. Sums that are
  infinite are those of eager mode."""
  torch.manual_seed(0)
  a, b = torch.rand(16, 8192), torch.rand(8192, 16)
  a[3, 7], a[4, 5], b[5] = torch.inf, 1e38, b[5] + 8
  a[5, 9], a[5, 4000] = torch.inf, -torch.inf
  (result,) = interpreted_exactly(Product(), (a, b), tmp_path, gemm_set)
  exact = (a.double() @ b.double()).float()
  torch.testing.assert_close(result, exact, rtol=2.5e-7, atol=0, equal_nan=True)
  assert result[3].isinf().all() and result[4].isinf().all() and result[5].isnan().all()


class Product(nn.Module):
  def forward(self, a, b):
    return a @ b


@pytest.mark.parametrize("kind", [torch.float16, torch.float32])
def test_products_of_tensor_cores_stay_as_they_are(kind, forms, tmp_path, monkeypatch):
  found, _ = forms
  args = [torch.randn(64, 128, dtype=kind), torch.randn(128, 64, dtype=kind)]
  texts = []
  for _ in range(2):
    husk.write(Product(), args, tmp_path / "a", targets=("cuda:h200",))
    ((ptx, *_),) = found.values()
    texts.append(re.findall(r"^\t(?!\.loc|//).*;", ptx, re.MULTILINE))
    monkeypatch.setattr(rounding, "_additions", lambda function: iter(()))
  assert texts[0] == texts[1] and len(texts[0]) > 100


class Part(nn.Module):
  """A product whose weight is a part of a parameter that a size decides."""

  def __init__(self):
    super().__init__()
    self.weights = nn.Parameter(torch.rand(32 * 16, generator=torch.Generator().manual_seed(0)))

  def forward(self, x):
    return x @ self.weights[: x.shape[1] * 16].view(16, x.shape[1]).t()


def test_divisions_are_rounded(tmp_path, monkeypatch):
  """Triton's own division errs towards larger numbers, so that errors of a softmax add up."""
  sources, define = [], kernels.CudaKernels.define_kernel

  def defined(self, name, body, *args, **kwargs):
    sources.append(body)
    return define(self, name, body, *args, **kwargs)

  monkeypatch.setattr(kernels.CudaKernels, "define_kernel", defined)
  model = FunctionModule(lambda self, x: (x.softmax(-1), x / x.sum()))
  husk.write(model, (torch.randn(4, 8),), tmp_path, targets=("cuda:h200",), progress=False)
  text = "".join(sources)
  assert text.count("div_rn(") == 2
  assert not re.search(r"\(tmp\d+ / tmp\d+\)", text)


def test_a_part_of_a_weight_that_a_size_decides_is_rounded_in_each_product(tmp_path):
  model, matmul = Part(), torch.backends.cuda.matmul
  tensors = [torch.rand(17, 32), torch.rand(5, 20)]
  auto = torch.export.Dim.AUTO
  before, matmul.allow_tf32 = matmul.allow_tf32, True
  try:
    results = computed(
      model, (tensors[0],), {"x": {0: auto, 1: auto}}, [{"x": x} for x in tensors], tmp_path
    )
  finally:
    matmul.allow_tf32 = before
  for x, result in zip(tensors, results, strict=True):
    torch.testing.assert_close([*result.values()], [model(x)], rtol=2e-3, atol=0)


def test_what_the_conversion_does():
  """Ties go away from zero. Infinity and NaN stay, and what is above the largest number of tf32 by
  half a bit becomes infinity."""
  one, step = numpy.float32(1), numpy.float32(2.0**-10)
  largest = numpy.finfo(numpy.float32).max
  numbers = [one, one + step / 2, one + step / 4, -one - step / 2, largest, numpy.inf, -numpy.inf]
  expected = [one, one + step, one, -one - step, numpy.inf, numpy.inf, -numpy.inf]
  rounded = triton_interpreter.rounded_to_tf32(numpy.array([*numbers, numpy.nan], numpy.float32))
  assert rounded[:-1].tolist() == expected and numpy.isnan(rounded[-1])
