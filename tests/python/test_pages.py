"""Language models whose caches are in pages: functions against those of slots, and texts of
requests that share pages, wait for them and give them away."""

import json
import subprocess
import sys

import husk
import language_model
import numpy as np
import pytest
import torch
from husk import __main__ as command
from husk import tools
from husk.language import caches, exporting, steps
from text_file import host_target, without_sampling

MOST, SLOTS, PAGES = 150, 3, 5
SIZES = {"max_tokens": MOST, "slots": SLOTS}


@pytest.fixture(scope="module")
def model():
  with pytest.MonkeyPatch.context() as patch:
    yield language_model.make(patch)


@pytest.fixture(scope="module")
def artifact(model, tmp_path_factory):
  path = tmp_path_factory.mktemp("pages") / "model.husk"
  given = {**SIZES, "features": ("copy", "verify", "embed"), "targets": (host_target(),)}
  with pytest.MonkeyPatch.context() as patch:
    without_sampling(patch)
    husk.language.export(model, path, pages=PAGES, **given)
  return path


@pytest.fixture(scope="module")
def cached(request, tmp_path_factory):
  """The type of a cache, a model, and its file with slots. Two layers, whose caches must not be
  mixed up, are enough with one type of codes; the models of the other types have one."""
  kind = request.param
  path = tmp_path_factory.mktemp("cache") / "slots.husk"
  with pytest.MonkeyPatch.context() as patch:
    model = language_model.make(patch, layers=2 if kind == "int8" else 1)
    yield kind, model, exported_alone(model, path, kind)


def exported_alone(model, path, cache, **sizes):
  """A file with the functions alone that keep something in a cache of a type."""
  functions, names = exporting._functions, ("prefill", "decode", "verify", "copy")
  given = {**SIZES, **sizes, "features": ("copy", "verify"), "targets": (host_target(),)}
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(
      exporting,
      "_functions",
      lambda *arguments: {name: functions(*arguments)[name] for name in names},
    )
    husk.language.export(model, path, cache=cache, **given)
  return path


def right_tokens(model, prompt, count):
  return language_model.continued(model, prompt, min(count, MOST + 1 - len(prompt)))


def random_tokens(seed, count):
  return np.random.default_rng(seed).integers(3, language_model.VOCABULARY, count).tolist()


def whole(*numbers):
  return np.array(numbers, np.int64)


def test_the_file_says_what_it_has(artifact):
  program = husk.load(artifact, threads=1)
  described = json.loads(program.metadata()["husk.text.model"])
  assert (described["pages"], described["page"]) == (PAGES, steps.PAGE)
  sizes = {tuple(one.shape) for one in program.session().state.values()}
  head = language_model.HEAD
  assert sizes == {(PAGES + 1, language_model.SHARED, steps.PAGE, head)}


class Eager:
  """The functions of a module for arrays, as a session has them."""

  def __init__(self, module):
    self._module = module

  def __getattr__(self, name):
    function = getattr(self._module, name)

    def call(*given):
      given = [torch.from_numpy(one) if isinstance(one, np.ndarray) else one for one in given]
      with torch.no_grad():
        return function(*given)

    return call


def test_functions_equal_those_of_slots_in_eager_mode(model, artifact):
  with exporting.decoder_of(model, SLOTS, MOST, None) as module:
    check_pages(Eager(module), husk.load(artifact, threads=1).session())


@pytest.mark.parametrize("cached", ["bfloat16", "int8", "fp8"], indirect=True)
def test_functions_equal_those_of_slots(cached, tmp_path):
  """Both are exported, since modules in eager mode round some numbers to other ones."""
  cache, model, of_slots = cached
  path = exported_alone(model, tmp_path / "pages.husk", cache, pages=PAGES)
  check_pages(*(husk.load(one, threads=1).session() for one in (of_slots, path)))


