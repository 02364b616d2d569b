"""What Dynamo knows of the frame and of the graph that it compiles."""

from __future__ import annotations

from typing import Any

from . import assumed


def traced_frame() -> tuple[Any, dict[str, Any]] | None:
  """The code of the frame that Dynamo traces and its variables, None if it traces none."""
  from torch._dynamo.symbolic_convert import InstructionTranslator

  try:
    translator: Any = InstructionTranslator.current_tx()
  except AttributeError:  # this thread has not traced yet
    return None
  return None if translator is None else (translator.f_code, translator.f_locals)


def wrapped(function: Any) -> Any:
  """The function whose frame Dynamo compiles if `function` is torch's own, which Dynamo would
  skip. Its variable `fn` is `function`."""
  from torch._dynamo import external_utils

  dynamo: Any = external_utils
  return dynamo.wrap_inline(function)


def wraps(code: Any) -> bool:
  """Whether a code is that of `wrapped`."""
  return wrapped(len).__code__ is code


def shape_guards() -> tuple[list[Any], dict[Any, list[str]]]:
  """The conditions on sizes and ints that torch has assumed for the graph that it compiles, and the
  Python expressions that have the value of each symbol."""
  from torch._guards import TracingContext

  context = TracingContext.try_get()
  shapes: Any = context and context.fake_mode and context.fake_mode.shape_env
  if not shapes:
    return [], {}
  conditions = [guard.expr for guard in shapes.guards]
  return conditions, {
    symbol: [assumed.source_name(source) for source in sources]
    for symbol, sources in shapes.var_to_sources.items()
  }


def symbol_ranges() -> dict[Any, Any]:
  """The ranges of the symbols of the graph that torch compiles."""
  from torch._guards import TracingContext

  context = TracingContext.try_get()
  shapes: Any = context and context.fake_mode and context.fake_mode.shape_env
  return dict(shapes.var_to_range) if shapes else {}


def compiled_codes(code: Any) -> list[tuple[Any, tuple[int, ...]]]:
  """The codes that Dynamo runs in place of a code, with the number of their compilation. The first
  one is that which ran last."""
  from torch._dynamo import eval_frame

  dynamo: Any = eval_frame
  entries = dynamo._debug_get_cache_entry_list(code)
  return [
    (entry.code, (entry.compile_id.frame_id or 0, entry.compile_id.frame_compile_id or 0))
    for entry in entries
  ]
