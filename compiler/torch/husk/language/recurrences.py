"""The recurrences of state-space models and of linear attention, for a chunk of any length.

transformers has a function for each kind of recurrence, with its own loop over the tokens, or over
parts of a fixed length, that Python unrolls for the length of an example. While `used_by` is open,
the modules of a model have the functions below in place of these. They compute a chunk in closed
form, so that its length may vary, and go on from the state that the cache gave."""

from __future__ import annotations

import contextlib
import contextvars
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch

# The recurrent state that a cache gave to the layer that runs, for functions of transformers that
# have no argument for it. None before the first token.
_state: contextvars.ContextVar[torch.Tensor | None] = contextvars.ContextVar("state", default=None)


def give(state: torch.Tensor | None) -> None:
  """Notes the state of the layer that runs."""
  _state.set(state)


def convolution(
  hidden_states: torch.Tensor,
  weight: torch.Tensor,
  bias: torch.Tensor | None = None,
  activation: str | None = None,
  **_others: Any,
) -> torch.Tensor:
  """A causal convolution of each channel (rows x channels x tokens), with zeros before the first
  token. `weight` is channels x kernel."""
  count, size = hidden_states.shape[-1], weight.shape[-1]
  padded = torch.nn.functional.pad(hidden_states.to(weight.dtype), (size - 1, 0))
  terms = [padded[..., k : k + count] * weight[:, k, None] for k in range(size)]
  return _activated(sum(terms[1:], terms[0]), bias, activation).to(hidden_states.dtype)


def convolution_step(
  hidden_states: torch.Tensor,
  conv_state: torch.Tensor,
  weight: torch.Tensor,
  bias: torch.Tensor | None = None,
  activation: str | None = None,
) -> torch.Tensor:
  """`convolution` for one token, after those of the state (rows x channels x tokens), which the
  token joins."""
  window = torch.cat([conv_state, hidden_states], dim=-1).to(weight.dtype)
  conv_state.copy_(window[..., -conv_state.shape[-1] :])
  result = (window[..., -weight.shape[-1] :] * weight).sum(-1, keepdim=True)
  return _activated(result, bias, activation).to(hidden_states.dtype)


def _activated(
  result: torch.Tensor, bias: torch.Tensor | None, activation: str | None
) -> torch.Tensor:
  if bias is not None:
    result = result + bias[:, None]
  if activation is None:
    return result
  from transformers.activations import ACT2FN  # pyright: ignore[reportMissingImports]

  function: Callable[[torch.Tensor], torch.Tensor] = ACT2FN[activation]
  return function(result)


def _time_steps(
  dt: torch.Tensor, bias: torch.Tensor | None, softplus: bool, limit: tuple[float, float]
) -> torch.Tensor:
  if bias is not None:
    dt = dt + bias.to(dt.dtype)
  if softplus:
    dt = torch.nn.functional.softplus(dt)
  return torch.clamp(dt, *limit)


def _sums(logarithms: torch.Tensor, dim: int) -> torch.Tensor:
  """The sums of the logarithms of decays up to each token. They are f64, since differences of them
  count, which are small beside the sums."""
  return logarithms.to(torch.float64).cumsum(dim)


def _exp(logarithms: torch.Tensor) -> torch.Tensor:
  return logarithms.to(torch.float32).exp()


def _before(count: Any, device: torch.device, itself: bool) -> torch.Tensor:
  """Which tokens come before each token, as tokens x tokens."""
  at = torch.arange(count, device=device)
  return at[:, None] >= at if itself else at[:, None] > at


