"""Exports one construct, runs it by the interpreter and, if husk-run is built, as an artifact, and
compares with eager PyTorch: values, dtypes, shapes and, for the interpreter, strides."""

import copy
import re

import built_tools
import hir_interpreter
import husk
import pytest
import torch
from function_module import FunctionModule
from husk.hir import huskc
from husk.host import kernels as host_kernels

ISAS = host_kernels.isas()


def close(results, expected, strides=True):
  for one, other in zip(results, torch.utils._pytree.tree_leaves(expected), strict=True):
    if not isinstance(other, torch.Tensor):
      assert one == other and type(one) in (type(other), int), (one, other)
      continue
    torch.testing.assert_close(one, other, rtol=2e-5, atol=5e-5, equal_nan=True)
    if strides and other.numel() > 1:
      assert [s for s, n in zip(one.stride(), one.shape) if n > 1] == [
        s for s, n in zip(other.stride(), other.shape) if n > 1
      ]


def exported(folder, function, args, shapes=None, buffers=None, strict=False, ops=()):
  """The model, the text and the program."""
  model = (
    function
    if isinstance(function, torch.nn.Module)
    else FunctionModule(function, **(buffers or {}))
  )
  source = copy.deepcopy(model)
  if strict:
    with torch.no_grad():
      source = torch.export.export(source, args, dynamic_shapes=shapes, strict=True)
  path = husk.write(
    source, args, folder, dynamic_shapes=shapes, targets=(f"host:{ISAS[0]}",), ops=ops
  )
  return model, path.read_text(), hir_interpreter.Program(path)


def run(
  folder,
  function,
  args,
  shapes=None,
  others=(),
  buffers=None,
  strides=True,
  strict=False,
  artifact=True,
  ops=(),
):
  """Exports, runs and compares; returns the text. `others` are more arguments for runs.
  `artifact` is false if an artifact would need an op that no library has, as for ops that are
  not PyTorch's. `ops` are PyTorch's operators that no library has."""
  model, text, program = exported(folder, function, args, shapes, buffers, strict, ops)
  for arguments in (args, *others):
    mine, theirs = copy.deepcopy(arguments), copy.deepcopy(arguments)
    with torch.no_grad():
      results = program.run(
        f"host_{ISAS[0]}", **{value["name"]: one for value, one in zip(program.inputs, mine)}
      )
      close(results.values(), model(*theirs), strides)
    for one, other in zip(mine, theirs, strict=True):  # inputs that are written
      if isinstance(one, torch.Tensor):
        torch.testing.assert_close(one, other)
    if artifact and not re.search(r'extern "(?!aten::)', text):
      run_artifact(folder, model, program, arguments)
  return text


def run_artifact(folder, model, program, arguments):
  try:
    built_tools.built("huskc"), built_tools.built("husk-run")
  except pytest.skip.Exception:
    return
  artifact = folder / "model.husk"
  if not artifact.exists():
    huskc.compile(folder / "model.hir", artifact)
  mine, theirs = copy.deepcopy(arguments), copy.deepcopy(arguments)
  code, outputs, text = built_tools.husk_run(
    artifact, folder, {value["name"]: one for value, one in zip(program.inputs, mine)}
  )
  assert code == 0, text
  with torch.no_grad():
    expected = torch.utils._pytree.tree_leaves(model(*theirs))
  for index, one in enumerate(expected):
    if isinstance(one, torch.Tensor):
      torch.testing.assert_close(outputs[str(index)], one, rtol=2e-5, atol=5e-5, equal_nan=True)
