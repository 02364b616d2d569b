"""A small model that takes images, whose tokens see one another in an image: Gemma 3 of
transformers if that is installed, else a model of the same form with stand-ins of
language_model.py."""

import importlib.util
import sys
import types

import language_model
import torch
from torch.nn import functional

TOKEN, SIDE, PATCH, ROWS, WINDOW = 7, 16, 8, 4, 6
SHAPE = (3, SIDE, SIDE)


def groups_of(token_type_ids):
  """For each token the number of its image, or -1."""
  is_image = token_type_ids == 1
  begins = is_image & ~functional.pad(is_image, (1, 0))[:, :-1]
  return torch.where(is_image, begins.cumsum(1) - 1, -1)


class Decoder(language_model.Decoder):
  """Embeddings, of which those of images come from their pixels, layers of attention, and a head.
  The first layer sees a window."""

  def __init__(self):
    super().__init__()
    self.config.model_type = "gemma3"
    self.config.image_token_id = TOKEN
    self.config.sliding_window = WINDOW
    self.config.vision_config = types.SimpleNamespace(image_size=SIDE, num_channels=3)
    self.patches = torch.nn.Conv2d(3, language_model.HEADS * language_model.HEAD, PATCH, PATCH)

  def set_attn_implementation(self, name):
    self.config._attn_implementation = name[""] if isinstance(name, dict) else name

  def get_input_embeddings(self):
    return self.embedding

  @property
  def base_model(self):
    return types.SimpleNamespace(
      get_image_features=lambda pixels, return_dict: types.SimpleNamespace(
        pooler_output=self.features(pixels)
      )
    )

  def features(self, pixels):
    return self.patches(pixels).flatten(2).transpose(1, 2)

  def forward(
    self,
    input_ids=None,
    position_ids=None,
    use_cache=None,
    cache=None,
    logits_to_keep=0,
    inputs_embeds=None,
    attention_mask=None,
    pixel_values=None,
    token_type_ids=None,
  ):
    import transformers

    x = self.embedding(input_ids) if inputs_embeds is None else inputs_embeds
    if pixel_values is not None:
      features = self.features(pixel_values).flatten(0, 1)
      x = x.masked_scatter((input_ids == TOKEN).unsqueeze(-1), features)
    rows, count = x.shape[:2]
    if position_ids is None:
      position_ids = torch.arange(count)[None]
    name = self.config._attn_implementation
    keys = torch.arange(cache.layers[0].get_mask_sizes(count)[0] if cache is not None else count)
    if attention_mask is None:
      full = keys <= position_ids[:, None, :, None]
      if token_type_ids is not None:
        groups = groups_of(token_type_ids)
        full = full | (
          (groups[:, None, :, None] == groups[:, None, None]) & (groups >= 0)[:, None, :, None]
        )
      near = full & (keys > position_ids[:, None, :, None] - WINDOW)
      attention_mask = {"full_attention": full, "sliding_attention": near}
    kinds = ("sliding_attention", "full_attention")
    for layer in range(language_model.LAYERS):
      shape = (rows, count, language_model.HEADS, language_model.HEAD)
      query = self.queries[layer](x).view(shape).transpose(1, 2)
      shared = self.both[layer](x).view(rows, count, 2 * language_model.SHARED, language_model.HEAD)
      key, value = shared.transpose(1, 2).chunk(2, dim=1)
      query = language_model.turned(query, position_ids)
      key = language_model.turned(key, position_ids)
      mask = attention_mask[kinds[layer % 2]]
      if cache is None:
        mixed = functional.scaled_dot_product_attention(
          query, key, value, attn_mask=mask, enable_gqa=True
        ).transpose(1, 2)
      else:
        key, value = cache.update(key, value, layer)
        function = transformers.AttentionInterface.functions[name]
        mixed, _ = function(self, query, key, value, mask, scaling=language_model.HEAD**-0.5)
      x = x + mixed.reshape(rows, count, -1)
    return types.SimpleNamespace(logits=self.head(x[:, -logits_to_keep:]))


def make(monkeypatch):
  """The model, in eval mode, as language_model.make."""
  torch.manual_seed(0)
  if importlib.util.find_spec("transformers") is None:
    for name, module in language_model.stand_in().items():
      monkeypatch.setitem(sys.modules, name, module)
    return Decoder().eval()
  import transformers

  config = transformers.Gemma3Config(
    text_config={
      "vocab_size": language_model.VOCABULARY,
      "hidden_size": 32,
      "intermediate_size": 48,
      "num_hidden_layers": 2,
      "num_attention_heads": 4,
      "num_key_value_heads": 2,
      "head_dim": 8,
      "query_pre_attn_scalar": 8,
      "sliding_window": WINDOW,
      "layer_types": ["sliding_attention", "full_attention"],
      "max_position_embeddings": language_model.LIMIT,
    },
    vision_config={
      "hidden_size": 16,
      "intermediate_size": 32,
      "num_hidden_layers": 1,
      "num_attention_heads": 2,
      "image_size": SIDE,
      "patch_size": PATCH,
    },
    image_token_id=TOKEN,
    mm_tokens_per_image=ROWS,
  )
  model = transformers.Gemma3ForConditionalGeneration(config).eval()
  with torch.no_grad():  # it begins with zeros, which hide images
    model.model.multi_modal_projector.mm_input_projection_weight.normal_(std=0.5)
  return model
