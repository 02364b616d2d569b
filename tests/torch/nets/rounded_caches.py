"""A language model with caches of 8 bits against one whose caches are floats.

    python tests/torch/nets/rounded_caches.py CHECKPOINT [--target host:avx512] [--text FILE]
        [--caches float32,int8,fp8] [--quantize int8] [--folder DIR] [--dry]

CHECKPOINT is a GGUF file or a folder of Hugging Face's, or `random:1b`, a Llama in bf16 with random
weights and the sizes of Llama 3.2 1B. Each cache has an artifact, which DIR keeps, and a row with

- the bytes of the caches of a session, divided by those of the first row,
- the differences of the log-probabilities of the tokens of a text, mean and largest, from those of
  the first row: 256 tokens are taken one by one after 256 others; a random model takes random ones;
- the tokens that are equal before the first difference, of 64 that follow each of eight beginnings
  of the text greedily;
- the milliseconds of a step with `--spans` positions, of programs that take turns.

`--dry` only exports. Needs transformers."""

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

BEFORE, COUNT, GREEDY, STEP = 256, 256, 64, 32


def random_model():
  import torch
  import transformers

  config = transformers.LlamaConfig(
    hidden_size=2048,
    intermediate_size=8192,
    num_hidden_layers=16,
    num_attention_heads=32,
    num_key_value_heads=8,
    vocab_size=32000,
    max_position_embeddings=131072,
    dtype="bfloat16",
  )
  torch.manual_seed(0)
  torch.set_default_dtype(torch.bfloat16)
  try:
    model = transformers.LlamaForCausalLM(config)
  finally:
    torch.set_default_dtype(torch.float32)
  return model.eval()


class Kept:
  """A model with one kind of cache."""

  def __init__(self, path, device):
    program = husk.load(path, device)
    texts = program.metadata()
    described = json.loads(texts["husk.text.model"])
    self.chunk, self.most = described["chunk"], described["max_tokens"]
    self.tokenizer = texts.get("husk.text.tokenizer")
    self.session = program.session()
    self.bytes = sum(len(self.session.state[name].tobytes()) for name in self.session.state)

  def prefill(self, tokens):
    chunk = self.chunk
    for at in range(0, len(tokens), chunk):
      part = np.array(tokens[at : at + chunk], np.int64)
      end = at + len(part)
      span = min(-(-end // STEP) * STEP, self.most)
      found, logits = self.session.prefill(part, 0, at, span)
    return found, logits

  def step(self, token, at, span=None):
    span = min(span or -(-(at + 1) // STEP) * STEP, self.most)
    return self.session.decode(np.array([token]), np.array([at]), span)


def logs(logits):
  logits = np.asarray(logits, np.float64)[0]
  largest = logits.max()
  return logits - largest - np.log(np.exp(logits - largest).sum())


def scored(kept, tokens):
  """The logarithm of the probability of each token after the first BEFORE."""
  _, logits = kept.prefill(tokens[:BEFORE])
  found = []
  for at in range(BEFORE, BEFORE + COUNT):
    found.append(logs(logits)[tokens[at]])
    _, logits = kept.step(tokens[at], at)
  return np.array(found)


def greedy(kept, tokens):
  found, _ = kept.prefill(tokens)
  texts = [int(np.asarray(found)[0])]
  for at in range(len(tokens), len(tokens) + GREEDY - 1):
    found, _ = kept.step(texts[-1], at)
    texts.append(int(np.asarray(found)[0]))
  return texts


def equal(one, other):
  """How many tokens are equal before the first that differs."""
  pairs = enumerate(zip(one, other, strict=True))
  return next((at for at, (a, b) in pairs if a != b), len(one))


def main():
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("checkpoint")
  parser.add_argument("--target", default="host")
  parser.add_argument("--text", default=HERE.parents[2] / "README.md", type=pathlib.Path)
  parser.add_argument("--caches", default="float32,int8,fp8")
  parser.add_argument("--max-tokens", type=int, default=1024)
  parser.add_argument("--spans", default="512")
  parser.add_argument("--quantize")
  parser.add_argument("--folder", type=pathlib.Path)
  parser.add_argument("--dry", action="store_true")
  options = parser.parse_args()
  with tempfile.TemporaryDirectory() as temporary:
    folder = options.folder or pathlib.Path(temporary)
    folder.mkdir(exist_ok=True)
    paths = {kind: folder / f"{kind}.husk" for kind in options.caches.split(",")}
    model = None
    for kind, path in paths.items():
      if path.exists():
        continue
      if model is None:
        is_random = options.checkpoint.startswith("random:")
        model = random_model() if is_random else options.checkpoint
      husk.language.export(
        model,
        path,
        cache=kind,
        max_tokens=options.max_tokens,
        targets=(options.target,),
        **({"quantize": options.quantize} if options.quantize else {}),
      )
    if not options.dry:
      compare(options, paths)


def compare(options, paths):
  device = "cuda" if options.target.startswith("cuda") else "cpu"
  all_kept = {kind: Kept(path, device) for kind, path in paths.items()}
  first = next(iter(all_kept.values()))
  if options.checkpoint.startswith("random:"):
    tokens = np.random.default_rng(0).integers(0, 32000, 1024).tolist()
  else:
    tokens = husk.text.Tokenizer(first.tokenizer).encode(options.text.read_text())
  scores = {kind: scored(kept, tokens) for kind, kept in all_kept.items()}
  starts = range(0, 8 * 48, 48)
  texts = {
    kind: [greedy(kept, tokens[at : at + 48]) for at in starts] for kind, kept in all_kept.items()
  }
  begin, *_ = all_kept
  for kind, kept in all_kept.items():
    off = np.abs(scores[kind] - scores[begin])
    same = [equal(a, b) for a, b in zip(texts[kind], texts[begin], strict=True)]
    print(
      f"{kind}: {kept.bytes / 2**20:.1f} MiB, {kept.bytes / first.bytes:.3f} of {begin}; "
      f"log-probability {scores[kind].mean():.4f}, off by {off.mean():.4f} (mean), {off.max():.4f} "
      f"(largest); greedy tokens equal: {same} of {GREEDY}",
      flush=True,
    )
  for span in map(int, options.spans.split(",")):
    times = {kind: [] for kind in all_kept}
    for _ in range(12):
      for kind, kept in all_kept.items():
        kept.step(1, span - 1, span)
        start = time.perf_counter()
        for _ in range(4):
          kept.step(1, span - 1, span)
        times[kind].append((time.perf_counter() - start) / 4 * 1e3)
    print(f"{span} positions, ms: ", {k: round(statistics.median(v), 3) for k, v in times.items()})


if __name__ == "__main__":
  main()
