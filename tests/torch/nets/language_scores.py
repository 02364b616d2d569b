"""Log-probabilities of a published checkpoint: a file of Husk against transformers, which computes
with the dequantized weights in f32. Run by name:

    python tests/torch/nets/language_scores.py CHECKPOINT.gguf MODEL.husk [--texts 20] [--tokens 65]
        [--llama] [--rounded 8,10]

Needs transformers, gguf and accelerate. MODEL.husk is what `python -m husk llm CHECKPOINT.gguf` has
made. The texts are parts of this repository's pages, of which the perplexity is computed, too.
`--llama` computes the same numbers with llama.cpp, which rounds inputs of layers to ints of 8 bits;
it needs llama-cpp-python. `--rounded` does so with the model of transformers whose inputs of linear
layers are rounded to ints of so many bits, by blocks of 32, and is exact otherwise: what such
rounding costs, whoever computes it. The exit status is 1 if a log-probability of Husk differs by
more than --most."""

import argparse
import math
import pathlib
import sys
import time

import torch

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parents[2]
sys.path.insert(0, str(ROOT / "compiler" / "torch"))

import husk  # noqa: E402

PAGES = ("README.md", "runtime/TEXT.md", "CONTRIBUTING.md", "compiler/torch/QUANTIZE.md")


def right_scores(model, tokens):
  with torch.no_grad():
    logits = model(torch.tensor([tokens]), use_cache=False).logits[0, :-1].double()
  return logits.log_softmax(-1).gather(1, torch.tensor(tokens[1:])[:, None])[:, 0].numpy()


def llama_scores(path, size):
  """A function that returns the scores of llama.cpp for tokens."""
  import llama_cpp  # pyright: ignore[reportMissingImports]

  model = llama_cpp.Llama(str(path), n_ctx=size, n_batch=size, logits_all=True, verbose=False)

  def score(tokens):
    model.reset()
    model.eval(tokens)
    logits = torch.from_numpy(model.scores[: len(tokens) - 1].copy()).double()
    return logits.log_softmax(-1).gather(1, torch.tensor(tokens[1:])[:, None])[:, 0].numpy()

  return score


def rounded(inputs, bits):
  """The inputs of a layer as ints by blocks of 32, which have a scale each."""
  blocks = inputs.unflatten(-1, (-1, 32))
  scales = blocks.abs().amax(-1, keepdim=True) / (2 ** (bits - 1) - 1)
  return ((blocks / scales.clamp(min=1e-30)).round() * scales).flatten(-2)


def rounded_scores(model, bits):
  """A function that returns the scores of a model with rounded inputs of its layers."""
  layers = [one for one in model.modules() if isinstance(one, torch.nn.Linear)]

  def score(tokens):
    hooks = [
      one.register_forward_pre_hook(lambda _, given: (rounded(given[0], bits),)) for one in layers
    ]
    try:
      return right_scores(model, tokens)
    finally:
      for hook in hooks:
        hook.remove()

  return score


class Difference:
  """Sums of the scores of two implementations."""

  def __init__(self, name):
    self.name = name
    self.worst = self.total = self.count = self.own = self.right = 0.0

  def add(self, found, expected):
    errors = abs(found - expected)
    self.worst = max(self.worst, errors.max())
    self.total, self.count = self.total + errors.sum(), self.count + len(errors)
    self.own, self.right = self.own + found.sum(), self.right + expected.sum()

  def print(self):
    own, right = (math.exp(-total / self.count) for total in (self.own, self.right))
    print(
      f"{self.name}: log-probabilities differ by {self.worst:.3g} at most and "
      f"{self.total / self.count:.3g} on average; perplexity {own:.5f}, {right:.5f} in "
      f"transformers, ratio {own / right:.6f}"
    )


def main():
  arguments = argparse.ArgumentParser(description=__doc__)
  arguments.add_argument("checkpoint", type=pathlib.Path)
  arguments.add_argument("file", type=pathlib.Path)
  arguments.add_argument("--texts", type=int, default=20)
  arguments.add_argument("--tokens", type=int, default=65)
  arguments.add_argument("--most", type=float, default=1e-3)
  arguments.add_argument("--llama", action="store_true")
  arguments.add_argument("--rounded", default="", help="bits, such as 8,10")
  options = arguments.parse_args()
  from transformers import AutoModelForCausalLM

  loaded = husk.text.load(options.file)
  right = AutoModelForCausalLM.from_pretrained(
    options.checkpoint.parent, gguf_file=options.checkpoint.name, dtype=torch.float32
  ).eval()
  pages = [loaded.tokens_of((ROOT / page).read_text(encoding="utf-8")) for page in PAGES]
  size, texts = options.tokens, []
  for begin in range(0, max(map(len, pages)), size):
    texts += [page[begin : begin + size] for page in pages if len(page) >= begin + size]
  texts = texts[: options.texts]
  scores = {"Husk": loaded.score}
  if options.llama:
    scores["llama.cpp"] = llama_scores(options.checkpoint, size)
  for bits in filter(None, options.rounded.split(",")):
    scores[f"inputs of {bits} bits in transformers"] = rounded_scores(right, int(bits))
  differences = {name: Difference(name) for name in scores}
  begin = time.monotonic()
  for tokens in texts:
    expected = right_scores(right, tokens)
    for name, score in scores.items():
      differences[name].add(score(tokens), expected)
  print(f"{len(texts)} texts of {size} tokens, {time.monotonic() - begin:.0f} s")
  for difference in differences.values():
    difference.print()
  return 0 if differences["Husk"].worst <= options.most else 1


if __name__ == "__main__":
  sys.exit(main())
