"""husk.text: tokenizers, requests, and texts from the file of a language model."""

import asyncio
import re

import husk
import language_model
import numpy as np
import pytest
import torch
from husk import __main__ as command
from husk.text import chats, requests
from text_file import (
  MOST,
  PENALTIES,
  SLOTS,
  TEMPLATE,
  exported,
  generated_in_c,
  host_target,
  right_tokens,
  tokenizer_json,
)


@pytest.fixture(scope="module")
def artifact(tmp_path_factory):
  yield from exported(tmp_path_factory)


@pytest.fixture
def loaded(artifact):
  return husk.text.load(artifact.path, threads=1)


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


def test_few_candidates_give_the_tokens_of_all_words(loaded):
  random = np.random.default_rng(1)
  rows, few = 3, loaded._drawing.candidates
  assert few == 64
  for at in range(0, 300, rows):
    logits = random.normal(size=(rows, language_model.VOCABULARY)).astype(np.float32).round(1) * 3
    settings = (
      random.choice([0, 0.5, 1.5], rows).astype(np.float32),
      random.choice([1, 2, 30, few], rows),
      random.choice([0.5, 0.9, 1], rows).astype(np.float32),
      random.choice([0, 0.1], rows).astype(np.float32),
      random.integers(0, 1 << 40, rows),
      np.arange(at, at + rows),
    )
    found, right = (
      function(logits, *settings)
      for function in (loaded._session.sample_few, loaded._session.sample)
    )
    assert found[0].tolist() == right[0].tolist()
    np.testing.assert_allclose(found[1], right[1], rtol=1e-5, atol=1e-5)


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


def test_what_is_wrong_is_named(loaded, tmp_path):
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
    path = tmp_path / "other.husk"
    husk.export(torch.nn.Identity(), (torch.zeros(2),), path, targets=(host_target(),))
    husk.text.load(path)


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
