"""A module from a function, for tests of single constructs."""

import types

import torch


class Of(torch.nn.Module):
  """A module whose forward is a function `f(self, ...)`, with buffers; its parameters have the function's names."""

  def __init__(self, function, **buffers):
    super().__init__()
    self.forward = types.MethodType(function, self)
    for name, value in buffers.items():
      self.register_buffer(name, value)
