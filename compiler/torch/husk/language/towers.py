"""The parts of models of transformers that make rows of embeddings of an image, each called in the
way of its architecture."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch


class Tower:
  """Makes the rows (rows x numbers) of the pixels of an image, which are of one shape.

  grid: the rows and columns of an image in the positions of its tokens, or None if these are those
    of a text. two_way: whether the tokens of an image see one another."""

  grid: tuple[int, int] | None = None
  two_way = False

  def __init__(self, model: Any, size: tuple[int, int], chosen: bool) -> None:
    self.model, self.config = model, model.config.vision_config
    self.shape = self._shape(size, chosen)

  def _shape(self, size: tuple[int, int], chosen: bool) -> tuple[int, ...]:
    side = self.config.image_size
    height, width = side if isinstance(side, (list, tuple)) else (side, side)
    if chosen and size != (height, width):
      raise ValueError(
        f"image_size={size}: this {self.model.config.model_type} takes images of {height} x {width}"
      )
    return (int(getattr(self.config, "num_channels", 3)), int(height), int(width))

  def __call__(self, pixels: torch.Tensor) -> torch.Tensor:
    pixels = pixels.to(next(self.model.parameters()).dtype)
    found = self.model.base_model.get_image_features(pixels[None], return_dict=True).pooler_output
    return found[0].flatten(0, -2)

  def inputs(self, pixels: torch.Tensor, tokens: torch.Tensor, token: int) -> dict[str, Any]:
    """What the model as it is takes for images (count x ...) and a prompt (1 x tokens)."""
    return {"pixel_values": pixels}

  @contextlib.contextmanager
  def added(self, parts: Sequence[torch.Tensor]) -> Iterator[None]:
    """While open, the model adds further parts of the embeddings to its hidden states."""
    assert not parts
    yield


class Tiles(Tower):
  """SmolVLM and Idefics 3: an image is several squares, each of which is an image here."""

  def __call__(self, pixels: torch.Tensor) -> torch.Tensor:
    base = self.model.base_model
    # get_image_features would look for images without pixels.
    seen = base.vision_model(pixel_values=pixels[None].to(base.dtype), return_dict=True)
    found: torch.Tensor = base.connector(seen.last_hidden_state)
    return found[0]

  def inputs(self, pixels: torch.Tensor, tokens: torch.Tensor, token: int) -> dict[str, Any]:
    return {"pixel_values": pixels[None]}


class Gemma3(Tower):
  two_way = True

  def inputs(self, pixels: torch.Tensor, tokens: torch.Tensor, token: int) -> dict[str, Any]:
    return {"pixel_values": pixels, "token_type_ids": (tokens == token).long()}


class Qwen(Tower):
  """Qwen2.5-VL and Qwen3-VL: patches in an order of their own. What the model computes of the size
  of an image is computed once, since images have one size. The rows of Qwen3-VL have parts that the
  first layers of the decoder add to their results (DeepStack)."""

  def _shape(self, size: tuple[int, int], chosen: bool) -> tuple[int, ...]:
    config = self.config
    merge = int(config.spatial_merge_size)
    step = int(config.patch_size) * merge
    height, width = size
    if height < step or width < step or height % step or width % step:
      raise ValueError(
        f"image_size={size}: this {self.model.config.model_type} takes images whose height and "
        f"width are multiples of {step}"
      )
    self.patches = (height // int(config.patch_size), width // int(config.patch_size))
    self.grid = (self.patches[0] // merge, self.patches[1] // merge)
    channels = getattr(config, "in_channels", None) or config.in_chans
    numbers = channels * config.temporal_patch_size * config.patch_size**2
    self._known = self._of_size()
    return (self.patches[0] * self.patches[1], int(numbers))

  def _sizes(self, count: int = 1) -> torch.Tensor:
    return torch.tensor([[1, *self.patches]] * count)

  def _of_size(self) -> dict[str, Any]:
    """The arguments that the vision part computes of the size of images, by its own functions."""
    from transformers import vision_utils  # pyright: ignore[reportMissingImports]

    tower, sizes = self.model.base_model.visual, self._sizes()
    merge = int(self.config.spatial_merge_size)
    # NumPy has the numbers while torch.export runs.
    result: dict[str, Any] = {
      "position_ids": vision_utils.get_vision_position_ids(sizes, merge),
      "cu_seqlens": vision_utils.get_vision_cu_seqlens(sizes).numpy(),
    }
    if hasattr(tower, "window_size"):
      index, ends = vision_utils.get_vision_window_index(
        sizes, merge, int(tower.window_size), int(tower.patch_size)
      )
      result |= {"window_index": index, "cu_window_seqlens": ends.numpy()}
    if hasattr(tower, "interpolation_mode"):
      indices, weights = vision_utils.get_vision_interpolation_indices_and_weights(
        sizes,
        num_grid_per_side=tower.num_grid_per_side,
        mode=tower.interpolation_mode,
        align_corners=tower.interpolation_align_corners,
        spatial_merge_size=merge,
      )
      result |= {"interp_indices": indices, "interp_weights": weights}
    return result

  def __call__(self, pixels: torch.Tensor) -> torch.Tensor:
    tower = self.model.base_model.visual
    known = {
      name: one.to(pixels.device) if isinstance(one, torch.Tensor) else one
      for name, one in self._known.items()
    }
    seen = tower(pixels.to(tower.dtype), grid_thw=self._sizes(), return_dict=True, **known)
    deep = getattr(seen, "deepstack_features", None) or ()
    return torch.cat([seen.pooler_output, *deep], dim=-1)

  def inputs(self, pixels: torch.Tensor, tokens: torch.Tensor, token: int) -> dict[str, Any]:
    return {
      "pixel_values": pixels.flatten(0, 1),
      "image_grid_thw": self._sizes(len(pixels)),
      "mm_token_type_ids": (tokens == token).int(),
    }

  @contextlib.contextmanager
  def added(self, parts: Sequence[torch.Tensor]) -> Iterator[None]:
    def hook(part: torch.Tensor) -> Callable[..., Any]:
      return lambda _layer, _inputs, result: result + part

    layers = self.model.base_model.language_model.layers
    hooks = [
      layer.register_forward_hook(hook(part)) for layer, part in zip(layers, parts, strict=False)
    ]
    try:
      yield
    finally:
      for one in hooks:
        one.remove()


# By the names of architectures.
KINDS: Mapping[str, Callable[..., Tower]] = {
  "gemma3": Gemma3,
  "idefics3": Tiles,
  "internvl": Tower,
  "llava": Tower,
  "qwen2_5_vl": Qwen,
  "qwen3_vl": Qwen,
  "smolvlm": Tiles,
}
