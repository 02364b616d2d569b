"""Adapters (LoRA) of language models: exported, set while requests run, and refused."""

import functools
import itertools
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
from husk.errors import Unsupported
from husk.language import adapters as exported_adapters
from husk.language import exporting
from husk.quantized import schemes
from husk.text import adapters
from text_file import (
  generated_in_c,
  host_target,
  program_output,
  tokenizer_json,
  without_sampling,
)

MOST, SLOTS, COUNT, RANK = 40, 3, 3, 4
PREFIX = "base_model.model."


def targets_of(model):
  if hasattr(model, "lm_head"):
    return ("q_proj", "down_proj")
  return ("queries.0", "both.0", "1")[: 1 + len(model.queries)]


@pytest.fixture(scope="module")
def artifact(tmp_path_factory):
  """A model, and its file with room for adapters."""
  with pytest.MonkeyPatch.context() as patch:
    model = language_model.make(patch)
    folder = tmp_path_factory.mktemp("model")
    (folder / "tokenizer.json").write_text(tokenizer_json(), encoding="utf-8")
    path = folder / "model.husk"
    without_sampling(patch)
    husk.language.export(
      model,
      path,
      max_tokens=MOST,
      slots=SLOTS,
      tokenizer=folder,
      features=("single", "verify"),
      adapters=COUNT,
      rank=RANK,
      adapter_targets=targets_of(model),
      targets=(host_target(),),
    )
    yield model, path


@pytest.fixture
def loaded(artifact):
  return husk.text.load(artifact[1], threads=1)


def layers_of(model):
  return exported_adapters._layers(model, targets_of(model))


def safetensors(tensors):
  """The content of a file of tensors."""
  header, data = {"__metadata__": {"format": "pt"}}, b""
  types = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int8: "I8"}
  for name, tensor in tensors.items():
    content = tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    header[name] = {
      "dtype": types[tensor.dtype],
      "shape": list(tensor.shape),
      "data_offsets": [len(data), len(data) + len(content)],
    }
    data += content
  text = json.dumps(header).encode()
  return len(text).to_bytes(8, "little") + text + data


def matrices(model, seed, rank=RANK, dtype=torch.float32):
  """Random matrices of all layers, by the names that PEFT gives them."""
  random = torch.Generator().manual_seed(seed)
  result = {}
  for name, layer in layers_of(model).items():
    for part, shape in (("A", (rank, layer.in_features)), ("B", (layer.out_features, rank))):
      matrix = torch.randn(shape, generator=random) * 0.3
      result[f"{PREFIX}{name}.lora_{part}.weight"] = matrix.to(dtype)
  return result


def written(folder, tensors, **config):
  folder.mkdir(exist_ok=True)
  rank = next((len(one) for one in tensors.values()), RANK)
  settings = {"peft_type": "LORA", "r": rank, "lora_alpha": 2 * rank, "bias": "none", **config}
  (folder / "adapter_config.json").write_text(json.dumps(settings))
  (folder / "adapter_model.safetensors").write_bytes(safetensors(tensors))
  return folder


def right_tokens(model, tensors, scale, prompt, count):
  """What the model continues a prompt by if its weights have the adapter."""
  layers, before = layers_of(model), {}
  with torch.no_grad():
    for name, layer in layers.items():
      a = tensors.get(f"{PREFIX}{name}.lora_A.weight")
      if a is not None:
        before[name] = layer.weight.clone()
        b = tensors[f"{PREFIX}{name}.lora_B.weight"]
        factor = scale(name) if callable(scale) else scale
        layer.weight += factor * (b.float() @ a.float())
    tokens = list(prompt)
    for _ in range(count):
      tokens.append(int(model(torch.tensor([tokens]), use_cache=False).logits[0, -1].argmax()))
      if tokens[-1] == 2:
        break
    for name, weight in before.items():
      layers[name].weight.copy_(weight)
  return tokens[len(prompt) :]


PROMPT = [5, 6, 7, 8, 9, 10, 11]


