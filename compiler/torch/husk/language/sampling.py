"""The functions of a file that work on logits: `sample` draws tokens from them, and `sample_few`
from few candidates, `adjust` applies penalties and masks of tokens, and `rank` gives
log-probabilities."""

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
  """Draws a token from each row of logits. With `candidates`, only so many of the most likely ones
  are put in order, and each row has a `top_k` from 1 to that number, or the temperature 0."""

  def __init__(self, candidates: int | None = None) -> None:
    super().__init__()
    self.candidates = candidates

  def _ordered(self, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The candidates and their tokens, the most likely one first."""
    if self.candidates is not None:
      return torch.topk(logits, self.candidates)
    return torch.sort(logits, dim=-1, descending=True, stable=True)

  def forward(
    self,
    logits: torch.Tensor,
    temperature: torch.Tensor,
    top_k: torch.Tensor,
    top_p: torch.Tensor,
    min_p: torch.Tensor,
    seeds: torch.Tensor,
    positions: torch.Tensor,
  ) -> tuple[torch.Tensor, torch.Tensor]:
    """`logits` are f32[n, vocabulary]; each row has a temperature (f32, 0 takes the most likely
    token), a number of candidates (int64, 0 is no limit), a probability that the candidates reach
    together (f32), the least probability of a candidate as a part of the largest one (f32), a seed
    and a position (int64). Temperature, top-k, top-p and min-p apply in this order, as in
    transformers. Returns tokens and the logarithms of their probabilities by the logits, as
    int64[n] and f32[n]."""
    for one in (temperature, top_k, top_p, min_p, seeds, positions):
      torch._check(one.shape[0] == logits.shape[0])  # so that nothing is broadcast
    divisor = torch.where(temperature > 0, temperature, 1.0)[:, None]
    ordered, order = self._ordered(logits)
    rank = torch.arange(ordered.shape[-1], device=logits.device)[None]
    limit = torch.where(top_k > 0, top_k, ordered.shape[-1])
    limit = torch.where(temperature > 0, limit, 1)[:, None]
    scaled = ((ordered - ordered[:, :1]) / divisor).exp()
    scaled = torch.where(rank < limit, scaled, 0.0)
    sums = scaled.cumsum(-1)
    # A candidate counts if those before it do not reach top_p; the first one always does.
    before = sums - scaled
    kept = (before < top_p[:, None] * sums[:, -1:]) & (scaled >= min_p[:, None]) | (rank == 0)
    total = torch.where(kept, scaled, 0.0).sum(-1, keepdim=True)
    drawn = uniform(seeds, positions)[:, None] * total
    index = ((sums <= drawn) & kept).sum(-1, keepdim=True)
    last = kept.sum(-1, keepdim=True) - 1  # rounding of the sums must not lead beyond it
    index = torch.minimum(index, last)
    token = order.gather(-1, index)[:, 0]
    chosen = ordered.gather(-1, index)[:, 0]
    return token, chosen - torch.logsumexp(logits, dim=-1)


class Adjuster(torch.nn.Module):
  """Changes logits by what a text has already, and by a mask of tokens."""

  def forward(
    self,
    logits: torch.Tensor,
    history: torch.Tensor,
    lengths: torch.Tensor,
    prompts: torch.Tensor,
    repetition: torch.Tensor,
    presence: torch.Tensor,
    frequency: torch.Tensor,
    allowed: torch.Tensor,
  ) -> torch.Tensor:
    """`logits` are f32[n, vocabulary]. `history` (int64[n, m]) has the tokens of each text, of
    which the first `lengths` (int64[n]) count, and the first `prompts` of these are its prompt.

    `repetition` (f32[n]) divides the positive logits of all tokens that a text has, and multiplies
    the negative ones, as RepetitionPenaltyLogitsProcessor of transformers. `presence` (f32[n]) is
    taken from the logits of the tokens after the prompt, and `frequency` (f32[n]) as often as each
    of them occurs. Then tokens without their bit in `allowed` (int32[n, words]: bit t % 32 of word
    t // 32) get minus infinity. Returns f32[n, vocabulary]."""
    for one in (history, lengths, prompts, repetition, presence, frequency, allowed):
      torch._check(one.shape[0] == logits.shape[0])
    count = logits.shape[-1]
    at = torch.arange(history.shape[1], device=logits.device)[None]
    has = at < lengths[:, None]
    is_new = has & (at >= prompts[:, None])
    zeros = torch.zeros_like(logits)
    new = zeros.scatter_add(1, history, is_new.to(torch.float32))
    seen = zeros.scatter_add(1, history, has.to(torch.float32)) > 0
    penalty = torch.where(seen, repetition[:, None], 1.0)
    result = torch.where(logits < 0, logits * penalty, logits / penalty)
    result = result - presence[:, None] * (new > 0) - frequency[:, None] * new
    token = torch.arange(count, device=logits.device)
    words = allowed[:, token >> 5]
    is_allowed = (words >> (token & 31)[None].to(torch.int32)) & 1
    return torch.where(is_allowed != 0, result, float("-inf"))


class Ranker(torch.nn.Module):
  """Log-probabilities of tokens, and of the most likely ones."""

  def __init__(self, most: int) -> None:
    super().__init__()
    self.most = most

  def forward(
    self, logits: torch.Tensor, tokens: torch.Tensor
  ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """For each row of logits (f32[n, vocabulary]): the log-probability of its token (int64[n]), as
    f32[n], and the most likely tokens with theirs, as int64[n, most] and f32[n, most]."""
    torch._check(tokens.shape[0] == logits.shape[0])
    total = torch.logsumexp(logits, dim=-1, keepdim=True)
    chosen = logits.gather(1, tokens[:, None]) - total
    found, order = torch.topk(logits, self.most)
    return chosen[:, 0], order, found - total
