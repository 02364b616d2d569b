"""Recipes of PT2E on a small network: each is exported for a host and run, and compared with the
graph in eager mode.

    python tests/torch/nets/pt2e_recipes.py [--target host:avx512] [RECIPE...]

A row says how many of the network's seven layers became steps on codes, how many of these have a
result of codes, the largest difference from eager mode in steps of the last quantization, and the
error of both from the network in f32. The exit status is 1 if a recipe is refused or wrong.

Needs torchao."""

import argparse
import copy
import pathlib
import re
import sys
import tempfile
import traceback
import warnings

import torch
from torch import nn

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parents[2] / "compiler" / "torch"))

import husk  # noqa: E402
import torchao.quantization.pt2e as observers  # noqa: E402 # pyright: ignore
import torchao.quantization.pt2e.quantize_pt2e as pt2e  # noqa: E402 # pyright: ignore
from torchao.quantization.granularity import PerAxis, PerTensor  # noqa: E402 # pyright: ignore
from torchao.quantization.pt2e import quantizer as base  # noqa: E402 # pyright: ignore
from torchao.quantization.pt2e.quantizer import (  # noqa: E402 # pyright: ignore
  arm_inductor_quantizer as arm,
)
from torchao.quantization.pt2e.quantizer import (  # noqa: E402 # pyright: ignore
  x86_inductor_quantizer as x86,
)
from torchao.testing.pt2e import _xnnpack_quantizer as xnnpack  # noqa: E402 # pyright: ignore


class Net(nn.Module):
  """A small MobileNet: convolutions, a depthwise one, a residual, pools, a linear layer."""

  def __init__(self):
    super().__init__()
    self.a = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU())
    self.b = nn.Sequential(nn.Conv2d(16, 32, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU6())
    self.c = nn.Sequential(
      nn.Conv2d(32, 32, 3, 1, 1, groups=32, bias=False), nn.BatchNorm2d(32), nn.ReLU6()
    )
    self.d = nn.Sequential(nn.Conv2d(32, 16, 1, bias=False), nn.BatchNorm2d(16))
    self.pool = nn.MaxPool2d(3, 2, 1)
    self.e = nn.Sequential(nn.Conv2d(16, 32, 3, 1, 1), nn.ReLU())
    self.average = nn.AdaptiveAvgPool2d(1)
    self.f, self.g = nn.Linear(32, 64), nn.Linear(64, 10)

  def forward(self, x):
    x = self.a(x)
    x = x + self.d(self.c(self.b(x)))
    x = self.e(self.pool(x))
    return self.g(torch.relu(self.f(torch.flatten(self.average(x), 1))))


class Linears(nn.Module):
  """Linear layers alone, for dynamic quantization; `embedding` puts a table before them."""

  def __init__(self, embedding=False):
    super().__init__()
    self.table = nn.Embedding(50, 64) if embedding else None
    self.layers = nn.Sequential(
      nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 64), nn.GELU(), nn.Linear(64, 10)
    )

  def forward(self, x):
    return self.layers(x if self.table is None else self.table(x))


def x86_quantizer(**options):
  quantizer = x86.X86InductorQuantizer()
  return quantizer.set_global(x86.get_default_x86_inductor_quantization_config(**options))


def arm_quantizer(**options):
  quantizer = arm.ArmInductorQuantizer()
  return quantizer.set_global(arm.get_default_arm_inductor_quantization_config(**options))


def xnnpack_quantizer(**options):
  quantizer = xnnpack.XNNPACKQuantizer()
  return quantizer.set_global(xnnpack.get_symmetric_quantization_config(**options))


class Affine(base.Quantizer):
  """Annotates convolutions and linear layers with observers of affine quantization, which write
  torchao.quantize_affine."""

  def annotate(self, model):
    from torchao.quantization.pt2e._affine_quantization import (  # pyright: ignore
      AffineQuantizedMinMaxObserver as MinMax,
    )
    from torchao.quantization.quant_primitives import MappingType  # pyright: ignore

    def spec(granularity, dtype, mapping):
      observer = MinMax.with_args(
        mapping_type=mapping,
        target_dtype=dtype,
        granularity=granularity,
        eps=2**-12,
        scale_dtype=torch.float32,
        zero_point_dtype=torch.int32,
      )
      return base.QuantizationSpec(dtype=dtype, observer_or_fake_quant_ctr=observer)

    inputs = spec(PerTensor(), torch.uint8, MappingType.ASYMMETRIC)
    weights = spec(PerAxis(0), torch.int8, MappingType.SYMMETRIC)
    aten = torch.ops.aten
    for node in model.graph.nodes:
      if node.target in (aten.conv2d.default, aten.linear.default):
        node.meta["quantization_annotation"] = base.QuantizationAnnotation(
          input_qspec_map={node.args[0]: inputs, node.args[1]: weights}, _annotated=True
        )
    return model

  def validate(self, model):
    pass


def embeddings():
  from torchao.quantization.pt2e.quantizer import embedding_quantizer  # pyright: ignore

  return base.ComposableQuantizer(
    [embedding_quantizer.EmbeddingQuantizer(), xnnpack_quantizer(is_dynamic=True)]
  )


