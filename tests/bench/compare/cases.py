"""The models that compare.py measures, with seeded random weights and inputs.

A case is a model and a shape, "resnet18@8": the model's function gets the numbers after the @.
"resnet18-bf16@8" is the same with weights and inputs in bf16.
"""

import functools
import pathlib
import sys

import torch
from torch import nn
from torch.nn import functional as F

sys.path.append(str(pathlib.Path(__file__).resolve().parents[3] / "examples"))


def mlp(batch):
  model = nn.Sequential(
    nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10)
  )
  return model, (torch.randn(batch, 64),)


def gpt(batch, length):
  import models

  return models.Gpt(), (torch.randint(0, 256, (batch, length)),)


class Plain(nn.Module):
  """A model of the package transformers with positional inputs and one tensor as its output."""

  def __init__(self, model, *names, output="last_hidden_state"):
    super().__init__()
    self.model = model
    self.names = names
    self.output = output

  def forward(self, *inputs):
    options = dict(zip(self.names, inputs, strict=True))
    return getattr(self.model(**options, return_dict=True), self.output)


def bert(batch, length):
  from transformers import BertConfig, BertModel

  model = BertModel(BertConfig(attn_implementation="sdpa"))
  return Plain(model, "input_ids"), (torch.randint(0, 30000, (batch, length)),)


def gpt2(batch, length):
  from transformers import GPT2Config, GPT2Model

  model = GPT2Model(GPT2Config(attn_implementation="sdpa", use_cache=False))
  return Plain(model, "input_ids"), (torch.randint(0, 50000, (batch, length)),)


def whisper(batch):
  from transformers import WhisperConfig
  from transformers.models.whisper.modeling_whisper import WhisperEncoder

  tiny = dict(d_model=384, encoder_layers=4, encoder_attention_heads=6, encoder_ffn_dim=1536)
  model = WhisperEncoder(WhisperConfig(attn_implementation="sdpa", **tiny))
  return Plain(model, "input_features"), (torch.randn(batch, 80, 3000),)


class LlamaLayer(nn.Module):
  """A layer of a Llama that decodes one token. The keys and values of earlier tokens are inputs."""

  def __init__(self, width=1024, heads=16, groups=4, hidden=2816):
    super().__init__()
    self.heads, self.groups, self.size = heads, groups, width // heads
    self.norm_in, self.norm_mid = nn.RMSNorm(width), nn.RMSNorm(width)
    self.q = nn.Linear(width, width, bias=False)
    self.kv = nn.Linear(width, 2 * groups * self.size, bias=False)
    self.out = nn.Linear(width, width, bias=False)
    self.gate = nn.Linear(width, hidden, bias=False)
    self.up = nn.Linear(width, hidden, bias=False)
    self.down = nn.Linear(hidden, width, bias=False)

  def forward(self, x, keys, values):
    y = self.norm_in(x)
    q = self.q(y).view(-1, self.heads, 1, self.size)
    k, v = self.kv(y).view(-1, 2, self.groups, 1, self.size).unbind(1)
    keys, values = torch.cat([keys, k], 2), torch.cat([values, v], 2)
    attended = F.scaled_dot_product_attention(q, keys, values, enable_gqa=True)
    x = x + self.out(attended.reshape(x.shape))
    y = self.norm_mid(x)
    return x + self.down(F.silu(self.gate(y)) * self.up(y)), keys, values


class Llama(nn.Module):
  def __init__(self, layers=4):
    super().__init__()
    self.layers = nn.ModuleList(LlamaLayer() for _ in range(layers))

  def forward(self, x, *cache):
    results = []
    for i, layer in enumerate(self.layers):
      x, *kept = layer(x, cache[2 * i], cache[2 * i + 1])
      results += kept
    return x, *results


def llama(tokens):
  cache = [torch.randn(1, 4, tokens, 64) for _ in range(8)]
  return Llama(), (torch.randn(1, 1024), *cache)


