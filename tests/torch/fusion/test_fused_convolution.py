"""Convolutions of the host and what becomes a part of their calls: the text of the export, and the
values against PyTorch."""

import re

import artifact_runner
import husk
import pytest
import torch
import torch.nn.functional as F
from activation_functions import ACTIVATIONS
from export_and_compare import ISAS, run
from torch import nn


def calls(text):
  """The calls of the operator: whether each has a scale, a residual, and its activation."""
  found = []
  for line in re.findall(r'extern "husk::convolution" \((.*)\)', text):
    fields = re.sub(r"\[[^]]*\]", "", line).split(", ")
    scale, residual, activation = fields[-4:-1]
    found.append((scale != "none", residual != "none", activation.strip('"')))
  return found


def norm(channels):
  layer = nn.BatchNorm2d(channels).eval()
  with torch.no_grad():
    for tensor in (layer.weight, layer.bias, layer.running_mean, layer.running_var):
      tensor.uniform_(0.5, 1.5)
  return layer


class Block(nn.Module):
  """A residual block."""

  def __init__(self):
    super().__init__()
    self.first = nn.Conv2d(4, 6, 3, padding=1, bias=False)
    self.first_norm = norm(6)
    self.second = nn.Conv2d(6, 4, 1)
    self.second_norm = norm(4)

  def forward(self, x):
    y = F.relu(self.first_norm(self.first(x)))
    y = self.second_norm(self.second(y))
    y += x
    return F.relu_(y)


def test_block(tmp_path):
  text = run(tmp_path, Block(), (torch.randn(2, 4, 7, 5),))
  assert calls(text) == [(True, False, "relu"), (True, True, "relu")]
  assert "aten::convolution" not in text
  # The constants are those of the model.
  for name in ("first.weight", "first_norm.running_var", "second_norm.bias"):
    assert f"constant {name} f32" in text


def test_dynamic(tmp_path):
  batch, height = torch.export.Dim("batch", max=9), torch.export.Dim("height", min=2, max=20)
  shapes = ({0: batch, 2: height},)
  others = [(torch.randn(5, 4, 3, 6),), (torch.randn(1, 4, 20, 6),)]
  text = run(tmp_path, Block(), (torch.randn(2, 4, 7, 6),), shapes, others)
  assert calls(text) == [(True, False, "relu"), (True, True, "relu")]


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations(tmp_path, name):
  weight = torch.randn(5, 3, 3, 3)

  def function(self, x):
    return ACTIVATIONS[name](F.conv2d(x, self.weight, padding="same"))

  text = run(tmp_path, function, (torch.randn(1, 3, 6, 6),), buffers={"weight": weight})
  assert calls(text) == [(False, False, name)]


KINDS = {
  "1d": (nn.Conv1d(3, 4, 3, stride=2, dilation=2), (2, 3, 20)),
  "2d": (nn.Conv2d(4, 6, (3, 1), padding=(1, 0), groups=2), (2, 4, 6, 5)),
  "3d": (nn.Conv3d(2, 3, 2, padding="same", dilation=2), (1, 2, 5, 6, 4)),
  "1d back": (nn.ConvTranspose1d(3, 2, 3, stride=2, output_padding=1), (2, 3, 5)),
  "2d back": (nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, groups=2), (1, 4, 5, 3)),
  "3d back": (nn.ConvTranspose3d(2, 3, 2, dilation=2, bias=False), (1, 2, 3, 3, 2)),
}


@pytest.mark.parametrize("name", KINDS)
def test_kinds(tmp_path, name):
  layer, shape = KINDS[name]
  text = run(tmp_path, nn.Sequential(layer, nn.ReLU()), (torch.randn(shape),))
  assert calls(text) == [(False, False, "relu")]


@pytest.mark.parametrize("taps, copies", [(3, False), (5, True)])
def test_image(tmp_path, taps, copies):
  """An image is copied to the channels-last format unless the convolution is shallow."""
  layer = nn.Conv2d(3, 8, taps, stride=2, padding=1)
  text = run(tmp_path, nn.Sequential(layer, nn.ReLU()), (torch.randn(2, 3, 15, 18),))
  assert calls(text) == [(False, False, "relu")]
  launches = len(re.findall(r"^ *launch ", text, re.MULTILINE))
  assert launches == (2 if copies else 1)  # one copies the output


def test_uneven_padding(tmp_path):
  """A padding that differs at both ends is an operator of its own, and torch decomposes it."""
  text = run(tmp_path, nn.Conv1d(3, 4, 2, padding="same"), (torch.randn(1, 3, 8),))
  assert "convolution" in text and calls(text) == []


