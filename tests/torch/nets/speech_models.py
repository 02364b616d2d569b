"""Sound and time stamps of Whisper, against transformers.

    python tests/torch/nets/speech_models.py [--models 4] [--target host:avx2]

Needs transformers. The features of sounds of several lengths, as floats and as integers of 16 bits,
are compared with those of WhisperFeatureExtractor, for 80 and 128 bands. Then models with random
weights, whose encoder takes a second of sound, are exported with three slots. Texts of sounds of
0.1 to 7 seconds with time stamps are compared with `generate(return_timestamps=True)`: segments,
their times and tokens. Without time stamps, sounds of up to a second are compared. Every second
model has languages, which are found and compared, too. The exit status is 1 if something
differs."""

import argparse
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
import transformers  # noqa: E402
from husk.language import sounds  # noqa: E402
from husk.text.sounds import Sound  # noqa: E402

RATE, POSITIONS, BANDS, NEW = 16000, 50, 16, 40
# Text, the end, the beginning, the token that says that there are no times, and times.
END, START, NONE, ZERO = 100, 101, 110, 111
VOCABULARY = ZERO + POSITIONS + 1
LANGUAGES = {"<|en|>": 102, "<|de|>": 103, "<|fr|>": 104, "<|ja|>": 105}
TASKS = {"transcribe": 106, "translate": 107}
SPECIAL = {END, START, NONE, *LANGUAGES.values(), *TASKS.values()}
LENGTHS = (0.1, 0.5, 1.0, 1.01, 1.7, 2.5, 4.0, 7.13)
TOLERANCE = 1e-6  # of features, which lie around 0 and 1
# Factors of the logits of the end and of times, so that texts end in several ways.
FACTORS = ((2, 1.3), (4, 0.6), (3, 1), (5, 1.6))


def sound_of(seconds, seed):
  """Tones that rise and fall, and noise."""
  random = numpy.random.default_rng(seed)
  time = numpy.arange(int(seconds * RATE)) / RATE
  result = random.normal(size=time.size) * 0.01
  for _ in range(4):
    low, speed = random.uniform(100, 3000), random.uniform(0.5, 4)
    result += 0.2 * numpy.sin(2 * numpy.pi * low * time + 3 * numpy.sin(speed * time))
  return (result / max(1, abs(result).max(initial=0))).astype(numpy.float32)


def compare_features(bands):
  """The largest difference of features."""
  with tempfile.TemporaryDirectory() as folder:
    extractor = transformers.WhisperFeatureExtractor(feature_size=bands)
    extractor.save_pretrained(folder)
    entry = sounds.entry(pathlib.Path(folder), (bands, 3000))
  sound = Sound(json.dumps(entry))
  largest = [0.0, 0.0]
  for number, seconds in enumerate((0.01, 1, 7.7, 29.99, 30, 30.01, 45.5, 0)):
    samples = sound_of(seconds, number)
    if number == 7:
      samples = numpy.zeros(RATE, numpy.float32)
    whole = (samples * 32767).astype(numpy.int16)
    for given, floats in ((samples, samples), (whole, whole.astype(numpy.float32) / 32768)):
      found = sound.windows(given).features
      padded = numpy.pad(floats, (0, max(0, sound.samples - len(floats))))
      # In f64 and, as the extractor does it where torch is, in f32.
      for place, right in enumerate(
        (
          extractor._np_extract_fbank_features([padded], "cpu")[0],
          extractor._torch_extract_fbank_features(padded),
        )
      ):
        assert found.shape == right.shape, (found.shape, right.shape)
        largest[place] = max(largest[place], float(abs(found - right).max()))
  return largest[0] > TOLERANCE, (
    f"features differ by {largest[0]:.1e} at most, from those in f32 by {largest[1]:.1e}"
  )


def model_of(seed):
  sizes = {"encoder_layers": 2, "decoder_layers": 3, "d_model": 64, "vocab_size": VOCABULARY}
  sizes |= dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 4)
  sizes |= dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim"), 128)
  config = transformers.WhisperConfig(
    **sizes,
    num_mel_bins=BANDS,
    max_source_positions=POSITIONS,
    max_target_positions=96,
    decoder_start_token_id=START,
    bos_token_id=END,
    eos_token_id=END,
    pad_token_id=END,
    tie_word_embeddings=False,
  )
  torch.manual_seed(seed)
  model = transformers.WhisperForConditionalGeneration(config).eval()
  random = torch.Generator().manual_seed(seed)
  with torch.no_grad():
    for one in model.parameters():
      if one.dim() > 1:
        factor = 1 if one.shape[0] == VOCABULARY else 2
        one.copy_(torch.randn(one.shape, generator=random) * factor * one[0].numel() ** -0.5)
    of_end, of_times = FACTORS[seed % len(FACTORS)]
    model.proj_out.weight[END] *= of_end
    model.proj_out.weight[ZERO:] *= of_times
  generation = model.generation_config
  generation.no_timestamps_token_id = NONE
  generation.max_initial_timestamp_index = 20
  generation.suppress_tokens, generation.begin_suppress_tokens = [7, 8], [9, END]
  generation.decoder_start_token_id = START
  generation.eos_token_id = generation.pad_token_id = END
  generation.forced_decoder_ids = None
  if seed % 2:
    generation.is_multilingual, generation.lang_to_id = True, LANGUAGES
    generation.task_to_id = TASKS
  return model


