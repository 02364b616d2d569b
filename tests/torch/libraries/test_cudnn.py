"""Programs that leave convolutions to cuDNN. Programs without kernels run on the fake driver with
its fake cuDNN."""

import re

import on_fake_driver
import pytest
import torch
from torch import nn
from torch.export import Dim
from torch.testing import assert_close

CONVOLUTION = re.compile(r'extern "husk::cudnn_convolution" \((.*)\) at')
B, N = Dim("batch", min=1, max=8), Dim("size", min=8, max=40)


def last(tensor):
  """The tensor with its channels last."""
  return tensor.to(memory_format=torch.channels_last)


def written(model, args, folder, shapes=None, **options):
  return on_fake_driver.written(model, args, folder, shapes, **{"conv": "cudnn", **options})


class ChannelsLast(nn.Module):
  """A layer on images [batch, rows, columns, channels], which lie as cuDNN likes them."""

  def __init__(self, layer):
    super().__init__()
    self.layer = last(layer)

  def forward(self, x):
    return self.layer(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)


def without_tf32():
  # PyTorch's testing modules, which other tests import, forbid to set the flag alone.
  return torch.backends.cudnn.flags(enabled=torch.backends.cudnn.enabled, allow_tf32=False)


def run(model, inputs, folder, monkeypatch, shapes=None, flags=()):
  """Compares the results on the fake driver with eager mode, for a program without kernels.
  `inputs` are those of each run; the first is exported."""
  with without_tf32():
    runs = on_fake_driver.run(
      model,
      [(x,) for x in inputs],
      folder,
      "libcudnn.so.9",
      monkeypatch,
      shapes,
      flags,
      conv="cudnn",
    )
  model.to(torch.float64)
  for x, (code, outputs, text) in zip(inputs, runs, strict=True):
    assert code == 0, text
    (result,) = outputs
    with torch.no_grad():
      right = model(x.double())
    tolerance = {torch.float16: 4e-3, torch.bfloat16: 3e-2}.get(x.dtype, 1e-5)
    assert_close(result.double(), right, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize(
  "layer",
  [
    lambda: nn.Conv2d(16, 24, 3, padding=1, bias=False),
    lambda: nn.Conv2d(16, 24, (3, 5), stride=2, padding=(0, 2), dilation=(2, 1), bias=False),
    lambda: nn.Conv2d(16, 24, 3, groups=4, bias=False),
    lambda: nn.Conv2d(16, 16, 5, groups=16, padding=2, bias=False),
    lambda: nn.ConvTranspose2d(16, 8, 3, stride=2, padding=1, output_padding=1, bias=False),
    lambda: nn.ConvTranspose2d(16, 8, 2, stride=2, groups=2, bias=False),
  ],
  ids="plain strided grouped depthwise transposed transposed_groups".split(),
)
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_images_of_varying_sizes(layer, dtype, tmp_path, monkeypatch):
  torch.manual_seed(0)
  model = ChannelsLast(layer().to(dtype))
  inputs = [torch.randn(*sizes, 16, dtype=dtype) for sizes in ((2, 16, 16), (1, 9, 23))]
  run(model, inputs, tmp_path, monkeypatch, ({0: B, 1: N, 2: Dim("width", min=8, max=40)},))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_other_dtypes(dtype, tmp_path, monkeypatch):
  model = ChannelsLast(nn.Conv2d(16, 16, 3, bias=False).to(dtype))
  run(model, [torch.randn(2, 12, 12, 16, dtype=dtype)], tmp_path, monkeypatch)


def test_three_dimensions(tmp_path, monkeypatch):
  model = nn.Conv3d(4, 8, (3, 2, 3), stride=(1, 2, 1), padding=1, bias=False)
  run(model, [torch.randn(2, 4, 5, 6, 7)], tmp_path, monkeypatch)


@pytest.mark.parametrize(
  "layer",
  [
    lambda: nn.Conv1d(8, 16, 5, padding=2, dilation=2),
    lambda: nn.ConvTranspose1d(8, 16, 4, stride=2),
  ],
  ids=["plain", "transposed"],
)
def test_a_sequence_is_an_image_with_one_row(layer, tmp_path):
  text = written(layer(), (torch.randn(2, 8, 21),), tmp_path)
  (convolution,) = CONVOLUTION.findall(text)
  assert "f32 [2, 8, 1, 21]" in convolution and ", 1, true, write tensor" in convolution


def test_run_as_graph(tmp_path, monkeypatch):
  model = ChannelsLast(nn.Conv2d(16, 16, 3, bias=False).half())
  x = torch.randn(2, 12, 12, 16).half()
  run(model, [x], tmp_path, monkeypatch, flags=("--mode=graph", "--repeat=5"))


# The convolutions that are left to the library


def net():
  return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 3))


