"""The attention kernel for compute capability 9.0 over a table of shapes, run by
gluon_interpreter.py and compared with attention written out in f64. The tests also plant one
mistake at a time in the kernel's text, and each mistake must be detected."""

import math
import pathlib
import re

import pytest
import torch

HERE = pathlib.Path(__file__).resolve().parent
import gluon_interpreter  # noqa: E402
from attention_reference import difference, expected, laid_out  # noqa: E402
from gluon_machine import Deadlock, Machine, Race  # noqa: E402
from gluon_values import Scalar  # noqa: E402

TEXT = (
  HERE.parents[2] / "compiler" / "torch" / "husk" / "attention" / "hopper_kernel.py"
).read_text()
CASES = {
  "plain": {},
  "one query, one key": dict(queries=1, keys=1),
  "one query": dict(queries=1, keys=300),
  "no queries": dict(queries=0),
  "no keys": dict(queries=5, keys=0, heads=2),
  "no keys, causal": dict(queries=5, keys=0, causal=True, group=2),
  "whole tiles": dict(queries=128, keys=128),
  "whole tiles, causal": dict(queries=256, keys=256, causal=True),
  "a row more than a tile": dict(queries=129, keys=65),
  "a row more than half of a tile": dict(queries=65, keys=129, causal=True),
  "half of a tile": dict(queries=64, keys=64, causal=True),
  "causal": dict(queries=300, keys=300, causal=True, heads=2),
  "causal, more keys": dict(queries=70, keys=300, causal=True),
  "causal, fewer keys": dict(queries=300, keys=70, causal=True),
  "more keys": dict(queries=20, keys=500),
  "size 128": dict(size=128, queries=150, keys=150),
  "size 128, causal": dict(size=128, queries=200, keys=200, causal=True, heads=2),
  "size 128, causal, groups, rows": dict(
    size=128, queries=70, keys=70, causal=True, group=4, layout="rows"
  ),
  "groups of 2": dict(group=2, queries=100, keys=80),
  "groups of 3, causal": dict(group=3, queries=100, keys=100, causal=True, heads=2),
  "groups of 4, causal": dict(group=4, queries=75, keys=75, causal=True),
  "groups of 3, one query": dict(group=3, queries=1, keys=90, heads=3, batch=2),
  "batches": dict(batch=3, heads=2, queries=40, keys=60),
  "batches, groups, causal": dict(
    batch=2, heads=3, group=2, queries=90, keys=90, causal=True, layout="rows"
  ),
  "rows": dict(layout="rows", heads=3, batch=2, queries=33, keys=70),
  "no log-sum-exp": dict(lse=False, queries=140, keys=70),
  "sections of a head": dict(programs=1, queries=200, keys=200, heads=3, causal=True),
  "sections of two heads, the last of three": dict(
    programs=2, queries=200, keys=200, heads=5, causal=True
  ),
  "a section of all heads": dict(programs=4, queries=40, keys=40, heads=7, causal=True),
  "sections of less than two turns": dict(
    programs=4, queries=130, keys=130, batch=2, heads=4, group=3, causal=True
  ),
  "a head of more than two turns": dict(
    programs=4, queries=300, keys=100, heads=2, group=4, causal=True
  ),
  "one block": dict(programs=1, heads=3, queries=150, keys=150, causal=True),
  "three blocks": dict(programs=3, heads=3, batch=2, queries=150, keys=150, causal=True),
  "three blocks, groups": dict(programs=3, heads=3, group=2, queries=150, keys=50),
  "more blocks than tiles": dict(programs=132, heads=2, queries=150, keys=100, causal=True),
  "3 stages": dict(stages=3, queries=200, keys=450, programs=1),
  "3 stages, causal": dict(stages=3, queries=300, keys=300, causal=True, heads=2, programs=2),
  "a stage": dict(stages=1, queries=200, keys=300, causal=True, programs=1),
  "wide tiles": dict(block_n=128, queries=150, keys=300),
  "wide tiles, causal": dict(block_n=128, queries=300, keys=300, causal=True, group=2),
  "wide tiles, size 128, causal": dict(block_n=128, size=128, queries=200, keys=200, causal=True),
  "wide tiles, 3 stages, size 128": dict(
    block_n=128, size=128, stages=3, queries=20, keys=500, layout="rows"
  ),
  "keys before": dict(queries=150, keys=330, causal=True, ahead=180, heads=2),
  "keys before and after": dict(queries=150, keys=400, causal=True, ahead=70, group=2),
  "keys before, fewer keys": dict(queries=150, keys=200, causal=True, ahead=170, block_n=128),
  "a scale": dict(scale=0.9),
  "large scores": dict(scale=30.0, causal=True, queries=70, keys=70),
  "bf16": dict(dtype="bfloat16", queries=150, keys=150),
  "bf16, size 128, causal, groups": dict(
    dtype="bfloat16", size=128, queries=70, keys=70, causal=True, group=3, heads=2
  ),
}
TOLERANCES = {"float16": 3e-3, "bfloat16": 2e-2}


