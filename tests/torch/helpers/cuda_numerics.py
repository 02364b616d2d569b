"""Runs the CUDA variant of a model on the CPU by Triton's interpreter (triton_interpreter.py)."""

import atexit
import functools
import json
import os
import pathlib
import subprocess
import sys

import husk
import torch
import triton_interpreter
from husk import devices

HERE = pathlib.Path(__file__).resolve().parent


def computed(model, args, shapes, runs, folder, target="h200", gemm_set="templates", **options):
  """The results of the variant for `target` for each of `runs`, dicts of inputs by name."""
  instances = []
  original = devices.DEVICES["cuda"]

  class Kept(original):
    def __init__(self, *positional, **named):
      super().__init__(*positional, **named)
      instances.append(self)

  devices.DEVICES["cuda"] = Kept
  try:
    husk.write(
      model, args, folder, dynamic_shapes=shapes, targets=(f"cuda:{target}:{gemm_set}",), **options
    )
  finally:
    devices.DEVICES["cuda"] = original
  triton_interpreter.describe(instances[0].kernels, folder)
  return interpreted(folder, runs, target)


@functools.cache
def interpreter():
  """The process that interprets, which ends with this one."""
  process = subprocess.Popen(
    [sys.executable, HERE / "triton_interpreter.py"],
    env={**os.environ, "TRITON_INTERPRET": "1"},
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    text=True,
    start_new_session=True,  # with its children it is one group of processes
  )
  atexit.register(process.communicate)
  return process


def interpreted(folder, runs, target="h200"):
  """The results of a variant that `computed` has written."""
  inputs, outputs = folder / "inputs.pt", folder / "outputs.pt"
  torch.save(runs, inputs)
  process = interpreter()
  arguments = [str(folder), f"cuda_{target}", str(inputs), str(outputs)]
  print(json.dumps(arguments), file=process.stdin, flush=True)
  failure = json.loads(process.stdout.readline())
  assert not failure, failure
  return torch.load(outputs)


def close(one, other, tolerance=1e-5):
  torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)
