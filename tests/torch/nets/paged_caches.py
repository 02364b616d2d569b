"""A language model whose caches are in pages against one whose slots have caches of their own.

    python tests/torch/nets/paged_caches.py [--target host:avx2] [--slots 32] [--tokens 8192]
        [--use 0.1] [--dtype float32] [--cache float32] [--layers 4] [--folder DIR]
        [--device cpu] [--dry] [--check]

The model is a Llama with random weights. Prints, for the file with slots and the one whose pages
have `--use` of all positions,

- the bytes of the caches of a session, and how much the memory of the process has grown after a
  step in which all slots have `--use` of their tokens;
- the milliseconds of a step with that many tokens in each slot, and with one slot alone, of
  programs that take turns, and pages divided by slots.

`--check` compares instead, and fails if anything differs: the logits of `prefill`, `decode`,
`verify` and `copy`, and the tokens of requests that wait for pages and give them away.

DIR keeps the files. `--dry` only exports, and needs transformers and no GPU; without it, files that
DIR has are not made again, and a machine needs NumPy and the runtime alone, and torch for `copy` on
a GPU. So for a GPU:

    python tests/torch/nets/paged_caches.py --target cuda:h200 --folder DIR --dry
    compute-sanitizer python tests/torch/nets/paged_caches.py --folder DIR --device cuda --check"""

import argparse
import json
import pathlib
import statistics
import sys
import tempfile
import time

import numpy as np

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parents[2] / "compiler" / "torch"))

import husk  # noqa: E402
import husk.text  # noqa: E402

RUNS, CHUNK, VOCABULARY = 15, 512, 4000
# How far logits may be from each other, as a part of the largest one.
TOLERANCES = {"float32": 1e-4, "bfloat16": 5e-2, "float16": 1e-2}


def random_model(layers, tokens, dtype):
  import torch
  import transformers

  config = transformers.LlamaConfig(
    hidden_size=512,
    intermediate_size=1536,
    num_hidden_layers=layers,
    num_attention_heads=8,
    num_key_value_heads=2,
    vocab_size=VOCABULARY,
    max_position_embeddings=tokens,
    initializer_range=0.1,
  )
  torch.manual_seed(0)
  return transformers.LlamaForCausalLM(config).to(getattr(torch, dtype)).eval()


def export(path, options, pages):
  from husk import language

  language.export(
    random_model(options.layers, options.tokens, options.dtype),
    path,
    max_tokens=options.tokens,
    slots=options.slots,
    cache=options.cache,
    pages=pages,
    features=("copy", "verify"),
    targets=(options.target,),
    metadata={"dtype": options.dtype},
  )


def resident():
  """The bytes of the process that are in memory."""
  return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * 4096


def tokens_of(seed, count):
  return np.random.default_rng(seed).integers(0, VOCABULARY, count)


