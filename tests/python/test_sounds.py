"""Sound in husk.text: its features, texts of sound of any length, and time stamps."""

import dataclasses
import json
import pathlib
import types

import encoder_model
import husk
import numpy as np
import pytest
import torch
from husk.language import exporting
from husk.language import sounds as described
from husk.text import sounds
from husk.text.languages import Languages
from text_file import without_few

SLOTS, MOST, NEW = 2, 30, 14
# Text, the end, the token that says that there are no times, and times.
END, NONE, ZERO, LATEST = 150, 159, 160, 12
PENALTY = 2.0  # so that texts of random weights do not repeat a token
RATE, HOP = 16000, 666  # 24 columns in a second
PREPROCESSOR = {
  "feature_extractor_type": "WhisperFeatureExtractor",
  "feature_size": encoder_model.BINS,
  "sampling_rate": RATE,
  "hop_length": HOP,
  "n_fft": 60,
  "chunk_length": 1,
}
GENERATION = {
  "eos_token_id": END,
  "decoder_start_token_id": encoder_model.START,
  "forced_decoder_ids": [[1, 7], [2, NONE]],
  "no_timestamps_token_id": NONE,
  "max_initial_timestamp_index": LATEST,
}


def exported(folder, model, features=("controls",), preprocessor=PREPROCESSOR, **changes):
  """A file of a model of speech, with a folder of settings."""
  settings = {name: one for name, one in {**GENERATION, **changes}.items() if one is not None}
  before = getattr(model, "generation_config", None)
  model.generation_config = types.SimpleNamespace(**settings, to_dict=lambda: settings)
  if preprocessor:
    (folder / "preprocessor_config.json").write_text(json.dumps(preprocessor))
  target = "host:avx2" if "avx2" in pathlib.Path("/proc/cpuinfo").read_text() else "host"
  try:
    husk.language.export(
      model,
      folder / "model.husk",
      tokenizer=folder,
      max_tokens=MOST,
      slots=SLOTS,
      features=features,
      targets=(target,),
    )
  finally:
    model.generation_config = before
  return folder / "model.husk"


@pytest.fixture(scope="module")
def speech(tmp_path_factory):
  with pytest.MonkeyPatch.context() as patch:
    model = encoder_model.make(patch, speech=True)
    without_few(patch)
    with torch.no_grad():
      head = model.head if hasattr(model, "head") else model.proj_out
      head.weight[ZERO:] *= 1.7
      head.weight[END] *= 3
    yield model, exported(tmp_path_factory.mktemp("sounds"), model)


@pytest.fixture
def loaded(speech):
  return husk.text.load(speech[1], threads=1)


def sound_of(seconds, seed=0):
  random = np.random.default_rng(seed)
  time = np.arange(round(seconds * RATE)) / RATE
  rises = np.sin(2 * np.pi * random.uniform(100, 900) * time * (1 + time))
  return (0.5 * rises * random.uniform(0.2, 1) + 0.1 * random.normal(size=time.size)).astype(
    np.float32
  )


def test_filters_are_those_of_whisper():
  """Numbers of mel_filter_bank of transformers."""
  found = described.filters(80, 16000, 400)
  assert len(found) == 80 and sum(len(one) - 1 for one in found) == 391
  assert found[0] == pytest.approx([1, 0.024862593984176087])
  right = [42, 0.005411105098683169, 0.014735565741439168, 0.0065181896946609275]
  assert found[40] == pytest.approx(right)
  first, *factors = found[79]
  assert first == 186 and len(factors) == 14
  assert [factors[0], factors[-1]] == pytest.approx([0.00036674167978, 0.00044875902759])
  assert sum(sum(one[1:]) for one in found) == pytest.approx(1.9990241029178577)


