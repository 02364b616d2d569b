"""Exports one construct, runs what came out by the interpreter, and as an artifact where husk-run is built, and
compares with eager PyTorch: values, dtypes, shapes and, of the interpreter's, strides."""

import copy
import re

import pytest
import torch

import tools
import husk
import interpreter
from husk import host_kernels
from module import Of

ISAS = host_kernels.isas()


def close(given, expected, strides=True):
  for one, other in zip(given, torch.utils._pytree.tree_leaves(expected), strict=True):
    if not isinstance(other, torch.Tensor):
      assert one == other and type(one) in (type(other), int), (one, other)
      continue
    torch.testing.assert_close(one, other, rtol=2e-5, atol=5e-5, equal_nan=True)
    if strides and other.numel() > 1:
      assert [s for s, n in zip(one.stride(), one.shape) if n > 1] == [
          s for s, n in zip(other.stride(), other.shape) if n > 1]


def exported(folder, function, args, shapes=None, buffers=None, strict=False):
  """(model, text, program)."""
  model = function if isinstance(function, torch.nn.Module) else Of(function, **(buffers or {}))
  given = copy.deepcopy(model)
  if strict:
    with torch.no_grad():
      given = torch.export.export(given, args, dynamic_shapes=shapes, strict=True)
  path = husk.write(given, args, folder, dynamic_shapes=shapes, targets=(f"host:{ISAS[0]}",))
  return model, path.read_text(), interpreter.Program(path)


def run(folder, function, args, shapes=None, others=(), buffers=None, strides=True, strict=False, artifact=True):
  """`others` are more arguments to try; `artifact` is false where an artifact needs an op that no pack has, as it does
  for ops that are not PyTorch's. Returns the text."""
  model, text, program = exported(folder, function, args, shapes, buffers, strict)
  for given in (args, *others):
    mine, theirs = copy.deepcopy(given), copy.deepcopy(given)
    with torch.no_grad():
      results = program.run(f"host_{ISAS[0]}", **{value["name"]: one for value, one in zip(program.inputs, mine)})
      close(results.values(), model(*theirs), strides)
    for one, other in zip(mine, theirs, strict=True):      # inputs that are written
      if isinstance(one, torch.Tensor):
        torch.testing.assert_close(one, other)
    if artifact and not re.search(r'extern "(?!aten::)', text):
      run_artifact(folder, model, program, given)
  return text


def run_artifact(folder, model, program, given):
  try:
    tools.built("huskc"), tools.built("husk-run")
  except pytest.skip.Exception:
    return
  made = folder / "model.husk"
  if not made.exists():
    husk.compile.compile(folder / "model.hir", made)
  mine, theirs = copy.deepcopy(given), copy.deepcopy(given)
  code, outputs, text = tools.husk_run(made, folder, {value["name"]: one for value, one in zip(program.inputs, mine)})
  assert code == 0, text
  with torch.no_grad():
    expected = torch.utils._pytree.tree_leaves(model(*theirs))
  for index, one in enumerate(expected):
    if isinstance(one, torch.Tensor):
      torch.testing.assert_close(outputs[str(index)], one, rtol=2e-5, atol=5e-5, equal_nan=True)
