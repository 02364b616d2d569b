"""Attention of language models to caches in pages on a GPU: results against eager mode, and times
of pages that attention reads where they are against pages that are gathered and against slots.

  python tests/gpu/paged_attention.py [--dry] [--folder DIR] [--target cuda:h200] [--span 2048]
                                      [--layers 4] [--cases NAME,...] [--no-times] [--device cuda]

A case is a call of a program that is the attention of some layers of a model, without its products:
it writes keys and values of new tokens and attends to them and to those before. `prefill` takes 256
tokens of one sequence, or 1024 if it is long, `verify` 4 tokens of 8 slots and `decode` one of 8
slots, at the end of `span` positions; pages are in a random order. Each case is three files:
`pages`, whose attention reads pages by the table; `gathered`, in which the program copies the pages
of a call first; and `slots`, whose caches are not in pages. A row has the largest differences from
eager mode in f32, divided by the largest number, for whole and ragged positions, and the
microseconds of a layer in a graph. Eager mode in the model's own type has the difference in
brackets.

`--dry` only exports, and needs no GPU. A file that DIR has is not made again. The exit status is 1
if a difference is above that which the type allows.
"""

import argparse
import concurrent.futures
import copy
import dataclasses
import functools
import multiprocessing
import pathlib
import sys
import tempfile
import time

import torch
from decoder import measure

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1] / "compiler" / "torch"))

SLOTS, SEVERAL, MOST = 8, 4, 4096
KINDS = ("pages", "gathered", "slots")
# The largest difference from eager mode in f32, as a part of the largest number.
TOLERANCES = {"bfloat16": 2e-2, "float16": 4e-3}


@dataclasses.dataclass(frozen=True)
class Case:
  """The attention of a model's layer, and the function whose calls it is part of."""

  function: str
  cache: str = "bfloat16"
  heads: int = 32
  shared: int = 8  # the heads of keys
  size: int = 64
  window: int = 0
  softcap: float | None = None
  sinks: bool = False
  dtype: str = "bfloat16"
  chunk: int = 256  # the tokens of `prefill`


# The sizes of Llama 3.2 1B and 8B, of gpt-oss, of Gemma 3 1B and Gemma 2 2B, and of Phi 3 mini.
GPT_OSS = dict(heads=64, sinks=True)
GEMMA = dict(heads=4, shared=1, size=256)
CASES = {
  "prefill": Case("prefill"),
  "prefill long": Case("prefill", chunk=1024),
  "prefill 128": Case("prefill", size=128),
  "prefill int8": Case("prefill", "int8"),
  "prefill gpt-oss": Case("prefill", window=128, **GPT_OSS),
  "prefill gemma 3": Case("prefill", window=512, **GEMMA),
  "prefill gemma 2": Case("prefill", heads=8, shared=4, size=256, softcap=50.0),
  "prefill phi 3": Case("prefill", heads=32, shared=32, size=96, dtype="float16", cache="float16"),
  "verify": Case("verify"),
  "verify int8": Case("verify", "int8"),
  "verify gpt-oss": Case("verify", **GPT_OSS),
  "decode int8": Case("decode", "int8"),
  "decode fp8": Case("decode", "fp8"),
  "decode fp8 128": Case("decode", "fp8", size=128),
  "decode": Case("decode"),
  "decode gpt-oss": Case("decode", **GPT_OSS),
}


def step_of(kind):
  """Where the tokens of a call belong, as in the functions of a language model."""
  from husk.language import steps

  class Gathered(steps.PagedStep):
    def read(self, buffer):
      # Attention does not know these operators as those of pages, so that the program copies.
      pages = torch.ops.aten.index(buffer, (self.table,))
      return pages.permute(0, 2, 1, *range(3, pages.dim())).flatten(2, 3)

  return {"pages": steps.PagedStep, "gathered": Gathered, "slots": steps.Step}[kind]()


