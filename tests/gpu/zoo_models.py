"""The models that zoo.py counts: those of torchvision, and 40 architectures of transformers from
small random configurations. Nothing is downloaded."""

import dataclasses
import importlib

import torch
from torch import nn


class Inapplicable(Exception):
  """A model cannot be made, or PyTorch itself cannot run it."""


class Wrapped(nn.Module):
  """A model that takes tensors by position and returns tensors."""

  def __init__(self, model, call):
    super().__init__()
    self.model, self.call = model, call

  def forward(self, *tensors):
    return self.call(self.model, *tensors)


@dataclasses.dataclass
class Model:
  """A model in fp32 on the CPU, the inputs of a call, and whether it is exported in fp16."""

  module: nn.Module
  inputs: tuple
  half: bool


def first_line(error):
  """The first line of the message of an error, and its class if that says more."""
  import husk

  lines = [line.strip() for line in str(error).splitlines() if line.strip()]
  line = lines[0] if lines else ""
  return line if isinstance(error, husk.Unsupported) else f"{type(error).__name__}: {line}"


# torchvision


def torchvision_names():
  from torchvision import models

  return [
    *models.list_models(models),
    *models.list_models(models.segmentation),
    *models.list_models(models.detection),
  ]


def image_size(name):
  """The smallest size of images, of 64, 96 and 224, that a model for classification accepts."""
  if name.startswith(("vit", "maxvit")):
    return 224
  return 96 if name in ("inception_v3", "googlenet") else 64


def torchvision_model(name):
  from torchvision import models

  torch.manual_seed(0)
  if name in models.list_models(models.detection):
    module = models.get_model(name, weights=None, weights_backbone=None)
    calibrate(module.backbone, 128)
    module = Wrapped(module, lambda model, image: tuple(model([image])[0].values()))
    return module, (torch.rand(3, 128, 128),), False
  if name in models.list_models(models.segmentation):
    size = 96
    module = models.get_model(name, weights=None, weights_backbone=None)
    module = Wrapped(module, lambda model, images: model(images)["out"])
  else:
    size = image_size(name)
    options = {"aux_logits": False, "init_weights": False} if size == 96 else {}
    module = models.get_model(name, weights=None, **options)
  calibrate(module, size)
  return module, (torch.randn(1, 3, size, size),), True


def calibrate(module, size):
  """Lets the batch norms of a network learn their statistics from random images. Values would grow
  or vanish in a deep network with random weights otherwise."""
  norms = [one for one in module.modules() if isinstance(one, nn.BatchNorm2d)]
  if not norms:
    return
  for norm in norms:
    norm.momentum = None
  device = "cuda" if torch.cuda.is_available() else "cpu"
  module.train().to(device)
  with torch.no_grad():
    for _ in range(2):
      module(torch.randn(4, 3, size, size).to(device))
  module.eval().cpu()


# transformers


def tokens(length=16):
  """Numbers of tokens that have no special meaning."""
  return torch.randint(4, 512, (2, length))


def text():
  """Two sequences, of which the second has padding at its end."""
  mask = torch.ones(2, 16, dtype=torch.int64)
  mask[-1, 11:] = 0
  return {"input_ids": tokens(), "attention_mask": mask}


def texts():
  return {**text(), "decoder_input_ids": tokens(8)}


def image():
  return {"pixel_values": torch.randn(2, 3, 64, 64)}


def spectrum():
  return {"input_features": torch.randn(2, 80, 100)}


def sound():
  return {"input_values": torch.randn(2, 1600)}


LAYERS = dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=128)
ENCODER = dict(LAYERS, vocab_size=512)
DECODER = dict(
  vocab_size=512,
  hidden_size=128,
  num_hidden_layers=2,
  num_attention_heads=4,
  num_key_value_heads=2,
  intermediate_size=256,
)
GPT2 = dict(vocab_size=512, n_embd=64, n_layer=2, n_head=2)
STAGES = dict(hidden_sizes=[32, 64, 96, 128], depths=[1, 1, 1, 1])

