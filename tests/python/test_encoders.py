"""Models with an encoder and a decoder in husk.text."""

import json
import pathlib
import subprocess
import types

import encoder_model
import husk
import numpy as np
import pytest
import torch
from husk import tools
from husk.language import encoders, exporting, hooks
from text_file import generated_in_c, without_sampling

MOST, MOST_SOURCE, SLOTS = 24, 20, 2
SHAPE = (encoder_model.BINS, encoder_model.FRAMES)
SUPPRESSED, FIRST_SUPPRESSED = list(range(100, 230)), list(range(230, 263))


def exported(folder, patch, speech, most=MOST, pages=None):
  """A model of tokens, with all that a file can have but `controls` (test_sounds.py), or one of
  features, with tokens that must not come."""
  model = encoder_model.make(patch, speech, layers=1 if speech or pages else 2)
  without_sampling(patch)
  settings = {"eos_token_id": encoder_model.END, "decoder_start_token_id": encoder_model.START}
  if speech:
    settings |= {"forced_decoder_ids": [[1, 7], [2, 8]], "suppress_tokens": SUPPRESSED}
    settings["begin_suppress_tokens"] = FIRST_SUPPRESSED
  before = getattr(model, "generation_config", None)
  model.generation_config = types.SimpleNamespace(**settings, to_dict=lambda: settings)
  path = folder / "model.husk"
  target = "host:avx2" if "avx2" in pathlib.Path("/proc/cpuinfo").read_text() else "host"
  husk.language.export(
    model,
    path,
    max_tokens=most,
    pages=pages,
    max_encoder_tokens=None if speech else MOST_SOURCE,
    slots=SLOTS,
    features=() if speech else ("copy",),
    targets=(target,),
  )
  model.generation_config = before
  return model, path


@pytest.fixture(scope="module")
def artifact(tmp_path_factory):
  with pytest.MonkeyPatch.context() as patch:
    yield exported(tmp_path_factory.mktemp("encoders"), patch, speech=False)


@pytest.fixture(scope="module")
def speech(tmp_path_factory):
  with pytest.MonkeyPatch.context() as patch:
    yield exported(tmp_path_factory.mktemp("speech"), patch, speech=True)


@pytest.fixture
def loaded(artifact):
  return husk.text.load(artifact[1], threads=1)


def tokens_of(count, seed=0):
  return np.random.default_rng(seed).integers(3, encoder_model.VOCABULARY, count).tolist()


def features_of(seed):
  return np.random.default_rng(seed).normal(size=SHAPE).astype(np.float32)


def right_tokens(model, source, count, start, without=(), first_without=()):
  """How the model continues tokens of the decoder, without a cache."""
  tokens = list(start)
  for number in range(count):
    given = {model.main_input_name: torch.as_tensor(source)[None]}
    with torch.no_grad():
      found = model(**given, decoder_input_ids=torch.tensor([tokens]), use_cache=False)
    logits = found.logits[0, -1].clone()
    logits[[*without, *(first_without if number == 0 else ())]] = float("-inf")
    tokens.append(int(logits.argmax()))
    if tokens[-1] == encoder_model.END:
      break
  return tokens[len(start) :]


def test_texts_are_those_of_the_model(artifact, loaded):
  """Sources of 1 token up to the most, in slots that requests join and leave, and other prompts of
  the decoder, also in chunks."""
  cases = [(tokens_of(n, n), [encoder_model.START]) for n in (5, 1, MOST_SOURCE, 2, 11)]
  cases += [(tokens_of(9), [4, 5]), (tokens_of(9), [4, 5, 6, 7, 8, 9, 10])]
  right = [right_tokens(artifact[0], source, 10, start) for source, start in cases]
  assert len({tuple(one) for one in right}) == len(right)
  for chunk in (MOST, 3):
    loaded._chunk = chunk
    requests = [
      loaded.submit(source, decoder_prompt=start, max_new_tokens=10) for source, start in cases
    ]
    loaded.run()
    assert [one.tokens for one in requests] == right
  # The default is the prompt of the first ones.
  one = loaded.submit(cases[0][0], max_new_tokens=10)
  loaded.run()
  assert one.tokens == right[0] and one.prompt == [encoder_model.START]


