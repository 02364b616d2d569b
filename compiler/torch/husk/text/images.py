"""Images in prompts: which tokens they are, and what the functions of a file take for them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any


@dataclasses.dataclass(frozen=True)
class Kind:
  """How a model takes images, according to the entry `image` of husk.text.model.

  token: the number of the token that stands for each row of an image. shape: that of the pixels of
    an image. rows: how many tokens an image has. width: how many numbers a row of embeddings has.
  grid: the rows and columns of an image, if its tokens have positions in three dimensions.
  two_way: whether the tokens of an image see one another."""

  token: int
  shape: tuple[int, ...]
  rows: int
  width: int
  grid: tuple[int, int] | None = None
  two_way: bool = False

  @classmethod
  def of(cls, described: Mapping[str, Any] | None) -> Kind | None:
    """None if the file takes no images."""
    if described is None:
      return None
    grid = described.get("grid")
    return cls(
      described["token"],
      tuple(described["shape"]),
      described["rows"],
      described["width"],
      None if grid is None else (grid[0], grid[1]),
      described.get("two_way", False),
    )

  def description(self) -> dict[str, Any]:
    """The entry, of which `of` makes the same."""
    fields = dataclasses.asdict(self)
    return {
      name: value for name, value in fields.items() if value is not None and value is not False
    }

  def pixels(self, images: Any) -> list[Any]:
    """The pixels of each image, as f32 arrays of the shape. An array may have several images, as a
    processor of transformers makes it. Raises ValueError for other shapes."""
    import numpy as np

    found: list[Any] = []
    given = [images] if hasattr(images, "shape") else list(images)
    for number, one in enumerate(given):
      array = np.asarray(one)
      if array.dtype.kind not in "fiu":
        raise ValueError(f"images: number {number} has the type {array.dtype}: give floats")
      count, rest = len(self.shape), array.shape[-len(self.shape) :]
      joined = count == 2 and array.ndim == 2 and rest[0] and rest[0] % self.shape[0] == 0
      if rest != self.shape and not (joined and rest[1] == self.shape[1]):
        raise ValueError(
          f"images: number {number} has the shape {list(array.shape)}, but this file takes images "
          f"of {list(self.shape)}, which may be several in an array: resize the image before the "
          "processor takes it, or export the file for another image_size"
        )
      array = np.ascontiguousarray(array, np.float32)
      if not np.isfinite(array).all():
        raise ValueError(f"images: number {number} has pixels that are no finite numbers")
      found += list(array.reshape(-1, *self.shape))
    return found

  def expanded(self, tokens: Sequence[int], count: int) -> list[int]:
    """The tokens of a prompt with `count` images. One image token for each image, as chat templates
    write it, becomes as many as the image has rows. Raises ValueError for other numbers."""
    found = sum(one == self.token for one in tokens)
    if found == count:
      return [
        one for token in tokens for one in [token] * (self.rows if token == self.token else 1)
      ]
    if found != count * self.rows:
      raise ValueError(
        f"the prompt has {found} image tokens (number {self.token}), but {count} images have "
        f"{count * self.rows} rows, {self.rows} each: give the tokens that the processor of "
        "transformers makes, with all images that it has seen, or a text with one image token for "
        "each image"
      )
    return list(tokens)


class PromptImages:
  """The images of a prompt.

  pixels: of each image. rows: for each token of the prompt the number of its row, or -1, as a NumPy
    array. embeddings: the rows of all images, after `image` has run. shift: what is added to the
    positions of the tokens after the prompt."""

  def __init__(self, kind: Kind, tokens: Sequence[int], pixels: Sequence[Any]) -> None:
    import numpy as np

    self.kind, self.pixels, self.count = kind, list(pixels), len(tokens)
    is_image = np.array(tokens, np.int64) == kind.token
    self.rows: Any = np.where(is_image, np.cumsum(is_image) - 1, -1)
    self.embeddings: Any = None
    # The number of the image that a token belongs to, or -1.
    self._numbers: Any = np.where(is_image, self.rows // kind.rows, -1)
    starts = np.flatnonzero(is_image)[:: kind.rows]
    for number, start in enumerate(starts):
      if not (self._numbers[start : start + kind.rows] == number).all():
        raise ValueError(
          f"the tokens of image number {number} are not one after the other: it has {kind.rows}"
        )
    self._starts: list[int] = starts.tolist()
    self._places: Any = None
    self.shift = 0
    if kind.grid is not None:
      self._places, self.shift = self._in_grid(kind.grid)

  def _in_grid(self, grid: tuple[int, int]) -> tuple[Any, int]:
    """The positions of the tokens in time, height and width, and the shift after them: an image is
    at a time, and takes as many positions as its longer side has."""
    import numpy as np

    places = np.zeros((3, self.count), np.int64)
    size = self.kind.rows
    at = place = 0
    for start in [*self._starts, self.count]:
      places[:, at:start] = np.arange(place, place + start - at)
      place += start - at
      if start < self.count:
        row, column = np.divmod(np.arange(size), grid[1])
        places[:, start : start + size] = np.stack([np.zeros_like(row), row, column]) + place
        place += max(grid)
      at = start + size
    return places, place - self.count

  def shift_at(self, position: int) -> int:
    """What is added to the position of a token that is none of an image."""
    if self._places is None or position >= self.count:
      return self.shift
    return int(self._places[0, position]) - position

  def end(self, begin: int, chunk: int) -> int:
    """The end of the part of the prompt that a call takes from `begin` on."""
    end = min(begin + chunk, self.count)
    # A single token is that of `decode`, which takes no rows.
    if self.count - end == 1 and self.rows[end] >= 0:
      end -= 1
    # Tokens that see one another are in one call.
    if self.kind.two_way and 0 < end < self.count and self._numbers[end] >= 0:
      start = self._starts[self._numbers[end]]
      end = start if start > begin else end
    return end

  def are_in(self, begin: int, end: int) -> bool:
    """Whether `prefill` cannot take these tokens, and `prefill_images` can."""
    first = self._starts[0]
    return end > first if self._places is not None else bool((self.rows[begin:end] >= 0).any())

  def inputs(self, begin: int, end: int) -> tuple[Any, ...]:
    """The last inputs of `prefill_images` for a part of the prompt, or of the text after it."""
    import numpy as np

    rows = np.full(end - begin, -1, np.int64)
    rows[: max(self.count - begin, 0)] = self.rows[begin:end]
    used = rows[rows >= 0]
    first, last = (int(used[0]), int(used[-1]) + 1) if len(used) else (0, 1)
    rows[rows >= 0] -= first
    more: tuple[Any, ...] = ()
    if self.kind.two_way:
      ends = np.arange(begin + 1, end + 1)
      for start in self._starts:
        low, high = max(start - begin, 0), start - begin + self.kind.rows
        if high > 0:
          ends[low:high] = start + self.kind.rows
      more = (ends,)
    if self._places is not None:
      places = np.tile(np.arange(begin, end) + self.shift, (3, 1))
      places[:, : max(self.count - begin, 0)] = self._places[:, begin:end]
      more = (places,)
    return (rows, self.embeddings[first:last], *more)
