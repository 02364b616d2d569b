"""Models whose kernels are code of a static program: examples/embedded, on this machine and, by
qemu, on 64-bit Arm."""

import platform
import re
import runpy
import shutil
import subprocess
import sys

import built_tools
import husk
import pytest
import torch
from husk.__main__ import main
from husk.host import image

EXAMPLE = built_tools.ROOT / "examples" / "embedded"
INCLUDES = [
  f"-I{built_tools.ROOT / folder / 'include'}" for folder in ("runtime", "ports/host", "ports/cuda")
]


def library(name, build):
  """A static library of a build folder."""
  path = built_tools.ROOT / "build" / build / "lib" / name
  if not path.is_file():
    pytest.skip(f"{path} is not built")
  return str(path)


def emit(artifact, machine):
  """The object file of an artifact, and what huskc prints."""
  path = artifact.with_name(f"{machine}.o")
  done = subprocess.run(
    [built_tools.built("huskc"), artifact, "--emit=obj", "--machine", machine, "-o", path,
     "--symbol=husk_mlp"],
    capture_output=True,
    text=True,
    check=True,
  )  # fmt: skip
  return path, done.stdout + done.stderr


def link(compiler, model, build, folder, *libraries):
  """The example as a static program."""
  program = folder / "program"
  command = [compiler, "-O1", *INCLUDES, EXAMPLE / "main.c", EXAMPLE / "linear.c", model, "-static"]
  command += ["-Wl,--gc-sections", "-Wl,--fatal-warnings", library("libhusk_small.a", build)]
  done = subprocess.run(
    [*command, *libraries, "-lm", "-o", program], capture_output=True, text=True
  )
  assert done.returncode == 0, done.stderr
  return program


def rows(text):
  return [[float(x) for x in line.split()] for line in text.splitlines()[:4]]


@pytest.fixture
def export(tmp_path, monkeypatch):
  """Runs export_mlp.py for a target; returns the artifact and the values of PyTorch."""

  def call(target):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["export_mlp.py", target])
    mlp = runpy.run_path(str(EXAMPLE / "export_mlp.py"))["mlp"]
    with torch.no_grad():
      return tmp_path / "mlp.husk", mlp(0.01 * torch.arange(4 * 32).reshape(4, 32))

  return call


def test_a_static_program_loads_nothing(export, tmp_path):
  if platform.machine() != "x86_64":
    pytest.skip("the test is for x86-64")
  isa = image.isas()[0]
  artifact, expected = export(f"host:{isa}")
  model, printed = emit(artifact, "x86-64")
  assert f"the kernels of image '{isa}_kernels' are code of the object file" in printed
  program = link("gcc", model, "release", tmp_path, "-lmvec")
  done = subprocess.run([program], capture_output=True, text=True)
  assert done.returncode == 0, done.stderr
  assert rows(done.stdout) == [pytest.approx(row, abs=1e-4) for row in expected.tolist()]
  assert "\n0 allocations in 100 runs" in done.stdout
  # The same file runs with a loader, too.
  code, outputs, text = built_tools.husk_run(
    artifact, tmp_path, {"input": 0.01 * torch.arange(4 * 32).reshape(4, 32)}
  )
  assert code == 0, text
  torch.testing.assert_close(next(iter(outputs.values())), expected)
  # The program has no loader, and asks the system for no executable memory and for no file.
  symbols = subprocess.run(["nm", program], capture_output=True, text=True, check=True).stdout
  assert " husk_program_link\n" in symbols
  # glibc itself has a dlopen.
  for name in ("module_load", "memfd_create", "pthread_create", "mi_malloc", "husk_program_open"):
    assert not re.search(rf" [TtW] \w*{name}", symbols), name
  if strace := shutil.which("strace"):
    traced = subprocess.run([strace, "-f", program], capture_output=True, text=True)
    if traced.returncode == 0:  # a container may forbid ptrace
      assert not re.search("memfd_create|^open|PROT_EXEC", traced.stderr, re.M), traced.stderr


def test_a_static_program_on_64_bit_arm(export, tmp_path):
  compiler = "aarch64-linux-gnu-gcc"
  if not shutil.which(compiler) or not shutil.which("qemu-aarch64"):
    pytest.skip("no cross compiler for 64-bit Arm, or no qemu-aarch64")
  library("libhusk_small.a", "aarch64")
  artifact, expected = export("host:aarch64")
  program = link(compiler, emit(artifact, "aarch64")[0], "aarch64", tmp_path)
  done = subprocess.run(["qemu-aarch64", program], capture_output=True, text=True)
  assert done.returncode == 0, done.stderr
  assert rows(done.stdout) == [pytest.approx(row, abs=1e-4) for row in expected.tolist()]
  assert "\n0 allocations in 100 runs" in done.stdout


def test_one_object_file_for_each_machine(tmp_path):
  if not shutil.which("aarch64-linux-gnu-g++") or platform.machine() != "x86_64":
    pytest.skip("no cross compiler for 64-bit Arm")
  artifact = tmp_path / "model.husk"
  husk.export(
    torch.nn.Softmax(-1),
    (torch.randn(4, 32),),
    artifact,
    targets=("host:aarch64", "host:avx2", "host:avx512"),
    linkable=True,
  )
  text = emit(artifact, "aarch64")[1]
  assert "'aarch64_kernels'" in text and "avx" not in text
  text = emit(artifact, "x86-64")[1]
  assert "'avx2_kernels'" in text and "'avx512_kernels'" in text and "aarch64_" not in text


def test_without_linkable_images_are_loaded(tmp_path):
  artifact = tmp_path / "model.husk"
  isa = image.isas()[0]
  husk.export(torch.nn.Softmax(-1), (torch.randn(4, 32),), artifact, targets=(f"host:{isa}",))
  machine = {"x86_64": "x86-64"}.get(platform.machine(), platform.machine())
  other = "aarch64" if machine == "x86-64" else "x86-64"
  assert f"no host image is for {other}" in emit(artifact, other)[1]
  text = emit(artifact, machine)[1]
  assert f"image '{isa}_kernels' is loaded when the program runs; export with --linkable" in text


def test_the_command_line_has_the_option(tmp_path):
  folder = tmp_path / "kept"
  models = built_tools.ROOT / "examples" / "models.py"
  isa = image.isas()[0]
  assert main([f"{models}:sum_of_two", "--keep", str(folder), "--target", f"host:{isa}",
               "--linkable"]) == 0  # fmt: skip
  images = list(folder.glob("*.so"))
  assert images
  for path in images:
    headers = subprocess.run(
      ["readelf", "-SW", path], capture_output=True, text=True, check=True
    ).stdout
    assert ".husk.object" in headers