class Layers(torch.nn.Module):
  """The attention of several layers. The result of one is added to the queries of the next."""

  def __init__(self, case, kind, layers, span):
    super().__init__()
    from husk.language import caches, steps

    self.case, self.kind, self.count = case, kind, layers
    self.is_chunk = case.function == "prefill"
    slots = 1 if self.is_chunk else SLOTS
    rows, positions = (slots + 1, MOST + 1)
    if kind != "slots":
      rows, positions = slots * (span // steps.PAGE) + 1, steps.PAGE
    dtype = caches.KINDS[case.cache]
    for number in range(layers):
      for name in ("keys", "values"):
        shape = rows, case.shared, positions
        self.register_buffer(f"{name}_{number}", torch.zeros(*shape, case.size, dtype=dtype))
        if caches.is_rounded(dtype):
          self.register_buffer(f"{name}_{number}_scales", torch.zeros(shape))
    if case.sinks:
      sinks = torch.linspace(-2, 6, case.heads).to(getattr(torch, case.dtype))
      self.sinks = torch.nn.Parameter(sinks, requires_grad=False)

  def forward(self, q, k, v, at, seen):
    step = step_of(self.kind)
    step.max_tokens = MOST
    count = q.shape[2]
    each = torch.arange(count, device=q.device)
    if self.is_chunk:
      torch._check(at >= 0)
      step.positions = (each + at)[None]
      step.slots = torch.zeros_like(step.positions)
      step.rows = 1
    else:
      torch._check(at.shape[0] == q.shape[0])
      step.positions = at[:, None] + each[None]
      slots = torch.arange(q.shape[0], device=q.device)
      step.slots = slots[:, None] + torch.zeros_like(each)[None]
      if count == 1:
        step.slots, step.positions = slots[:, None], at[:, None]
      step.rows = q.shape[0]
    step.see(seen)
    if self.is_chunk:
      torch._check(at + count <= step.span)
    return self.attended(step, q, k, v)

  def attended(self, step, q, k, v):
    from husk.language import caches, hooks

    case, mask = self.case, None
    for number in range(self.count):
      kept = [
        caches.Kept(getattr(self, name), getattr(self, f"{name}_scales", None))
        for name in (f"keys_{number}", f"values_{number}")
      ]
      layer = hooks.SlotLayer(step, *kept)
      keys, values = layer.update(k, v)
      if mask is None:

        def sees(row, head, query, key):
          seen = key <= query
          return seen & (key > query - case.window) if case.window else seen

        span = layer.get_mask_sizes(q.shape[2])[0]
        mask = hooks.mask(
          q.shape[0], q.shape[2], span, sees, layer.get_seq_length(), device=q.device
        )
      sinks = self.sinks if case.sinks else None
      result, _ = hooks.attention(None, q, keys, values, mask, softcap=case.softcap, s_aux=sinks)
      q = q + result.transpose(1, 2)
    return q


def tokens_of(case, batch, count, seed):
  random = torch.Generator().manual_seed(seed)
  return [
    torch.randn(batch, heads, count, case.size, generator=random).to(getattr(torch, case.dtype))
    for heads in (case.heads, case.shared, case.shared)
  ]


def tables(slots, span):
  """The pages of each slot, in an order of their own."""
  from husk.language import steps

  columns = span // steps.PAGE
  random = torch.Generator().manual_seed(1)
  return 1 + torch.randperm(slots * columns, generator=random).view(slots, columns)


def call_of(case, kind, span, ragged=False):
  """The inputs of a call at the end of `span` positions, or at others."""
  if case.function == "prefill":
    count, at = (77, 300) if ragged else (case.chunk, span - case.chunk)
    seen = min(span, 512) if ragged else span
    table = tables(1, span)[0, : seen // 64].contiguous()
    return *tokens_of(case, 1, count, 2), at, seen if kind == "slots" else table
  count = SEVERAL if case.function == "verify" else 1
  at = torch.full((SLOTS,), span - count)
  if ragged:
    at = torch.arange(SLOTS) * (span - count) // (SLOTS - 1)
  table = tables(SLOTS, span)
  if ragged:  # a slot has the pages that it needs
    columns = torch.arange(table.shape[1])[None]
    table = torch.where(columns * 64 < (at + count)[:, None], table, 0)
  return *tokens_of(case, SLOTS, count, 3), at, span if kind == "slots" else table


def shapes_of(case, kind):
  """The ranges of sizes that the functions of language models have."""
  Dim = torch.export.Dim
  columns = Dim("columns", min=1, max=MOST // 64)
  if case.function == "prefill":
    new = {2: Dim("length", min=1, max=1024)}
    return new, new, new, Dim.AUTO, Dim.AUTO if kind == "slots" else {0: columns}
  rows = Dim("rows", min=1, max=SLOTS)
  new = {0: rows}
  if case.function == "verify":
    new = {0: rows, 2: Dim("several", min=2, max=16)}
  return new, new, new, {0: rows}, Dim.AUTO if kind == "slots" else {0: rows, 1: columns}


def export(path, name, kind, options):
  import husk

  case, began = CASES[name], time.time()
  husk.export(
    Layers(case, kind, options.layers, options.span).eval(),
    call_of(case, kind, options.span),
    path,
    dynamic_shapes=shapes_of(case, kind),
    targets=[options.target],
    tune="heuristic",
  )
  return time.time() - began


def caches_of(case, layers, span, device):
  """Numbers for the caches of slots, by names."""
  random = torch.Generator(device).manual_seed(4)
  slots = 1 if case.function == "prefill" else SLOTS
  return {
    f"{name}_{number}": torch.randn(
      slots, case.shared, span, case.size, generator=random, device=device
    )
    for number in range(layers)
    for name in ("keys", "values")
  }


def fill(module, numbers, span):
  """Puts the numbers into the caches of a module, each of which may be in pages or of codes."""
  from husk.language import caches, steps

  for name, rows in numbers.items():
    buffer = getattr(module, name)
    rows, dtype = rows.to(buffer.device), buffer.dtype
    kept = {name: rows}
    if caches.is_rounded(dtype):
      kept = dict(zip((name, f"{name}_scales"), caches.rounded(rows, dtype)))
    for each, value in kept.items():
      buffer = getattr(module, each)
      if module.kind == "slots":
        buffer[: len(value), :, :span] = value.to(buffer.dtype)
      else:
        table = tables(len(value), span).to(value.device)
        pages = value.unflatten(2, (-1, steps.PAGE)).transpose(1, 2)
        pages = pages.to(buffer.dtype).contiguous()
        if buffer.itemsize == 1:  # torch puts no rows of fp8
          buffer, pages = (one.view(torch.uint8) for one in (buffer, pages))
        buffer[table] = pages


def in_f32(module):
  """A module that computes in f32; its caches stay as they are if they have codes."""
  result = copy.deepcopy(module)
  for one in (*result.buffers(), *result.parameters()):
    if one.dtype in (torch.bfloat16, torch.float16):
      one.data = one.data.float()
  return result


def on_device(inputs, device, dtype=None):
  return [
    (one.to(dtype) if dtype and one.is_floating_point() else one).to(device)
    if isinstance(one, torch.Tensor)
    else one
    for one in inputs
  ]


def difference(found, right):
  return float((found.to(right) - right).abs().max() / right.abs().max())


def compared(path, case, kind, numbers, options):
  """The session of a file, and its differences from eager mode in f32, with those of eager mode."""
  import husk

  device = options.device
  eagers = "cpu" if case.cache == "fp8" else device  # torch lacks operators of fp8 on GPUs
  module = Layers(case, kind, options.layers, options.span).eval().to(eagers)
  fill(module, numbers, options.span)
  session = husk.load(path, device=device).session(mode="auto" if device == "cpu" else "graph")
  for name in session.state:
    if hasattr(module, name):
      session.state[name].copy_from(getattr(module, name))
  exact, found, eager = in_f32(module), [], []
  with torch.no_grad():
    for ragged in (True, False):
      inputs = call_of(case, kind, options.span, ragged)
      right = exact(*on_device(inputs, eagers, torch.float32))
      eager.append(difference(module(*on_device(inputs, eagers)), right))
      found.append(difference(session(*on_device(inputs, device)), right))
  return session, found, eager


def run(name, paths, options):
  """Prints the row of a case. Returns whether its results are right."""
  case = CASES[name]
  limit = TOLERANCES[case.dtype]
  numbers = caches_of(case, options.layers, options.span, options.device)
  times, is_right, words = {}, True, []
  for kind in KINDS:
    session, found, eager = compared(paths[name, kind], case, kind, numbers, options)
    right = all(one <= max(limit, 2 * other) for one, other in zip(found, eager))
    is_right = is_right and right
    words.append(
      f"{kind} {', '.join(f'{one:.1e}' for one in found)} ({max(eager):.1e})"
      + ("" if right else " WRONG")
    )
    if options.times:
      inputs = on_device(call_of(case, kind, options.span), options.device)
      times[kind] = measure(functools.partial(session, *inputs), count=50) / options.layers
  text = f"{name:16} differences: {'; '.join(words)}"
  if times:
    pages = times["pages"]
    text += (
      f" | us a layer: {', '.join(f'{kind} {one:.1f}' for kind, one in times.items())} | pages / "
      f"gathered {pages / times['gathered']:.2f}, pages / slots {pages / times['slots']:.2f}"
    )
  print(text, flush=True)
  return is_right


def main():
  arguments = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  arguments.add_argument("--dry", action="store_true")
  arguments.add_argument("--folder", type=pathlib.Path)
  arguments.add_argument("--target", default="cuda:h200")
  arguments.add_argument("--span", type=int, default=2048)
  arguments.add_argument("--layers", type=int, default=4)
  arguments.add_argument("--cases", default=",".join(CASES))
  arguments.add_argument("--workers", type=int, default=multiprocessing.cpu_count())
  arguments.add_argument("--device", default="cuda")
  arguments.add_argument("--no-times", dest="times", action="store_false")
  options = arguments.parse_args()
  with tempfile.TemporaryDirectory(prefix="husk-pages-") as temporary:
    folder = options.folder or pathlib.Path(temporary)
    folder.mkdir(parents=True, exist_ok=True)
    names = options.cases.split(",")
    paths = {
      (name, kind): folder / f"{name.replace(' ', '_')}.{kind}.husk"
      for name in names
      for kind in KINDS
    }
    missing = {case: path for case, path in paths.items() if not path.exists()}
    if missing:
      with concurrent.futures.ProcessPoolExecutor(
        min(options.workers, len(missing)), multiprocessing.get_context("spawn")
      ) as pool:
        futures = {
          case: pool.submit(export, path, *case, options) for case, path in missing.items()
        }
        for (name, kind), future in futures.items():
          print(f"{name}, {kind}: exported in {future.result():.1f} s", flush=True)
    if options.dry:
      return 0
    if options.device != "cpu":
      print(torch.cuda.get_device_name(), flush=True)
    began = time.time()
    right = []
    for name in names:
      try:
        right.append(run(name, paths, options))
      except Exception as error:
        print(f"{name:16} FAILED: {type(error).__name__}: {error}", flush=True)
        right.append(False)
    print(f"{sum(right)} of {len(right)} cases right, {time.time() - began:.0f} s", flush=True)
    return 0 if all(right) else 1


if __name__ == "__main__":
  sys.exit(main())
