"""Templates of products and convolutions that are written only if they are chosen.

Inductor writes the kernel of each configuration that it might take, since it measures them. Where
nothing is measured, their tiles tell which one is taken. A convolution has some twenty, and the
texts of the others took a third of the time of an export."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from ..inductor.lines import InductorObject

# Templates whose lowerings need the error of the only configuration.
_WRITTEN_AT_ONCE = "flex"


def appending(original: Callable[..., Any]) -> Callable[..., Any]:
  """TritonTemplate.maybe_append_choice, which appends a template that is written when it is chosen.
  `original` writes it."""

  def maybe_append_choice(self: Any, choices: list[Any], **kwargs: Any) -> Any:
    if _WRITTEN_AT_ONCE in self.name:
      return original(self, choices, **kwargs)
    choices.append(_class()(self, functools.partial(original, self), kwargs))
    return None

  return maybe_append_choice


def choosing(pick: Callable[[Sequence[Any]], Any]) -> Callable[..., Any]:
  """AlgorithmSelectorCache.pick_deterministic_choice, which takes what `pick` says. Templates that
  cannot be written are left out."""

  def pick_deterministic_choice(self: Any, choices: Sequence[Any]) -> Any:
    left = list(choices)
    while len(left) > 1:
      choice = pick(left)
      if written(choice) is not None:
        return choice
      left.remove(choice)
    return left[0]

  return pick_deterministic_choice


def written(choice: InductorObject) -> InductorObject | None:
  """A template with its text, None if there is none."""
  return choice.written() if isinstance(choice, _class()) else choice


@functools.cache
def _class() -> Any:
  from torch._inductor import ir, select_algorithm

  class Deferred(ir.ChoiceCaller):
    """A template with what its configuration tells: its name, its operands and its tiles."""

    def __init__(
      self, template: InductorObject, append: Callable[..., Any], options: dict[str, Any]
    ) -> None:
      described = ", ".join(f"{name}={value}" for name, value in options.items() if name.isupper())
      super().__init__(
        f"triton_{template.name}", options["input_nodes"], options["layout"], described
      )
      self._append, self._options = append, options
      self._written: list[Any] | None = None
      sizes = tuple(options.get(f"BLOCK_{axis}", -1) for axis in "MKN")
      self.log_info: dict[str, Any] = {
        "tile_shape": str(sizes),
        "num_stages": options["num_stages"],
        "num_warps": options["num_warps"],
        "GROUP_M": options.get("GROUP_M", -1),
        "allow_tf32": str(options.get("ALLOW_TF32")),
      }

    def written(self) -> Any:
      if self._written is None:
        self._written = []
        self._append(self._written, **self._options)
        for choice in self._written:
          choice.log_info = {**self.log_info, **choice.log_info}
      return self._written[0] if self._written else None

    def output_node(self) -> Any:
      choice = self.written()
      if choice is None:
        raise select_algorithm.NoValidChoicesError(
          f"{self.name}: no configuration of this template has a kernel"
        )
      return choice.output_node()

  return Deferred
