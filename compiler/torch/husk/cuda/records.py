"""Measured configurations of templates, by problem: what `python -m husk tune` writes, and what an
export takes in place of a rule.

A record file is JSON: the format, the chip, and a list of records. A record has a kind (KINDS), the
dtype and the layout of the operands, which must be equal, the sizes, and the fastest configurations
with their times in microseconds. Records hold for a chip, not for a product: an H100 and an H200
are the same chip with other memory.

A problem without a record takes what is fastest for its neighbours: the records of its kind, dtype
and layout whose distance, the root of the sum of the squares of log2 of the quotients of sizes, is
at most LARGEST_DISTANCE. Beyond that, the rule of gemm_configs.py decides.

The files in the folder `records` are part of the package, so that an export gives the same bytes on
every machine.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import pathlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..inductor import torch_compat
from ..inductor.lines import InductorObject
from . import convolution, depthwise, tensor_maps
from .target import Target

FORMAT = 1
FOLDER = pathlib.Path(__file__).parent / "records"
LARGEST_DISTANCE = 1.0
# The configurations of a record, and the neighbours that decide about a problem without a record.
MOST_CONFIGS = 8
MOST_NEIGHBOURS = 3

# Inductor's template computes a "convolution", Husk's templates an "implicit gemm" (convolution.py)
# and a "depthwise" convolution.
KINDS = ("product", "batched product", "convolution", "implicit gemm", "depthwise")


@dataclasses.dataclass(frozen=True)
class Problem:
  """What a template computes. Problems with the same `kind`, `dtype` and `form` differ in their
  `sizes` only. `form` and `sizes` are pairs of a name and a value."""

  kind: str
  dtype: str
  form: tuple[tuple[str, str], ...]
  sizes: tuple[tuple[str, int], ...]

  @property
  def family(self) -> tuple[Any, ...]:
    return (self.kind, self.dtype, self.form, tuple(name for name, _ in self.sizes))

  def distance(self, other: Problem) -> float:
    """The distance between the sizes of two problems of a family."""
    return math.sqrt(
      sum(math.log2(left / right) ** 2 for (_, left), (_, right) in zip(self.sizes, other.sizes))
    )


@dataclasses.dataclass(frozen=True)
class Chip:
  """What records hold for."""

  capability: int
  multiprocessors: int
  shared_memory: int

  @staticmethod
  def of(target: Target) -> Chip:
    return Chip(
      target.capability, target.multi_processor_count, target.shared_memory_per_block_optin
    )


@dataclasses.dataclass
class Records:
  """The records for one chip. `times` are microseconds by configuration, empty if a problem has not
  been measured. `device` names the GPU on which the last ones were measured."""

  chip: Chip
  device: str = ""
  times: dict[Problem, dict[str, float]] = dataclasses.field(default_factory=dict)

  def add(self, problem: Problem, times: Mapping[str, float]) -> None:
    """Takes the fastest configurations of a problem. They replace an earlier record."""
    fastest = sorted(times.items(), key=lambda item: (item[1], item[0]))[:MOST_CONFIGS]
    if fastest:
      self.times[problem] = dict(fastest)

  def update(self, other: Records) -> None:
    self.times.update(other.times)
    self.device = other.device or self.device

  def choice(self, problem: Problem, configs: Sequence[str]) -> tuple[int, str] | None:
    """The index of the best of several configurations for a problem, and where it is from:
    "record" or "neighbours". None if no record is near enough or names one of them."""
    found = self.slowdowns(problem, configs)
    return found and (found[0].index(min(found[0])), found[1])

  def slowdowns(self, problem: Problem, configs: Sequence[str]) -> tuple[list[float], str] | None:
    """How much slower than the best known one each of several configurations is, and where that is
    from, as for `choice`."""
    own = self.times.get(problem, {})
    near, source = [(0.0, own)], "record"
    if not any(config in own for config in configs):
      near, source = self._neighbours(problem), "neighbours"
    if not any(config in times for _, times in near for config in configs):
      return None
    return [_slowdown(config, near) for config in configs], source

  def _neighbours(self, problem: Problem) -> list[tuple[float, dict[str, float]]]:
    """The distances and the times of the nearest records."""
    near = [
      (problem.distance(other), repr(other), times)
      for other, times in self.times.items()
      if times and other.family == problem.family
    ]
    near = sorted(each for each in near if each[0] <= LARGEST_DISTANCE)[:MOST_NEIGHBOURS]
    return [(distance, times) for distance, _, times in near]

  def text(self) -> str:
    """The file of the records."""
    rows = [
      _row(problem, times)
      for problem, times in sorted(self.times.items(), key=lambda item: _order(item[0]))
    ]
    head = {"format": FORMAT, "chip": dataclasses.asdict(self.chip), "device": self.device}
    opening, text = json.dumps(head, indent=2).removesuffix("\n}"), ",\n".join(rows)
    return f'{opening},\n  "records": [\n{text}\n  ]\n}}\n'

  def save(self, path: pathlib.Path) -> None:
    path.write_text(self.text())


def _row(problem: Problem, times: Mapping[str, float]) -> str:
  """The text of a record, in lines that are not too long."""
  values = {
    "form": dict(problem.form),
    "sizes": dict(problem.sizes),
    "us": {config: round(time, 2) for config, time in times.items()},
  }
  lines = [f'    {{"kind": {json.dumps(problem.kind)}, "dtype": {json.dumps(problem.dtype)}']
  for name, pairs in values.items():
    lines[-1] += ","
    lines.append(f'     "{name}": {{')
    for number, (key, value) in enumerate(pairs.items()):
      item = f"{json.dumps(key)}: {json.dumps(value)}"
      item = item if number == 0 else f", {item}"
      if len(lines[-1]) + len(item) > 97:
        lines[-1] += item[0]
        lines.append(f"      {item[2:]}")
      else:
        lines[-1] += item
    lines[-1] += "}"
  return "\n".join(lines) + "}"


def _order(problem: Problem) -> tuple[Any, ...]:
  return (KINDS.index(problem.kind), problem.dtype, problem.form, problem.sizes)


def _slowdown(config: str, neighbours: Iterable[tuple[float, dict[str, float]]]) -> float:
  """How much slower a configuration is than the best one, on average over the neighbours. Near ones
  count more. A configuration that a neighbour does not list counts as slower than all it lists."""
  total = weights = 0.0
  for distance, times in neighbours:
    weight = 1 / (0.1 + distance)
    time = times.get(config, 1.2 * max(times.values()))
    total += weight * time / min(times.values())
    weights += weight
  return total / weights


# Files


def read(path: pathlib.Path) -> Records:
  """The records of a file."""
  try:
    content = json.loads(path.read_text())
    if content["format"] != FORMAT:
      raise ValueError(f"has format {content['format']}, this version of Husk reads {FORMAT}")
    records = Records(Chip(**content["chip"]), content.get("device", ""))
    for row in content["records"]:
      problem = Problem(
        row["kind"],
        row["dtype"],
        tuple((name, str(value)) for name, value in row["form"].items()),
        tuple((name, int(value)) for name, value in row["sizes"].items()),
      )
      if problem.kind not in KINDS or any(size < 1 for _, size in problem.sizes):
        raise ValueError(f"has a record that is not understood: {row}")
      records.times[problem] = {config: float(time) for config, time in row["us"].items()}
  except FileNotFoundError:
    raise ValueError(f"there is no record file {path}") from None
  except (KeyError, TypeError, AttributeError, json.JSONDecodeError) as error:
    raise ValueError(f"{path} is no record file: {type(error).__name__}: {error}") from error
  except ValueError as error:
    raise ValueError(f"{path} {error}") from error
  return records


def of_target(target: Target, paths: Iterable[Any] = ()) -> Records:
  """The records for a target: those of the package, and those of further files, which replace them.
  A file for another chip is refused."""
  chip = Chip.of(target)
  records = Records(chip)
  for shipped in _shipped():
    if shipped.chip == chip:
      records.update(shipped)
  for path in map(pathlib.Path, paths):
    more = read(path)
    if more.chip != chip:
      raise ValueError(
        f"{path} has records for {_words(more.chip)}, {target.name} is {_words(chip)}"
      )
    records.update(more)
  return records


@functools.cache
def _shipped() -> tuple[Records, ...]:
  return tuple(read(path) for path in sorted(FOLDER.glob("*.json")))


def _words(chip: Chip) -> str:
  return f"a chip of capability {chip.capability} with {chip.multiprocessors} multiprocessors"


# Choices of templates


def config_of(choice: InductorObject) -> str | None:
  """The text of a choice's configuration; None if the choice is no template."""
  info = getattr(choice, "log_info", None) or {}
  if depthwise.is_choice(choice):
    tiles = depthwise.tiles_of(choice)
    return f"{tiles.strips}x{tiles.channels}x{tiles.columns} warps {tiles.warps}"
  if convolution.is_choice(choice):
    return config_of_tiles(info["tiles"])
  if "tile_shape" not in info:
    return None
  m, k, n = (part.strip() for part in str(info["tile_shape"]).strip("()").split(","))
  text = f"{m}x{n}x{k} stages {info['num_stages']} warps {info['num_warps']}"
  if tensor_maps.is_choice(choice):
    text = f"maps {text}" + " blocks 2" * (info["blocks"] == 2)
  group = info.get("GROUP_M", -1)
  return text if group in (-1, 8) else f"{text} group {group}"


