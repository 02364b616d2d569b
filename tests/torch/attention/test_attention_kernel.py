"""The attention kernels over a table of shapes, by Triton's interpreter
(attention_interpreter.py)."""

import json
import os
import subprocess
import sys

import built_tools
import pytest
from husk.attention import tiles
from husk.cuda import fake_cuda

CASES = {
  "plain": {},
  "one number": dict(queries=1, keys=1, heads=1, size=1),
  "no keys": dict(queries=3, keys=0),
  "no queries": dict(queries=0),
  "whole blocks": dict(queries=32, keys=64),
  "whole blocks, causal": dict(queries=32, keys=64, causal=True),
  "causal": dict(batch=2, queries=37, keys=37, causal=True),
  "causal, more keys": dict(queries=5, keys=61, causal=True),
  "causal, fewer keys": dict(queries=61, keys=5, causal=True),
  "keys before": dict(batch=2, queries=37, keys=61, causal=True, ahead=24),
  "keys before and after": dict(queries=20, keys=90, causal=True, ahead=33, block_m=32),
  "keys before, fewer keys": dict(queries=40, keys=50, causal=True, ahead=25, group=2),
  "keys before, f16, sinks": dict(
    dtype="float16", queries=40, keys=70, causal=True, ahead=30, sinks=True
  ),
  "wide blocks, causal": dict(queries=50, keys=50, causal=True, block_m=16, block_n=64),
  "tall blocks, causal": dict(queries=50, keys=50, causal=True, block_m=64, block_n=16),
  "one head in the cache, causal": dict(
    batch=2, heads=3, queries=37, keys=37, causal=True, cache=37 * 2 * 16 * 4
  ),
  "two heads in the cache, causal": dict(
    batch=1, heads=5, queries=50, keys=33, causal=True, cache=2 * 33 * 2 * 16 * 4
  ),
  "a cache too small, causal": dict(batch=2, queries=37, keys=37, causal=True, cache=1),
  "a scale": dict(scale=0.9),
  "bool mask": dict(batch=2, queries=21, keys=35, mask="bool"),
  "float mask": dict(batch=2, heads=3, queries=21, keys=35, mask="float"),
  "a mask of columns": dict(batch=2, queries=21, keys=35, mask="columns"),
  "a row that sees nothing": dict(queries=4, keys=40, mask="nothing"),
  "mask and causal": dict(queries=20, keys=20, mask="bool", causal=True, layout="rows"),
  "groups": dict(batch=2, group=3, queries=11, keys=35),
  "groups, causal": dict(batch=2, group=3, queries=27, keys=27, causal=True, layout="rows"),
  "groups and a float mask": dict(group=2, queries=9, keys=19, mask="float"),
  "many in a group": dict(heads=1, group=20, queries=3, keys=35, mask="bool"),
  "rows": dict(batch=2, queries=19, keys=23, layout="rows"),
  "slices": dict(batch=2, group=2, queries=19, keys=23, layout="slice"),
  "size 8": dict(size=8),
  "size 24": dict(size=24, layout="rows"),
  "size 40": dict(size=40, causal=True),
  "size 64": dict(size=64),
  "size 72": dict(size=72, layout="slice"),
  "size 80": dict(size=80, causal=True),
  "size 100": dict(size=100),
  "size 128": dict(size=128),
  "size 256": dict(size=256),
  "other size of v": dict(size=24, v_size=80),
  "smaller size of v": dict(size=80, v_size=16),
  "parts": dict(queries=1, keys=70, splits=3),
  "more parts than keys": dict(queries=1, keys=5, splits=4),
  "parts of groups, rows": dict(
    batch=2, group=4, queries=1, keys=99, splits=5, layout="rows", size=48
  ),
  "parts, causal": dict(batch=2, queries=20, keys=64, splits=3, causal=True),
  "parts and a mask": dict(queries=3, keys=64, splits=2, mask="bool"),
  "parts, nothing seen": dict(queries=3, keys=64, splits=3, mask="nothing"),
  "parts, no keys": dict(queries=2, keys=0, splits=2),
  "f16": dict(dtype="float16", queries=33, keys=50, size=80, causal=True, layout="rows"),
  "f16 and a mask": dict(dtype="float16", size=64, mask="float"),
  "f16 parts": dict(dtype="float16", queries=1, keys=90, size=64, splits=2),
  "int8 keys": dict(batch=2, group=3, queries=21, keys=35, size=24, codes="int8"),
  "int8 keys and a mask": dict(queries=21, keys=35, mask="bool", codes="int8", layout="rows"),
  "int8 keys, bf16, parts": dict(
    dtype="bfloat16", queries=1, keys=90, size=64, splits=2, codes="int8", mask="columns"
  ),
  "fp8 keys": dict(queries=20, keys=37, size=80, causal=True, codes="float8_e4m3fn"),
  "fp8 keys, f16": dict(dtype="float16", queries=3, keys=50, codes="float8_e4m3fn"),
  "bf16": dict(dtype="bfloat16", queries=33, keys=50, size=64, group=2),
  "pages": dict(batch=2, group=2, queries=21, keys=96, mask="bool", page=32),
  "pages of one tile": dict(batch=3, queries=5, keys=48, mask="columns", page=16),
  "one page": dict(queries=1, keys=64, page=64, block_n=32),
  "pages, parts": dict(
    batch=3, heads=1, group=4, queries=4, keys=192, splits=3, page=64, mask="bool", block_n=64
  ),
  "pages, nothing seen": dict(queries=3, keys=64, splits=2, mask="nothing", page=32),
  "pages, causal": dict(queries=40, keys=96, causal=True, page=32),
  "pages, bf16, size 128": dict(
    dtype="bfloat16", queries=33, keys=128, size=128, group=2, mask="bool", page=64, block_n=32
  ),
  "pages, f16, size 96": dict(dtype="float16", queries=9, keys=128, size=96, mask="bool", page=64),
  "pages, size 256": dict(queries=17, keys=64, size=256, mask="bool", page=64),
  "pages of int8": dict(batch=2, group=3, queries=21, keys=64, codes="int8", mask="bool", page=32),
  "pages of int8, bf16, parts": dict(
    dtype="bfloat16", queries=1, keys=192, size=64, splits=3, codes="int8", page=64, mask="columns"
  ),
  "pages of fp8": dict(queries=20, keys=64, size=96, codes="float8_e4m3fn", page=64, mask="bool"),
  "pages of fp8, f16": dict(dtype="float16", queries=3, keys=64, codes="float8_e4m3fn", page=16),
  "a largest score": dict(queries=21, keys=35, softcap=2.0),
  "a largest score and masks": dict(group=2, queries=9, keys=19, softcap=1.5, mask="float"),
  "sinks": dict(batch=2, group=3, queries=21, keys=35, sinks=True),
  "sinks, parts, nothing seen": dict(queries=3, keys=64, splits=3, mask="nothing", sinks=True),
  "sinks in bf16, a largest score, pages": dict(
    dtype="bfloat16",
    group=4,
    queries=3,
    keys=64,
    size=64,
    splits=2,
    page=32,
    mask="bool",
    softcap=5.0,
    sinks=True,
  ),
  "sinks, int8, pages": dict(queries=20, keys=64, codes="int8", mask="bool", page=32, sinks=True),
}
TOLERANCES = {"float32": 3e-6, "float16": 3e-3, "bfloat16": 2e-2}


