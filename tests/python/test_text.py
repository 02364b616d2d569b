"""husk.text: tokenizers, requests, and texts from the file of a language model."""

import asyncio
import json
import pathlib
import re
import subprocess
import sys
import typing

import husk
import language_model
import numpy as np
import pytest
import torch
from husk import __main__ as command
from husk import tools
from husk.language import exporting
from husk.text import chats, requests

GOLDEN = pathlib.Path(__file__).parents[1] / "text" / "golden.json"
MOST, SLOTS = 40, 3
FEATURES = ("copy", "controls", "verify", "embed")
TEMPLATE = (
  "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}"
  "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def tokenizer_json():
  """The tokenizer of the golden table, with a pre-tokenizer, cut to the vocabulary of the model."""
  golden = json.loads(GOLDEN.read_text(encoding="utf-8"))
  fields = {**golden["tokenizer"], **golden["kinds"]["gpt-2"]["fields"]}
  model = fields["model"]
  size = language_model.VOCABULARY
  model["vocab"] = {token: number for token, number in model["vocab"].items() if number < size}
  model["merges"] = [
    pair for pair in model["merges"] if "".join(pair).replace(" ", "") in model["vocab"]
  ]
  return json.dumps(fields)


class Made(typing.NamedTuple):
  """A model, the path of its file, and how often torch.export was called for it."""

  model: torch.nn.Module
  path: pathlib.Path
  traces: int


@pytest.fixture(scope="module")
def artifact(tmp_path_factory):
  """A model, exported with a tokenizer and a template."""
  with pytest.MonkeyPatch.context() as patch:
    model = language_model.make(patch)
    folder = tmp_path_factory.mktemp("checkpoint")
    (folder / "tokenizer.json").write_text(tokenizer_json(), encoding="utf-8")
    settings = {"chat_template": TEMPLATE, "eos_token": {"content": "<|im_end|>"}}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    (folder / "LICENSE").write_text("Free.")
    path, traces = folder / "model.husk", []
    export = torch.export.export
    patch.setattr(torch.export, "export", lambda *a, **k: traces.append(a) or export(*a, **k))
    husk.language.export(
      model,
      path,
      max_tokens=MOST,
      slots=SLOTS,
      tokenizer=folder,
      features=FEATURES,
      targets=(host_target(),),
    )
    yield Made(model, path, len(traces))


def host_target():
  return "host:avx2" if "avx2" in pathlib.Path("/proc/cpuinfo").read_text() else "host"


@pytest.fixture
def loaded(artifact):
  return husk.text.load(artifact.path, threads=1)


def right_tokens(model, prompt, count):
  return language_model.continued(model, prompt, min(count, MOST + 1 - len(prompt)))


@pytest.mark.parametrize("chunk", [MOST, 7])
def test_tokens_of_requests_that_join_and_leave(artifact, loaded, chunk):
  """With chunks, a long prompt goes into its slot beside the steps of other requests."""
  model = artifact.model
  loaded._chunk = chunk
  random = torch.Generator().manual_seed(1)
  prompts = [
    torch.randint(3, language_model.VOCABULARY, (n,), generator=random).tolist()
    for n in (1, 2, 9, 30, MOST - 1, MOST)
  ]
  right = [right_tokens(model, prompt, 12) for prompt in prompts]
  waiting = [loaded.submit(prompt, max_new_tokens=12) for prompt in prompts]
  loaded.step()
  late = loaded.submit(prompts[2], max_new_tokens=3)
  cancelled = loaded.submit(prompts[1])
  cancelled.cancel()
  loaded.run()
  assert [request.tokens for request in waiting] == right
  assert late.tokens == right[2][:3] and late.reason == "length"
  assert cancelled.reason == "cancelled" and not cancelled.tokens


def test_a_seed_gives_the_same_tokens_whatever_else_runs(loaded):
  settings = {"temperature": 1.0, "top_k": 50, "top_p": 0.95, "max_new_tokens": 8}
  alone = loaded.submit([5, 6, 7], seed=3, **settings)
  loaded.run()
  other, again = (
    loaded.submit([9], seed=4, **settings),
    loaded.submit([5, 6, 7], seed=3, **settings),
  )
  loaded.run()
  assert alone.tokens == again.tokens != other.tokens


def test_sampling_has_the_probabilities_of_the_settings(loaded):
  """The function `sample` against probabilities that NumPy computes."""
  random = np.random.default_rng(0)
  row = random.normal(size=language_model.VOCABULARY).astype(np.float32) * 2
  logits = np.stack([row, row])
  count, temperature, top_k, top_p, min_p = 1500, 0.8, 12, 0.9, 0.12
  drawn = np.zeros(row.size)
  sample = loaded._session.sample
  for at in range(0, count, 2):
    tokens, logprobs = sample(
      logits,
      np.full(2, temperature, np.float32),
      np.full(2, top_k),
      np.full(2, top_p, np.float32),
      np.full(2, min_p, np.float32),
      np.full(2, 11),
      np.array([at, at + 1]),
    )
    drawn[tokens] += 1 if tokens[0] != tokens[1] else 2
  exact = row.astype(np.float64)
  np.testing.assert_allclose(
    logprobs, exact[tokens] - np.log(np.exp(exact).sum()), rtol=1e-4, atol=1e-4
  )
  weights = np.exp(exact / temperature)
  weights[np.argsort(-exact)[top_k:]] = 0
  weights /= weights.sum()
  order = np.argsort(-weights)
  weights[order[1:][np.cumsum(weights[order])[:-1] >= top_p]] = 0
  least = min_p * weights.max()
  assert 0 < weights[weights > 0].min() < least  # so that min_p matters
  weights[weights < least] = 0
  weights /= weights.sum()
  assert not drawn[weights == 0].any()
  assert np.abs(drawn / drawn.sum() - weights).max() < 4 * (0.25 / count) ** 0.5
  greedy, _ = sample(
    logits,
    np.zeros(2, np.float32),
    np.zeros(2, np.int64),
    np.ones(2, np.float32),
    np.zeros(2, np.float32),
    np.zeros(2, np.int64),
    np.zeros(2, np.int64),
  )
  assert greedy.tolist() == [row.argmax()] * 2


PENALTIES = {"repetition_penalty": 1.4, "presence_penalty": 0.3, "frequency_penalty": 0.15}


def adjusted(logits, prompt, tokens, settings, allowed=None):
  """Logits after penalties and a mask, by PyTorch."""
  logits = torch.as_tensor(logits, dtype=torch.float64).clone()
  every = torch.tensor(sorted({*prompt, *tokens}))
  penalty, old = settings["repetition_penalty"], logits[every]
  logits[every] = torch.where(old < 0, old * penalty, old / penalty)
  for token in set(tokens):
    logits[token] -= settings["presence_penalty"]
    logits[token] -= settings["frequency_penalty"] * tokens.count(token)
  if allowed is not None:
    logits[[one for one in range(len(logits)) if one not in allowed]] = -torch.inf
  return logits


def test_penalties_and_masks_of_tokens(artifact, loaded):
  """Greedy tokens against logits that PyTorch adjusts, beside requests without any."""
  model, allowed, count = artifact.model, set(range(7, language_model.VOCABULARY, 3)), 15
  seen = []

  def allow(request):
    seen.append(list(request.tokens))
    numbers = np.array(sorted(allowed))
    return numbers if len(seen) % 2 else np.isin(np.arange(language_model.VOCABULARY), numbers)

  settings = [PENALTIES, {**PENALTIES, "allow": allow}, {}]
  requests = [
    loaded.submit([9, 9, 8, 7], max_new_tokens=count, logprobs=True, top_logprobs=3, **one)
    for one in settings
  ]
  loaded.run()
  for request, one in zip(requests, settings, strict=True):
    tokens = []
    for at in range(len(request.tokens)):
      with torch.no_grad():
        row = model(torch.tensor([[*request.prompt, *tokens]]), use_cache=False).logits[0, -1]
      logprobs = row.double().log_softmax(-1)
      best = row.argmax()
      if one:
        best = adjusted(row, request.prompt, tokens, one, allowed if "allow" in one else None)
        best = best.argmax()
      tokens.append(int(best))
      assert abs(request.logprobs[at] - float(logprobs[best])) < 1e-4
      right = logprobs.topk(3)
      assert list(request.top_logprobs[at]) == right.indices.tolist()
      np.testing.assert_allclose(list(request.top_logprobs[at].values()), right.values, atol=1e-4)
    assert request.tokens == tokens and request.reason in ("length", "end")
  assert seen == [requests[1].tokens[:at] for at in range(len(requests[1].tokens))]
  assert requests[0].tokens != requests[2].tokens and set(requests[1].tokens) <= allowed


def test_penalties_are_those_of_transformers(loaded):
  processors = pytest.importorskip("transformers.generation.logits_process")
  random = np.random.default_rng(3)
  size = language_model.VOCABULARY
  logits = random.normal(size=(2, size)).astype(np.float32) * 3
  history = np.array([[5, 9, 5, 200, 0, 0], [1, 2, 3, 4, 5, 262]])
  lengths, ones = np.array([4, 6]), np.ones(2, np.float32)
  penalty = np.array([1.3, 0.7], np.float32)
  every = np.full((2, -(-size // 32)), -1, np.int32)
  found = loaded._session.adjust(
    logits, history, lengths, lengths - 1, penalty, 0 * ones, 0 * ones, every
  )
  for row in range(2):
    right = processors.RepetitionPenaltyLogitsProcessor(float(penalty[row]))(
      torch.tensor(history[row : row + 1, : lengths[row]]), torch.tensor(logits[row : row + 1])
    )
    np.testing.assert_allclose(found[row], right[0], rtol=1e-6)
  # The tokens that can be drawn are those that the processors leave.
  for temperature, top_k, top_p, min_p in [(0.7, 30, 0.8, 0.1), (1.5, 0, 0.6, 0.0), (1, 0, 1, 0.3)]:
    row = torch.tensor(logits[:1])
    row = processors.TemperatureLogitsWarper(float(temperature))(None, row)
    if top_k:
      row = processors.TopKLogitsWarper(top_k)(None, row)
    row = processors.TopPLogitsWarper(top_p)(None, row) if top_p < 1 else row
    row = processors.MinPLogitsWarper(min_p)(None, row) if min_p else row
    drawn = set()
    for at in range(0, 1500, 3):
      tokens, _ = loaded._session.sample(
        logits[[0, 0, 0]],
        np.full(3, temperature, np.float32),
        np.full(3, top_k),
        np.full(3, top_p, np.float32),
        np.full(3, min_p, np.float32),
        np.full(3, 5),
        np.arange(at, at + 3),
      )
      drawn |= set(tokens.tolist())
    possible = set(torch.isfinite(row[0]).nonzero()[:, 0].tolist())
    likely = set((row[0].softmax(-1) > 0.01).nonzero()[:, 0].tolist())
    assert likely <= drawn <= possible


def test_a_mask_that_fails_ends_its_request(loaded):
  def fails(request):
    raise KeyError("grammar")

  right = loaded.submit([5, 6, 7], max_new_tokens=6)
  loaded.run()
  failing = [
    loaded.submit([5], allow=allow)
    for allow in (fails, lambda request: [], lambda request: [999], lambda request: [True])
  ]
  other = loaded.submit([5, 6, 7], max_new_tokens=6)
  loaded.run()
  assert [type(one.error) for one in failing] == [KeyError, ValueError, ValueError, ValueError]
  assert all(one.reason == "failed" and not one.tokens for one in failing)
  assert "no token may come after 0: let it allow" in str(failing[1].error)
  assert "a token is not from 0 to 262" in str(failing[2].error)
  assert "give 263 truth values" in str(failing[3].error)
  assert other.tokens == right.tokens
  with pytest.raises(KeyError, match="grammar"):
    loaded.generate([5], allow=fails)


def test_texts_and_chats(artifact, loaded):
  model = artifact.model
  text = "Hi é"
  tokens = loaded.tokenizer.encode(text)
  right = right_tokens(model, tokens, 9)
  whole = loaded.tokenizer.decode(right, skip_special=True)
  assert loaded.generate(text, max_new_tokens=9) == whole
  assert "".join(loaded.stream(text, max_new_tokens=9)) == whole
  chat = [{"role": "user", "content": "x"}]
  assert loaded.chat_text(chat) == "<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\n"
  assert loaded.generate(chat, max_new_tokens=2) is not None
  parts = loaded.stream([5, 6, 7])
  next(parts, None)
  parts.close()
  loaded.step()
  assert loaded._active == [None] * SLOTS


def test_async_calls_are_worked_on_together(artifact, loaded):
  prompts = [[5, 6, 7], [8, 9], [10], [11, 12], [13]]
  right = [loaded.generate(prompt, max_new_tokens=9) for prompt in prompts]
  steps, step = [], loaded.step
  loaded.step = lambda: steps.append(1) or step()

  def fails(request):
    raise KeyError("grammar")

  async def first_part(prompt):
    parts = loaded.astream(prompt)
    part = await anext(parts)
    await parts.aclose()
    return part

  async def run():
    late = asyncio.create_task(loaded.agenerate([5], max_new_tokens=30))
    found = await asyncio.gather(
      *(loaded.agenerate(prompt, max_new_tokens=9) for prompt in prompts),
      first_part([5, 6, 7]),
      loaded.agenerate([6], allow=fails),
      return_exceptions=True,
    )
    late.cancel()
    return found

  *texts, part, error = asyncio.run(run())
  assert texts == right and right[0].startswith(part) and isinstance(error, KeyError)
  assert len(steps) < 30  # alone, the texts would take more
  loaded.run()
  assert loaded._active == [None] * SLOTS


def test_embeddings(artifact, loaded):
  tokens = [5, 6, 7, 8]
  with torch.no_grad():
    right = artifact.model.base_model(
      input_ids=torch.tensor([tokens]), use_cache=False
    ).last_hidden_state[0]
  for pooling, expected in [("mean", right.mean(0)), ("last", right[-1]), (None, right)]:
    np.testing.assert_allclose(loaded.embed(tokens, pooling), expected, rtol=1e-4, atol=1e-5)
  text = loaded.embed("Hi é")
  np.testing.assert_array_equal(text, loaded.embed(loaded.tokenizer.encode("Hi é")))
  for pooling in ("mean", "last"):
    request = {"text": "Hi é", "embed": pooling}
    (found,) = generated_in_c(artifact.path, [request, {"tokens": [5], "max_new_tokens": 1}])[0]
    np.testing.assert_allclose(found["embedding"], loaded.embed("Hi é", pooling), atol=1e-6)
  with pytest.raises(ValueError, match="pooling='max': give 'mean', 'last' or None"):
    loaded.embed("x", "max")
  with pytest.raises(ValueError, match="the text has 41 tokens, but .* takes up to 40"):
    loaded.embed([5] * 41)
  ((refused,),) = generated_in_c(artifact.path, [{"tokens": [5] * 41, "embed": "mean"}])
  assert refused["error"] == "the text has 41 tokens: the function embed of this file takes 1 to 40"


def test_scores_of_texts(artifact, loaded, tmp_path, capsys):
  def right(tokens):
    with torch.no_grad():
      logits = artifact.model(torch.tensor([tokens]), use_cache=False).logits[0, :-1]
    return logits.log_softmax(-1).gather(1, torch.tensor(tokens[1:])[:, None])[:, 0].numpy()

  words = np.random.default_rng(8).integers(3, language_model.VOCABULARY, 3 * MOST).tolist()
  for verified, ranks in [(8, True), (0, True), (0, False)]:
    loaded._verified, loaded._drawing.ranked = verified, 20 * ranks
    for count in (2, 9, 10, MOST + 1):
      np.testing.assert_allclose(loaded.score(words[:count]), right(words[:count]), atol=1e-4)
    windows = [words[begin : begin + 25] for begin in range(0, len(words), 25)]
    expected = np.concatenate([right(one) for one in windows])
    perplexity, count = loaded.perplexity(words, window=25)
    assert count == len(expected) == len(words) - len(windows)
    assert abs(perplexity / np.exp(-expected.mean()) - 1) < 1e-4
  with pytest.raises(ValueError, match=f"has 42 tokens, but .* scores 2 to {MOST + 1}: cut it"):
    loaded.score(words[:42])
  with pytest.raises(ValueError, match="window=1: give 2 to 41"):
    loaded.perplexity(words, window=1)
  with pytest.raises(ValueError, match="the text has 1 tokens: a perplexity needs at least 2"):
    loaded.perplexity([5])
  loaded.submit([5])
  loaded.step()
  with pytest.raises(ValueError, match="requests are in progress"):
    loaded.score(words[:9])
  text = tmp_path / "text.txt"
  text.write_text("Some words, and others.")
  assert command.main(["perplexity", str(artifact.path), str(text), "--window", "20"]) == 0
  assert re.match(r"perplexity \d+\.\d+ of \d+ tokens, ", capsys.readouterr().out)
  text.write_bytes(b"a\xff")
  assert command.main(["perplexity", str(artifact.path), str(text)]) == 1
  assert "text.txt is no UTF-8" in capsys.readouterr().err


def test_log_probabilities(artifact, loaded):
  model = artifact.model
  request = loaded.submit([5, 6, 7], max_new_tokens=4, logprobs=True)
  loaded.run()
  with torch.no_grad():
    logits = model(torch.tensor([[5, 6, 7, *request.tokens[:-1]]]), use_cache=False).logits[0, 2:]
  right = logits.log_softmax(-1).gather(1, torch.tensor(request.tokens)[:, None])[:, 0]
  np.testing.assert_allclose(request.logprobs, right, rtol=1e-4, atol=1e-4)


def test_what_is_wrong_is_named(artifact, loaded):
  with pytest.raises(ValueError, match=f"has {MOST + 1} tokens, but a sequence of .* to {MOST}: "):
    loaded.submit([5] * (MOST + 1))
  with pytest.raises(ValueError, match="no token has the number 999: there are 263"):
    loaded.submit([999])
  with pytest.raises(ValueError, match="the prompt has no tokens"):
    loaded.submit("")
  with pytest.raises(ValueError, match="the text is no UTF-8: byte 1 is 0xED"):
    loaded.generate("a\udcff".encode("utf-8", "surrogatepass").decode("utf-8", "surrogatepass"))
  with pytest.raises(ValueError, match="a message is a dict"):
    loaded.generate([{"role": "user"}])
  with pytest.raises(ValueError, match=r"top_p=0: give a number above 0, up to 1"):
    loaded.submit([5], top_p=0)
  with pytest.raises(ValueError, match=r"repetition_penalty=0: give a number above 0"):
    loaded.submit([5], repetition_penalty=0)
  with pytest.raises(ValueError, match=r"top_logprobs=21: give 20 at most"):
    loaded.submit([5], top_logprobs=21)
  with pytest.raises(TypeError, match="heat"):
    loaded.submit([5], heat=1)
  with pytest.raises(ValueError, match="is no language model: it lacks the metadata"):
    path = artifact.path.with_name("other.husk")
    husk.export(torch.nn.Identity(), (torch.zeros(2),), path, targets=(host_target(),))
    husk.text.load(path)


class SeesAll(language_model.Decoder):
  """Leaves the mask out."""

  def forward(self, input_ids, position_ids=None, use_cache=None, cache=None, logits_to_keep=0):
    import transformers

    with pytest.MonkeyPatch.context() as patch:
      patch.setitem(transformers.AttentionMaskInterface.functions, "husk", lambda **_: None)
      return super().forward(input_ids, position_ids, use_cache, cache, logits_to_keep)


class AttendsByItself(language_model.Decoder):
  def set_attn_implementation(self, name):
    pass


class Fails(language_model.Decoder):
  def forward(self, input_ids, cache=None, **others):
    if cache is not None:
      cache.of_another_kind()
    return super().forward(input_ids)


class KeepsNothing(language_model.Decoder):
  def forward(self, input_ids, cache=None, **others):
    return super().forward(input_ids)


class KeepsStates(language_model.Decoder):
  """Adds the sum of all tokens before, of which the first layer keeps a state."""

  def hidden(self, input_ids, position_ids=None, use_cache=None, cache=None):
    x = super().hidden(input_ids, position_ids, use_cache, cache)
    sums = x.cumsum(1)
    if cache is not None:
      state = cache.get_recurrent_state(0)
      sums = sums if state is None else sums + state[:, None]
      cache.update_recurrent_state(sums[:, -1], 0)
    return x + sums


class KeepsStatesByItself(language_model.Decoder):
  before = None

  def hidden(self, input_ids, position_ids=None, use_cache=None, cache=None):
    x = super().hidden(input_ids, position_ids, use_cache, cache)
    sums = x.cumsum(1)
    if cache is not None:
      if self.before is not None:
        sums = sums + self.before
      self.before = sums[-1:, -1:]
    return x + sums


@pytest.mark.parametrize(
  ("kind", "reason"),
  [
    (SeesAll, "does not follow transformers' hooks"),
    (AttendsByItself, "computes attention by itself"),
    (Fails, r"does not run with Husk's cache \(AttributeError"),
    (KeepsNothing, "keeps nothing in its cache"),
    (KeepsStatesByItself, "does not follow transformers' hooks"),
  ],
)
def test_an_architecture_without_the_hooks_is_refused(monkeypatch, tmp_path, kind, reason):
  for name, module in language_model.stand_in().items():
    monkeypatch.setitem(sys.modules, name, module)
  with pytest.raises(husk.Unsupported, match=f"the architecture 'small' {reason}"):
    husk.language.export(kind().eval(), tmp_path / "model.husk", max_tokens=MOST)


class DiffersForThree(language_model.Decoder):
  def hidden(self, input_ids, position_ids=None, use_cache=None, cache=None):
    x = super().hidden(input_ids, position_ids, use_cache, cache)
    return 2 * x if cache is not None and input_ids.shape[1] == 3 else x


def test_a_feature_that_an_architecture_does_not_allow_is_refused(monkeypatch, tmp_path):
  for name, module in language_model.stand_in().items():
    monkeypatch.setitem(sys.modules, name, module)
  model, path = DiffersForThree().eval(), tmp_path / "model.husk"
  with pytest.raises(husk.Unsupported, match="'small' gives other logits for several tokens of a"):
    husk.language.export(model, path, max_tokens=MOST, features="verify")
  with pytest.raises(husk.Unsupported, match="'small' keeps states, which cannot go back"):
    husk.language.export(KeepsStates().eval(), path, max_tokens=MOST, features="verify")
  with exporting.decoder_of(KeepsStates().eval(), 3, MOST, None) as module:
    assert module.has_states and module.has_keys
    assert module.get_buffer("recurrent_0_0").shape[0] == 3
  monkeypatch.setattr(DiffersForThree, "base_model", property(lambda self: self))
  with pytest.raises(husk.Unsupported, match="'small' has no base model for hidden states"):
    husk.language.export(model, path, max_tokens=MOST, features="embed")


def test_the_command_names_what_is_wrong(monkeypatch, tmp_path, capsys):
  arguments = ["llm", str(tmp_path / "none.gguf"), "-o", str(tmp_path / "model.husk")]
  for name, module in language_model.stand_in().items():
    monkeypatch.setitem(sys.modules, name, module)
  assert command.main(arguments) == 1
  assert "none.gguf is not there: give a GGUF file or a folder" in capsys.readouterr().err
  monkeypatch.setitem(sys.modules, "transformers", None)
  assert command.main(arguments) == 1
  assert "husk.language.export needs transformers" in capsys.readouterr().err


@pytest.mark.parametrize("cache", ["int8", "fp8"])
def test_a_cache_of_codes(artifact, tmp_path, cache):
  """The program writes and reads codes as the module in eager mode does."""
  model, path = artifact.model, tmp_path / "model.husk"
  husk.language.export(
    model, path, max_tokens=MOST, slots=SLOTS, cache=cache, targets=(host_target(),)
  )
  session = husk.load(path, threads=1).session()
  tokens = torch.arange(12) * 31 % language_model.VOCABULARY
  kind = {"int8": torch.int8, "fp8": torch.float8_e4m3fn}[cache]
  with exporting.decoder_of(model, SLOTS, MOST, kind) as module, torch.no_grad():
    _, expected = module.prefill(tokens, 1, 0, 12)
    _, found = session.prefill(tokens.numpy(), 1, 0, 12)
    torch.testing.assert_close(torch.as_tensor(found), expected, rtol=1e-4, atol=1e-4)
    positions = torch.tensor([MOST, 12])
    for at in range(12, 16):
      positions[1] = at
      _, expected = module.decode(tokens[:2], positions, at + 1)
      _, found = session.decode(tokens[:2].numpy(), positions.numpy(), at + 1)
      torch.testing.assert_close(torch.as_tensor(found)[1], expected[1], rtol=1e-4, atol=1e-4)
    sizes = {name: len(session.state[name].tobytes()) for name in session.state}
    numbers = [size for name, size in sizes.items() if not name.endswith("scales")]
    scales = [size for name, size in sizes.items() if name.endswith("scales")]
    assert sum(numbers) * 4 == sum(scales) * language_model.HEAD
    right = model(input_ids=tokens[None]).logits[0, -1]
    _, found = session.prefill(tokens.numpy(), 0, 0, 12)
    assert (torch.as_tensor(found)[0] - right).abs().max() < 0.1 * right.abs().max()


def test_sizes_that_are_wrong(monkeypatch, tmp_path):
  for name, module in language_model.stand_in().items():
    monkeypatch.setitem(sys.modules, name, module)
  model, path = language_model.Decoder().eval(), tmp_path / "model.husk"
  with pytest.raises(ValueError, match="max_tokens=600: this small takes up to 512 tokens"):
    husk.language.export(model, path, max_tokens=600)
  with pytest.raises(ValueError, match="slots=0: give a number from 1 to 1024"):
    husk.language.export(model, path, slots=0)
  with pytest.raises(ValueError, match="features: there is no 'paste': give some of copy, "):
    husk.language.export(model, path, features=("copy", "paste"))
  with pytest.raises(ValueError, match="cache_dtype='float8': give one of 'float32'"):
    husk.language.export(model, path, cache_dtype="float8")
  with pytest.raises(ValueError, match="cache='int4': give one of .* 'int8', 'fp8'"):
    husk.language.export(model, path, cache="int4")
  with pytest.raises(ValueError, match="cache='int8' and cache_dtype='float32': give one of them"):
    husk.language.export(model, path, cache="int8", cache_dtype="float32")


def program_output(name, *arguments):
  """What a program of the build prints."""
  path = tools.find(name)
  if path is None:
    pytest.skip(f"{name} is not built")
  return subprocess.run([path, *map(str, arguments)], capture_output=True)


def test_husk_chat_prints_what_python_does(artifact, loaded):
  text = loaded.generate("Hi é", max_new_tokens=9)
  words = ("--prompt", "Hi é", "--max-new-tokens", 9)
  plain = program_output("husk-chat", artifact.path, "--plain", *words)
  assert plain.stdout.decode() == text + "\n" and b"9 tokens" in plain.stderr
  settings = {"max_new_tokens": 5, "temperature": 0.9, "seed": 8, "top_k": 90}
  chat = loaded.generate([{"role": "user", "content": "x"}], **settings)
  words = [
    word for key, value in settings.items() for word in (f"--{key}".replace("_", "-"), value)
  ]
  found = program_output("husk-chat", artifact.path, "--prompt", "x", "--quiet", *words)
  assert found.stdout.decode() == chat + "\n" and not found.stderr
  long = program_output("husk-chat", artifact.path, "--plain", "--prompt", "q" * 50)
  assert long.returncode == 4 and b"has 50 tokens, but a sequence of" in long.stderr
  lines = subprocess.run(
    [tools.find("husk-chat"), artifact.path, "--quiet", "--max-new-tokens", "1"],
    input=b"a\xff\n/new\nx\n/quit\n",
    capture_output=True,
  )
  assert lines.returncode == 0 and lines.stdout.count(b"\n") == 1
  assert lines.stderr == b"husk-chat: the text is no UTF-8: byte 1 is 0xFF\n"


def generated_in_c(path, requests, chunk=0, counts=False):
  """What the generator of libhusk_text makes of requests: a list of texts for each."""
  program = tools.find("husk_text_requests")
  if program is None:
    pytest.skip("husk_text_requests is not built")
  found = subprocess.run(
    [program, path, str(chunk)], input=json.dumps(requests).encode(), capture_output=True
  )
  assert found.returncode == 0, found.stderr.decode()
  texts = json.loads(found.stdout)
  return (texts, json.loads(found.stderr)) if counts else texts


@pytest.mark.parametrize("chunk", [0, 7])
def test_requests_in_c_give_what_python_does(artifact, loaded, chunk):
  """Requests that join and leave, against each one alone in Python."""
  random = torch.Generator().manual_seed(2)
  prompts = [
    torch.randint(3, language_model.VOCABULARY, (n,), generator=random).tolist()
    for n in (1, 2, 9, 30, MOST - 1, MOST, 5, 6)
  ]
  settings = [
    {"max_new_tokens": 12},
    {"max_new_tokens": 9, "temperature": 0.9, "top_k": 40, "seed": -5},
    {"logprobs": True},
    {"temperature": 1.2, "top_p": 0.8, "min_p": 0.3, "seed": 2**61, "logprobs": True},
    {**PENALTIES, "temperature": 1.0, "seed": 7, "top_logprobs": 20, "logprobs": True},
  ]
  requests = [
    {"tokens": prompt, **settings[i % len(settings)], "join": i // 2}
    for i, prompt in enumerate(prompts)
  ]
  for request, (text,) in zip(requests, generated_in_c(artifact[1], requests, chunk), strict=True):
    own = {key: value for key, value in request.items() if key not in ("tokens", "join")}
    right = loaded.submit(request["tokens"], **own)
    loaded.run()
    assert (text["tokens"], text["text"], text["reason"]) == (
      right.tokens,
      right.text,
      right.reason,
    )
    if right.top_logprobs:
      assert text["top"] == [list(one) for one in right.top_logprobs]
    if right.logprobs:
      np.testing.assert_allclose(text["logprobs"], right.logprobs, rtol=1e-4, atol=1e-4)


def test_the_cache_of_a_slot_is_copied(artifact):
  """Logits after a copy are those of the slot that has taken the tokens."""
  session = husk.load(artifact.path, threads=1).session()
  tokens = np.arange(5, 17)
  session.prefill(tokens, 0, 0, 12)
  session.prefill(tokens[::-1].copy(), 2, 0, 12)
  assert session.copy(0, 2, 0, 3).tolist() == [3]
  assert session.copy(0, 2, 3, 9).tolist() == [12]
  session.copy(0, 1, 0, 11)  # one position less
  _, logits = session.decode(np.full(3, 20), np.full(3, 12), MOST)
  assert (logits[0] == logits[2]).all() and np.abs(logits[0] - logits[1]).max() > 1e-3
  with pytest.raises(ValueError):
    session.copy(0, 3, 0, 3)


def test_several_tokens_of_a_slot_give_what_single_ones_do(artifact):
  """The logits of `verify` for two slots, of which one comes to the end of its sequence."""
  tokens = np.random.default_rng(4).integers(3, language_model.VOCABULARY, (2, MOST + 1))
  session = husk.load(artifact.path, threads=1).session()
  begins, count = (12, MOST - 3), 5  # two tokens of the second slot have no position
  for slot, begin in enumerate(begins):
    session.prefill(tokens[slot, :begin].copy(), slot, 0, begin)
  rows = [tokens[slot, begin : begin + count] for slot, begin in enumerate(begins)]
  rows[1] = np.pad(rows[1], (0, count - len(rows[1])))
  following, logits = session.verify(np.stack(rows), np.array(begins), MOST)
  assert following.tolist() == logits.argmax(-1).tolist()
  for slot, begin in enumerate(begins):
    for k in range(count if slot == 0 else 3):
      with torch.no_grad():
        right = artifact.model(torch.tensor(tokens[slot : slot + 1, : begin + k + 1])).logits[0, -1]
      np.testing.assert_allclose(logits[slot * count + k], right, rtol=1e-4, atol=1e-4)


def test_speculation_gives_the_tokens_of_single_steps(artifact, loaded):
  """Also drawn ones, of which the distribution is compared with that of the model."""
  model, heat, likely = artifact.model, 0.3, []

  def following(rows):
    with torch.no_grad():
      return (model(torch.tensor(rows), use_cache=False).logits[:, -1] / heat).softmax(-1)

  # A prompt whose likely next tokens have followed its last one before.
  for _ in range(6):
    prompt = [word for token in likely for word in (5, token, 9)] + [5]
    first = following([prompt])[0]
    likely = first.topk(12).indices.tolist()
  requests = [
    {"tokens": prompt, "seed": seed, "temperature": 0.1 * seed, "join": seed // 3}
    for seed in range(9)
  ]
  plain, counts = generated_in_c(artifact.path, requests, counts=True)
  assert counts["drafted"] == counts["accepted"] == 0
  drafted, counts = generated_in_c(
    artifact.path, [{**one, "speculate": 5} for one in requests], counts=True
  )
  assert plain == drafted
  samples = 900
  many = {"tokens": prompt, "temperature": heat, "samples": samples, "seed": 1000, "speculate": 5}
  (texts,), counts = generated_in_c(artifact.path, [{**many, "max_new_tokens": 3}], counts=True)
  assert counts["drafted"] > samples / 4 and counts["accepted"] > 0, counts
  second = following([[*prompt, token] for token in range(language_model.VOCABULARY)])
  first[2] = 0  # the end
  drawn = np.zeros(language_model.VOCABULARY)
  np.add.at(drawn, [text["tokens"][1] for text in texts if len(text["tokens"]) > 1], 1)
  assert np.abs(drawn / samples - (first @ second).numpy()).max() < 4 * (0.25 / samples) ** 0.5


def test_samples_stop_texts_and_errors_in_c(artifact, loaded):
  drawn = {"text": "Hi é", "temperature": 1.0, "seed": 3, "max_new_tokens": 8}
  right = []
  for i in range(4):
    own = {**drawn, "seed": 3 + i}
    right.append(loaded.generate(own.pop("text"), **own))
  stop = right[0][3:6]
  stopped = loaded.submit("Hi é", temperature=1.0, seed=3, stop=stop)
  loaded.run()
  texts = generated_in_c(
    artifact[1],
    [
      {**drawn, "samples": 4},
      {"text": "q" * 50},
      {**drawn, "max_new_tokens": 0, "stop": [stop]},
      {"text": ""},
      {"tokens": [5], "max_new_tokens": 4, "samples": 2},
    ],
  )
  assert texts[4][0]["tokens"] == texts[4][1]["tokens"] and texts[4][0]["reason"] == "length"
  assert [text["text"] for text in texts[0]] == right
  assert "has 50 tokens, but a sequence of this file has up to 40" in texts[1][0]["error"]
  assert stopped.reason == texts[2][0]["reason"] == "stop"
  assert texts[2][0]["text"] == stopped.text == right[0][:3]
  assert texts[3][0]["error"] == "the prompt has no tokens"


def test_the_header_for_cpp(artifact, loaded):
  found = program_output("husk_text_cpp", artifact.path, "Hi é")
  assert found.returncode == 0, found.stderr.decode()
  given = json.loads(found.stdout)
  text = loaded.generate("Hi é", max_new_tokens=9)
  assert given["text"] == given["other"] == text
  assert given["tokens"] == loaded.tokenizer.encode("Hi é", special=True)
  assert given["chat"] == loaded.chat_text([{"role": "user", "content": "x"}])
  assert given["embedding"] == language_model.HEADS * language_model.HEAD
  assert given["thrown"] == "no more" and given["parts"] == [0, 0, 4]
  assert "has 200 tokens, but a sequence of this file has up to 40" in given["refused"]
  assert given["ended"] == 4


def test_the_crate_for_rust(artifact, loaded):
  """The example of the crate, where a build of the bindings has left it (tests/bindings/run.sh)."""
  text = tools.find("husk-run")
  example = text and pathlib.Path(text).parents[1] / "rust" / "debug" / "examples" / "answer"
  if not example or not example.is_file():
    pytest.skip("the example of the crate is not built")
  library = {"LD_LIBRARY_PATH": str(pathlib.Path(text).parents[1] / "lib")}
  found = subprocess.run([example, artifact.path, "x"], capture_output=True, text=True, env=library)
  request = loaded.submit([{"role": "user", "content": "x"}])
  loaded.run()
  assert (found.stdout, found.stderr) == (request.text + "\n", "")


def test_husk_text_measures(artifact, tmp_path):
  path = tmp_path / "times.json"
  words = ("--prompt-tokens", 9, "--new-tokens", 12, "--rounds", 1, "--json", path)
  found = program_output("husk-text", "bench", artifact[1], *words)
  assert found.returncode == 0, found.stderr.decode()
  assert b"3 slots of 40 tokens" in found.stdout
  times = json.loads(path.read_text())
  assert [row["requests"] for row in times["results"]] == [1, 2, 3]
  for row in times["results"]:
    assert row["tokens_per_second"] > 0 and row["first_token_ms"]["median"] > 0
    assert 0 < row["host_us_a_step"] < row["step_us"]
  long = program_output("husk-text", "bench", artifact[1])
  assert long.returncode == 2 and b"a sequence of" in long.stderr
  none = program_output("husk-text", "bench", artifact[1].with_name("other.husk"))
  assert none.returncode == 3


def test_the_example_in_c(artifact, loaded):
  found = program_output("husk_example_llm", artifact.path, "x")
  request = loaded.submit([{"role": "user", "content": "x"}])
  loaded.run()
  assert found.stdout.decode() == request.text + "\n"


def test_the_file_names_its_texts(artifact):
  text = subprocess.run(
    [tools.find("husk-dump"), artifact.path, "--output=meta"],
    capture_output=True,
    text=True,
    check=True,
  ).stdout
  for name in ("tokenizer", "chat_template", "roles", "generation", "model", "license", "hashes"):
    assert f"husk.text.{name}" in text


def test_each_function_is_traced_once(artifact):
  """torch.export traces a function again if one token or one row is another case in it."""
  assert artifact.traces == 8


def test_stop_texts_are_held_back():
  tokenizer = husk.text.Tokenizer(tokenizer_json())
  request = requests.Request([1], requests.Settings(stop="abc"), tokenizer, set())
  pieces = []
  for token in tokenizer.encode("xab") + tokenizer.encode("ab") + tokenizer.encode("cd"):
    if not request.done:
      request.add(token, None, 100)
      pieces.append(request.take())
  assert "".join(pieces) == "xab" and request.text == "xab" and request.reason == "stop"
  request = requests.Request([1], requests.Settings(stop="abc"), tokenizer, set())
  for token in tokenizer.encode("xab"):
    request.add(token, None, 100)
  assert request.text == "x"
  request.cancel()
  assert request.text == "xab"


def test_templates_of_another_form_have_no_roles():
  assert chats.roles(TEMPLATE, {}) == {
    "first": "",
    "system": ["<|im_start|>system\n", "<|im_end|>\n"],
    "user": ["<|im_start|>user\n", "<|im_end|>\n"],
    "assistant": ["<|im_start|>assistant\n", "<|im_end|>\n"],
    "trim": False,
  }
  numbered = "{% for m in messages %}{{ loop.index }}{{ m['content'] }}{% endfor %}A:"
  assert chats.roles(numbered, {}) is None
  with pytest.raises(ValueError, match="the chat template fails: no such role"):
    chats.render("{{ raise_exception('no such role') }}", [{"role": "x", "content": ""}], {})