def test_half(tmp_path):
  """A batch norm in half precision is not a scale, which would be rounded."""
  model = Block().bfloat16()
  path = husk.write(
    model, (torch.randn(1, 4, 5, 5).bfloat16(),), tmp_path, targets=(f"host:{ISAS[0]}",)
  )
  assert set(calls(path.read_text())) == {(False, False, "none")}


class Training(nn.Module):
  def __init__(self):
    super().__init__()
    self.layer, self.norm = nn.Conv2d(3, 4, 3), norm(4).train()

  def forward(self, x):
    return self.norm(self.layer(x))


def test_training(tmp_path):
  text = run(tmp_path, Training(), (torch.randn(2, 3, 6, 6),), artifact=False)
  assert calls(text) == [(False, False, "none")]


SEPARATE = {
  # The sum is used twice, or is of another shape, or the result itself is used.
  "used": lambda y, x: (F.relu(y), y + 1),
  "broadcast": lambda y, x: (y + x[:1, :, :1], y.mean()),
  "twice": lambda y, x: y + y,
  "scaled": lambda y, x: torch.add(y, x, alpha=2),
  # The addition writes the other operand.
  "written": lambda y, x: (x.mul(1).add_(y), x),
  "activated": lambda y, x: F.relu(y) + x,
  "limits": lambda y, x: F.hardtanh(y, -1, 1),
}


@pytest.mark.parametrize("name", SEPARATE)
def test_separate(tmp_path, name):
  weight = torch.randn(3, 3, 3, 3)

  def function(self, x):
    return SEPARATE[name](F.conv2d(x, self.weight, padding=1), x)

  text = run(tmp_path, function, (torch.randn(2, 3, 4, 4),), buffers={"weight": weight})
  assert calls(text) == [(False, False, "relu" if name == "activated" else "none")]


def test_written_between(tmp_path):
  """The input of a convolution changes before its activation."""
  weight = torch.randn(3, 3, 1, 1)

  def function(self, x):
    x = x * 2
    y = F.conv2d(x, self.weight)
    x.add_(1)
    return F.relu(y), x

  text = run(tmp_path, function, (torch.randn(2, 3, 4, 4),), buffers={"weight": weight})
  assert calls(text) == [(False, False, "none")]


def test_written_by_a_norm(tmp_path):
  """A norm that trains writes the bias of a convolution before its activation."""
  weight, mean, var = torch.randn(3, 3, 1, 1), torch.zeros(3), torch.ones(3)

  def function(self, x):
    y = F.conv2d(x, self.weight, self.mean)
    z = F.batch_norm(x + 3, self.mean, self.var, training=True, momentum=0.5)
    return F.relu(y), z

  buffers = {"weight": weight, "mean": mean, "var": var}
  text = run(tmp_path, function, (torch.randn(2, 3, 4, 4),), buffers=buffers)
  assert calls(text) == [(False, False, "none")]


def test_update(tmp_path):
  """The constants of a batch norm keep their meaning."""
  model = Block()
  x = torch.randn(1, 4, 5, 5)
  husk.export(model, (x,), tmp_path / "model.husk", targets=(f"host:{ISAS[0]}",))
  with torch.no_grad():
    model.first_norm.running_mean.uniform_(-1, 1)
    model.first.weight.normal_()
  with artifact_runner.Runner(tmp_path / "model.husk") as runner:
    runner.update("first_norm.running_mean", model.first_norm.running_mean)
    runner.update("first.weight", model.first.weight)
    (got,) = runner.run([x])
  torch.testing.assert_close(got, model(x), rtol=1e-5, atol=1e-5)


class Thin(nn.Module):
  """A convolution and the depthwise one that reads its results, with a batch norm each."""

  def __init__(self, channels=96, stride=1, between=None):
    super().__init__()
    self.widen = nn.Conv2d(8, channels, 1, bias=False)
    self.widen_norm = norm(channels)
    self.thin = nn.Conv2d(channels, channels, 3, stride, 1, groups=channels)
    self.thin_norm = norm(channels)
    self.between = between

  def forward(self, x):
    y = F.hardswish(self.widen_norm(self.widen(x)))
    if self.between:
      y = self.between(y)
    return F.relu6(self.thin_norm(self.thin(y)))


