"""Regions: what Dynamo knows of a graph when it calls the backend, and how to find the graphs of a
compiled callable. `husk.save_compiled` needs both."""

from __future__ import annotations

import dataclasses
import inspect
import re
import types
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from .. import hir
from ..errors import Unsupported
from ..inductor import dynamo_frames
from ..inductor.layouts import span
from ..program.signature import limits

if TYPE_CHECKING:
  import torch

_ATTRIBUTE = "_husk_region"


@dataclasses.dataclass(frozen=True)
class Described:
  """A tensor among the arguments, without its memory. `base` is the tensor of which it is a view,
  on whose sizes torch may have guards."""

  shape: tuple[int, ...]
  stride: tuple[int, ...]
  offset: int
  dtype: torch.dtype
  device: torch.device
  requires_grad: bool
  is_leaf: bool
  is_parameter: bool
  is_inference: bool
  base: Described | None

  def tensor(self) -> torch.Tensor:
    """A tensor that is described so, filled with ones."""
    import torch

    with torch.inference_mode(self.is_inference):
      if self.base is not None:
        return self.base.tensor().as_strided(self.shape, self.stride, self.offset)
      elements = self.offset + span(self.shape, self.stride)
      flat = torch.ones(elements, dtype=self.dtype, device=self.device)
      value = torch.empty(0, dtype=self.dtype, device=self.device)
      value.set_(flat.untyped_storage(), self.offset, self.shape, self.stride)
    if self.is_parameter:
      return torch.nn.Parameter(value, self.requires_grad)
    value.requires_grad_(self.requires_grad)
    return value if self.is_leaf else value.clone()


@dataclasses.dataclass(frozen=True)
class Unknown:
  """An argument that a region does not keep."""

  type: str


@dataclasses.dataclass
class Region:
  """A graph of Dynamo's.

  place: the function and the line where it begins.
  owner: the class of the module, if it is the frame of a module's method, since modules of a class
    may share graphs; the function, if it is one of torch's own, for which torch makes a frame.
  arguments: those of the frame by name; tensors are `Described`.
  guards: the conditions on sizes and ints under which torch runs the graph, as conditions of a
    `.hir`, each with a text; the condition is empty if a `.hir` cannot have it.
  symbols: for each symbol the Python expressions that have its value.
  grad, inference: the modes in which torch traced the frame.
  ranges: the range of each symbol, as in a `.hir`.
  """

  place: str
  owner: weakref.ref[Any] | None
  arguments: dict[str, Any]
  guards: list[tuple[str, str]]
  symbols: dict[str, list[str]]
  grad: bool
  inference: bool
  ranges: dict[str, str] = dataclasses.field(default_factory=dict)


def attach(compiled: Any, region: Region | None) -> None:
  """Keeps a region as long as the compiled graph lives."""
  compiled = _innermost(compiled)
  if region is not None and isinstance(compiled, types.FunctionType):
    setattr(compiled, _ATTRIBUTE, region)


def _innermost(function: Any) -> Any:
  """The function that torch has wrapped in others."""
  while (inner := getattr(function, "_torchdynamo_orig_callable", None)) is not None:
    function = inner
  return function


def of_frame(of_inductor: Sequence[range]) -> Region | None:
  """The region of the frame that Dynamo compiles, None if this is not a call of Dynamo's.
  `of_inductor` are the numbers of guards that Inductor has added: they decide how kernels compute,
  not what, except the limits of 32-bit indices, which are checks of the program."""
  import torch

  frame = dynamo_frames.traced_frame()
  if frame is None:
    return None
  code, values = frame
  arguments = {name: values[name] for name in _parameters(code) if name in values}
  first = next(iter(arguments), "")
  owner = arguments.get(first)
  if not code.co_argcount and isinstance(owner, tuple) and owner:
    # A decorator's `*args`, the first of which may be the module.
    owner = owner[0]
  is_method = isinstance(owner, torch.nn.Module)
  if is_method:
    if isinstance(arguments[first], tuple):
      arguments[first] = arguments[first][1:]
    else:
      del arguments[first]
    owner = type(owner)
  else:
    owner = _class_or_function(values.get("fn")) if dynamo_frames.wraps(code) else None
  guards, symbols = _guards(of_inductor)
  return Region(
    f"{code.co_name} ({code.co_filename.rpartition('/')[2]}:{code.co_firstlineno})",
    None if owner is None else weakref.ref(owner),
    {name: _described(value) for name, value in arguments.items()},
    guards,
    symbols,
    torch.is_grad_enabled(),
    torch.is_inference_mode_enabled(),
    _ranges(),
  )