@pytest.fixture(scope="module")
def differences():
  done = subprocess.run(
    [
      sys.executable,
      built_tools.ROOT / "tests/torch/helpers/attention_interpreter.py",
      json.dumps(list(CASES.values())),
    ],
    env={**os.environ, "TRITON_INTERPRET": "1"},
    capture_output=True,
    text=True,
  )
  assert done.returncode == 0, done.stderr[-4000:]
  return dict(zip(CASES, json.loads(done.stdout)))


@pytest.mark.parametrize("name", CASES)
def test_kernel(name, differences):
  result, lse = differences[name]
  dtype = CASES[name].get("dtype", "float32")
  assert result < TOLERANCES[dtype]
  assert lse < 3e-6


def test_pieces_hold_a_row_and_waste_little():
  for size in range(1, 257):
    first, rest = tiles.pieces(size)
    for piece in (first, rest) if rest else (first,):
      assert piece >= 16 and piece & (piece - 1) == 0
    assert size <= first + rest <= max(16, 1 << (size - 1).bit_length()) and rest < first


@pytest.mark.parametrize("key", fake_cuda.names())
@pytest.mark.parametrize("bytes_", [2, 4])
@pytest.mark.parametrize("width", [16, 64, 80, 128, 256])
def test_tiles_are_for_the_target(key, bytes_, width):
  target = fake_cuda.Target.load(key)
  for rows in (None, 1, 40, 4096):
    tried = tiles.tiles(target, width, bytes_, rows)
    assert all(
      tiles.shared(tile, width, bytes_) <= target.shared_memory_per_block_optin for tile in tried
    )
    assert tried[-1].stages == 1 and tried[-1].m * tried[-1].n <= tried[0].m * tried[0].n
    assert all(side >= 16 and side & (side - 1) == 0 for tile in tried for side in (tile.m, tile.n))
    assert rows != 1 or tried[0].m == 16


def test_only_few_blocks_are_split():
  h200 = fake_cuda.Target.load("h200")
  assert tiles.splits(h200, 8, 8192) == 32 and tiles.splits(h200, 8, 1024) == 4
  assert tiles.splits(h200, 1000, 8192) == 1 and tiles.splits(h200, 8, 100) == 1
  assert tiles.splits(fake_cuda.Target.load("orin"), 8, 8192) == 4
