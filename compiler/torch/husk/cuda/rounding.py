"""Keeps the errors of products as small as those of cuBLAS and cuDNN: rounds the operands of
products in tf32, and adds products in f32 block by block.

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
again after it was rounded. Weights are rounded once instead (rounded_weights.py).

Products without tf32 have another error. A template adds the product of two blocks to its sum, and
Triton makes one chain of additions of that, over the whole depth. Errors grow with its length, and
cuBLAS splits deep products. `rewrite` keeps each product apart from the sum, so that a chain is as
long as a block, and another one as the number of blocks.

Kernels of the model's author stay as they are, since eager mode compiles the same text.
"""

from __future__ import annotations

import ast

from . import rounded_weights

# The names of the functions that are added to a module, and their text. Their conditions are those
# by which Triton itself chooses the precision of a product.
FUNCTION = "husk_rounded"
_APART = "husk_apart"
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
            "{rounded_weights.CONVERSION}",
            "=r,r",
            [operand],
            dtype=tl.float32,
            is_pure=True,
            pack=1,
        )
    else:
        return operand


@triton.jit
def {_APART}(product, operand, input_precision: tl.constexpr, allow_tf32: tl.constexpr):
    """The product of two blocks, whose own additions come before the addition to a sum."""
    if input_precision is None:
        is_exact: tl.constexpr = allow_tf32 is not None and not allow_tf32
    else:
        is_exact: tl.constexpr = input_precision == "ieee"
    if is_exact and operand.dtype == tl.float32:
        return tl.inline_asm_elementwise(
            "mov.b32 $0, $1;", "=r,r", [product], dtype=tl.float32, is_pure=True, pack=1
        )
    else:
        return product
'''
# The parameters of tl.dot that decide the precision, with their positions.
_DECIDING = (("input_precision", 3), ("allow_tf32", 4))


def rewrite(source: str) -> str:
  """The module `source` in which all operands of `tl.dot` are rounded if the product is in tf32,
  and products in f32 are kept apart from the sums that they are added to. Lines keep their
  numbers."""
  if "tl.dot(" not in source:
    return source
  from triton import knobs

  lines = [line.encode() for line in source.split("\n")]  # columns are counted in bytes
  insertions: list[tuple[int, int, str]] = []
  tree = ast.parse(source)
  factors = 1 if rounded_weights.LINE in source else 2
  added = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.AugAssign)}
  for node in ast.walk(tree):
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "tl.dot":
      precision = ", ".join(_argument(node, *each) for each in _DECIDING)
      if precision.startswith("None, ") and knobs.language.fp32_default:
        precision = f"{knobs.language.fp32_default!r}, None"
      operands = _operands(node)
      wrapped = [(operand, FUNCTION, precision) for operand in operands[:factors]]
      if id(node) in added and isinstance(operands[0], ast.Name):
        wrapped.append((node, _APART, f"{operands[0].id}, {precision}"))
      for expression, name, more in wrapped:
        assert expression.end_lineno is not None and expression.end_col_offset is not None
        insertions.append((expression.lineno, expression.col_offset, f"{name}("))
        insertions.append((expression.end_lineno, expression.end_col_offset, f", {more})"))
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
