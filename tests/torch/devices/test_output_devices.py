"""The device of outputs: what a program with tensors on a GPU returns on the CPU stays there."""

import torch
from cuda_numerics import computed
from function_module import FunctionModule
from torch._higher_order_ops.while_loop import while_loop
from torch._subclasses import FakeTensorMode


def forward(self, x):
  i = torch.zeros((), dtype=torch.int64)
  i, y = while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y + x), (i, x * 2))
  part = y.cpu()
  return i, y, y.sum().cpu(), (y * 2).to("cpu"), torch.arange(3), part[:2] + 1, part[1:], x


ON_GPU = (1, 7)


def exported(device):
  """The program, traced with tensors of a device that need not be there."""
  with FakeTensorMode(), torch.no_grad():
    x = torch.empty(4, device=device)
    return torch.export.export(FunctionModule(forward), (x,), strict=False)


def results(device, folder):
  x = torch.tensor([1.0, 2.0, 3.0, 4.0])
  program = exported(device)
  (result,) = computed(program, (), None, [{"x": x}], folder, tune="none")
  with torch.no_grad():
    expected = forward(None, x)
  for one, other in zip(result.values(), expected, strict=True):
    assert torch.equal(one, other)
  text = (folder / "model.hir").read_text()
  lines = [line for line in text.splitlines() if line.strip().startswith("buffer output")]
  return {line.split()[1]: line.endswith(" on host") for line in lines}


def test_outputs_on_the_cpu_stay_there(tmp_path):
  on_host = results("cuda", tmp_path)
  assert on_host == {f"output{n}": n not in ON_GPU for n in range(8)}


def test_a_program_of_the_cpu_is_moved_as_a_whole(tmp_path):
  on_host = results("cpu", tmp_path)
  assert not any(on_host.values()) and len(on_host) == 8
