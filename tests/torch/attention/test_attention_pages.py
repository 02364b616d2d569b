"""Attention of several tokens to caches in pages on GPUs, as `prefill` and `verify` of a language
model compute it, and `decode` over codes of 8 bits: the kernel reads pages where they are, by
Triton's interpreter."""

import copy
import re
import sys

import husk
import pytest
import torch
from cuda_numerics import close, computed
from function_module import FunctionModule
from husk.attention import step_launch
from husk.language import caches, hooks, steps

PAGE = steps.PAGE
TOLERANCES = {torch.float32: 1e-5, torch.float16: 3e-3, torch.bfloat16: 3e-2}


def attended(self, step, q, k, v):
  """Attention of new tokens to a cache of pages, in which they are written first."""
  kept = [
    caches.Kept(getattr(self, name), getattr(self, f"{name}_scales", None))
    for name in ("keys", "values")
  ]
  layer = hooks.SlotLayer(step, *kept)
  keys, values = layer.update(k, v)

  def sees(row, head, query, key):
    seen = key <= query
    return seen & (key > query - self.window) if self.window else seen

  count = layer.get_mask_sizes(q.shape[2])[0]
  mask = hooks.mask(q.shape[0], q.shape[2], count, sees, layer.get_seq_length())
  sinks = getattr(self, "sinks", None)
  result, _ = hooks.attention(None, q, keys, values, mask, softcap=self.softcap, s_aux=sinks)
  return result


def chunk(self, q, k, v, position, table):
  """As `prefill`: tokens of one sequence, of which the first is at a position that is a number."""
  step = steps.PagedStep()
  step.positions = (torch.arange(q.shape[2]) + position)[None]
  step.see(table)
  torch._check(position >= 0)
  torch._check(position + q.shape[2] <= step.span)
  return attended(self, step, q, k, v)


def several(self, q, k, v, positions, table):
  """As `verify`, and with one token as `decode`: tokens of each of several sequences."""
  torch._check(table.shape[0] == q.shape[0])
  step = steps.PagedStep()
  step.positions = positions[:, None] + torch.arange(q.shape[2])[None]
  step.see(table)
  return attended(self, step, q, k, v)


def exact_in_fp8(numbers):
  """Numbers that codes of fp8 have exactly, as Triton's interpreter does not round to nearest."""
  rows = 1.75 * 0.5 ** torch.randint_like(numbers, 4) * numbers.sign()
  rows[..., 0] = 1.75
  return rows


class Sizes:
  def __init__(self, dtype=torch.float32, cache=None, heads=2, group=2, size=16, pages=9):
    self.dtype, self.cache = dtype, cache or dtype
    self.heads, self.group, self.size, self.pages = heads, group, size, pages

  def model(self, function, window=0, softcap=None, sinks=False):
    shape = self.pages, self.heads, PAGE
    buffers = {}
    for name in ("keys", "values"):
      numbers = torch.randn(*shape, self.size)
      if caches.is_rounded(self.cache):
        numbers, buffers[f"{name}_scales"] = caches.rounded(numbers, self.cache)
      buffers[name] = numbers.to(self.cache)
    if sinks:
      buffers["sinks"] = torch.randn(self.heads * self.group).to(self.dtype)
    model = FunctionModule(function, **buffers)
    model.window, model.softcap = window, softcap
    return model

  def tokens(self, batch, count):
    heads = self.heads * self.group, self.heads, self.heads
    drawn = [torch.randn(batch, each, count, self.size) for each in heads]
    if self.cache == torch.float8_e4m3fn:
      drawn[1:] = map(exact_in_fp8, drawn[1:])
    return [one.to(self.dtype) for one in drawn]

  def chunk(self, count, position, *table):
    return *self.tokens(1, count), position, torch.tensor(table)

  def several(self, count, positions, *table):
    return *self.tokens(len(positions), count), torch.tensor(positions), torch.tensor(table)


