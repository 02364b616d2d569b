"""Instructions of PTX for the kernel of codes (codes_kernel.py): from four bytes of codes to exact
floats of 16 bits, and elements of rows in the same order.

They are those of cuda/formats.py, which says how they work, without the permutation of bytes: the
results have the bytes 0 and 2, then 1 and 3. A row that is alone is multiplied with codes as they
are (`IN_DIGITS` in codes_kernel.py), and needs none of these instructions."""

from __future__ import annotations

from ..cuda import formats

_FOUR_BITS_IN_BF16 = """
.reg .b32 a, b, c, d, one, offset;
mov.b32 one, 0x3f803f80; mov.b32 offset, 0xc308c308;
shr.u32 b, $WORD, 8; shr.u32 c, $WORD, 4; shr.u32 d, $WORD, 12;
lop3.b32 a, $WORD, 0x000f000f, 0x43004300, 0xea; lop3.b32 b, b, 0x000f000f, 0x43004300, 0xea;
lop3.b32 c, c, 0x000f000f, 0x43004300, 0xea; lop3.b32 d, d, 0x000f000f, 0x43004300, 0xea;
fma.rn.bf16x2 $0, a, one, offset; fma.rn.bf16x2 $1, b, one, offset;
fma.rn.bf16x2 $2, c, one, offset; fma.rn.bf16x2 $3, d, one, offset;
"""
_FOUR_BITS_IN_F16 = """
.reg .b32 a, b, c, d, one, offset, part, high;
mov.b32 one, 0x3c003c00; mov.b32 offset, 0xe408e408;
mov.b32 part, 0x2c002c00; mov.b32 high, 0xd480d480;
shr.u32 b, $WORD, 8;
lop3.b32 a, $WORD, 0x000f000f, 0x64006400, 0xea; lop3.b32 c, $WORD, 0x00f000f0, 0x64006400, 0xea;
lop3.b32 d, b, 0x00f000f0, 0x64006400, 0xea; lop3.b32 b, b, 0x000f000f, 0x64006400, 0xea;
fma.rn.f16x2 $0, a, one, offset; fma.rn.f16x2 $1, b, one, offset;
fma.rn.f16x2 $2, c, part, high; fma.rn.f16x2 $3, d, part, high;
"""
_INT8_IN_BF16 = """
.reg .b32 a, b, c, d, minus;
mov.b32 minus, 0xbf80bf80;
shr.u32 b, $WORD, 8;
lop3.b32 a, $WORD, 0x007f007f, 0x43004300, 0xea; lop3.b32 c, $WORD, 0x00800080, 0x43004300, 0xea;
lop3.b32 d, b, 0x00800080, 0x43004300, 0xea; lop3.b32 b, b, 0x007f007f, 0x43004300, 0xea;
fma.rn.bf16x2 $0, c, minus, a; fma.rn.bf16x2 $1, d, minus, b;
"""
_INT8_IN_F16 = """
.reg .b32 a, b, one, offset;
mov.b32 one, 0x3c003c00; mov.b32 offset, 0xe480e480;
shr.u32 b, $WORD, 8;
lop3.b32 a, $WORD, 0x00ff00ff, 0x64806480, 0x6a; lop3.b32 b, b, 0x00ff00ff, 0x64806480, 0x6a;
fma.rn.f16x2 $0, a, one, offset; fma.rn.f16x2 $1, b, one, offset;
"""
_E4M3 = """
.reg .b32 a, b, c, d, power, none;
mov.b32 power, {power}; mov.b32 none, 0x80008000;
prmt.b32 a, $WORD, 0, 0x2404;
and.b32 c, a, 0x7f007f00; and.b32 d, $WORD, 0x7f007f00;
shr.u32 c, c, {shift}; shr.u32 d, d, {shift};
lop3.b32 a, a, 0x80008000, c, 0xea; lop3.b32 b, $WORD, 0x80008000, d, 0xea;
fma.rn.{kind} $0, a, power, none; fma.rn.{kind} $1, b, power, none;
"""

# By the bits of codes, their dtype, and the dtype of the rows.
_NUMBERS = {
  (4, "uint8", "bfloat16"): _FOUR_BITS_IN_BF16,
  (4, "uint8", "float16"): _FOUR_BITS_IN_F16,
  (8, "int8", "bfloat16"): _INT8_IN_BF16,
  (8, "int8", "float16"): _INT8_IN_F16,
  (8, "float8_e4m3fn", "bfloat16"): _E4M3.format(kind="bf16x2", shift=4, power="0x7b807b80"),
  (8, "float8_e4m3fn", "float16"): _E4M3.format(kind="f16x2", shift=1, power="0x5c005c00"),
}


def numbers(bits: int, dtype: str, kind: str) -> str:
  """The instructions that make numbers of the dtype `kind` of four bytes of codes."""
  return f"{{ {_numbers(bits, dtype, kind)} }}"


def scaled_numbers(bits: int, dtype: str, kind: str, has_zeros: bool) -> str:
  """The same for numbers plus the negative `zero`, if there is one, times the sum of `scale` and
  `rest`. Each of these inputs has four numbers, which are equal."""
  words = 8 // bits * 2

  def operand(place: int, _word: int) -> str:
    return f"${words + 1 + 2 * place}"

  text = _numbers(bits, dtype, kind)
  return f"{{ {formats.scaled(text, kind, words, operand, has_zeros)} }}"


def _numbers(bits: int, dtype: str, kind: str) -> str:
  text = _NUMBERS[bits, dtype, kind].replace("$WORD", "$4" if bits == 4 else "$2")
  return " ".join(text.split())


def order(bits: int) -> str:
  """The instructions that put the elements of a row that belong to four bytes of codes in the order
  of these. For codes of 4 bits, the input has four pairs, whose first elements come first."""
  return " ".join(_ordered(bits, 4 if bits == 4 else 2, [f"${n}" for n in range(8 // bits * 2)]))


def scaled(bits: int, kind: str) -> str:
  """The same for the products of the elements of two rows."""
  count = 8 // bits * 2
  ones, others = ([f"{name}{n}" for n in range(count)] for name in "ab")
  steps = [
    f".reg .b32 {', '.join([*ones, *others])}, none; mov.b32 none, 0x80008000;",
    *_ordered(bits, count, ones),
    *_ordered(bits, 2 * count, others),
    *(f"fma.rn.{formats.PAIRS[kind]} ${n}, {ones[n]}, {others[n]}, none;" for n in range(count)),
  ]
  return f"{{ {' '.join(steps)} }}"


def _ordered(bits: int, first: int, results: list[str]) -> list[str]:
  """The same for the words from `first` on. A word of the result has the low or the high halves of
  two words."""
  words = [(first, first + 2), (first + 1, first + 3)] if bits == 4 else [(first, first + 1)]
  pairs = [(*pair, half) for half in ("0x5410", "0x7632") for pair in words]
  return [
    f"prmt.b32 {result}, ${one}, ${other}, {half};"
    for result, (one, other, half) in zip(results, pairs)
  ]
