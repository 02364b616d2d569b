"""Recurrent layers on a GPU against eager mode there: values, and the time of a call.

  python tests/gpu/recurrent.py [--target cuda:h200] [--dry] [--folder DIR]

A row has the largest difference from eager mode in float64, that of eager mode on the GPU, and the
microseconds of a call of the artifact as a graph and of eager mode, whose layers are cuDNN's.
`--dry` only exports, and needs no GPU. An artifact that DIR has is not made again."""

import argparse
import pathlib
import tempfile
import time

import torch
from torch import nn

# A kind, steps, batches, the size of the hidden state, and options.
ROWS = {
  "lstm 96 x 2 x 32": ("LSTM", 96, 2, 32, {}),
  "gru 96 x 2 x 32": ("GRU", 96, 2, 32, {}),
  "rnn 96 x 2 x 32": ("RNN", 96, 2, 32, {}),
  "lstm 50 x 4 x 128, both directions": ("LSTM", 50, 4, 128, {"bidirectional": True}),
  "gru 200 x 1 x 256, two layers": ("GRU", 200, 1, 256, {"num_layers": 2}),
  "lstm 100 x 300 x 64": ("LSTM", 100, 300, 64, {}),
  "lstm 20 x 1 x 512": ("LSTM", 20, 1, 512, {}),
  "gru 30 x 2 x 37": ("GRU", 30, 2, 37, {"batch_first": True, "bias": False}),
  "relu 40 x 3 x 20": ("RNN", 40, 3, 20, {"nonlinearity": "relu"}),
  "gru 40 x 2 x 256": ("GRU", 40, 2, 256, {}),
  "gru 600 x 1 x 192": ("GRU", 600, 1, 192, {}),
  "rnn 60 x 2 x 320, both directions": ("RNN", 60, 2, 320, {"bidirectional": True}),
  "rnn 600 x 1 x 320": ("RNN", 600, 1, 320, {}),
}


class Network(nn.Module):
  def __init__(self, kind, size, options):
    super().__init__()
    self.net = getattr(nn, kind)(16, size, **options)

  def forward(self, x):
    return self.net(x)


def made(name):
  torch.manual_seed(0)
  kind, steps, batches, size, options = ROWS[name]
  shape = (batches, steps, 16) if options.get("batch_first") else (steps, batches, 16)
  return Network(kind, size, options).eval(), torch.randn(shape)


def leaves(result):
  return torch.utils._pytree.tree_leaves(result)


def microseconds(call):
  for _ in range(5):
    call()
  torch.cuda.synchronize()
  times = []
  for _ in range(30):
    begin = time.perf_counter()
    call()
    torch.cuda.synchronize()
    times.append(1e6 * (time.perf_counter() - begin))
  return sorted(times)[len(times) // 2]


def difference(found, exact):
  return max(float((one.double().cpu() - other).abs().max()) for one, other in zip(found, exact))


def main():
  import husk

  parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
  parser.add_argument("--target", default="cuda:h200")
  parser.add_argument("--dry", action="store_true")
  parser.add_argument("--folder", type=pathlib.Path)
  parser.add_argument("--only", nargs="*", metavar="NAME", help="rows, by their names")
  options = parser.parse_args()
  folder = options.folder or pathlib.Path(tempfile.mkdtemp())
  folder.mkdir(parents=True, exist_ok=True)
  wrong = 0
  for name in options.only or ROWS:
    artifact = folder / f"{name.replace(' ', '_').replace(',', '')}.husk"
    if not artifact.exists():
      model, x = made(name)
      begin = time.perf_counter()
      husk.export(model, (x,), artifact, targets=(options.target,), progress=False)
      print(f"{name}: exported in {time.perf_counter() - begin:.1f} s", flush=True)
    if not options.dry:
      wrong += not is_right(name, artifact)
  print(f"{len(options.only or ROWS)} rows, {wrong} wrong")
  return 1 if wrong else 0


def is_right(name, artifact):
  """Runs an artifact and eager mode, and prints a row."""
  import husk

  model, x = made(name)
  with torch.no_grad():
    exact = leaves(made(name)[0].double()(x.double()))
    model, x = model.cuda(), x.cuda()
    with torch.backends.cudnn.flags(allow_tf32=False):
      theirs = leaves(model(x))
      their_time = microseconds(lambda: model(x))
  session = husk.load(artifact, device="cuda").session(mode="graph")
  mine = [torch.as_tensor(one).clone() for one in leaves(session(x))]
  again = [torch.as_tensor(one).clone() for one in leaves(session(x))]
  time_of_call = microseconds(lambda: session(x))
  error, their_error = difference(mine, exact), difference(theirs, exact)
  right = error < 1e-5 and all(torch.equal(*pair) for pair in zip(mine, again))
  print(
    f"{name}: {'right' if right else 'WRONG'}, error {error:.2g} (eager {their_error:.2g}), "
    f"{time_of_call:.0f} us (eager {their_time:.0f})",
    flush=True,
  )
  return right


if __name__ == "__main__":
  raise SystemExit(main())
