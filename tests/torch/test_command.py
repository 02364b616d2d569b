"""The command `python -m husk`."""

import atexit
import contextlib
import functools
import json
import os
import pathlib
import pty
import re
import shutil
import subprocess
import sys
import tempfile

import built_tools
import pytest
from husk.host import image

MODELS = built_tools.ROOT / "examples" / "models.py"


def environment(**changes):
  variables = {
    "PYTHONPATH": str(built_tools.ROOT / "compiler" / "torch"),
    "PATH": "/usr/bin:/bin",
  }
  if "HUSKC" in os.environ:
    variables["HUSKC"] = os.environ["HUSKC"]
  return {**variables, **changes}


@functools.cache
def server():
  """The process that runs commands, which ends with this one."""
  process = subprocess.Popen(
    [sys.executable, built_tools.ROOT / "tests" / "torch" / "helpers" / "command_server.py"],
    env=environment(),
    cwd=built_tools.ROOT,
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    text=True,
    start_new_session=True,  # with its children it is one group of processes
  )
  atexit.register(process.communicate)
  return process


def husk(*arguments, **changes):
  """Runs the command in a process that has PyTorch, which takes seconds to import."""
  words = [str(argument) for argument in arguments]
  with tempfile.TemporaryDirectory() as name:
    print(json.dumps((words, environment(**changes), name)), file=server().stdin, flush=True)
    status = int(server().stdout.readline())
    folder = pathlib.Path(name)
    return subprocess.CompletedProcess(
      words, status, (folder / "out").read_text(), (folder / "err").read_text()
    )


def husk_alone(*arguments):
  """Runs the command as an application does."""
  return subprocess.run(
    [sys.executable, "-m", "husk", *map(str, arguments)],
    capture_output=True,
    text=True,
    env=environment(),
    cwd=built_tools.ROOT,
  )


def test_help():
  done = husk_alone("--help")
  assert done.returncode == 0 and "FILE.py:FUNCTION" in done.stdout


def test_option_keep_keeps_intermediate_files(tmp_path):
  done = husk(f"{MODELS}:sum_of_two", "--keep", tmp_path, "--metadata", "license=MIT")
  assert done.returncode == 0, done.stderr
  text = (tmp_path / "model.hir").read_text()
  assert 'user "license" "MIT"' in text and (tmp_path / "weights.safetensors").is_file()
  assert list(tmp_path.glob("*.so"))


def test_writes_an_artifact(tmp_path):
  built_tools.built("huskc")
  done = husk_alone(f"{MODELS}:sum_of_two", "-o", tmp_path / "sum.husk")
  assert done.returncode == 0, done.stderr
  assert (tmp_path / "sum.husk").read_bytes()[:4] == b"HUSK"
  assert f"husk: {tmp_path}/sum.husk: " in done.stderr and "1 kernels)" in done.stderr
  assert "forward(x: f32[1..1024, 5], y: f32[1..1024, 5])" in done.stderr
  stages = "trace .* s, host_avx512 .* s, host_avx2 .* s, weights .* s, huskc .* s"
  assert re.search(f"husk: exported in [0-9.]+ s: {stages}", done.stderr)
  assert "\r" not in done.stderr  # no terminal


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
  variables = {"PATH": "/usr/bin:/bin", "HUSKC": "", "PYTHONPATH": str(tmp_path)}
  shutil.copytree(
    built_tools.ROOT / "compiler" / "torch" / "husk",
    tmp_path / "husk",
    ignore=shutil.ignore_patterns("__pycache__", "bin"),
  )
  done = subprocess.run(
    [sys.executable, "-m", "husk", f"{MODELS}:sum_of_two", "-o", tmp_path / "sum.husk"],
    capture_output=True,
    text=True,
    env=variables,
    cwd=tmp_path,
  )
  assert done.returncode == 1 and "huskc was not found: run `pip install" in done.stderr
  assert "compiled in" not in done.stderr


