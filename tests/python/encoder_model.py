"""Small models with an encoder and a decoder, of text and of features: T5 and Whisper of
transformers if that is installed, else a model with stand-ins of language_model.py. The decoder of
the stand-in has positions as BART and a bias of relative positions as T5."""

import sys
import types

import language_model
import torch

WIDTH, HEADS, LAYERS, START, END, POSITIONS = 32, 4, 2, 3, 2, 64
VOCABULARY, BINS, FRAMES = language_model.VOCABULARY, 4, 24


def stand_in():
  """The names of transformers that husk.language uses for an encoder and a decoder."""
  modules = language_model.stand_in()
  caches = modules["transformers.cache_utils"]

  class EncoderDecoderCache(caches.Cache):
    def __init__(self, own, cross):
      self.self_attention_cache, self.cross_attention_cache = own, cross
      self.is_updated = {i: one.get_seq_length() > 0 for i, one in enumerate(cross.layers)}

    def get_seq_length(self):
      return self.self_attention_cache.layers[0].get_seq_length()

  caches.EncoderDecoderCache = EncoderDecoderCache
  return modules


class Positions(torch.nn.Embedding):
  def forward(self, position_ids):
    return super().forward(position_ids.unsqueeze(0))


class Attention(torch.nn.Module):
  def __init__(self, config, number):
    super().__init__()
    self.config, self.number = config, number
    self.query, self.key, self.value, self.out = (
      torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4)
    )

  def forward(self, x, mask=None, source=None, cache=None, bias=None):
    import transformers

    def heads(x):
      return x.view(*x.shape[:2], HEADS, WIDTH // HEADS).transpose(1, 2)

    query = heads(self.query(x))
    filled = cache is not None and source is not None and cache.is_updated[self.number]
    own = None
    if cache is not None:
      own = cache.self_attention_cache if source is None else cache.cross_attention_cache
    if filled:
      layer = own.layers[self.number]
      key, value = layer.keys, layer.values
    else:
      inputs = x if source is None else source
      key, value = heads(self.key(inputs)), heads(self.value(inputs))
      if own is not None:
        key, value = own.update(key, value, self.number)
    if bias is None:
      bias = torch.zeros(1, HEADS, x.shape[1], key.shape[2])
    function = transformers.AttentionInterface.functions.get(self.config._attn_implementation)
    if function is not None:
      mixed, _ = function(self, query, key, value, mask, scaling=0.5, position_bias=bias)
    else:
      scores = query @ key.transpose(2, 3) * 0.5 + bias
      if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
      mixed = (scores.softmax(-1) @ value).transpose(1, 2)
    return x + self.out(mixed.reshape(x.shape))


class Encoder(torch.nn.Module):
  def __init__(self, config, speech):
    super().__init__()
    self.speech = speech
    self.embedding = torch.nn.Embedding(VOCABULARY, WIDTH)
    self.frames = torch.nn.Linear(2 * BINS, WIDTH)
    self.layer = Attention(config, 0)

  def get_input_embeddings(self):
    return self.embedding

  def forward(self, input_ids=None, input_features=None):
    if self.speech:
      pairs = input_features.unflatten(-1, (-1, 2))
      x = self.frames(pairs.permute(0, 2, 1, 3).flatten(2))
    else:
      x = self.embedding(input_ids)
    return types.SimpleNamespace(last_hidden_state=self.layer(x))


class Decoder(torch.nn.Module):
  def __init__(self, config):
    super().__init__()
    self.embedding = torch.nn.Embedding(VOCABULARY, WIDTH)
    self.positions = Positions(POSITIONS, WIDTH)
    self.distances = torch.nn.Embedding(POSITIONS, HEADS)
    layers = range(config.decoder_layers)
    self.own = torch.nn.ModuleList(Attention(config, i) for i in layers)
    self.cross = torch.nn.ModuleList(Attention(config, i) for i in layers)

  def forward(self, tokens, mask, source, source_mask, cache):
    begin = 0 if cache is None else cache.get_seq_length()
    places = torch.arange(tokens.shape[1]) + begin
    x = self.embedding(tokens) + self.positions(places)
    count = mask.shape[-1]
    context = torch.arange(tokens.shape[1])[:, None] + begin
    distances = (context - torch.arange(count)[None]).clamp(0, POSITIONS - 1)
    bias = self.distances(distances).permute(2, 0, 1).unsqueeze(0)
    for own, cross in zip(self.own, self.cross, strict=True):
      x = cross(own(x, mask, cache=cache, bias=bias), source_mask, source, cache)
    return x


class Model(torch.nn.Module):
  def __init__(self, speech, layers):
    super().__init__()
    self.main_input_name = "input_features" if speech else "input_ids"
    self.config = language_model.Config(
      model_type="small_pair",
      is_encoder_decoder=True,
      vocab_size=VOCABULARY,
      decoder_layers=layers,
      max_position_embeddings=POSITIONS,
      decoder_start_token_id=START,
      eos_token_id=END,
      _attn_implementation="eager",
    )
    if speech:
      self.config.num_mel_bins, self.config.max_source_positions = BINS, FRAMES // 2
    self.encoder, self.decoder = Encoder(self.config, speech), Decoder(self.config)
    self.head = torch.nn.Linear(WIDTH, VOCABULARY)

  def set_attn_implementation(self, name):
    self.config._attn_implementation = name

  def get_encoder(self):
    return self.encoder

  def get_decoder(self):
    return self.decoder

  def forward(
    self,
    input_ids=None,
    input_features=None,
    attention_mask=None,
    decoder_input_ids=None,
    decoder_attention_mask=None,
    encoder_outputs=None,
    use_cache=None,
    cache=None,
  ):
    if encoder_outputs is None:
      hidden = self.encoder(input_ids, input_features).last_hidden_state
    else:
      hidden = encoder_outputs[0]
    if decoder_attention_mask is None:
      count = decoder_input_ids.shape[1]
      decoder_attention_mask = torch.ones(count, count, dtype=torch.bool).tril()[None, None]
    x = self.decoder(decoder_input_ids, decoder_attention_mask, hidden, attention_mask, cache)
    return types.SimpleNamespace(logits=self.head(x))


def make(monkeypatch, speech=False, layers=LAYERS):
  """The model, in eval mode, as language_model.make."""
  torch.manual_seed(0)
  if language_model.has_transformers():
    model = of_transformers(speech, layers)
  else:
    for name, module in stand_in().items():
      monkeypatch.setitem(sys.modules, name, module)
    model = Model(speech, layers)
  random = torch.Generator().manual_seed(2)
  with torch.no_grad():  # larger numbers, so that sources change texts
    for one in model.parameters():
      if one.dim() > 1:
        factor = 1 if one.shape[0] == VOCABULARY else 2
        one.copy_(torch.randn(one.shape, generator=random) * factor * one[0].numel() ** -0.5)
  return model.eval()


def of_transformers(speech, layers):
  import transformers

  common = {"vocab_size": VOCABULARY, "d_model": WIDTH, "tie_word_embeddings": False}
  common |= {"decoder_start_token_id": START, "eos_token_id": END, "pad_token_id": 0}
  if not speech:
    config = transformers.T5Config(
      **common, d_kv=8, d_ff=48, num_layers=1, num_heads=HEADS, num_decoder_layers=layers
    )
    return transformers.T5ForConditionalGeneration(config)
  sizes = dict.fromkeys(("encoder_layers", "decoder_layers"), 1)
  sizes |= dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), HEADS)
  sizes |= dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim"), 48)
  config = transformers.WhisperConfig(
    **common,
    **sizes,
    num_mel_bins=BINS,
    max_source_positions=FRAMES // 2,
    max_target_positions=POSITIONS,
    bos_token_id=START,
  )
  return transformers.WhisperForConditionalGeneration(config)
