"""Layers of 1 to 16 rows as one launch (cuda/few_rows.py, rows): their values on a GPU.

  python tests/gpu/few_rows.py [--dry] [--folder DIR] [--target cuda:h200] [--size 2048] [--seeds 8]
                               [--only NAME]

Two kinds of models run, for each dtype and kind of codes: what a layer of a decoder does with a
token, and layers of codes behind a norm, two of them with a gate. A row has the largest relative
error (rms) against float64, that of eager mode on the same GPU, the mean of the one divided by that
of the other, and whether a launch list and a graph give equal bits. The exit status is 1 if an
error is more than 1.1 times that of eager mode, or if bits differ.

`--dry` only exports, and needs no GPU. `compute-sanitizer python tests/gpu/few_rows.py --size 256
--seeds 2 --folder DIR` checks the kernels that a dry run has put into DIR."""

import argparse
import copy
import itertools
import pathlib
import sys
import tempfile

import torch
from torch.nn import functional as F

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path += [str(TESTS / "torch" / part) for part in ("cuda", "helpers")]

import husk  # noqa: E402
import test_few_rows as layers  # noqa: E402
from husk.cuda import few_rows  # noqa: E402

CODES = {
  "int4, groups of 32": {"dtype": torch.uint8, "group": 32, "scales": torch.float16},
  "int4, groups of 128": {"dtype": torch.uint8, "group": 128, "scales": torch.float16},
  "int4, zeros": {"dtype": torch.uint8, "group": 64, "zeros": torch.float32},
  "int8": {"dtype": torch.int8},
  "int8, zeros": {"dtype": torch.int8, "group": 64, "zeros": torch.int8},
  "fp8": {"dtype": layers.E4M3},
}


def models(size):
  """(name, model, dtype of the rows, their number, results in float64)"""

  def exactly(model, x):
    return model.double()(x.double())

  for dtype in (torch.bfloat16, torch.float16, torch.float32):
    model = layers.Layer(size, 4 * size, (True, False, True), layers.Steps, F.silu).to(dtype).eval()
    yield f"layer, {str(dtype)[6:]}", model, dtype, 1, exactly
  for rows, bias, norm, activation in (
    (2, (False, False, False), layers.Steps, F.silu),
    (7, (True, False, True), layers.Eps, layers.GELU),
    (8, (False, True, False), layers.Steps, F.silu),
    (11, (False, False, True), torch.nn.LayerNorm, F.relu),
    (16, (True, True, True), layers.Steps, torch.sigmoid),
  ):
    for dtype in (torch.bfloat16, torch.float16):
      model = layers.Layer(size, 4 * size + 8, bias, norm, activation).to(dtype).eval()
      yield f"layer, {rows} rows, {str(dtype)[6:]}", model, dtype, rows, exactly
  for rows, (name, codes) in itertools.product((1, 2, 7, 8), CODES.items()):
    for dtype in (torch.bfloat16, torch.float16):
      model = layers.Quantized(size, True, **codes).eval()
      model.norm.to(dtype)
      model.norm.weight.data /= 128  # so that no product of two layers is too large for f16
      text = f"{name}, rows {rows}, {str(dtype)[6:]}"
      yield text, model, dtype, rows, lambda model, x: model.exact(x)


def relative_error(values, right):
  return [
    float((one.double() - wanted).norm() / wanted.norm()) for one, wanted in zip(values, right)
  ]


def compared(path, model, exact, size, dtype, rows, seeds):
  """The row of a model, and whether it is right."""
  program = husk.load(path, device="cuda")
  sessions = [program.session(mode=mode) for mode in ("list", "graph")]
  model = model.cuda()
  ours, of_eager, is_equal = [], [], True
  for seed in range(seeds):
    # Numbers below 1, so that no result is too large for f16.
    x = torch.rand(rows, 1, size, generator=torch.Generator().manual_seed(seed)) - 0.5
    x = x.to(dtype).cuda()
    results = [[one.clone() for one in session(x)] for session in sessions]
    is_equal &= all(torch.equal(*pair) for pair in zip(*results))
    with torch.no_grad():
      eager, right = model(x), exact(copy.deepcopy(model), x)
    ours += relative_error(results[0], right)
    of_eager += relative_error(eager, right)
  ratio = sum(ours) / sum(of_eager)
  text = f"rms {max(ours):.2e}, eager {max(of_eager):.2e}, mean ratio {ratio:.2f}"
  return f"{text}, equal bits {is_equal}", ratio <= 1.1 and is_equal


def main():
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument("--dry", action="store_true")
  parser.add_argument("--folder", type=pathlib.Path)
  parser.add_argument("--target", default="cuda:h200")
  parser.add_argument("--size", type=int, default=2048)
  parser.add_argument("--seeds", type=int, default=8)
  parser.add_argument("--only", default="", help="a part of the names of the models to take")
  options = parser.parse_args()
  folder = options.folder or pathlib.Path(tempfile.mkdtemp(prefix="husk-few-rows-"))
  folder.mkdir(parents=True, exist_ok=True)
  few_rows.LEAST_BYTES = 0
  wrong = 0
  for number, (name, model, dtype, rows, exact) in enumerate(models(options.size)):
    if options.only not in name:
      continue
    path = folder / f"{number}.husk"
    if not path.exists():
      x = torch.zeros(rows, 1, options.size, dtype=dtype)
      husk.export(model, (x,), path, targets=[options.target], tune="heuristic")
    if options.dry:
      continue
    text, is_right = compared(path, model, exact, options.size, dtype, rows, options.seeds)
    wrong += not is_right
    print(f"{name:32} {text}", flush=True)
  print(
    f"{wrong} of {number + 1} models are wrong" if not options.dry else f"{number + 1} exported"
  )
  return 1 if wrong else 0


if __name__ == "__main__":
  sys.exit(main())
