"""Kinds of codes (quantized/codes.py) for which kernels of CUDA targets have instructions that make
exact floats of 16 bits of them."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
  import torch

# Instructions of PTX that turn the word $WORD, of four bytes, into exact numbers. Each result has
# two: $0 and $1 those of the four bytes, or of their low halves, and then $2 and $3 those of the
# high ones.
#
# The lowest bits of a float of 16 bits count in ones if its exponent is that of 2^7 (bf16) or of
# 2^10 (f16). So a code of 4 bits that is put there is a float, less a constant.
_FOUR_BITS_IN_BF16 = """
.reg .b32 a, b, c, d, one, offset;
mov.b32 one, 0x3f803f80; mov.b32 offset, 0xc308c308;
prmt.b32 a, $WORD, 0, 0x4140; prmt.b32 b, $WORD, 0, 0x4342;
shr.u32 c, a, 4; shr.u32 d, b, 4;
lop3.b32 a, a, 0x000f000f, 0x43004300, 0xea; lop3.b32 b, b, 0x000f000f, 0x43004300, 0xea;
lop3.b32 c, c, 0x000f000f, 0x43004300, 0xea; lop3.b32 d, d, 0x000f000f, 0x43004300, 0xea;
fma.rn.bf16x2 $0, a, one, offset; fma.rn.bf16x2 $1, b, one, offset;
fma.rn.bf16x2 $2, c, one, offset; fma.rn.bf16x2 $3, d, one, offset;
"""
# The high halves stay where they are, and count 16 times as much.
_FOUR_BITS_IN_F16 = """
.reg .b32 a, b, c, d, one, offset, part, high;
mov.b32 one, 0x3c003c00; mov.b32 offset, 0xe408e408;
mov.b32 part, 0x2c002c00; mov.b32 high, 0xd480d480;
prmt.b32 a, $WORD, 0, 0x4140; prmt.b32 b, $WORD, 0, 0x4342;
lop3.b32 c, a, 0x00f000f0, 0x64006400, 0xea; lop3.b32 d, b, 0x00f000f0, 0x64006400, 0xea;
lop3.b32 a, a, 0x000f000f, 0x64006400, 0xea; lop3.b32 b, b, 0x000f000f, 0x64006400, 0xea;
fma.rn.f16x2 $0, a, one, offset; fma.rn.f16x2 $1, b, one, offset;
fma.rn.f16x2 $2, c, part, high; fma.rn.f16x2 $3, d, part, high;
"""
# The lower 7 bits of an int8 are such a number. Its sign is put where the exponent has its lowest
# bit, so that it makes 128 or 256, which is subtracted.
_INT8_IN_BF16 = """
.reg .b32 a, b, c, d, minus;
mov.b32 minus, 0xbf80bf80;
prmt.b32 a, $WORD, 0, 0x4140; prmt.b32 b, $WORD, 0, 0x4342;
lop3.b32 c, a, 0x00800080, 0x43004300, 0xea; lop3.b32 d, b, 0x00800080, 0x43004300, 0xea;
lop3.b32 a, a, 0x007f007f, 0x43004300, 0xea; lop3.b32 b, b, 0x007f007f, 0x43004300, 0xea;
fma.rn.bf16x2 $0, c, minus, a; fma.rn.bf16x2 $1, d, minus, b;
"""
# An int8 whose sign is turned is larger by 128 and has no sign.
_INT8_IN_F16 = """
.reg .b32 a, b, one, offset;
mov.b32 one, 0x3c003c00; mov.b32 offset, 0xe480e480;
prmt.b32 a, $WORD, 0, 0x4140; prmt.b32 b, $WORD, 0, 0x4342;
lop3.b32 a, a, 0x00800080, 0x64006400, 0xbe; lop3.b32 b, b, 0x00800080, 0x64006400, 0xbe;
fma.rn.f16x2 $0, a, one, offset; fma.rn.f16x2 $1, b, one, offset;
"""
# The bits of an e4m3 are those of a float of 16 bits with another exponent, after a shift. A
# product with a power of 2 makes it right, also for subnormal numbers.
_E4M3 = """
.reg .b32 a, b, c, d, power, none;
mov.b32 power, {power}; mov.b32 none, 0x80008000;
prmt.b32 a, $WORD, 0, 0x1404; prmt.b32 b, $WORD, 0, 0x3424;
and.b32 c, a, 0x7f007f00; and.b32 d, b, 0x7f007f00;
shr.u32 c, c, {shift}; shr.u32 d, d, {shift};
lop3.b32 a, a, 0x80008000, c, 0xea; lop3.b32 b, b, 0x80008000, d, 0xea;
fma.rn.{kind} $0, a, power, none; fma.rn.{kind} $1, b, power, none;
"""


@dataclasses.dataclass(frozen=True)
class Format:
  """A kind of codes: the bits of one, and their dtype in torch. By the dtype of the layer's input,
  the instructions that make numbers of them; and the least compute capability for which Triton has
  tensors of the dtype."""

  bits: int
  dtype: str
  numbers: dict[str, str]
  capability: int = 80

  @property
  def of_a_line(self) -> int:
    """The codes of 16 bytes."""
    return 128 // self.bits

  def assembly(self, kind: str) -> str:
    """The instructions that make numbers of the dtype `kind` of four bytes of codes; "" if there
    are none."""
    return f"{{ {self._instructions(kind)} }}" if kind in self.numbers else ""

  def call(self, kind: str) -> str:
    """The call of Triton's that makes numbers of the dtype `kind` of the tile `w`."""
    return self._assembly(kind, self._instructions(kind), ("w",))

  def scaled_call(self, kind: str, has_zeros: bool) -> str:
    """The same for numbers less `zero`, times the sum of `scale` and `rest`, which has what the
    type of `scale` cannot hold. An element is rounded once."""
    names = ("scale", "rest", "zero") if has_zeros else ("scale", "rest")

    def operand(place: int, word: int) -> str:
      return f"${self._words + 1 + 2 * place + word % 2}"

    text = scaled(self._instructions(kind), kind, self._words, operand, has_zeros)
    return self._assembly(kind, text, ("w", *names))

  @property
  def _words(self) -> int:
    """The words that the numbers of four bytes of codes have."""
    return 8 // self.bits * 2

  def _instructions(self, kind: str) -> str:
    return " ".join(self.numbers[kind].split()).replace("$WORD", f"${self._words}")

  def _assembly(self, kind: str, text: str, inputs: Sequence[str]) -> str:
    """A call of Triton's with instructions. The first input has bytes, the others numbers of 16
    bits."""
    words = self._words
    constraints = "=r," * words + ",".join(["r"] * (2 * len(inputs) - 1))
    dtypes = ", ".join([TRITON[kind]] * (words // 2))
    return (
      f'tl.inline_asm_elementwise("{{ {text} }}", "{constraints}", [{", ".join(inputs)}], '
      f"dtype={f'({dtypes})' if words > 2 else dtypes}, is_pure=True, pack=4)"
    )


# A pair of a dtype in PTX, and a pair of ones.
PAIRS = {"bfloat16": "bf16x2", "float16": "f16x2"}
_ONES = {"bfloat16": "0x3f803f80", "float16": "0x3c003c00"}


def scaled(
  text: str, kind: str, words: int, operand: Callable[[int, int], str], has_zeros: bool
) -> str:
  """Instructions that make `words` pairs of numbers, less a zero if there is one, times the sum of
  a scale and the rest of it. `operand(place, word)` is the scale (place 0), the rest or the
  negative zero of a pair."""
  fma = f"fma.rn.{PAIRS[kind]}"
  steps = [
    f".reg .b32 {', '.join(f'n{word}' for word in range(words))}, part, unit, none;",
    "{ " + re.sub(rf"\$([0-{words - 1}])\b", r"n\1", text) + " }",
    f"mov.b32 unit, {_ONES[kind]};",
    "mov.b32 none, 0x80008000;",
  ]
  for word in range(words):
    scale, rest, zero = (operand(place, word) for place in range(3))
    if has_zeros:
      steps.append(f"{fma} n{word}, n{word}, unit, {zero};")
    steps.append(f"{fma} part, n{word}, {rest}, none;")
    steps.append(f"{fma} ${word}, n{word}, {scale}, part;")
  return " ".join(steps)


# Kinds of codes for which the templates have instructions.
FORMATS = [
  Format(4, "uint8", {"bfloat16": _FOUR_BITS_IN_BF16, "float16": _FOUR_BITS_IN_F16}),
  Format(8, "int8", {"bfloat16": _INT8_IN_BF16, "float16": _INT8_IN_F16}),
  Format(
    8,
    "float8_e4m3fn",
    {
      "bfloat16": _E4M3.format(kind="bf16x2", shift=4, power="0x7b807b80"),
      "float16": _E4M3.format(kind="f16x2", shift=1, power="0x5c005c00"),
    },
    capability=89,
  ),
]
_BY_CODES = {(each.bits, each.dtype): each for each in FORMATS}
TRITON = {"bfloat16": "tl.bfloat16", "float16": "tl.float16"}


def name_of(dtype: torch.dtype) -> str:
  """The name of a dtype, as in "bfloat16"."""
  return str(dtype).removeprefix("torch.")


def of(bits: int, dtype: torch.dtype) -> Format | None:
  """The kind of codes of so many bits and a dtype; None if no kernel has instructions for it."""
  return _BY_CODES.get((bits, name_of(dtype)))


def assembly(bits: int, dtype: torch.dtype, kind: str) -> str:
  """`Format.assembly` of a kind of codes; "" for a kind without a format."""
  found = of(bits, dtype)
  return "" if found is None else found.assembly(kind)


def place_of_format(bits: int, dtype: torch.dtype) -> int:
  """The place of a kind of codes in FORMATS."""
  return FORMATS.index(_BY_CODES[bits, name_of(dtype)])


# Takes the even elements of pairs, the words of `x`, and the odd ones apart.
_PAIRS = (
  'tl.inline_asm_elementwise("prmt.b32 $0, $2, $3, 0x5410; prmt.b32 $1, $2, $3, 0x7632;", '
  '"=r,=r,r,r", [x], dtype=({kind}, {kind}), is_pure=True, pack=2)'
)


def pairs(kind: str) -> str:
  """The call of Triton's that takes the pairs `x` of numbers of the dtype `kind` apart."""
  return _PAIRS.format(kind=TRITON[kind])
