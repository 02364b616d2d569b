"""`python -m husk llm`: from a checkpoint to the file of a language model."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from .. import options
from . import caches
from .exporting import DEFAULT_FEATURES, DTYPES, FEATURES, export


def parser() -> argparse.ArgumentParser:
  arguments = argparse.ArgumentParser(
    prog="python -m husk llm",
    description="Exports a language model, with its tokenizer and its chat template, to one file. "
    "Needs transformers.",
    epilog="example: python -m husk llm SmolLM2-135M-Instruct.Q4_1.gguf -o smollm2.husk; then "
    "husk-chat smollm2.husk",
  )
  arguments.add_argument(
    "checkpoint",
    help="a GGUF file, or a folder of Hugging Face's: config.json, safetensors, tokenizer.json",
  )
  arguments.add_argument("-o", "--output", required=True, help="the artifact to write")
  arguments.add_argument(
    "--max-tokens",
    type=int,
    metavar="N",
    help="how many tokens a sequence may have; by default what the model allows, at most 4096",
  )
  arguments.add_argument(
    "--slots",
    type=int,
    default=1,
    metavar="N",
    help="how many sequences are generated at the same time; 1 by default",
  )
  arguments.add_argument(
    "--dtype", choices=DTYPES, help="the type in which the model computes; by default its own"
  )
  arguments.add_argument(
    "--cache",
    choices=caches.KINDS,
    help="the type of the caches; by default that of the model. int8 and fp8 have a scale for each "
    "token and head",
  )
  arguments.add_argument(
    "--cache-dtype", choices=DTYPES, help="another name of --cache, for floats"
  )
  arguments.add_argument(
    "--pages",
    type=int,
    metavar="N",
    help="keys and values are in N pages of 64 tokens each, which sequences take as they grow, and "
    "share if they begin alike; by default each slot has room for --max-tokens",
  )
  arguments.add_argument(
    "--checkpoint-activations",
    choices=("exact", "quantized"),
    default="exact",
    help='"quantized" rounds the inputs of layers to 8 bits if the checkpoint asks for it',
  )
  arguments.add_argument(
    "--tokenizer", metavar="DIR", help="a folder with tokenizer.json, if it is not the checkpoint's"
  )
  arguments.add_argument(
    "--features",
    type=lambda text: [name for name in text.split(",") if name],
    default=DEFAULT_FEATURES,
    metavar="NAME,NAME",
    help=f"what the file has beside plain generation: some of {', '.join(FEATURES)}; by default "
    f"{','.join(DEFAULT_FEATURES)}. An empty text is none",
  )
  arguments.add_argument(
    "--adapters",
    type=int,
    default=0,
    metavar="N",
    help="how many adapters (LoRA) the file has room for; 0 by default",
  )
  arguments.add_argument(
    "--rank", type=int, default=16, metavar="R", help="the largest rank of adapters; 16 by default"
  )
  arguments.add_argument(
    "--adapter-targets",
    type=lambda text: [name for name in text.split(",") if name],
    metavar="NAME,NAME",
    help="the layers that adapters may change, such as q_proj,v_proj; by default all linear layers "
    "but the head",
  )
  arguments.add_argument(
    "--image-size",
    type=_size,
    metavar="HxW",
    help="the height and width of images in pixels, such as 448x448, of models that take images of "
    "any size; by default 448x448",
  )
  arguments.add_argument(
    "--max-encoder-tokens",
    type=int,
    metavar="N",
    help="how many tokens the encoder of a model takes that has one, such as T5; by default what "
    "the model allows, at most 1024",
  )
  options.add_arguments(arguments)
  return arguments


def _size(text: str) -> tuple[int, int]:
  height, found, width = text.partition("x")
  if not found or not height.isdecimal() or not width.isdecimal():
    raise argparse.ArgumentTypeError(f"{text!r}: give a height and a width, such as 448x448")
  return int(height), int(width)


def main(words: Sequence[str]) -> None:
  """Runs the command. Raises what `export` raises."""
  command = parser()
  named = command.parse_args(words)
  chosen = options.from_arguments(command, named)
  export(
    named.checkpoint,
    named.output,
    max_tokens=named.max_tokens,
    slots=named.slots,
    dtype=named.dtype,
    cache=named.cache,
    cache_dtype=named.cache_dtype,
    pages=named.pages,
    checkpoint_activations=named.checkpoint_activations,
    tokenizer=named.tokenizer,
    features=named.features,
    adapters=named.adapters,
    rank=named.rank,
    adapter_targets=named.adapter_targets,
    image_size=named.image_size,
    max_encoder_tokens=named.max_encoder_tokens,
    options=chosen,
  )
