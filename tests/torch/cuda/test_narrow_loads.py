"""Masked loads of 8 and 16 bits (cuda/narrow_loads.py)."""

from husk.cuda import narrow_loads

HEAD = """x = {'signature': {'a': '*i8', 'b': '*u8', 'c': '*i16', 'd': '*i32', 'e': '*fp16'}}
def kernel(a, b, c, d, e):
"""


def rewritten(line):
  source = narrow_loads.rewrite(f"{HEAD}    {line}\n")
  assert source.startswith(HEAD) and source.count("\n") == HEAD.count("\n") + 1
  return source[len(HEAD) :].strip()


def test_values_whose_sign_bit_is_set():
  load = "t = tl.load(a + (3 + x), m & k, eviction_policy='evict_last', other=-128)"
  assert rewritten(load) == (
    "t = tl.where(m & k, tl.load(a + (3 + x), m & k, eviction_policy='evict_last', other=0), "
    "-128).to(tl.int8)"
  )
  assert rewritten("t = tl.load(b + x, m, other=200).to(tl.int32)") == (
    "t = tl.where(m, tl.load(b + x, m, other=0), 200).to(tl.uint8).to(tl.int32)"
  )
  assert rewritten("t = tl.load(c + x, m, other=-5) + tl.load(c + y, k, other=-5)") == (
    "t = tl.where(m, tl.load(c + x, m, other=0), -5).to(tl.int16) + "
    "tl.where(k, tl.load(c + y, k, other=0), -5).to(tl.int16)"
  )


def test_other_loads_stay():
  for load in (
    "t = tl.load(a + x, m, other=0)",
    "t = tl.load(a + x, m, other=127)",
    "t = tl.load(d + x, m, other=-128)",
    "t = tl.load(e + x, m, other=-1.0)",
    "t = tl.load(e + x, m, other=float('-inf'))",
    "t = other.load(a + x, m, other=-128)",
    "t = tl.load(a + x, None)",
  ):
    assert rewritten(load) == load
