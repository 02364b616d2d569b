"""Programs in C, C++ and Rust give the texts of husk.text."""

import json
import pathlib
import subprocess

import husk
import language_model
import numpy as np
import pytest
import torch
from husk import tools
from text_file import MOST, PENALTIES, exported, generated_in_c, program_output


@pytest.fixture(scope="module")
def artifact(tmp_path_factory):
  yield from exported(tmp_path_factory)


@pytest.fixture
def loaded(artifact):
  return husk.text.load(artifact.path, threads=1)


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


def test_speculation_gives_the_tokens_of_single_steps(artifact, loaded):
  """Also drawn ones, of which the distribution is compared with that of the model."""
  model, heat, likely = artifact.model, 0.3, []

  def following(rows):
    with torch.no_grad():
      return (model(torch.tensor(rows), use_cache=False).logits[:, -1] / heat).softmax(-1)

  # A prompt whose likely next tokens have followed its last one before, each with the token that is
  # the most likely one after it.
  for _ in range(6):
    prompt = [word for pair in likely for word in (5, *pair)] + [5]
    first = following([prompt])[0]
    tokens = first.topk(12).indices.tolist()
    after = following([[*prompt, token] for token in tokens]).argmax(-1).tolist()
    likely = list(zip(tokens, after, strict=True))
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
