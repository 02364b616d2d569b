"""The programs of examples/c, examples/hello and examples/hello_cpp, against eager PyTorch."""

import pathlib
import re
import runpy
import subprocess

import built_tools
import husk
import models
import pytest
import torch

NUMBER = r"[-+0-9.einfa]+"


def run(artifact, folder, *tensors):
  """The first numbers of each output of each of its two runs, by (run, name)."""
  files = []
  for i, tensor in enumerate(tensors):
    files.append(folder / f"{i}.raw")
    files[-1].write_bytes(tensor.contiguous().numpy().tobytes())
  done = subprocess.run(
    [built_tools.built("husk_example_c"), artifact, *files], capture_output=True, text=True
  )
  assert done.returncode == 0, done.stderr
  rows = re.findall(rf"run (\d), (\w+), \d+ elements of \w+:((?: {NUMBER})*)", done.stdout)
  return {
    (int(number), name): [float(x) for x in numbers.split()] for number, name, numbers in rows
  }


def first(tensor):
  return tensor.double().flatten()[:8].tolist()


def test_the_sum(tmp_path):
  model, example, shapes = models.sum_of_two()
  husk.export(model, example, tmp_path / "sum.husk", dynamic_shapes=shapes)
  x, y = (
    torch.randn(2, 5),
    torch.randn(2, 5),
  )  # the program chooses 2 rows if any number is allowed
  got = run(tmp_path / "sum.husk", tmp_path, x, y)
  assert got[1, "output"] == pytest.approx(first(model(x, y)), rel=1e-4)


def test_the_mlp_counts_its_calls(tmp_path):
  model, example, shapes = models.mlp()
  husk.export(model, example, tmp_path / "mlp.husk", dynamic_shapes=shapes)
  x = torch.randn(2, 32)
  got = run(tmp_path / "mlp.husk", tmp_path, x)
  for number in (1, 2):
    with torch.no_grad():
      expected = model(x)
    assert got[number, "logits"] == pytest.approx(first(expected["logits"]), rel=1e-3, abs=1e-4)
    assert got[number, "calls"] == first(expected["calls"]) == [number]


@pytest.mark.parametrize("program", ["husk_hello", "husk_hello_cpp"])
def test_hello_prints_what_pytorch_computes(program, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  mlp = runpy.run_path(str(built_tools.ROOT / "examples" / "hello" / "export_mlp.py"))["mlp"]
  done = subprocess.run([built_tools.built(program), "mlp.husk"], capture_output=True, text=True)
  assert done.returncode == 0, done.stderr
  printed = [[float(number) for number in row.split()] for row in done.stdout.splitlines()]
  with torch.no_grad():
    expected = mlp(0.01 * torch.arange(4 * 32).reshape(4, 32))
  assert printed == [pytest.approx(row, abs=1e-4) for row in expected.tolist()]


def test_example_needs_neither_python_nor_pytorch():
  needed = subprocess.run(
    ["ldd", built_tools.built("husk_example_c")], capture_output=True, text=True, check=True
  ).stdout
  needed = re.sub(r"\(0x[0-9a-f]+\)", "", needed)  # addresses, in which "c10" may be
  assert "libhusk" in needed
  assert not re.search("python|torch|c10|stdc\\+\\+|cuda", needed), needed


def test_the_operator_of_an_application_on_a_gpu(tmp_path, monkeypatch):
  """The model of examples/custom-op-cuda; a test of the build runs its program."""
  monkeypatch.chdir(tmp_path)
  monkeypatch.setattr("sys.argv", ["export_scale.py", "cuda:h200"])
  folder = pathlib.Path(models.__file__).parent / "custom-op-cuda"
  runpy.run_path(str(folder / "export_scale.py"))
  report = husk.inspect("scale.husk")
  assert report.operators == ("app::scale",)
  assert report.targets == ("cuda sm_90a",)
