"""The conditions on sizes that torch assumes after torch.export, while a program is lowered.

The shapes of an exported program are frozen, so torch itself drops these conditions, although it
computes with them: a size that a lowering has asked for is a constant from then on, in the shape
environment of the program itself. Here they are collected, each with the node that asked, and the
environment is given back as torch.export left it, so that no target sees what another one has
assumed.

Many questions decide only in which way the same values are computed, or which strides a tensor
has. These are answered from the sizes of the example without a condition (`_HOW`). A question that
has an answer for sizes that nobody knows (torch's `guard_or_false` and `guard_or_true`) gets that
answer."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import sys
import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import sympy

from . import graphs, origins
from .replace import replaced

if TYPE_CHECKING:
  from torch.export import ExportedProgram

# Places in torch whose questions decide how something is computed, not what: the end of a file's
# path, and the functions, or None for all of them. The first frame that is not in _NEUTRAL counts.
_HOW: tuple[tuple[str, frozenset[str] | None], ...] = (
  # Shapes and strides of fake tensors. torch.export has asked whether the arguments of an operator
  # suit it, and has kept the condition.
  ("torch/_subclasses/fake_impls.py", None),
  ("torch/_subclasses/fake_tensor.py", None),
  ("torch/_subclasses/fake_utils.py", None),
  ("torch/_subclasses/functional_tensor.py", None),
  ("torch/_subclasses/meta_utils.py", None),
  ("torch/_meta_registrations.py", frozenset({"meta_copy_"})),
  (
    "torch/_prims_common/__init__.py",
    frozenset(
      {
        "__lt__",
        "_is_non_overlapping_and_dense_or_false",
        "are_strides_like_channels_last_or_false",
        "check_contiguous_sizes_strides",
        "compute_elementwise_output_logical_to_physical_perm",
        "is_channels_last_contiguous_2d",
        "is_channels_last_contiguous_3d",
        "is_channels_last_contiguous_or_false",
        "is_contiguous",
        "is_contiguous_for_memory_format",
        "make_contiguous_strides_for",
        "should_swap",
        "suggest_memory_format",
      }
    ),
  ),
  # The function that checks the guards of torch.export when its module runs. The program checks
  # them itself.
  ("<string>", frozenset({"_"})),
  # Long sums are sums of parts.
  ("torch/_inductor/codegen/cpp.py", frozenset({"need_use_acc_helper"})),
  # isin compares all pairs, or sorts. The number of channels decides the strides of images whose
  # size changes.
  ("torch/_decomp/decompositions.py", frozenset({"isin", "_upsample_linear", "_upsample_nearest"})),
  # Strides of operands, and which loops become one kernel.
  ("torch/_inductor/ir.py", frozenset({"is_stride_ordered"})),
  ("torch/_inductor/utils.py", frozenset({"argsort"})),
  ("torch/_inductor/scheduler.py", None),
)

# The largest batches that cuDNN normalizes. The C++ function of batch norms asks whether cuDNN
# could be called for a batch, which no program does.
_BATCHES_OF_CUDNN = (65535, 880801)

# The functions that compute the bounds of a slice: that of torch 2.14 and later versions, and that
# of earlier ones.
_SLICES = ("torch/_inductor/lowering.py", ("_compute_slice_index", "compute_slice_index"))

# Files that only pass a question on.
_NEUTRAL = (
  "torch/fx/experimental/symbolic_shapes.py",
  "torch/fx/experimental/sym_node.py",
  "torch/fx/experimental/recording.py",
  "torch/fx/experimental/proxy_tensor.py",
  "torch/utils/_stats.py",
  "torch/_inductor/sizevars.py",
  "torch/__init__.py",
  "torch/_ops.py",
  "/functools.py",
  "/contextlib.py",
  __file__,
)

# Files with the functions that expand a tensor for a copy, from the copy to the question.
_EXPANDS = (
  "torch/_refs/__init__.py",
  "torch/_prims/__init__.py",
  "torch/_prims_common/__init__.py",
  "torch/_prims_common/wrappers.py",
  "torch/_ops.py",
)


def asking_places() -> list[tuple[str, frozenset[str] | None]]:
  """The files of torch that _HOW and _NEUTRAL name, with the functions, or None for all of them."""
  neutral: list[tuple[str, None]] = [(path, None) for path in _NEUTRAL]
  expands: list[tuple[str, None]] = [(path, None) for path in _EXPANDS]
  return [place for place in (*_HOW, *neutral, *expands) if place[0].startswith("torch/")]


@dataclasses.dataclass(frozen=True)
class Assumption:
  """A condition on sizes, and who assumed it: the operator and the line of the model. `refusal` is
  the error of an operator which refuses other sizes in eager mode, too."""

  condition: Any
  place: str = ""
  refusal: str = ""


class _State:
  """What a shape environment knows of its symbols at one time."""

  def __init__(self, shapes: Any) -> None:
    self.guards = list(shapes.guards)
    self.tables = {
      name: dict(getattr(shapes, name)) for name in self._TABLES if hasattr(shapes, name)
    }
    self.divisible = set(shapes.divisible)
    self.asserts = {key: list(values) for key, values in shapes.deferred_runtime_asserts.items()}
    self.assert_count = shapes.num_deferred_runtime_asserts

  _TABLES = (
    "axioms",
    "replacements",
    "replacements_slocs",
    "var_to_range",
    "var_to_range_sloc",
    "symbol_guard_counter",
  )

  def restore(self, shapes: Any) -> None:
    """Gives `shapes` this state again. Symbols that are newer keep what is known of them."""
    known = self.tables["var_to_range"].keys()
    for name, values in self.tables.items():
      table = getattr(shapes, name)
      newer = (
        {}
        if name == "axioms"
        else {key: value for key, value in table.items() if key not in known and key not in values}
      )
      table.clear()
      table.update(values)
      table.update(newer)
    shapes.guards[:] = self.guards
    shapes.divisible.clear()
    shapes.divisible.update(self.divisible)
    shapes.deferred_runtime_asserts.clear()
    shapes.deferred_runtime_asserts.update(
      {key: list(values) for key, values in self.asserts.items()}
    )
    shapes.num_deferred_runtime_asserts = self.assert_count
    _forget_answers(shapes)


def _forget_answers(shapes: Any) -> None:
  """Empties the caches of answers, whose keys do not tell which state they were given in."""
  for value in vars(type(shapes)).values():
    clear = getattr(value, "cache_clear", None)
    if clear is not None:
      clear()
  shapes._update_version_counter()
  shapes._version_counter += 1


# The state that torch.export left, by shape environment.
_promised: weakref.WeakKeyDictionary[Any, _State] = weakref.WeakKeyDictionary()

# The ranges of symbols that the export allows, by shape environment. In the environment itself
# sizes are at least 2: torch.export asks nothing that only 0 and 1 would answer in another way.
_ranges: weakref.WeakKeyDictionary[Any, dict[Any, Any]] = weakref.WeakKeyDictionary()

# Who assumed a condition, by shape environment and condition.
_places: weakref.WeakKeyDictionary[Any, dict[Any, str]] = weakref.WeakKeyDictionary()


def environment(exported: ExportedProgram) -> Any:
  """The shape environment of a program, None if none of its sizes varies."""
  import torch
  from torch.utils import _pytree as pytree

  for node in graphs.nodes(exported):
    for value in pytree.tree_leaves(node.meta.get("val")):
      sizes = value.shape if isinstance(value, torch.Tensor) else (value,)
      for size in sizes:
        if isinstance(size, (torch.SymInt, torch.SymFloat, torch.SymBool)):
          return size.node.shape_env
  return None


@contextlib.contextmanager
def kept(exported: Iterable[ExportedProgram]) -> Iterator[None]:
  """While open, what is assumed of the sizes of these programs is compared with what torch.export
  has promised. Afterwards their environments are as they were before."""
  fresh = []
  for program in exported:
    shapes = environment(program)
    if shapes is None:
      continue
    if shapes not in _promised:
      _promised[shapes] = _State(shapes)
      _places[shapes], _ranges[shapes] = {}, {}
      fresh.append(shapes)
    _ranges[shapes].update(program.range_constraints)
  try:
    with _watched():
      yield
  finally:
    for shapes in fresh:
      _promised.pop(shapes).restore(shapes)
      _places.pop(shapes)
      _ranges.pop(shapes)


def bounds(shapes: Any, expression: Any) -> Any:
  """The values that an expression may have in the ranges which the export allows."""
  from torch.utils._sympy.value_ranges import ValueRanges, bound_sympy

  try:
    return bound_sympy(expression, {**shapes.var_to_range, **_ranges.get(shapes, {})})
  except Exception:  # torch cannot bound each expression
    return ValueRanges.unknown_int()


def largest(size: Any, otherwise: int) -> int:
  """The largest value of a size while a model is traced; `otherwise` if it has no bound."""
  if isinstance(size, int):
    return size
  bound: Any = size.node.shape_env.bound_sympy(size.node.expr).upper
  return int(bound) if bound.is_Integer else otherwise


def only_quotient(shapes: Any, question: Any, hint: Any) -> Any:
  """The result of a division that is the same for all sizes, None of another expression. torch does
  not see that (3 * n - 1) // n is 2, of which it asks for the halves of two batches in one."""
  if type(question).__name__ != "FloorDiv" or not isinstance(hint, int):
    return None
  dividend, divisor = question.args
  rest = sympy.expand(dividend - hint * divisor)
  conditions = (divisor > 0, rest >= 0, sympy.expand(rest - divisor) < 0)
  known = all(shapes._maybe_evaluate_static(one) == sympy.true for one in conditions)
  return sympy.Integer(hint) if known else None