def check(folder, model, calls, shapes, tolerance):
  """Compares calls, one after another on the same caches, with those of eager mode. A batch whose
  table has zeros alone takes no part. Only attention reads caches."""
  eager = copy.deepcopy(model)
  right = [eager(*call) for call in calls]
  names = list(shapes)
  runs = [dict(zip(names, call)) for call in calls]
  found = computed(model, calls[0], shapes, runs, folder)
  text = (folder / "model.hir").read_text()
  readers = re.findall(r"launch (\S+)(?=[^\n]*(?:read|both) (?:keys|values)\b)", text)
  assert readers and all(re.search(r"attention_\S*pages", name) for name in readers), readers
  for call, result, wanted in zip(calls, found, right, strict=True):
    table = call[-1] if call[-1].dim() == 2 else call[-1][None]
    takes_part = table.any(1)
    close(next(iter(result.values()))[takes_part], wanted[takes_part], tolerance)
  return text


DIM = torch.export.Dim
DYNAMIC = DIM.DYNAMIC


def of_chunks(most=64):
  count, columns = DIM("count", min=1, max=most), DIM("columns", min=1, max=8)
  new = {2: count}
  return dict(q=new, k=new, v=new, position=DYNAMIC, table={0: columns})


def of_several():
  batch, columns = DIM("batch", min=1, max=4), DIM("columns", min=1, max=8)
  new = {0: batch}
  return dict(q=new, k=new, v=new, positions={0: batch}, table={0: batch, 1: columns})


CHUNKS = {
  "f32": dict(),
  "window": dict(window=70),
  "sinks": dict(sinks=True, window=21),
  "a largest score": dict(softcap=3.0, dtype=torch.bfloat16),
  "bf16, size 128": dict(dtype=torch.bfloat16, size=128, group=1),
  "f16, size 96": dict(dtype=torch.float16, size=96),
  "int8": dict(cache=torch.int8, heads=1, group=4),
  "fp8, bf16, size 64": dict(cache=torch.float8_e4m3fn, dtype=torch.bfloat16, size=64),
  "int8, sinks, a largest score": dict(cache=torch.int8, sinks=True, softcap=2.0),
}


def parted(options):
  """Options of `Sizes`, and those of its models."""
  of_model = {name: options[name] for name in ("window", "softcap", "sinks") if name in options}
  return Sizes(**{name: one for name, one in options.items() if name not in of_model}), of_model


@pytest.mark.parametrize("name", CHUNKS)
def test_chunks(name, tmp_path):
  torch.manual_seed(0)
  sizes, of_model = parted(CHUNKS[name])
  calls = [
    sizes.chunk(5, 0, 3, 7),
    sizes.chunk(64, 5, 3, 7),  # over the border of a page
    sizes.chunk(1, 69, 3, 7),
    sizes.chunk(60, 70, 3, 7, 2, 1),  # pages that no token sees yet
    sizes.chunk(1, 0, 8),
    sizes.chunk(64, 0, 6),
  ]
  check(tmp_path, sizes.model(chunk, **of_model), calls, of_chunks(), TOLERANCES[sizes.dtype])


def test_long_chunks_copy_pages(tmp_path):
  """Which takes less time than to read them in each block of queries."""
  torch.manual_seed(0)
  sizes = Sizes(dtype=torch.bfloat16, size=32)
  calls = [sizes.chunk(300, 20, 8, 1, 6, 3, 5), sizes.chunk(1, 0, 4)]
  model, shapes = sizes.model(chunk), of_chunks(512)
  eager = copy.deepcopy(model)
  right = [eager(*call) for call in calls]
  found = computed(model, calls[0], shapes, [dict(zip(shapes, call)) for call in calls], tmp_path)
  for result, wanted in zip(found, right, strict=True):
    close(next(iter(result.values())), wanted, 3e-2)
  text = (tmp_path / "model.hir").read_text()
  assert re.search(r"launch \S*attention_", text) and "_pages" not in text


SEVERAL = {
  "f32": dict(),
  "window, bf16": dict(window=21, dtype=torch.bfloat16),
  "int8, sinks": dict(cache=torch.int8, sinks=True),
  "fp8, f16, size 256": dict(cache=torch.float8_e4m3fn, dtype=torch.float16, size=256, heads=1),
  "a largest score, bf16": dict(softcap=3.0, dtype=torch.bfloat16, size=64),
}


