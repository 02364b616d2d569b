"""The devices that programs are compiled for: one class for each, which is a row of DEVICES.
ports/ADD-A-DEVICE.md adds one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..errors import Unsupported
from ..inductor import torch_compat
from ..options import Options
from .cuda import Cuda
from .device import Device
from .host import Host, best_isa

if TYPE_CHECKING:
  import torch

# By the name of the port.
DEVICES: dict[str, type[Device]] = {kind.port: kind for kind in (Host, Cuda)}


def of_targets(options: Options, texts: list[str]) -> list[Device]:
  """The devices of the targets of an export, each once. `texts` gets the texts of asserts in
  kernels."""
  devices: dict[str, Device] = {}
  for name in options.targets:
    port, _, detail = name.partition(":")
    kind = DEVICES.get(port)
    details = kind.details(detail) if kind else ()
    if not kind or not details:
      raise ValueError(f"no target {name!r}: give {_either(_spellings())}")
    for each in details:
      key = f"{port}:{each}"
      if key not in devices:
        devices[key] = kind.of_target(each, options, texts)
  for device in devices.values():
    device.share([other for other in devices.values() if type(other) is type(device)])
  return list(devices.values())


def _spellings() -> list[str]:
  return [spelling for kind in DEVICES.values() for spelling in kind.spellings()]


def _either(words: list[str]) -> str:
  return f"{', '.join(words[:-1])} or {words[-1]}"


# torch.compile


def of_graph(graph: torch.fx.GraphModule) -> Device:
  """The device of a graph. Tensors of the CPU without dimensions may be inputs of a graph on
  another device."""
  kinds = {kind.torch_type: kind for kind in DEVICES.values() if kind.torch_type}
  names = torch_compat.devices(graph)
  beside = sorted(name for name in names if _type(name) != Host.torch_type)
  unknown = [name for name in beside if _type(name) not in kinds]
  if unknown or len(beside) > 1:
    titles = " or for ".join(kind.title for kind in kinds.values())
    raise Unsupported(
      f'torch.compile(backend="husk") compiles a graph for {titles}, this graph uses '
      f"{', '.join(unknown or beside)}"
    )
  name = beside[0] if beside else Host.name
  return kinds[_type(name)].of_graph(name)


def _type(name: str) -> str:
  """The type of the device that torch names `name`."""
  return name.partition(":")[0]


def of_line(line: str) -> type[Device]:
  """The class of the device of a target's row."""
  return DEVICES[line.split()[2]]


def graph_options() -> dict[str, Any]:
  """Inductor's options for graphs, for all devices."""
  return {name: value for kind in DEVICES.values() for name, value in kind.graph_options().items()}


@contextlib.contextmanager
def graph_decompositions(libraries: bool | None) -> Iterator[None]:
  """While open, the operators of graphs are decomposed for all devices. `libraries`: as for
  Device.graph_decompositions."""
  with contextlib.ExitStack() as stack:
    for kind in DEVICES.values():
      stack.enter_context(kind.graph_decompositions(libraries))
    yield


__all__ = [
  "DEVICES",
  "Device",
  "best_isa",
  "graph_decompositions",
  "graph_options",
  "of_graph",
  "of_line",
  "of_targets",
]