def test_a_missing_cpp_compiler_is_reported_at_once(tmp_path):
  (tmp_path / "bin").mkdir()
  path = str(tmp_path / "bin")
  done = husk(f"{MODELS}:sum_of_two", "--keep", tmp_path / "kept", PATH=path)
  assert done.returncode == 1 and "needs g++, which was not found: run `apt-get" in done.stderr
  arguments = (f"{MODELS}:sum_of_two", "--keep", tmp_path / "kept", "--target", "host:aarch64")
  done = husk(*arguments, PATH=path)
  other = "aarch64-linux-gnu-g++" if image.ISAS["avx2"].native else "g++"
  assert done.returncode == 1 and f"needs {other}, which was not found" in done.stderr
  assert not (tmp_path / "kept").exists()


def test_a_terminal_shows_the_stages(tmp_path):
  ours, theirs = pty.openpty()
  words = (f"{MODELS}:sum_of_two", "--keep", str(tmp_path / "kept"), "--target", "host:avx2")
  command = [sys.executable, "-m", "husk", *words]
  with subprocess.Popen(command, stderr=theirs, env=environment(), cwd=built_tools.ROOT) as process:
    os.close(theirs)
    text = b""
    with contextlib.suppress(OSError):  # the other side is closed
      while part := os.read(ours, 4096):
        text += part
  os.close(ours)
  shown = text.decode()
  assert process.returncode == 0, shown
  stages = re.findall(r"\x1b\[Khusk: (\[\d/\d\] [^(]+) \(0 s\)", shown)
  assert stages[:2] == ["[1/6] trace: forward", "[2/6] codes of weights"]
  assert "[3/6] host_avx2: forward" in stages and "[4/6] host_avx2: images" in stages
  assert stages[-1].startswith("[5/6] weights")


BRANCH = """
import torch
class Branch(torch.nn.Module):
  def forward(self, x):
    if x.sum() > 0:
      return x
    return x + 1
def model():
  return Branch(), (torch.randn(3),)
"""


def test_an_error_of_pytorch_is_one_message(tmp_path):
  (tmp_path / "branch.py").write_text(BRANCH)
  arguments = (f"{tmp_path}/branch.py:model", "--keep", tmp_path / "kept")
  done = husk(*arguments)
  assert done.returncode == 1 and "Traceback" not in done.stderr
  said = done.stderr[done.stderr.index("husk: ") :].splitlines()
  # The graph that torch.export prints is in the log.
  assert said.pop(0) == f"husk: what compilers printed is in {tmp_path}/kept/prints.log"
  assert "def forward" in (tmp_path / "kept" / "prints.log").read_text()
  assert "def forward" not in done.stderr
  assert "Could not guard on data-dependent expression" in said[0]
  place = f"  at {tmp_path}/branch.py:5, in forward: if x.sum() > 0:"
  assert said[1:] == [place, "  --traceback shows all of it"]
  done = husk(*arguments, "--traceback")
  assert done.returncode == 1 and "symbolic_shapes.py" in done.stderr


@pytest.mark.parametrize("full", (False, True))
def test_tracebacks_have_no_frames_of_pytorch(full, tmp_path, monkeypatch):
  import husk as package
  import torch

  monkeypatch.setenv("HUSK_TRACEBACK", "1" if full else "")

  class Wrong(torch.nn.Module):
    def forward(self, x):
      return torch.mm(x, x)

  with pytest.raises(RuntimeError, match="2D|shapes|size|dim") as caught:
    package.write(Wrong(), (torch.randn(2, 3),), tmp_path)
  files = [str(entry.path) for entry in caught.traceback]
  assert any(file.endswith("test_command.py") for file in files[1:]), files
  assert any("site-packages/torch/" in file for file in files) == full
  assert full or caught.value.__cause__ is None and caught.value.__suppress_context__


def test_texts_have_no_frames_of_cpp(tmp_path, monkeypatch):
  import husk as package
  import torch

  monkeypatch.setenv("HUSK_TRACEBACK", "")

  class Pairs(torch.nn.Module):
    def forward(self, x):
      return torch.combinations(x[0])

  dynamic = ({0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC},)
  with pytest.raises(RuntimeError) as caught:
    package.write(Pairs(), (torch.randn(3, 4),), tmp_path, dynamic_shapes=dynamic)
  assert str(caught.value) == "Cannot call numel() on tensor with symbolic sizes/strides"
  assert any(entry.name == "forward" for entry in caught.traceback)


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