@pytest.mark.parametrize(
  "name, count",
  # The kernel of a step takes one token, if the cache has no codes.
  [(name, 4) for name in SEVERAL] + [(name, 1) for name in SEVERAL if "cache" in SEVERAL[name]],
)
def test_several_tokens_of_each_sequence(name, count, tmp_path):
  torch.manual_seed(0)
  sizes, of_model = parted(SEVERAL[name])
  calls = [
    sizes.several(count, [0, 62, 130], [3, 0, 0], [5, 1, 0], [8, 4, 2]),
    sizes.several(count, [64, 62, 0], [3, 7], [5, 1], [0, 0]),  # the last takes no part
    sizes.several(count, [1, 100], [6, 0], [5, 1]),
  ]
  model = sizes.model(several, **of_model)
  text = check(tmp_path, model, calls, of_several(), TOLERANCES[sizes.dtype])
  assert "index out of bounds: 0 <= page < 9" in text


@pytest.mark.parametrize("options", [dict(sinks=True), dict(softcap=2.0, sinks=True, window=40)])
@pytest.mark.parametrize("parts", [1, 4])
def test_steps_with_sinks_and_a_largest_score(parts, options, tmp_path, monkeypatch):
  torch.manual_seed(0)
  monkeypatch.setattr(step_launch, "_KEYS_OF_A_PART", 16)
  monkeypatch.setattr(step_launch, "_MOST_PARTS", parts)
  sizes = Sizes(dtype=torch.bfloat16)
  calls = [
    sizes.several(1, [0, 62, 130], [3, 0, 0], [5, 1, 0], [8, 4, 2]),
    sizes.several(1, [1, 63], [3, 0], [5, 1]),
  ]
  text = check(tmp_path, sizes.model(several, **options), calls, of_several(), 3e-2)
  assert re.search(r"launch \S*attention_step_\S*pages", text)


def test_a_page_that_the_cache_does_not_have(tmp_path):
  """A number beyond the pages reads page 0, and the next call is right."""
  torch.manual_seed(0)
  sizes = Sizes(pages=5)
  model = sizes.model(several)
  last = sizes.several(4, [66], [1, 2])
  calls = [sizes.several(4, [3], [1, 5]), sizes.several(4, [3], [1, -1]), last]
  runs = [dict(zip(of_several(), call)) for call in calls]
  eager = copy.deepcopy(model)
  right = [eager(*call[:-1], torch.tensor([[1, 0]])) for call in calls[:2]] + [eager(*last)]
  found = computed(model, calls[0], of_several(), runs, tmp_path)
  for result, wanted in zip(found, right, strict=True):
    close(next(iter(result.values())), wanted, 1e-5)


def test_asserts_that_are_traps_leave_pages_to_the_program(tmp_path):
  """Only a status tells that a page is wrong, which the kernel of attention knows."""
  sizes = Sizes()
  call = sizes.several(4, [3, 25], [1, 0], [7, 2])
  options = {"dynamic_shapes": of_several(), "targets": ("cuda:h200",), "asserts": "trap"}
  text = husk.write(sizes.model(several), call, tmp_path, **options).read_text()
  assert re.search(r"launch \S*attention_", text) and "_pages" not in text


def test_pages_that_are_not_whole_tiles_are_gathered(tmp_path, monkeypatch):
  torch.manual_seed(0)
  monkeypatch.setattr(steps, "PAGE", 24)
  monkeypatch.setattr(sys.modules[__name__], "PAGE", 24)
  sizes = Sizes()
  call = sizes.several(4, [3, 25], [1, 0], [7, 2])
  model = sizes.model(several)
  right = copy.deepcopy(model)(*call)
  names = list(of_several())
  (found,) = computed(model, call, of_several(), [dict(zip(names, call))], tmp_path)
  close(next(iter(found.values())), right, 1e-5)
  text = (tmp_path / "model.hir").read_text()
  assert re.search(r"launch \S*attention_", text) and "_pages" not in text
