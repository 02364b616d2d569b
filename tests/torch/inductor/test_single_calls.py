"""Programs of which only some calls are decomposed: the others are not traced again."""

import export_and_compare
import husk
import pytest
import torch
from function_module import FunctionModule
from husk.inductor import exported_programs, single_calls


@pytest.fixture
def traced(monkeypatch):
  """The programs that torch decomposes as a whole."""
  programs, before = [], exported_programs.functional

  def functional(exported, wanted):
    programs.append(exported)
    return before(exported, wanted)

  monkeypatch.setattr(exported_programs, "functional", functional)
  return programs


class Cache(torch.nn.Module):
  """`any` of uint8 is decomposed; the write to a state beside it is not."""

  def __init__(self):
    super().__init__()
    self.register_buffer("cache", torch.zeros(2, 8, 4))

  def forward(self, x, rows):
    self.cache[0, rows] = x
    return torch.any(self.cache.to(torch.uint8), 2), self.cache[:, : x.shape[0]] + x


def test_a_program_is_not_traced_again(tmp_path, traced):
  torch.manual_seed(1)
  rows = torch.export.Dim("rows", min=2, max=6)
  args = (torch.randn(3, 4).round(), torch.tensor([4, 1, 7]))
  others = [(torch.randn(5, 4).round(), torch.tensor([2, 0, 3, 5, 1]))]
  shapes = ({0: rows}, {0: rows})
  export_and_compare.run(tmp_path, Cache(), args, shapes, others, artifact=False)
  assert not traced


def test_several_results(tmp_path, traced):
  cell = torch.nn.LSTMCell(3, 5)

  class Cell(torch.nn.Module):
    def __init__(self):
      super().__init__()
      self.cell = cell

    def forward(self, x, h, c):
      return self.cell(x, (h, c))

  args = (torch.randn(2, 3), torch.randn(2, 5), torch.randn(2, 5))
  export_and_compare.run(tmp_path, Cell(), args)
  assert not traced


def test_a_list_among_several_results(tmp_path):
  def function(self, x):
    counts, edges = torch.histogramdd(x, [2, 3])
    return counts, edges[1]

  x = torch.randn(7, 2)
  export_and_compare.run(tmp_path, function, (x,))
  hir = husk.write(FunctionModule(function), (x,), tmp_path / "cuda", targets=("cuda:h200",))
  assert "_histogramdd" in hir.read_text()


@pytest.mark.parametrize(
  "decomposition",
  [
    lambda x: torch.clamp(x.t().contiguous(), min=0).t(),  # other strides
    lambda x: torch.clamp(x, min=0).double(),
    lambda x: torch.clamp(x, min=0)[None],
    lambda x: x,  # what writes to the result would write to x
    lambda x: torch.clamp(x, min=0) + torch.tensor(0.0),
    lambda x: torch.nonexistent(x),
  ],
)
def test_other_nodes_must_stay_as_they_are(decomposition):
  program = torch.export.export(FunctionModule(lambda self, x: x.relu() + 1), (torch.randn(3, 4),))
  wanted = {torch.ops.aten.relu.default: decomposition}
  assert single_calls.decomposed(program, wanted) is None


def test_decompositions_of_decompositions():
  aten, x = torch.ops.aten, torch.randn(3, 4)
  program = torch.export.export(FunctionModule(lambda self, x: x.relu() + 1), (x,))
  wanted = {
    aten.relu.default: lambda x: torch.clamp_min(x, 0),
    aten.clamp_min.default: lambda x, low: torch.where(x < low, low, torch.sigmoid(x) * 0 + x),
    aten.sigmoid.default: lambda x: NotImplemented,
  }
  found = single_calls.decomposed(program, wanted)
  names = {node.target for node in found.graph.nodes}
  assert aten.sigmoid.default in names and names.isdisjoint(list(wanted)[:2])
  torch.testing.assert_close(found.module()(x), x.relu() + 1)
  assert aten.relu.default in {node.target for node in program.graph.nodes}  # which is a copy
  assert single_calls.decomposed(program, wanted, in_place=True) is program


def test_an_operator_that_writes_is_decomposed_like_its_other_form(tmp_path, traced):
  def scattered(self, x, index):
    z = torch.scatter(x, 0, index, x, reduce="add")
    return z, x.clone().scatter_(0, index, z, reduce="multiply")

  args = (torch.randn(3, 4, dtype=torch.complex64), torch.tensor([[0, 2, 1, 1]]))
  export_and_compare.run(tmp_path, scattered, args, artifact=False)
  assert traced