class UNet(nn.Module):
  """A U-Net with three levels, skip connections and transposed convolutions."""

  def __init__(self, width=32):
    super().__init__()
    widths = [width, 2 * width, 4 * width]
    self.down = nn.ModuleList(
      self.stage(a, b) for a, b in zip([3, *widths[:-1]], widths, strict=True)
    )
    self.middle = self.stage(widths[-1], 8 * width)
    self.grow = nn.ModuleList(nn.ConvTranspose2d(2 * w, w, 2, stride=2) for w in widths[::-1])
    self.up = nn.ModuleList(self.stage(2 * w, w) for w in widths[::-1])
    self.out = nn.Conv2d(width, 2, 1)

  @staticmethod
  def stage(inputs, outputs):
    layers = []
    for channels in (inputs, outputs):
      layers += [
        nn.Conv2d(channels, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
      ]
    return nn.Sequential(*layers)

  def forward(self, x):
    skips = []
    for stage in self.down:
      x = stage(x)
      skips.append(x)
      x = F.max_pool2d(x, 2)
    x = self.middle(x)
    for grow, stage, skip in zip(self.grow, self.up, skips[::-1], strict=True):
      x = stage(torch.cat([grow(x), skip], 1))
    return self.out(x)


def unet(batch):
  return UNet(), (torch.randn(batch, 3, 128, 128),)


class Lstm(nn.Module):
  def __init__(self):
    super().__init__()
    self.lstm = nn.LSTM(128, 256, num_layers=2, batch_first=True)
    self.head = nn.Linear(256, 10)

  def forward(self, x):
    return self.head(self.lstm(x)[0][:, -1])


def lstm(batch, length):
  return Lstm(), (torch.randn(batch, length, 128),)


def vision(name, size, batch):
  import torchvision

  return torchvision.models.get_model(name, weights=None), (torch.randn(batch, 3, size, size),)


MODELS = {
  "mlp": mlp,
  "gpt": gpt,
  "bert": bert,
  "resnet18": functools.partial(vision, "resnet18", 224),
  "resnet50": functools.partial(vision, "resnet50", 224),
  "mobilenet_v3": functools.partial(vision, "mobilenet_v3_large", 224),
  "vit": functools.partial(vision, "vit_b_16", 224),
  "gpt2": gpt2,
  "llama": llama,
  "efficientnet": functools.partial(vision, "efficientnet_b0", 224),
  "convnext": functools.partial(vision, "convnext_tiny", 224),
  "whisper": whisper,
  "unet": unet,
  "lstm": lstm,
}

# The dtypes of a case, by the suffix of the model's name.
DTYPES = {"": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}

# The cases that compare.py measures by default, with the largest ratio that is wanted.
CASES = {
  "mlp@1": 0.6,
  "gpt@1x16": 1.0,
  "gpt@8x128": 1.0,
  "bert@1x128": 1.0,
  "resnet18@1": 1.0,
  "resnet18@8": 1.0,
  "resnet50@1": 1.0,
  "resnet50@8": 1.0,
  "mobilenet_v3@1": 1.0,
  "mobilenet_v3@8": 1.0,
  "vit@1": 1.0,
  "vit@8": 1.0,
  "gpt2@1x32": 1.3,
  "gpt2@4x128": 1.3,
  "llama@256": 1.3,
  "efficientnet@1": 1.3,
  "convnext@1": 1.3,
  "whisper@1": 1.3,
  "unet@1": 1.3,
  "lstm@1x64": 1.3,
}


def make(case):
  """The model of a case, in inference mode, and its inputs."""
  name, _, shape = case.partition("@")
  name, _, dtype = name.partition("-")
  if dtype not in DTYPES:
    raise ValueError(f"{case}: there is no dtype {dtype!r}; the dtypes are {', '.join(DTYPES)}")
  if name not in MODELS:
    raise ValueError(f"{case}: there is no model {name!r}; the models are {', '.join(MODELS)}")
  torch.manual_seed(0)
  model, inputs = MODELS[name](*(int(size) for size in shape.split("x")))
  model = model.eval()
  # Fresh batch norms would be the identity, which a compiler could leave out.
  for module in model.modules():
    if isinstance(module, nn.BatchNorm2d):
      module.running_mean.normal_(0, 0.1)
      module.running_var.uniform_(0.5, 1.5)
  for parameter in model.parameters():
    parameter.requires_grad_(False)
  if dtype:
    model = model.to(DTYPES[dtype])
    inputs = tuple(x.to(DTYPES[dtype]) if x.is_floating_point() else x for x in inputs)
  return model, inputs
