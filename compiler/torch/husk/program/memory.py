"""Which tensors share memory, by the addresses of their elements. Tensors of different storages may
share it too, for instance two that `torch.from_numpy` returned for one array."""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..errors import Unsupported
from ..inductor.layouts import span

if TYPE_CHECKING:
  import torch


@dataclasses.dataclass(eq=False)
class Extent:
  """A range of addresses that tensors occupy, each of which overlaps another one of them."""

  begin: int
  end: int
  tensors: list[torch.Tensor]

  def is_all(self, tensor: torch.Tensor) -> bool:
    """Whether a tensor begins and ends where the range does."""
    return addresses(tensor) == (self.begin, self.end)

  def elements(self, dtype: torch.dtype) -> torch.Tensor:
    """The whole range as a row of elements, whose storage begins with it. What is too short for an
    element at its end is left out."""
    import torch

    for tensor in self.tensors:
      storage = tensor.untyped_storage()
      low, high = self.begin - storage.data_ptr(), self.end - storage.data_ptr()
      if low >= 0 and high <= storage.nbytes():
        part = storage[low:high]
        return torch.empty(0, dtype=dtype, device=tensor.device).set_(part)
    shapes = ", ".join(str(tuple(tensor.shape)) for tensor in self.tensors)
    raise Unsupported(
      f"tensors of the model share memory in part, and no storage holds all of it (shapes "
      f"{shapes}): make them views of one tensor"
    )


class Extents:
  """The extents of tensors."""

  def __init__(self) -> None:
    self._tensors: list[torch.Tensor] = []
    self._begins: list[int] = []
    self._extents: list[Extent] = []  # in the order of addresses

  def add(self, tensors: Iterable[torch.Tensor]) -> None:
    self._tensors += tensors
    self._extents = []
    ranges = [(*addresses(tensor), index) for index, tensor in enumerate(self._tensors)]
    for begin, end, index in sorted(ranges):
      last = self._extents[-1] if self._extents else None
      # Tensors without elements are apart, unless they begin with others.
      if last is None or (begin >= last.end and begin > last.begin):
        last = Extent(begin, end, [])
        self._extents.append(last)
      last.end = max(last.end, end)
      last.tensors.append(self._tensors[index])
    self._begins = [extent.begin for extent in self._extents]

  def of(self, tensor: torch.Tensor) -> Extent | None:
    """The extent that a tensor lies in, or None."""
    begin, end = addresses(tensor)
    index = bisect.bisect_right(self._begins, begin) - 1
    extent = self._extents[index] if index >= 0 else None
    return extent if extent is not None and end <= extent.end else None


def addresses(tensor: torch.Tensor) -> tuple[int, int]:
  """The addresses of a tensor's first element and of the end of its last one. A tensor without
  elements or without memory of its own has an address that no other storage has."""
  if tensor.numel() == 0 or not _has_memory(tensor):
    place = tensor.untyped_storage()._cdata
    return place, place
  begin = tensor.data_ptr()
  return begin, begin + span(tensor.shape, tensor.stride()) * tensor.element_size()


def _has_memory(tensor: torch.Tensor) -> bool:
  from torch._subclasses.fake_tensor import FakeTensor
  from torch.utils._python_dispatch import is_traceable_wrapper_subclass

  return not (
    tensor.is_meta or isinstance(tensor, FakeTensor) or is_traceable_wrapper_subclass(tensor)
  )
