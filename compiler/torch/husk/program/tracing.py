"""How torch.export traces a model.

There are several ways, and each takes models that the others refuse, so `traced` tries them in
turn. torch.export takes sizes that vary for at least 2 and answers all questions of a model about
smaller ones at once: for `if x.shape[0] > 1` the program would have one branch only, and give wrong
numbers where a Dim begins with 1. The first way therefore traces with the ranges that the Dims
have. It also asks fewer questions about sizes that are computed from others, such as a half."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import logging
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import sympy

from .. import prints
from ..errors import CompileError, Unsupported
from ..inductor import assumed, exported_programs, failures, origins
from ..inductor.replace import replaced
from . import guards, unrolled
from .objects import Classes

if TYPE_CHECKING:
  import torch
  from torch.export import ExportedProgram

# The least size that torch.export traces with unless it is told otherwise.
_LEAST = 2


@dataclasses.dataclass(frozen=True)
class _Way:
  """strict, deferred: as the options `strict` and `prefer_deferred_runtime_asserts_over_guards`.
  small: whether sizes begin where their Dim begins, and not with 2."""

  strict: bool
  deferred: bool
  small: bool

  def __str__(self) -> str:
    words = [f"strict={self.strict}"]
    if self.deferred:
      words.append("prefer_deferred_runtime_asserts_over_guards=True")
    return ", ".join(words)


@dataclasses.dataclass(frozen=True)
class _Range:
  """The range that a Dim asks for; None where it leaves an end to torch.export."""

  least: int | None
  most: int | None


def traced(
  model: torch.nn.Module,
  args: tuple[Any, ...],
  kwargs: dict[str, Any] | None,
  dynamic_shapes: Any,
  strict: bool | None = None,
  deferred: bool | None = None,
  classes: Classes | None = None,
  export: Callable[..., Any] | None = None,
) -> ExportedProgram:
  """The program of a model. `export` takes the place of torch.export.export. `classes` gets those
  of objects among its arguments and results that torch cannot take apart by itself. With None for
  `strict` or `deferred` both are tried. Logs which way was needed if the first one failed, and
  which ranges differ from those of the Dims. If every way fails, the error of the first one is
  raised."""

  if classes is not None:
    classes.add_all_of((args, kwargs))
  asked = _asked(model, args, kwargs, dynamic_shapes)
  ways = [
    _Way(one, other, small)
    for other in ((False, True) if deferred is None else (deferred,))
    for one in ((False, True) if strict is None else (strict,))
    for small in ((True, False) if asked else (False,))
  ]
  first = ways[0]
  errors: list[Exception] = []
  for way in ways:
    if not _may_help(way, first, errors):
      continue
    try:
      with _without_messages() if errors else prints.records_of_torch(prints.is_no_error):
        program, decided = _export(model, args, kwargs, dynamic_shapes, way, classes, export)
    except Unsupported:
      raise
    except Exception as error:
      errors.append(error)
      continue
    if way.small and (unmet := _unmet(program, asked, decided)):
      larger = dataclasses.replace(way, small=False)
      with contextlib.suppress(Exception), _without_messages():
        other, reasons = _export(model, args, kwargs, dynamic_shapes, larger, classes, export)
        if not unmet & _unmet(other, asked, reasons):
          program, decided, way = other, reasons, larger
    other_numbers = ""
    if strict is None and not way.strict and (fixed := _fixed_numbers(program)):
      stricter = dataclasses.replace(way, strict=True)
      with contextlib.suppress(Exception), _without_messages():
        other, reasons = _export(model, args, kwargs, dynamic_shapes, stricter, classes, export)
        if len(_fixed_numbers(other)) < len(fixed):
          other_numbers = (
            f"traced with {stricter}, since with {way} the program has {fixed[0]} only"
          )
          program, decided, way = other, reasons, stricter
    remarks = list(_finished(program, asked, way, decided))
    if other_numbers:
      remarks.insert(0, other_numbers)
    elif errors and str(way) != str(first):
      reason = _reason(errors[0])
      remarks.insert(
        0, f"traced with {way}, since torch.export refuses the model with {first}: {reason}"
      )
    if loop := unrolled.remark(program):
      remarks.append(loop)
    for remark in remarks:
      logging.getLogger("husk").warning("%s", remark)
    return program
  failed = errors[0]
  if _LOST in str(failed):
    raise CompileError(
      "torch.export cannot trace the model: it loses the result of an operator that a gradient "
      "inside the model reads, such as that of exp, tanh, softmax or sqrt",
      "write the gradient as a formula, or operators whose gradients read arguments alone, such as "
      "x ** 0.5 for x.sqrt()",
    ) from failed
  if type(failed) is AssertionError:  # by which torch checks itself, and not the model
    raise CompileError(
      f"torch.export cannot trace the model: {failures.reason(failed)}",
      _REMEDY,
      origins.place_of_error(failed),
    ) from failed
  raise failed


# torch.export's error has these words if it has computed a tensor and does not find its node.
_LOST = "fake tensor in the exported program constant's list"

_REMEDY = (
  "write this line with other operators; gradients by torch.autograd.grad under "
  "torch.enable_grad() in place of torch.func"
)


def _may_help(way: _Way, first: _Way, errors: Sequence[Exception]) -> bool:
  """Whether a way may take a model which the ways before it, of which `first` is the first one,
  refuse for `errors`. Another way may refuse it for something else than the first one."""
  if not errors:
    return True
  if way.strict and not first.strict:
    # No way decides by numbers that only the data of a run decides. But Dynamo traces `int(number)`
    # as the number itself, for which Python asks otherwise.
    of_data = [error for error in errors if type(error).__name__ == "GuardOnDataDependentSymNode"]
    if of_data and not any("specialized integer" in str(error) for error in of_data):
      return False
  return not way.deferred or first.deferred or any(_VIOLATED in str(error) for error in errors)


def _reason(error: Exception) -> str:
  """What torch.export refuses a model for, in one line."""
  lines = [assumed.plain(line.strip()) for line in str(error).splitlines()]
  return next((line[2:] for line in lines if line.startswith("- ")), next(iter(lines), ""))


def _without_messages() -> contextlib.AbstractContextManager[None]:
  """While open, torch logs nothing: the first way that failed has said why."""
  return prints.records_of_torch(lambda record: False)


def _export(
  model: torch.nn.Module,
  args: tuple[Any, ...],
  kwargs: dict[str, Any] | None,
  dynamic_shapes: Any,
  way: _Way,
  classes: Classes | None,
  export: Callable[..., Any] | None,
) -> tuple[ExportedProgram, list[Any]]:
  """The program, and the conditions on sizes by which the code of the model decided."""
  import torch

  decided: list[Any] = []
  while True:
    decided.clear()
    lines: list[str] = []
    try:
      with (
        _lines_of_conditions(lines),
        _small_sizes(decided) if way.small else contextlib.nullcontext(),
        contextlib.nullcontext() if classes is None or way.strict else classes.of_results(model),
      ):
        program = (export or torch.export.export)(
          model,
          args,
          kwargs,
          dynamic_shapes=dynamic_shapes,
          strict=way.strict,
          prefer_deferred_runtime_asserts_over_guards=way.deferred,
        )
    except Exception as error:
      if classes is not None and classes.add_of(error):
        continue
      if _VIOLATED in str(error) and lines:
        several = "\n".join(f"  - {line}" for line in dict.fromkeys(lines))
        error.args = (f"{error}\nLines of the model that decide by sizes:\n{several}",)
      raise
    if way.deferred:
      _assume_deferred(program)
    return program, decided


# torch.export's error begins so if a size has another range than its Dim. It names no line.
_VIOLATED = "Constraints violated"


@contextlib.contextmanager
def _lines_of_conditions(lines: list[str]) -> Iterator[None]:
  """While open, `lines` gets each condition on sizes that code of a model decides by, and its line,
  such as "Eq(x.size()[1], 8): model.py:12 x * math.log2(x.shape[1])". Dynamo, which runs no code of
  the model, tells the line itself."""
  from torch.fx.experimental import symbolic_shapes

  ShapeEnv: Any = symbolic_shapes.ShapeEnv
  before = ShapeEnv.evaluate_expr

  def evaluate_expr(self: Any, question: Any, hint: Any = None, *args: Any, **kwargs: Any) -> Any:
    known = assumed.only_quotient(self, question, hint)
    if known is not None:
      return known
    count = len(self.guards)
    answer = before(self, question, hint, *args, **kwargs)
    for guard in self.guards[count:]:
      if line := _line_of_model():
        lines.append(f"{assumed.text(self, guard.expr)}: {line}")
    return answer

  # torch writes the place that asks into its errors, which is the first one outside of these files.
  files = symbolic_shapes.uninteresting_files() | {__file__}
  with replaced(
    (ShapeEnv, "evaluate_expr", evaluate_expr),
    (symbolic_shapes, "uninteresting_files", lambda: files),
  ):
    yield


def _line_of_model() -> str:
  """The line of a model that runs, "" if none does."""
  for frame, number in traceback.walk_stack(None):
    if frame.f_code is _export.__code__:
      return ""
    path = frame.f_code.co_filename
    if path[:1] != "<" and not origins.is_of_husk(path) and not origins.is_of_torch(path):
      summary = traceback.StackSummary.extract([(frame, number)])
      return origins.place("".join(summary.format()))
  return ""


def _assume_deferred(program: ExportedProgram) -> None:
  """Has the conditions checked that torch.export has deferred to a run: it writes only some of them
  into the program. A number that the model's code takes for an int of Python, as by `int(size *
  1.5)`, is another one for each size, and no program has several: such a condition is refused."""
  shapes = assumed.environment(program)
  if shapes is None:
    return
  conditions = [
    one.expr
    for several in shapes.deferred_runtime_asserts.values()
    for one in several
    if all(symbol in shapes.backed_var_to_val for symbol in one.expr.free_symbols)
  ]
  # Inputs that share a Dim have a symbol each while they are traced, and one symbol afterwards.
  conditions = [
    condition
    for condition in (assumed.with_replacements(shapes, one) for one in conditions)
    if not assumed.compares_equals(condition)
  ]
  for condition in conditions:
    rounded = any(type(part).__name__ in _ROUNDED for part in sympy.preorder_traversal(condition))
    if isinstance(condition, sympy.Eq) and (
      rounded or any(one.is_Symbol for one in condition.args)
    ):
      if any(one.is_number for one in condition.args):
        raise ValueError(f"the model's code is traced for {assumed.text(shapes, condition)} alone")
  exported_programs.assume(program, [assumed.Assumption(one) for one in dict.fromkeys(conditions)])


def _fixed_numbers(program: ExportedProgram) -> list[str]:
  """The numbers that the model's code has made of sizes by rounding, as by `int(size * 1.5)`, and
  that the program has for the sizes of the example alone. Only Dynamo traces such an int as an
  expression."""
  shapes = assumed.environment(program)
  if shapes is None:
    return []
  conditions = [guard.expr for guard in shapes.guards]
  return [
    assumed.text(shapes, condition)
    for condition in conditions
    if isinstance(condition, sympy.Eq)
    and any(one.is_number for one in condition.args)
    and any(type(one).__name__ in _ROUNDED for one in condition.args)
  ]


# Functions of torch that make an int of a float.
_ROUNDED = ("TruncToInt", "FloorToInt", "CeilToInt", "RoundToInt")


@contextlib.contextmanager
def _small_sizes(decided: list[Any]) -> Iterator[None]:
  """While open, torch.export takes sizes that vary for 0 or more, and asks as few questions about
  them as about sizes that only the data decides. Functions that copy a tensor if they must ask
  whether a size is 1, or whether strides are those of neighbours, which decides nothing else, and
  attention, which chooses a kernel by it: they hear that it is not so. `decided` gets the
  conditions by which the code of the model, and not an operator, decides."""
  import torch
  from torch.fx.experimental import _config, symbolic_shapes

  aten = torch.ops.aten
  copying = (
    *(aten.reshape.default, aten.flatten.using_ints, aten.reshape_as.default),
    *(torch.Tensor.reshape, torch.Tensor.flatten, torch.Tensor.reshape_as, torch.Tensor.contiguous),
    *(torch.reshape, torch.flatten),
    *(aten.scaled_dot_product_attention.default, torch.nn.functional.scaled_dot_product_attention),
  )
  ShapeEnv: Any = symbolic_shapes.ShapeEnv
  before = ShapeEnv.evaluate_expr

  def evaluate_expr(self: Any, question: Any, *args: Any, **kwargs: Any) -> Any:
    operator = _asking_operator()
    if isinstance(question, (sympy.Eq, sympy.Ne)) and (
      operator is torch.Tensor.contiguous or operator in copying and 1 in question.args
    ):
      known = self._maybe_evaluate_static(question)
      if known is None:
        return sympy.true if isinstance(question, sympy.Ne) else sympy.false
      return known
    count = len(self.guards)
    answer = before(self, question, *args, **kwargs)
    if operator is None:
      decided.extend(guard.expr for guard in self.guards[count:])
    return answer

  config: Any = _config
  with (
    config.patch(backed_size_oblivious=True),
    replaced((ShapeEnv, "evaluate_expr", evaluate_expr)),
  ):
    yield


def _asking_operator() -> Any:
  """The operator or the function of torch that asks a question, None if a model's code does."""
  import torch

  package = os.path.dirname(torch.__file__)
  frame: Any = sys._getframe(2)
  while frame is not None and frame.f_code.co_filename.startswith(package):
    path, name = frame.f_code.co_filename, frame.f_code.co_name
    if name == "__call__" and path.endswith("torch/_ops.py"):
      return frame.f_locals.get("self")
    if name == "__torch_function__" and path.endswith("torch/_export/non_strict_utils.py"):
      return frame.f_locals.get("func")
    frame = frame.f_back
  return None


def _asked(
  model: torch.nn.Module,
  args: tuple[Any, ...],
  kwargs: Mapping[str, Any] | None,
  dynamic_shapes: Any,
) -> dict[str, _Range]:
  """The ranges that Dims ask for, by the name that torch has for a size: "L['x'].size()[1]", or
  for an int: "L['n']". Shapes that torch.export refuses are left to it."""
  from torch.export import dynamic_shapes as shapes
  from torch.utils import _pytree as pytree

  found: dict[str, _Range] = {}
  parameters = inspect.signature(model.forward).parameters.values()
  several = [one.name for one in parameters if one.kind is inspect.Parameter.VAR_POSITIONAL]

  def visit(path: Any, value: Any, dims: Any) -> None:
    first, *rest = path
    if first.key in several and rest:  # torch.export calls the first of `*a` "a_0"
      path = (pytree.MappingKey(f"{first.key}_{rest[0].idx}"), *rest[1:])
    name = "L" + pytree.keystr(path)
    if isinstance(dims, (list, tuple)):
      dims = dict(enumerate(dims))
    if not isinstance(dims, dict):
      found[name] = _range(dims)
      return
    for dim, one in dims.items():
      found[f"{name}.size()[{dim}]"] = _range(one)

  if not dynamic_shapes:
    return {}
  try:
    if isinstance(dynamic_shapes, shapes.ShapesCollection):
      dynamic_shapes = dynamic_shapes.dynamic_shapes(model, args, kwargs or {})
    combined: Any = shapes._combine_args(model, args, kwargs or {})
    if isinstance(dynamic_shapes, (tuple, list)):
      dynamic_shapes = dict(zip(combined, dynamic_shapes))
    shapes._tree_map_with_path(visit, combined, dynamic_shapes, tree_name="inputs")
  except Exception:  # torch.export says what is wrong with the shapes
    return {}
  return {name: one for name, one in found.items() if one != _Range(None, None)}


def _range(dim: Any) -> _Range:
  """The range of a Dim, a hint such as Dim.DYNAMIC(min=1), or a number."""
  least, most = getattr(dim, "min", None), getattr(dim, "max", None)
  return _Range(least if isinstance(least, int) else None, most if isinstance(most, int) else None)


def _unmet(
  program: ExportedProgram, asked: Mapping[str, _Range], decided: Sequence[Any]
) -> set[str]:
  """The sizes that begin later than their Dim asks although the model's code does not decide so: an
  operator has asked about the size 1, such as a view of an image whose channels are innermost."""
  shapes = assumed.environment(program)
  if shapes is None:
    return set()
  every = [guard.expr for guard in shapes.guards]
  found = set()
  for symbol, name in _sizes(program).items():
    known, wanted = program.range_constraints[symbol], asked.get(name, _Range(None, None)).least
    if wanted is None:
      continue
    least, _ = _narrowed(symbol, _about(symbol, shapes, every), known.lower, known.upper)
    own, _ = _narrowed(symbol, _about(symbol, shapes, decided), wanted, known.upper)
    if least > own:
      found.add(name)
  return found


def _about(symbol: sympy.Symbol, shapes: Any, conditions: Sequence[Any]) -> list[Any]:
  """The conditions on a size alone, each once. Sizes that the model took for equal have one symbol
  in the program."""
  found = dict.fromkeys(shapes.replace(one) for one in conditions)
  return [one for one in found if one.free_symbols == {symbol}]


def _finished(
  program: ExportedProgram, asked: Mapping[str, _Range], way: _Way, decided: Sequence[Any]
) -> Iterator[str]:
  """Gives the sizes of a program the ranges in which it is right, and yields a text for each Dim
  that has another range then. `decided`: the conditions by which the code of the model decided."""
  from torch.utils._sympy.value_ranges import ValueRanges

  shapes = assumed.environment(program)
  if shapes is None:
    return
  for symbol, name in _sizes(program).items():
    known, wanted = program.range_constraints[symbol], asked.get(name, _Range(None, None))
    own = _about(symbol, shapes, decided)
    least, most = _narrowed(symbol, own, known.lower, known.upper)
    if wanted.least is None and way.small:
      least = max(least, _LEAST)
    if least > most:
      continue
    program.range_constraints[symbol] = ValueRanges(least, most)
    if way.small:
      _compile_for_larger(shapes, symbol)
    size = sympy.Symbol(assumed.plain(name))
    why = [str(condition.xreplace({symbol: size})) for condition in own]
    yield from _remark(str(size), wanted, (least, most), why)


def _sizes(program: ExportedProgram) -> dict[Any, str]:
  """The symbols that are sizes of inputs, each with the name that guards have for it."""
  import torch

  nodes = {node.name: node for node in program.graph.find_nodes(op="placeholder")}
  arguments = [
    spec.arg for spec in program.graph_signature.input_specs if spec.kind.name == "USER_INPUT"
  ]
  found: dict[Any, str] = {}
  for name, index in guards.sources(program).items():
    node = nodes.get(getattr(arguments[index], "name", ""))
    value = None if node is None else node.meta.get("val")
    for dim, size in enumerate(value.shape if isinstance(value, torch.Tensor) else ()):
      symbol = size.node.expr if isinstance(size, torch.SymInt) else None
      if isinstance(symbol, sympy.Symbol) and symbol in program.range_constraints:
        found.setdefault(symbol, f"{name}.size()[{dim}]")
  return found


def _narrowed(
  symbol: sympy.Symbol, conditions: Sequence[Any], least: Any, most: Any
) -> tuple[Any, Any]:
  """The range of a size in which conditions hold that exclude numbers at its ends."""
  from torch.utils._sympy.solve import try_solve

  excluded = set()
  for condition in conditions:
    solution = try_solve(condition, symbol) if condition.is_Relational else None
    if solution is None or solution[0].lhs != symbol or not solution[1].is_number:
      continue
    relation, limit = solution
    if isinstance(relation, sympy.Gt):
      least = max(least, sympy.floor(limit) + 1)
    elif isinstance(relation, sympy.Ge):
      least = max(least, sympy.ceiling(limit))
    elif isinstance(relation, sympy.Lt):
      most = min(most, sympy.ceiling(limit) - 1)
    elif isinstance(relation, sympy.Le):
      most = min(most, sympy.floor(limit))
    elif isinstance(relation, sympy.Ne):
      excluded.add(limit)
  while least in excluded:
    least += 1
  while most in excluded:
    most -= 1
  return least, most


def _compile_for_larger(shapes: Any, symbol: sympy.Symbol) -> None:
  """Lets Inductor take a size for at least 2, as after any other export: it needs no answer that
  differs for smaller ones, and would otherwise ask the data for the bounds of a slice."""
  from torch.utils._sympy.value_ranges import ValueRanges

  known = shapes.var_to_range[symbol]
  if shapes.backed_var_to_val[symbol] >= _LEAST and known.upper >= _LEAST:
    shapes.var_to_range[symbol] = ValueRanges(max(known.lower, _LEAST), known.upper)
    shapes.size_like.discard(symbol)


def _remark(
  size: str, wanted: _Range, became: tuple[Any, Any], why: Sequence[str]
) -> Iterator[str]:
  """A text if the range of a size is not that of its Dim. `why`: the conditions that exclude other
  sizes."""
  least, most = became
  if (wanted.least is None or least <= wanted.least) and (
    wanted.most is None or most >= wanted.most
  ):
    return
  because = (
    f"the model's code decides by {' and '.join(why)}"
    if why
    else "torch.export does not trace the model for smaller ones"
  )
  yield (
    f"{size} takes {_interval(least, most)}, not {_interval(wanted.least, wanted.most)} as its Dim "
    f"asks, since {because}"
  )


def _interval(least: Any, most: Any) -> str:
  """A range as a `.hir` writes it; None and infinity are no end."""
  end = most if getattr(most, "is_Integer", isinstance(most, int)) else "inf"
  return f"{0 if least is None else least}..{end}"