def test_each_request_has_its_adapter(artifact, loaded, tmp_path):
  """Adapters a, b and none at once, in Python and in C, against models with changed weights."""
  model, path = artifact
  first, second = matrices(model, 1), matrices(model, 2, rank=2)
  folders = {"a": written(tmp_path / "a", first), "b": written(tmp_path / "b", second)}
  right = {
    "a": right_tokens(model, first, 2, PROMPT, 16),
    "b": right_tokens(model, second, 2, PROMPT, 16),
    None: right_tokens(model, {}, 0, PROMPT, 16),
  }
  assert right["a"] != right["b"] != right[None] != right["a"]
  for name, folder in folders.items():
    loaded.add_adapter(name, folder)
  assert loaded.adapters == ("a", "b")
  order = ("a", None, "b", "b", "a", None)
  waiting = [loaded.submit(PROMPT, max_new_tokens=16, adapter=name) for name in order]
  loaded.run()
  assert [request.tokens for request in waiting] == [right[name] for name in order]
  one = loaded.submit(PROMPT[:1], max_new_tokens=5, adapter="a")  # `decode` takes the prompt
  loaded.run()
  assert one.tokens == right_tokens(model, first, 2, PROMPT[:1], 5)
  numbers = {"a": 1, "b": 2, None: 0}
  requests = [
    {"set_adapter": number, "adapter_folder": str(folders[name])}
    for name, number in numbers.items()
    if name
  ]
  for name in order:
    same = {"tokens": PROMPT, "max_new_tokens": 16, "adapter": numbers[name]}
    requests += [{**same, "join": 1}, {**same, "join": 4, "speculate": 5}]
  texts = generated_in_c(path, requests)[2:]
  assert [text["tokens"] for (text,) in texts] == [right[name] for name in order for _ in range(2)]


def test_adapters_in_pages(monkeypatch, tmp_path):
  """Requests that begin alike, with adapters of their own, wait, and take tokens again."""
  without_sampling(monkeypatch)
  model, most = language_model.make(monkeypatch, layers=1), 130
  path, tensors = tmp_path / "model.husk", matrices(model, 7)
  husk.language.export(
    model,
    path,
    max_tokens=most,
    slots=SLOTS,
    pages=3,
    features=("copy", "verify"),
    adapters=COUNT,
    rank=RANK,
    adapter_targets=targets_of(model),
    targets=(host_target(),),
  )
  loaded, prompt = husk.text.load(path, threads=1), PROMPT * 9
  folder = written(tmp_path / "a", tensors)
  loaded.add_adapter("a", folder)
  right = {
    "a": right_tokens(model, tensors, 2, prompt, 20),
    None: right_tokens(model, {}, 0, prompt, 20),
  }
  assert right["a"] != right[None]
  order, paused = ("a", None, "a", None), 0
  requests = [loaded.submit(prompt, max_new_tokens=20, adapter=name) for name in order]
  while loaded.step():
    paused += any(one.paused for one in requests)
  assert paused and [one.tokens for one in requests] == [right[name] for name in order]
  assert loaded.score(prompt, "a").sum() != loaded.score(prompt).sum()
  asked = [{"set_adapter": 1, "adapter_folder": str(folder)}]
  for name in order:
    one = {"tokens": prompt, "max_new_tokens": 20, "adapter": int(name == "a")}
    asked += [one, {**one, "samples": 2, "speculate": 4}]
  texts = generated_in_c(path, asked)[1:]
  found = [[text["tokens"] for text in each] for each in texts]
  assert found == [[right[name]] * count for name in order for count in (1, 2)]


