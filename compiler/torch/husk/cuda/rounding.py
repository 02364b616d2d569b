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
long as a block, and adds it by Kahan's algorithm if the tile is small: a second variable has what
the last addition lost, and the next one adds it. What remains is the error of a chain of one block.

Kernels of the model's author stay as they are, since eager mode compiles the same text.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from . import rounded_weights

# The names of the functions that are added to a module, and their text. Their conditions are those
# by which Triton itself chooses the precision of a product.
FUNCTION = "husk_rounded"
_ADDED = "husk_added"
_LOST = "_husk_lost"  # behind the name of a sum: the name of what the sum has lost
# The elements of the largest tile whose sums have what they have lost. There are no registers for
# that in larger tiles. Those are for results that have many tiles, and cuBLAS does not split these.
_LARGEST = 4096
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
def {_ADDED}(
    total, lost, product, operand, input_precision: tl.constexpr, allow_tf32: tl.constexpr
):
    """The sum of `total` and the product of two blocks, and what the sum has lost by rounding, if
    the product is an exact one in f32. `operand` is one of its factors, and `lost` is what `total`
    had lost."""
    if input_precision is None:
        is_exact: tl.constexpr = allow_tf32 is not None and not allow_tf32
    else:
        is_exact: tl.constexpr = input_precision == "ieee"
    # Triton compiles what follows a return in a branch, too, so that each branch has an `else`.
    if is_exact and operand.dtype == tl.float32:
        # Triton makes one chain of a product and its addition to a sum, but not through this.
        apart = tl.inline_asm_elementwise(
            "mov.b32 $0, $1;", "=r,r", [product], dtype=tl.float32, is_pure=True, pack=1
        )
        if total.numel > {_LARGEST}:
            return total + apart, lost
        else:
            term = apart - lost
            result = total + term
            rest = (result - total) - term
            # A sum that is infinite has lost nothing that may be added to it.
            return result, tl.where(tl.abs(rest) < float("inf"), rest, 0.0)
    else:
        return total + product, lost
'''
# The parameters of tl.dot that decide the precision, with their positions.
_DECIDING = (("input_precision", 3), ("allow_tf32", 4))


# A change of a module: the number of a line, two columns of it, which are counted in bytes, and the
# text that takes the place of what stands between them.
_Change = tuple[int, int, int, str]


def rewrite(source: str) -> str:
  """The module `source` in which all operands of `tl.dot` are rounded if the product is in tf32,
  and products in f32 are added to sums by Kahan's algorithm. Lines keep their numbers."""
  if "tl.dot(" not in source:
    return source
  changes: list[_Change] = []
  factors = 1 if rounded_weights.LINE in source else 2
  for node in ast.walk(ast.parse(source)):
    if isinstance(node, ast.Call) and _is_product(node):
      for operand in _operands(node)[:factors]:
        changes.append((operand.lineno, operand.col_offset, operand.col_offset, f"{FUNCTION}("))
        changes.append(_behind(operand, f", {_precision(node)})"))
    elif isinstance(node, ast.FunctionDef):
      changes += _additions(node)
  lines = [line.encode() for line in source.split("\n")]
  for row, begin, end, text in sorted(changes, reverse=True):
    line = lines[row - 1]
    lines[row - 1] = line[:begin] + text.encode() + line[end:]
  return b"\n".join(lines).decode().rstrip("\n") + _SOURCE


def _behind(node: ast.expr | ast.stmt, text: str) -> _Change:
  """The change that puts a text behind a part of a module."""
  assert node.end_lineno is not None and node.end_col_offset is not None
  return node.end_lineno, node.end_col_offset, node.end_col_offset, text


def _additions(function: ast.FunctionDef) -> Iterator[_Change]:
  """The changes by which a kernel adds products to sums that begin with zeros. Templates write
  `total += tl.dot(...)`, and Inductor's own kernels `other = total + product`, in which names stand
  for the product."""
  begins: dict[str, list[ast.Assign]] = {}
  products: dict[str, ast.Call] = {}
  additions: list[tuple[str, str, ast.stmt, ast.expr]] = []  # target, total, statement, term
  statements = [node for node in ast.walk(function) if isinstance(node, ast.stmt)]
  for node in sorted(statements, key=lambda each: each.lineno):
    match node:
      case ast.AugAssign(target=ast.Name(id=total), op=ast.Add(), value=term):
        additions.append((total, total, node, term))
      case ast.Assign(
        targets=[ast.Name(id=name)],
        value=ast.BinOp(left=ast.Name(id=total), op=ast.Add(), right=term),
      ):
        additions.append((name, total, node, term))
      case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as call):
        if ast.unparse(call.func) in ("tl.zeros", "tl.full"):
          begins.setdefault(name, []).append(node)
        elif product := _product(call, products):
          products[name] = product
  used = set()
  for target, total, node, term in additions:
    product = _product(term, products)
    if product and total in begins and isinstance(_operands(product)[0], ast.Name):
      used.add(total)
      call = f"{target}, {total}{_LOST} = {_ADDED}({total}, {total}{_LOST}, "
      yield node.lineno, node.col_offset, term.col_offset, call
      yield _behind(term, f", {ast.unparse(_operands(product)[0])}, {_precision(product)})")
  for total in used:
    for node in begins[total]:
      yield _behind(node, f"; {total}{_LOST} = tl.zeros_like({total})")


def _product(node: ast.expr, products: dict[str, ast.Call]) -> ast.Call | None:
  """The call of tl.dot whose result an expression is; `products` has those that have names."""
  match node:
    case ast.Name(id=name):
      return products.get(name)
    case ast.Call(args=[first, *_]):
      if ast.unparse(node.func) == "tl.broadcast_to":
        return _product(first, products)
  return node if isinstance(node, ast.Call) and _is_product(node) else None


def _is_product(call: ast.Call) -> bool:
  return ast.unparse(call.func) == "tl.dot"


def _precision(call: ast.Call) -> str:
  """The arguments of a product that decide its precision."""
  from triton import knobs

  precision = ", ".join(_argument(call, *each) for each in _DECIDING)
  if precision.startswith("None, ") and knobs.language.fp32_default:
    return f"{knobs.language.fp32_default!r}, None"
  return precision


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
