"""Encoder-decoder language models from small random configurations: their texts from a file of Husk
against those of transformers' `generate`.

    python tests/torch/nets/encoder_decoder_models.py [ARCHITECTURE...]
        [--target host:avx2] [--compile cuda:h200] [--cache int8] [--pages N] [--folder DIR [--dry]]

Needs transformers. Each model is exported with three slots. Sources of 1 to 100 tokens, or features
of sound, are continued by 64 tokens, greedily and with a penalty of repetitions, each alone, and
then all of them in the slots, which they join and leave. Sources must change texts. Wrong sources
are refused while other requests go on. With --compile cuda:h200 the file is also exported for that
target, where it does not run. An architecture that is refused by name is counted apart. A text that
differs first where two tokens had the same logit up to rounding is counted as a tie. The exit
status is 1 if another token is wrong or an exception is raised.

DIR keeps the files and the expected texts. `--dry` only makes these; without it, those that DIR has
are not made again, for which a machine with a GPU needs no transformers."""

import argparse
import copy
import json
import logging
import pathlib
import sys
import tempfile

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
  "longt5": {**RELATIVE, "local_radius": 4},
  "longt5_global": {
    **RELATIVE,
    "local_radius": 4,
    "encoder_attention_type": "transient-global",
    "global_block_size": 4,
  },
  "bigbird_pegasus": {**LEARNED, "block_size": 4, "num_random_blocks": 1},
  # Refused by name.
  "led": {**PLACES, "attention_window": 16},
  "switch_transformers": RELATIVE,
}
TYPES = {"t5_gated": "t5", "longt5_global": "longt5"}


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
  """The tokens that follow `start`, and the lead of each over the next best one, as a part of the
  largest logit."""
  start = torch.tensor([start])
  given = torch.tensor(source)[None]
  settings = {"max_new_tokens": NEW, "do_sample": False, "num_beams": 1}
  settings |= {"repetition_penalty": PENALTY, "return_dict_in_generate": True}
  settings["output_scores"] = True
  generation = model.generation_config
  with torch.no_grad():
    if kind.shape is None:
      # The first token that it forces is in the prompt of the decoder.
      generation.forced_bos_token_id = generation.forced_eos_token_id = None
      found = model.generate(given, decoder_input_ids=start, **settings)
    else:
      from transformers import GenerationMixin

      found = GenerationMixin.generate(model, given, decoder_input_ids=start, **settings)
  best = torch.stack(found.scores)[:, 0].float().topk(2, dim=-1).values
  leads = (best[:, 0] - best[:, 1]) / best[:, 0].abs().clamp(min=1e-6)
  return found.sequences[0, start.shape[1] :].tolist(), leads.tolist()


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
  found = compared.text(started.tokens, right_other)
  assert found != "different", "another prompt of the decoder gives another text"


def export(model, encoder, path, options, target):
  husk.language.export(
    model,
    path,
    slots=SLOTS,
    max_tokens=MOST,
    max_encoder_tokens=MOST_SOURCE if encoder.kind.shape is None else None,
    cache=options.cache,
    pages=options.pages,
    features=("controls",),
    targets=(target,),
  )


def prepare(name, folder, options):
  """Writes the file of an architecture, and the texts that it has to give."""
  model = model_of(name)
  speech = "num_mel_bins" in ARCHITECTURES[name]
  generation = model.generation_config.to_dict()
  encoder = encoders.of_model(model, None if speech else MOST_SOURCE, generation)
  kind, before = encoder.kind, copy.deepcopy(model.generation_config)
  cases = sources(kind)
  right = [right_tokens(model, one, kind, kind.start) for one in cases]
  right_other = right_tokens(model, cases[3], kind, (kind.start[0], *MORE))
  model.generation_config = before
  texts = [tokens for tokens, _ in right]
  assert len({tuple(one) for one in texts}) == len(texts), "sources do not change texts"
  assert sum(len(set(one)) for one in texts) > 4 * len(texts), "texts repeat a few tokens"
  export(model, encoder, folder / f"{name}.husk", options, options.target)
  if options.compile:
    export(model, encoder, folder / f"{name}.compiled.husk", options, options.compile)
  (folder / f"{name}.json").write_text(json.dumps([right, right_other]))


def compare(name, folder, options):
  """Whether texts differ, alone and together, and a text about them."""
  right, right_other = json.loads((folder / f"{name}.json").read_text())
  device = "cuda" if options.target.startswith("cuda") else "cpu"
  loaded = husk.text.load(folder / f"{name}.husk", device=device)
  kind = loaded._encoder
  cases = sources(kind)
  check_refusals(loaded, kind, cases[0], cases[3], right_other)
  alone = []
  for source in cases:
    one = request(loaded, source)
    loaded.run()
    alone.append(one.tokens)
  together = [request(loaded, source) for source in cases]
  loaded.run()
  texts = alone, [one.tokens for one in together]
  kinds = [[compared.text(*pair) for pair in zip(one, right, strict=True)] for one in texts]
  counts = [[each.count(what) for each in kinds] for what in ("different", "tie")]
  return any(counts[0]), "{} and {} of {} texts differ, {} and {} at ties; {} tokens".format(
    *counts[0], len(cases), *counts[1], sum(len(tokens) for tokens, _ in right)
  )


def main():
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("names", nargs="*", metavar="ARCHITECTURE")
  parser.add_argument("--target", default="host:avx2")
  parser.add_argument("--compile", metavar="TARGET")
  parser.add_argument("--cache", metavar="TYPE")
  parser.add_argument("--pages", type=int)
  parser.add_argument("--folder", type=pathlib.Path)
  parser.add_argument("--dry", action="store_true")
  options = parser.parse_args()
  torch.backends.cudnn.allow_tf32 = False  # the expected texts are those of a CPU
  logging.getLogger("transformers").setLevel(logging.ERROR)
  with tempfile.TemporaryDirectory() as temporary:
    folder = options.folder or pathlib.Path(temporary)
    folder.mkdir(exist_ok=True, parents=True)

    def one(name):
      if not (folder / f"{name}.json").exists():
        prepare(name, folder, options)
      return (False, "exported") if options.dry else compare(name, folder, options)

    kept = [] if options.dry else sorted(path.stem for path in folder.glob("*.json"))
    return compared.each(options.names or kept or list(ARCHITECTURES), one)


if __name__ == "__main__":
  sys.exit(main())