def test_texts_in_pages_are_those_of_the_model(tmp_path, monkeypatch):
  """Texts of the decoder wait for pages, and are taken again after the encoder."""
  monkeypatch.setattr(encoder_model, "POSITIONS", 160)
  model, path = exported(tmp_path, monkeypatch, speech=False, most=130, pages=3)
  # Prompts of the decoder, of which two together have more than three pages soon.
  cases = [(tokens_of(n, n), tokens_of(60 + n, 3)) for n in (1, 2, 3, 4)]
  right = [right_tokens(model, source, 20, start) for source, start in cases]
  assert len({tuple(one) for one in right}) > 1 and any(len(one) > 10 for one in right)
  loaded, paused = husk.text.load(path, threads=1), 0
  requests = [
    loaded.submit(source, decoder_prompt=start, max_new_tokens=20) for source, start in cases
  ]
  while loaded.step():
    paused += any(one.paused for one in requests)
  assert paused and [one.tokens for one in requests] == right
  asked = [
    {"tokens": source, "decoder_tokens": start, "max_new_tokens": 20, "samples": 2}
    for source, start in cases
  ]
  found = generated_in_c(path, asked)
  assert [[text["tokens"] for text in each] for each in found] == [[one] * 2 for one in right]


def test_texts_of_features_are_those_of_the_model(speech):
  """Some tokens never come, and some not as the first one."""
  model, path = speech
  loaded = husk.text.load(path, threads=1)
  sources = [features_of(seed) for seed in range(4)]
  start = [encoder_model.START, 7, 8]
  right = [right_tokens(model, one, 8, start, SUPPRESSED, FIRST_SUPPRESSED) for one in sources]
  assert len({tuple(one) for one in right}) > 1
  requests = [loaded.submit(features=one, max_new_tokens=8) for one in (sources[0][None], *sources)]
  loaded.run()
  assert [one.tokens for one in requests] == [right[0], *right]
  assert requests[0].prompt == start
  plain = right_tokens(model, sources[1], 8, [5, 6, 7, 9], SUPPRESSED, FIRST_SUPPRESSED)
  for chunk in (MOST, 3):  # no chunk at the end has a single token
    loaded._chunk = chunk
    other = loaded.submit(features=sources[1], decoder_prompt=[5, 6, 7, 9], max_new_tokens=8)
    loaded.run()
    assert other.tokens == plain


def test_c_generates_the_same_texts(artifact, speech, loaded):
  program = tools.find("husk_text_requests")
  if program is None:
    pytest.skip("husk_text_requests is not built")

  def given(path, requests):
    run = subprocess.run(
      [program, path], input=json.dumps(requests), capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)

  cases = [(tokens_of(n, n), start) for n, start in ((5, []), (20, [4, 5]), (1, []), (3, [6]))]
  found = given(
    artifact[1],
    [
      {"tokens": source, "decoder_tokens": start, "max_new_tokens": 8, "samples": 2}
      for source, start in cases
    ],
  )
  right = [
    loaded.submit(source, decoder_prompt=start or None, max_new_tokens=8) for source, start in cases
  ]
  loaded.run()
  for one, other in zip(found, right, strict=True):
    assert [text["tokens"] for text in one] == [other.tokens] * 2
  of_speech = husk.text.load(speech[1], threads=1)
  sources = [features_of(1), features_of(2)]
  requests = [{"features": one.ravel().tolist(), "max_new_tokens": 8} for one in sources]
  found = given(speech[1], [*requests, {"features": [1.0], "max_new_tokens": 8}])
  right = [of_speech.submit(features=one, max_new_tokens=8) for one in sources]
  of_speech.run()
  assert [one[0]["tokens"] for one in found[:2]] == [one.tokens for one in right]
  assert "96 numbers" in found[2][0]["error"]


@pytest.mark.parametrize(
  ("given", "message"),
  [
    ({}, "no tokens, and the encoder"),
    ({"prompt": tokens_of(MOST_SOURCE + 1)}, "takes up to 20"),
    ({"prompt": [1, encoder_model.VOCABULARY]}, "no token has the number"),
    ({"prompt": [1], "features": np.zeros(SHAPE)}, "takes tokens"),
    ({"prompt": [1], "decoder_prompt": []}, "the prompt has no tokens"),
    ({"prompt": [1], "decoder_prompt": [1] * (MOST + 1)}, "25 tokens"),
    ({"prompt": [1], "decoder_prompt": "text"}, "no tokenizer"),
  ],
)
def test_wrong_prompts_are_refused_and_other_requests_go_on(loaded, given, message):
  request = loaded.submit([5, 6, 9], max_new_tokens=4)
  loaded.step()
  with pytest.raises(ValueError, match=message):
    loaded.submit(**given)
  loaded.run()
  alone = loaded.submit([5, 6, 9], max_new_tokens=4)
  loaded.run()
  assert request.tokens == alone.tokens