def differences(
  text=TEXT,
  batch=1,
  heads=1,
  group=1,
  queries=130,
  keys=130,
  size=64,
  dtype="float16",
  layout="heads",
  lse=True,
  causal=False,
  ahead=0,
  scale=None,
  programs=3,
  stages=2,
  block_n=64,
  order=0,
):
  """The largest of the result and of the log-sum-exp; those of what lies around them too, which
  must be left alone."""
  torch.manual_seed(0)
  kind, q_heads, scale = getattr(torch, dtype), heads * group, scale or size**-0.5
  q = laid_out((batch, q_heads, queries, size), kind, layout)
  k = laid_out((batch, heads, keys, size), kind, layout)
  v = laid_out((batch, heads, keys, size), kind, layout)
  around = torch.full((batch + 1, queries + 3, q_heads, size + 16), 7.0, dtype=kind)
  out = around[1:, 2 : queries + 2, :, 8 : size + 8].transpose(1, 2)
  weights = torch.full((batch * q_heads * queries + 10,), 7.0)
  inner = weights[5:-5].view(batch, q_heads, queries)
  out.fill_(float("nan"))
  inner.fill_(float("nan"))
  gluon_interpreter.launch(
    text,
    "attention_hopper",
    programs,
    [
      q,
      k,
      v,
      out,
      inner if lse else None,
      scale * math.log2(math.e),
      queries,
      keys,
      ahead,
      batch * heads,
      *q.stride()[:3],
      *k.stride()[:3],
      *v.stride()[:3],
      *out.stride()[:3],
      heads,
      group,
      causal,
      size,
      block_n,
      stages,
      240,
    ],
    order,
  )
  result, sums = expected(q, k, v, None, causal, scale, ahead=ahead)
  found = [difference(out, result), difference(inner, sums) if lse else 0.0]
  assert lse or inner.isnan().all()
  out.fill_(7.0)
  inner.fill_(7.0)
  return [*found, difference(around, torch.tensor(7.0)), difference(weights, torch.tensor(7.0))]


def right(found, dtype="float16"):
  return found[0] < TOLERANCES[dtype] and found[1] < 1e-3 and found[2:] == [0.0, 0.0]


@pytest.mark.parametrize("name", CASES)
def test_kernel(name):
  found = differences(**CASES[name])
  assert right(found, CASES[name].get("dtype", "float16")), found


@pytest.mark.parametrize("order", range(1, 13))
@pytest.mark.parametrize("stages", [2, 3])
def test_results_are_right_in_any_order_of_execution(order, stages):
  found = differences(
    order=order, stages=stages, heads=2, queries=150, keys=200, causal=True, programs=1
  )
  assert right(found), found


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("programs", [1, 2, 3, 8, 132])
def test_every_tile_is_computed_once(programs, causal):
  machine = Machine(programs, 0)
  names = gluon_interpreter.load(TEXT, machine)
  for tiles, pairs in (
    (0, 1),
    (1, 0),
    (1, 1),
    (1, 2),
    (1, 400),
    (2, 5),
    (3, 3),
    (7, 20),
    (8, 33),
    (32, 16),
    (100, 2),
    (300, 1),
  ):
    places, arguments = [], (Scalar(tiles), Scalar(pairs), causal)
    for turn in range(names["_turns"](*arguments)):
      for machine.program in range(programs):
        mine, *place = names["_place"](Scalar(turn), *arguments)
        places += [tuple(place)] if mine else []
    assert sorted(places) == [(tile, pair) for tile in range(tiles) for pair in range(pairs)]


def lines(*parts):
  """Lines of the kernel, indented like the first of them is there."""
  indentation = re.search("^ *(?=" + re.escape(parts[0]) + ")", TEXT, re.M).group()
  return f"\n{indentation}".join(parts)


