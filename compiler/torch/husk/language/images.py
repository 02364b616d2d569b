"""Models of transformers that take images: an image becomes rows of embeddings, which stand for the
tokens of the image in a prompt.

A file has two functions more than that of a decoder of text: `image` computes the rows of an image,
and `prefill_images` takes a part of a prompt that has some. What a model does between both is its
own: the tokens of an image of Gemma 3 see one another, and those of the Qwen-VL models have
positions in three dimensions. The export compares the logits for a prompt with images with those of
the model as it is."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from ..errors import Unsupported
from ..exporter import Function
from ..text.images import Kind, PromptImages
from . import decoder, hooks, towers

# Pixels of a side of an image, by default, of models that take images of any size.
_SIDE = 448
# Tokens of text that a sequence has room for beside those of an image, at least.
_TEXT = 8


@dataclasses.dataclass(frozen=True)
class Images:
  """How a model takes images: the part that makes rows of embeddings, and what the file says of
  images."""

  tower: towers.Tower
  kind: Kind


def takes_images(model: Any) -> bool:
  """Whether a model of transformers has a part for images."""
  return getattr(model.config, "vision_config", None) is not None


def of_model(model: Any, size: tuple[int, int] | None, max_tokens: int, chunk: int) -> Images:
  """How a model takes images, before it uses the hooks. `size` is the height and width in pixels;
  `chunk` is how many tokens a call of `prefill_images` takes."""
  kind = model.config.model_type
  create = towers.KINDS.get(kind)
  if create is None:
    raise Unsupported(
      f"images: the architecture {kind!r} takes images in a way that the export does not know",
      remedy=f'it knows {", ".join(sorted(towers.KINDS))}; leave "images" out of the features '
      "(--features) to export the model for texts alone",
    )
  tower: towers.Tower = create(model, size or (_SIDE, _SIDE), chosen=size is not None)
  with torch.no_grad():
    rows, width = tower(torch.zeros(tower.shape, device=_device(model))).shape
  if rows < 2:
    raise Unsupported(
      f"images: an image of this {kind} of {tower.shape} numbers has a single token, which the "
      "function `decode` takes without rows",
      remedy="give larger images (--image-size)",
    )
  most = min(max_tokens - _TEXT, chunk) if tower.two_way else max_tokens - _TEXT
  if rows > most:
    raise Unsupported(
      f"images: an image of this {kind} has {rows} tokens, and there is room for {most} in a "
      "sequence",
      remedy="export it with a larger max_tokens (--max-tokens), or with smaller images "
      "(--image-size) if the model takes these",
    )
  token = int(model.config.image_token_id)
  if token >= model.config.get_text_config(decoder=True).vocab_size:
    raise Unsupported(
      f"images: the token {token} of images is none of the vocabulary of this {kind}",
      remedy="resize the embeddings of the model: model.resize_token_embeddings",
    )
  return Images(tower, Kind(token, tower.shape, rows, width, tower.grid, tower.two_way))


def _device(model: Any) -> Any:
  return next(model.parameters()).device


@dataclasses.dataclass(frozen=True)
class Probe:
  """A prompt with images, and the logits of the model as it is after it."""

  tokens: torch.Tensor
  pixels: torch.Tensor
  logits: torch.Tensor


def probe(model: Any, images: Images, max_tokens: int) -> Probe:
  """A prompt with two images, or with one if no more fit."""
  size = model.config.get_text_config(decoder=True).vocab_size
  count = 2 if 2 * images.kind.rows + _TEXT <= max_tokens else 1
  text = [one * 7919 % size for one in range(_TEXT)]
  text = [one if one != images.kind.token else 0 for one in text]
  between, row = text[:2], [images.kind.token] * images.kind.rows
  prompt = [one for number in range(count) for one in (*between[number % 2 :], *row)] + text[4:]
  device = _device(model)
  tokens = torch.tensor(prompt, device=device)
  random = torch.Generator().manual_seed(0)
  pixels = torch.rand(count, *images.kind.shape, generator=random).to(device) * 2 - 1
  dtype = next(model.parameters()).dtype
  given = images.tower.inputs(pixels.to(dtype), tokens[None], images.kind.token)
  with torch.no_grad():
    logits = model(input_ids=tokens[None], use_cache=False, **given).logits[0, -1].float()
  return Probe(tokens, pixels, logits)


def check(module: ImageDecoder, right: Probe, exact_cache: bool) -> None:
  """Compares the decoder with the model as it is for a prompt with images, which is taken in two
  chunks, and whose last token is taken alone. The caches are zeros afterwards."""
  images, slot, device = module.images, module.slots - 1, right.tokens.device
  prompt = PromptImages(images.kind, right.tokens.tolist(), list(right.pixels))
  count = len(right.tokens)
  middle = prompt.end(0, count - images.kind.rows // 2 - (_TEXT - 4))
  functions = module.by_slots()
  with torch.no_grad():
    prompt.embeddings = torch.cat([module.image(one) for one in right.pixels]).cpu().numpy()
    for begin, end in ((0, middle), (middle, count - 1)):
      more = [torch.from_numpy(one).to(device) for one in prompt.inputs(begin, end)]
      functions.prefill_images(right.tokens[begin:end], slot, begin, end, *more)
    row = torch.zeros(module.slots, dtype=torch.int64, device=device)
    positions, shifts = row.clone(), row.clone()
    row[slot], positions[slot] = right.tokens[-1], count - 1
    shifts[slot] = prompt.shift_at(count - 1)
    last = (shifts,) if images.kind.grid is not None else ()
    found = functions.decode(row, positions, count, *last)[1][slot]
    for buffer in module.buffers(recurse=False):
      buffer.zero_()
  error = float((found - right.logits).abs().max() / right.logits.abs().max().clamp(min=1e-6))
  if not error <= decoder.tolerance(module, exact_cache):
    raise Unsupported(
      f"images: the architecture {module.model.config.model_type!r} gives logits for a prompt with "
      f"images that differ by {error:.2g} of the largest one from those of the model",
      remedy='leave "images" out of the features (--features) to export it for texts alone',
    )


def use_hooks(model: Any) -> None:
  """Lets the part of a model that takes images use attention without masks, after
  `hooks.used_by`."""
  model.set_attn_implementation({"": hooks.NAME, "vision_config": hooks.IMAGES})


class _Given:
  """What a call has beside its tokens: their embeddings and positions, if these are not those of a
  text, and the positions before which they see all."""

  embeddings: torch.Tensor | None = None
  places: torch.Tensor | None = None
  ends: torch.Tensor | None = None


class ImageDecoder(decoder.Decoder):
  """A decoder that takes images."""

  def __init__(
    self,
    model: Any,
    slots: int,
    max_tokens: int,
    dtype: torch.dtype | None,
    images: Images,
    pages: int | None = None,
  ) -> None:
    self._given = _Given()
    super().__init__(model, slots, max_tokens, dtype, pages)
    use_hooks(model)
    self.images = images
    self.size = model.get_input_embeddings().weight.shape[-1]

  def _inputs(self, tokens: torch.Tensor) -> dict[str, Any]:
    result = super()._inputs(tokens)
    if self._given.embeddings is not None:
      del result["input_ids"]
      result["inputs_embeds"] = self._given.embeddings
    if self._given.places is not None:
      result["position_ids"] = self._given.places
    return result

  def image(self, pixels: torch.Tensor) -> torch.Tensor:
    """The rows of embeddings of an image, as f32[rows, width]. `pixels` are f32, of one shape."""
    # A model may have its rows transposed in memory, in which no caller takes them.
    return self.images.tower(pixels).float().contiguous()

  def prefill_images(
    self,
    tokens: torch.Tensor,
    slot: int,
    position: int,
    span: int,
    rows: torch.Tensor,
    embeddings: torch.Tensor,
  ) -> tuple[torch.Tensor, torch.Tensor]:
    """Decoder.prefill, of which some tokens are those of images: `rows` (int64[n]) has the row of
    `embeddings` (f32[m, width]) that takes the place of a token's own, or -1."""
    torch._check(rows.shape[0] == tokens.shape[0])
    is_image = (rows >= 0).unsqueeze(-1)
    own = self.model.get_input_embeddings()(tokens)
    parts = embeddings[rows.clamp(min=0)].to(own.dtype).split(self.size, dim=-1)
    self._given.embeddings = torch.where(is_image, parts[0], own)[None]
    deep = [torch.where(is_image, one, 0)[None] for one in parts[1:]]
    try:
      with self.images.tower.added(deep):
        return super().prefill(tokens, slot, position, span)
    finally:
      self._given.embeddings = None

  def with_images(self, functions: Mapping[str, Function], most: int) -> dict[str, Function]:
    """The functions, and those for images. `most` tokens are taken by a call."""
    length = torch.export.Dim("length", min=1, max=most)
    tokens, slot, position, span = functions["prefill"].args
    auto = functions["prefill"].dynamic_shapes
    embeddings = torch.zeros(2, self.images.kind.width)
    return {
      **functions,
      "image": Function(self, (torch.zeros(self.images.kind.shape),), method="image"),
      "prefill_images": Function(
        self,
        (tokens, slot, position, span, tokens - 1, embeddings, *self._examples(tokens)),
        dynamic_shapes={
          **auto,
          "tokens": {0: length},
          "rows": {0: length},
          "embeddings": {0: torch.export.Dim("images", min=1, max=most)},
          **self._dynamic(length),
        },
        method="prefill_images",
      ),
    }

  def _examples(self, _tokens: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Examples of the last inputs of `prefill_images`."""
    return ()

  def _dynamic(self, _length: Any) -> dict[str, Any]:
    """The sizes of these inputs."""
    return {}


class TwoWayDecoder(ImageDecoder):
  """The tokens of an image see one another, as those of Gemma 3."""

  def _inputs(self, tokens: torch.Tensor) -> dict[str, Any]:
    result = super()._inputs(tokens)
    if self._given.ends is not None:
      result["attention_mask"] = self._masks(self._given.ends)
    return result

  def _masks(self, ends: torch.Tensor) -> dict[str, torch.Tensor]:
    """Which positions the tokens see, by the kinds of layers."""
    step = self._step
    keys = torch.arange(step.span, device=ends.device)[None, None, None]
    full = keys < ends[None, None, :, None]
    window = self.model.config.get_text_config(decoder=True).sliding_window
    queries = step.positions[:, None, :, None]
    return {"full_attention": full, "sliding_attention": full & (keys > queries - window)}

  def prefill_images(  # pyright: ignore[reportIncompatibleMethodOverride]
    self,
    tokens: torch.Tensor,
    slot: int,
    position: int,
    span: int,
    rows: torch.Tensor,
    embeddings: torch.Tensor,
    ends: torch.Tensor,
  ) -> tuple[torch.Tensor, torch.Tensor]:
    """ImageDecoder.prefill_images, where a token sees the positions before `ends` (int64[n]): one
    more than its own, or than the last one of its image. All tokens of an image are in a call."""
    torch._check(ends.shape[0] == tokens.shape[0])
    self._given.ends = ends
    try:
      return super().prefill_images(tokens, slot, position, span, rows, embeddings)
    finally:
      self._given.ends = None

  def _examples(self, tokens: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return (tokens + 6,)

  def _dynamic(self, length: Any) -> dict[str, Any]:
    return {"ends": {0: length}}


class GridDecoder(ImageDecoder):
  """Rows of images have positions in three dimensions, as those of the Qwen-VL models. Tokens after
  an image have smaller positions than their numbers in the sequence: by `shifts`."""

  def prefill_images(  # pyright: ignore[reportIncompatibleMethodOverride]
    self,
    tokens: torch.Tensor,
    slot: int,
    position: int,
    span: int,
    rows: torch.Tensor,
    embeddings: torch.Tensor,
    places: torch.Tensor,
  ) -> tuple[torch.Tensor, torch.Tensor]:
    """ImageDecoder.prefill_images with the positions of the tokens (int64[3, n]) in time, height
    and width."""
    torch._check(places.shape[1] == tokens.shape[0])
    self._given.places = places[:, None]
    try:
      return super().prefill_images(tokens, slot, position, span, rows, embeddings)
    finally:
      self._given.places = None

  def decode(
    self,
    tokens: torch.Tensor,
    positions: torch.Tensor,
    span: int,
    shifts: torch.Tensor | None = None,
  ) -> tuple[torch.Tensor, torch.Tensor]:
    """Decoder.decode, where `shifts` (int64[n]) are added to the positions that the model sees."""
    with self._shifted(positions[:, None], shifts):
      return super().decode(tokens, positions, span)

  def verify(
    self,
    tokens: torch.Tensor,
    positions: torch.Tensor,
    span: int,
    shifts: torch.Tensor | None = None,
  ) -> tuple[torch.Tensor, torch.Tensor]:
    """Decoder.verify with `shifts` as in `decode`."""
    each = torch.arange(tokens.shape[1], device=tokens.device)[None]
    with self._shifted((positions[:, None] + each).clamp(max=self.max_tokens), shifts):
      return super().verify(tokens, positions, span)

  @contextlib.contextmanager
  def _shifted(self, positions: torch.Tensor, shifts: torch.Tensor | None) -> Iterator[None]:
    if shifts is not None:
      torch._check(shifts.shape[0] == positions.shape[0])
      self._given.places = positions + shifts[:, None]
    try:
      yield
    finally:
      self._given.places = None

  def _examples(self, tokens: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return ((tokens + 2).expand(3, -1).clone(),)

  def _dynamic(self, length: Any) -> dict[str, Any]:
    return {"places": {1: length}}

  def with_images(self, functions: Mapping[str, Function], most: int) -> dict[str, Function]:
    result = super().with_images(functions, most)
    for name in ("decode", "verify"):
      if name in result:
        one = result[name]
        sizes = {**one.dynamic_shapes, "shifts": one.dynamic_shapes["positions"]}
        args = (*one.args, torch.zeros_like(one.args[1]))
        result[name] = dataclasses.replace(one, args=args, dynamic_shapes=sizes)
    return result


def decoder_class(images: Images) -> type[ImageDecoder]:
  if images.kind.two_way:
    return TwoWayDecoder
  return ImageDecoder if images.kind.grid is None else GridDecoder
