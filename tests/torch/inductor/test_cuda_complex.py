"""Complex numbers and Fourier transforms are exported for CUDA targets, and run by Triton's
interpreter."""

import re

import husk
import pytest
import torch
from cuda_numerics import computed
from function_module import FunctionModule


def check(function, x, folder, others=(), shapes=None, **buffers):
  """Exports a function of a tensor, runs it with `x` and with `others`, and compares."""
  model = FunctionModule(function, **buffers)
  runs = [{"x": tensor} for tensor in (x, *others)]
  for run, result in zip(runs, computed(model, (x,), shapes, runs, folder), strict=True):
    expected = torch.utils._pytree.tree_leaves(model(run["x"]))
    for one, other in zip(result.values(), expected, strict=True):
      torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
  assert "extern" not in (folder / "model.hir").read_text()


def test_transforms_of_a_batch_that_varies(tmp_path):
  torch.manual_seed(5)

  def function(self, x):
    spectrum = torch.stft(x, 80, 20, window=self.window, center=False, return_complex=True)
    return torch.log(spectrum.abs() ** 2 + 1), torch.fft.fft(x[:, :72]).real

  others = [torch.randn(5, 200), torch.randn(1, 200)]
  shapes = {"x": {0: torch.export.Dim("batch", max=8)}}
  check(function, torch.randn(2, 200), tmp_path, others, shapes, window=torch.hann_window(80))


def test_rotary_embedding_with_a_complex_buffer_and_state(tmp_path):
  torch.manual_seed(5)

  def function(self, x):
    z = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
    self.state[0] = self.state[1] * 2j
    self.state += z[:, 0]
    return torch.view_as_real(z * self.frequencies[: x.shape[1]]).flatten(-2), self.state.abs()

  frequencies = torch.polar(torch.ones(9, 4), torch.randn(9, 4))
  buffers = {"frequencies": frequencies, "state": torch.ones(2, 4, dtype=torch.complex64)}
  check(function, torch.randn(2, 6, 8), tmp_path, [torch.randn(2, 6, 8)], **buffers)


def test_complex_inputs_and_outputs(tmp_path):
  torch.manual_seed(5)

  def function(self, x):
    return torch.exp(x) * 1j, torch.fft.fft(x.to(torch.complex128)), x

  check(function, torch.randn(5, 7, dtype=torch.complex64), tmp_path)


def test_an_operator_of_the_application(tmp_path):
  class Model(torch.nn.Module):
    def forward(self, x):
      return torch.linalg.eigvals(x * 1j).abs()

  arguments = {"targets": ["cuda:h200"], "progress": False}
  args = (torch.randn(3, 3),)
  with pytest.raises(husk.Unsupported, match="no implementation of aten::linalg_eig"):
    husk.write(Model(), args, tmp_path, host_ops="forbid", **arguments)
  husk.write(Model(), args, tmp_path, ops=["aten::linalg_eig"], **arguments)
  text = (tmp_path / "model.hir").read_text()
  assert re.search(r'extern "aten::linalg_eig" \(read tensor \w+ c64 \[3, 3\]', text), text
