"""husk.text: tokenizers, requests, and texts from the file of a language model."""

import json
import pathlib
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
from husk.text import chats, requests

GOLDEN = pathlib.Path(__file__).parents[1] / "text" / "golden.json"
MOST, SLOTS = 40, 3
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
      model, path, max_tokens=MOST, slots=SLOTS, tokenizer=folder, targets=(host_target(),)
    )
    yield Made(model, path, len(traces))


def host_target():
  return "host:avx2" if "avx2" in pathlib.Path("/proc/cpuinfo").read_text() else "host"


@pytest.fixture
def loaded(artifact):
  return husk.text.load(artifact.path, threads=1)


def right_tokens(model, prompt, count):
  """What the model continues a prompt by, without a cache."""
  tokens = list(prompt)
  for _ in range(min(count, MOST + 1 - len(prompt))):
    with torch.no_grad():
      tokens.append(int(model(torch.tensor([tokens]), use_cache=False).logits[0, -1].argmax()))
    if tokens[-1] == 2:
      break
  return tokens[len(prompt) :]


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
  count, temperature, top_k, top_p = 1500, 0.8, 12, 0.9
  drawn = np.zeros(row.size)
  sample = loaded._session.sample
  for at in range(0, count, 2):
    tokens, logprobs = sample(
      logits,
      np.full(2, temperature, np.float32),
      np.full(2, top_k),
      np.full(2, top_p, np.float32),
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
  weights /= weights.sum()
  assert not drawn[weights == 0].any()
  assert np.abs(drawn / drawn.sum() - weights).max() < 4 * (0.25 / count) ** 0.5
  greedy, _ = sample(
    logits,
    np.zeros(2, np.float32),
    np.zeros(2, np.int64),
    np.ones(2, np.float32),
    np.zeros(2, np.int64),
    np.zeros(2, np.int64),
  )
  assert greedy.tolist() == [row.argmax()] * 2


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


class KeepsOtherStates(language_model.Decoder):
  def forward(self, input_ids, cache=None, **others):
    if cache is not None:
      cache.update_conv_state(0)
    return super().forward(input_ids)


@pytest.mark.parametrize(
  ("kind", "reason"),
  [
    (SeesAll, "does not follow transformers' hooks"),
    (AttendsByItself, "computes attention by itself"),
    (Fails, r"does not run with Husk's cache \(AttributeError"),
    (KeepsOtherStates, "has layers with states of convolutions"),
  ],
)
def test_an_architecture_without_the_hooks_is_refused(monkeypatch, tmp_path, kind, reason):
  for name, module in language_model.stand_in().items():
    monkeypatch.setitem(sys.modules, name, module)
  with pytest.raises(husk.Unsupported, match=f"the architecture 'small' {reason}"):
    husk.language.export(kind().eval(), tmp_path / "model.husk", max_tokens=MOST)


def test_the_command_names_what_is_wrong(monkeypatch, tmp_path, capsys):
  arguments = ["llm", str(tmp_path / "none.gguf"), "-o", str(tmp_path / "model.husk")]
  for name, module in language_model.stand_in().items():
    monkeypatch.setitem(sys.modules, name, module)
  assert command.main(arguments) == 1
  assert "none.gguf is not there: give a GGUF file or a folder" in capsys.readouterr().err
  monkeypatch.setitem(sys.modules, "transformers", None)
  assert command.main(arguments) == 1
  assert "husk.language.export needs transformers" in capsys.readouterr().err


def test_sizes_that_are_wrong(monkeypatch, tmp_path):
  for name, module in language_model.stand_in().items():
    monkeypatch.setitem(sys.modules, name, module)
  model, path = language_model.Decoder().eval(), tmp_path / "model.husk"
  with pytest.raises(ValueError, match="max_tokens=600: this small takes up to 512 tokens"):
    husk.language.export(model, path, max_tokens=600)
  with pytest.raises(ValueError, match="slots=0: give a number from 1 to 1024"):
    husk.language.export(model, path, slots=0)
  with pytest.raises(ValueError, match="dtype='float8': give one of 'float32'"):
    husk.language.export(model, path, cache_dtype="float8")


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


def generated_in_c(path, requests, chunk=0):
  """What the generator of libhusk_text makes of requests: a list of texts for each."""
  program = tools.find("husk_text_requests")
  if program is None:
    pytest.skip("husk_text_requests is not built")
  found = subprocess.run(
    [program, path, str(chunk)], input=json.dumps(requests).encode(), capture_output=True
  )
  assert found.returncode == 0, found.stderr.decode()
  return json.loads(found.stdout)


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
    {"temperature": 1.2, "top_p": 0.8, "seed": 2**61, "logprobs": True},
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
    if right.logprobs:
      np.testing.assert_allclose(text["logprobs"], right.logprobs, rtol=1e-4, atol=1e-4)


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
    ],
  )
  assert [text["text"] for text in texts[0]] == right
  assert "has 50 tokens, but a sequence of this file has up to 40" in texts[1][0]["error"]
  assert stopped.reason == texts[2][0]["reason"] == "stop"
  assert texts[2][0]["text"] == stopped.text == right[0][:3]
  assert texts[3][0]["error"] == "the prompt has no tokens"


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
  assert artifact.traces == 3


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