def check_pages(slots, pages):
  prompt = np.array(random_tokens(1, 70))

  def same(one, other, rows=slice(None)):
    assert np.asarray(one[0])[rows].tolist() == np.asarray(other[0])[rows].tolist()
    one, other = np.asarray(one[1])[rows], np.asarray(other[1])[rows]
    assert np.abs(one - other).max() <= 1e-5 * np.abs(one).max()

  same(slots.prefill(prompt, 1, 0, 128), pages.prefill(prompt, 1, 0, whole(4, 2)))
  same(slots.prefill(prompt[:3], 0, 0, 64), pages.prefill(prompt[:3], 0, 0, whole(5)))
  for k in range(60):  # slot 1 gets its third page; slot 2 takes no part
    tokens, positions = prompt[k : k + 3].copy(), whole(3 + k, 70 + k, MOST)
    count = (70 + k) // steps.PAGE + 1
    table = np.array([[5, 0, 0], [4, 2, 1], [0, 0, 0]])[:, :count].copy()
    span = min(count * steps.PAGE, MOST)
    found = pages.decode(tokens, positions, table)
    same(slots.decode(tokens, positions, span), found, slice(2))
  # The second token of slot 0 is on its second page; the others have none.
  several, table = prompt[:6].reshape(2, 3), np.array([[5, 3, 0], [4, 2, 1]])
  positions = whole(63, MOST - 1)
  found = pages.verify(several, positions, table)
  same(slots.verify(several, positions, MOST), found, slice(4))
  assert pages.copy(5, 3).tolist() == [3]
  slots.copy(0, 2, 0, 60)
  tokens, positions = prompt[:3].copy(), whole(MOST, MOST, 60)
  table = np.array([[0], [0], [3]])
  same(slots.decode(tokens, positions, 64), pages.decode(tokens, positions, table), slice(2, 3))
  for wrong in (PAGES + 1, -1):
    with pytest.raises(ValueError):
      pages.copy(1, wrong)


@pytest.mark.parametrize("cached", ["int8", "fp8"], indirect=True)
def test_a_cache_of_codes(cached):
  """The program writes and reads codes as the module in eager mode does."""
  cache, model, path = cached
  session = husk.load(path, threads=1).session()
  tokens = torch.arange(12) * 31 % language_model.VOCABULARY
  kind = caches.KINDS[cache]
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


def test_a_page_that_is_not_there_is_an_error(artifact):
  session = husk.load(artifact, threads=1).session()
  with pytest.raises(Exception, match="index out of bounds"):
    session.prefill(whole(5, 6), 0, 0, whole(PAGES + 1))


def test_texts_of_requests(model, artifact):
  """Five pages have two texts of the largest size, so requests wait, and texts begin anew."""
  loaded = husk.text.load(artifact, threads=1)
  prompts = [random_tokens(i, n) for i, n in enumerate((1, 60, 100, MOST, 63, 64, 65, 40, 2))]
  requests = [loaded.submit(prompt, max_new_tokens=70) for prompt in prompts]
  paused = 0
  while loaded.step():
    assert 0 <= loaded._pages.used <= PAGES
    paused += any(one.paused for one in requests)
  assert paused and loaded._pages.used == 0
  for prompt, request in zip(prompts, requests, strict=True):
    assert request.tokens == right_tokens(model, prompt, 70)


class Mixed(language_model.Decoder):
  """A decoder whose layers keep a state, which halves with each token, beside keys and values."""

  def hidden(self, input_ids, position_ids=None, use_cache=None, cache=None):
    x = super().hidden(input_ids, position_ids, use_cache, cache)
    tokens, count = self.embedding(input_ids), input_ids.shape[1]
    at = torch.arange(count)
    distances = at[:, None] - at
    found = torch.where(distances >= 0, 0.5 ** distances.clamp(min=0), 0) @ tokens
    if cache is None:
      return x + found
    before = cache.get_recurrent_state(0)
    if before is not None:
      found = found + before[:, None] * (0.5 ** (at + 1))[:, None]
    cache.update_recurrent_state(found[:, -1], 0)
    return x + found


def test_states_beside_pages(monkeypatch, tmp_path):
  for name, module in language_model.stand_in().items():
    monkeypatch.setitem(sys.modules, name, module)
  torch.manual_seed(1)
  model, path = Mixed().eval(), tmp_path / "model.husk"
  without_sampling(monkeypatch)
  given = {**SIZES, "features": ("copy", "single"), "targets": (host_target(),)}
  husk.language.export(model, path, pages=4, **given)
  prompts = [random_tokens(i, n) for i, n in enumerate((60, 100, 1, 64, 62))]
  right = [right_tokens(model, prompt, 40) for prompt in prompts]
  loaded, paused = husk.text.load(path, threads=1), 0
  requests = [loaded.submit(prompt, max_new_tokens=40) for prompt in prompts]
  while loaded.step():
    paused += any(one.paused for one in requests)
  assert paused and [one.tokens for one in requests] == right
  asked = [{"tokens": prompt, "max_new_tokens": 40, "samples": 2} for prompt in prompts]
  # A chat that goes on has the state of its slot; others begin anew.
  asked += [{"tokens": [*prompts[0], *right[0], 9], "max_new_tokens": 5, "join": 400}]
  right.append(right_tokens(model, [*prompts[0], *right[0], 9], 5))
  found, _ = generated_in_c(path, asked, "0", "reuse")
  for texts, one in zip(found, right, strict=True):
    assert [text["tokens"] for text in texts] == [one] * len(texts)