@contextlib.contextmanager
def restored(shapes: Any) -> Iterator[None]:
  """Gives a shape environment back, when closed, in the state in which it is now."""
  before = _State(shapes) if shapes is not None else None
  if before is not None:
    _forget_answers(shapes)
  try:
    yield
  finally:
    if before is not None:
      before.restore(shapes)


def found(shapes: Any) -> list[Assumption]:
  """The conditions that are assumed now and were not when the program was exported; those that the
  promised ranges imply are left out."""
  promised = None if shapes is None else _promised.get(shapes)
  if shapes is None or promised is None:
    return []
  places = _places[shapes]
  conditions = [guard.expr for guard in shapes.guards[len(promised.guards) :]]
  old = promised.tables["replacements"]
  known = promised.tables["var_to_range"]
  for symbol, value in shapes.replacements.items():
    if symbol in known and symbol not in old and not _is_unbacked(symbol):
      conditions.append(sympy.Eq(symbol, value, evaluate=False))
  # Conditions that are deferred to a run are no guards. A program defines numbers of the data.
  for key, several in shapes.deferred_runtime_asserts.items():
    later = several[len(promised.asserts.get(key, ())) :]
    conditions += [one.expr for one in later if not any(map(_is_unbacked, one.expr.free_symbols))]
  guarded = {limit for condition in conditions if (limit := _limit(condition)) is not None}
  for symbol, now in shapes.var_to_range.items():
    before = known.get(symbol)
    if before is None or before == now or _is_unbacked(symbol) or symbol in shapes.replacements:
      continue
    if now.lower > before.lower:
      conditions.append(sympy.Ge(symbol, now.lower, evaluate=False))
    if now.upper < before.upper and (symbol, now.upper) not in guarded:
      conditions.append(sympy.Le(symbol, now.upper, evaluate=False))
  current = _State(shapes)
  promised.restore(shapes)
  try:
    return [
      Assumption(condition, places.get(condition, ""))
      for condition in dict.fromkeys(conditions)
      if not _is_implied(shapes, condition)
    ]
  finally:
    current.restore(shapes)


