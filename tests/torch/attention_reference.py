"""Tensors for attention, and attention written out in f64: what the tests of its kernels share."""

import torch


def laid_out(shape, dtype, layout):
  """Random numbers of shape [batch, heads, rows, size]; `layout` is how they lie in memory."""
  batch, heads, rows, size = shape
  if layout == "heads":        # the rows of each head
    return torch.randn(shape).to(dtype)
  if layout == "rows":         # the heads of each row
    return torch.randn(batch, rows, heads, size).to(dtype).transpose(1, 2)
  # a slice of something larger
  return torch.randn(batch + 1, rows + 3, heads, 2 * size + 5).to(dtype)[1:, 2:rows + 2, :, 3:size + 3].transpose(1, 2)


def expected(q, k, v, mask, causal, scale):
  group = q.shape[1] // k.shape[1]
  q, k, v = q.double(), k.double().repeat_interleave(group, 1), v.double().repeat_interleave(group, 1)
  scores = q @ k.transpose(-1, -2) * scale
  if causal:
    scores = scores.masked_fill(~torch.ones(scores.shape[-2:], dtype=torch.bool).tril(), float("-inf"))
  if mask is not None:
    scores = scores.masked_fill(~mask, float("-inf")) if mask.dtype == torch.bool else scores + mask.double()
  return torch.softmax(scores, -1).nan_to_num(0) @ v, torch.logsumexp(scores, -1)


def difference(one, other):
  """The largest; 0 where both are the same infinity."""
  one = one.double()
  return float(torch.where(one == other, 0.0, (one - other).abs()).max()) if one.numel() else 0.0
