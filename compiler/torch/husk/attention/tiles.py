"""The tiles of the attention kernels and the number of parts of their keys, chosen by rules."""

from __future__ import annotations

import dataclasses

from ..cuda.target import Target


@dataclasses.dataclass(frozen=True)
class Tiles:
  """A tile of `m` rows of q and `n` keys. `registers` is the largest number of registers of a
  thread (None: no limit). With a limit more blocks fit a multiprocessor, and some registers are
  spilled."""

  m: int
  n: int
  warps: int
  stages: int
  registers: int | None = None


def shared(tile: Tiles, width: int, bytes_: int) -> int:
  """The approximate bytes of shared memory of a block: a tile of q, and a tile of k and of v for
  each stage except the one that is computed with."""
  return (tile.m + 2 * tile.n * max(tile.stages - 1, 1)) * width * bytes_


def tiles(
  target: Target, width: int, bytes_: int, rows: int | None, masked: bool = False
) -> list[Tiles]:
  """The tiles to choose from, best first.

  width: the largest number of elements of a head.
  bytes_: the bytes of an element.
  rows: the largest number of rows (None: unknown).
  masked: whether attention has a mask.
  With these tiles ptxas spills few registers or none, and two blocks fit a multiprocessor if that
  does not cost reuse of k and v.
  """
  few = rows is not None and rows <= 16
  some = rows is not None and rows <= 64
  hopper = target.major >= 9
  if bytes_ == 4:
    if few:
      best = Tiles(16, 64, 4, 2) if width <= 128 else Tiles(16, 32, 8, 2)
    elif width <= 64:
      best = Tiles(64, 32, 4 if hopper else 8, 2)
    else:
      best = Tiles(32, 32, 8, 2) if width <= 128 else Tiles(16, 32, 8, 2)
  elif few:
    best = Tiles(16, 128 if hopper and width <= 128 else 64, 4, 3 if width <= 128 else 2)
  elif some and width <= 128:
    best = Tiles(64, 64, 4, 2)
  elif width <= 64:
    best = Tiles(128, 64, 8 if masked else 4, 3) if hopper else Tiles(128, 32, 4, 3)
  elif width <= 128:
    best = Tiles(64, 64, 4, 3) if hopper and not masked else Tiles(128, 64, 8, 3 if hopper else 2)
  else:
    best = Tiles(128, 32, 8, 3) if hopper else Tiles(64, 32, 8, 2)
  candidates = [dataclasses.replace(best, stages=stages) for stages in range(best.stages, 0, -1)]
  candidates += [Tiles(min(best.m, 64), 16, 4, 1), Tiles(16, 16, 4, 1)]
  fitting = [
    tile
    for tile in candidates
    if shared(tile, width, bytes_) <= target.shared_memory_per_block_optin
  ]
  return fitting or candidates[-1:]  # the compiler has the last word


def cache(target: Target) -> int:
  """The bytes of k and v that the level 2 cache may be assumed to keep. The cache has two halves,
  which keep copies of each other's lines, and other data is in it too."""
  return target.L2_cache_size // 16


def neighbours(target: Target, width: int, bytes_: int, best: Tiles) -> list[Tiles]:
  """Tiles that differ from `best` in one number, for measuring."""
  changes = [
    {"m": best.m * 2},
    {"m": best.m // 2},
    {"n": best.n * 2},
    {"n": best.n // 2},
    {"warps": best.warps * 2},
    {"warps": best.warps // 2},
    {"stages": best.stages + 1},
    {"stages": best.stages - 1},
  ]
  candidates = [dataclasses.replace(best, **change) for change in changes]
  return [
    tile
    for tile in candidates
    if 16 <= tile.m <= 128
    and 16 <= tile.n <= 128
    and 2 <= tile.warps <= 8
    and tile.stages > 0
    and shared(tile, width, bytes_) <= target.shared_memory_per_block_optin
  ]


def splits(target: Target, blocks: int, keys: int) -> int:
  """The number of parts into which to split `keys` keys. If there are few `blocks`, splitting makes
  more, so that all multiprocessors work. A part has at least 256 keys."""
  return max(1, min(2 * target.multi_processor_count // max(blocks, 1), keys // 256, 32))


def pieces(size: int) -> tuple[int, int]:
  """(first, rest): two powers of two, at least 16, whose sum is at least `size`. `rest` is 0 if
  `first` is enough."""
  half = max(16, _power_of_two(size) // 2)
  rest = _power_of_two(size - half) if size > half else 0
  return (half, rest) if rest < half else (_power_of_two(size), 0)


def _power_of_two(number: int) -> int:
  """The least power of two that is at least `number` and at least 16."""
  return max(16, 1 << (number - 1).bit_length())
