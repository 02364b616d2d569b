"""A third device, added as ports/ADD-A-DEVICE.md says: its programs run, and give what
eager PyTorch gives. Device memory is no memory of the host there, so a step of the runtime or of an
operator that confuses the two crashes."""

import subprocess

import built_tools
import husk
import models
import pytest
import safetensors.torch
import torch
from function_module import FunctionModule
from husk import checked, devices
from husk.__main__ import main
from husk.host import image
from toy_device import CheckedToy, Toy

ISA = next(iter(image.isas()), "")
pytestmark = pytest.mark.skipif(not ISA, reason="this CPU has no instruction set of the exporter")
DIM = torch.export.Dim


def module(function, *args, shapes=None, **buffers):
  return FunctionModule(function, **buffers), args, shapes


def control(self, x):
  return torch.cond(x.sum() > 0, lambda y: y.sin() + 1, lambda y: y.cos() * 2, (x,))


def cached(self, x):
  self.total.add_(x.sum(0))
  return self.total * 2


ROWS = DIM("rows", min=1, max=64)
SMALL_MODELS = {
  "sum": models.sum_of_two,
  "mlp": models.mlp,
  "branches": models.branches,
  "block": lambda: (models.Block(32, 4).eval(), (torch.randn(2, 7, 32),), {"x": {1: ROWS}}),
  "convolution": lambda: module(
    lambda self, x: torch.nn.functional.conv2d(x, self.w, padding=1).relu(),
    torch.randn(1, 3, 8, 8),
    w=torch.randn(4, 3, 3, 3),
  ),
  "normalised": lambda: module(
    lambda self, x: torch.nn.functional.batch_norm(x, self.mean, self.var).exp(),
    torch.randn(4, 5),
    mean=torch.randn(5),
    var=torch.rand(5) + 1,
  ),
  "sorted": lambda: module(lambda self, x: x.mul(3).topk(4).values + 1, torch.randn(6, 16)),
  "indexed": lambda: module(
    lambda self, x, i: self.table[i] * x.unsqueeze(-1),
    torch.randn(5),
    torch.tensor([2, 0, 7, 7, 3]),
    table=torch.randn(8, 6),
  ),
  "control": lambda: module(control, torch.randn(3, 4), shapes={"x": {0: ROWS}}),
  "cached": lambda: module(cached, torch.randn(3, 4), total=torch.zeros(4)),
}


@pytest.fixture(scope="module")
def artifact(tmp_path_factory):
  """The models as functions of one artifact, and the functions by name."""
  path = tmp_path_factory.mktemp("toy") / "models.husk"
  functions = {}
  for name, build in SMALL_MODELS.items():
    torch.manual_seed(0)
    model, args, shapes = build()
    functions[name] = husk.Function(model, args, dynamic_shapes=shapes)
  with pytest.MonkeyPatch.context() as patch:
    patch.setitem(devices.DEVICES, "toy", Toy)
    husk.export(functions, path, targets=(f"toy:{ISA}",))
  return path, functions


@pytest.mark.parametrize("name", SMALL_MODELS)
def test_small_model(artifact, name, tmp_path):
  path, functions = artifact
  function = functions[name]
  names = [value.name for value in husk.inspect(path).functions[name].inputs]
  inputs = dict(zip(names, function.args, strict=True))
  tensors = {key: value for key, value in inputs.items() if isinstance(value, torch.Tensor)}
  numbers = [f"--input={one}" for one in function.args if not isinstance(one, torch.Tensor)]
  safetensors.torch.save_file(tensors, tmp_path / "in.safetensors")
  command = [built_tools.built("husk-toy-run"), path, "--device=toy", f"--function={name}"]
  files = ["--inputs", tmp_path / "in.safetensors", "--outputs", tmp_path / "out.safetensors"]
  subprocess.run([*command, *files, *numbers], check=True, stdout=subprocess.PIPE)
  results = safetensors.torch.load_file(tmp_path / "out.safetensors")
  with torch.no_grad():
    expected = torch.utils._pytree.tree_leaves(function.model(*function.args))
  for (_, one), other in zip(sorted(results.items()), expected, strict=True):
    torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_operators_are_steps_on_the_host(artifact):
  path, _ = artifact
  code = subprocess.check_output([built_tools.built("husk-dump"), path, "--output=code"], text=True)
  assert 'extern "aten::topk" on host' in code
  assert 'extern "husk::linear" on host' in code


def test_check(artifact, monkeypatch, capsys):
  """The port of the toy says what code runs there."""
  path, _ = artifact
  monkeypatch.setenv("HUSK_DUMP", built_tools.built("husk-toy-dump"))
  monkeypatch.setitem(checked.PORTS, "toy", CheckedToy)
  assert main(["check", str(path), "--target", f"toy:{ISA}"]) == 0, capsys.readouterr().out
  assert f"function sum: runs as toy {ISA}" in capsys.readouterr().out
  assert main(["check", str(path), "--target", f"host:{ISA}"]) == 1
  assert f"no code for host {ISA}" in capsys.readouterr().out


def test_other_tools_refuse_the_device(artifact):
  path, _ = artifact
  done = subprocess.run(
    [built_tools.built("husk-run"), path, "--device=toy"], capture_output=True, text=True
  )
  assert done.returncode == 2
  assert "--device=toy: unknown device: write host, cuda or cuda:N" in done.stderr
