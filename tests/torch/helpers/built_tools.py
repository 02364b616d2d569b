"""The paths of the exporter, of the small models and, if they are built, of huskc and husk-run."""

import os
import pathlib
import subprocess
import sys

import pytest
import safetensors.torch

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "compiler" / "torch"), str(ROOT / "examples")]


def built(name):
  """A program of the newest build, or the one that the environment names (HUSKC, HUSK_RUN)."""
  if path := os.environ.get(name.upper().replace("-", "_")):
    return path
  from husk import tools

  found = sorted(
    filter(tools.runs_here, ROOT.glob(f"build/*/bin/{name}")),
    key=lambda path: path.stat().st_mtime,
  )
  if not found:
    pytest.skip(f"{name} is not built")
  return str(found[-1])


def husk_run(artifact, folder, inputs, *options, environment=None):
  """Runs an artifact on tensors and numbers by name; returns the exit code, the output tensors by
  position, and the printed text. `environment` may name another husk-run."""
  import torch

  tensors = {
    name: value.contiguous() for name, value in inputs.items() if isinstance(value, torch.Tensor)
  }
  specs = [f"--input={value}" for value in inputs.values() if not isinstance(value, torch.Tensor)]
  safetensors.torch.save_file(tensors, folder / "inputs.safetensors")
  results = folder / "outputs.safetensors"
  results.unlink(missing_ok=True)
  done = subprocess.run(
    [
      (environment or {}).get("HUSK_RUN") or built("husk-run"),
      str(artifact),
      "--inputs",
      str(folder / "inputs.safetensors"),
      "--outputs",
      str(results),
      *specs,
      *options,
    ],
    capture_output=True,
    text=True,
    env=environment,
  )
  return (
    done.returncode,
    safetensors.torch.load_file(results) if results.is_file() else {},
    done.stdout + done.stderr,
  )
