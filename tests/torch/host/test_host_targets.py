"""Several instruction sets in one artifact, and artifacts for other machines, which qemu runs if it
is installed."""

import copy
import os
import pathlib
import shlex
import shutil
import subprocess

import built_tools
import husk
import models
import pytest
import safetensors.torch
import torch
from function_module import FunctionModule
from husk.host import image as host_image
from torch.export import Dim

SETS = host_image.isas_of_this_machine()
pytestmark = pytest.mark.skipif("avx2" not in host_image.isas(), reason="this machine has no AVX2")


def arm():
  """The command of husk-run for 64-bit Arm: from the environment (HUSK_RUN_AARCH64), or of the
  preset's build."""
  command = os.environ.get("HUSK_RUN_AARCH64")
  built = built_tools.ROOT / "build" / "aarch64" / "bin" / "husk-run"
  if not command and not (built.is_file() and shutil.which("qemu-aarch64")):
    pytest.skip("no husk-run for aarch64, or no qemu-aarch64")
  return (
    shlex.split(command)
    if command
    else ["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu", str(built)]
  )


def old_x86():
  """The command of husk-run on a CPU that has AVX2 and not AVX-512."""
  if not shutil.which("qemu-x86_64"):
    pytest.skip("no qemu-x86_64")
  return ["qemu-x86_64", "-cpu", "Haswell", built_tools.built("husk-run")]


def run(command, artifact, inputs, folder, *options):
  """The outputs, and the text that husk-run printed."""
  tensors = {name: value for name, value in inputs.items() if isinstance(value, torch.Tensor)}
  specs = [f"--input={value}" for value in inputs.values() if not isinstance(value, torch.Tensor)]
  safetensors.torch.save_file(tensors, folder / "inputs.safetensors")
  done = subprocess.run(
    [
      *command,
      str(artifact),
      "--inputs",
      str(folder / "inputs.safetensors"),
      "--outputs",
      str(folder / "outputs.safetensors"),
      *specs,
      *options,
    ],
    capture_output=True,
    text=True,
  )
  assert done.returncode == 0, done.stdout + done.stderr
  outputs = safetensors.torch.load_file(folder / "outputs.safetensors")
  return [outputs[str(index)] for index in range(len(outputs))], done.stdout


def model_case(name):
  """The model, the inputs by name, and the dynamic shapes."""
  model, args, shapes = models.MODELS[name]()
  return model, args, dict(zip(shapes, args)), shapes


@pytest.fixture(scope="module")
def both(tmp_path_factory):
  """The MLP for all ISAs of this machine."""
  built_tools.built("huskc")
  folder = tmp_path_factory.mktemp("both")
  model, args, _, shapes = model_case("mlp")
  return husk.export(model, args, folder / "mlp.husk", dynamic_shapes=shapes, keep=folder)


def test_host_means_all_isas(both):
  text = (both.parent / "model.hir").read_text()
  assert all(
    f'target host_{isa} host "{isa}"' in text and f"variant host_{isa} {{" in text for isa in SETS
  )
  assert text.count("constant up.weight ") == 1


@pytest.mark.parametrize("command", ["native", "old"])
def test_the_best_variant_is_taken(command, both, tmp_path):
  model, args, inputs, _ = model_case("mlp")
  run_by, isa = (
    ([built_tools.built("husk-run")], host_image.isas()[0])
    if command == "native"
    else (old_x86(), "avx2")
  )
  outputs, printed = run(run_by, both, inputs, tmp_path)
  assert f"host {isa} on" in printed
  with torch.no_grad():
    torch.testing.assert_close(
      outputs, torch.utils._pytree.tree_leaves(model(*args)), rtol=2e-5, atol=5e-5
    )


def test_repeated_targets_are_compiled_once(tmp_path):
  model, args, _, shapes = model_case("sum")
  text = husk.write(
    model, args, tmp_path, dynamic_shapes=shapes, targets=("host", "host:avx2")
  ).read_text()
  assert text.count("\ntarget ") == len(SETS)


@pytest.fixture(scope="module")
def cross_compiler():
  isa = host_image.ISAS["aarch64"]
  if not shutil.which(isa.compiler()):
    pytest.skip("no compiler for aarch64")
  return isa


