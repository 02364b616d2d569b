"""Whole transformers, exported for a GPU: BERT-base, ViT-B/16 and a Llama of 1.1 B with a KV cache,
with seeded random weights.

  python tests/gpu/transformers_models.py export DIR [--small] [--target cuda:h200]
                                                 [--gemm=cublaslt] [MODEL...]
  python tests/gpu/transformers_models.py expect DIR [--small] [--device cuda] [MODEL...]

`export` writes DIR/MODEL.husk, or with --gemm=cublaslt DIR/MODEL.cublaslt.husk, and prints the
time. `expect` runs eager PyTorch and writes DIR/MODEL.N.in.safetensors and
DIR/MODEL.N.out.safetensors, with tensors named by position, and DIR/llama.N.tokens: lines of the
prompt, of 64 greedy tokens, and of the lead of each token over the next best. --small gives each
model only a few layers, for a machine without a GPU. BERT and ViT are those of the package
transformers; the Llama is defined here.
"""

import argparse
import functools
import pathlib
import time

import torch
from torch import nn
from torch.export import Dim
from torch.nn import functional as F


class Bert(nn.Module):
  """The last hidden state and the pooled one."""

  def __init__(self, small):
    super().__init__()
    from transformers import BertConfig, BertModel

    sizes = dict(
      hidden_size=64,
      num_hidden_layers=2,
      num_attention_heads=2,
      intermediate_size=128,
      vocab_size=512,
    )
    self.model = BertModel(BertConfig(attn_implementation="sdpa", **(sizes if small else {})))

  def forward(self, tokens, mask):
    out = self.model(input_ids=tokens, attention_mask=mask)
    return out.last_hidden_state, out.pooler_output


class Vit(nn.Module):
  """The last hidden state of images."""

  def __init__(self, small):
    super().__init__()
    from transformers import ViTConfig, ViTModel

    sizes = dict(
      hidden_size=64,
      num_hidden_layers=2,
      num_attention_heads=2,
      intermediate_size=128,
      image_size=64,
    )
    self.model = ViTModel(
      ViTConfig(attn_implementation="sdpa", **(sizes if small else {})), add_pooling_layer=False
    )

  def forward(self, pixels):
    return self.model(pixel_values=pixels).last_hidden_state


def norm(x, weight, epsilon=1e-5):
  x32 = x.float()
  return (x32 * torch.rsqrt(x32.square().mean(-1, keepdim=True) + epsilon)).to(x.dtype) * weight


class LlamaLayer(nn.Module):
  def __init__(self, width, heads, kv_heads, hidden, longest):
    super().__init__()
    self.heads, self.kv_heads, self.size = heads, kv_heads, width // heads
    self.norm_in, self.norm_mid = nn.Parameter(torch.ones(width)), nn.Parameter(torch.ones(width))
    self.q = nn.Linear(width, width, bias=False)
    self.kv = nn.Linear(width, 2 * kv_heads * self.size, bias=False)
    self.out = nn.Linear(width, width, bias=False)
    self.gate_up = nn.Linear(width, 2 * hidden, bias=False)
    self.down = nn.Linear(hidden, width, bias=False)
    self.register_buffer("keys", torch.zeros(1, kv_heads, longest, self.size))
    self.register_buffer("values", torch.zeros(1, kv_heads, longest, self.size))

  def forward(self, x, positions, turn, mask):
    batch, length, width = x.shape
    h = norm(x, self.norm_in)
    q = self.q(h).view(batch, length, self.heads, self.size).transpose(1, 2)
    k, v = (
      self.kv(h).view(batch, length, 2, self.kv_heads, self.size).permute(2, 0, 3, 1, 4).unbind(0)
    )
    q, k = turned(q, turn), turned(k, turn)
    self.keys.index_copy_(2, positions, k)
    self.values.index_copy_(2, positions, v)
    a = F.scaled_dot_product_attention(q, self.keys, self.values, attn_mask=mask, enable_gqa=True)
    x = x + self.out(a.transpose(1, 2).reshape(batch, length, width))
    gate, up = self.gate_up(norm(x, self.norm_mid)).chunk(2, -1)
    return x + self.down(F.silu(gate) * up)


def turned(x, turn):
  """Rotary embedding."""
  cosine, sine = turn
  first, second = x.chunk(2, -1)
  return x * cosine + torch.cat((-second, first), -1) * sine


class Llama(nn.Module):
  """Tokens at positions, over a KV cache -> the next token, its position, and the logits of the
  last token."""

  def __init__(self, small):
    super().__init__()
    width, heads, kv_heads, hidden, layers, vocabulary = (
      (64, 4, 2, 96, 2, 256) if small else (2048, 32, 4, 5632, 22, 32000)
    )
    self.longest = 64 if small else 1024
    self.tokens = nn.Embedding(vocabulary, width)
    self.layers = nn.ModuleList(
      LlamaLayer(width, heads, kv_heads, hidden, self.longest) for _ in range(layers)
    )
    self.norm = nn.Parameter(torch.ones(width))
    self.head = nn.Linear(width, vocabulary, bias=False)
    size = width // heads
    self.register_buffer(
      "frequencies",
      10000.0 ** (-torch.arange(0, size, 2, dtype=torch.float32) / size),
      persistent=False,
    )

  def forward(self, tokens, positions):
    angles = positions[:, None].float() * self.frequencies.float()[None, :]
    angles = torch.cat((angles, angles), -1)
    x = self.tokens(tokens)
    turn = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    mask = torch.arange(self.longest, device=x.device)[None, :] <= positions[:, None]
    for layer in self.layers:
      x = layer(x, positions, turn, mask)
    logits = self.head(norm(x[:, -1], self.norm)).float()
    return logits.argmax(-1, keepdim=True), positions[-1:] + 1, logits


