"""Encoder-decoder language models from small random configurations: their texts from a file of Husk
against those of transformers' `generate`.

    python tests/torch/nets/encoder_decoder_models.py [ARCHITECTURE...]
        [--target host:avx2] [--compile cuda:h200] [--cache int8]

Needs transformers. Each model is exported with three slots. Sources of 1 to 100 tokens, or features
of sound, are continued by 64 tokens, greedily and with a penalty of repetitions, each alone, and
then all of them in the slots, which they join and leave. Sources must change texts. Wrong sources
are refused while other requests go on. With --compile cuda:h200 the file is also exported for that
target, where it does not run. An architecture that is refused by name is counted apart. The exit
status is 1 if a token is wrong or another exception is raised."""

import argparse
import copy
import logging
import pathlib
import sys
import tempfile
import time

import numpy
import torch

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parents[2] / "compiler" / "torch"))

import compared  # noqa: E402
import husk  # noqa: E402
from husk.language import encoders  # noqa: E402

VOCABULARY, MOST, MOST_SOURCE, SLOTS, NEW = 256, 96, 112, 3, 64
PENALTY = 3.0  # so that texts of random weights do not repeat a token
MORE = (4, 5, 6)  # another prompt of a decoder, after its first token
LENGTHS = (1, 2, 5, 17, 64, 100, 33, 9)
COMMON = {"vocab_size": VOCABULARY, "d_model": 64, "tie_word_embeddings": False}
RELATIVE = {
  **COMMON,
  "d_kv": 16,
  "d_ff": 128,
  "num_layers": 5,
  "num_decoder_layers": 5,
  "num_heads": 4,
  "pad_token_id": 0,
  "eos_token_id": 1,
  "decoder_start_token_id": 0,
}
PLACES = {
  **COMMON,
  "encoder_layers": 2,
  "decoder_layers": 5,
  "encoder_attention_heads": 4,
  "decoder_attention_heads": 4,
  "encoder_ffn_dim": 128,
  "decoder_ffn_dim": 128,
  "pad_token_id": 1,
  "bos_token_id": 0,
  "eos_token_id": 2,
  "decoder_start_token_id": 2,
}
LEARNED = {**PLACES, "max_position_embeddings": 160}
ARCHITECTURES = {
  "t5": RELATIVE,
  "t5_gated": {**RELATIVE, "feed_forward_proj": "gated-gelu"},
  "mt5": RELATIVE,
  "umt5": RELATIVE,
  "bart": {**LEARNED, "forced_bos_token_id": 0},
  "mbart": {**LEARNED, "forced_bos_token_id": 9, "scale_embedding": True},
  "marian": {**LEARNED, "scale_embedding": True},
  "pegasus": LEARNED,
  "blenderbot": LEARNED,
  "blenderbot-small": LEARNED,
  "plbart": LEARNED,
  "m2m_100": LEARNED,
  "whisper": {
    **PLACES,
    "num_mel_bins": 16,
    "max_source_positions": 40,
    "max_target_positions": 128,
    "suppress_tokens": [7, 8],
    "begin_suppress_tokens": [11, 12],
  },
  # Refused by name.
  "led": {**PLACES, "attention_window": 16},
  "switch_transformers": RELATIVE,
}
TYPES = {"t5_gated": "t5"}


def model_of(name):
  """A model whose weights are large enough that sources change texts."""
  import transformers

  config = transformers.AutoConfig.for_model(TYPES.get(name, name), **ARCHITECTURES[name])
  torch.manual_seed(0)
  speech = "num_mel_bins" in ARCHITECTURES[name]
  kind = transformers.AutoModelForSpeechSeq2Seq if speech else transformers.AutoModelForSeq2SeqLM
  model = kind.from_config(config).eval()
  random = torch.Generator().manual_seed(2)
  with torch.no_grad():
    for one in model.parameters():
      if one.dim() < 2:
        one.add_(torch.randn(one.shape, generator=random) * 0.1)
      else:
        # Attention without a scale would make the logits depend on rounding.
        factor = 1 if one.shape[0] == VOCABULARY or "d_kv" in ARCHITECTURES[name] else 3
        one.copy_(torch.randn(one.shape, generator=random) * factor * one[0].numel() ** -0.5)
  model.tie_weights()
  return model


def sources(kind):
  random = torch.Generator().manual_seed(1)
  if kind.shape is not None:
    return [torch.randn(kind.shape, generator=random).numpy() for _ in range(5)]
  return [torch.randint(3, VOCABULARY, (n,), generator=random).tolist() for n in LENGTHS]