def config_of_tiles(tiles: convolution.Tiles) -> str:
  """The text of a configuration of the template of convolutions."""
  text = f"{tiles.m}x{tiles.n}x{tiles.k} stages {tiles.stages} warps {tiles.warps}"
  return text if tiles.split == 1 else f"{text} split {tiles.split}"


def problem_of(choice: InductorObject) -> Problem | None:
  """The problem that a choice computes; None if it is of no kind that has records."""
  name = getattr(choice, "name", "")
  try:
    if depthwise.is_choice(choice):
      return _depthwise(choice)
    if convolution.is_choice(choice):
      return of_convolution(convolution.problem_of(choice))
    if "convolution2d" in name:
      return _convolution(choice)
    return _product(choice) if "mm" in name else None
  except (KeyError, ValueError, AttributeError):
    return None


def _product(choice: InductorObject) -> Problem:
  # The last two matrices are the factors: the bias of an addmm comes before them.
  left, right = [node for node in choice.input_nodes if len(node.get_size()) >= 2][-2:]
  *batches, m, k = map(torch_compat.size_hint, left.get_size())
  n = torch_compat.size_hint(right.get_size()[-1])
  batch = math.prod(batches)
  form = (("left", _direction(left)), ("right", _direction(right)))
  sizes = (("m", m), ("n", n), ("k", k))
  if batches:
    return Problem("batched product", _dtype(left), form, (("batch", batch), *sizes))
  return Problem("product", _dtype(left), form, sizes)