def tokens_of(batch, length, small):
  return torch.randint(0, 256 if small else 30000, (batch, length))


def bert(small):
  batch, length = Dim("batch", min=1, max=16), Dim("length", min=1, max=64 if small else 512)
  shapes = {"tokens": {0: batch, 1: length}, "mask": {0: batch, 1: length}}
  sizes = ((1, 1), (3, 17), (2, 64)) if small else ((1, 128), (8, 128), (3, 77))
  cases = []
  for rows, columns in sizes:
    mask = torch.ones(rows, columns, dtype=torch.int64)
    mask[-1, columns - columns // 3 :] = 0  # the last sequence is shorter
    cases.append((tokens_of(rows, columns, small), mask))
  return (
    Bert(small).half(),
    {"forward": ((tokens_of(2, 24, small), torch.ones(2, 24, dtype=torch.int64)), shapes)},
    cases,
  )


def vit(small):
  size = 64 if small else 224
  cases = [(torch.randn(batch, 3, size, size).half(),) for batch in (1, 4, 8)]
  return (
    Vit(small).half(),
    {"forward": (cases[1], {"pixels": {0: Dim("batch", min=1, max=16)}})},
    cases,
  )


def llama(small):
  model = Llama(small).bfloat16()
  length = Dim("length", min=2, max=model.longest)
  prefill = (
    (tokens_of(1, 9, small), torch.arange(9)),
    {"tokens": {1: length}, "positions": {0: length}},
  )
  decode = (tokens_of(1, 1, small), torch.arange(9, 10)), None
  return (
    model,
    {"prefill": prefill, "decode": decode},
    [(tokens_of(1, 12 if small else 200, small), torch.arange(12 if small else 200))],
  )


MODELS = {"bert": bert, "vit": vit, "llama": llama}


def make(name, small, seed=0):
  if name != "llama":
    # Imported before the seed, since the import draws random numbers.
    from transformers import BertModel, ViTModel  # noqa: F401
  torch.manual_seed(seed)
  model, functions, cases = MODELS[name](small)
  return model.eval().requires_grad_(False), functions, cases


def export(name, options):
  import husk

  model, functions, _ = make(name, options.small)
  begin = time.perf_counter()
  path = options.dir / f"{name}{'.cublaslt' if options.gemm == 'cublaslt' else ''}.husk"
  husk.export(
    {
      function: husk.Function(model, args, dynamic_shapes=shapes)
      for function, (args, shapes) in functions.items()
    },
    path,
    targets=options.target or ["cuda:h200"],
    gemm=options.gemm,
  )
  print(
    f"{name}: exported in {time.perf_counter() - begin:.0f} s, {path.stat().st_size / 2**20:.1f} "
    "MiB",
    flush=True,
  )


def timed(run, device):
  """Microseconds of a run that is waited for, the median of 20."""
  times = []
  for _ in range(20):
    begin = time.perf_counter()
    run()
    if device.startswith("cuda"):
      torch.cuda.synchronize()
    times.append(time.perf_counter() - begin)
  return sorted(times)[len(times) // 2] * 1e6


def gap(logits):
  """The lead of the best token over the next one."""
  best = logits.flatten().topk(2).values
  return best[0] - best[1]


def expect(name, options):
  from safetensors.torch import save_file

  model, _, cases = make(name, options.small)
  model = model.to(options.device)
  with torch.no_grad():
    for number, inputs in enumerate(cases):
      there = [x.to(options.device) for x in inputs]
      if name == "llama":  # 64 greedy steps; the outputs are all tokens, and the last logits
        token, position, logits = model(*there)
        tokens, gaps = [token], [gap(logits)]
        for _ in range(63 if not options.small else 8):
          token, position, logits = model(token, position)
          tokens.append(token)
          gaps.append(gap(logits))
        outputs = (torch.cat(tokens, 1), logits)
        lines = (
          " ".join(map(str, x.flatten().tolist()))
          for x in (inputs[0], outputs[0], torch.tensor(gaps))
        )
        (options.dir / f"{name}.{number}.tokens").write_text("\n".join(lines) + "\n")
      else:
        outputs = model(*there)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
      again = (token, position) if name == "llama" else there  # of the Llama one decode
      shape = "x".join(map(str, again[0].shape))
      print(
        f"{name} {shape}, eager: {timed(functools.partial(model, *again), options.device):.0f} us",
        flush=True,
      )
      for suffix, tensors in (("in", inputs), ("out", outputs)):
        save_file(
          {str(i): x.contiguous().cpu().clone() for i, x in enumerate(tensors)},
          options.dir / f"{name}.{number}.{suffix}.safetensors",
        )


def main():
  parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
  parser.add_argument("what", choices=("export", "expect"))
  parser.add_argument("dir", type=pathlib.Path)
  parser.add_argument("models", nargs="*", default=list(MODELS), metavar="MODEL")
  parser.add_argument("--small", action="store_true")
  parser.add_argument("--target", action="append", help="as for husk.export; may be repeated")
  parser.add_argument("--gemm", default="triton", help="triton or cublaslt, as for husk.export")
  parser.add_argument("--device", default="cuda")
  options = parser.parse_intermixed_args()
  options.dir.mkdir(parents=True, exist_ok=True)
  for name in options.models:
    (export if options.what == "export" else expect)(name, options)


if __name__ == "__main__":
  main()