def _ranges() -> dict[str, str]:
  ranges = dynamo_frames.symbol_ranges()
  return {str(symbol): limits(symbol, ranges) or "0..inf" for symbol in ranges}


def _class_or_function(function: Any) -> Any:
  """The class of a module or of the module of a method, else the function itself."""
  import torch

  bound = getattr(function, "__self__", function)
  return type(bound) if isinstance(bound, torch.nn.Module) else function


def _parameters(code: types.CodeType) -> tuple[str, ...]:
  """The names of a function's parameters."""
  flags = bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
  return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + flags]


def _described(value: Any) -> Any:
  """An argument without the memory of its tensors."""
  import torch
  from torch.utils import _pytree as pytree

  def leaf(one: Any) -> Any:
    if type(one) in (torch.Tensor, torch.nn.Parameter) and one.layout == torch.strided:
      return Described(
        tuple(map(int, one.shape)),
        tuple(map(int, one.stride())),
        int(one.storage_offset()),
        one.dtype,
        one.device,
        one.requires_grad,
        one.is_leaf,
        isinstance(one, torch.nn.Parameter),
        one.is_inference(),
        leaf(one._base) if one._is_view() else None,
      )
    if one is None or isinstance(one, (bool, int, float, complex, str, torch.dtype, torch.device)):
      return one
    return Unknown(type(one).__name__)

  return pytree.tree_map(leaf, value)


def guard_count() -> int:
  """The number of guards on sizes and ints that torch has assumed until now."""
  return len(dynamo_frames.shape_guards()[0])


def _guards(of_inductor: Sequence[range]) -> tuple[list[tuple[str, str]], dict[str, list[str]]]:
  """The guards on sizes and ints, and the sources of their symbols."""
  conditions, sources = dynamo_frames.shape_guards()
  conditions = [
    condition
    for index, condition in enumerate(conditions)
    if not any(index in numbers for numbers in of_inductor)
  ]
  conditions = _with_fixed_floats(conditions)
  exprs = hir.Expressions()
  for symbol in sources:
    exprs.define(symbol, hir.Name(str(symbol)))
  guards = {}
  for condition in conditions:
    try:
      guards[str(condition)] = str(exprs.int(condition)) if exprs.knows(condition) else ""
    except Unsupported:
      guards[str(condition)] = ""
  return (
    [(condition, text) for text, condition in guards.items()],
    {str(symbol): names for symbol, names in sources.items()},
  )


def _with_fixed_floats(conditions: list[Any]) -> list[Any]:
  """Conditions with the values of the floats for which torch has compiled. Such a float is an
  attribute of the model, or an argument that the graph does not get and whose value the file
  checks."""
  import sympy

  fixed = {
    one.lhs: one.rhs
    for one in conditions
    if isinstance(one, sympy.Eq) and one.lhs.is_Symbol and isinstance(one.rhs, sympy.Float)
  }
  conditions = [one.xreplace(fixed) for one in conditions]
  return [one for one in conditions if one != sympy.true]


# The graphs of a callable


@dataclasses.dataclass
class Callee:
  """A compiled callable.

  call: what a user calls.
  functions: the functions whose frames Dynamo may have compiled.
  traced: what the user gave torch.compile, or the module's method.
  module: the module, if there is one.
  signature: of the arguments as a user gives them.
  """

  call: Callable[..., Any]
  functions: list[types.FunctionType]
  traced: Any
  module: torch.nn.Module | None
  signature: inspect.Signature

  @property
  def name(self) -> str:
    if self.module is not None:
      return type(self.module).__name__
    return str(getattr(self.traced, "__name__", self.traced))


@dataclasses.dataclass
class Entry:
  """A frame that Dynamo has compiled. `breaks` are the places at which its graph breaks."""

  number: tuple[int, ...]  # torch's number of the compilation
  function: Any
  region: Region
  breaks: list[str]

  def names(self) -> dict[str, Any]:
    """The global variables of the frame."""
    return self.function.__globals__


