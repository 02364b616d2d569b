"""PyTorch's functions for the activations of husk::linear and husk::convolution, by the names that
files have for them. test_fusion.py compares the names with schema/activations.def."""

import torch
from torch.nn import functional as F

ACTIVATIONS = {
  "none": lambda x: x,
  "relu": F.relu,
  "relu6": F.relu6,
  "hardsigmoid": F.hardsigmoid,
  "hardswish": F.hardswish,
  "sigmoid": torch.sigmoid,
  "silu": F.silu,
  "tanh": torch.tanh,
  "gelu": F.gelu,
  "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
}
