"""Rounds the operands of products in tf32.

A tensor core reads 19 bits of an f32 operand and ignores the other 13, so that it multiplies
numbers that are cut: each is nearer to zero, by half a bit of tf32 on average. The errors of all
products of a sum have one sign, and add up from layer to layer. cuBLAS and cuDNN round their
operands to the nearest number of tf32, whose errors cancel. Triton does not: its precision "tf32"
is the bare instruction ("tf32x3" rounds, as it needs the remainders, and "ieee" uses no tensor
cores).

`rewrite` puts a conversion around both operands of every `tl.dot`. The conversion rounds to the
nearest, ties away from zero; infinity stays infinity, and NaN stays NaN. On compute capability 8 it
is done on the registers from which the tensor core reads. On 9.0 the tensor core reads the first
operand from registers too, but the second one from shared memory, so that its tile is written there
again after it was rounded.

Kernels of the model's author stay as they are, since eager mode compiles the same text.
"""

from __future__ import annotations

import ast

# The name of the function that is added to a module, and its text. Its condition is that by which
# Triton itself chooses the precision of a product.
FUNCTION = "husk_rounded"
_SOURCE = f'''

@triton.jit
def {FUNCTION}(operand, input_precision: tl.constexpr, allow_tf32: tl.constexpr):
    """An operand of a product, rounded if the product is in tf32."""
    if input_precision is None:
        is_tf32: tl.constexpr = allow_tf32 is None or allow_tf32
    else:
        is_tf32: tl.constexpr = input_precision == "tf32"
    if is_tf32 and operand.dtype == tl.float32:
        return tl.inline_asm_elementwise(
            "cvt.rna.tf32.f32 $0, $1;", "=r,r", [operand], dtype=tl.float32, is_pure=True, pack=1
        )
    else:
        return operand
'''
# The parameters of tl.dot that decide the precision, with their positions.
_DECIDING = (("input_precision", 3), ("allow_tf32", 4))


def rewrite(source: str) -> str:
  """The module `source` in which all operands of `tl.dot` are rounded if the product is in tf32.
  Lines keep their numbers."""
  if "tl.dot(" not in source:
    return source
  from triton import knobs

  lines = [line.encode() for line in source.split("\n")]  # columns are counted in bytes
  insertions: list[tuple[int, int, str]] = []
  for node in ast.walk(ast.parse(source)):
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "tl.dot":
      precision = ", ".join(_argument(node, *each) for each in _DECIDING)
      if precision.startswith("None, ") and knobs.language.fp32_default:
        precision = f"{knobs.language.fp32_default!r}, None"
      for operand in _operands(node):
        assert operand.end_lineno is not None and operand.end_col_offset is not None
        insertions.append((operand.lineno, operand.col_offset, f"{FUNCTION}("))
        insertions.append((operand.end_lineno, operand.end_col_offset, f", {precision})"))
  for row, column, text in sorted(insertions, reverse=True):
    line = lines[row - 1]
    lines[row - 1] = line[:column] + text.encode() + line[column:]
  return b"\n".join(lines).decode().rstrip("\n") + _SOURCE


def _operands(call: ast.Call) -> list[ast.expr]:
  """The two factors of a call of tl.dot."""
  named = {keyword.arg: keyword.value for keyword in call.keywords}
  return [*call.args[:2], *(named[name] for name in ("input", "other") if name in named)]


def _argument(call: ast.Call, name: str, position: int) -> str:
  """The text of an argument of a call; "None" if it is not given."""
  if position < len(call.args):
    return ast.unparse(call.args[position])
  for keyword in call.keywords:
    if keyword.arg == name:
      return ast.unparse(keyword.value)
  return "None"
