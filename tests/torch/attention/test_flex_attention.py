"""flex_attention on hosts, in files and by torch.compile, against eager mode."""

import husk
import pytest
import torch
from husk.host import image
from husk.jit.backend import backend
from torch import nn
from torch.export import Dim
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")


class Distance(nn.Module):
  def forward(self, q, k, v):
    return flex_attention(q, k, v, score_mod=lambda score, b, h, i, j: score + (i - j))


class Biased(nn.Module):
  """The function reads a parameter and a buffer. Two heads of queries share one of keys."""

  def __init__(self):
    super().__init__()
    self.bias = nn.Parameter(torch.randn(64))
    self.register_buffer("slopes", torch.rand(4))

  def forward(self, q, k, v):
    def score_mod(score, b, h, i, j):
      return 20 * torch.tanh(score / 20) + self.slopes[h] * (i - j) + self.bias[(i - j).abs()]

    return flex_attention(q, k, v, score_mod=score_mod, enable_gqa=True, scale=0.3)


class Window(nn.Module):
  def __init__(self, length):
    super().__init__()
    self.mask = create_block_mask(
      lambda b, h, i, j: (i >= j) & (i - j < 20), None, None, length, length, device="cpu"
    )

  def forward(self, q, k, v):
    result, sums = flex_attention(q, k, v, block_mask=self.mask, return_lse=True)
    return result * sums.unsqueeze(-1)


class MaskInside(nn.Module):
  """The mask is made while the model runs, from a buffer too."""

  def __init__(self, length):
    super().__init__()
    self.register_buffer("ends", torch.arange(length) // 20 * 20)

  def forward(self, q, k, v):
    length = q.shape[2]
    mask = create_block_mask(
      lambda b, h, i, j: (i >= j) & (self.ends[i] <= j), None, None, length, length, device="cpu"
    )
    return flex_attention(q, k, v, block_mask=mask)


def inputs(heads, of_keys, length, dtype=torch.float32):
  torch.manual_seed(0)
  sizes = [(2, length, count, 16) for count in (heads, of_keys, of_keys)]
  return tuple(torch.randn(size, dtype=dtype).transpose(1, 2) for size in sizes)


@pytest.mark.parametrize(
  "model, arguments, tolerance",
  [
    (Distance(), inputs(2, 2, 40, torch.bfloat16), 2e-2),
    (Biased(), inputs(4, 2, 40), 1e-4),
    (Window(64), inputs(2, 2, 64), 1e-4),
    (MaskInside(64), inputs(2, 2, 64), 1e-4),
  ],
  ids=lambda each: type(each).__name__ if isinstance(each, nn.Module) else "",
)
def test_flex_attention_on_hosts(model, arguments, tolerance, tmp_path):
  torch._dynamo.reset()
  with torch.no_grad():
    expected = model(*arguments)
    husk.export(model, arguments, tmp_path / "a.husk", targets=(f"host:{image.isas()[0]}",))
    results = (
      husk.load(tmp_path / "a.husk")(*arguments),
      torch.compile(model, backend=backend)(*arguments),
    )
  for result in results:
    result = torch.as_tensor(result)
    torch.testing.assert_close(result, expected, rtol=tolerance, atol=tolerance)
    assert result.stride() == expected.stride()


def test_lengths_that_vary(tmp_path):
  length = {2: Dim.AUTO}
  husk.export(
    Distance(),
    inputs(2, 2, 40),
    tmp_path / "a.husk",
    dynamic_shapes=(length, length, length),
    targets=(f"host:{image.isas()[0]}",),
  )
  program = husk.load(tmp_path / "a.husk")
  for size in (2, 33, 150):
    arguments = inputs(2, 2, size)
    torch.testing.assert_close(
      torch.as_tensor(program(*arguments)), Distance()(*arguments), rtol=1e-4, atol=1e-4
    )
