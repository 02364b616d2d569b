"""Programs of libraries on the fake driver. A program without kernels runs there with the fake
libraries of tests/fake_driver."""

import os
import pathlib
import re
import subprocess

import built_tools
import husk
import pytest
import torch
from built_tools import ROOT as ROOT
from function_module import FunctionModule


def folder_of(library):
  """The folder of the fake driver, which has a fake of the library ("libcusolver.so.12")."""
  folder = pathlib.Path(built_tools.built("husk-run")).parents[1] / "fake_driver"
  if not (folder / library).exists():
    pytest.skip(f"the fake {library} is not built")
  return folder


def written(model, args, folder, shapes=None, target="h200", **options):
  """The text of the .hir."""
  model = model if isinstance(model, torch.nn.Module) else FunctionModule(model)
  return husk.write(
    model.eval(), args, folder, dynamic_shapes=shapes, targets=(f"cuda:{target}",), **options
  ).read_text()


def run(model, inputs, folder, library, monkeypatch, shapes=None, flags=(), **options):
  """(exit code, outputs, text) of husk-run for each of `inputs`, of which the first is exported."""
  monkeypatch.setenv("LD_LIBRARY_PATH", str(folder_of(library)))
  model = model if isinstance(model, torch.nn.Module) else FunctionModule(model)
  husk.export(
    model.eval(),
    inputs[0],
    folder / "made.husk",
    dynamic_shapes=shapes,
    targets=("cuda:h200",),
    keep=folder,
    **options,
  )
  text = (folder / "model.hir").read_text()
  assert "launch" not in text and "on_host" not in text, text
  results = []
  for tensors in inputs:
    named = {str(i): x for i, x in enumerate(tensors)}
    code, outputs, text = built_tools.husk_run(
      folder / "made.husk", folder, named, "--device=cuda", *flags
    )
    results.append((code, [outputs[name] for name in sorted(outputs, key=_number)], text))
  return results


def _number(name):
  """Sorts names by the numbers in them."""
  return [int(number) for number in re.findall(r"\d+", name)]


def refusal(library, artifact, *flags):
  """What husk-run prints if it fails."""
  done = subprocess.run(
    [built_tools.built("husk-run"), artifact, "--device=cuda", *flags],
    capture_output=True,
    text=True,
    env={**os.environ, "LD_LIBRARY_PATH": str(folder_of(library))},
  )
  assert done.returncode
  return done.stderr
