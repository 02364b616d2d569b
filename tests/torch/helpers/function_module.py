"""A module from a function, for tests of single constructs."""

import types

import torch


class FunctionModule(torch.nn.Module):
  """A module whose forward is the function `f(self, ...)`, with buffers. The parameters of forward
  have the names of the parameters of the function."""

  def __init__(self, function, **buffers):
    super().__init__()
    self.forward = types.MethodType(function, self)
    for name, value in buffers.items():
      self.register_buffer(name, value)
