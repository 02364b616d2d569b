"""Attention of a step of decoding (attention/step.py): what becomes the operator, and what programs
with it compute by Triton's interpreter."""

import copy
import re
import sys

import husk
import pytest
import torch
from cuda_numerics import close, computed
from function_module import FunctionModule
from husk.attention import bounds, operator, paged, step, step_launch
from husk.language import caches, hooks, steps
from torch.nn import functional as F

SDPA = F.scaled_dot_product_attention
ATEN = torch.ops.aten
NAMES = ("q", "k", "v", "place", "cosine", "sine", "span")


def turned(x, cosine, sine):
  one, other = x.chunk(2, -1)
  return x * cosine + torch.cat([-other, one], -1) * sine


def turned_by_slices(x, cosine, sine):
  half = x.shape[-1] // 2
  return (torch.cat((-x[..., half:], x[..., :half]), dim=-1) * sine) + x * cosine


def one_place(self, q, k, v, place, cosine, sine):
  """A token of each batch, all at one place."""
  self.keys.index_copy_(2, place, turned(k, cosine, sine))
  self.values.index_copy_(2, place, v)
  mask = torch.arange(self.keys.shape[2])[None] <= place[:, None]
  return SDPA(turned(q, cosine, sine), self.keys, self.values, mask, enable_gqa=True)


def slots(self, q, k, v, place, cosine, sine, span):
  """A token of each of the first slots, each at a place of its own. A number is added to scores."""
  torch._check(span < self.keys.shape[2])
  rows = torch.arange(q.shape[0])[:, None]
  k, q = (turned_by_slices(x, cosine, sine) for x in (k, q))
  ATEN.index_put_(self.keys, (rows, None, place[:, None]), k.transpose(1, 2))
  ATEN.index_put_(self.values, (rows, None, place[:, None]), v.transpose(1, 2))
  keys, values = (x[: q.shape[0], :, :span] for x in (self.keys, self.values))
  mask = torch.where(torch.arange(span)[None] <= place[:, None], 0.5, float("-inf")).to(q.dtype)
  return SDPA(q, keys, values, mask[:, None, None], enable_gqa=True)


def any_slot(self, q, k, v, place, cosine, sine, span, slot):
  """A token of one slot, whose number is an input."""
  torch._check(span < self.keys.shape[2])
  torch._check(slot >= 0)
  torch._check(slot < self.keys.shape[0])
  places = place[:, None]
  rows = torch.zeros_like(places) + slot
  k, q = (turned(x, cosine, sine) for x in (k, q))
  ATEN.index_put_(self.keys, (rows, None, places), k.transpose(1, 2))
  ATEN.index_put_(self.values, (rows, None, places), v.transpose(1, 2))
  keys, values = (x[slot : slot + 1, :, :span] for x in (self.keys, self.values))
  seen = torch.arange(span)[None, None, None] <= place[:, None, None, None]
  return SDPA(q, keys, values, seen, enable_gqa=True)


def window(self, q, k, v, place, cosine, sine, span):
  """Slots of which each sees its last five positions."""
  torch._check(span < self.keys.shape[2])
  rows = torch.arange(q.shape[0])[:, None]
  ATEN.index_put_(self.keys, (rows, None, place[:, None]), k.transpose(1, 2))
  ATEN.index_put_(self.values, (rows, None, place[:, None]), v.transpose(1, 2))
  keys, values = (x[: q.shape[0], :, :span] for x in (self.keys, self.values))
  at, query = torch.arange(span)[None, None, None], place[:, None, None, None]
  seen = (at <= query) & (at > query - 5)
  return SDPA(q, keys, values, seen, enable_gqa=True)


def no_rotation(self, q, k, v, place):
  self.keys.index_copy_(2, place, k)
  self.values.index_copy_(2, place, v)
  return SDPA(q, self.keys, self.values, enable_gqa=True)


def model_of(function, rows, positions=40, heads=2, size=16, v_size=16, dtype=torch.float32):
  return FunctionModule(
    function,
    keys=torch.randn(rows, heads, positions, size).to(dtype),
    values=torch.randn(rows, heads, positions, v_size).to(dtype),
  )


def call(batch, place, *more, heads=2, group=3, size=16, v_size=16, dtype=torch.float32):
  def new(heads, size):
    return torch.randn(batch, heads, 1, size).to(dtype)

  angles = torch.rand(batch, 1, 1, size) * 6
  rotation = [each.to(dtype) for each in (angles.cos(), angles.sin())]
  tensors = new(heads * group, size), new(heads, size), new(heads, v_size)
  return *tensors, torch.tensor(place), *rotation, *more


