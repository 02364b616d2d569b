"""What the kernels of husk/rows have to compute, in f64, and memory for their results."""

import torch
from torch.nn import functional as F

ACTIVATIONS = {
  "silu": F.silu,
  "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
  "relu": F.relu,
  "sigmoid": torch.sigmoid,
}


def expected(x, weights, biases, factors=None, norm=False, gate="", added=None):
  """Layers of the same rows `x`, of a norm with the weight `factors` if `norm`, one result after
  another; or the activation `gate` of the first one times the second one; and what is added."""
  h = x.double()
  if norm:
    h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-3)
  if factors is not None:
    h = h * factors.double()
  products = [
    h @ weight.double().t() + (0 if one is None else one.double())
    for weight, one in zip(weights, biases, strict=True)
  ]
  if gate:
    right = ACTIVATIONS[gate](products[0]) * products[1]
  elif len(products) == 1:
    right = products[0]
  else:
    right = torch.cat([each.flatten() for each in products])
  return right if added is None else right + added.double()


def room(shape, dtype):
  """A result that nothing has written, and the memory around it, in which `check` looks."""
  around = torch.full((shape.numel() + 10,), 7.0, dtype=dtype)
  out = around[5:-5].view(shape)
  out.fill_(float("nan"))
  return out, around


def check(around):
  """Nothing beside the result was written."""
  assert (around[:5] == 7).all() and (around[-5:] == 7).all()


def tiles(columns, gate, tile):
  """The tiles of the weights of a launch."""
  if gate:
    return -(-columns[0] // (tile // 2))
  return sum(-(-count // tile) for count in columns)


def padded(values, none=None):
  """The arguments of four weights."""
  return [*values, none, none, none][:4]