def callee(compiled: Any) -> Callee:
  """The callable `compiled`, a result of torch.compile, with its functions and its module."""
  import torch

  module = compiled if isinstance(compiled, torch.nn.Module) else None
  target: Any = compiled
  if module is not None:
    target = getattr(module, "_compiled_call_impl", None)
    if (original := getattr(module, "_orig_mod", None)) is not None:
      target, module = compiled.forward, original
  traced = getattr(target, "_torchdynamo_orig_callable", None)
  if traced is None and module is not None and isinstance(target, types.MethodType):
    traced = target  # a module with lazy parameters, which its first call gives values
  if traced is None:
    name = getattr(compiled, "__name__", type(compiled).__name__)
    raise TypeError(
      f'{name} is no result of torch.compile: give what torch.compile(..., backend="husk") has '
      "returned"
    )
  if module is not None:
    signature = inspect.signature(module.forward)
  else:
    signature = inspect.signature(traced)
  found: list[Any] = [traced, *([module.forward] if module is not None else [])]
  functions = [getattr(one, "__func__", one) for one in found]
  functions.append(dynamo_frames.wrapped(traced))
  if module is None and isinstance(bound := getattr(traced, "__self__", None), torch.nn.Module):
    module = bound
  return Callee(
    compiled,
    [one for one in functions if isinstance(one, types.FunctionType)],
    traced,
    module,
    signature,
  )


def entries(of: Callee) -> list[Entry]:
  """The frames of a callable that are compiled by this backend, the one that ran last first."""
  owner = _class_or_function(of.traced if of.module is None else of.module)
  found = []
  for function in {function.__code__: function for function in of.functions}.values():
    for code, number in dynamo_frames.compiled_codes(function.__code__):
      region = _region_of_code(code, function)
      if region is None or region.owner is not None and region.owner() is not owner:
        continue
      found.append(Entry(number, function, region, list(_breaks(code, function.__globals__))))
  return found


def _region_of_code(code: types.CodeType, function: types.FunctionType) -> Region | None:
  """The region of a code that Dynamo runs, None if another backend has compiled its graph."""
  for name in code.co_names:
    if name.startswith("__compiled_fn_"):
      return _region(function.__globals__.get(name))
  return None


def _region(graph: Any) -> Region | None:
  return getattr(_innermost(graph), _ATTRIBUTE, None)


def _breaks(code: types.CodeType, names: Mapping[str, Any]) -> Iterator[str]:
  """The places at which the graph of a frame breaks. Dynamo names the function that goes on after a
  break by its line."""
  for name in code.co_names:
    resumed = getattr(names.get(name), "__code__", None)
    if not name.startswith("__resume_at") or resumed is None:
      continue
    place = re.fullmatch(r"torch_dynamo_resume_in_(.*)_at_(\d+)", resumed.co_name)
    if place:
      yield f"{place[1]} ({resumed.co_filename.rpartition('/')[2]}:{place[2]})"
    for inner, _ in dynamo_frames.compiled_codes(resumed):
      yield from _breaks(inner, names)


def arguments(entry: Entry, of: Callee) -> tuple[tuple[Any, ...], dict[str, Any]]:
  """Arguments with which the callable runs the graph of an entry again."""
  import torch
  from torch.utils import _pytree as pytree

  args: list[Any] = []
  kwargs: dict[str, Any] = {}
  # The parameters of the frame that torch has compiled, which may be a decorator's: those of most
  # models of transformers are `*args, **kwargs`.
  parameters = inspect.signature(entry.function, follow_wrapped=False).parameters
  trailing = 0  # the arguments at the end that are equal to their defaults
  for name, parameter in parameters.items():
    if name not in entry.region.arguments:
      continue
    described = entry.region.arguments[name]
    for leaf in pytree.tree_leaves(described):
      if isinstance(leaf, Unknown):
        raise Unsupported(
          f"the argument {name} of {of.name} has a {leaf.type}, which is not kept: give args="
        )
    value: Any = pytree.tree_map_only(Described, Described.tensor, described)
    is_default = not isinstance(value, torch.Tensor) and value is parameter.default
    if parameter.kind is parameter.VAR_POSITIONAL:
      args += value
      trailing = 0
    elif parameter.kind is parameter.VAR_KEYWORD:
      kwargs.update(cast("dict[str, Any]", value))
    elif parameter.kind is parameter.KEYWORD_ONLY:
      kwargs.update({} if is_default else {name: value})
    else:
      args.append(value)
      trailing = trailing + 1 if is_default else 0
  return tuple(args[: len(args) - trailing]), kwargs