def test_scores_have_an_adapter(artifact, loaded, tmp_path):
  model, _ = artifact
  tensors = matrices(model, 3)
  loaded.add_adapter("a", written(tmp_path / "a", tensors))
  text = PROMPT * 2
  plain, adapted = loaded.score(text), loaded.score(text, adapter="a")
  assert np.abs(plain - adapted).max() > 0.1
  layers, right = layers_of(model), None
  with torch.no_grad():
    for sign in (1, -1):
      for name, layer in layers.items():
        a, b = (tensors[f"{PREFIX}{name}.lora_{part}.weight"] for part in "AB")
        layer.weight += sign * 2 * (b @ a)
      if right is None:
        logits = model(torch.tensor([text]), use_cache=False).logits[0].log_softmax(-1)
        right = logits[range(len(text) - 1), text[1:]].numpy()
  np.testing.assert_allclose(adapted, right, rtol=1e-3, atol=1e-3)
  perplexity, count = loaded.perplexity(text, adapter="a")
  assert count == len(right) and np.log(perplexity) == pytest.approx(-right.mean(), rel=1e-3)


@pytest.mark.parametrize(
  ("rank", "dtype", "config", "scale"),
  [
    (1, torch.float32, {}, 2),
    (4, torch.float16, {"use_rslora": True}, 4),
    (2, torch.bfloat16, {"lora_alpha": 1}, 0.5),
    (4, torch.float32, {"alpha_pattern": {"eries.0": 99, "_proj": 99, "0": 12, "q_proj": 6}}, None),
  ],
)
def test_scales_ranks_and_types(artifact, loaded, tmp_path, rank, dtype, config, scale):
  model, path = artifact
  tensors = matrices(model, 4, rank, dtype)

  def by_pattern(name):
    ends = config["alpha_pattern"]
    found = [value for end, value in ends.items() if name == end or name.endswith("." + end)]
    return (found[0] if found else 8) / 4

  folder = written(tmp_path / "a", tensors, **config)
  loaded.add_adapter("a", written(tmp_path / "full", matrices(model, 5)))
  loaded.add_adapter("a", folder)  # nothing is left of the one before
  request = loaded.submit(PROMPT, max_new_tokens=12, adapter="a")
  loaded.run()
  right = right_tokens(model, tensors, scale or by_pattern, PROMPT, 12)
  assert request.tokens == right
  change = {"set_adapter": 3, "adapter_folder": str(folder)}
  asked = {"tokens": PROMPT, "max_new_tokens": 12, "adapter": 3}
  assert generated_in_c(path, [change, asked])[1][0]["tokens"] == right


def test_adapters_are_added_and_removed(artifact, loaded, tmp_path):
  model, _ = artifact
  folders = [written(tmp_path / str(i), matrices(model, i)) for i in range(4)]
  for i in range(COUNT):
    loaded.add_adapter(str(i), folders[i])
  with pytest.raises(ValueError, match="has room for 3 adapters, which are 0, 1, 2: remove one"):
    loaded.add_adapter("3", folders[3])
  running = loaded.submit(PROMPT, max_new_tokens=6, adapter="1")
  loaded.step()
  in_use = r"the adapter '1' is in use by 1 requests: wait for their ends, or cancel them"
  with pytest.raises(ValueError, match=in_use):
    loaded.remove_adapter("1")
  with pytest.raises(ValueError, match=in_use):
    loaded.add_adapter("1", folders[3])
  loaded.remove_adapter("0")
  loaded.add_adapter("3", folders[3])
  loaded.run()
  assert running.tokens == right_tokens(model, matrices(model, 1), 2, PROMPT, 6)
  assert set(loaded.adapters) == {"1", "2", "3"}
  with pytest.raises(ValueError, match=r"there is no adapter '0': add it .*'1', '2', '3'"):
    loaded.submit(PROMPT, adapter="0")
  with pytest.raises(ValueError, match="there is no adapter '0'"):
    loaded.remove_adapter("0")
  loaded.add_adapter("1", folders[2])
  assert loaded.submit(PROMPT, max_new_tokens=6, adapter="1") and loaded.run() is None