# By name: the class of the configuration, the class of the model, the sizes, and the inputs. The
# classes are those of the package transformers, or of the module in it that stands before the name.
ARCHITECTURES = {
  # encoders of texts
  "bert": ("BertConfig", "BertModel", ENCODER, text),
  "roberta": ("RobertaConfig", "RobertaModel", ENCODER, text),
  "xlm_roberta": ("XLMRobertaConfig", "XLMRobertaModel", ENCODER, text),
  "distilbert": (
    "DistilBertConfig",
    "DistilBertModel",
    dict(vocab_size=512, dim=64, hidden_dim=128, n_layers=2, n_heads=2),
    text,
  ),
  "albert": ("AlbertConfig", "AlbertModel", dict(ENCODER, embedding_size=32), text),
  "electra": ("ElectraConfig", "ElectraModel", dict(ENCODER, embedding_size=32), text),
  "deberta_v2": (
    "DebertaV2Config",
    "DebertaV2Model",
    dict(ENCODER, relative_attention=True, pos_att_type=["p2c", "c2p"], position_buckets=32),
    text,
  ),
  "mpnet": ("MPNetConfig", "MPNetModel", ENCODER, text),
  "clip_text": ("CLIPTextConfig", "CLIPTextModel", ENCODER, text),
  # decoders of texts
  "gpt2": ("GPT2Config", "GPT2LMHeadModel", GPT2, text),
  "gpt_neo": (
    "GPTNeoConfig",
    "GPTNeoForCausalLM",
    dict(
      vocab_size=512,
      hidden_size=64,
      num_layers=2,
      num_heads=2,
      attention_types=[[["global", "local"], 1]],
    ),
    text,
  ),
  "gpt_neox": ("GPTNeoXConfig", "GPTNeoXForCausalLM", ENCODER, text),
  "gptj": ("GPTJConfig", "GPTJForCausalLM", dict(GPT2, rotary_dim=16), text),
  "opt": (
    "OPTConfig",
    "OPTForCausalLM",
    dict(
      vocab_size=512,
      hidden_size=64,
      word_embed_proj_dim=64,
      ffn_dim=128,
      num_hidden_layers=2,
      num_attention_heads=2,
    ),
    text,
  ),
  "bloom": (
    "BloomConfig",
    "BloomForCausalLM",
    dict(vocab_size=512, hidden_size=64, n_layer=2, n_head=2),
    text,
  ),
  "llama": ("LlamaConfig", "LlamaForCausalLM", DECODER, text),
  "mistral": ("MistralConfig", "MistralForCausalLM", DECODER, text),
  "mixtral": ("MixtralConfig", "MixtralForCausalLM", dict(DECODER, num_local_experts=4), text),
  "qwen2": ("Qwen2Config", "Qwen2ForCausalLM", DECODER, text),
  "gemma": ("GemmaConfig", "GemmaForCausalLM", dict(DECODER, head_dim=32), text),
  "gemma2": ("Gemma2Config", "Gemma2ForCausalLM", dict(DECODER, head_dim=32), text),
  "phi": ("PhiConfig", "PhiForCausalLM", DECODER, text),
  "phi3": (
    "Phi3Config",
    "Phi3ForCausalLM",
    dict(DECODER, pad_token_id=0, bos_token_id=1, eos_token_id=2),
    text,
  ),
  "falcon": (
    "FalconConfig",
    "FalconForCausalLM",
    dict(vocab_size=512, hidden_size=64, num_hidden_layers=2, num_attention_heads=2),
    text,
  ),
  "stablelm": ("StableLmConfig", "StableLmForCausalLM", DECODER, text),
  "olmo": ("OlmoConfig", "OlmoForCausalLM", DECODER, text),
  "cohere": ("CohereConfig", "CohereForCausalLM", DECODER, text),
  "starcoder2": ("Starcoder2Config", "Starcoder2ForCausalLM", DECODER, text),
  "mamba": (
    "MambaConfig",
    "MambaForCausalLM",
    dict(vocab_size=512, hidden_size=64, num_hidden_layers=2),
    text,
  ),
  # encoders and decoders of sequences
  "t5_encoder": (
    "T5Config",
    "T5EncoderModel",
    dict(vocab_size=512, d_model=64, d_kv=32, d_ff=128, num_layers=2, num_heads=2),
    text,
  ),
  "bart": (
    "BartConfig",
    "BartModel",
    dict(
      vocab_size=512,
      d_model=64,
      encoder_layers=2,
      decoder_layers=2,
      encoder_attention_heads=2,
      decoder_attention_heads=2,
      encoder_ffn_dim=128,
      decoder_ffn_dim=128,
    ),
    texts,
  ),
  "whisper_encoder": (
    "WhisperConfig",
    "models.whisper.modeling_whisper.WhisperEncoder",
    dict(
      d_model=64,
      encoder_layers=2,
      encoder_attention_heads=2,
      encoder_ffn_dim=128,
      max_source_positions=50,
    ),
    spectrum,
  ),
  "wav2vec2": (
    "Wav2Vec2Config",
    "Wav2Vec2Model",
    dict(
      LAYERS,
      conv_dim=[32, 32, 32],
      conv_kernel=[10, 3, 3],
      conv_stride=[5, 2, 2],
      num_conv_pos_embeddings=16,
      num_conv_pos_embedding_groups=2,
    ),
    sound,
  ),
  # networks for images
  "vit": ("ViTConfig", "ViTModel", dict(LAYERS, image_size=64), image),
  "clip_vision": (
    "CLIPVisionConfig",
    "CLIPVisionModel",
    dict(LAYERS, image_size=64, patch_size=16),
    image,
  ),
  "dinov2": (
    "Dinov2Config",
    "Dinov2Model",
    dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=2, image_size=64, patch_size=16),
    image,
  ),
  "swin": (
    "SwinConfig",
    "SwinModel",
    dict(image_size=64, embed_dim=32, depths=[2, 2], num_heads=[2, 4], window_size=4),
    image,
  ),
  "segformer": (
    "SegformerConfig",
    "SegformerForSemanticSegmentation",
    dict(STAGES, num_attention_heads=[1, 2, 3, 4], decoder_hidden_size=64),
    image,
  ),
  "convnext": (
    "ConvNextConfig",
    "ConvNextModel",
    dict(STAGES, layer_scale_init_value=1.0),  # the layers of a new model have no effect otherwise
    image,
  ),
  "resnet": (
    "ResNetConfig",
    "ResNetForImageClassification",
    dict(STAGES, embedding_size=32),
    image,
  ),
}