def task_of(model):
  """What `generate` is given for a text in the language of the sound."""
  return {"task": "transcribe"} if hasattr(model.generation_config, "lang_to_id") else {}


def right_segments(model, features):
  """Segments as start, end and tokens, which may have the first token of the next one."""
  with torch.no_grad():
    found = model.generate(
      torch.from_numpy(features)[None],
      return_timestamps=True,
      return_segments=True,
      max_new_tokens=NEW,
      **task_of(model),
    )
  return [
    (float(one["start"]), float(one["end"]), one["tokens"].tolist()) for one in found["segments"][0]
  ]


def are_equal(found, right):
  # transformers computes the number of the last time of a window as a product, which may be one
  # less by rounding; and its last segment of a window has the time that follows.
  return len(found) == len(right) and all(
    abs(one.start - start) < 1e-6
    and abs(one.end - end) < 0.02 + 1e-6
    and (one.tokens == tokens or one.tokens == tokens[:-1])
    for one, (start, end, tokens) in zip(found, right, strict=True)
  )


def compare_model(seed, folder, options):
  model, path = model_of(seed), folder / "model.husk"
  before = model.generation_config.to_dict()
  extractor = transformers.WhisperFeatureExtractor(feature_size=BANDS, chunk_length=1)
  extractor.save_pretrained(folder)
  husk.language.export(
    model, path, tokenizer=folder, slots=3, max_tokens=96, targets=(options.target,)
  )
  loaded = husk.text.load(path)
  different = segments = ends = 0
  languages = set()
  for number, seconds in enumerate(LENGTHS):
    samples = sound_of(seconds, 100 * seed + number)
    words = {} if len(samples) <= RATE else {"truncation": False}
    features = extractor(samples, sampling_rate=RATE, return_tensors="np", **words)
    features = features["input_features"][0]
    right = right_segments(model, features)
    found = loaded.transcribe(samples, timestamps=True, max_new_tokens=NEW)
    different += not are_equal(found, right)
    segments += len(right)
    ends += sum(one.tokens[-1] >= ZERO for one in found)
    if len(samples) <= RATE:
      with torch.no_grad():
        tokens = model.generate(
          torch.from_numpy(features)[None],
          max_new_tokens=NEW,
          force_unique_generate_call=True,
          **task_of(model),
        )[0].tolist()
      prompt = [START, NONE]
      if seed % 2:
        name = loaded.detect_language(samples)
        token = model.detect_language(torch.from_numpy(features)[None])[0].item()
        different += LANGUAGES[f"<|{name}|>"] != token
        languages.add(name)
        prompt[1:1] = token, TASKS["transcribe"]
      request = loaded.submit(audio=samples, decoder_prompt=prompt, max_new_tokens=NEW)
      loaded.run()
      # transformers gives the prompt, too, and leaves some of these away.
      texts = [[one for one in text if one not in SPECIAL] for text in (request.tokens, tokens)]
      different += texts[0] != texts[1]
  assert model.generation_config.to_dict() == before
  return different > 0, (
    f"{different} of {len(LENGTHS)} sounds differ, {segments} segments, {ends} of them end with a "
    f"time, languages {sorted(languages)}"
  )


def main():
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("--models", type=int, default=4)
  parser.add_argument("--target", default="host:avx2")
  options = parser.parse_args()
  logging.getLogger("transformers").setLevel(logging.ERROR)
  with tempfile.TemporaryDirectory() as folder:
    cases = {f"{bands} bands": lambda bands=bands: compare_features(bands) for bands in (80, 128)}
    cases |= {
      f"model {seed}": lambda seed=seed: compare_model(seed, pathlib.Path(folder), options)
      for seed in range(options.models)
    }
    return compared.each(list(cases), lambda name: cases[name]())


if __name__ == "__main__":
  sys.exit(main())