def test_scores_of_texts(model, artifact):
  loaded = husk.text.load(artifact, threads=1)
  texts = [random_tokens(i, 130) for i in range(3)]  # no more than one at once
  for verified in (8, 0):
    loaded._verified = verified
    for text in texts:
      with torch.no_grad():
        logits = model(torch.tensor([text]), use_cache=False).logits[0, :-1].log_softmax(-1)
      right = logits.gather(1, torch.tensor(text[1:])[:, None])[:, 0].numpy()
      np.testing.assert_allclose(loaded.score(text), right, atol=1e-4)
  assert loaded.perplexity(sum(texts, []), window=40)[1] == 390 - 10


def generated_in_c(path, requests, *words):
  program = tools.find("husk_text_requests")
  if program is None:
    pytest.skip("husk_text_requests is not built")
  text = json.dumps(requests).encode()
  done = subprocess.run([program, path, *words], input=text, capture_output=True)
  assert done.returncode == 0, done.stderr.decode()
  return json.loads(done.stdout), json.loads(done.stderr)


@pytest.mark.parametrize("words", [("0",), ("0", "reuse"), ("17", "reuse")])
def test_texts_of_the_generator_in_c(model, artifact, words):
  beginning = random_tokens(9, MOST)
  prompts = [beginning[:n] + random_tokens(n, m) for n, m in ((0, 3), (90, 5), (70, 20), (130, 2))]
  prompts += [beginning[:100], beginning[:100], random_tokens(3, 64), beginning[:64]]
  requests = [
    {
      "tokens": prompt,
      "max_new_tokens": 50,
      "join": 3 * i,
      "samples": 1 + (i == 5),
      "speculate": 4 * (i % 2),
    }
    for i, prompt in enumerate(prompts)
  ]
  found, counts = generated_in_c(artifact, requests, *words)
  for prompt, texts in zip(prompts, found, strict=True):
    for text in texts:
      assert text["tokens"] == right_tokens(model, prompt, 50)
  assert counts["shared"] > 100 * (len(words) - 1) and counts["used_pages"] <= PAGES
  assert len(words) > 1 or counts["used_pages"] == 0


def test_what_pages_do_not_do_is_refused(monkeypatch, tmp_path):
  for name, module in language_model.stand_in().items():
    monkeypatch.setitem(sys.modules, name, module)
  model, path = language_model.Decoder().eval(), tmp_path / "model.husk"
  with pytest.raises(ValueError, match="pages=2: .* may have 150 tokens, .* give at least 3 pages"):
    husk.language.export(model, path, max_tokens=150, pages=2)
  for few in (1, 2):
    with pytest.raises(ValueError, match=f"pages={few}: a file of 2 slots has at least 3 pages"):
      husk.language.export(model, path, max_tokens=64, slots=2, pages=few)
  with pytest.raises(ValueError, match="pages=0: .* may have 64 tokens, .* give at least 1 pages"):
    husk.language.export(model, path, max_tokens=64, pages=0)


def test_the_fewest_pages(monkeypatch, tmp_path):
  """A file of two slots with three pages, of which `copy` copies one to another."""
  for name, module in language_model.stand_in().items():
    monkeypatch.setitem(sys.modules, name, module)
  torch.manual_seed(0)
  model, path = language_model.Decoder(layers=1).eval(), tmp_path / "model.husk"
  without_sampling(monkeypatch)
  given = {"features": "copy", "targets": (host_target(),)}
  husk.language.export(model, path, max_tokens=70, slots=2, pages=3, **given)
  loaded = husk.text.load(path, threads=1)
  requests = [loaded.submit(prompt, max_new_tokens=20) for prompt in ([5], list(range(60)))]
  loaded.run()
  for request in requests:
    right = language_model.continued(model, request.prompt, min(20, 71 - len(request.prompt)))
    assert request.tokens == right


def test_the_command_takes_pages(monkeypatch, tmp_path):
  taken = {}
  monkeypatch.setattr("husk.language.command.export", lambda *_, **words: taken.update(words))
  assert command.main(["llm", "model.gguf", "-o", str(tmp_path / "a.husk"), "--pages", "12"]) == 0
  assert taken["pages"] == 12
