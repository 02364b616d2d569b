"""Inputs for the models of examples/models.py and the results of eager PyTorch on the CPU, as
safetensors files.

  python tests/gpu/expected.py DIR

Each model has several shapes: DIR/MODEL.N.in.safetensors and DIR/MODEL.N.out.safetensors, with
tensors named by position. Scalar inputs are written as arguments for husk-run to DIR/MODEL.N.args.
"""

import pathlib
import sys

import torch
from safetensors.torch import save_file

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "examples"))
import models


def flatten(value):
  if isinstance(value, dict):
    return [leaf for item in value.values() for leaf in flatten(item)]
  if isinstance(value, (list, tuple)):
    return [leaf for item in value for leaf in flatten(item)]
  return [value]


def cases():
  """Yields the name of a model and new inputs, with other shapes than those of the export."""
  for rows in (1, 7, 1000):
    yield "sum_of_two", (torch.randn(rows, 5), torch.randn(rows, 5))
  for batch in (1, 5, 64):
    yield "mlp", (torch.randn(batch, 32),)
  for rows, power in ((2, 1), (33, 3), (512, 100)):
    yield "branches", (torch.randn(rows, 48), torch.randn(rows, 48), power)
  for batch, length in ((1, 1), (1, 32), (3, 70), (8, 128)):
    yield "gpt", (torch.randint(0, 256, (batch, length)),)


def main():
  out = pathlib.Path(sys.argv[1])
  torch.manual_seed(0)
  counts = {}
  for name, inputs in cases():
    model = getattr(models, name)()[0]  # A new session: state is at its beginning.
    with torch.no_grad():
      outputs = flatten(model(*inputs))
    number = counts[name] = counts.get(name, -1) + 1
    tensors = [x for x in inputs if isinstance(x, torch.Tensor)]
    scalars = [x for x in inputs if not isinstance(x, torch.Tensor)]
    save_file(
      {str(i): x.contiguous() for i, x in enumerate(tensors)},
      out / f"{name}.{number}.in.safetensors",
    )
    save_file(
      {str(i): x.contiguous().clone() for i, x in enumerate(outputs)},
      out / f"{name}.{number}.out.safetensors",
    )
    (out / f"{name}.{number}.args").write_text("".join(f"--input={x}\n" for x in scalars))


if __name__ == "__main__":
  main()