def wrong_adapters(model):
  """Adapters that are refused, by what the message says."""
  tensors = matrices(model, 1)
  a, b, *_ = tensors
  layer, inputs = a.removeprefix(PREFIX).removesuffix(".lora_A.weight"), tensors[a].shape[1]
  yield "of another shape", {**tensors, a: torch.zeros(RANK, inputs + 1)}, {}
  yield "of another shape", {**tensors, b: tensors[b][1:]}, {}
  yield "is no matrix", {**tensors, a: torch.zeros(5)}, {}
  yield f"{layer} has rank 4, but adapter_config.json says r = 3", tensors, {"r": 3}
  yield "has rank 5 for .* has room for 4: export the model with rank=5", matrices(model, 1, 5), {}
  yield f"there is no lora_B of {layer}", {a: tensors[a]}, {}
  yield f"there is no lora_A of {layer}", {b: tensors[b]}, {}
  yield "no room for an adapter of embedding", {f"{PREFIX}embedding.lora_A.weight": tensors[a]}, {}
  yield "has the tensor 'x'", {"x": tensors[a]}, {}
  yield "the adapter has DoRA", {f"{PREFIX}{layer}.lora_magnitude_vector": tensors[a]}, {}
  yield "has no matrices", {}, {}
  yield "has the type I8", {**tensors, a: torch.zeros(RANK, inputs, dtype=torch.int8)}, {}
  for name, value in {"use_dora": True, "modules_to_save": ["x"], "bias": "all"}.items():
    yield f"{name}.*, which Husk does not compute", tensors, {name: value}
  yield "is of the kind IA3: Husk takes LORA", tensors, {"peft_type": "IA3"}
  yield "whose weights olora has changed", tensors, {"init_lora_weights": "olora"}
  yield r"alpha_pattern has '\.\*q': give names", tensors, {"alpha_pattern": {".*q": 1}}
  yield "has no number lora_alpha", tensors, {"lora_alpha": None}


def test_what_is_wrong_is_named_and_requests_go_on(artifact, loaded, tmp_path):
  model, _ = artifact
  good = matrices(model, 6)
  loaded.add_adapter("a", written(tmp_path / "good", good))
  running = loaded.submit(PROMPT, max_new_tokens=6)
  loaded.step()
  for message, tensors, config in wrong_adapters(model):
    with pytest.raises(ValueError, match=message):
      loaded.add_adapter("a", written(tmp_path / "wrong", tensors, **config))
  with pytest.raises(FileNotFoundError, match="give the folder that save_pretrained of PEFT"):
    loaded.add_adapter("a", tmp_path / "nowhere")
  folder = written(tmp_path / "cut", good)
  weights = folder / "adapter_model.safetensors"
  whole = weights.read_bytes()
  for size, message in (
    (5, "it ends in its header"),
    (99, "it ends in its header"),
    (len(whole) - 1, "it ends before its last tensor"),
  ):
    weights.write_bytes(whole[:size])
    with pytest.raises(ValueError, match=f"is damaged: {message}"):
      loaded.add_adapter("a", folder)
  for header, message in ((b"[]", "is no JSON object"), (b"{", "is no JSON object")):
    weights.write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(ValueError, match=message):
      loaded.add_adapter("a", folder)
  (folder / "adapter_config.json").write_text("{")
  with pytest.raises(ValueError, match="is no JSON"):
    loaded.add_adapter("a", folder)
  asked = loaded.submit(PROMPT, max_new_tokens=6, adapter="a")
  loaded.run()
  assert running.tokens == right_tokens(model, {}, 0, PROMPT, 6)
  assert asked.tokens == right_tokens(model, good, 2, PROMPT, 6)


def test_numbers_of_a_type(artifact):
  """Rounding to bf16 is that of torch."""
  random = torch.Generator().manual_seed(1)
  numbers = torch.randn(64, 64, generator=random) * 1e3
  numbers[0, :4] = torch.tensor([float("inf"), -float("inf"), 1 + 2.0**-8, 1 + 3 * 2.0**-8])
  stored = adapters._stored(numbers.numpy(), "bf16")
  assert (stored == numbers.bfloat16().view(torch.uint16).numpy()).all()
  assert adapters._stored(np.float32([[np.nan]]), "bf16")[0, 0] == 0x7FC0