def test_what_follows_a_convolution_is_fused_into_kernels(tmp_path):
  text = written(net(), (torch.randn(1, 3, 16, 16),), tmp_path)
  assert len(CONVOLUTION.findall(text)) == 2 and "_tem_" not in text
  assert "relu" in text


def test_convolutions_of_the_artifact_are_the_default(tmp_path):
  for number, options in enumerate(({"conv": None}, {"conv": "triton"}, {"gemm": "cublaslt"})):
    options = {"conv": None, **options}
    text = written(net(), (torch.randn(1, 3, 16, 16),), tmp_path / str(number), **options)
    assert "extern" not in text


def test_libraries_take_all_that_they_can(tmp_path):
  model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(8 * 14 * 14, 8))
  args = (torch.randn(2, 3, 16, 16),)
  text = written(model, args, tmp_path / "all", conv=None, libraries=True)
  assert "husk::cudnn_convolution" in text and "husk::matmul" in text
  text = written(model, args, tmp_path / "some", conv="triton", libraries=True)
  assert "husk::cudnn_convolution" not in text and "husk::matmul" in text


def test_a_kernel_of_one_element_is_a_product(tmp_path):
  model = last(nn.Conv2d(16, 16, 1, bias=False).half())
  text = written(model, (last(torch.randn(2, 16, 8, 8).half()),), tmp_path, gemm="cublaslt")
  assert "husk::matmul" in text and "husk::cudnn_convolution" not in text


def test_integers_are_kernels(tmp_path):
  class Integers(nn.Module):
    def forward(self, x, w):
      return nn.functional.conv2d(x, w)

  args = (torch.ones(1, 2, 6, 6, dtype=torch.int32), torch.ones(2, 2, 3, 3, dtype=torch.int32))
  assert "extern" not in written(Integers(), args, tmp_path)


def test_the_workspace_has_room_for_copies_unless_channels_come_last(tmp_path):
  x, layer = torch.randn(2, 16, 12, 12), nn.Conv3d(2, 4, 3, bias=False)
  text = written(last(nn.Conv2d(16, 8, 3, bias=False)), (last(x),), tmp_path / "last")
  assert re.search(rf"buffer workspace bytes {32 << 20} align 256", text)
  cube = torch.randn(1, 2, 5, 5, 5)
  text = written(layer, (cube,), tmp_path / "first")
  copies = 4 * (2 * 125 + 4 * 2 * 27 + 4 * 27)
  assert re.search(rf"buffer workspace bytes {(32 << 20) + copies} align 256", text)


def test_tf32_only_if_torch_allows_it(tmp_path):
  layer, args = nn.Conv2d(4, 4, 3, bias=False), (torch.randn(1, 4, 8, 8),)
  assert "[1, 1], false, 1, true, write" in written(layer, args, tmp_path / "tf32")
  with without_tf32():
    assert "[1, 1], false, 1, false, write" in written(layer, args, tmp_path / "exact")


def test_an_unknown_choice_is_refused(tmp_path):
  with pytest.raises(ValueError, match="conv='mine': give one of 'triton', 'cudnn'"):
    written(net(), (torch.randn(1, 3, 16, 16),), tmp_path, conv="mine")


def test_the_command_line_has_the_options(tmp_path):
  from husk.__main__ import parser

  options = parser().parse_args(["m:f", "-o", "x", "--conv=cudnn", "--libraries"])
  assert options.conv == "cudnn" and options.libraries
