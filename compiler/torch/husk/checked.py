"""The devices for which `husk check` can say whether an artifact runs there: one class for each
port, which is a row of PORTS. What code a device runs, its port says (husk_port.arch_rank_on)."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from .artifact import readable
from .cuda import operators as cuda_operators
from .host import cpus
from .host import operators as host_operators
from .runtime.printable import printable


@dataclasses.dataclass(frozen=True)
class Finding:
  """One line of the report. `ok` is False if the artifact will not run."""

  ok: bool
  subject: str
  text: str

  def __str__(self) -> str:
    return f"  {'ok' if self.ok else 'NO':3} {printable(f'{self.subject}: {self.text}')}"


@dataclasses.dataclass(frozen=True)
class Device:
  """A device that an artifact may run on. `name` is what the user calls it, `arch` the name of its
  own code. `memory` are its bytes of memory, None if they are not known."""

  port: ClassVar[str]  # the name of the port

  name: str
  arch: str
  memory: int | None = None

  @classmethod
  def spellings(cls) -> list[str]:
    """How a user may name such devices, for the text of an error."""
    raise NotImplementedError

  @classmethod
  def named(cls, name: str, detail: str) -> Device | None:
    """The device "PORT:DETAIL" or "DETAIL", None if there is none. `name` is what the user
    wrote."""
    raise NotImplementedError

  def target(self) -> str:
    """The target of an export for the device."""
    return f"{self.port}:{self.arch}"

  def kernels(self, kernels: Sequence[Any]) -> list[Finding]:
    """The kernels, of the artifact's description, that the device is too small for."""
    return []

  def driver(
    self, used: Sequence[Any], contents: Mapping[str, bytes], driver: str | None
  ) -> list[Finding]:
    """What the device and the images `used` need of its driver, whose version is `driver` if that
    is known. `contents` has the bytes of images by name."""
    return []

  def operators(self, called: frozenset[str]) -> tuple[frozenset[str], str]:
    """The operators that the device has, and where those of `called` come from."""
    raise NotImplementedError


class Host(Device):
  """A CPU with an instruction set."""

  port = "host"
  ARCHS = tuple(cpus.TARGETS)

  @classmethod
  def spellings(cls) -> list[str]:
    return [f"{cls.port}:{arch}" for arch in cls.ARCHS]

  @classmethod
  def named(cls, name: str, detail: str) -> Host | None:
    return cls(name, detail) if detail in cls.ARCHS else None

  def operators(self, called: frozenset[str]) -> tuple[frozenset[str], str]:
    return host_operators.names(), "libhusk_ops"


_CUDA_TARGETS = pathlib.Path(__file__).with_name("cuda") / "targets"

# The first release of CUDA that knows a device, and the first that reads a version of PTX. Source:
# "PTX ISA", "Release Notes".
_CUDA_OF_DEVICE = {
  75: "10.0", 80: "11.0", 86: "11.1", 87: "11.4", 89: "11.8", 90: "11.8", 100: "12.8",
  101: "12.8", 103: "12.9", 110: "13.0", 120: "12.8", 121: "12.9",
}  # fmt: skip
_CUDA_OF_PTX = {
  "7.0": "11.0", "7.1": "11.1", "7.2": "11.2", "7.3": "11.3", "7.4": "11.4", "7.5": "11.5",
  "7.6": "11.6", "7.7": "11.7", "7.8": "11.8", "8.0": "12.0", "8.1": "12.1", "8.2": "12.2",
  "8.3": "12.3", "8.4": "12.4", "8.5": "12.5", "8.6": "12.7", "8.7": "12.8", "8.8": "12.9",
  "9.0": "13.0", "9.1": "13.1",
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Cuda(Device):
  """A GPU of NVIDIA. `limits` are the fields of its description in cuda/targets."""

  port = "cuda"

  limits: Mapping[str, Any] = dataclasses.field(default_factory=dict)

  @classmethod
  def spellings(cls) -> list[str]:
    known = sorted(path.stem for path in _CUDA_TARGETS.glob("*.json"))
    return [*known, "paths of descriptions"]

  @classmethod
  def named(cls, name: str, detail: str) -> Cuda | None:
    path = _CUDA_TARGETS / f"{detail}.json"
    if not path.is_file():
      path = pathlib.Path(detail)
    if not path.is_file():
      return None
    limits = json.loads(path.read_text(encoding="utf-8"))
    return cls(name, limits["arch"], limits["total_memory"], limits)

  def target(self) -> str:
    return f"{self.port}:{self.name.rpartition(':')[2]}"

  def kernels(self, kernels: Sequence[Any]) -> list[Finding]:
    findings = []
    limit = self.limits["shared_memory_per_block_optin"]
    for kernel in kernels:
      if kernel["shared"] > limit:
        findings.append(
          Finding(
            False,
            f"kernel {kernel['name']}",
            f"it needs {readable(kernel['shared'])} of shared memory, the device has "
            f"{readable(limit)}: export for this device",
          )
        )
      if kernel["cluster"] > 1 and self.limits["major"] < 9:
        findings.append(
          Finding(False, f"kernel {kernel['name']}", "it has clusters of blocks, as sm_90 has")
        )
    return findings

  def driver(
    self, used: Sequence[Any], contents: Mapping[str, bytes], driver: str | None
  ) -> list[Finding]:
    if not used:
      return []
    number = 10 * self.limits["major"] + self.limits["minor"]
    needed, why = _CUDA_OF_DEVICE.get(number, "11.0"), f"for sm_{number}"
    for one in used:
      if one["format"] != "ptx":
        continue
      match = re.search(rb"^\s*\.version\s+(\d+\.\d+)", contents[one["name"]], re.M)
      version = match[1].decode() if match else ""
      if version not in _CUDA_OF_PTX:
        text = (
          f"image {one['name']} has PTX {version or 'without a version'}, which is unknown here"
        )
        return [Finding(driver is None, "driver", text)]
      if _version(_CUDA_OF_PTX[version]) > _version(needed):
        needed, why = _CUDA_OF_PTX[version], f"for PTX {version} of image {one['name']}"
    if driver is not None and _version(driver) < _version(needed):
      text = f"CUDA {needed} or newer is needed {why}, the driver has {driver}: update it"
      return [Finding(False, "driver", text)]
    return [
      Finding(
        True,
        "driver",
        f"CUDA {needed} or newer {why}; machine code also needs a driver that is not older than "
        "the major version of the toolkit that made it",
      )
    ]

  def operators(self, called: frozenset[str]) -> tuple[frozenset[str], str]:
    names = cuda_operators.NAMES
    needed = sorted({cuda_operators.library_of(name) for name in called & names})
    return names, f"the port, which needs {' and '.join(needed)} there"


def _version(text: str) -> tuple[int, ...]:
  return tuple(int(part) for part in text.split("."))


# By the name of the port.
PORTS: dict[str, type[Device]] = {kind.port: kind for kind in (Host, Cuda)}


def device(name: str) -> Device:
  """The device with that name: "orin" or "cuda:orin" of cuda/targets, the path of a description,
  "avx2" or "host:avx2"."""
  port, _, detail = name.rpartition(":")
  kinds = [PORTS[port]] if port in PORTS else list(PORTS.values())
  for kind in kinds:
    if (found := kind.named(name, detail)) is not None:
      return found
  known = ", ".join(spelling for kind in reversed(kinds) for spelling in kind.spellings())
  raise ValueError(f"no target {name!r}: known are {known}")
