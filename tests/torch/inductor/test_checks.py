"""Checks of booleans that the data decides."""

import husk
import pytest
import torch
from export_and_compare import ISAS


class OfABoolean(torch.nn.Module):
  def forward(self, x):
    torch._check((x > -100).all().item(), lambda: "all are large")
    return x * 2


class OfATensor(torch.nn.Module):
  def forward(self, x):
    torch._check_tensor_all(x > -100)
    return x * 2


class OfSizesInATensor(torch.nn.Module):
  """As models that detect objects check the sizes of their feature maps."""

  def forward(self, x):
    sizes = torch.tensor([[2, 3], [4, 1]], device=x.device)
    torch._check_tensor_all((sizes[:, 0] * sizes[:, 1]).sum() == x.shape[0])
    return x * 2


@pytest.mark.parametrize("model", (OfABoolean, OfATensor, OfSizesInATensor))
def test_checks(tmp_path, model):
  path, x = tmp_path / "checked.husk", torch.randn(10)
  husk.export(model(), (x,), path, targets=(f"host:{ISAS[0]}", "cuda:h200"))
  program = husk.load(path)
  assert torch.equal(program(x), 2 * x)
  if model is not OfSizesInATensor:
    with pytest.raises(husk.Error, match=r"a check of the model failed \(test_checks.py:\d+ torch"):
      program(x - 200)
    assert torch.equal(program(x), 2 * x)
