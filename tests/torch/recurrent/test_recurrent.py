"""Recurrent layers on CUDA targets: one kernel for all steps, run by Triton's interpreter and
compared with eager mode."""

import pytest
import torch
from cuda_numerics import computed
from husk.recurrent import operator
from torch import nn
from torch.export import Dim

KINDS = ["LSTM", "GRU", "RNN"]
FORMS = {
  "plain": {},
  "batch first": {"batch_first": True},
  "both directions": {"bidirectional": True, "num_layers": 2},
  "without biases": {"bias": False, "num_layers": 2},
}


class Network(nn.Module):
  """`given` says whether the states before the first step are arguments."""

  def __init__(self, kind, size, given=False, **options):
    super().__init__()
    self.net, self.given = getattr(nn, kind)(3, size, **options), given
    self.several = kind == "LSTM"

  def forward(self, x, hidden=None, cell=None):
    states = (hidden, cell) if self.several else hidden
    output, states = self.net(x, states if self.given else None)
    return {"output": output, "hidden": states[0] if self.several else states} | (
      {"cell": states[1]} if self.several else {}
    )


def check(folder, model, calls, shapes=None, launches=1, tolerance=1e-5):
  results = computed(model.eval(), tuple(calls[0].values()), shapes, calls, folder)
  text = (folder / "model.hir").read_text()
  assert "extern" not in text
  kernels = [line.split()[1] for line in text.splitlines() if line.strip().startswith("launch ")]
  assert sum("_f32_" in one or "_f16_" in one for one in kernels) == launches, kernels
  for call, result in zip(calls, results, strict=True):
    with torch.no_grad():
      expected = model(**call)
    for found, value in zip(result.values(), expected.values(), strict=True):
      torch.testing.assert_close(found, value, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", FORMS)
def test_forms(kind, form, tmp_path):
  torch.manual_seed(0)
  options = FORMS[form]
  launches = options.get("num_layers", 1) * (1 + options.get("bidirectional", False))
  model = Network(kind, 5, **options)
  check(tmp_path, model, [{"x": torch.randn(4, 3, 3)}], launches=launches)


@pytest.mark.parametrize("kind", KINDS)
def test_states_are_given_and_the_batch_varies(kind, tmp_path):
  torch.manual_seed(0)
  model = Network(kind, 7, given=True)
  names = ("hidden", "cell") if kind == "LSTM" else ("hidden",)
  calls = [
    {"x": torch.randn(3, n, 3), **{name: torch.randn(1, n, 7) for name in names}} for n in (2, 1, 5)
  ]
  batch = Dim("batch", min=1, max=8)
  shapes = {"x": {1: batch}} | {name: {1: batch} for name in names}
  check(tmp_path, model, calls, shapes)


@pytest.mark.parametrize("size", [1, 16, 70, 130])
def test_sizes(size, tmp_path):
  """One block of elements or several, with and without a rest."""
  torch.manual_seed(0)
  check(tmp_path, Network("LSTM", size), [{"x": torch.randn(3, 2, 3)}])


@pytest.mark.parametrize("kind", KINDS)
def test_the_number_of_steps_varies(kind, tmp_path):
  torch.manual_seed(0)
  calls = [{"x": torch.randn(n, 2, 3)} for n in (4, 1, 9)]
  shapes = {"x": {0: Dim("steps", min=1, max=16)}}
  check(tmp_path, Network(kind, 5, bidirectional=True), calls, shapes, launches=2)


def test_relu(tmp_path):
  torch.manual_seed(0)
  model, x = Network("RNN", 6, nonlinearity="relu"), torch.randn(4, 2, 3)
  x[0, 0, 0] = float("nan")
  with torch.no_grad():
    expected = model(x)
  (result,) = computed(model.eval(), (x,), None, [{"x": x}], tmp_path)
  torch.testing.assert_close(result["output"], expected["output"], equal_nan=True)


def test_halves(tmp_path):
  torch.manual_seed(0)
  model = Network("GRU", 20).half()
  check(tmp_path, model, [{"x": torch.randn(5, 2, 3).half()}], tolerance=2e-3)


def test_many_batches(tmp_path):
  """Programs compute several batches each if there are more than multiprocessors."""
  torch.manual_seed(0)
  check(tmp_path, Network("GRU", 4), [{"x": torch.randn(2, 301, 3)}])


def test_tanh_near_zero():
  """The kernel's tanh has a relative error of few roundings everywhere."""
  x = torch.logspace(-6, 1.2, 4000)
  power = torch.exp(-2 * x)
  far, square = (1 - power) / (1 + power), x * x
  near = torch.full_like(x, 62 / 2835)
  for term in (-17 / 315, 2 / 15, -1 / 3):
    near = near * square + term
  near = x + x * square * near
  found = torch.where(square < 0.0625, near, far)
  exact = torch.tanh(x.double())
  assert float(((found - exact) / exact).abs().max()) < 4e-7


def programs(model, *args, devices=(operator.CUDA,)):
  exported = torch.export.export(model.eval(), args)
  nodes = operator.rewrite(exported, devices).graph.nodes
  return [node for node in nodes if node.target is operator.network()]


def test_what_stays(monkeypatch):
  """Networks that the kernel does not compute, or would compute slower. torch.export takes seconds
  for as many steps as are many, so that fewer ones stand for them."""
  x = torch.randn(4, 2, 3)
  assert len(programs(Network("LSTM", 8), x)) == 1
  assert not programs(Network("LSTM", 8, proj_size=4), x)
  assert not programs(Network("LSTM", 8).double(), x.double())
  assert not programs(Network("GRU", 512), x)
  assert len(programs(Network("LSTM", 512), x)) == 1
  assert operator._FEW_STEPS == 512
  monkeypatch.setattr(operator, "_FEW_STEPS", 6)
  assert not programs(Network("GRU", 512), torch.randn(6, 2, 3))
  assert len(programs(Network("GRU", 512), torch.randn(7, 2, 3))) == 1


@pytest.mark.parametrize("change", ["before = states", "tl.sigmoid(x_1 + h_1) * kept", "k < SIZE"])
def test_mistakes_are_detected(change, tmp_path, monkeypatch):
  """A kernel that reads another step, leaves out a gate or reads beyond a row differs."""
  from husk.recurrent import node

  mistakes = {
    "before = states": ("(step + 1 if REVERSE else step)", "(step + 2 if REVERSE else 0)"),
    "tl.sigmoid(x_1 + h_1) * kept": ("tl.sigmoid(x_1 + h_1) * kept", "tl.sigmoid(x_1) * kept"),
    "k < SIZE": ("(k < SIZE)[None, :]", "(k >= 0)[None, :]"),
  }
  text = node._FILE.read_text()
  mistaken = tmp_path / "kernel.py"
  mistaken.write_text(text.replace(*mistakes[change]))
  assert mistaken.read_text() != text
  monkeypatch.setattr(node, "_FILE", mistaken)
  torch.manual_seed(0)
  (tmp_path / "model").mkdir()
  with pytest.raises(AssertionError):
    check(tmp_path / "model", Network("LSTM", 5), [{"x": torch.randn(4, 3, 3)}])


def test_what_hosts_compute():
  x, hosts = torch.randn(4, 2, 3), (operator.HOSTS,)
  assert len(programs(Network("GRU", 512), x, devices=hosts)) == 1
  assert not programs(Network("LSTM", 8), x, devices=hosts)
  assert not programs(Network("GRU", 8).half(), x.half(), devices=hosts)
  both = (operator.HOSTS, operator.CUDA)
  assert len(programs(Network("GRU", 8), x, devices=both)) == 1
  assert not programs(Network("GRU", 512), x, devices=both)
  assert not programs(Network("GRU", 8), x, devices=(operator.CUDA, None))
