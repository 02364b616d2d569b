"""The export of language models: what a file has, and what is refused."""

import json
import subprocess
import sys
import types

import husk
import language_model
import numpy as np
import pytest
import torch
from husk import __main__ as command
from husk import tools
from husk.language import attachments, exporting
from text_file import MOST, SLOTS, exported, host_target, tokenizer_json, without_sampling


@pytest.fixture(scope="module")
def artifact(tmp_path_factory):
  yield from exported(tmp_path_factory)


@pytest.fixture
def loaded(artifact):
  return husk.text.load(artifact.path, threads=1)


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


class AttendsToBiased(AttendsByItself):
  """Computes attention by itself, of the cache and a mask of transformers. Scores have a bias that
  grows with the position of a key (ALiBi), which comes from a mask of ones (BLOOM, Falcon)."""

  def forward(self, input_ids, attention_mask=None, cache=None, logits_to_keep=0, **others):
    past = 0 if cache is None else cache.layers[0].get_seq_length()
    if attention_mask is None:
      attention_mask = torch.ones(input_ids.shape[0], input_ids.shape[1] + past)
    self.bias = 0.3 * attention_mask.cumsum(-1)[:, None, None]
    return super().forward(input_ids, cache=cache, logits_to_keep=logits_to_keep)

  def hidden(self, input_ids, position_ids=None, use_cache=None, cache=None):
    import transformers

    x, (rows, count) = self.embedding(input_ids), input_ids.shape
    layer = None if cache is None else cache.layers[0]
    mask = transformers.masking_utils.ALL_MASK_ATTENTION_FUNCTIONS["eager"](
      batch_size=rows,
      q_length=count,
      kv_length=count if layer is None else layer.get_mask_sizes(count)[0],
      q_offset=0 if layer is None else layer.get_seq_length(),
      mask_function=lambda row, head, query, key: key <= query,
      dtype=x.dtype,
    )
    for number in range(len(self.queries)):
      sizes = (rows, count, -1, language_model.HEAD)
      query = self.queries[number](x).view(sizes).transpose(1, 2)
      keys, values = self.both[number](x).view(sizes).transpose(1, 2).chunk(2, dim=1)
      if cache is not None:
        keys, values = cache.update(keys, values, number)
      each = language_model.HEADS // language_model.SHARED
      keys, values = (one.repeat_interleave(each, dim=1) for one in (keys, values))
      scores = self.scores(query @ keys.mT + self.bias)
      weights = torch.softmax(scores + mask, dim=-1)
      x = x + (weights @ values).transpose(1, 2).reshape(rows, count, -1)
    return x

  def scores(self, scores):
    return scores


class TakesTheLastKey(AttendsToBiased):
  """Takes the last key for that of the token (GPT-Neo)."""

  def scores(self, scores):
    keys, queries = scores.shape[-1], scores.shape[-2]
    window = torch.ones(keys, keys, dtype=torch.bool).triu(-2)[keys - queries :]
    return scores.masked_fill(~window, torch.finfo(scores.dtype).min)


def test_a_model_that_computes_attention_of_the_cache_by_itself(monkeypatch, tmp_path):
  modules = language_model.stand_in()
  for name, module in modules.items():
    monkeypatch.setitem(sys.modules, name, module)
  table = modules["transformers.masking_utils"].ALL_MASK_ATTENTION_FUNCTIONS
  before, path = dict(table), tmp_path / "model.husk"
  torch.manual_seed(0)
  model = AttendsToBiased(layers=1).eval()
  without_sampling(monkeypatch)
  given = {"slots": SLOTS, "features": "single", "targets": (host_target(),)}
  husk.language.export(model, path, max_tokens=MOST, **given)
  assert table == before
  loaded = husk.text.load(path, threads=1)
  prompts = [[5], [9, 4, 200], [7 * at % 263 for at in range(20)]]
  requests = [loaded.submit(prompt, max_new_tokens=12) for prompt in prompts]
  loaded.run()
  right = [language_model.continued(model, prompt, 12) for prompt in prompts]
  assert [request.tokens for request in requests] == right
  reason = "'small' computes attention by itself: .* a wrapper of your own"
  with pytest.raises(husk.Unsupported, match=reason):
    husk.language.export(TakesTheLastKey().eval(), path, max_tokens=MOST)
  assert table == before


class DecidesByNumbers(language_model.Decoder):
  def hidden(self, input_ids, position_ids=None, use_cache=None, cache=None):
    x = super().hidden(input_ids, position_ids, use_cache, cache)
    for word in input_ids.flatten().unique():
      x = x + 0 * word
    return x


def test_an_architecture_that_decides_by_its_data_is_refused(monkeypatch, tmp_path):
  for name, module in language_model.stand_in().items():
    monkeypatch.setitem(sys.modules, name, module)
  reason = r"'small' decides by numbers of its tensors \(test_text_export.py:\d+ for word in input"
  with pytest.raises(husk.Unsupported, match=reason):
    husk.language.export(DecidesByNumbers().eval(), tmp_path / "model.husk", max_tokens=MOST)


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


def test_an_architecture_that_transformers_does_not_know(monkeypatch, tmp_path):
  module = language_model.stand_in()["transformers"]
  module.__version__ = "5.0"
  monkeypatch.setitem(sys.modules, "transformers", module)

  def load(*_, **__):
    raise ValueError("The checkpoint has model type `new`, which Transformers does not recognize.")

  monkeypatch.setattr(exporting, "load_checkpoint", load)
  with pytest.raises(husk.Unsupported) as found:
    husk.language.export(tmp_path, tmp_path / "model.husk")
  assert "transformers 5.0 does not know the architecture: install a version that does" in str(
    found.value
  )
  assert "model type `new`" in str(found.value)


def test_other_tokenizers_become_that_of_the_file(monkeypatch, tmp_path):
  """What transformers makes of a model of SentencePiece; what it makes nothing of is named."""
  module = language_model.stand_in()["transformers"]
  monkeypatch.setitem(sys.modules, "transformers", module)
  (tmp_path / "tokenizer.model").write_bytes(b"pieces")
  with pytest.raises(husk.Unsupported, match="has its tokenizer in tokenizer.model, .* protobuf"):
    attachments._of_folder(tmp_path)
  taken = []

  class AutoTokenizer:
    @staticmethod
    def from_pretrained(folder):
      taken.append(folder)
      backend = types.SimpleNamespace(to_str=tokenizer_json)
      return types.SimpleNamespace(backend_tokenizer=backend)

  module.AutoTokenizer = AutoTokenizer
  found = attachments._of_folder(tmp_path)
  assert json.loads(found["tokenizer"]) == json.loads(tokenizer_json()) and taken == [tmp_path]
  (tmp_path / "tokenizer.json").write_text("{}")
  assert attachments._of_folder(tmp_path)["tokenizer"] == "{}" and len(taken) == 1


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
  assert artifact.traces == 10