def scalar_state_space(
  hidden_states: torch.Tensor,
  dt: torch.Tensor,
  A: torch.Tensor,
  B: torch.Tensor,
  C: torch.Tensor,
  chunk_size: int,
  D: torch.Tensor | None = None,
  dt_bias: torch.Tensor | None = None,
  initial_states: torch.Tensor | None = None,
  dt_softplus: bool = False,
  dt_limit: tuple[float, float] = (0.0, float("inf")),
  return_final_states: bool = False,
  **_others: Any,
) -> Any:
  """The state-space model of Mamba 2, whose decay is a number for each head and token. Tokens are
  rows x tokens x heads x numbers, B and C rows x tokens x groups x numbers of the state."""
  count, heads = hidden_states.shape[1:3]
  x = hidden_states.float().transpose(1, 2)
  steps = _time_steps(dt, dt_bias, dt_softplus, dt_limit).float().transpose(1, 2)
  B, C = (one.float().transpose(1, 2) for one in (B, C))  # rows x groups x tokens x numbers
  each = heads // B.shape[1]
  sums = _sums(steps * A.float()[:, None], -1)
  seen = _before(count, x.device, itself=True)
  decays = _exp((sums[..., :, None] - sums[..., None, :]).masked_fill(~seen, float("-inf")))
  scores = (C @ B.mT).repeat_interleave(each, dim=1, output_size=heads) * decays
  B, C = (one.repeat_interleave(each, dim=1, output_size=heads) for one in (B, C))
  scaled = x * steps[..., None]
  result = scores @ scaled
  last = sums[..., -1:]
  state = (scaled * _exp(last - sums)[..., None]).mT @ B
  if initial_states is not None:
    before = initial_states.float()
    result = result + (C @ before.mT) * _exp(sums)[..., None]
    state = state + before * _exp(last)[..., None]
  if D is not None:
    result = result + x * D[:, None, None]
  result = result.transpose(1, 2).contiguous()
  return (result, state) if return_final_states else result


def diagonal_state_space(
  hidden_states: torch.Tensor,
  dt: torch.Tensor,
  A: torch.Tensor,
  B: torch.Tensor,
  C: torch.Tensor,
  D: torch.Tensor | None = None,
  z: torch.Tensor | None = None,
  delta_bias: torch.Tensor | None = None,
  delta_softplus: bool = False,
  return_last_state: bool = False,
  **_others: Any,
) -> Any:
  """The state-space model of Mamba 1, whose decay is a number for each channel, number of the state
  and token. Tokens are rows x channels x tokens, B and C rows x numbers of the state x tokens. It
  goes on from the state that `give` has noted."""
  bias = None if delta_bias is None else delta_bias[:, None]
  steps = _time_steps(dt, bias, delta_softplus, (0.0, float("inf"))).float()
  B, C = (one.float().mT[:, None] for one in (B, C))
  decay = (steps[..., None] * A.float()[None, :, None]).exp()
  state = steps[..., None] * B * hidden_states.float()[..., None]
  before, count = _state.get(), hidden_states.shape[-1]
  give(None)
  if before is not None:
    is_first = torch.arange(count, device=decay.device)[:, None] == 0
    state = state + torch.where(is_first, decay * before.float()[:, :, None], 0.0)
  # After each turn a state has what twice as many tokens have added.
  reach = 1
  while reach < _MOST["mamba_selective_scan"]:
    state = state + decay * _shifted(state, reach, 0.0)
    decay = decay * _shifted(decay, reach, 1.0)
    reach *= 2
  result = (state * C).sum(-1)
  if D is not None:
    result = result + hidden_states * D[:, None]
  if z is not None:
    result = result * torch.nn.functional.silu(z)
  result = result.to(hidden_states.dtype)
  return (result, state[:, :, -1]) if return_last_state else result


def _shifted(x: torch.Tensor, by: int, fill: float) -> torch.Tensor:
  """Rows x channels x tokens x numbers, of which each token becomes the one `by` places later."""
  padded = torch.nn.functional.pad(x, (0, 0, by, 0), value=fill)
  return padded[:, :, : x.shape[2]]