def check(folder, model, calls, shapes=None, tolerance=1e-5, last="span", more=()):
  """Compares calls, one after another on the same caches, with those of eager mode."""
  eager = copy.deepcopy(model)
  right = [eager(*call) for call in calls]
  runs = [dict(zip((*NAMES[:6], last, *more), call)) for call in calls]
  found = computed(model, calls[0], shapes, runs, folder)
  text = (folder / "model.hir").read_text()
  assert re.search(r"launch \S*attention_step", text) and "write keys" not in text
  for each, result, wanted in zip(calls, found, right, strict=True):
    # A batch whose place is beyond its pages takes no part.
    takes_part = each[3] < each[-1].shape[1] * PAGE if last == "table" else slice(None)
    close(next(iter(result.values()))[takes_part], wanted[takes_part], tolerance)
  return text


@pytest.mark.parametrize(
  "dtype, tolerance", [(torch.float32, 1e-5), (torch.float16, 3e-3), (torch.bfloat16, 3e-2)]
)
def test_tokens_of_one_place(dtype, tolerance, tmp_path):
  torch.manual_seed(0)
  calls = [call(2, [at], dtype=dtype) for at in (0, 1, 17, 39, 17)]
  check(tmp_path, model_of(one_place, 2, dtype=dtype), calls, tolerance=tolerance)


@pytest.mark.parametrize("sizes", [(16, 32), (64, 16)])
def test_values_of_another_size(sizes, tmp_path):
  torch.manual_seed(0)
  size, v_size = sizes
  model = model_of(one_place, 1, size=size, v_size=v_size)
  check(tmp_path, model, [call(1, [at], size=size, v_size=v_size) for at in (5, 6)])


B = torch.export.Dim("b", min=1, max=4)
OF_SLOTS = ({0: B}, {0: B}, {0: B}, {0: B}, {0: B}, {0: B}, torch.export.Dim.DYNAMIC)


def test_slots_at_places_of_their_own(tmp_path):
  torch.manual_seed(0)
  calls = [
    call(3, [5, 0, 11], 12),
    call(3, [6, 1, 12], 13),
    call(2, [7, 2], 39),
    call(1, [-40], 3),
    call(4, [-1, 3, 13, 0], 14),  # the first place is not among those that are read
  ]
  check(tmp_path, model_of(slots, 4), calls, OF_SLOTS)


def test_one_slot(tmp_path):
  torch.manual_seed(0)
  calls = [call(1, [5], 12), call(1, [6], 7), call(1, [38], 39)]
  shapes = (*[None] * 6, torch.export.Dim.DYNAMIC)
  check(tmp_path, model_of(slots, 1), calls, shapes)


@pytest.mark.parametrize("parts", [1, 4])
def test_a_slot_whose_number_is_an_input(parts, tmp_path, monkeypatch):
  torch.manual_seed(0)
  monkeypatch.setattr(step_launch, "_parts", lambda _: parts)
  calls = [
    call(1, [at], span, slot)
    for at, span, slot in ((5, 12, 2), (6, 7, 2), (38, 39, 0), (0, 12, 3), (1, 2, 3))
  ]
  dynamic = torch.export.Dim.DYNAMIC
  text = check(
    tmp_path, model_of(any_slot, 4), calls, (*[None] * 6, dynamic, dynamic), more=("slot",)
  )
  assert "input slot int 0..3" in text


def test_rows_that_are_not_turned(tmp_path):
  torch.manual_seed(0)
  calls = [call(2, [at])[:4] for at in (0, 39)]
  text = check(tmp_path, model_of(no_rotation, 2), calls)
  assert re.search(r"^kernel \S*attention_step.* triggers_early", text, re.M)
  assert "attention_step_f32_16 " in text


def test_a_window(tmp_path):
  torch.manual_seed(0)
  calls = [call(3, [5, 0, 38], 39), call(3, [3, 4, 4], 5), call(3, [30, 5, 2], 31)]
  text = check(tmp_path, model_of(window, 3), calls, (*[None] * 6, torch.export.Dim.DYNAMIC))
  assert "attention_step_f32_16 " in text


PAGE = 16


def pages(self, q, k, v, place, cosine, sine, table):
  """A token of each slot, whose cache is in pages. Keys up to its place are seen."""
  return over_pages(self, turned(q, cosine, sine), turned(k, cosine, sine), v, place, table, None)


def window_of_pages(self, q, k, v, place, cosine, sine, table):
  """Slots of which each sees its last 21 positions."""
  return over_pages(self, q, k, v, place, table, 21)