def pairs(text):
  """The activations of the calls that compute two convolutions."""
  found = re.findall(r'extern "husk::convolution_depthwise" \((.*)\)', text)
  return [re.findall(r'"(\w+)"', line) for line in found]


LARGE = (2, 8, 48, 50)  # 96 channels between two convolutions take 900 KiB


@pytest.mark.parametrize("stride", [1, 2])
def test_pair(tmp_path, stride):
  text = run(tmp_path, Thin(stride=stride), (torch.randn(LARGE),))
  assert pairs(text) == [["hardswish", "relu6"]] and calls(text) == []
  for name in ("widen.weight", "thin.weight", "thin_norm.running_var"):
    assert f"constant {name} f32" in text


def test_pair_with_varying_sizes(tmp_path):
  batch, height = torch.export.Dim("batch", max=4), torch.export.Dim("height", min=2, max=60)
  others = [(torch.randn(1, 8, 3, 50),), (torch.randn(3, 8, 60, 50),)]
  text = run(tmp_path, Thin(), (torch.randn(LARGE),), ({0: batch, 2: height},), others)
  assert len(pairs(text)) == 1


def test_pair_in_half_precision(tmp_path):
  model = nn.Sequential(nn.Conv2d(8, 96, 1), nn.SiLU(), nn.Conv2d(96, 96, 3, groups=96)).bfloat16()
  path = husk.write(
    model, (torch.randn(1, 8, 70, 70).bfloat16(),), tmp_path, targets=(f"host:{ISAS[0]}",)
  )
  assert {tuple(pair) for pair in pairs(path.read_text())} == {("silu", "none")}


APART = {
  "small": (Thin(), (2, 8, 9, 9)),
  "changed between": (Thin(between=lambda y: y + 1), LARGE),
  "groups": (nn.Sequential(nn.Conv2d(8, 96, 1, groups=2), nn.Conv2d(96, 96, 3, groups=96)), LARGE),
  "more outputs": (nn.Sequential(nn.Conv2d(8, 96, 1), nn.Conv2d(96, 192, 3, groups=96)), LARGE),
  "one channel between": (nn.Sequential(nn.Conv2d(8, 1, 1), nn.Conv2d(1, 3, 3)), (1, 8, 420, 420)),
  "transposed": (
    nn.Sequential(nn.Conv2d(8, 96, 1), nn.ConvTranspose2d(96, 96, 3, groups=96)),
    LARGE,
  ),
  "one dimension": (
    nn.Sequential(nn.Conv1d(8, 96, 1), nn.Conv1d(96, 96, 3, groups=96)),
    (1, 8, 2400),
  ),
}


@pytest.mark.parametrize("name", APART)
def test_no_pair(tmp_path, name):
  model, shape = APART[name]
  text = run(tmp_path, model, (torch.randn(shape),))
  assert pairs(text) == [] and len(calls(text)) == 2


def test_no_pair_if_both_are_used(tmp_path):
  thin = torch.randn(96, 1, 3, 3)
  wide = torch.randn(96, 8, 1, 1)

  def function(self, x):
    y = F.conv2d(x, self.wide)
    return y, F.conv2d(y, self.thin, groups=96)

  text = run(tmp_path, function, (torch.randn(LARGE),), buffers={"wide": wide, "thin": thin})
  assert pairs(text) == [] and len(calls(text)) == 2


def test_no_pair_if_the_input_is_written_between(tmp_path):
  thin = torch.randn(96, 1, 3, 3)
  wide = torch.randn(96, 8, 1, 1)

  def function(self, x):
    x = x * 2
    y = F.conv2d(x, self.wide)
    x.add_(1)
    return F.conv2d(y, self.thin, groups=96), x

  text = run(tmp_path, function, (torch.randn(LARGE),), buffers={"wide": wide, "thin": thin})
  assert pairs(text) == [] and len(calls(text)) == 2


def test_update_of_a_pair(tmp_path):
  model, x = Thin(), torch.randn(LARGE)
  husk.export(model, (x,), tmp_path / "model.husk", targets=(f"host:{ISAS[0]}",))
  with torch.no_grad():
    model.widen_norm.running_mean.uniform_(-1, 1)
    model.widen.weight.normal_()
    model.thin.weight.normal_()
  with artifact_runner.Runner(tmp_path / "model.husk") as runner:
    for name in ("widen_norm.running_mean", "widen.weight", "thin.weight"):
      runner.update(name, model.state_dict()[name])
    (got,) = runner.run([x])
  torch.testing.assert_close(got, model(x), rtol=1e-4, atol=1e-4)