def right_tokens(model, source, kind, start):
  start = torch.tensor([start])
  given = torch.tensor(source)[None]
  settings = {"max_new_tokens": NEW, "do_sample": False, "num_beams": 1}
  settings["repetition_penalty"] = PENALTY
  generation = model.generation_config
  with torch.no_grad():
    if kind.shape is None:
      # The first token that it forces is in the prompt of the decoder.
      generation.forced_bos_token_id = generation.forced_eos_token_id = None
      sequences = model.generate(given, decoder_input_ids=start, **settings)
    else:
      from transformers import GenerationMixin

      sequences = GenerationMixin.generate(model, given, decoder_input_ids=start, **settings)
  return sequences[0, start.shape[1] :].tolist()


def request(loaded, source, **settings):
  given = {"features": source} if isinstance(source, numpy.ndarray) else {"prompt": source}
  return loaded.submit(**given, max_new_tokens=NEW, repetition_penalty=PENALTY, **settings)


def check_refusals(loaded, kind, source, other, right_other):
  """Wrong sources are refused, and the request that is in progress goes on."""
  first = request(loaded, source)
  loaded.step()
  if kind.shape is None:
    wrong = [
      {},
      {"prompt": [5] * (MOST_SOURCE + 1)},
      {"prompt": [5, VOCABULARY]},
      {"prompt": [5], "features": numpy.zeros((2, 2))},
    ]
  else:
    right = numpy.zeros(kind.shape, numpy.float32)
    wrong = [{}, {"prompt": [5]}, {"prompt": [5], "features": right}]
    wrong += [{"features": right[:, 1:]}, {"features": right * numpy.nan}]
  for one in wrong:
    try:
      loaded.submit(**one)
    except ValueError:
      continue
    raise AssertionError(f"not refused: {one}")
  loaded.run()
  again = request(loaded, source)
  loaded.run()
  assert first.tokens == again.tokens, "refusals change a text"
  # The tokens with which the decoder begins count.
  started = request(loaded, other, decoder_prompt=[kind.start[0], *MORE])
  loaded.run()
  assert started.tokens == right_other, "another prompt of the decoder gives another text"


def loaded_file(model, encoder, path, options):
  """The model that husk.text loads from its file, and the seconds of the export."""
  before = time.perf_counter()
  export(model, encoder, path, options, options.target)
  seconds = time.perf_counter() - before
  device = "cuda" if options.target.startswith("cuda") else "cpu"
  return husk.text.load(path, device=device), seconds


def export(model, encoder, path, options, target):
  husk.language.export(
    model,
    path,
    slots=SLOTS,
    max_tokens=MOST,
    max_encoder_tokens=MOST_SOURCE if encoder.kind.shape is None else None,
    cache=options.cache,
    features=("controls",),
    targets=(target,),
  )


def compare(name, folder, options):
  """How many texts differ: alone, and together."""
  path, model = folder / "model.husk", model_of(name)
  speech = "num_mel_bins" in ARCHITECTURES[name]
  generation = model.generation_config.to_dict()
  encoder = encoders.of_model(model, None if speech else MOST_SOURCE, generation)
  cases = sources(encoder.kind)
  before = copy.deepcopy(model.generation_config)
  right = [right_tokens(model, one, encoder.kind, encoder.kind.start) for one in cases]
  start = (encoder.kind.start[0], *MORE)
  right_other = right_tokens(model, cases[3], encoder.kind, start)
  model.generation_config = before
  assert len({tuple(one) for one in right}) == len(right), "sources do not change texts"
  assert sum(len(set(one)) for one in right) > 4 * len(right), "texts repeat a few tokens"
  loaded, seconds = loaded_file(model, encoder, path, options)
  check_refusals(loaded, encoder.kind, cases[0], cases[3], right_other)
  alone = []
  for source in cases:
    one = request(loaded, source)
    loaded.run()
    alone.append(one.tokens)
  together = [request(loaded, source) for source in cases]
  loaded.run()
  different = [
    sum(a != b for a, b in zip(alone, right, strict=True)),
    sum(a.tokens != b for a, b in zip(together, right, strict=True)),
  ]
  if options.compile:
    export(model, encoder, path, options, options.compile)
  count = sum(map(len, right))
  return different, f"{len(cases)} texts of {count} tokens", seconds


def main():
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("names", nargs="*", metavar="ARCHITECTURE")
  parser.add_argument("--target", default="host:avx2")
  parser.add_argument("--compile", metavar="TARGET")
  parser.add_argument("--cache", metavar="TYPE")
  options = parser.parse_args()
  torch.backends.cudnn.allow_tf32 = False  # the expected texts are those of a CPU
  logging.getLogger("transformers").setLevel(logging.ERROR)
  with tempfile.TemporaryDirectory() as folder:

    def one(name):
      different, count, seconds = compare(name, pathlib.Path(folder), options)
      text = f"{different} of {count} differ, exported in {seconds:.0f} s"
      return any(different), text

    return compared.each(options.names or list(ARCHITECTURES), one)


if __name__ == "__main__":
  sys.exit(main())