def _limit(condition: Any) -> tuple[Any, Any] | None:
  """The symbol and its largest value that a condition like 12 * n <= 100 allows."""
  if not isinstance(condition, sympy.Le) or len(condition.free_symbols) != 1:
    return None
  (symbol,) = condition.free_symbols
  left: Any = condition.lhs
  rest, factor = (left - condition.rhs).as_independent(symbol)
  slope = factor.coeff(symbol)
  if not slope.is_Integer or slope <= 0 or factor != slope * symbol or not rest.is_Integer:
    return None
  return symbol, -rest // slope


def _is_implied(shapes: Any, condition: Any) -> bool:
  # The end of a slice without an end is larger than any size.
  if condition.is_Relational and any(
    each.is_Integer and abs(each) >= 2**62 for each in condition.args
  ):
    return not isinstance(condition, sympy.Eq)
  known: Any = shapes._maybe_evaluate_static(condition)
  return bool(known is not None and known == sympy.true) or _holds(shapes, condition)


def _holds(shapes: Any, condition: Any) -> bool:
  """Whether a condition holds for all numbers, which torch's own simplification does not see: a
  product is a multiple of each factor, also as a sum, and n is less than a multiple of n // 512."""
  from torch.utils._sympy.functions import FloorDiv, Mod
  from torch.utils._sympy.value_ranges import ValueRanges, bound_sympy

  if not condition.is_Relational:
    return False
  left, right = condition.args
  if isinstance(condition, sympy.Eq) and isinstance(left, FloorDiv) and right.is_Integer:
    return only_quotient(shapes, left, int(right)) is not None
  if isinstance(condition, sympy.Eq) and isinstance(left, Mod) and right == 0:
    number: Any = left.args[0]
    return bool(sympy.cancel(number / left.args[1]).as_numer_denom()[1] == 1)
  ranges = {**shapes.var_to_range, **_ranges.get(shapes, {})}
  difference = left - right
  for quotient in sorted(difference.atoms(FloorDiv), key=lambda each: -each.count_ops()):
    if quotient.args[1].is_Integer and quotient.args[1] > 0:
      rest = sympy.Dummy(integer=True, nonnegative=True)
      ranges[rest] = ValueRanges(0, quotient.args[1] - 1)
      difference = difference.xreplace({quotient: (quotient.args[0] - rest) / quotient.args[1]})
  try:
    values = bound_sympy(sympy.expand(difference), ranges)
  except Exception:  # torch cannot bound each expression
    return False
  if isinstance(condition, (sympy.Le, sympy.Lt)):
    return bool(values.upper < 0 or (values.upper == 0 and isinstance(condition, sympy.Le)))
  if isinstance(condition, (sympy.Ge, sympy.Gt)):
    return bool(values.lower > 0 or (values.lower == 0 and isinstance(condition, sympy.Ge)))
  return bool(isinstance(condition, sympy.Ne) and (values.lower > 0 or values.upper < 0))


