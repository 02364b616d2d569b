"""`python -m husk perplexity`: how well a language model predicts a text."""

from __future__ import annotations

import argparse
import pathlib
import time
from collections.abc import Sequence

from .model import load


def parser() -> argparse.ArgumentParser:
  arguments = argparse.ArgumentParser(
    prog="python -m husk perplexity",
    description="Prints the perplexity of a text by a language model in a Husk artifact: e to the "
    "mean of the negative log-probabilities of its tokens.",
    epilog="example: python -m husk perplexity smollm2.husk README.md --window 512",
  )
  arguments.add_argument("file", help="the artifact, model.husk")
  arguments.add_argument("text", type=pathlib.Path, help="a file with text, in UTF-8")
  arguments.add_argument(
    "--window",
    type=int,
    metavar="N",
    help="how many tokens are scored together, without the first one of them; by default as many "
    "as a sequence has room for",
  )
  arguments.add_argument(
    "--adapter",
    metavar="DIR",
    help="an adapter (LoRA): a folder with adapter_config.json and adapter_model.safetensors",
  )
  arguments.add_argument("--device", help="the device, as cuda or cuda:1; by default the host")
  return arguments


def main(words: Sequence[str]) -> None:
  """Runs the command. Raises what `load` and `Model.perplexity` raise."""
  named = parser().parse_args(words)
  try:
    text = named.text.read_text(encoding="utf-8")
  except UnicodeDecodeError as error:
    raise ValueError(f"{named.text} is no UTF-8: {error}") from error
  model = load(named.file, named.device)
  if named.adapter is not None:
    model.add_adapter("adapter", named.adapter)
  begin = time.monotonic()
  name = None if named.adapter is None else "adapter"
  perplexity, count = model.perplexity(text, named.window, adapter=name)
  seconds = time.monotonic() - begin
  print(f"perplexity {perplexity:.4f} of {count} tokens, {count / seconds:.1f} a second")