def over_pages(self, q, k, v, place, table, size):
  torch._check(table.shape[0] == q.shape[0])
  positions = place[:, None]
  where = paged.operator()(positions, table, PAGE), None, positions % PAGE
  ATEN.index_put_(self.keys, where, k.transpose(1, 2))
  ATEN.index_put_(self.values, where, v.transpose(1, 2))
  keys, values = (paged.read(cache, table) for cache in (self.keys, self.values))
  at, query = torch.arange(table.shape[1] * PAGE)[None, None, None], place[:, None, None, None]
  seen = at <= query
  if size:
    seen = seen & (at > query - size)
  return SDPA(q, keys, values, seen, enable_gqa=True)


@pytest.mark.parametrize("dtype, tolerance", [(torch.float32, 1e-5), (torch.bfloat16, 3e-2)])
@pytest.mark.parametrize("function", [pages, window_of_pages])
@pytest.mark.parametrize("parts", [1, 4])
def test_a_cache_in_pages(function, parts, dtype, tolerance, tmp_path, monkeypatch):
  torch.manual_seed(0)
  monkeypatch.setattr(step_launch, "_KEYS_OF_A_PART", 16)
  monkeypatch.setattr(step_launch, "_MOST_PARTS", parts)
  calls = [
    call(2, [5, 40], torch.tensor([[3, 0, 0], [7, 1, 4]]), dtype=dtype),
    call(2, [15, 47], torch.tensor([[3, 0, 0], [7, 1, 4]]), dtype=dtype),
    # A second page; a page that both have; a batch that takes no part.
    call(3, [16, 33, 64], torch.tensor([[3, 6, 0], [3, 1, 4], [0, 0, 0]]), dtype=dtype),
    call(1, [1], torch.tensor([[8, 8]]), dtype=dtype),
    call(
      4, [31, 47, 0, 17], torch.tensor([[3, 6, 0], [7, 1, 4], [5, 0, 0], [2, 5, 0]]), dtype=dtype
    ),
  ]
  model = model_of(function, 9, PAGE, dtype=dtype)
  columns = torch.export.Dim("columns", min=1, max=4)
  text = check(tmp_path, model, calls, (*[{0: B}] * 6, {0: B, 1: columns}), tolerance, "table")
  assert re.search(r"launch \S*attention_step_\S*pages", text)
  assert "index out of bounds: 0 <= page < 9" in text


def test_a_page_that_the_cache_does_not_have(tmp_path):
  """It is not written, and its rows are not seen."""
  torch.manual_seed(0)
  model = model_of(pages, 4, PAGE)
  before = copy.deepcopy(model)
  first = call(1, [20], torch.tensor([[1, 3]]))
  last = call(1, [20], torch.tensor([[1, 2]]))
  calls = [
    first,
    call(1, [20], torch.tensor([[1, 4]])),
    call(1, [3], torch.tensor([[-1, 0]])),
    last,
  ]
  names = (*NAMES[:6], "table")
  found = computed(model, calls[0], None, [dict(zip(names, each)) for each in calls], tmp_path)
  before(*first)
  close(next(iter(found[-1].values())), before(*last))


def language_model(self, q, k, v, place, cosine, sine, table):
  """As `decode` of a language model with pages (language/steps.py)."""
  torch._check(table.shape[0] == q.shape[0])
  step = steps.PagedStep()
  step.positions = place[:, None]
  step.see(table)
  layer = hooks.SlotLayer(step, caches.Kept(self.keys), caches.Kept(self.values))
  keys, values = layer.update(turned(k, cosine, sine), v)
  seen = hooks.mask(
    q.shape[0],
    1,
    layer.get_mask_sizes(1)[0],
    lambda row, head, query, key: key <= query,
    layer.get_seq_length(),
  )
  return hooks.attention(None, turned(q, cosine, sine), keys, values, seen, q.shape[-1] ** -0.5)[0]


def test_language_models_with_pages(tmp_path, monkeypatch):
  torch.manual_seed(0)
  monkeypatch.setattr(sys.modules[__name__], "PAGE", steps.PAGE)
  calls = [
    call(3, [5, 63, 128], torch.tensor([[3, 0], [5, 1], [0, 0]])),
    call(3, [6, 64, 127], torch.tensor([[3, 0], [5, 2], [1, 4]])),
    call(1, [70], torch.tensor([[3, 1]])),
  ]
  columns = torch.export.Dim("columns", min=1, max=3)
  shapes = *[{0: B}] * 6, {0: B, 1: columns}
  text = check(tmp_path, model_of(language_model, 6, steps.PAGE), calls, shapes, last="table")
  assert re.search(r"launch \S*attention_step_\S*pages", text)


