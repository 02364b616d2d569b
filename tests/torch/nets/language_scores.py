"""Log-probabilities of a published checkpoint: a file of Husk against transformers, which computes
with the dequantized weights in f32. Run by name:

    python tests/torch/nets/language_scores.py CHECKPOINT.gguf MODEL.husk [--texts 20] [--tokens 65]

Needs transformers, gguf and accelerate. MODEL.husk is what `python -m husk llm CHECKPOINT.gguf` has
made. The texts are parts of this repository's pages, of which the perplexity is computed, too. The
exit status is 1 if a log-probability differs by more than --most."""

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


def main():
  arguments = argparse.ArgumentParser(description=__doc__)
  arguments.add_argument("checkpoint", type=pathlib.Path)
  arguments.add_argument("file", type=pathlib.Path)
  arguments.add_argument("--texts", type=int, default=20)
  arguments.add_argument("--tokens", type=int, default=65)
  arguments.add_argument("--most", type=float, default=1e-3)
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
  worst = total = count = own = whole = 0.0
  begin = time.monotonic()
  for tokens in texts:
    expected, found = right_scores(right, tokens), loaded.score(tokens)
    errors = abs(found - expected)
    worst, total, count = max(worst, errors.max()), total + errors.sum(), count + len(errors)
    own, whole = own + found.sum(), whole + expected.sum()
  print(
    f"{len(texts)} texts of {size} tokens: log-probabilities differ by {worst:.3g} at most and "
    f"{total / count:.3g} on average; perplexity {math.exp(-own / count):.5f}, "
    f"{math.exp(-whole / count):.5f} in transformers, ratio {math.exp((whole - own) / count):.6f}; "
    f"{time.monotonic() - begin:.0f} s"
  )
  return 0 if worst <= options.most else 1


if __name__ == "__main__":
  sys.exit(main())
