"""Random tensors for attention, and attention in f64, for the tests of the attention kernels."""

import torch


def laid_out(shape, dtype, layout):
  """Random numbers of shape [batch, heads, rows, size], in memory according to `layout`."""
  batch, heads, rows, size = shape
  if layout == "heads":  # the rows of a head are adjacent
    return torch.randn(shape).to(dtype)
  if layout == "rows":  # the heads of a row are adjacent
    return torch.randn(batch, rows, heads, size).to(dtype).transpose(1, 2)
  # a slice of a larger tensor
  return (
    torch.randn(batch + 1, rows + 3, heads, 2 * size + 5)
    .to(dtype)[1:, 2 : rows + 2, :, 3 : size + 3]
    .transpose(1, 2)
  )


def expected(q, k, v, mask, causal, scale, softcap=0.0, sinks=None, ahead=0):
  group = q.shape[1] // k.shape[1]
  q, k, v = (
    q.double(),
    k.double().repeat_interleave(group, 1),
    v.double().repeat_interleave(group, 1),
  )
  scores = q @ k.transpose(-1, -2) * scale
  if softcap:
    scores = torch.tanh(scores / softcap) * softcap
  if causal:
    scores = scores.masked_fill(
      ~torch.ones(scores.shape[-2:], dtype=torch.bool).tril(ahead), float("-inf")
    )
  if mask is not None:
    scores = (
      scores.masked_fill(~mask, float("-inf"))
      if mask.dtype == torch.bool
      else scores + mask.double()
    )
  if sinks is not None:  # the score of a key whose value is zeros
    column = sinks.double().view(1, -1, 1, 1).expand(*scores.shape[:3], 1)
    scores = torch.cat([scores, column], -1)
    v = torch.cat([v, torch.zeros_like(v[..., :1, :])], -2)
  return torch.softmax(scores, -1).nan_to_num(0) @ v, torch.logsumexp(scores, -1)


def difference(one, other):
  """The largest absolute difference. Equal infinities differ by 0."""
  one = one.double()
  return float(torch.where(one == other, 0.0, (one - other).abs()).max()) if one.numel() else 0.0
