"""The command `python -m husk`."""

import os
import shutil
import subprocess
import sys

import built_tools
import pytest

MODELS = built_tools.ROOT / "examples" / "models.py"


def husk(*arguments):
  environment = {
    "PYTHONPATH": str(built_tools.ROOT / "compiler" / "torch"),
    "PATH": "/usr/bin:/bin",
  }
  if "HUSKC" in os.environ:
    environment["HUSKC"] = os.environ["HUSKC"]
  return subprocess.run(
    [sys.executable, "-m", "husk", *map(str, arguments)],
    capture_output=True,
    text=True,
    env=environment,
    cwd=built_tools.ROOT,
  )


def test_help():
  done = husk("--help")
  assert done.returncode == 0 and "FILE.py:FUNCTION" in done.stdout


def test_option_keep_keeps_intermediate_files(tmp_path):
  done = husk(f"{MODELS}:sum_of_two", "--keep", tmp_path, "--metadata", "license=MIT")
  assert done.returncode == 0, done.stderr
  text = (tmp_path / "model.hir").read_text()
  assert 'user "license" "MIT"' in text and (tmp_path / "weights.safetensors").is_file()
  assert list(tmp_path.glob("*.so"))


def test_writes_an_artifact(tmp_path):
  built_tools.built("huskc")
  done = husk(f"{MODELS}:sum_of_two", "-o", tmp_path / "sum.husk")
  assert done.returncode == 0, done.stderr
  assert (tmp_path / "sum.husk").read_bytes()[:4] == b"HUSK"


def test_exported_program_from_a_file(tmp_path):
  import torch

  class Twice(torch.nn.Module):
    def forward(self, x):
      return x * 2

  torch.export.save(torch.export.export(Twice(), (torch.randn(3),)), tmp_path / "twice.pt2")
  done = husk(tmp_path / "twice.pt2", "--keep", tmp_path / "kept")
  assert done.returncode == 0, done.stderr
  assert "input x tensor f32 [3]" in (tmp_path / "kept" / "model.hir").read_text()


def test_keyword_arguments(tmp_path):
  (tmp_path / "scaled.py").write_text("""
import torch
class Scaled(torch.nn.Module):
  def forward(self, x, *, scale):
    return x * scale
def model():
  return Scaled(), (torch.randn(3),), None, {"scale": torch.randn(3)}
def wrong():
  return 1, 2, 3, 4, 5
""")
  done = husk(f"{tmp_path}/scaled.py:model", "--keep", tmp_path / "kept")
  assert done.returncode == 0, done.stderr
  assert "input scale tensor f32 [3]" in (tmp_path / "kept" / "model.hir").read_text()
  done = husk(f"{tmp_path}/scaled.py:wrong", "--keep", tmp_path / "kept")
  assert done.returncode == 1 and "(model, args, dynamic_shapes, kwargs)" in done.stderr


def test_a_missing_compiler_is_reported_at_once(tmp_path):
  """Before the model is even compiled, which can take minutes."""
  environment = {"PATH": "/usr/bin:/bin", "HUSKC": "", "PYTHONPATH": str(tmp_path)}
  shutil.copytree(
    built_tools.ROOT / "compiler" / "torch" / "husk",
    tmp_path / "husk",
    ignore=shutil.ignore_patterns("__pycache__", "bin"),
  )
  done = subprocess.run(
    [sys.executable, "-m", "husk", f"{MODELS}:sum_of_two", "-o", tmp_path / "sum.husk"],
    capture_output=True,
    text=True,
    env=environment,
    cwd=tmp_path,
  )
  assert done.returncode == 1 and "huskc was not found: run `pip install" in done.stderr
  assert "compiled in" not in done.stderr


def test_several_functions(tmp_path):
  (tmp_path / "two.py").write_text("""
import husk, torch
def both():
  model = torch.nn.Linear(3, 2)
  return {"one": (model, (torch.randn(1, 3),)), "many": husk.Function(model, (torch.randn(5, 3),))}
def wrong():
  return torch.nn.Linear(3, 2)
""")
  done = husk(f"{tmp_path}/two.py:both", "--keep", tmp_path / "kept", "--target", "host:avx2")
  assert done.returncode == 0, done.stderr
  text = (tmp_path / "kept" / "model.hir").read_text()
  assert (
    "function one {" in text and "function many {" in text and text.count("constant weight ") == 1
  )
  done = husk(f"{tmp_path}/two.py:both", "--keep", tmp_path / "kept", "--function", "f")
  assert done.returncode == 1 and "names its functions itself: one, many" in done.stderr
  done = husk(f"{tmp_path}/two.py:wrong", "--keep", tmp_path / "kept")
  assert done.returncode == 1 and "returned Linear" in done.stderr


@pytest.mark.parametrize(
  "arguments, text",
  [
    ((f"{MODELS}:sum_of_two",), "give -o FILE"),
    ((f"{MODELS}:nothing", "--keep", "unused"), "has no function nothing"),
    (("missing.py:f", "--keep", "unused"), "give FILE.py:FUNCTION"),
    ((f"{MODELS}:sum_of_two", "--keep", "unused", "--target", "abacus"), "no target 'abacus'"),
    ((f"{MODELS}:sum_of_two", "--keep", "unused", "--metadata", "x"), "give KEY=VALUE"),
  ],
)
def test_wrong_command_lines(arguments, text, tmp_path):
  arguments = [tmp_path / "unused" if argument == "unused" else argument for argument in arguments]
  done = husk(*arguments)
  assert done.returncode != 0 and text in done.stderr
  assert "Traceback" not in done.stderr