def _is_unbacked(symbol: Any) -> bool:
  from torch.utils._sympy.symbol import SymT, symbol_is_type

  return symbol_is_type(symbol, (SymT.UNBACKED_INT, SymT.UNBACKED_FLOAT))


def with_replacements(shapes: Any, condition: Any) -> Any:
  """A condition with the symbols that torch took for others, which it found equal. SymPy takes
  symbols of sizes for positive, and would find that `n > 0` always holds: nothing is evaluated."""
  other = {symbol: shapes.replace(symbol) for symbol in condition.free_symbols}
  with sympy.evaluate(False):
    return condition.xreplace({old: new for old, new in other.items() if old != new})


def compares_equals(condition: Any) -> bool:
  """Whether a condition holds since its sides are the same number."""
  if not isinstance(condition, (sympy.Eq, sympy.Le, sympy.Ge)):
    return False
  left: Any = condition.lhs
  return bool(sympy.expand(left - condition.rhs) == 0)


def text(shapes: Any, condition: Any) -> str:
  """A condition as a text in which sizes are called as in the model: "x.size()[1] <= 4096"."""
  names = {}
  for symbol in condition.free_symbols:
    source = next(iter(shapes.var_to_sources.get(symbol, ())), None)
    if source is not None:
      names[symbol] = sympy.Symbol(plain(source_name(source)))
  return str(condition.xreplace(names))


def source_name(source: Any) -> str:
  """The name of a size in torch's guards: "L['x'].size()[1]"."""
  return source.name if isinstance(source.name, str) else source.name()


def plain(name: str) -> str:
  """The name of a size without torch's dict of arguments: "x.size()[1]"."""
  return re.sub(r"L\['(\w+)'\]", r"\1", name)


def pinned(shapes: Any, condition: Any) -> tuple[Any, Any] | None:
  """What a condition pins, and its value: a symbol, or a product or a sum of some, which only a few
  sizes fulfil. None if many others do."""
  from torch.utils._sympy.solve import try_solve

  if not isinstance(condition, sympy.Eq):
    return None
  if len(condition.free_symbols) == 1:
    (symbol,) = condition.free_symbols
    solution = try_solve(condition, symbol)
    if solution is None or not isinstance(solution[0], sympy.Eq) or not solution[1].is_number:
      return None
    return symbol, solution[1]
  right: Any = condition.rhs
  value, expression = (right - condition.lhs).as_coeff_Add()
  expression = -expression if value > 0 else expression
  symbols = condition.free_symbols
  if not expression.is_polynomial(*symbols):
    return None
  factors = sympy.Poly(expression, *symbols).coeffs()
  return (expression, abs(value)) if all(factor > 0 for factor in factors) else None