def _direction(node: InductorObject) -> str:
  """Whether the rows or the columns of a matrix are dense."""
  strides = [torch_compat.size_hint(stride) for stride in node.get_stride()[-2:]]
  return "rows" if strides[1] == 1 else "columns" if strides[0] == 1 else "neither"


def _convolution(choice: InductorObject) -> Problem:
  image, weight = choice.input_nodes[:2]
  outputs, channels, *kernel = map(torch_compat.size_hint, weight.get_size())
  batch, _, *positions = map(torch_compat.size_hint, choice.layout.size)
  groups = torch_compat.size_hint(image.get_size()[1]) // channels
  options = dict(re.findall(r"(\w+)=([\w.]+)", choice.description))
  form = (
    ("kernel", _sides(kernel)),
    ("stride", _sides([options["STRIDE_H"], options["STRIDE_W"]])),
    ("padding", _sides([options["PADDING_H"], options["PADDING_W"]])),
    ("groups", str(groups)),
    ("order", "channels last" if torch_compat.size_hint(image.get_stride()[1]) == 1 else "other"),
  )
  sizes = (
    ("batch", batch),
    ("channels", channels),
    ("outputs", outputs),
    ("height", positions[0]),
    ("width", positions[1]),
  )
  return Problem("convolution", _dtype(image), form, sizes)


def of_convolution(problem: convolution.Problem) -> Problem:
  """The problem that the template of convolutions computes."""
  form = (
    ("kernel", _sides(problem.kernel)),
    ("stride", _sides(problem.stride)),
    ("padding", _sides(problem.padding)),
    ("dilation", _sides(problem.dilation)),
  )
  sizes = (
    ("batch", problem.batch),
    ("channels", problem.channels),
    ("outputs", problem.outputs),
    ("height", problem.height),
    ("width", problem.width),
  )
  return Problem("implicit gemm", _shared_dtype(problem.dtype), form, sizes)


def _depthwise(choice: InductorObject) -> Problem:
  problem = depthwise.problem_of(choice)
  padding = choice.log_info["padding"]
  form = (
    ("kernel", _sides(problem.kernel)),
    ("stride", _sides(problem.stride)),
    ("padding", _sides(padding)),
  )
  sizes = (
    ("batch", problem.batch),
    ("channels", problem.channels),
    ("height", problem.height),
    ("width", problem.width),
  )
  return Problem("depthwise", _dtype(choice.input_nodes[0]), form, sizes)


def _sides(values: Sequence[Any]) -> str:
  return "x".join(map(str, values))


def _dtype(node: InductorObject) -> str:
  return _shared_dtype(str(node.get_dtype()).removeprefix("torch."))


def _shared_dtype(name: str) -> str:
  """The dtype of the records of operands. Kernels of float16 and bfloat16 differ in single
  instructions, which take the same time, so they share records."""
  return "float16" if name == "bfloat16" else name
