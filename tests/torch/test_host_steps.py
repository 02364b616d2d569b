"""Operators that only hosts have, in programs for CUDA targets: steps on the CPU between copies.
Programs with kernels run by Triton's interpreter, others on the fake driver."""

import re

import husk
import pytest
import torch
from function_module import FunctionModule
from husk import hir
from husk.lower import host_steps
from test_cuda_numerics import computed

DIM = torch.export.Dim


def check(function, args, folder, shapes=None, others=(), tolerance=1e-4, **buffers):
  """Exports a function of tensors, runs it by the interpreter with `args` and with `others`, and
  compares; returns the text of the program."""
  model = FunctionModule(function, **buffers)
  names = function.__code__.co_varnames[1 : 1 + len(args)]
  runs = [dict(zip(names, given)) for given in (args, *others)]
  for given, result in zip(runs, computed(model, args, shapes, runs, folder)):
    expected = torch.utils._pytree.tree_leaves(model(*given.values()))
    for one, other in zip(result.values(), expected, strict=True):
      torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)
  return (folder / "model.hir").read_text()


def written(function, args, folder, **options):
  model = function if isinstance(function, torch.nn.Module) else FunctionModule(function)
  return husk.write(model, args, folder, targets=["cuda:h200"], **options).read_text()


def regular(*sizes):
  """Matrices that have an inverse."""
  return torch.randn(*sizes) + 4 * torch.eye(sizes[-1])


def copies(text):
  """The destination and the source of each copy."""
  found = re.findall(r"copy \(write ([^,\[]+)(?:\[.*?\])?, read ([^,)\[]+)", text)
  return [tuple(pair) for pair in found]


# Where memory lies


def test_kernels_and_host_steps(tmp_path):
  torch.manual_seed(3)

  def function(self, x):
    inverse = torch.linalg.inv((x * 2).relu() + 5 * torch.eye(4))
    return (inverse + 1).sin()

  text = check(function, (torch.randn(3, 4, 4),), tmp_path)
  assert text.count("launch") == 2
  assert copies(text) == [("buf0_on_host", "buf0"), ("output", "output_on_host")]
  # No other step uses the second result of the operator.
  assert "buffer buf3 bytes 12 align 64 on host" in text


def test_sizes_that_vary(tmp_path):
  torch.manual_seed(3)

  def function(self, x):
    return torch.linalg.inv(x + 1) * 2, torch.linalg.det(x.transpose(1, 2))

  n = DIM("n", min=1, max=9)
  shapes = {"x": {0: DIM("batch", min=1, max=8), 1: n, 2: n}}
  others = [(regular(batch, n, n),) for batch, n in ((1, 1), (8, 9), (2, 1), (1, 5))]
  text = check(function, (regular(3, 4, 4),), tmp_path, shapes, others)
  assert "min(" not in text  # the bytes of dense tensors are a product


def test_a_chain_passes_its_results_on_the_host(tmp_path):
  torch.manual_seed(3)

  def function(self, x, y):
    inverse = torch.linalg.inv(x)
    solved = torch.linalg.solve(inverse, y)
    return torch.linalg.det(solved)

  text = check(function, (regular(4, 4), regular(4, 4)), tmp_path)
  assert copies(text) == [("x_on_host", "x"), ("y_on_host", "y"), ("output", "output_on_host")]


def test_a_copy_on_the_host_that_is_current_serves_several_steps(tmp_path):
  torch.manual_seed(3)

  def function(self, x):
    twice = x * 2
    inverse = torch.linalg.inv(twice)
    return inverse + 1, torch.linalg.det(inverse), torch.linalg.det(twice)

  text = check(function, (regular(4, 4),), tmp_path)
  downloads = [pair for pair in copies(text) if pair[0].endswith("_on_host")]
  assert downloads == [("buf0_on_host", "buf0")]


def test_constants(tmp_path):
  torch.manual_seed(3)

  def function(self, x):
    return torch.linalg.solve(self.weight, x + 1) * 2

  text = check(function, (torch.randn(4, 2),), tmp_path, weight=regular(4, 4))
  assert ("weight_on_host", "weight") in copies(text)


def test_tensors_that_are_not_dense(tmp_path):
  torch.manual_seed(3)

  def function(self, x):
    return torch.linalg.inv(x[:, 1:5, ::2]) * 2

  others = [(regular(3, 8, 8),)]
  shapes = {"x": {0: DIM("batch", min=1, max=8)}}
  check(function, (torch.randn(2, 8, 8),), tmp_path, shapes, others, tolerance=1e-3)


def test_sizes_that_the_data_decides(tmp_path):
  def function(self, x):
    rows, _, _ = torch.unique(x * 2, dim=0, return_inverse=True, return_counts=True)
    return rows + 1

  args = (torch.tensor([[1.0, 2], [3, 4], [1, 2]]),)
  text = check(function, args, tmp_path, others=[(torch.zeros(3, 2),), (torch.randn(3, 2),)])
  assert text.index("aten::unique_dim:sizes") < text.index('"aten::unique_dim"')
  downloads = [pair for pair in copies(text) if pair[0].endswith("_on_host")]
  assert downloads == [("buf0_on_host", "buf0")]  # both calls read one copy


def test_a_state_that_a_host_step_reads(tmp_path):
  def function(self, x):
    self.total.add_(x)
    return torch.linalg.det(self.total)

  model = FunctionModule(function, total=torch.eye(3))
  runs = [{"x": regular(3, 3)} for _ in range(3)]
  total = torch.eye(3)
  for given, result in zip(runs, computed(model, (runs[0]["x"],), None, runs, tmp_path)):
    total = total + given["x"]
    torch.testing.assert_close(result["output"], torch.linalg.det(total), rtol=1e-4, atol=1e-4)


def test_branches_and_loops(tmp_path):
  torch.manual_seed(3)

  def function(self, x):
    def body(i, x):
      return i + 1, torch.linalg.inv(x).contiguous() + torch.eye(3)

    start = torch.zeros((), dtype=torch.int64)
    _, looped = torch.while_loop(lambda i, x: i < 3, body, (start, x * 1))
    chosen = torch.cond(
      x.sum() > 0, lambda x: torch.linalg.inv(x) * 2, lambda x: torch.linalg.inv(-x), (x,)
    )
    return looped, chosen, torch.linalg.inv(x) + 1

  check(function, (regular(3, 3),), tmp_path, others=[(-regular(3, 3),)], tolerance=1e-3)