def gated_delta_rule(
  query: torch.Tensor,
  key: torch.Tensor,
  value: torch.Tensor,
  g: torch.Tensor,
  beta: torch.Tensor,
  chunk_size: int = 64,
  initial_state: torch.Tensor | None = None,
  output_final_state: bool = False,
  use_qk_l2norm_in_kernel: bool = False,
  **_others: Any,
) -> tuple[torch.Tensor, torch.Tensor | None]:
  """Linear attention by the gated delta rule. Tokens are rows x tokens x heads x numbers. `g` has
  the logarithms of the decays, rows x tokens x heads, or with one for each number of a key."""
  dtype, heads = query.dtype, value.shape[2]
  if key.shape[2] != heads:
    each = heads // key.shape[2]
    query, key = (one.repeat_interleave(each, dim=2, output_size=heads) for one in (query, key))
  query, key, value, beta, g = (one.transpose(1, 2).float() for one in (query, key, value, beta, g))
  if use_qk_l2norm_in_kernel:
    query, key = (
      one * torch.rsqrt((one * one).sum(-1, keepdim=True) + 1e-6) for one in (query, key)
    )
  query = query * query.shape[-1] ** -0.5
  sums = _sums(g, 2)
  scaled = key * beta[..., None]
  # Each token writes what its value differs from what the state has at its key. The tokens of the
  # chunk depend on each other in this by a triangular system.
  before, seen = (_before(key.shape[2], key.device, itself) for itself in (False, True))
  system = _products(scaled, key, sums, before)
  scores = _products(query, key, sums, seen)
  if sums.dim() == 3:
    sums = sums[..., None]
  written = value * beta[..., None]
  state = None if initial_state is None else initial_state.float()
  if state is not None:
    written = written - (scaled * _exp(sums)) @ state
  written = _inverse(system) @ written
  result = scores @ written
  last = sums[:, :, -1:]
  final = (key * _exp(last - sums)).mT @ written
  if state is not None:
    result = result + (query * _exp(sums)) @ state
    final = final + state * _exp(last).mT
  return result.transpose(1, 2).contiguous().to(dtype), final if output_final_state else None


def _products(
  left: torch.Tensor, right: torch.Tensor, sums: torch.Tensor, seen: torch.Tensor
) -> torch.Tensor:
  """The products of tokens with the tokens before them, which have decayed meanwhile."""
  if sums.dim() == 3:
    decays = _exp((sums[..., :, None] - sums[..., None, :]).masked_fill(~seen, float("-inf")))
    return left @ right.mT * decays
  decays = (sums[:, :, :, None] - sums[:, :, None]).masked_fill(~seen[..., None], float("-inf"))
  return (left[:, :, :, None] * right[:, :, None] * _exp(decays)).sum(-1)


def _inverse(lower: torch.Tensor) -> torch.Tensor:
  """The inverse of 1 + lower, a matrix with zeros on the diagonal and above it. It comes from the
  inverses of the blocks on the diagonal, whose size doubles each time."""
  count = lower.shape[-1]
  at = torch.arange(count, device=lower.device)
  result = (at[:, None] == at).to(lower.dtype).expand(lower.shape)
  size = 1
  while size < max(_MOST[name] for name in _DELTA_RULES):
    block, other = at // size, at // size % 2
    joins = (block[:, None] == block + 1) & (other[:, None] == 1)
    result = result - result @ torch.where(joins, lower, 0.0) @ result
    size *= 2
  return result


_DELTA_RULES = ("torch_chunk_gated_delta_rule", "chunk_kimi_delta_attention")
# The functions of transformers, and those that replace them.
_FUNCTIONS: dict[str, Callable[..., Any]] = {
  "causal_conv1d_fn": convolution,
  "causal_conv1d_update": convolution_step,
  "mamba2_chunk_scan": scalar_state_space,
  "mamba_selective_scan": diagonal_state_space,
  **dict.fromkeys(_DELTA_RULES, gated_delta_rule),
}
# How many tokens a chunk has at most, since memory or time for one token grow with it.
_MOST = {
  "mamba2_chunk_scan": 256,
  "mamba_selective_scan": 128,
  "torch_chunk_gated_delta_rule": 128,
  "chunk_kimi_delta_attention": 64,
}


def _found(model: torch.nn.Module) -> list[tuple[Any, str]]:
  """The modules of Python, and the functions in them, that a model may call."""
  modules = {type(one).__module__ for one in model.modules()}
  return [
    (sys.modules[module], name)
    for module in sorted(modules)
    for name in _FUNCTIONS
    if module.startswith("transformers.") and hasattr(sys.modules[module], name)
  ]


def most_tokens(model: torch.nn.Module, otherwise: int) -> int:
  """How many tokens of a sequence one call of a model may take."""
  return min((_MOST.get(name, otherwise) for _, name in _found(model)), default=otherwise)


@contextlib.contextmanager
def used_by(model: torch.nn.Module) -> Iterator[None]:
  """Lets a model use the functions of this module while open."""
  found = [(module, name, getattr(module, name)) for module, name in _found(model)]
  try:
    for module, name, _ in found:
      setattr(module, name, _FUNCTIONS[name])
    yield
  finally:
    for module, name, function in found:
      setattr(module, name, function)