def pages_of_codes(self, q, k, v, place, table):
  positions = place[:, None]
  where = paged.operator()(positions, table, PAGE), None, positions % PAGE
  for name, new in (("keys", k), ("values", v)):
    ATEN.index_put_(getattr(self, name), where, new.round().to(torch.int8).transpose(1, 2))
    ATEN.index_put_(getattr(self, f"{name}_scales"), where, new[..., 0].abs().transpose(1, 2))
  keys, values = (
    paged.read(codes, table).float() * paged.read(scales, table).unsqueeze(-1)
    for codes, scales in ((self.keys, self.keys_scales), (self.values, self.values_scales))
  )
  seen = torch.arange(table.shape[1] * PAGE)[None, None, None] <= place[:, None, None, None]
  return SDPA(q, keys, values, seen, enable_gqa=True)


def pages_that_change(self, q, k, v, place, table):
  """Attention does not see what the program writes after it has read the pages."""
  keys, values = (paged.read(cache, table) for cache in (self.keys, self.values))
  self.keys.zero_()
  return SDPA(q, keys, values, enable_gqa=True) + k.sum() + v.sum() + place.sum()


def two_tables(self, q, k, v, place, table):
  keys, values = paged.read(self.keys, table), paged.read(self.values, table + 1)
  return SDPA(q, keys, values, enable_gqa=True) + k.sum() + v.sum() + place.sum()


def test_the_host_reads_pages_where_they_are(tmp_path):
  torch.manual_seed(0)
  args = call(2, [5, 20], torch.tensor([[3, 0], [7, 1]]))
  model = model_of(pages, 9, PAGE)
  text = husk.write(model, args, tmp_path / "pages", targets=("host:avx2",)).read_text()
  assert '"husk::attention_pages"' in text and "flash_attention" not in text
  scales = {f"{name}_scales": torch.rand(9, 2, PAGE) for name in ("keys", "values")}
  codes = {name: torch.zeros(9, 2, PAGE, 16, dtype=torch.int8) for name in ("keys", "values")}
  args = *args[:4], args[-1]
  model = FunctionModule(pages_of_codes, **codes, **scales)
  text = husk.write(model, args, tmp_path / "codes", targets=("host:avx2",)).read_text()
  assert '"husk::attention_pages"' in text and "attention_codes" not in text
  for function in (pages_that_change, two_tables):
    model = model_of(function, 9, PAGE)
    folder = tmp_path / function.__name__
    text = husk.write(model, args, folder, targets=("host:avx2",)).read_text()
    assert "attention_pages" not in text and "flash_attention" in text


@pytest.mark.parametrize("heads, group", [(2, 3), (1, 1)])
def test_parts_of_the_keys(heads, group, tmp_path, monkeypatch):
  """Of five parts, as many have keys as there are places to see."""
  torch.manual_seed(0)
  monkeypatch.setattr(step_launch, "_KEYS_OF_A_PART", 16)
  monkeypatch.setattr(step_launch, "_MOST_PARTS", 5)
  kinds = {"heads": heads, "group": group}
  calls = [call(2, [at], **kinds) for at in (0, 15, 16, 31, 32, 70, 98, 99)]
  text = check(tmp_path, model_of(one_place, 2, positions=100, heads=heads), calls)
  assert re.search(r"state husk.counters i32 \[\d\] fill 0", text)
  assert re.search(r"launch \S*attention_step\S* grid \(\d, 5, 1\)", text), text[-3000:]


def test_a_place_that_the_cache_does_not_have(tmp_path):
  """It is not written, and the result is that of the keys that are there."""
  torch.manual_seed(0)
  model = model_of(one_place, 1)
  before = copy.deepcopy(model)
  last = call(1, [39])
  calls = [call(1, [40]), call(1, [-1]), last]
  found = computed(model, calls[0], None, [dict(zip(NAMES, each)) for each in calls], tmp_path)
  close(next(iter(found[-1].values())), before(*last))
  text = (tmp_path / "model.hir").read_text()
  assert "attention_step_f32_16_rotary: index out of bounds: 0 <= position < 40" in text


# Masks


