"""A language model whose caches are in pages against one whose slots have caches of their own.

    python tests/torch/nets/paged_caches.py [--target host:avx2] [--slots 32] [--tokens 8192]
        [--use 0.1] [--cache float32] [--layers 4] [--folder DIR]

The model is a Llama with random weights. Prints, for the file with slots and the one whose pages
have `--use` of all positions,

- the bytes of the caches of a session, and how much the memory of the process has grown after a
  step in which all slots have `--use` of their tokens;
- the milliseconds of a step with that many tokens in each slot, and with one slot alone, of
  programs that take turns, and pages divided by slots.

The logits of both are compared, too. Needs transformers."""

import argparse
import pathlib
import statistics
import sys
import tempfile
import time

import numpy as np

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parents[2] / "compiler" / "torch"))

import husk  # noqa: E402
from husk import language  # noqa: E402
from husk.language import paging  # noqa: E402

RUNS = 15


def random_model(layers, tokens):
  import torch
  import transformers

  config = transformers.LlamaConfig(
    hidden_size=512,
    intermediate_size=1536,
    num_hidden_layers=layers,
    num_attention_heads=8,
    num_key_value_heads=2,
    vocab_size=4000,
    max_position_embeddings=tokens,
    initializer_range=0.1,
  )
  torch.manual_seed(0)
  return transformers.LlamaForCausalLM(config).eval()


def resident():
  """The bytes of the process that are in memory."""
  pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
  return pages * 4096


class Program:
  def __init__(self, path, slots, used):
    before = resident()
    self.session = husk.load(path).session()
    self.slots, self.used = slots, used
    self.columns = -(-(used + 1) // paging.PAGE)
    for slot in range(slots):
      tokens = np.random.default_rng(slot).integers(0, 4000, used)
      for at in range(0, used, 512):
        self.prefill(tokens[at : at + 512], slot, at)
    self.logits = np.asarray(self.step(slots)[1])
    self.grown = resident() - before
    self.bytes = sum(one.nbytes for one in self.session.state.values())


class Slots(Program):
  def prefill(self, tokens, slot, at):
    span = -(-(at + len(tokens)) // paging.PAGE) * paging.PAGE
    return self.session.prefill(tokens, slot, at, span)

  def step(self, rows):
    span = self.columns * paging.PAGE
    positions = np.full(rows, self.used)
    return self.session.decode(np.arange(rows), positions, span)


class Pages(Program):
  def table(self, rows, columns):
    first = 1 + np.arange(rows)[:, None] + np.arange(columns)[None] * self.slots
    return np.ascontiguousarray(first)

  def prefill(self, tokens, slot, at):
    columns = -(-(at + len(tokens)) // paging.PAGE)
    table = self.table(self.slots, columns)[slot].copy()
    return self.session.prefill(tokens, at, table)

  def step(self, rows):
    positions = np.full(rows, self.used)
    return self.session.decode(np.arange(rows), positions, self.table(rows, self.columns))


def main():
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("--target", default="host")
  parser.add_argument("--slots", type=int, default=32)
  parser.add_argument("--tokens", type=int, default=8192)
  parser.add_argument("--use", type=float, default=0.1)
  parser.add_argument("--cache")
  parser.add_argument("--layers", type=int, default=4)
  parser.add_argument("--folder", type=pathlib.Path)
  options = parser.parse_args()
  folder = options.folder or pathlib.Path(tempfile.mkdtemp())
  folder.mkdir(exist_ok=True, parents=True)
  used = int(options.tokens * options.use)
  count = options.slots * -(-(used + 1) // paging.PAGE)
  count = max(count, paging.least(options.tokens, options.slots))
  paths = {"slots": folder / "slots.husk", "pages": folder / "pages.husk"}
  for name, path in paths.items():
    if not path.exists():
      language.export(
        random_model(options.layers, options.tokens),
        path,
        max_tokens=options.tokens,
        slots=options.slots,
        cache=options.cache,
        pages=count if name == "pages" else None,
        features=(),
        targets=(options.target,),
      )
  programs = {
    "slots": Slots(paths["slots"], options.slots, used),
    "pages": Pages(paths["pages"], options.slots, used),
  }
  print(f"{options.slots} slots x {options.tokens} tokens, {used} in use, {count} pages")
  for name, one in programs.items():
    print(f"{name}: caches {one.bytes / 1e6:.1f} MB, process + {one.grown / 1e6:.1f} MB")
  logits = [one.logits for one in programs.values()]
  print(f"logits differ by {np.abs(logits[0] - logits[1]).max():.2g} of {np.abs(logits).max():.2g}")
  for rows in (options.slots, 1):
    times = {name: [] for name in programs}
    for run in range(RUNS + 1):
      for name, one in programs.items():
        begin = time.perf_counter()
        one.step(rows)
        if run:
          times[name].append((time.perf_counter() - begin) * 1e3)
    medians = {name: statistics.median(each) for name, each in times.items()}
    ratio = medians["pages"] / medians["slots"]
    print(f"a step of {rows} slots: {medians} ms, pages / slots {ratio:.3f}")


if __name__ == "__main__":
  main()
