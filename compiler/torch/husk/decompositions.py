"""Operators in terms of others: attention as two products and a softmax, an LSTM as its cells."""

import contextlib

from .errors import Unsupported


def table():
  """{operator: function}."""
  import torch
  return {torch.ops.aten.scaled_dot_product_attention.default: _attention, torch.ops.aten.lstm.input: _lstm}


@contextlib.contextmanager
def one_row():
  """While open, Inductor makes sums of products of one row with a bias too, where it does so with those without
  (config.coordinate_descent_tuning)."""
  import torch
  from torch._inductor import config, decomposition
  from torch._inductor.fx_passes.post_grad import statically_known_true
  op, table = torch.ops.aten.addmm.default, decomposition.decompositions
  before = table[op]

  def addmm(bias, one, other, *args, beta=1, alpha=1, **more):
    if args or more or not config.coordinate_descent_tuning or one.device.type != "cuda" or (
        not statically_known_true(one.shape[0] == 1)):
      return before(bias, one, other, *args, beta=beta, alpha=alpha, **more)
    product = (one.unsqueeze(2) * other.unsqueeze(0)).sum(dim=1)
    product = product if alpha == 1 else product * alpha
    return product if beta == 0 else product + (bias if beta == 1 else bias * beta)

  table[op] = addmm
  decomposition.fast_random_decomps.cache_clear()
  try:
    yield
  finally:
    table[op] = before
    decomposition.fast_random_decomps.cache_clear()


def _attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, *, scale=None, enable_gqa=False):
  import torch
  if dropout_p:
    raise Unsupported(f"attention with dropout ({dropout_p}): export the model in eval mode")
  if enable_gqa:
    key, value = (part.repeat_interleave(query.size(-3) // part.size(-3), -3) for part in (key, value))
  # The root on either side keeps half-precision products in range.
  root = (scale if scale is not None else query.size(-1) ** -0.5) ** 0.5
  scores = (query * root) @ (key * root).transpose(-2, -1)
  if is_causal:
    rows = torch.arange(query.size(-2), device=query.device).unsqueeze(-1)
    columns = torch.arange(key.size(-2), device=query.device)
    scores = torch.where(columns <= rows, scores, float("-inf"))
  if attn_mask is not None:
    scores = torch.where(attn_mask, scores, float("-inf")) if attn_mask.dtype is torch.bool else scores + attn_mask
  return torch.softmax(scores, -1, dtype=torch.float32).to(query.dtype) @ value


def _lstm(input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first):
  """torch's own decomposition gives the last states one dimension too many."""
  import torch
  if dropout and train:
    raise Unsupported(f"an LSTM with dropout ({dropout}): export the model in eval mode")
  values = (input.transpose(0, 1) if batch_first else input).unbind(0)
  directions = 2 if bidirectional else 1
  each = len(params) // (num_layers * directions)     # two weights, two biases, one projection
  last = [], []
  for layer in range(num_layers):
    made = []
    for direction in range(directions):
      place = layer * directions + direction
      weights = params[place * each:(place + 1) * each]
      given = values[::-1] if direction else values
      outputs, hidden, cell = _lstm_layer(given, hx[0][place], hx[1][place], weights, has_biases)
      made.append(outputs[::-1] if direction else outputs)
      last[0].append(hidden)
      last[1].append(cell)
    values = [torch.cat(parts, -1) for parts in zip(*made)] if directions == 2 else made[0]
  output = torch.stack(values)
  return output.transpose(0, 1) if batch_first else output, torch.stack(last[0]), torch.stack(last[1])


def _lstm_layer(values, hidden, cell, weights, has_biases):
  import torch
  from torch.nn.functional import linear
  into, across = weights[:2]
  biases = weights[2:4] if has_biases else (None, None)
  projection = weights[-1] if len(weights) % 2 else None
  outputs = []
  for value in values:
    gates = linear(value, into, biases[0]) + linear(hidden, across, biases[1])
    enter, forget, new, leave = gates.chunk(4, -1)
    cell = torch.sigmoid(forget) * cell + torch.sigmoid(enter) * torch.tanh(new)
    hidden = torch.sigmoid(leave) * torch.tanh(cell)
    hidden = hidden if projection is None else linear(hidden, projection)
    outputs.append(hidden)
  return outputs, hidden, cell
