"""Scans of a length that varies, and models of transformers that scan."""

import sys
import types

import husk
import pytest
import torch
from cuda_numerics import computed
from export_and_compare import ISAS
from function_module import FunctionModule
from husk.inductor import scans
from torch._higher_order_ops.associative_scan import associative_scan
from torch.export import Dim

LOOPS = "transformers.models.looping.modeling_looping"


def joined(left, right):
  return left[0] * right[0], right[0] * left[1] + right[1]


def states(decay, added, dim=1, reverse=False):
  """The states of a recurrence, by a scan."""
  pairs = (decay, added)
  return associative_scan(joined, pairs, dim=dim, reverse=reverse, combine_mode="generic")[1]


def states_by_a_loop(decay, added):
  state, found = torch.zeros_like(added[:, 0]), []
  for place in range(added.shape[1]):
    state = decay[:, place] * state + added[:, place]
    found.append(state)
  return torch.stack(found, 1)


def pairs(length):
  return torch.rand(2, length, 3), torch.randn(2, length, 3)


def loads_and_compares(path, model, lengths):
  program = husk.load(path)
  for length in lengths:
    decay, added = pairs(length)
    found = torch.as_tensor(program(decay, added))
    torch.testing.assert_close(found, model(decay, added), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("reverse", [False, True])
def test_a_scan_runs_at_other_lengths(tmp_path, reverse):
  model = FunctionModule(lambda self, decay, added: states(decay, added, reverse=reverse))
  length = Dim("length", min=1, max=20)
  path = husk.export(
    model,
    pairs(8),
    tmp_path / "scan.husk",
    dynamic_shapes={"decay": {1: length}, "added": {1: length}},
    targets=(f"host:{ISAS[0]}",),
    progress=False,
  )
  loads_and_compares(path, model, (8, 1, 2, 3, 16, 17, 20))


def test_a_scan_without_a_bound_runs_at_other_lengths(tmp_path):
  model = FunctionModule(lambda self, decay, added: states(decay, added))
  shapes = {"decay": {1: Dim.AUTO}, "added": {1: Dim.AUTO}}
  path = husk.export(
    model,
    pairs(8),
    tmp_path / "scan.husk",
    dynamic_shapes=shapes,
    targets=(f"host:{ISAS[0]}",),
    progress=False,
  )
  loads_and_compares(path, model, (8, 3, 300))


def test_a_scan_runs_at_other_lengths_on_a_gpu(tmp_path):
  model = FunctionModule(lambda self, decay, added: states(decay, added))
  length = Dim("length", min=1, max=16)
  shapes = {"decay": {1: length}, "added": {1: length}}
  runs = [dict(zip(("decay", "added"), pairs(length))) for length in (5, 1, 16)]
  results = computed(model, pairs(5), shapes, runs, tmp_path)
  for arguments, result in zip(runs, results, strict=True):
    (found,) = result.values()
    torch.testing.assert_close(found, model(**arguments), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("length", [1, 2, 7, 16])
def test_a_doubled_scan_is_a_loop(length):
  decay, added = pairs(length)
  leaves = [decay.transpose(0, 1), added.transpose(0, 1)]
  _, found = scans.doubled(lambda a, b, c, d: joined((a, b), (c, d)), leaves)
  torch.testing.assert_close(found.transpose(0, 1), states_by_a_loop(decay, added))


class Looping(torch.nn.Module):
  """Computes states by a loop while torch.export traces it, as transformers does."""

  def forward(self, decay, added):
    library = sys.modules[LOOPS]
    if torch.compiler.is_compiling() and not library.is_torchdynamo_exporting():
      return states(decay, added)
    return states_by_a_loop(decay, added)


@pytest.fixture
def library(monkeypatch):
  """Stands in for transformers."""

  def exporting():
    return torch.compiler.is_exporting()

  exporting.__module__ = "transformers.utils.import_utils"
  exporting.__qualname__ = "is_torchdynamo_exporting"
  module = types.ModuleType(LOOPS)
  module.is_torchdynamo_exporting = exporting
  module.mamba_selective_scan = states
  monkeypatch.setitem(sys.modules, LOOPS, module)
  monkeypatch.setattr(Looping, "__module__", LOOPS)
  return module


def test_a_model_of_transformers_scans(tmp_path, library):
  exporting = library.is_torchdynamo_exporting
  length = Dim("length", min=1, max=40)
  model = Looping()
  path = husk.export(
    model,
    pairs(8),
    tmp_path / "looping.husk",
    dynamic_shapes={"decay": {1: length}, "added": {1: length}},
    targets=(f"host:{ISAS[0]}",),
    progress=False,
  )
  assert library.is_torchdynamo_exporting is exporting
  loads_and_compares(path, model, (8, 1, 2, 33))


def test_a_model_on_a_gpu_keeps_its_loops(library):
  model = Looping()
  model.register_parameter("weight", torch.nn.Parameter(torch.zeros(2, device="meta")))
  exporting = library.is_torchdynamo_exporting
  with scans.traced(model):
    assert library.is_torchdynamo_exporting is exporting
