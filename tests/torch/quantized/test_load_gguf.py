"""GGUF files: their blocks as codes, names and rows of models, and files that are damaged."""

import random
import re
import sys
import types

import export_and_compare
import gguf_writer
import hir_interpreter
import numpy as np
import pytest
import torch
from husk import quantized
from husk.quantized.checkpoints import gguf_blocks

HEADS, KEYS, SIZE, INNER, VOCABULARY = 4, 2, 64, 96, 40


class Attention(torch.nn.Module):
  def __init__(self):
    super().__init__()
    self.q_proj = torch.nn.Linear(SIZE, SIZE, bias=False)
    self.k_proj = torch.nn.Linear(SIZE, SIZE * KEYS // HEADS, bias=False)


class Layer(torch.nn.Module):
  def __init__(self):
    super().__init__()
    self.input_layernorm = torch.nn.LayerNorm(SIZE, bias=False)
    self.self_attn = Attention()


class Model(torch.nn.Module):
  """Some parts of a model with transformers' names; the head is the table of the embedding."""

  def __init__(self):
    super().__init__()
    self.model = torch.nn.Module()
    self.model.embed_tokens = torch.nn.Embedding(VOCABULARY, SIZE)
    self.model.layers = torch.nn.ModuleList([Layer()])
    self.lm_head = torch.nn.Linear(SIZE, VOCABULARY, bias=False)
    self.lm_head.weight = self.model.embed_tokens.weight

  def forward(self, tokens):
    layer = self.model.layers[0]
    x = layer.input_layernorm(self.model.embed_tokens(tokens))
    keys = layer.self_attn.k_proj(x)
    return self.lm_head(layer.self_attn.q_proj(x)), keys


METADATA = {
  "general.architecture": "llama",
  "llama.attention.head_count": HEADS,
  "llama.attention.head_count_kv": KEYS,
  "tokens": ["a", "b"],
  "scores": [0.5, 1.5],
}


def tensors():
  """Those of the model, and their numbers."""
  entries, numbers = {}, {}
  for name, kind, n in (
    ("token_embd", "Q8_0", VOCABULARY),
    ("blk.0.attn_q", "Q4_1", SIZE),
    ("blk.0.attn_k", "Q4_0", SIZE * KEYS // HEADS),
  ):
    entries[f"{name}.weight"], numbers[name] = gguf_writer.random_blocks(kind, n, SIZE, seed=n)
  numbers["norm"] = np.linspace(0.5, 1.5, SIZE)
  entries["blk.0.attn_norm.weight"] = gguf_writer.plain(numbers["norm"])
  return entries, numbers


def written(path, content):
  path.write_bytes(content)
  return path


def in_order_of_llama(matrix, heads):
  """The rows of a head, of which the file has the two that are turned together side by side."""
  rows = matrix.reshape(heads, -1, matrix.shape[1])
  return np.concatenate([np.concatenate([one[0::2], one[1::2]]) for one in rows])


@pytest.mark.parametrize("name", gguf_writer.BLOCKS)
def test_blocks(tmp_path, name):
  """Exact but for types with an offset, whose error is a rounding of that in f32."""
  n, k = 3, 512
  entry, right = gguf_writer.random_blocks(name, n, k)
  path = written(tmp_path / "x.gguf", gguf_writer.file({}, {"weight": entry}))
  model = quantized.load(path, torch.nn.Linear(k, n, bias=False), names={})
  assert isinstance(model, quantized.QuantizedLinear)
  weight = model.weight
  got = weight().double().numpy()
  if weight.zeros is None:
    np.testing.assert_array_equal(got, right.astype(np.float32))
  else:
    scales = weight.scales.double().numpy().repeat(weight.group, 1)
    offsets = np.abs(weight.zeros.double().numpy()).repeat(weight.group, 1) * np.abs(scales)
    assert (np.abs(got - right) <= 2.0**-22 * (offsets + 32 * np.abs(scales))).all()
  x = torch.randn(2, k)
  with torch.no_grad():
    torch.testing.assert_close(
      model(x).double(), x.double() @ torch.from_numpy(right).T, rtol=1e-5, atol=2e-4
    )


@pytest.mark.parametrize("version", (2, 3))
def test_a_model(tmp_path, version):
  entries, numbers = tensors()
  content = gguf_writer.file(METADATA, entries, version, alignment=32)
  path = written(tmp_path / "model.gguf", content)
  file = quantized.GgufFile(path)
  assert file.metadata["tokens"] == ["a", "b"] and file.metadata["scores"] == [0.5, 1.5]
  model = Model().eval()
  assert quantized.load(path, model) is model
  attention = model.model.layers[0].self_attn
  for layer, name, heads in ((attention.q_proj, "q", HEADS), (attention.k_proj, "k", KEYS)):
    right = in_order_of_llama(numbers[f"blk.0.attn_{name}"], heads)
    np.testing.assert_allclose(layer.weight().numpy(), right, rtol=1e-5, atol=1e-5)
  # Both have the codes of the table.
  assert model.lm_head.weight is model.model.embed_tokens.weight
  tokens = torch.arange(6).reshape(2, 3)
  np.testing.assert_array_equal(
    model.model.embed_tokens(tokens).numpy(), numbers["token_embd"].astype(np.float32)[tokens]
  )
  if version == 3:
    text = export_and_compare.run(tmp_path, model, (tokens,))
    assert text.count("husk::linear_quantized") == 3
    assert len(re.findall(r"^constant .*\.codes", text, re.M)) == 3
    program = hir_interpreter.Program(tmp_path / "model.hir")
    export_and_compare.run_artifact(tmp_path, model, program, (tokens,))


def test_floats_of_16_bits_and_names(tmp_path):
  matrix = np.linspace(-2, 2, 64).reshape(8, 8)
  bias = np.arange(8.0)
  content = gguf_writer.file(
    {"general.alignment": 64},
    {"a": gguf_writer.plain(matrix, 1), "b": gguf_writer.plain(bias), "c": gguf_writer.plain(bias)},
    alignment=64,
  )
  path = written(tmp_path / "x.gguf", content)
  names = {"a": "weight", "b": "bias", "c": None}
  model = quantized.load(path, torch.nn.Linear(8, 8), names=names.get)
  np.testing.assert_array_equal(
    model.weight.detach().numpy(), matrix.astype(np.float16).astype(np.float32)
  )
  np.testing.assert_array_equal(model.bias.detach().numpy(), bias)


def test_norms_that_have_1_added(tmp_path):
  entries, numbers = tensors()
  metadata = {key.replace("llama", "gemma"): value for key, value in METADATA.items()}
  metadata["general.architecture"] = "gemma"
  model = Model()
  quantized.load(written(tmp_path / "x.gguf", gguf_writer.file(metadata, entries)), model)
  layer = model.model.layers[0]
  right = numbers["norm"].astype(np.float32) - 1
  np.testing.assert_array_equal(layer.input_layernorm.weight.detach().numpy(), right)
  # The rows of its queries are in the order of the model.
  np.testing.assert_allclose(
    layer.self_attn.q_proj.weight().numpy(), numbers["blk.0.attn_q"], rtol=1e-5, atol=1e-5
  )


DESCRIBED = METADATA | {
  "llama.embedding_length": SIZE,
  "llama.feed_forward_length": INNER,
  "llama.block_count": 1,
  "llama.context_length": 128,
  "llama.attention.layer_norm_rms_epsilon": 0.5,
  "llama.rope.freq_base": 1000.0,
  "llama.rope.dimension_count": SIZE // HEADS,
  "tokenizer.ggml.eos_token_id": 2,
}


def test_a_model_of_the_metadata(tmp_path, monkeypatch):
  """transformers makes it; here a module of the same name stands for that."""
  described = {}

  def from_config(config):
    described.update(config, dtype=torch.get_default_dtype())
    model = Model()
    model.register_buffer("inv_freq", torch.ones(SIZE // HEADS // 2), persistent=False)
    return model

  entries, numbers = tensors()
  entries["rope_freqs.weight"] = gguf_writer.plain(np.full(SIZE // HEADS // 2, 4.0))
  path = written(tmp_path / "x.gguf", gguf_writer.file(DESCRIBED, entries))
  package = types.SimpleNamespace(
    AutoConfig=types.SimpleNamespace(for_model=lambda kind, **fields: {"kind": kind, **fields}),
    AutoModelForCausalLM=types.SimpleNamespace(from_config=from_config),
  )
  monkeypatch.setitem(sys.modules, "transformers", package)
  model = quantized.load(path, dtype=torch.bfloat16)
  assert described == {
    "kind": "llama",
    "vocab_size": VOCABULARY,
    "hidden_size": SIZE,
    "intermediate_size": INNER,
    "num_hidden_layers": 1,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KEYS,
    "head_dim": SIZE // HEADS,
    "max_position_embeddings": 128,
    "rms_norm_eps": 0.5,
    "rope_theta": 1000.0,
    "tie_word_embeddings": True,
    "attention_bias": False,
    "eos_token_id": 2,
    "dtype": torch.bfloat16,
  }
  assert not model.training and torch.get_default_dtype() == torch.float32
  assert torch.equal(model.inv_freq, torch.full_like(model.inv_freq, 0.25))
  assert isinstance(model.lm_head, quantized.QuantizedLinear)

  def says(reason, **changes):
    content = gguf_writer.file({**DESCRIBED, **changes}, entries)
    with pytest.raises(quantized.CheckpointError, match=reason):
      quantized.load(written(path, content))

  says("expert_count is 8, which needs a configuration", **{"llama.expert_count": 8})
  says("rope.scaling.type is 'yarn'", **{"llama.rope.scaling.type": "yarn"})
  says("rope.dimension_count is not the size of a head", **{"llama.rope.dimension_count": 4})
  says("'llama.block_count' is 0, not a number over 0", **{"llama.block_count": 0})
  says("'phi3' does not say all .* give the model", **{"general.architecture": "phi3"})
  monkeypatch.setitem(sys.modules, "transformers", None)
  says("needs transformers .*: install it, or give the model")


def refused(path, model, reason, **options):
  """The model is as it was, too."""
  before = {name: (id(one), one.clone()) for name, one in model.state_dict(keep_vars=True).items()}
  with pytest.raises(quantized.CheckpointError, match=reason):
    quantized.load(path, model, **options)
  after = model.state_dict(keep_vars=True)
  assert {name: id(one) for name, one in after.items()} == {
    name: number for name, (number, _) in before.items()
  }
  assert all(torch.equal(after[name], one) for name, (_, one) in before.items())


def test_refusals(tmp_path):
  entries, _ = tensors()
  path, model = tmp_path / "x.gguf", Model()

  def says(reason, content, **options):
    refused(written(path, content), model, reason, **options)

  whole = gguf_writer.file(METADATA, entries)
  says("is no GGUF file: it begins with b'GGML'", b"GGML" + whole[4:])
  says("is no GGUF file", b"")
  says("its version is 1; little-endian files of versions 2 and 3", whole[:4] + b"\1" + whole[5:])
  says("it is big-endian", whole[:4] + b"\0\0\0\3" + whole[8:])
  says("cut short", whole[:-1])
  says("it says that 72057594037927936 tensors", whole[:8] + b"\0" * 7 + b"\1" + whole[16:])
  says("entries of metadata follow, but", whole[:16] + b"\xff" * 8 + whole[24:])
  says(
    "the names of the architecture 'mamba' are not known.*give names=",
    gguf_writer.file({"general.architecture": "mamba"}, entries),
  )
  says("no text general.architecture", gguf_writer.file({}, entries))
  more = {**entries, "blk.0.ffn_up.weight": entries["blk.0.attn_q.weight"]}
  says("no module of the model takes blk.0.ffn_up.weight", gguf_writer.file(METADATA, more))
  less = {name: one for name, one in entries.items() if "attn_k" not in name}
  says(
    r"no tensor fills model.layers.0.self_attn.k_proj.weight of the model",
    gguf_writer.file(METADATA, less),
  )
  odd = {**entries, "blk.0.ssm.weight": entries["blk.0.attn_q.weight"]}
  says("blk.0.ssm.weight are no names of the architecture", gguf_writer.file(METADATA, odd))
  wide = {**entries, "blk.0.attn_q.weight": gguf_writer.random_blocks("Q4_0", SIZE, 32)[0]}
  says(r"has the shape \[64, 32\], but .* has \[64, 64\]", gguf_writer.file(METADATA, wide))
  kind = {**entries, "blk.0.attn_q.weight": (16, (SIZE, 256), b"\0" * 66 * SIZE)}
  says("has the type IQ2_XXS, which does not load", gguf_writer.file(METADATA, kind))
  uneven = {**entries, "blk.0.attn_q.weight": (2, (SIZE, 48), b"\0" * 27 * SIZE)}
  says("blocks of 32 .* do not divide", gguf_writer.file(METADATA, uneven))
  nan = bytearray(entries["blk.0.attn_k.weight"][2])
  nan[18:20] = b"\xff\x7e"
  bad = {**entries, "blk.0.attn_k.weight": (2, entries["blk.0.attn_k.weight"][1], bytes(nan))}
  says("'blk.0.attn_k.weight' of .* NaN or infinite", gguf_writer.file(METADATA, bad))
  says("is one of 3 parts", gguf_writer.file({**METADATA, "split.count": 3}, entries))
  says("no power of two", gguf_writer.file({**METADATA, "general.alignment": 24}, entries))
  says("no quantization=", whole, quantization={"quant_method": "gptq"})
  with pytest.raises(quantized.CheckpointError, match="x.gguf is not there"):
    path.unlink()
    quantized.load(path, model)
  rows = {**entries, "blk.0.attn_q.weight": gguf_writer.random_blocks("Q4_0", 36, SIZE)[0]}
  says("36 rows, which are no pairs of 4 heads", gguf_writer.file(METADATA, rows))


def test_damaged_files(tmp_path):
  """A file that is cut or changed anywhere is loaded or refused; nothing else happens."""
  entries, _ = tensors()
  content = gguf_writer.file(METADATA, entries)
  begin = content.index(b"general") - 8
  head = content.index(entries["token_embd.weight"][2])
  generator, model = random.Random(7), Model()
  counts = {"loaded": 0, "refused": 0}
  for number in range(160):
    changed = bytearray(content)
    if number % 4 == 0:
      del changed[generator.randrange(head if number % 8 else len(content)) :]
    for _ in range(generator.choice((1, 1, 2, 8))):
      if changed:
        at = generator.randrange(min(len(changed), head))
        changed[at] = generator.choice((0, 1, 255, changed[at] ^ 1 << generator.randrange(8)))
    try:
      file = quantized.GgufFile(written(tmp_path / f"{number}.gguf", bytes(changed)))
      for name in file.tensors:
        file.tensors[name].type.decode(file.blocks(name))
      counts["loaded"] += 1
      quantized.load(file.path, Model() if number % 50 == 0 else model)
    except quantized.CheckpointError:
      counts["refused"] += 1
    if not isinstance(model.lm_head, torch.nn.Linear):
      model = Model()
  assert begin == 24 and min(counts.values()) > 20, counts


def test_rows_agree_with_the_writer():
  rows = {row.name: (number, row.elements, row.bytes) for number, row in gguf_blocks.TYPES.items()}
  for name, (number, elements, size, _, _) in gguf_writer.BLOCKS.items():
    assert rows.pop(name) == (number, elements, size)
  assert set(rows) == {"F32", "F16", "BF16"}
