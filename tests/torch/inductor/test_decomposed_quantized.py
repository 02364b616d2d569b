"""Scales and zeros that a program for a CUDA target computes itself, against eager mode."""

import torch
import torch.ao.quantization.fx._decomposed  # defines the operators
from cuda_numerics import computed


class Quantized(torch.nn.Module):
  def forward(self, x):
    ops, results = torch.ops.quantized_decomposed, []
    for choose in (ops.choose_qparams.tensor, ops.choose_qparams_symmetric.tensor):
      for least, most, dtype in ((-128, 127, torch.int8), (0, 255, torch.uint8)):
        scale, zero = choose(x, least, most, 1e-3, dtype)
        values = ops.quantize_per_tensor.tensor(x, scale, zero, least, most, dtype)
        results += [scale, zero, values]
    return results


def test_scales_and_zeros(tmp_path):
  torch.manual_seed(0)
  tensors = [torch.randn(3, 6), torch.rand(3, 6) + 1, torch.zeros(3, 6), -torch.rand(3, 6)]
  model = Quantized()
  results = computed(model, (tensors[0],), None, [{"x": x} for x in tensors], tmp_path)
  for x, result in zip(tensors, results, strict=True):
    for one, expected in zip(result.values(), model(x), strict=True):
      # Inductor multiplies by the inverse of a scale in float32, and eager mode in float64.
      is_value = expected.dtype in (torch.int8, torch.uint8)
      torch.testing.assert_close(one, expected, rtol=1e-6, atol=1 if is_value else 0)
