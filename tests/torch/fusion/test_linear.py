"""Linear layers of host targets: which operators become one step, and that results equal eager."""

import re

import export_and_compare
import pytest
import torch
from torch import nn
from torch.export import Dim
from torch.nn import functional as F

X = torch.randn(2, 3, 8)


class Layer(nn.Module):
  """A linear layer, and a function of it and of the input."""

  def __init__(self, function, bias=True, dtype=torch.float32):
    super().__init__()
    self.linear = nn.Linear(8, 8, bias=bias, dtype=dtype)
    self.function = function

  def forward(self, x):
    return self.function(self.linear, x)


def calls(folder, function, *options, x=X, **more):
  """The activations and residuals ("+") of the steps of a layer; other steps by their kind."""
  shapes = {"x": {0: Dim("batch", min=1, max=9)}}
  text = export_and_compare.run(folder, Layer(function, *options, **more), (x,), shapes, [(x[:1],)])
  steps = []
  for kind, rest in re.findall(r"^ *(extern|launch) (.*)$", text, re.M):
    if rest.startswith('"husk::linear"'):
      activation = re.search(r', "(\w+)", write', rest).group(1)
      steps.append(activation + (" +" if _has_residual(rest) else ""))
    else:
      steps.append(kind)
  return steps


def _has_residual(rest):
  """Whether a call of husk::linear has its fourth argument."""
  arguments = re.findall(r"none|read tensor \S+ \w+ \[[^]]*\] \[[^]]*\](?: offset \S+)?", rest)
  return arguments[3] != "none"


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
  "function, steps",
  [
    (lambda f, x: f(x), ["none"]),
    (lambda f, x: torch.relu(f(x)), ["relu"]),
    (lambda f, x: F.relu(f(x), inplace=True), ["relu"]),
    (lambda f, x: F.gelu(f(x)), ["gelu"]),
    (lambda f, x: F.gelu(f(x), approximate="tanh"), ["gelu_tanh"]),
    (lambda f, x: F.silu(f(x)), ["silu"]),
    (lambda f, x: torch.sigmoid(f(x)), ["sigmoid"]),
    (lambda f, x: torch.tanh(f(x)), ["tanh"]),
    (lambda f, x: x + f(x), ["none +"]),
    (lambda f, x: f(x) + x, ["none +"]),
    (lambda f, x: x + F.gelu(f(x)), ["gelu +"]),
    (lambda f, x: f(F.silu(f(x))) + x, ["silu", "none +"]),
  ],
)
def test_one_step(tmp_path, function, steps, bias):
  assert calls(tmp_path, function, bias) == steps


@pytest.mark.parametrize(
  "function, steps",
  [
    # Other users of the product, a residual of another shape, a factor, the product itself.
    (lambda f, x: (y := f(x)) * F.gelu(y), ["none", "launch"]),
    (lambda f, x: f(x) + x[:1], ["none", "launch"]),
    (lambda f, x: torch.add(x, f(x), alpha=2), ["none", "launch"]),
    (lambda f, x: (y := f(x)) + y, ["none", "launch"]),
    (lambda f, x: f(x) + 1, ["none", "launch"]),
    # gelu after the residual.
    (lambda f, x: F.gelu(x + f(x)), ["none +", "launch"]),
  ],
)
def test_what_stays_a_step_of_its_own(tmp_path, function, steps):
  assert calls(tmp_path, function) == steps


def test_a_residual_that_is_written_before_it_is_added(tmp_path):
  """The layer reads its input before the input is written, so the sum is a step of its own."""

  def function(linear, x):
    x = x + 1
    y = linear(x)
    x.mul_(2)
    return y + x

  assert "none +" not in calls(tmp_path, function)


def test_a_bias_that_a_norm_writes(tmp_path):
  """The bias is the mean of a norm that trains before the activation."""
  buffers = {"weight": torch.randn(8, 8), "mean": torch.zeros(8), "var": torch.ones(8)}

  def function(self, x):
    y = F.linear(x, self.weight, self.mean)
    z = F.batch_norm(x + 3, self.mean, self.var, training=True, momentum=0.5)
    return F.relu(y), z

  text = export_and_compare.run(tmp_path, function, (torch.randn(5, 8),), buffers=buffers)
  assert '"husk::linear"' in text and '"relu"' not in text


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_other_dtypes(tmp_path, dtype):
  class Plain(nn.Module):
    def __init__(self):
      super().__init__()
      self.linear = nn.Linear(8, 8, dtype=dtype)

    def forward(self, x):
      return (x + F.gelu(self.linear(x))).float().round(decimals=1)

  text = export_and_compare.run(tmp_path, Plain(), (torch.ones(4, 8, dtype=dtype),))
  assert '"husk::linear"' in text


def test_inputs_of_any_rank_and_layout(tmp_path):
  class Plain(nn.Module):
    def __init__(self):
      super().__init__()
      self.linear = nn.Linear(4, 5)

    def forward(self, x, y):
      return (
        self.linear(x),
        self.linear(x[0, 0]),
        self.linear(y.transpose(1, 2)),
        self.linear(x[0, 0, 0]),
      )

  text = export_and_compare.run(tmp_path, Plain(), (torch.randn(2, 3, 6, 4), torch.randn(2, 4, 3)))
  assert text.count('"husk::linear"') == 3


def test_a_layer_in_a_branch(tmp_path):
  class Plain(nn.Module):
    def __init__(self):
      super().__init__()
      self.linear = nn.Linear(8, 8)

    def forward(self, x):
      return torch.cond(
        x.sum() > 0, lambda x: F.relu(self.linear(x)), lambda x: self.linear(x) + x, (x,)
      )

  x = torch.randn(3, 8)
  text = export_and_compare.run(tmp_path, Plain(), (x,), None, [(-x,)])
  assert text.count('"husk::linear"') == 2
