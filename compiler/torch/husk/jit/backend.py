"""The backend of torch.compile, which is found by its name once the package is installed.

torch's own `compile_fx` does all that happens before Inductor generates code and after that:
AOTAutograd, decompositions, freezing, caches. Only Inductor's wrapper is replaced: its result is
the text of a Python module that holds an artifact and calls it (`text`)."""

from __future__ import annotations

import functools
import hashlib
import pathlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import Unsupported
from ..hir import huskc
from ..host import image
from ..host.kernels import HostKernels
from ..inductor import capture, torch_compat
from ..runtime.program import MODES
from ..version import VERSION
from . import text
from .operators import Kernels

if TYPE_CHECKING:
  import torch

# Inductor's options that Husk decides itself.
_DECIDED = ("cpp_wrapper", "fx_wrapper")


def backend(
  module: torch.fx.GraphModule,
  inputs: Sequence[Any],
  *,
  mode: str | None = None,
  options: Mapping[str, Any] | None = None,
) -> Any:
  """Compiles a graph of Dynamo's. `mode` and `options` are those of torch.compile. The options are
  those of Inductor, and `mode`: "auto", "list" or "graph", as for a session of Husk."""
  from torch._inductor.compile_fx import compile_fx

  patches = _options(mode, options or {})
  tag = _tag()

  # A backward is compiled after compile_fx has returned, perhaps by another thread, so what the
  # compilation needs is set inside.
  def inner(graph: torch.fx.GraphModule, values: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
    return _compile(tag, graph, values, *args, **kwargs)

  with torch_compat.cache_tag(tag):
    return compile_fx(module, inputs, inner_compile=inner, config_patches=patches)


def _compile(
  tag: str, graph: torch.fx.GraphModule, values: Sequence[Any], *args: Any, **kwargs: Any
) -> Any:
  """Inductor's inner compiler with Husk's wrapper."""
  from torch._inductor import config
  from torch._inductor.compile_fx import compile_fx_inner

  _refuse_other_devices(graph)
  huskc.require()
  kernels = Kernels(_isa())
  writer = text.Writer(f'target host host "{_isa()}"', kernels)
  with (
    torch_compat.cache_tag(tag),
    kernels.compiling(),
    capture.inductor("cpu", writer.write, caching=True),
    config.patch(fx_wrapper=True),
  ):
    return compile_fx_inner(graph, values, *args, **{**kwargs, "fx_wrapper": True})


def _refuse_other_devices(graph: torch.fx.GraphModule) -> None:
  others = sorted(torch_compat.devices(graph) - {"cpu"})
  if others:
    raise Unsupported(
      f'torch.compile(backend="husk") compiles for the CPU only, the model uses {", ".join(others)}'
    )


def _options(mode: str | None, options: Mapping[str, Any]) -> dict[str, Any]:
  """Inductor's options. Husk's own are checked."""
  from torch._inductor import config, list_mode_options

  given = dict(options)
  run_mode = given.pop("mode", "auto")
  if run_mode not in MODES:
    raise ValueError(f"mode {run_mode!r}: give one of {', '.join(map(repr, MODES))}")
  if run_mode == "graph":
    raise Unsupported('mode "graph": the CPU has no graphs; give "auto"')
  known = config.get_config_copy()
  for name in given:
    if name.replace("-", "_") not in known or name in _DECIDED:
      raise ValueError(f'torch.compile(backend="husk") has no option {name!r}')
  patches = {**(list_mode_options(mode) if mode else {}), **given}
  patches = {name.replace("-", "_"): value for name, value in patches.items()}
  return {
    **torch_compat.options_in_process(patches),
    **HostKernels(_isa()).options(),
    **patches,
    "triton.cudagraphs": False,  # torch would put graphs of its own around the program
  }


@functools.cache
def _isa() -> str:
  """The best instruction set of this machine's CPU for which there are kernels."""
  isas = image.isas()
  if not isas:
    known = ", ".join(image.ISAS)
    raise Unsupported(f"the CPU has none of the instruction sets {known}")
  return isas[0]


def _tag() -> str:
  """What distinguishes Husk's entries in torch's caches. torch does not know that the result of a
  graph depends on these."""
  return f"husk {VERSION} {_isa()} {_sources()}"


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
  _isa.cache_clear()
  _sources.cache_clear()


backend.reset = _reset  # type: ignore[attr-defined]