def test_masks_of_positions():
  def bound(function, *shape):
    count = shape[-1]
    model = FunctionModule(lambda self, place: function(torch.arange(count), place).expand(shape))
    program = torch.export.export(model, (torch.arange(shape[0]),))
    nodes = list(program.graph.nodes)
    (mask,) = nodes[-1].args[0]
    place = next(node for node in nodes if node.op == "placeholder")
    return bounds.window(mask, place, count)

  def column(place):
    return place[:, None, None, None]

  shape = 3, 1, 1, 8
  assert bound(lambda at, place: at <= column(place), *shape) == 0
  assert bound(lambda at, place: column(place) >= at, *shape) == 0
  assert bound(lambda at, place: at[None] <= place[:, None], 1, 8) == 0
  assert bound(lambda at, place: (at <= column(place)) & (at > column(place) - 4), *shape) == 4

  def everywhere(at, place):
    return at.new_ones(1, dtype=torch.bool) & (at <= column(place))

  assert bound(everywhere, *shape) == 0
  assert bound(lambda at, place: at <= column(place) + torch.arange(1), *shape) == 0
  for other in (
    lambda at, place: at < column(place),
    lambda at, place: at >= column(place),
    lambda at, place: at > column(place) - 4,
    lambda at, place: (at <= column(place)) | (at == 0),
    lambda at, place: at <= column(place) - 1,
    lambda at, place: at + 1 <= column(place),
    lambda at, place: at <= column(place) + 1,
    lambda at, place: at * 2 <= column(place),
    lambda at, place: at <= column(place.flip(0)),
    lambda at, place: (at <= column(place)) & (at > column(place) - 4) & (at > column(place) - 3),
  ):
    assert bound(other, *shape) == -1


# Calls of attention that stay as they are


def read_again(self, q, k, v, place):
  self.keys.index_copy_(2, place, k)
  self.values.index_copy_(2, place, v)
  return SDPA(q, self.keys, self.values, enable_gqa=True) + self.keys.sum()


def other_places(self, q, k, v, place):
  self.keys.index_copy_(2, place, k)
  self.values.index_copy_(2, place + 1, v)
  return SDPA(q, self.keys, self.values, enable_gqa=True)


def read_from_the_second(self, q, k, v, place):
  self.keys.index_copy_(2, place, k)
  self.values.index_copy_(2, place, v)
  return SDPA(q, self.keys[:, :, 1:], self.values[:, :, 1:], enable_gqa=True)


def accumulated(self, q, k, v, place):
  rows = torch.arange(2)[:, None]
  places = place[:, None] + rows * 0
  ATEN.index_put_(self.keys, (rows, None, places), k.transpose(1, 2), True)
  ATEN.index_put_(self.values, (rows, None, places), v.transpose(1, 2), True)
  return SDPA(q, self.keys, self.values, enable_gqa=True)


def other_rows(self, q, k, v, place):
  rows = torch.tensor([[1], [0]])
  places = place[:, None] + rows * 0
  ATEN.index_put_(self.keys, (rows, None, places), k.transpose(1, 2))
  ATEN.index_put_(self.values, (rows, None, places), v.transpose(1, 2))
  return SDPA(q, self.keys, self.values, enable_gqa=True)


def only_the_query_is_turned(self, q, k, v, place):
  self.keys.index_copy_(2, place, k)
  self.values.index_copy_(2, place, v)
  turned_query = turned(q, self.cosine, self.cosine)
  return SDPA(turned_query, self.keys, self.values, enable_gqa=True)


def the_new_key_is_written_later(self, q, k, v, place):
  k = k + 0
  self.keys.index_copy_(2, place, k)
  self.values.index_copy_(2, place, v)
  k.zero_()
  return SDPA(q, self.keys, self.values, enable_gqa=True) + k.sum()


def the_place_is_written_later(self, q, k, v, place):
  at = place + 0
  self.keys.index_copy_(2, at, k)
  self.values.index_copy_(2, at, v)
  at.add_(1)
  return SDPA(q, self.keys, self.values, enable_gqa=True) + at


@pytest.mark.parametrize(
  "function",
  [
    the_new_key_is_written_later,
    the_place_is_written_later,
    read_again,
    other_places,
    read_from_the_second,
    accumulated,
    other_rows,
    only_the_query_is_turned,
  ],
)
def test_other_forms_stay(function):
  model = model_of(function, 2)
  model.register_buffer("cosine", torch.rand(16))
  with torch.no_grad():
    program = torch.export.export(model, call(2, [3])[:4])
  program = operator.rewrite(program, None)
  assert step.rewrite(program) is program


def test_a_head_that_is_no_power_of_two_stays():
  with torch.no_grad():
    program = torch.export.export(model_of(no_rotation, 2, size=24), call(2, [3], size=24)[:4])
  program = operator.rewrite(program, None)
  assert step.rewrite(program) is program
