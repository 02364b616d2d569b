"""The backend of torch.compile, which is found by its name once the package is installed.

torch's own `compile_fx` does all that happens before Inductor generates code and after that:
AOTAutograd, decompositions, freezing, caches. Only Inductor's wrapper is replaced: its result is
the text of a Python module that holds an artifact and calls it (`text`)."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import pathlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .. import devices
from ..errors import Unsupported
from ..hir import huskc
from ..inductor import (
  capture,
  collectives,
  frames,
  loop_ints,
  one_device,
  repeated_sizes,
  symmetric_memory,
  torch_compat,
)
from ..runtime.program import MODES
from ..version import VERSION
from . import regions, text
from .module import free_arenas

if TYPE_CHECKING:
  import torch

# Inductor's options that Husk decides itself.
_DECIDED = ("cpp_wrapper", "fx_wrapper")


@frames.in_one_piece
def backend(
  module: torch.fx.GraphModule,
  inputs: Sequence[Any],
  *,
  mode: str | None = None,
  options: Mapping[str, Any] | None = None,
) -> Any:
  """Compiles a graph of Dynamo's. `mode` and `options` are those of torch.compile. The options are
  those of Inductor, and two of Husk's:

  mode: "auto", "list" or "graph", as for a session of Husk.
  libraries: on a GPU, whether libraries compute products of matrices, convolutions and attention. A
    program that calls a library runs as a list of launches. With False, operators such as topk,
    which PyTorch computes otherwise, become kernels too. By default libraries are called, except in
    inference if the caller asks for graphs, by "mode": "graph" or by a mode of torch.compile that
    has CUDA graphs, and if the whole program is a graph without them.
  """
  from torch._inductor.compile_fx import compile_fx

  run_mode, libraries, patches = _options(mode, options or {})
  tag = _tag(run_mode, libraries)
  of_inductor: list[range] = []

  # A backward is compiled after compile_fx has returned, perhaps by another thread, so what the
  # compilation needs is set inside.
  def inner(graph: torch.fx.GraphModule, values: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
    begin = regions.guard_count()
    result = _compile(tag, run_mode, libraries, graph, values, *args, **kwargs)
    of_inductor.append(range(begin, regions.guard_count()))
    return result

  # Inductor measures while it compiles, with buffers of its own.
  free_arenas()
  with contextlib.ExitStack() as stack:
    stack.enter_context(torch_compat.cache_tag(tag))
    stack.enter_context(devices.graph_decompositions(libraries))
    stack.enter_context(torch_compat.numbers_of_data())
    stack.enter_context(repeated_sizes.known())
    loop_ints.carry_ints_as_tensors(module)
    symmetric_memory.replace_calls(module)
    compiled = compile_fx(module, inputs, inner_compile=inner, config_patches=patches)
  regions.attach(compiled, regions.of_frame(of_inductor))
  return compiled


@frames.in_one_piece
def _compile(
  tag: str,
  run_mode: str,
  libraries: bool | None,
  graph: torch.fx.GraphModule,
  values: Sequence[Any],
  *args: Any,
  **kwargs: Any,
) -> Any:
  """Inductor's inner compiler with Husk's wrapper."""
  import torch
  from torch._inductor import config
  from torch._inductor.compile_fx import compile_fx_inner

  device = devices.of_graph(graph)
  if run_mode not in device.modes:
    raise Unsupported(f'mode "{run_mode}": {device.title} has no graphs; give "auto"')
  huskc.require()
  free_arenas()  # a backward is compiled later than the rest
  kept = one_device.Kept()
  if device.kernels.is_beside_host:
    kept = one_device.move(graph, torch.device(device.name))
    values = one_device.values(graph, values, kept)
  if libraries is None:
    libraries = not (kwargs.get("is_inference") and device.can_do_without_libraries(graph))
  with (
    torch_compat.cache_tag(f"{tag} {kept.text()}"),
    device.compiling(graph, libraries) as kernels,
    capture.inductor(
      device.torch_type,
      text.Writer(device, kernels, run_mode, kept, collectives.waited_inputs(graph)).write,
      lowerings=device.prepare(graph, libraries),
      caching=True,
    ),
    config.patch(fx_wrapper=True),
    torch_compat.numbers_of_data(values),
    repeated_sizes.known(),
  ):
    return compile_fx_inner(graph, values, *args, **{**kwargs, "fx_wrapper": True})


def _options(
  mode: str | None, options: Mapping[str, Any]
) -> tuple[str, bool | None, dict[str, Any]]:
  """The mode of sessions, whether libraries are called (None: the graph decides), and Inductor's
  options."""
  from torch._inductor import config, list_mode_options

  inductor_options = dict(options)
  run_mode = inductor_options.pop("mode", "auto")
  if run_mode not in MODES:
    raise ValueError(f"mode {run_mode!r}: give one of {', '.join(map(repr, MODES))}")
  libraries = inductor_options.pop("libraries", None)
  if libraries not in (None, True, False):
    raise ValueError(f"libraries={libraries!r}: give True or False")
  known = config.get_config_copy()
  for name in inductor_options:
    if name.replace("-", "_") not in known or name in _DECIDED:
      raise ValueError(
        f'torch.compile(backend="husk") has no option {name!r}: it has mode, libraries, and those '
        "of torch._inductor.config that say how kernels are made"
      )
  patches = {**(list_mode_options(mode) if mode else {}), **inductor_options}
  patches = {name.replace("-", "_"): value for name, value in patches.items()}
  if libraries is None and run_mode != "graph" and not patches.get("triton.cudagraphs"):
    libraries = True
  return (
    run_mode,
    libraries,
    {
      **torch_compat.options_in_process(patches),
      **devices.graph_options(),
      **patches,
      "triton.cudagraphs": False,  # torch would put graphs of its own around the program
      # The memory of a program is none that ranks share.
      "_micro_pipeline_tp": False,
      "_collective.auto_select": False,
    },
  )


def _tag(run_mode: str, libraries: bool | None) -> str:
  """A text that distinguishes Husk's entries in torch's caches. torch does not know that the result
  of a graph depends on these."""
  return f"husk {VERSION} {devices.best_isa()} {run_mode} {libraries} {_sources()}"


@functools.cache
def _sources() -> str:
  """A hash of what makes programs: the compiler and the modules of this package."""
  found = hashlib.sha256()
  if compiler := huskc.huskc():
    found.update(pathlib.Path(compiler).read_bytes())
  package = pathlib.Path(__file__).resolve().parents[1]
  for path in sorted(package.rglob("*")):
    if path.suffix in (".py", ".h"):
      found.update(path.read_bytes())
  return found.hexdigest()[:16]


def _reset() -> None:
  """Called by torch._dynamo.reset()."""
  devices.best_isa.cache_clear()
  _sources.cache_clear()


backend.reset = _reset  # type: ignore[attr-defined]
