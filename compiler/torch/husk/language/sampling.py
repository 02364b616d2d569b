"""`Sampler`: the function `sample` of a file, which draws tokens from logits."""

from __future__ import annotations

import torch

_MASK = 0xFFFFFFFF


def _mixed(number: torch.Tensor) -> torch.Tensor:
  """A hash of 32 bits (PCG, RXS-M-XS) of numbers of 32 bits. Products stay below 2^63."""
  state = (number * 747796405 + 2891336453) & _MASK
  word = (((state >> ((state >> 28) + 4)) ^ state) * 277803737) & _MASK
  return (word >> 22) ^ word


def uniform(seeds: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
  """A number in [0, 1) for each seed and position (int64[n]). Equal ones give equal numbers, so a
  sequence does not depend on those that run beside it."""
  mixed = _mixed(_mixed(seeds & _MASK) ^ ((seeds >> 32) & _MASK))
  mixed = _mixed(mixed ^ (positions & _MASK))
  return (mixed >> 8).to(torch.float32) * 2.0**-24


class Sampler(torch.nn.Module):
  """Draws a token from each row of logits."""

  def forward(
    self,
    logits: torch.Tensor,
    temperature: torch.Tensor,
    top_k: torch.Tensor,
    top_p: torch.Tensor,
    seeds: torch.Tensor,
    positions: torch.Tensor,
  ) -> tuple[torch.Tensor, torch.Tensor]:
    """`logits` are f32[n, vocabulary]; each row has a temperature (f32, 0 takes the most likely
    token), a number of candidates (int64, 0 is no limit), a probability that the candidates reach
    together (f32), a seed and a position (int64). Returns tokens and the logarithms of their
    probabilities in the model, as int64[n] and f32[n]."""
    for one in (temperature, top_k, top_p, seeds, positions):
      torch._check(one.shape[0] == logits.shape[0])  # so that nothing is broadcast
    divisor = torch.where(temperature > 0, temperature, 1.0)[:, None]
    ordered, order = torch.sort(logits, dim=-1, descending=True, stable=True)
    rank = torch.arange(logits.shape[-1], device=logits.device)[None]
    limit = torch.where(top_k > 0, top_k, logits.shape[-1])
    limit = torch.where(temperature > 0, limit, 1)[:, None]
    scaled = ((ordered - ordered[:, :1]) / divisor).exp()
    scaled = torch.where(rank < limit, scaled, 0.0)
    sums = scaled.cumsum(-1)
    # A candidate counts if those before it do not reach top_p; the first one always does.
    before = sums - scaled
    kept = (before < top_p[:, None] * sums[:, -1:]) | (rank == 0)
    total = torch.where(kept, scaled, 0.0).sum(-1, keepdim=True)
    drawn = uniform(seeds, positions)[:, None] * total
    index = ((sums <= drawn) & kept).sum(-1, keepdim=True)
    last = kept.sum(-1, keepdim=True) - 1  # rounding of the sums must not lead beyond it
    index = torch.minimum(index, last)
    token = order.gather(-1, index)[:, 0]
    chosen = ordered.gather(-1, index)[:, 0]
    return token, chosen - torch.logsumexp(logits, dim=-1)