@pytest.mark.parametrize(
  ("given", "message"),
  [
    ({}, "features are missing"),
    ({"prompt": [1], "features": np.zeros(SHAPE)}, "decoder_prompt"),
    ({"features": np.zeros((4, 23))}, "has the shape|have the shape"),
    ({"features": np.zeros((2, *SHAPE))}, "have the shape"),
    ({"features": np.full(SHAPE, np.nan)}, "not finite"),
    ({"features": np.zeros(SHAPE, complex)}, "complex128"),
  ],
)
def test_wrong_features_are_refused(speech, given, message):
  with pytest.raises(ValueError, match=message):
    husk.text.load(speech[1]).submit(**given)


def test_a_file_without_an_encoder_refuses_its_input(loaded):
  loaded._encoder = None
  for given in ({"features": np.zeros(SHAPE)}, {"decoder_prompt": [1]}):
    with pytest.raises(ValueError, match="has no encoder"):
      loaded.submit([1, 2], **given)


def test_scores_are_refused(loaded):
  for score in (loaded.score, loaded.perplexity):
    with pytest.raises(ValueError, match="has an encoder"):
      score([1, 2, 3])


def test_a_failure_of_the_encoder_ends_its_request_alone(loaded, monkeypatch):
  other = loaded.submit([5, 6, 9], max_new_tokens=4)
  wrong = loaded.submit([1, 2], max_new_tokens=4)
  loaded.step()  # both have a slot
  late = loaded.submit([1, 2], max_new_tokens=4)

  class Failing:
    def __init__(self, session):
      self.session = session

    def __getattr__(self, name):
      return getattr(self.session, name)

    def encode(self, *_):
      raise husk.Error("no memory")

  monkeypatch.setattr(loaded, "_session", Failing(loaded._session))
  loaded.run()
  assert late.reason == "failed" and "no memory" in str(late.error)
  assert len(other.tokens) == len(wrong.tokens) == 4


def test_the_export_refuses_what_it_cannot_do(artifact, speech, tmp_path, monkeypatch):
  model, path = artifact[0], tmp_path / "model.husk"
  for feature in ("verify", "embed"):
    with pytest.raises(husk.Unsupported, match=f"have no function {feature}"):
      husk.language.export(model, path, features=(feature,))
  with pytest.raises(husk.Unsupported, match="no adapters yet"):
    husk.language.export(model, path, adapters=1)
  with pytest.raises(ValueError, match="max_encoder_tokens=7: give at least 8"):
    husk.language.export(model, path, max_encoder_tokens=7)
  with pytest.raises(ValueError, match="features of one length"):
    husk.language.export(speech[0], path, max_encoder_tokens=20)
  monkeypatch.setattr(model, "main_input_name", "input_values")
  with pytest.raises(husk.Unsupported, match=r"whose input \(input_values\)"):
    husk.language.export(model, path)
  monkeypatch.undo()
  monkeypatch.setattr(model.config, "decoder_start_token_id", None)
  none = types.SimpleNamespace(to_dict=dict)
  monkeypatch.setattr(model, "generation_config", none)
  with pytest.raises(husk.Unsupported, match="no token with which its decoder begins"):
    husk.language.export(model, path)


def test_the_export_compares_logits(artifact, monkeypatch):
  """Without the bias of relative positions, or with what a slot has had before, the logits are
  others."""
  model = artifact[0]

  def refused():
    encoder = encoders.of_model(model, MOST_SOURCE, {})
    with (
      pytest.raises(husk.Unsupported, match="its logits differ"),
      exporting.decoder_of(model, SLOTS, MOST, None, encoder=encoder),
    ):
      pass

  monkeypatch.setattr(hooks, "_biased", lambda bias, mask, query: mask)
  refused()
  monkeypatch.undo()
  inputs = encoders.EncoderDecoder._inputs

  def unmasked(self, tokens):
    return {**inputs(self, tokens), "attention_mask": None}

  monkeypatch.setattr(encoders.EncoderDecoder, "_inputs", unmasked)
  refused()
  monkeypatch.undo()
  # An encoder that takes long sources in another way after a short one.
  encoder, seen = model.get_encoder(), []
  forward = encoder.forward

  def changed(input_ids, input_features=None):
    seen.append(input_ids.shape[1])
    result = forward(input_ids)
    if seen[-1] == MOST_SOURCE and min(seen) < MOST_SOURCE:
      result.last_hidden_state = result.last_hidden_state * 2
    return result

  monkeypatch.setattr(encoder, "forward", changed)
  refused()
