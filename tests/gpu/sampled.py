"""Tokens that `sample` and `sample_few` of language models draw on a GPU, against eager mode on the
host, and their times.

  python tests/gpu/sampled.py [--folder DIR] [--target cuda:h200] [--words 128256] [--rows 32]
                              [--device cuda] [--dry]

`--dry` only exports, and needs no GPU. A file that DIR has is not made again. A draw that lies at
the border of two tokens up to rounding may give either: such rows are counted, and are not wrong if
they are fewer than one in a thousand. Settings are random, one for each row. Logits have equal ones
among them. The exit status is 1 if tokens or log-probabilities are wrong."""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import types

import torch

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1] / "compiler" / "torch"))

import husk  # noqa: E402
from husk import tools  # noqa: E402
from husk.language import exporting, sampling  # noqa: E402

SLOTS = 32


def export(path, options):
  module = types.SimpleNamespace(vocabulary=options.words, max_tokens=512)
  functions = exporting._functions_of_logits(module, SLOTS, set())
  husk.export(functions, path, targets=(options.target,))


def settings_of(rows, random, few):
  def draw(low, high):
    return torch.rand(rows, generator=random) * (high - low) + low

  whole = torch.randint(1, exporting._CANDIDATES + 1, (rows,), generator=random)
  temperature = torch.where(draw(0, 1) < 0.2, 0.0, draw(0.3, 1.5))
  limited = few | (draw(0, 1) < 0.5)
  return (
    temperature,
    torch.where(limited, whole, 0),
    torch.where(draw(0, 1) < 0.5, draw(0.5, 1), 1.0),
    torch.where(draw(0, 1) < 0.3, draw(0, 0.2), 0.0),
    torch.randint(0, 1 << 40, (rows,), generator=random),
    torch.randint(0, 4096, (rows,), generator=random),
  )


def compare(program, options):
  """Whether a function draws other tokens than `sample` in eager mode."""
  random = torch.Generator().manual_seed(0)
  exact, failed = sampling.Sampler(), False
  for name, few in (("sample", False), ("sample_few", True)):
    function, other, total, far = getattr(program, name), 0, 0, 0.0
    for rows in [1, 2, 17, options.rows] * 8:
      logits = (torch.randn(rows, options.words, generator=random) * 4).round(decimals=2)
      settings = settings_of(rows, random, few)
      right, logprobs = exact(logits, *settings)
      found = [
        torch.from_dlpack(one).cpu()
        for one in function(*(one.to(options.device) for one in (logits, *settings)))
      ]
      same = found[0] == right
      other += int((~same).sum())
      total += rows
      far = max(far, float((found[1] - logprobs)[same].abs().max()))
    failed |= other * 1000 > total + 1000 or far > 1e-3
    print(f"{name}: {other} of {total} tokens differ, log-probabilities by {far:.1e}", flush=True)
  return failed


def measure(path, options, folder):
  program, device = tools.find("husk-bench"), options.device.replace("cpu", "host")
  for name in ("sample", "sample_few"):
    for rows in (1, options.rows):
      floats, ints = f"{rows}xf32=random", f"{rows}xi64=zeros"
      words = [f"{rows}x{options.words}xf32=random", floats, ints, floats, floats, ints, ints]
      file = folder / "sampled.json"
      inputs = [word for one in words for word in ("--input", one)]
      command = [program, path, "--function", name, "--device", device, *inputs]
      subprocess.run([*command, "--duration-s", "0.5", "--json", file], check=True,
                     stdout=subprocess.DEVNULL)  # fmt: skip
      found = json.loads(file.read_text())["results"][0]
      once = found["run_us"]["median"]
      print(f"{name}, {rows} rows: {once:.1f} us, enqueued {found.get('queued_us', once):.1f} us")


def main():
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument("--folder", type=pathlib.Path)
  parser.add_argument("--target", default="cuda:h200")
  parser.add_argument("--device", default="cuda")
  parser.add_argument("--words", type=int, default=128256)
  parser.add_argument("--rows", type=int, default=SLOTS)
  parser.add_argument("--dry", action="store_true")
  options = parser.parse_args()
  with tempfile.TemporaryDirectory() as temporary:
    folder = options.folder or pathlib.Path(temporary)
    folder.mkdir(exist_ok=True, parents=True)
    path = folder / "sampled.husk"
    if not path.exists():
      export(path, options)
    if options.dry:
      return 0
    failed = compare(husk.load(path, device=options.device), options)
    measure(path, options, folder)
  return int(failed)


if __name__ == "__main__":
  sys.exit(main())
