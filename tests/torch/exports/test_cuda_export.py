"""Whole models for a host and a GPU that is not present, in one `.hir`."""

import re

import husk
import models
import pytest
import torch
from function_module import FunctionModule


def written(name, folder, *targets):
  model, args, shapes = models.MODELS[name]()
  path = husk.write(model, args, folder, dynamic_shapes=shapes, targets=targets)
  return path.read_text()


@pytest.fixture(scope="module")
def both(tmp_path_factory):
  folder = tmp_path_factory.mktemp("both")
  return {
    name: (written(name, folder / name, "host:avx2", "cuda:h200"), folder / name)
    for name in models.MODELS
  }


def variant(text, target):
  return re.search(rf"^  variant {target} {{\n(.*?)^  }}\n", text, re.S | re.M).group(1)


def launches(text):
  """The kernel, the grid and the arguments of each launch."""
  return re.findall(r"launch (\S+) grid \((.*?)\) \((.*?)\)(?: at |$)", text, re.M)


def listed(text):
  """The parts of a comma-separated list in which parentheses and brackets may nest."""
  parts, depth = [""], 0
  for character in text:
    depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(character, 0)
    if character == "," and depth == 0:
      parts.append("")
    else:
      parts[-1] += character
  return [part.strip() for part in parts]


@pytest.mark.parametrize("name", sorted(models.MODELS))
def test_one_function_with_two_variants(name, both):
  text, _ = both[name]
  assert text.count("\nfunction ") == 1
  assert len(re.findall(r"^  variant ", text, re.M)) == 2
  assert re.search(r'^target cuda_h200 cuda "sm_90a"$', text, re.M)


@pytest.mark.parametrize("name", sorted(models.MODELS))
def test_the_gpu_calls_no_library(name, both):
  body = variant(both[name][0], "cuda_h200")
  assert "extern" not in body and launches(body)


@pytest.mark.parametrize("name", sorted(models.MODELS))
def test_launches_have_the_arguments_of_their_kernels(name, both):
  text, _ = both[name]
  kernels = dict(re.findall(r'^kernel (\S+) \S+ "\S+" \((.*?)\)', text, re.M))
  for kernel, _, arguments in launches(variant(text, "cuda_h200")):
    operands = listed(arguments)
    wanted = kernels[kernel].split(", ")
    assert len(operands) == len(wanted), (kernel, operands, wanted)
    for argument, kind in zip(operands, wanted):
      pointer = argument in ("null", "asserts") or bool(re.match(r"(read|write|both) ", argument))
      assert pointer == (kind == "ptr"), (kernel, argument, kind)
    assert operands[-2:] == ["null", "null"]


@pytest.mark.parametrize("name", sorted(models.MODELS))
def test_images_exist_and_all_kernels_wait(name, both):
  text, folder = both[name]
  images = re.findall(r'^image \S+ cuda_h200 cubin "(.*)"$', text, re.M)
  assert images and all((folder / image).read_bytes().startswith(b"\x7fELF") for image in images)
  rows = [line for line in text.splitlines() if line.startswith("kernel h200_")]
  assert len(rows) == len(images) and all(" pdl_wait_first" in row for row in rows)


def test_states_and_constants_are_shared(both):
  text, _ = both["mlp"]
  assert text.count("\nstate ") == 1 and text.count("\nconstant up.weight ") == 1
  for target in re.findall(r"^  variant (\S+) ", text, re.M):
    assert "write counter" in variant(text, target) and "read up.weight" in variant(
      text, target
    ).replace(" tensor", "")


def test_the_tied_head_is_one_constant(both):
  text, _ = both["gpt"]
  assert len(re.findall(r"^constant \S+ f32 \[256, 128\]", text, re.M)) == 1


def test_constants_and_inputs_are_only_read(both):
  for text, _ in both.values():
    never = set(re.findall(r"^constant (\S+)", text, re.M)) | set(
      re.findall(r"^  input (\S+) tensor", text, re.M)
    )
    body = variant(text, "cuda_h200")
    assert not set(re.findall(r"(?:write|both) ([\w.]+)", body)) & never


def test_output_is_independent_of_other_targets(both, tmp_path):
  text, folder = both["mlp"]
  alone = written("mlp", tmp_path, "cuda:h200")
  assert variant(alone, "cuda_h200") == variant(text, "cuda_h200")
  for image in re.findall(r'^image \S+ cuda_h200 cubin "(.*)"$', text, re.M):
    assert (tmp_path / image).read_bytes() == (folder / image).read_bytes()


def test_two_gpus(tmp_path):
  text = written("mlp", tmp_path, "cuda:orin", "cuda:h200")
  assert "griddep" not in text and len(re.findall(r"^  variant ", text, re.M)) == 2
  assert all(
    (" pdl_wait_first" in row) == row.startswith("kernel h200_")
    for row in text.splitlines()
    if row.startswith("kernel ")
  )


def test_unknown_gpu_is_refused(tmp_path):
  with pytest.raises(ValueError, match="no CUDA target 'h300': known are"):
    written("mlp", tmp_path, "cuda:h300")


def test_a_kernel_of_many_operators_has_a_file(tmp_path):
  """Inductor writes all of their names into its own, which is longer than a name of a file."""
  operators = (
    "acos acosh asin asinh atan atanh cos cosh digamma erf erfc erfinv exp expm1 lgamma log log10 "
    "log1p log2 logit reciprocal rsqrt sigmoid sin sinh tan tanh trunc"
  ).split()
  special = "bessel_j0 bessel_j1 modified_bessel_i0 modified_bessel_i1 i0e i1e log_ndtr".split()

  def function(self, x):
    functions = [getattr(torch, name) for name in operators]
    return sum(one(x) for one in functions + [getattr(torch.special, name) for name in special])

  path = tmp_path / "long.husk"
  model = FunctionModule(function)
  husk.export(model, (torch.rand(8),), path, targets=("cuda:h200",), keep=tmp_path)
  (file,) = tmp_path.glob("*.cubin")
  assert f'"{file.name}"' in next(tmp_path.glob("*.hir")).read_text()
  assert "acos_acosh_add_asin" in file.name and path.exists()
