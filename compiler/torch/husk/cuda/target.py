"""The descriptions of CUDA targets (`targets/*.json`)."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import types

TARGETS = pathlib.Path(__file__).parent / "targets"


@dataclasses.dataclass(frozen=True)
class Target:
  """The properties of a device that the compilers query. The names of the fields are those of
  `torch.cuda.get_device_properties`; sizes are in bytes, clocks in kHz, the bus in bits. `arch` is
  the architecture of the images, `key` the name of the description."""

  key: str
  name: str
  major: int
  minor: int
  arch: str
  warp_size: int
  multi_processor_count: int
  max_threads_per_block: int
  max_threads_per_multi_processor: int
  regs_per_multiprocessor: int
  shared_memory_per_block: int
  shared_memory_per_block_optin: int
  shared_memory_per_multiprocessor: int
  L2_cache_size: int
  total_memory: int
  memory_clock_rate: int
  memory_bus_width: int
  clock_rate: int

  @staticmethod
  def load(name: str | pathlib.Path) -> Target:
    """The target with a name, as "h200", or the target that a JSON file describes."""
    path = pathlib.Path(name)
    if path.suffix != ".json":
      path = TARGETS / f"{name}.json"
    if not path.is_file():
      raise ValueError(
        f"no CUDA target {str(name)!r}: known are {', '.join(names())}, or give the path of a "
        "JSON file"
      )
    rows = json.loads(path.read_text())
    fields = {field.name for field in dataclasses.fields(Target)} - {"key"}
    for wrong in sorted(fields ^ set(rows)):
      raise ValueError(
        f"{path}: {'lacks' if wrong in fields else 'has an unknown'} field {wrong!r}"
      )
    return Target(key=path.stem, **rows)

  @property
  def capability(self) -> int:
    return self.major * 10 + self.minor

  def properties(self) -> types.SimpleNamespace:
    """Replaces the result of `torch.cuda.get_device_properties`."""
    return types.SimpleNamespace(
      **{k: v for k, v in dataclasses.asdict(self).items() if k not in ("key", "arch")},
      gcnArchName="",
      is_integrated=0,
      is_multi_gpu_board=0,
    )


def names() -> list[str]:
  """The names of the targets that come with the package."""
  return sorted(path.stem for path in TARGETS.glob("*.json"))