def transformers_class(name):
  module, _, last = name.rpartition(".")
  try:
    return getattr(importlib.import_module(f"transformers.{module}".rstrip(".")), last)
  except (AttributeError, ImportError) as error:
    raise Inapplicable(f"transformers has no {name}: {first_line(error)}") from error


def transformers_model(name):
  config_name, model_name, sizes, make_inputs = ARCHITECTURES[name]
  config_class, model_class = transformers_class(config_name), transformers_class(model_name)
  torch.manual_seed(0)  # after the imports, which draw random numbers
  attention = "sdpa" if getattr(model_class, "_supports_sdpa", False) else "eager"
  config = config_class(attn_implementation=attention, **sizes)
  if hasattr(config, "use_cache"):
    config.use_cache = False
  inputs = make_inputs()
  names = tuple(inputs)

  def call(model, *tensors):
    output = model(**dict(zip(names, tensors, strict=True)))
    return output["logits" if "logits" in output else "last_hidden_state"]

  return Wrapped(model_class(config), call), tuple(inputs.values()), False


def make(collection, name):
  try:
    build = torchvision_model if collection == "torchvision" else transformers_model
    module, inputs, half = build(name)
  except (Inapplicable, torch.cuda.OutOfMemoryError):
    raise
  except Exception as error:  # whatever the package raises
    raise Inapplicable(f"the model cannot be made: {first_line(error)}") from error
  # Some heads begin as zeros, and then the output does not depend on the model.
  for part in module.modules():
    if isinstance(part, torch.nn.Linear) and not part.weight.any():
      torch.nn.init.normal_(part.weight, std=0.02)
  return Model(module.eval().requires_grad_(False), inputs, half)


def names(collection):
  return torchvision_names() if collection == "torchvision" else list(ARCHITECTURES)