def right_features(samples, columns):
  """The log-mel spectrogram by NumPy's transform."""
  window, bins = PREPROCESSOR["n_fft"], PREPROCESSOR["feature_size"]
  filters = np.zeros((bins, window // 2 + 1))
  for row, (first, *factors) in enumerate(described.filters(bins, RATE, window)):
    filters[row, first : first + len(factors)] = factors
  padded = np.pad(samples.astype(np.float64), (0, max(0, columns * HOP - len(samples))))
  padded = np.pad(padded, window // 2, mode="reflect")
  frames = np.stack([padded[i * HOP : i * HOP + window] for i in range(columns)])
  energies = abs(np.fft.rfft(frames * np.hanning(window + 1)[:-1])) ** 2
  found = np.log10(np.maximum(filters @ energies.T, 1e-10))
  return (np.maximum(found, found.max() - 8) + 4) / 4


def test_features_are_the_log_mel_spectrogram(loaded):
  sound = loaded._sound
  for seconds, columns in ((0, 24), (0.001, 24), (0.4, 24), (1, 24), (2.3, 55)):
    samples = sound_of(seconds)
    right = right_features(samples, columns)
    found = sound.windows(samples).features
    assert found.shape == (encoder_model.BINS, columns)
    np.testing.assert_allclose(found, right, atol=1e-6)
    # 16 bits, and floats of another size.
    whole = (samples * 32767).astype(np.int16)
    np.testing.assert_array_equal(
      sound.windows(whole).features, sound.windows(whole.astype(np.float64) / 32768).features
    )


def test_a_request_takes_sound_in_place_of_features(loaded):
  samples = sound_of(0.7)
  features = right_features(samples, 24).astype(np.float32)
  one = loaded.submit(audio=samples, max_new_tokens=8)
  other = loaded.submit(features=features, max_new_tokens=8)
  silence = loaded.submit(audio=np.zeros(0, np.float32), max_new_tokens=8)
  loaded.run()
  assert one.tokens == other.tokens != silence.tokens


@pytest.mark.parametrize(
  ("given", "message"),
  [
    ({"audio": np.zeros((2, 9), np.float32)}, r"shape \[2, 9\]: give the samples of one channel"),
    ({"audio": np.zeros(9, np.int32)}, "type int32: give floats"),
    ({"audio": np.zeros(9, complex)}, "type complex128"),
    ({"audio": np.full(9, np.nan, np.float32)}, "sample 0 of the sound is not finite"),
    ({"audio": np.zeros(RATE + 1, np.float32)}, "takes 1 at once: call transcribe"),
    ({"audio": np.zeros(9), "features": np.zeros((4, 24))}, "give one of them"),
    ({"audio": np.zeros(9), "prompt": [5]}, "decoder_prompt"),
  ],
)
def test_wrong_sounds_are_refused(loaded, given, message):
  with pytest.raises(ValueError, match=message):
    loaded.submit(**given)


# Texts of any length


def right_logits(model, features, tokens):
  with torch.no_grad():
    return model(
      input_features=torch.from_numpy(features)[None],
      decoder_input_ids=torch.tensor([tokens]),
      use_cache=False,
    ).logits[0, -1]


def right_text(model, features, start, rule=lambda start, tokens, logits: logits):
  tokens = []
  while len(tokens) < NEW and tokens[-1:] != [END]:
    logits = rule(start, tokens, right_logits(model, features, [*start, *tokens]).clone())
    tokens.append(int(logits.argmax()))
  return tokens


def windows_of(features):
  rest = -features.shape[1] % 24
  padded = np.pad(features, ((0, 0), (0, rest))).astype(np.float32)
  return [np.ascontiguousarray(one) for one in np.split(padded, padded.shape[1] // 24, axis=1)]


def test_a_long_sound_is_taken_in_windows(speech, loaded, monkeypatch):
  """The texts of windows of a second are joined. The prompt says that there are no times."""
  submitted = []

  def submit(**given):
    submitted.append(husk.text.Model.submit(loaded, **given))
    return submitted[-1]

  monkeypatch.setattr(loaded, "submit", submit)
  other = husk.text.Model.submit(loaded, features=np.zeros((4, 24)), max_new_tokens=NEW)
  samples = sound_of(3.4)
  text = loaded.transcribe(samples, max_new_tokens=NEW)
  features = right_features(samples, int(3.4 * RATE) // HOP)
  start = [encoder_model.START, 7, NONE]
  right = [right_text(speech[0], one, start) for one in windows_of(features)]
  assert len(right) == 4 and len({tuple(one) for one in right}) > 2
  assert [one.tokens for one in submitted] == right
  assert all(one.prompt == start for one in submitted)
  assert text == "".join(one.text for one in submitted)
  assert len(other.tokens) > 0, "another request goes on"
  # The token is added to a prompt that lacks it.
  submitted.clear()
  loaded.transcribe(samples, decoder_prompt=[5, 6], max_new_tokens=1)
  assert submitted[0].prompt == [5, 6, NONE]


def by_definition(tokens, logits):
  """The rules of Whisper, token by token."""
  for token in range(len(logits)):
    is_time = token >= ZERO
    times = [one for one in tokens if one >= ZERO]
    after_time = bool(tokens) and tokens[-1] >= ZERO
    after_two = after_time and (len(tokens) < 2 or tokens[-2] >= ZERO)
    wrong = token == NONE
    wrong |= not tokens and (not is_time or token > ZERO + LATEST)
    wrong |= after_two and is_time
    wrong |= after_time and not after_two and token < END
    if times and is_time:
      wrong |= token < times[-1]
      wrong |= token == times[-1] and (not after_time or after_two)
    if wrong:
      logits[token] = -torch.inf
  if logits[ZERO:].logsumexp(0) > logits[:ZERO].max():
    logits[:ZERO] = -torch.inf
  return logits


def penalized(history, tokens, logits):
  """The rules, which are about the logits before the penalty, and the penalty."""
  allowed = by_definition(tokens, logits.clone()).isfinite()
  for token in {*history, *tokens}:
    logits[token] *= PENALTY if logits[token] < 0 else 1 / PENALTY
  return logits.masked_fill(~allowed, -torch.inf)


def test_time_stamps_follow_the_rules(speech, loaded):
  """Segments of a sound of several windows are those of a loop without a cache."""
  model = speech[0]
  texts = set()
  for seed, start in enumerate(([encoder_model.START, 7], [5], [9, 20], [40, 4, 31], [60, 61])):
    samples = sound_of(2.6, seed)
    found = loaded.transcribe(
      samples,
      timestamps=True,
      decoder_prompt=[*start, NONE] if seed else None,
      max_new_tokens=NEW,
      repetition_penalty=PENALTY,
    )
    features = right_features(samples, len(samples) // HOP).astype(np.float32)
    right, begin = [], 0
    while begin < features.shape[1]:
      window = np.zeros((encoder_model.BINS, 24), np.float32)
      part = features[:, begin : begin + 24]
      window[:, : part.shape[1]] = part
      tokens = right_text(model, window, start, penalized)
      tokens = tokens[:-1] if tokens[-1] == END else tokens
      parts, taken = sounds.cut(tokens, ZERO, part.shape[1], 2)
      right += [(begin + 2 * first, begin + 2 * last, some) for first, last, some in parts]
      begin += taken
    assert [one.tokens for one in found] == [some for *_, some in right]
    for one, (first, last, _) in zip(found, right, strict=True):
      assert one.start == pytest.approx(first * HOP / RATE)
      assert one.end == pytest.approx(last * HOP / RATE)
    texts.add(tuple(tuple(one.tokens) for one in found))
  assert len(texts) == 5
  assert len({len(one) for one in texts}) > 1


LANGUAGES = {
  "lang_to_id": {"<|en|>": 20, "<|de|>": 21, "<|fr|>": 22, "<|ja|>": 23},
  "task_to_id": {"transcribe": 30, "translate": 31},
}


def test_languages_are_found_and_named(speech, loaded, monkeypatch):
  """The language is the likeliest of those that the settings name, and begins the text."""
  model = speech[0]
  samples, first = sound_of(1), encoder_model.START
  window = loaded._sound.windows(samples).at(0)
  given = {model.main_input_name: torch.as_tensor(window)[None]}
  with torch.no_grad():
    logits = model(**given, decoder_input_ids=torch.tensor([[first]]), use_cache=False).logits
  for begin in range(20, 140, 10):
    named = {f"<|x{token}|>": token for token in range(begin, begin + 10)}
    loaded._languages = Languages.of({**LANGUAGES, "lang_to_id": named})
    right = begin + int(logits[0, -1, begin : begin + 10].argmax())
    assert loaded.detect_language(samples) == f"x{right}"
  loaded._languages = Languages.of(LANGUAGES)
  name = loaded.detect_language(samples)
  prompts = []
  monkeypatch.setattr(sounds, "text_of", lambda *_, decoder_prompt: prompts.append(decoder_prompt))
  loaded.transcribe(samples)  # as the settings of the checkpoint say
  loaded.transcribe(samples, language="<|de|>", task="translate")
  loaded.transcribe(samples, task="transcribe")
  token = LANGUAGES["lang_to_id"][f"<|{name}|>"]
  assert prompts == [[first, 7, NONE], [first, 21, 31, NONE], [first, token, 30, NONE]]
  loaded._encoder = dataclasses.replace(loaded._encoder, start=(first,))
  loaded.transcribe(samples)
  assert prompts[-1] == [first, token, 30, NONE]
  for words, message in (
    ({"language": "xx"}, "knows de, en, fr, ja"),
    ({"task": "sing"}, "knows transcribe, translate"),
    ({"language": "de", "decoder_prompt": [1]}, "leave the others out"),
  ):
    with pytest.raises(ValueError, match=message):
      loaded.transcribe(samples, **words)
  loaded._languages = None
  for call in (
    lambda: loaded.detect_language(samples),
    lambda: loaded.transcribe(samples, language="de"),
  ):
    with pytest.raises(ValueError, match="lang_to_id"):
      call()


@pytest.mark.parametrize("seed", range(40))
def test_rules_are_those_of_the_definition(seed):
  random = np.random.default_rng(seed)
  rules = sounds.Timestamps(NONE, END, LATEST)
  kinds = (random.integers(0, END), random.integers(ZERO, 230), random.integers(ZERO, ZERO + 4))
  tokens = [int(one) for one in random.permutation(kinds)[: seed % 4]]
  logits = random.normal(size=240).astype(np.float32) * (seed % 3 + 0.5)
  logits[[3, 4, 170]] = -np.inf
  right = by_definition(tokens, torch.from_numpy(logits.copy()))
  np.testing.assert_array_equal(rules.allowed(tokens, logits), np.isfinite(right.numpy()))


@pytest.mark.parametrize(
  ("tokens", "parts", "taken"),
  [
    # Two whole segments, and the beginning of the next one.
    ([0, "a", 2, 2, "b", 5, 6, "c"], [(0, 2, 3), (2, 5, 3)], 10),
    # Two times at the end: the next window begins with the last one.
    ([1, "a", 3, 3], [(1, 3, 3)], 6),
    # Nothing is said after the last time.
    ([0, "a", 2, 2, "b", 5], [(0, 2, 3), (2, 5, 3)], 20),
    # No two times in a row: all is one segment up to the last time, or up to the end.
    ([1, "a", "b", 4], [(0, 4, 4)], 20),
    ([0, "a", "b"], [(0, 10, 3)], 20),
    ([3, "a"], [(0, 3, 2)], 20),
    (["a"], [(0, 10, 1)], 20),
    ([], [(0, 10, 0)], 20),
  ],
)
def test_texts_are_cut_by_their_times(tokens, parts, taken):
  numbers = [7 if one in ("a", "b", "c") else 100 + one for one in tokens]
  found, columns = sounds.cut(numbers, 100, 20, 2)
  assert [(first, last, len(some)) for first, last, some in found] == parts
  assert columns == taken
  assert [one for _, _, some in found for one in some] == numbers[: sum(n for *_, n in parts)]


def test_texts_of_segments_have_no_times(loaded, monkeypatch):
  class Letters:
    def decode(self, tokens, *, skip_special):
      assert skip_special
      return "".join(f"<{one}>" for one in tokens)

  given = sounds.segments_of
  seen = []

  def segments_of(model, *arguments, **settings):
    for one in given(
      types.SimpleNamespace(submit=loaded.submit, step=loaded.step, tokenizer=Letters()),
      *arguments,
      **settings,
    ):
      seen.append(one)
      yield one

  monkeypatch.setattr(sounds, "segments_of", segments_of)
  loaded.transcribe(sound_of(2), timestamps=True, max_new_tokens=NEW)
  assert seen
  for one in seen:
    assert one.text == "".join(f"<{token}>" for token in one.tokens if token < ZERO)


def test_a_failure_ends_a_transcription(loaded, monkeypatch):
  class Failing:
    def __getattr__(self, name):
      return getattr(session, name)

    def encode(self, *_):
      raise husk.Error("no memory")

  session = loaded._session
  monkeypatch.setattr(loaded, "_session", Failing())
  for timestamps in (False, True):
    with pytest.raises(husk.Error, match="no memory"):
      loaded.transcribe(sound_of(2.5), timestamps=timestamps)
  assert not loaded.step(), "no request is left"


def test_what_a_file_cannot_do_is_refused_by_name(speech, loaded, monkeypatch, tmp_path):
  with pytest.raises(ValueError, match="has a mask of its own"):
    loaded.transcribe(sound_of(1), timestamps=True, allow=lambda _: None)
  functions = exporting._functions

  def sample_alone(*given):  # since nothing below runs a function
    return {"sample": functions(*given)["sample"]}

  monkeypatch.setattr(exporting, "_functions", sample_alone)
  plain = husk.text.load(
    exported(tmp_path, speech[0], features=(), no_timestamps_token_id=None, **LANGUAGES), threads=1
  )
  assert plain._languages.languages["de"] == 21 and plain._languages.tasks["translate"] == 31
  with pytest.raises(ValueError, match="no_timestamps_token_id"):
    plain.transcribe(sound_of(1), timestamps=True)
  plain.generation["no_timestamps_token_id"] = NONE
  with pytest.raises(ValueError, match="no masks of tokens"):
    plain.transcribe(sound_of(1), timestamps=True)
  plain._sound = None
  for call in (lambda: plain.submit(audio=sound_of(1)), lambda: plain.transcribe(sound_of(1))):
    with pytest.raises(ValueError, match="how to compute features of a sound"):
      call()


# The export


def entry(folder, name, settings):
  (folder / name).write_text(json.dumps(settings))
  try:
    return described.entry(folder, (encoder_model.BINS, 24))
  finally:
    (folder / name).unlink()


def test_settings_of_the_extractor_come_from_either_file(tmp_path):
  found = entry(tmp_path, "preprocessor_config.json", PREPROCESSOR)
  assert (found["rate"], found["samples"], found["window"], found["hop"]) == (RATE, RATE, 60, HOP)
  nested = {"feature_extractor": PREPROCESSOR, "processor_class": "WhisperProcessor"}
  assert entry(tmp_path, "processor_config.json", nested) == found
  assert entry(tmp_path, "processor_config.json", {"image_processor": {}}) is None
  assert described.entry(tmp_path, (80, 3000)) is None
  (tmp_path / "preprocessor_config.json").write_text("{}")  # the defaults are those of Whisper
  assert described.entry(tmp_path, (80, 3000))["samples"] == 480000


def test_other_extractors_are_refused_by_name(tmp_path):
  other = {**PREPROCESSOR, "feature_extractor_type": "SeamlessM4TFeatureExtractor"}
  with pytest.raises(husk.Unsupported, match="'SeamlessM4TFeatureExtractor'"):
    entry(tmp_path, "preprocessor_config.json", other)
  with pytest.raises(husk.Unsupported, match=r"gives \[8, 24\] numbers, but the encoder takes"):
    entry(tmp_path, "preprocessor_config.json", {**PREPROCESSOR, "feature_size": 8})