K_WAIT = "mbarrier.wait(barriers.index(2 * STAGES + stage), phase)"
V_WAIT = "mbarrier.wait(barriers.index(3 * STAGES + stage), phase)"
K_THERE = "mbarrier.wait(barriers.index(stage), phase)"
V_THERE = "mbarrier.wait(barriers.index(STAGES + stage), phase)"
Q_THERE = "mbarrier.wait(barriers.index(4 * STAGES + WHICH), turn_phase)"
Q_WAIT = "mbarrier.wait(barriers.index(4 * STAGES + 2 + half), turn_phase)"
K_DONE = "mbarrier.arrive(barriers.index(2 * STAGES + stage), count=1)"
V_DONE = "mbarrier.arrive(barriers.index(3 * STAGES + stage), count=1)"
Q_DONE = "mbarrier.arrive(barriers.index(4 * STAGES + 2 + WHICH), count=1)"
K_ARRIVES = "async_copy.mbarrier_arrive(barriers.index(stage), increment_count=False)"
V_ARRIVES = "async_copy.mbarrier_arrive(barriers.index(STAGES + stage), increment_count=False)"
SCORES = """scores = warpgroup_mma(q_tile, k_tiles.index(stage).permute((1, 0)), nothing,
                               use_acc=False, is_async=True)"""
