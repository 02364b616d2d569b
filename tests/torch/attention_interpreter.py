"""The kernels of attention_kernel.py on the CPU, by Triton's interpreter, against attention written out in f64:

    TRITON_INTERPRET=1 python attention_interpreter.py CASES

CASES is JSON, a list of dicts that `computed` takes; prints a JSON list of [largest difference of the result, of the
log-sum-exp]. To be run as a process of its own, since Triton decides at import whether it interprets.
"""

import json
import math
import pathlib
import sys

import torch

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "compiler" / "torch")]
import triton_interpreter  # noqa: E402
from husk import attention_kernel  # noqa: E402
from husk.attention_launch import pieces  # noqa: E402


def laid_out(shape, dtype, layout):
  """Random numbers of shape [batch, heads, rows, size]; `layout` is how they lie in memory."""
  batch, heads, rows, size = shape
  if layout == "heads":        # the rows of each head
    return torch.randn(shape).to(dtype)
  if layout == "rows":         # the heads of each row
    return torch.randn(batch, rows, heads, size).to(dtype).transpose(1, 2)
  # a slice of something larger
  return torch.randn(batch + 1, rows + 3, heads, 2 * size + 5).to(dtype)[1:, 2:rows + 2, :, 3:size + 3].transpose(1, 2)


def mask_of(kind, batch, heads, queries, keys, dtype):
  if kind == "bool":
    return torch.rand(batch, 1, queries, keys) > 0.4
  if kind == "nothing":        # the first query sees nothing
    mask = torch.rand(queries, keys) > 0.4
    mask[:1] = False
    return mask
  if kind == "float":
    return torch.randn(heads, queries, keys).to(dtype)
  if kind == "columns":        # one for all queries, every second number of memory
    return torch.randn(batch, 1, 1, 2 * keys)[..., ::2]
  return None


def expected(q, k, v, mask, causal, scale):
  group = q.shape[1] // k.shape[1]
  q, k, v = q.double(), k.double().repeat_interleave(group, 1), v.double().repeat_interleave(group, 1)
  scores = q @ k.transpose(-1, -2) * scale
  if causal:
    scores = scores.masked_fill(~torch.ones(scores.shape[-2:], dtype=torch.bool).tril(), float("-inf"))
  if mask is not None:
    scores = scores.masked_fill(~mask, float("-inf")) if mask.dtype == torch.bool else scores + mask.double()
  return torch.softmax(scores, -1).nan_to_num(0) @ v, torch.logsumexp(scores, -1)


def computed(batch=1, heads=2, group=1, queries=20, keys=20, size=16, v_size=None, dtype="float32", layout="heads",
             mask=None, causal=False, scale=None, splits=1, cache=1 << 24,
             block_m=16, block_n=16):
  torch.manual_seed(0)
  dtype, v_size = getattr(torch, dtype), v_size or size
  q = laid_out((batch, heads * group, queries, size), dtype, layout)
  k = laid_out((batch, heads, keys, size), dtype, layout)
  v = laid_out((batch, heads, keys, v_size), dtype, layout)
  mask = mask_of(mask, batch, heads * group, queries, keys, dtype)
  mask_strides = [0, 0, 0, 0]
  if mask is not None:
    mask_strides = mask.expand(batch, heads * group, queries, keys).stride()
  scale = scale or size ** -0.5
  nan = float("nan")
  out = torch.full((batch, queries, heads * group, v_size), nan, dtype=dtype).transpose(1, 2)
  lse = torch.full((batch, heads * group, queries), nan)
  made, weights, strides = out, lse, [*out.stride()[:3], 0, 0]
  if splits > 1:
    made, weights = torch.full((splits, *out.shape), nan), torch.full((splits, *lse.shape), nan)
    strides = [*made.stride()[1:4], made.stride(0), weights.stride(0)]
  blocks = -(-queries * group // block_m) * heads * batch
  if blocks:
    attention_kernel.attention[(blocks, splits)](
        q, k, v, mask, made, weights, scale * math.log2(math.e), queries, keys, *q.stride()[:3], *k.stride()[:3],
        *v.stride()[:3], *mask_strides, *strides, heads, group, causal, splits, size, *pieces(size), v_size, *pieces(v_size),
        "ieee", cache, block_m, block_n)
  if splits > 1:
    rows = batch * heads * group * queries
    attention_kernel.attention_joined[(rows,)](
        made, weights, out, lse, rows, queries, *out.stride()[:3], heads * group, splits, 1 << (splits - 1).bit_length(),
        v_size, 1 << (v_size - 1).bit_length())
  return [difference(one, other) for one, other in zip((out, lse), expected(q, k, v, mask, causal, scale))]


def difference(one, other):
  """The largest; 0 where both are the same infinity."""
  one = one.double()
  return float(torch.where(one == other, 0.0, (one - other).abs()).max()) if one.numel() else 0.0


if __name__ == "__main__":
  triton_interpreter.patch()
  print(json.dumps([computed(**case) for case in json.loads(sys.argv[1])]))