def test_the_tools_take_an_adapter(artifact, loaded, tmp_path, capsys):
  model, path = artifact
  tensors = matrices(model, 7)
  folder = written(tmp_path / "a", tensors)
  loaded.add_adapter("a", folder)
  text = loaded.generate("Hi é", max_new_tokens=9, adapter="a")
  assert text != loaded.generate("Hi é", max_new_tokens=9)
  words = ("--plain", "--quiet", "--prompt", "Hi é", "--max-new-tokens", 9)
  found = program_output("husk-chat", path, *words, "--adapter", folder)
  assert found.stdout.decode() == text + "\n", found.stderr.decode()
  found = program_output("husk-chat", path, *words, "--adapter", tmp_path)
  assert found.returncode == 2 and b"adapter_config.json: cannot be read: give" in found.stderr
  (tmp_path / "text.txt").write_text("Some words")
  score = ["perplexity", str(path), str(tmp_path / "text.txt"), "--adapter"]
  assert command.main([*score, str(folder)]) == 0
  right, _ = loaded.perplexity("Some words", adapter="a")
  assert capsys.readouterr().out.startswith(f"perplexity {right:.4f} of ")
  assert command.main([*score, str(tmp_path)]) == 1
  assert "give the folder that save_pretrained of PEFT has written" in capsys.readouterr().err
  words = ("--prompt-tokens", 3, "--new-tokens", 4, "--rounds", 1, "--requests", 2)
  json_path = tmp_path / "times.json"
  found = program_output(
    "husk-text", "bench", path, *words, "--adapter", folder, "--json", json_path
  )
  assert found.returncode == 0, found.stderr.decode()
  assert json.loads(json_path.read_text())["adapters"] == [str(folder)]
  many = [word for _ in range(COUNT + 1) for word in ("--adapter", folder)]
  found = program_output("husk-text", "bench", path, *words, *many)
  assert found.returncode == 3 and b"there is no adapter 4" in found.stderr
  found = program_output("husk-text", "bench", path, *words, "--adapter", tmp_path)
  assert found.returncode == 2 and b"adapter_config.json: cannot be read" in found.stderr
  given = program_output("husk_text_cpp", path, "", folder)
  assert given.returncode == 0, given.stderr.decode()
  result = json.loads(given.stdout)
  assert result["count"] == COUNT
  assert result["tokens"] == right_tokens(model, tensors, 2, [5, 6, 7], 9)
  assert "adapter 2 is not set" in result["refused"]


def small_model(monkeypatch):
  for name, module in language_model.stand_in().items():
    monkeypatch.setitem(sys.modules, name, module)
  return language_model.Decoder().eval()


def test_exports_that_are_refused(monkeypatch, tmp_path):
  model = small_model(monkeypatch)
  path = tmp_path / "model.husk"
  for words, message in (
    ({"adapters": -1}, "adapters=-1: give a number from 0 to 1024"),
    ({"adapters": 1, "rank": 0}, "rank=0: give a number from 1 to 1024"),
    ({"adapter_targets": ["q_proj"]}, "adapter_targets: give adapters=N too"),
    (
      {"adapters": 1, "adapter_targets": "z_proj"},
      "no linear layer is named 'z_proj': this .* has",
    ),
  ):
    with pytest.raises(ValueError, match=message):
      husk.language.export(model, path, max_tokens=MOST, **words)
  assert not any("lora" in name for name, _ in model.named_buffers())


