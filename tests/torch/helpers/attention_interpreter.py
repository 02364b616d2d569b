"""Compares the kernels of attention/kernel.py, which Triton's interpreter runs on the CPU, with
attention in f64:

    TRITON_INTERPRET=1 python attention_interpreter.py CASES

CASES is a JSON list of dicts, the arguments of `computed`. The script prints a JSON list with the
largest differences of the result and of the log-sum-exp for each case. It runs as a process of its
own, because Triton decides at import whether it interprets."""

import json
import math
import pathlib
import sys

import torch

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[2] / "compiler" / "torch")]
import triton_interpreter  # noqa: E402
from attention_reference import difference, expected, laid_out  # noqa: E402
from husk.attention import kernel as attention_kernel  # noqa: E402
from husk.attention.tiles import pieces  # noqa: E402


def mask_of(kind, batch, heads, queries, keys, dtype):
  if kind == "bool":
    return torch.rand(batch, 1, queries, keys) > 0.4
  if kind == "nothing":  # the first query sees no key
    mask = torch.rand(queries, keys) > 0.4
    mask[:1] = False
    return mask
  if kind == "float":
    return torch.randn(heads, queries, keys).to(dtype)
  if kind == "columns":  # one row for all queries; its elements are two apart
    return torch.randn(batch, 1, 1, 2 * keys)[..., ::2]
  return None


def in_pages(rows, table, page):
  """The rows (batches x heads x keys ...) in the pages of a table, others of which are NaN or 0."""
  batch, heads, keys, *size = rows.shape
  nothing = float("nan") if rows.is_floating_point() and rows.itemsize > 1 else 0
  pages = torch.zeros(int(table.numel()) + 2, heads, page, *size).fill_(nothing).to(rows.dtype)
  for number, row in zip(table, rows):
    pages[number] = row.unflatten(1, (keys // page, page)).transpose(0, 1)
  return pages


def computed(
  batch=1,
  heads=2,
  group=1,
  queries=20,
  keys=20,
  size=16,
  v_size=None,
  dtype="float32",
  layout="heads",
  mask=None,
  causal=False,
  ahead=0,
  scale=None,
  splits=1,
  cache=1 << 24,
  block_m=16,
  block_n=16,
  codes=None,
  page=0,
  softcap=0.0,
  sinks=False,
):
  torch.manual_seed(0)
  dtype, v_size = getattr(torch, dtype), v_size or size
  q = laid_out((batch, heads * group, queries, size), dtype, layout)
  k = laid_out((batch, heads, keys, size), dtype, layout)
  v = laid_out((batch, heads, keys, v_size), dtype, layout)
  scales, known = [None, None], (k, v)
  scale_strides = [0] * 6
  if codes:  # the scales of a head are two apart
    scales = [torch.rand(batch, heads, 2 * keys)[..., ::2] for _ in range(2)]
    scale_strides = [stride for one in scales for stride in one.stride()]
    k, v = (
      laid_out(tuple(one.shape), torch.float32, layout).mul(30).to(getattr(torch, codes))
      for one in (k, v)
    )
    known = [one.double() * each[..., None] / 30 for one, each in zip((k, v), scales)]
    scales = [one / 30 for one in scales]
    scales = [torch.stack([one, one], -1).flatten(2)[..., ::2] for one in scales]
  sinks = torch.randn(heads * group).to(dtype) if sinks else None
  table, pages = None, 0
  if page:  # the keys of a batch are in pages, of which no two follow each other in memory
    pages = batch * (keys // page) + 2
    table = torch.randperm(pages)[: batch * (keys // page)].view(batch, -1)
    k, v, *scales = (one if one is None else in_pages(one, table, page) for one in (k, v, *scales))
    if codes:
      scale_strides = [stride for one in scales for stride in one.stride()]
  mask = mask_of(mask, batch, heads * group, queries, keys, dtype)
  mask_strides = [0, 0, 0, 0]
  if mask is not None:
    mask_strides = mask.expand(batch, heads * group, queries, keys).stride()
  scale = scale or size**-0.5
  nan = float("nan")
  out = torch.full((batch, queries, heads * group, v_size), nan, dtype=dtype).transpose(1, 2)
  lse = torch.full((batch, heads * group, queries), nan)
  parts, weights, strides = out, lse, [*out.stride()[:3], 0, 0]
  if splits > 1:
    parts, weights = torch.full((splits, *out.shape), nan), torch.full((splits, *lse.shape), nan)
    strides = [*parts.stride()[1:4], parts.stride(0), weights.stride(0)]
  blocks = -(-queries * group // block_m) * heads * batch
  if blocks:
    attention_kernel.attention[(blocks, splits)](
      q,
      k,
      v,
      table,
      mask,
      sinks,
      *scales,
      parts,
      weights,
      None,
      scale * math.log2(math.e),
      softcap * math.log2(math.e),
      queries,
      keys,
      ahead,
      *q.stride()[:3],
      *k.stride()[:3],
      *v.stride()[:3],
      *mask_strides,
      *scale_strides,
      0 if table is None else table.stride(0),
      *strides,
      heads,
      group,
      causal,
      splits,
      page,
      pages,
      0,
      size,
      *pieces(size),
      v_size,
      *pieces(v_size),
      "ieee",
      cache,
      block_m,
      block_n,
    )
  if splits > 1:
    rows = batch * heads * group * queries
    attention_kernel.attention_joined[(rows,)](
      parts,
      weights,
      out,
      lse,
      rows,
      queries,
      *out.stride()[:3],
      heads * group,
      splits,
      1 << (splits - 1).bit_length(),
      v_size,
      1 << (v_size - 1).bit_length(),
    )
  return [
    difference(one, other)
    for one, other in zip(
      (out, lse), expected(q, *known, mask, causal, scale, softcap, sinks, ahead)
    )
  ]


if __name__ == "__main__":
  triton_interpreter.patch()
  print(json.dumps([computed(**case) for case in json.loads(sys.argv[1])]))