def test_images_of_other_machines_need_only_the_c_library(cross_compiler, tmp_path):
  model, args, _, shapes = model_case("gpt")
  husk.write(model, args, tmp_path, dynamic_shapes=shapes, targets=("host:aarch64",))
  (image,) = tmp_path.glob("*.so")
  said = subprocess.run(
    [cross_compiler.tool("readelf"), "-hd", str(image)], capture_output=True, text=True, check=True
  )
  assert "AArch64" in said.stdout
  needed = {
    line.split("[")[1].rstrip("]") for line in said.stdout.splitlines() if "(NEEDED)" in line
  }
  assert needed <= {"libc.so.6", "libm.so.6", "ld-linux-aarch64.so.1"}


def mathematics(self, x):
  names = (
    "sin cos tan exp log1p expm1 tanh atan asinh erf erfc lgamma sinh cosh exp2 log log2 log10 "
    "sigmoid"
  ).split()
  return (
    *(getattr(torch, name)(x) for name in names),
    torch.pow(x, x),
    torch.atan2(x, -x),
    torch.fmod(x, x * 0.3 + 1),
    torch.hypot(x, x),
    x.double().exp(),
    x.double().sin(),
  )


def numbers(self, x):
  y = (x * 9).int()
  return (
    x.half() * 2,
    x.bfloat16() + 1,
    x.to(torch.float8_e4m3fn).float(),
    y // 3,
    y % 4,
    y.to(torch.uint8) + 3,
    y.to(torch.int8) * 2,
    y.short() - 1,
    y.long() << 2,
    (y > 4) & (y < 7),
    x.var(0),
    x.sum(),
    x.argmax(1),
    torch.softmax(x, -1),
    x.t().contiguous(),
  )


FUNCTIONS = {"mathematics": mathematics, "numbers": numbers}


@pytest.mark.parametrize("threads", ["1", "3"])
@pytest.mark.parametrize("name", ["mlp", "gpt", "branches"])
def test_models_on_arm(name, threads, cross_compiler, tmp_path, arm_artifacts):
  command = arm()
  model, args, inputs, _ = model_case(name)
  outputs, printed = run(command, arm_artifacts(name), inputs, tmp_path, f"--threads={threads}")
  assert "host aarch64 on" in printed
  with torch.no_grad():
    expected = torch.utils._pytree.tree_leaves(copy.deepcopy(model)(*args))
  for one, other in zip(outputs, expected, strict=True):
    torch.testing.assert_close(one, other, rtol=2e-5, atol=5e-5)


@pytest.fixture(scope="module")
def arm_artifacts(tmp_path_factory):
  """Artifacts for aarch64 by the name of their model. Each is made once."""
  folder = tmp_path_factory.mktemp("arm")

  def artifact(name):
    path = pathlib.Path(folder / f"{name}.husk")
    if not path.exists():
      built_tools.built("huskc")
      model, args, _, shapes = model_case(name)
      husk.export(model, args, path, dynamic_shapes=shapes, targets=("host:aarch64",))
    return path

  return artifact


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_on_arm(name, cross_compiler, tmp_path):
  command = arm()
  built_tools.built("huskc")
  x = torch.rand(47, 45, generator=torch.Generator().manual_seed(2)) + 0.1
  model = FunctionModule(FUNCTIONS[name])
  husk.export(
    model,
    (x,),
    tmp_path / "made.husk",
    dynamic_shapes=({0: Dim("rows", max=64)},),
    targets=("host:aarch64",),
  )
  outputs, _ = run(command, tmp_path / "made.husk", {"x": x}, tmp_path)
  for index, (one, other) in enumerate(zip(outputs, model(x), strict=True)):
    tolerance = {torch.float16: 2e-3, torch.bfloat16: 2e-2}.get(one.dtype, 2e-6)
    torch.testing.assert_close(
      one, other, rtol=tolerance, atol=tolerance, msg=f"{{}} of output {index}".format
    )


def test_a_missing_compiler_is_named(tmp_path, monkeypatch):
  monkeypatch.setenv("CXX", "g++-that-is-not-there")
  model, args, _, shapes = model_case("sum")
  with pytest.raises(husk.CompileError, match="g\\+\\+-that-is-not-there.*not found"):
    husk.write(model, args, tmp_path, dynamic_shapes=shapes, targets=("host:avx2",))


def test_unknown_isas_are_refused(tmp_path):
  with pytest.raises(ValueError, match="host:avx512, host:avx2, host:aarch64"):
    husk.write(
      FunctionModule(lambda self, x: x), (torch.randn(3),), tmp_path, targets=("host:sse",)
    )