class Program:
  """A session of a file, with the same functions for both. Pages are in an order of their own."""

  def __init__(self, path, device):
    self.before, self.device = resident(), device
    program = husk.load(path, device)
    texts = program.metadata()
    described = json.loads(texts["husk.text.model"])
    self.session, self.dtype = program.session(), texts["dtype"]
    self.slots, self.most = described["slots"], described["max_tokens"]
    self.pages, self.page = described.get("pages"), described.get("page", 64)
    self.chunk = min(CHUNK, described["chunk"])

  @property
  def bytes(self):
    state = self.session.state
    return sum(len(state[name].tobytes()) for name in state)

  def seen(self, rows, end):
    """What functions take for the positions before `end`: a span or a table."""
    columns = -(-end // self.page)
    if self.pages is None:
      return min(columns * self.page, self.most)
    table = 1 + (np.array(rows)[:, None] + np.arange(columns)[None] * self.slots)
    assert table.max() <= self.pages, "the file has too few pages"
    return np.ascontiguousarray(table)

  def prefill(self, tokens, slot):
    for at in range(0, len(tokens), self.chunk):
      part = tokens[at : at + self.chunk]
      seen = self.seen([slot], at + len(part))
      where = (slot, at, seen) if self.pages is None else (at, seen[0].copy())
      result = self.session.prefill(part, *where)
    return result

  def decode(self, tokens, positions):
    seen = self.seen(range(len(tokens)), max(positions) + 1)
    return self.session.decode(tokens, np.array(positions), seen)

  def verify(self, tokens, positions):
    seen = self.seen(range(len(tokens)), max(positions) + tokens.shape[1])
    return self.session.verify(tokens, np.array(positions), seen)

  def copy(self, source, slot, count):
    calls = [(source, slot, 0, count)]
    if self.pages is not None:
      calls = zip(*(self.seen([one], count)[0].tolist() for one in (source, slot)), strict=True)
    for call in calls:
      self.session.copy(*call, out=self.place())

  def place(self):
    """Memory for the result of `copy`, of which NumPy has none on a GPU."""
    if self.device == "cpu":
      return np.zeros(1, np.int64)
    import torch

    return torch.zeros(1, dtype=torch.int64, device=self.device)


def fill(program, used):
  """Takes `used` tokens into each slot, and one more."""
  for slot in range(program.slots):
    program.prefill(tokens_of(slot, used), slot)
  program.decode(np.arange(program.slots), [used] * program.slots)


def measure(paths, use, device):
  programs = {}
  for name, path in paths.items():
    one = programs[name] = Program(path, device)
    used = int(one.most * use)
    fill(one, used)
    grown = resident() - one.before
    print(f"{name}: {one.slots} slots x {one.most} tokens, {used} in use")
    print(f"  caches {one.bytes / 1e6:.1f} MB, process + {grown / 1e6:.1f} MB")
  for rows in (programs["slots"].slots, 1):
    times = {name: [] for name in programs}
    for run in range(RUNS + 1):
      for name, one in programs.items():
        begin = time.perf_counter()
        np.asarray(one.decode(np.arange(rows), [used] * rows)[0])
        if run:
          times[name].append((time.perf_counter() - begin) * 1e3)
    medians = {name: round(statistics.median(each), 3) for name, each in times.items()}
    ratio = medians["pages"] / medians["slots"]
    print(f"a step of {rows} slots: {medians} ms, pages / slots {ratio:.3f}")


def difference(results):
  """How far the logits of two results are from each other, as a part of the largest one."""
  one, other = (np.asarray(result[1], np.float64) for result in results)
  return np.abs(one - other).max() / np.abs(one).max()


def is_tie(program, prompt, one, other, limit):
  """Whether the first tokens in which two texts differ have the same logit, up to rounding."""
  at = next(place for place, pair in enumerate(zip(one, other, strict=True)) if len({*pair}) > 1)
  logits = np.asarray(program.prefill(np.array([*prompt, *one[:at]]), 0)[1], np.float64)[0]
  return abs(logits[one[at]] - logits[other[at]]) <= limit * np.abs(logits).max()


def check(paths, use, device):
  """Whether functions and texts of both files are equal."""
  both = [Program(path, device) for path in paths.values()]
  slots, used = both[0].slots, int(both[0].most * use)
  lengths = [max(used - 37 * slot, 3) for slot in range(slots)]
  found = {
    "prefill": max(
      difference([one.prefill(tokens_of(slot, length), slot) for one in both])
      for slot, length in enumerate(lengths)
    )
  }
  found["decode"] = 0.0
  for _ in range(70):
    tokens = tokens_of(lengths[0], slots)
    found["decode"] = max(
      found["decode"], difference([one.decode(tokens, lengths) for one in both])
    )
    lengths = [length + 1 for length in lengths]
  several = tokens_of(1, slots * 4).reshape(slots, 4)
  found["verify"] = difference([one.verify(several, lengths) for one in both])
  count = lengths[0]
  for one in both:
    one.copy(0, slots - 1, count)
  lengths[-1] = count
  found["copy"] = difference([one.decode(tokens_of(2, slots), lengths) for one in both])
  print(
    "largest differences of logits:", {name: float(f"{one:.2g}") for name, one in found.items()}
  )
  limit = TOLERANCES[both[0].dtype]
  is_equal = max(found.values()) <= limit

  texts, paused = {}, 0
  prompts = [tokens_of(seed, 20 + 90 * seed % used).tolist() for seed in range(2 * slots)]
  for name, path in paths.items():
    model = husk.text.load(path, device)
    requests = [model.submit(prompt, max_new_tokens=model.max_tokens // 2) for prompt in prompts]
    while model.step():
      paused += any(one.paused for one in requests)
    texts[name] = [request.tokens for request in requests]
  pairs = list(zip(prompts, *texts.values(), strict=True))
  different = [pair for pair in pairs if pair[1] != pair[2]]
  ties = sum(is_tie(both[0], *pair, limit) for pair in different)
  print(
    f"{len(pairs) - len(different)} of {len(pairs)} texts are equal, {ties} until two tokens have "
    f"the same logit; in {paused} steps one waited for pages"
  )
  is_equal &= ties == len(different)
  print("equal" if is_equal else "DIFFERENT")
  return is_equal


def main():
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument("--target", default="host")
  parser.add_argument("--slots", type=int, default=32)
  parser.add_argument("--tokens", type=int, default=8192)
  parser.add_argument("--use", type=float, default=0.1)
  parser.add_argument("--dtype", default="float32", choices=TOLERANCES)
  parser.add_argument("--cache")
  parser.add_argument("--layers", type=int, default=4)
  parser.add_argument("--folder", type=pathlib.Path)
  parser.add_argument("--device", default="cpu", help="cpu or cuda, for files that are there")
  parser.add_argument("--dry", action="store_true")
  parser.add_argument("--check", action="store_true")
  options = parser.parse_args()
  folder = options.folder or pathlib.Path(tempfile.mkdtemp())
  folder.mkdir(exist_ok=True, parents=True)
  paths = {name: folder / f"{name}.husk" for name in ("slots", "pages")}
  if not all(path.exists() for path in paths.values()):
    used = int(options.tokens * options.use)
    # Room for the tokens of a check, too.
    count = options.slots * -(-(used + 80) // 64)
    export(paths["slots"], options, None)
    export(paths["pages"], options, max(count, -(-options.tokens // 64)))
  if options.dry:
    return 0
  if options.check:
    return 0 if check(paths, options.use, options.device) else 1
  measure(paths, options.use, options.device)
  return 0


if __name__ == "__main__":
  sys.exit(main())