def promise(shapes: Any, expression: Any) -> str:
  """The range of an expression that the export promises, as "2..32"."""
  known = bounds(shapes, expression)
  return f"{known.lower}..{'inf' if not known.upper.is_Integer else known.upper}"


@contextlib.contextmanager
def _watched() -> Iterator[None]:
  """While open, questions about the promised sizes are answered as the head of this file says."""
  from torch.fx.experimental import symbolic_shapes

  ShapeEnv: Any = symbolic_shapes.ShapeEnv
  before = ShapeEnv.evaluate_expr
  if getattr(before, "is_of_husk", False):
    yield
    return

  def evaluate_expr(self: Any, question: Any, *args: Any, **kwargs: Any) -> Any:
    if self not in _promised:
      return before(self, question, *args, **kwargs)
    if _decides_how() or _is_for_cudnn(question):
      with self.suppress_guards():
        return before(self, question, *args, **kwargs)
    fallback = kwargs.get("fallback_value", args[3] if len(args) > 3 else None)
    # A slice for which Inductor gets no answer would be one whose bounds only the data decides.
    if fallback is not None and not _is_asked_by(*_SLICES):
      known = self._maybe_evaluate_static(question)
      return fallback if known is None else known
    count = len(self.guards)
    answer = before(self, question, *args, **kwargs)
    for guard in self.guards[count:]:
      _places[self].setdefault(guard.expr, _place())
    return answer

  evaluate_expr.is_of_husk = True  # type: ignore[attr-defined]
  with replaced((ShapeEnv, "evaluate_expr", evaluate_expr)):
    yield


def _decides_how() -> bool:
  """Whether the place in torch that asks a question is one of _HOW."""
  path, function = _asking()
  return any(
    path.endswith(end) and (functions is None or function in functions) for end, functions in _HOW
  )


def _is_for_cudnn(question: Any) -> bool:
  """Whether the function of batch norms asks for one of _BATCHES_OF_CUDNN."""
  limit = _limit(question)
  if limit is None or limit[1] not in _BATCHES_OF_CUDNN:
    return False
  path, function = _asking()
  return path.endswith("torch/fx/interpreter.py") and function == "call_function"


def _is_asked_by(end: str, functions: Sequence[str]) -> bool:
  """Whether one of `functions`, in the file whose path ends with `end`, or a lambda of it asks."""
  path, function = _asking(through_lambdas=True)
  return path.endswith(end) and function in functions


def _asking(through_lambdas: bool = False) -> tuple[str, str]:
  """The path and the name of the function that asks. `through_lambdas`: in place of a lambda, those
  of the function that calls it."""
  frame: Any = sys._getframe(3)
  while frame is not None and frame.f_code.co_filename.endswith(_NEUTRAL):
    frame = frame.f_back
  if frame is None:
    return "", ""
  frame = _copy_that_expands(frame) or frame
  if through_lambdas and frame.f_code.co_name == "<lambda>":
    frame = frame.f_back
  return frame.f_code.co_filename, frame.f_code.co_name


def _copy_that_expands(frame: Any) -> Any:
  """The frame of torch's `meta_copy_` if `frame` expands a tensor for it, as it does since torch
  2.15; else None."""
  while frame is not None and frame.f_code.co_filename.endswith(_EXPANDS):
    frame = frame.f_back
  is_copy = frame is not None and frame.f_code.co_name == "meta_copy_"
  return frame if is_copy else None


def _place() -> str:
  """The operator that is lowered or traced now, with the line of the model."""
  import torch.fx.traceback
  from torch._inductor.virtualized import V

  node = getattr(V.graph, "current_node", None)
  meta = getattr(node, "meta", None) or torch.fx.traceback.get_current_meta()
  # While a program is traced, only the function that torch.export has seen is known.
  _, function = meta.get("torch_fn") or ("", "")
  operator = str(getattr(node, "target", None) or function.rpartition(".")[2] or "an operator")
  line = origins.place(meta.get("stack_trace"))
  return f"{operator} (near {line})" if line else operator