@pytest.mark.parametrize(
  ("kind", "message"),
  [
    ("weight", "computes extra in another way than as a layer"),
    ("rows", "has layers that do not take a row for each slot"),
    ("order", "gives logits that differ by .* with adapters"),
    ("tuple", "the result of the layer extra is a tuple and no tensor"),
  ],
)
def test_layers_that_an_adapter_cannot_change_are_refused(monkeypatch, kind, message):
  """A layer whose weight is read alone, one with other rows than slots, one whose rows are in
  another order, and one that gives a tuple."""
  model = small_model(monkeypatch)
  width = language_model.HEADS * language_model.HEAD
  model.extra = torch.nn.Linear(width, width, bias=False)
  if kind == "tuple":
    monkeypatch.setattr(model.extra, "forward", lambda x: (x, x))
  original = type(model).forward

  @functools.wraps(original)  # whose parameters the export looks at
  def forward(self, *args, **words):
    result = original(self, *args, **words)
    if kind == "weight":
      result.logits = result.logits + self.extra.weight.sum()
    elif kind == "rows":
      result.logits = result.logits + self.extra(torch.ones(7, width)).sum()
    elif kind == "tuple":
      self.extra(torch.ones(7, width))
    else:
      added = self.extra(torch.ones(*result.logits.shape[:2], width)).flip(0)
      result.logits = result.logits + added.sum(-1, keepdim=True)
    return result

  monkeypatch.setattr(type(model), "forward", forward)
  wanted = exported_adapters.chosen(1, 2, ["extra"])
  with (
    pytest.raises(Unsupported, match=message),
    exporting.decoder_of(model, SLOTS, MOST, None, wanted) as module,
  ):
    exported_adapters.check(module, torch.arange(8), verifies=False)
  assert not any("lora" in name for name, _ in model.named_buffers())


def test_quantize_leaves_the_matrices_as_they_are(monkeypatch, tmp_path):
  """They are zeros in an export, of which no codes can be made that others replace."""
  model, seen = small_model(monkeypatch), []
  monkeypatch.setattr(
    exporting, "export_functions", lambda functions, path, options: seen.append(options)
  )
  for words in ({}, {"adapters": 1, "rank": 2}):
    husk.language.export(model, tmp_path / "x", max_tokens=MOST, quantize="int8", **words)
  without, adapted = (options.quantize for options in seen)
  assert without == {"*": "int8"}
  for name in ("lora_A", "lora_B"):
    assert schemes.scheme_of(adapted, f"model.queries.0.{name}") is None
  assert schemes.scheme_of(adapted, "model.queries.0.weight") is not None


def test_the_cost_is_stated(monkeypatch, caplog):
  model = small_model(monkeypatch)
  monkeypatch.setattr(type(model), "get_output_embeddings", lambda self: self.head, raising=False)
  wanted = exported_adapters.chosen(2, 3, None)
  with (
    exporting.decoder_of(model, SLOTS, MOST, None, wanted) as module,
    caplog.at_level("INFO", logger="husk"),
  ):
    assert exported_adapters.describe(module) == {"adapters": 2, "adapter_rank": 3}
  layers = [*model.queries, *model.both]  # and not the head
  size = 3 * 3 * 4 * sum(one.in_features + one.out_features for one in layers)
  assert f"2 of rank 3 for {len(layers)} layers take 0.0 MB of memory ({size} bytes)" in caplog.text


def test_the_file_without_adapters_has_no_room(artifact, loaded, tmp_path):
  """`husk-dump` shows the constants; a file without them names the option."""
  text = subprocess.run(
    [tools.find("husk-dump"), artifact[1]], capture_output=True, text=True, check=True
  ).stdout
  constants = [line for line in text.splitlines() if line.startswith("constant") and "lora" in line]
  layers = layers_of(artifact[0])
  assert len(constants) == 2 * len(layers)
  for name, part in itertools.product(layers, "AB"):
    assert any(f"model.{name}.lora_{part} f32 [{COUNT + 1}, " in line for line in constants)
  loaded._adapters.count = 0  # as the metadata of other files say
  for call in (
    lambda: loaded.add_adapter("a", tmp_path),
    lambda: loaded.submit(PROMPT, adapter="a"),
  ):
    with pytest.raises(ValueError, match=r"has no room for adapters: export it with adapters=N"):
      call()
