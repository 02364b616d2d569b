"""A small language model with transformers' hooks: Llama of transformers if that is installed, else
a decoder of the same form, with a stand-in for the parts of transformers that hooks are."""

import abc
import importlib.util
import sys
import types

import torch
from torch.nn import functional

VOCABULARY, LIMIT, LAYERS, HEADS, SHARED, HEAD = 263, 512, 2, 4, 2, 8


class Config(types.SimpleNamespace):
  def get_text_config(self, decoder=False):
    return self


def stand_in():
  """The names of transformers that husk.language uses."""
  module, caches = types.ModuleType("transformers"), types.ModuleType("transformers.cache_utils")
  masks = types.ModuleType("transformers.masking_utils")

  class Cache:
    def __init__(self, layers):
      self.layers = layers

    def update(self, keys, values, layer, **others):
      return self.layers[layer].update(keys, values, **others)

  class Table(dict):
    @classmethod
    def register(cls, name, function):
      cls.functions[name] = function

  caches.Cache, caches.CacheLayerMixin = Cache, type("CacheLayerMixin", (abc.ABC,), {})
  module.AttentionInterface = type("AttentionInterface", (Table,), {"functions": {}})
  module.AttentionMaskInterface = type("AttentionMaskInterface", (Table,), {"functions": {}})
  masks.ALL_MASK_ATTENTION_FUNCTIONS = {"eager": eager_mask, "sdpa": None}
  module.PreTrainedModel, module.cache_utils = torch.nn.Module, caches
  module.masking_utils = masks
  return {
    "transformers": module,
    "transformers.cache_utils": caches,
    "transformers.masking_utils": masks,
  }


def eager_mask(q_length, kv_length, q_offset, mask_function, dtype, **others):
  """The mask of transformers, for rows that are all at one place."""
  queries = torch.arange(q_length)[:, None] + q_offset
  seen = mask_function(0, 0, queries, torch.arange(kv_length))
  return torch.where(seen, 0.0, torch.finfo(dtype).min)


def turned(x, positions):
  """Rotary embeddings of rows x heads x tokens x numbers."""
  frequencies = 1e4 ** -(torch.arange(0, HEAD, 2) / HEAD)
  angles = positions[:, None, :, None] * frequencies
  angles = torch.cat([angles, angles], dim=-1)
  a, b = x.chunk(2, dim=-1)
  return x * angles.cos() + torch.cat([-b, a], dim=-1) * angles.sin()


class Decoder(torch.nn.Module):
  """Embeddings, layers of attention alone, and a head."""

  def __init__(self, layers=LAYERS):
    super().__init__()
    self.config = Config(
      model_type="small",
      num_hidden_layers=layers,
      vocab_size=VOCABULARY,
      max_position_embeddings=LIMIT,
      eos_token_id=2,
      _attn_implementation="eager",
    )
    width = HEADS * HEAD
    self.embedding = torch.nn.Embedding(VOCABULARY, width)
    self.queries = torch.nn.ModuleList(torch.nn.Linear(width, width) for _ in range(layers))
    self.both = torch.nn.ModuleList(
      torch.nn.Linear(width, 2 * SHARED * HEAD) for _ in range(layers)
    )
    self.head = torch.nn.Linear(width, VOCABULARY)

  def set_attn_implementation(self, name):
    self.config._attn_implementation = name

  @property
  def base_model(self):
    """What is below the head, as in transformers."""
    return lambda **words: types.SimpleNamespace(last_hidden_state=self.hidden(**words))

  def forward(self, input_ids, position_ids=None, use_cache=None, cache=None, logits_to_keep=0):
    x = self.hidden(input_ids, position_ids, use_cache, cache)
    return types.SimpleNamespace(logits=self.head(x[:, -logits_to_keep:]))

  def hidden(self, input_ids, position_ids=None, use_cache=None, cache=None):
    import transformers

    x, (rows, count) = self.embedding(input_ids), input_ids.shape
    if position_ids is None:
      position_ids = torch.arange(count)[None]
    name, mask = self.config._attn_implementation, None
    if cache is not None:
      mask = transformers.AttentionMaskInterface.functions[name](
        batch_size=rows,
        q_length=count,
        kv_length=cache.layers[0].get_mask_sizes(count)[0],
        q_offset=cache.layers[0].get_seq_length(),
        mask_function=lambda row, head, query, key: key <= query,
      )
    for layer in range(len(self.queries)):
      query = self.queries[layer](x).view(rows, count, HEADS, HEAD).transpose(1, 2)
      keys, values = (
        self.both[layer](x).view(rows, count, 2 * SHARED, HEAD).transpose(1, 2).chunk(2, dim=1)
      )
      query, keys = turned(query, position_ids), turned(keys, position_ids)
      if cache is None:
        mixed = functional.scaled_dot_product_attention(
          query, keys, values, is_causal=True, enable_gqa=True
        ).transpose(1, 2)
      else:
        keys, values = cache.update(keys, values, layer)
        function = transformers.AttentionInterface.functions[name]
        mixed, _ = function(self, query, keys, values, mask, scaling=HEAD**-0.5)
      x = x + mixed.reshape(rows, count, -1)
    return x


def has_transformers():
  found = sys.modules.get("transformers")  # perhaps a stand-in
  return importlib.util.find_spec("transformers") is not None if found is None else found.__spec__


def make(monkeypatch, layers=LAYERS):
  """The model, in eval mode. A stand-in stays in sys.modules as long as the test."""
  torch.manual_seed(0)
  if not has_transformers():
    for name, module in stand_in().items():
      monkeypatch.setitem(sys.modules, name, module)
    return Decoder(layers).eval()
  import transformers

  config = transformers.LlamaConfig(
    vocab_size=VOCABULARY,
    hidden_size=HEADS * HEAD,
    intermediate_size=48,
    num_hidden_layers=layers,
    num_attention_heads=HEADS,
    num_key_value_heads=SHARED,
    max_position_embeddings=LIMIT,
    eos_token_id=2,
    # With the default of 0.02 all tokens are about equally likely: the logits have a standard
    # deviation of 0.1, those of the stand-in 0.6, and those of this model 0.5.
    initializer_range=0.09,
  )
  return transformers.LlamaForCausalLM(config).eval()


def continued(model, prompt, count):
  """The tokens that the model continues a prompt by, without a cache: `count`, or fewer if it ends
  the text."""
  tokens = list(prompt)
  for _ in range(count):
    with torch.no_grad():
      tokens.append(int(model(torch.tensor([tokens]), use_cache=False).logits[0, -1].argmax()))
    if tokens[-1] == 2:
      break
  return tokens[len(prompt) :]