IMAGE, ROWS = (2, 3, 32, 32), (5, 64)
# The name -> the model, the shape of its input, the quantizer, whether it is trained, whether
# convert_pt2e folds weights, and how many layers become steps on codes.
RECIPES = {
  "x86 static": (Net, IMAGE, x86_quantizer, False, True, 7),
  "x86 static, weights not folded": (Net, IMAGE, x86_quantizer, False, False, 7),
  "x86 QAT": (Net, IMAGE, lambda: x86_quantizer(is_qat=True), True, True, 7),
  "x86 dynamic": (Linears, ROWS, lambda: x86_quantizer(is_dynamic=True), False, True, 3),
  "x86 dynamic QAT": (
    Linears,
    ROWS,
    lambda: x86_quantizer(is_dynamic=True, is_qat=True),
    True,
    True,
    3,
  ),  # fmt: skip
  "arm static": (Net, IMAGE, arm_quantizer, False, True, 7),
  "arm QAT": (Net, IMAGE, lambda: arm_quantizer(is_qat=True), True, True, 7),
  "xnnpack static": (Net, IMAGE, xnnpack_quantizer, False, True, 7),
  "xnnpack by channel": (
    Net,
    IMAGE,
    lambda: xnnpack_quantizer(is_per_channel=True),
    False,
    True,
    7,
  ),  # fmt: skip
  "xnnpack by channel, weights not folded": (
    Net,
    IMAGE,
    lambda: xnnpack_quantizer(is_per_channel=True),
    False,
    False,
    7,
  ),  # fmt: skip
  "xnnpack QAT": (
    Net,
    IMAGE,
    lambda: xnnpack_quantizer(is_per_channel=True, is_qat=True),
    True,
    True,
    7,
  ),  # fmt: skip
  "xnnpack dynamic": (
    Linears,
    ROWS,
    lambda: xnnpack_quantizer(is_per_channel=True, is_dynamic=True),
    False,
    True,
    3,
  ),  # fmt: skip
  "embeddings and xnnpack dynamic": (
    lambda: Linears(True),
    (5,),
    embeddings,
    False,
    True,
    3,
  ),  # fmt: skip
  "affine observers": (Net, IMAGE, Affine, False, True, 7),
  "affine observers, weights not folded": (Net, IMAGE, Affine, False, False, 7),
}


def prepared(make, shape, quantizer, trained, folds):
  """The network in f32, the graph of the recipe, and an input."""
  torch.manual_seed(0)
  model = make()
  x = torch.randint(0, 50, shape) if len(shape) == 1 else torch.randn(shape)
  if shape == IMAGE:
    model.train()
    for _ in range(3):
      model(torch.randn(shape))
  model.eval()
  plain = copy.deepcopy(model)
  graph = torch.export.export(model.train() if trained else model, (x,), strict=True).module()
  if trained:
    graph = pt2e.prepare_qat_pt2e(graph, quantizer)
    optimizer = torch.optim.SGD(graph.parameters(), 1e-3)
    for _ in range(2):
      graph(x).square().mean().backward()
      optimizer.step()
    observers.move_exported_model_to_eval(graph)
  else:
    graph = pt2e.prepare_pt2e(graph, quantizer)
    graph(x)
  return plain, pt2e.convert_pt2e(graph, fold_quantize=folds), x


def compare(name, folder, target):
  """A text about a recipe, and whether it is right."""
  make, shape, quantizer, trained, folds, layers = RECIPES[name]
  plain, graph, x = prepared(make, shape, quantizer(), trained, folds)
  expected = graph(x)
  text = husk.write(graph, (x,), folder / "text", targets=(target,)).read_text()
  husk.export(graph, (x,), folder / "model.husk", targets=(target,))
  is_gpu = target.startswith("cuda")
  loaded = husk.load(folder / "model.husk", device="cuda" if is_gpu else "cpu")
  found = torch.as_tensor(loaded(x.cuda() if is_gpu else x)).cpu()
  if is_gpu:
    return compare_gpu(text, found, expected, plain(x), layers)
  steps = [line for line in text.splitlines() if '"husk::convolution_int8"' in line]
  codes = sum(bool(re.search(r" [ui]8 \[", line.split("write tensor")[1])) for line in steps)
  others = re.findall(r'extern "(husk::(?:convolution|linear)\w*)"', text)
  others = [one for one in others if one != "husk::convolution_int8"]
  # A code that is rounded to its neighbour moves the result by about a step of the last layer.
  exact = plain(x)
  difference, spread = (found - expected).abs().max(), expected.abs().max()
  right = float(difference / spread) < 0.03 and len(steps) == layers
  return (
    f"{len(steps)} of {layers} layers on codes, {codes} with results of codes, others {others}; "
    f"difference from eager mode {difference / spread:.4f} of the largest number, rms error "
    f"{(found - exact).square().mean().sqrt():.5f} (eager mode "
    f"{(expected - exact).square().mean().sqrt():.5f})",
    right,
  )


def compare_gpu(text, found, expected, exact, layers):
  """The same for a GPU, whose convolutions of 27 and 16 products, and depthwise ones, stay
  floats."""
  products = len(re.findall(r"launch \S*_int_mm\S* grid", text))
  difference, spread = (found - expected).abs().max(), expected.abs().max()
  right = float(difference / spread) < 0.03 and products == (4 if layers == 7 else layers)
  return (
    f"{products} of {layers} layers are products of ints; difference from eager mode "
    f"{difference / spread:.4f} of the largest number, rms error "
    f"{(found - exact).square().mean().sqrt():.5f} (eager mode "
    f"{(expected - exact).square().mean().sqrt():.5f})",
    right,
  )


def main():
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("recipes", nargs="*")
  parser.add_argument("--target", default="host:avx512")
  options = parser.parse_args()
  warnings.simplefilter("ignore")
  wrong = 0
  for name in options.recipes or RECIPES:
    with tempfile.TemporaryDirectory() as folder:
      try:
        text, right = compare(name, pathlib.Path(folder), options.target)
      except Exception:
        text, right = traceback.format_exc(limit=-3), False
    wrong += not right
    print(f"{name}: {'right' if right else 'WRONG'}, {text}", flush=True)
  return 1 if wrong else 0


if __name__ == "__main__":
  sys.exit(main())