V_PRODUCT = "result = warpgroup_mma(exponentials, v_tiles.index(stage), result, is_async=True)"
FENCE = "fence_async_shared()"
WRONG = "wrong values"
UNORDERED = (Race, Deadlock)  # which of them comes first depends on the order
MISTAKES = {  # name: (text, what it is replaced by, what is seen, a case if another than SEEN_IN)
  "no wait for k": (K_THERE, "pass", Race),
  "no wait for v": (V_THERE, "pass", Race),
  # whoever waits for k has waited for q, which was copied first
  "no wait for q": (Q_THERE, "pass", UNORDERED, dict(keys=0)),
  "no wait for a free tile of k": (K_WAIT, "pass", Race),
  "no wait for a free tile of v": (V_WAIT, "pass", Race),
  "no wait for free rows of q": (Q_WAIT, "pass", Race),
  "k, the other parity": (K_THERE, K_THERE.replace("phase", "phase ^ 1"), UNORDERED),
  "v, the other parity": (V_THERE, V_THERE.replace("phase", "phase ^ 1"), UNORDERED),
  "q, the other parity": (Q_THERE, Q_THERE.replace("phase", "phase ^ 1"), UNORDERED),
  "a free tile of k, the other parity": (K_WAIT, K_WAIT.replace("phase", "phase ^ 1"), Deadlock),
  "a free tile of v, the other parity": (V_WAIT, V_WAIT.replace("phase", "phase ^ 1"), Deadlock),
  "free rows of q, the other parity": (Q_WAIT, Q_WAIT.replace("phase", "phase ^ 1"), Deadlock),
  "the parity never turns": ("gl.where(again, phase ^ 1, phase)", "phase", UNORDERED),
  "the stage never turns": ("gl.where(again, 0, stage), ", "stage, ", IndexError),
  "k is never free": (K_DONE, "pass", Deadlock),
  "v is never free": (V_DONE, "pass", Deadlock),
  "q is never free": (Q_DONE, "pass", Deadlock),
  "k is free too early": (SCORES, lines(SCORES, K_DONE), UNORDERED),
  "k is free before its product": (K_THERE, lines(K_THERE, K_DONE), UNORDERED),
  "k is free for one reader": (K_DONE, K_DONE.replace("=1", "=2"), UNORDERED),
  "v is free for one reader": (V_DONE, V_DONE.replace("=1", "=2"), UNORDERED),
  "free tiles count one reader": (
    "2 * STAGES + i), count=2",
    "2 * STAGES + i), count=1",
    UNORDERED,
  ),
  "tiles that are there count half of the threads": (
    "index(i), count=128",
    "index(i), count=64",
    AssertionError,
  ),
  "rows of q that are there count more threads": (
    "4 * STAGES + i), count=128",
    "4 * STAGES + i), count=256",
    Deadlock,
  ),
  "nobody says that k is there": (K_ARRIVES, "pass", UNORDERED),
  "nobody says that v is there": (V_ARRIVES, "pass", UNORDERED),
  "k is there, says the next stage's barrier": (
    K_ARRIVES,
    K_ARRIVES.replace("(stage)", "((stage + 1) % STAGES)"),
    UNORDERED,
  ),
  "v is there, says the next barrier": (
    V_THERE,
    V_THERE.replace("+ stage", "+ stage + 1"),
    UNORDERED,
  ),
  "v of the next stage": (
    "v_tiles.index(stage), result",
    "v_tiles.index((stage + 1) % STAGES), result",
    Race,
  ),
  "q of the other half": ("q_tile = q_rows.index(WHICH)", "q_tile = q_rows.index(1 - WHICH)", Race),
  "v is multiplied before it is waited for": (
    lines(V_THERE, FENCE, V_PRODUCT),
    f"{FENCE}; {V_PRODUCT}; {V_THERE}",
    Race,
  ),
  "scores are not waited for": (
    "scores = warpgroup_mma_wait(0, deps=[scores])",
    "pass",
    AssertionError,
  ),
  "results are not waited for": (
    "result = warpgroup_mma_wait(0, deps=[result])",
    "pass",
    AssertionError,
  ),
  "one product may be under way": (
    "wait(0, deps=[result])",
    "wait(1, deps=[result])",
    AssertionError,
  ),
  "no fences": (FENCE, "pass", Race),
  "a fence in front of the wait": (lines(V_THERE, FENCE), f"{FENCE}; {V_THERE}", Race),
  "a copy without a mask": ("if limit < row.shape[0]:", "if False:", IndexError),
  "rows behind the last of q": (
    "row = gl.minimum(row, queries * GROUP - 1)",
    "row += 0",
    IndexError,
  ),
  "rows behind the last are stored": (
    "mask=(row <= last)[:, None] & (column >= 0)[None, :])",
    "mask=None)",
    IndexError,
  ),
  "a row behind the last is stored": (
    "mask=(row <= last)[:, None] & (column",
    "mask=(row <= last + 1)[:, None] & (column",
    WRONG,
  ),
  "sums behind the last are stored": (
    "0.6931471805599453, mask=row <= last)",
    "0.6931471805599453)",
    (AssertionError, IndexError),
  ),
  "scores behind the last key": ("if i * BLOCK_N >= whole:", "if False:", WRONG),
  "a key too many": (
    "sees = gl.minimum(keys, query + 1 + ahead)",
    "sees = gl.minimum(keys, query + 2 + ahead)",
    WRONG,
  ),
  "whole tiles that are not": (
    "whole = gl.minimum(keys, tile * 128 // GROUP + 1 + ahead)",
    "whole = keys",
    WRONG,
  ),
  "a tile of keys too few": (
    "return gl.cdiv(end, BLOCK_N), whole",
    "return end // BLOCK_N, whole",
    WRONG,
  ),
  "the old scale of the sum": ("total = total * shrunk", "total = total", WRONG),
  "the old scale of the result": (
    "convert_layout(shrunk,",
    "convert_layout(shrunk * 0.0 + 1.0,",
    WRONG,
  ),
  "other tiles in backward turns": ("blocks - 1 - at", "blocks - at", WRONG, dict(programs=3)),
  "a turn too few": (
    "+ gl.cdiv(last * tiles_of_head, blocks)",
    "+ last * tiles_of_head // blocks",
    WRONG,
    dict(programs=3),
  ),
  "more tiles than there are": (
    "return at < heads * tiles_of_head",
    "return at <= heads * tiles_of_head",
    (AssertionError, IndexError),
    dict(programs=3),
  ),
  "tiles that nobody makes": (
    "return at < heads * tiles_of_head",
    "return at + 1 < heads * tiles_of_head",
    WRONG,
  ),
  "the heads of the first section again": ("before = pairs - heads", "before = 0", AssertionError),
}
SEEN_IN = dict(heads=2, queries=150, keys=130, causal=True, programs=1)


@pytest.mark.parametrize("order", [0, 1, 2])
@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_in_the_kernel_are_detected(name, order):
  old, new, seen, *case = MISTAKES[name]
  text = TEXT.replace(old, new)
  assert text != TEXT
  case = {**SEEN_IN, **(case[0] if case else {}), "order": order}
  if seen == WRONG:
    assert not right(differences(text, **case))
  else:
    with pytest.raises(seen):
      differences(text, **case)


def test_cases_of_mistakes_pass_without_the_mistake():
  for changed in ({}, dict(keys=0), dict(programs=3)):
    assert right(differences(**{**SEEN_IN, **changed}))


def test_deadlock_error_names_the_waiting_group():
  with pytest.raises(
    Deadlock, match=r"_compute \(1\) waits for parity 1 of barrier 0, .* of 128 to come"
  ):
    differences(TEXT.replace(K_DONE, "pass"), **SEEN_IN)


def test_an_order_is_reproducible():
  text, seen = TEXT.replace(K_WAIT, "pass"), set()
  for order in (3, 3):
    with pytest.raises(Race) as error:
      differences(text, **SEEN_IN, order=order)
    seen.add(str(error.value))
  assert len(seen) == 1
