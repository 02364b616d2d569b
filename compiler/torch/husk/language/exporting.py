"""`export`: from a checkpoint of a language model to a file with functions and text."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import pathlib
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch

from ..errors import Unsupported
from ..exporter import Function, line_of_model
from ..exporter import export as export_functions
from ..options import Options, Path, merged
from ..quantized import GgufFile
from ..quantized import load as load_checkpoint
from . import adapters as lora
from . import attachments, caches, decoder, encoders, hooks, paging, rotary, sampling, steps
from . import images as pictures

_OF_STATES = "5.24"  # the version with which they were tried
_MOST_TOKENS = 4096  # by default, if the model allows more
_MOST_CHUNK = 1024  # tokens of a prompt that one call takes: memory is planned for so many
_VERIFIED = 8  # tokens of a slot that one call of `verify` takes
_RANKED = 20  # of the most likely tokens, whose log-probabilities `rank` gives
_CANDIDATES = 64  # of the most likely tokens, from which `sample_few` draws
DTYPES = ("float32", "bfloat16", "float16")
# A file can have these functions beside prefill, decode and sample, and has some by default.
FEATURES = ("copy", "controls", "images", "single", "verify", "embed")
DEFAULT_FEATURES = ("copy", "controls", "images", "single")


def export(
  checkpoint: Path | torch.nn.Module,
  path: Path,
  *,
  max_tokens: int | None = None,
  slots: int = 1,
  dtype: str | torch.dtype | None = None,
  cache: str | torch.dtype | None = None,
  cache_dtype: str | torch.dtype | None = None,
  pages: int | None = None,
  checkpoint_activations: str = "exact",
  tokenizer: Path | None = None,
  features: Iterable[str] = DEFAULT_FEATURES,
  adapters: int = 0,
  rank: int = 16,
  adapter_targets: Iterable[str] | None = None,
  image_size: tuple[int, int] | None = None,
  max_encoder_tokens: int | None = None,
  options: Options | None = None,
  **changes: Any,
) -> pathlib.Path:
  """Exports a language model to the artifact `path`, which `husk.text.load` and `husk-chat` run,
  and returns `path`.

  checkpoint: a GGUF file, a folder of Hugging Face's (config.json, safetensors, tokenizer.json), or
    a model of transformers.
  max_tokens: how many tokens a sequence may have; by default what the model allows, at most 4096.
  slots: how many sequences the file can generate at the same time.
  dtype: the type in which the model computes, such as "bfloat16"; by default that of the folder,
    and f32 for a GGUF file.
  cache: the type of the caches: "int8" or "fp8", with a scale for each token and head, or floats
    such as "bf16"; by default that in which the model computes. `cache_dtype` is another name.
  pages: keys and values are in so many pages of 64 tokens each, which sequences take as they grow
    and share if they begin alike. By default each slot has room for max_tokens.
  checkpoint_activations: the `activations` of husk.quantized.load.
  tokenizer: a folder with tokenizer.json and its settings, if it is not that of the checkpoint.
  features: functions beside the three below. "copy": slots copy the beginning of a prompt from one
    another. "controls": penalties, masks of tokens, and the most likely tokens with their
    log-probabilities (the functions `adjust` and `rank`). "images": the functions `image` and
    `prefill_images`, if the model takes images. "single": a step of one sequence alone, if there
    are several slots and no encoder. "verify": speculative decoding. "embed": hidden states of a
    text. Each takes time to export and space in the file.
  adapters, rank: how many adapters (LoRA) the file has room for, and their largest rank. They are
    added and replaced at run time, and each request names the one that it uses.
  adapter_targets: the layers that adapters may change, such as ("q_proj", "v_proj"): the ends of
    their names; by default all linear layers but the head.
  image_size: the height and width of images in pixels, of models that take images of any size; by
    default 448 x 448. A file takes images of one size.
  max_encoder_tokens: how many tokens the encoder of a model takes that has one, such as T5; by
    default what the model allows, at most 1024. max_tokens belongs to its decoder then.
  options, changes: a husk.Options, and its fields: targets=("host",), quantize="int4" and others.

  The file has the functions `prefill`, `decode` and `sample`, the caches as state, and the
  tokenizer, the chat template and the settings of generation as metadata.

  Needs transformers. Raises Unsupported for an architecture that has no decoder of text or does not
  use transformers' hooks, CheckpointError if a checkpoint cannot be read.
  """
  options = merged(options, changes)
  begin = time.monotonic()
  model, files = _model(
    checkpoint,
    tokenizer,
    _dtype("dtype", dtype),
    checkpoint_activations,
    options.quantize,
    pathlib.Path(path).resolve().parent,
  )
  most = _most_tokens(model, max_tokens, slots)
  chosen = _chosen(features)
  wanted = lora.chosen(adapters, rank, adapter_targets)
  encoder = _encoder(model, chosen, max_encoder_tokens, files, wanted is not None)
  seen = _images(model, chosen, image_size, most, wanted is not None)
  if pages is not None:
    _check_pages(pages, most, slots, model.config.model_type)
  kept = _cache(cache, cache_dtype)
  with decoder_of(model, slots, most, kept, wanted, seen, encoder, pages) as module:
    described = {
      "architecture": model.config.model_type,
      "max_tokens": most,
      "slots": slots,
      "chunk": min(module.chunk, _MOST_CHUNK),
      "vocabulary": module.vocabulary,
      "cache": str(module.cache_dtype).removeprefix("torch."),
    }
    if _has_single(module, chosen):
      described["single"] = True
    if module.vocabulary > _CANDIDATES:
      described["candidates"] = _CANDIDATES
    if module.pages:
      described |= paging.described(module)
    if module.has_states:
      described["states"] = True
    if not module.has_keys and (cache is not None or cache_dtype is not None):
      raise ValueError(
        f"cache={cache or cache_dtype!r}: this {model.config.model_type} keeps no keys and values, "
        "but states, whose type is that of the model: leave it out"
      )
    if module.has_states and "verify" in chosen:
      raise Unsupported(
        f"the architecture {model.config.model_type!r} keeps states, which cannot go back to an "
        "earlier token when a draft is wrong",
        remedy='leave "verify" out of the features (--features)',
      )
    if seen is not None:
      described["image"] = seen.kind.description()
    if encoder is not None:
      described["encoder"] = encoder.kind.description()
    if "verify" in chosen:
      decoder.check_features(module, torch.arange(8) * 7919 % module.vocabulary)
      described["verify"] = min(_VERIFIED, most)
    if "controls" in chosen:
      described["ranked"] = min(_RANKED, module.vocabulary)
    if "embed" in chosen:
      if getattr(model, "base_model", model) is model:
        raise Unsupported(
          f"the architecture {model.config.model_type!r} has no base model for hidden states",
          remedy='leave "embed" out of the features',
        )
      described["embed"] = True
    if isinstance(module, lora.AdaptedDecoder):
      lora.check(module, torch.arange(8) * 7919 % module.vocabulary, "verify" in chosen)
      described |= lora.describe(module)
      if options.quantize:
        quantize = {**lora.UNQUANTIZED, **options.quantize}
        options = dataclasses.replace(options, quantize=quantize)
    texts = attachments.texts(files, described, model)
    logging.getLogger("husk").info(
      "%s: %s, ready to export in %.1f s", path, model.config.model_type, time.monotonic() - begin
    )
    options = dataclasses.replace(options, metadata={**texts, **options.metadata})
    with _named_choices_by_data(model):
      return export_functions(_functions(module, chosen), path, options=options)


@contextlib.contextmanager
def decoder_of(
  model: Any,
  slots: int,
  max_tokens: int,
  cache_dtype: torch.dtype | None,
  wanted: lora.Chosen | None = None,
  seen: pictures.Images | None = None,
  encoder: encoders.Encoder | None = None,
  pages: int | None = None,
) -> Iterator[decoder.Decoder]:
  """The module that is exported, which uses the model as long as this is open, with the adapters,
  images and encoder that are wanted. Raises Unsupported if its logits are not those of the model.
  """
  kind = model.config.model_type
  probe = torch.arange(8) * 7919 % model.config.get_text_config(decoder=True).vocab_size
  if encoder is not None:
    with _with_encoder(model, slots, max_tokens, cache_dtype, encoder, probe, pages) as paired:
      yield paired
    return
  with contextlib.ExitStack() as stack:
    stack.enter_context(rotary.chosen(model, max_tokens))
    with torch.no_grad():
      right = model(input_ids=probe[None], use_cache=False).logits[0, -1].float()
    shown = pictures.probe(model, seen, max_tokens) if seen is not None else None
    attends = stack.enter_context(hooks.used_by(model, may_attend=True))
    found = stack.enter_context(lora.attached(model, wanted)) if wanted else None
    with _refusals(model, attends):
      module = (
        lora.AdaptedDecoder(model, slots, max_tokens, cache_dtype, wanted, found, pages)
        if wanted and found
        else pictures.decoder_class(seen)(model, slots, max_tokens, cache_dtype, seen, pages)
        if seen
        else decoder.Decoder(model, slots, max_tokens, cache_dtype, pages)
      ).eval()
      if pages and not module.has_keys:
        raise Unsupported(
          f"pages={pages}: this {kind} keeps states alone, which have a row for each slot",
          remedy="leave pages out (--pages)",
        )
      decoder.check(module, right, probe, exact_cache=cache_dtype is None)
      if isinstance(module, pictures.ImageDecoder) and shown is not None:
        pictures.check(module, shown, exact_cache=cache_dtype is None)
    yield module


@contextlib.contextmanager
def _with_encoder(
  model: Any,
  slots: int,
  max_tokens: int,
  cache_dtype: torch.dtype | None,
  encoder: encoders.Encoder,
  tokens: torch.Tensor,
  pages: int | None,
) -> Iterator[encoders.EncoderDecoder]:
  right = encoders.probe(model, encoder, tokens)
  with hooks.used_by(model), encoders.used_by(model):
    with _refusals(model):
      module = encoders.EncoderDecoder(model, slots, max_tokens, cache_dtype, encoder, pages).eval()
      encoders.check(module, right, exact_cache=cache_dtype is None)
    yield module


@contextlib.contextmanager
def _refusals(model: Any, attends: bool = False) -> Iterator[None]:
  """Whatever code of a model does with a cache that is not one of transformers' own makes it
  Unsupported. States have other names in older versions. `attends`: whether the model computes
  attention by itself."""
  try:
    yield
  except MemoryError:
    raise
  except Exception as error:
    if attends:
      raise hooks.attends_by_itself(model) from error
    if isinstance(error, Unsupported):
      raise
    raise Unsupported(
      f"the architecture {model.config.model_type!r} does not run with Husk's cache "
      f"({type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''})",
      remedy=f"{decoder.REMEDY}; models with states were tried with transformers {_OF_STATES}",
    ) from error


@contextlib.contextmanager
def _named_choices_by_data(model: Any) -> Iterator[None]:
  """Makes a model Unsupported whose code decides by numbers of its tensors, which no program can
  follow, such as a loop over the experts that some token has chosen."""
  try:
    yield
  except Exception as error:
    if type(error).__name__ != "GuardOnDataDependentSymNode":
      raise
    reason = f"decides by numbers of its tensors ({line_of_model(error)})"
    raise decoder.no_decoder(model, reason) from error


def _model(
  checkpoint: Any,
  tokenizer: Path | None,
  dtype: torch.dtype | None,
  activations: str,
  quantize: Mapping[str, Any],
  scratch: pathlib.Path,
) -> tuple[Any, attachments.Files]:
  """The model, and where its tokenizer is. Codes of a large checkpoint lie in files of the folder
  `scratch`, in which the artifact will be."""
  try:
    import transformers  # pyright: ignore[reportMissingImports]
  except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
      f"husk.language.export needs transformers ({error}): run `pip install transformers`",
      name=error.name,
    ) from error
  folder = None if tokenizer is None else pathlib.Path(tokenizer)
  if isinstance(checkpoint, torch.nn.Module):
    if not isinstance(checkpoint, transformers.PreTrainedModel):
      raise ValueError(
        f"{type(checkpoint).__name__} is no model of transformers: husk.export takes other modules"
      )
    return checkpoint.eval(), attachments.Files(folder)
  path = pathlib.Path(checkpoint)
  if not path.exists():
    raise FileNotFoundError(f"{path} is not there: give a GGUF file or a folder of Hugging Face's")
  try:
    model: Any = load_checkpoint(
      path, dtype=dtype, activations=activations, quantize=quantize, scratch=scratch
    )
  except ValueError as error:
    if "Unrecognized model" not in str(error) and "does not recognize" not in str(error):
      raise
    raise Unsupported(
      f"{path}: transformers {transformers.__version__} does not know the architecture",
      remedy=f"install a version that does ({str(error).splitlines()[0]})",
    ) from error
  if folder is None and path.is_dir():
    folder = path
  return model, attachments.Files(folder, GgufFile(path) if path.is_file() else None)


def _dtype(name: str, value: str | torch.dtype | None) -> torch.dtype | None:
  if value is None or isinstance(value, torch.dtype):
    return value
  if value not in DTYPES:
    raise ValueError(f"{name}={value!r}: give one of {', '.join(map(repr, DTYPES))}")
  found: torch.dtype = getattr(torch, value)
  return found


def _cache(
  cache: str | torch.dtype | None, cache_dtype: str | torch.dtype | None
) -> torch.dtype | None:
  """The type of the caches; None for that in which the model computes."""
  if cache is not None and cache_dtype not in (None, cache):
    raise ValueError(f"cache={cache!r} and cache_dtype={cache_dtype!r}: give one of them")
  name, value = ("cache_dtype", cache_dtype) if cache is None else ("cache", cache)
  if value is None:
    return None
  kind = caches.KINDS.get(value) if isinstance(value, str) else value
  if kind not in caches.KINDS.values():
    raise ValueError(f"{name}={value!r}: give one of {', '.join(map(repr, caches.KINDS))}")
  return kind


def _most_tokens(model: Any, max_tokens: int | None, slots: int) -> int:
  """How many tokens a sequence may have."""
  if encoders.has_encoder(model):
    limit, by_default = encoders.most_tokens(model), encoders.MOST_TOKENS
  else:
    config = model.config.get_text_config(decoder=True)
    limit, by_default = getattr(config, "max_position_embeddings", None), _MOST_TOKENS
  most = min(limit or by_default, by_default) if max_tokens is None else max_tokens
  _check_sizes(most, slots, limit, model.config.model_type)
  return most


def _check_sizes(max_tokens: int, slots: int, limit: int | None, kind: str) -> None:
  if max_tokens < 8:
    raise ValueError(f"max_tokens={max_tokens}: give at least 8")
  if limit is not None and max_tokens > limit:
    raise ValueError(f"max_tokens={max_tokens}: this {kind} takes up to {limit} tokens")
  if not 1 <= slots <= 1024:
    raise ValueError(f"slots={slots}: give a number from 1 to 1024")


def _check_pages(pages: int, max_tokens: int, slots: int, kind: str) -> None:
  least = paging.least(max_tokens, slots)
  if pages * steps.PAGE < max_tokens:
    raise ValueError(
      f"pages={pages}: a sequence of this {kind} may have {max_tokens} tokens, and a page has "
      f"{steps.PAGE}: give at least {least} pages, or fewer max_tokens"
    )
  if pages < least:
    raise ValueError(f"pages={pages}: a file of {slots} slots has at least {least} pages")


def _chosen(features: Iterable[str]) -> set[str]:
  chosen = {features} if isinstance(features, str) else set(features)
  for unknown in sorted(chosen - set(FEATURES)):
    raise ValueError(f"features: there is no {unknown!r}: give some of {', '.join(FEATURES)}")
  return chosen


def _encoder(
  model: Any,
  features: set[str],
  max_tokens: int | None,
  files: attachments.Files,
  has_adapters: bool,
) -> encoders.Encoder | None:
  """How the model takes the input of its encoder; None if it has none."""
  kind = model.config.model_type
  if not encoders.has_encoder(model):
    if max_tokens is not None:
      raise ValueError(f"max_encoder_tokens={max_tokens}: this {kind} has no encoder")
    return None
  if has_adapters:
    raise Unsupported(
      f"the architecture {kind!r} has an encoder, and files with an encoder have no adapters yet",
      remedy="give no adapters",
    )
  for name in ("verify", "embed"):
    if name in features:
      raise Unsupported(
        f"the architecture {kind!r} has an encoder, and files with an encoder have no function "
        f"{name} yet",
        remedy=f'leave "{name}" out of the features (--features)',
      )
  return encoders.of_model(model, max_tokens, attachments.generation(files, model))


def _images(
  model: Any, features: set[str], size: tuple[int, int] | None, most: int, has_adapters: bool
) -> pictures.Images | None:
  """How the model takes images; None if the file has no functions for them."""
  kind = model.config.model_type
  if "images" not in features or not pictures.takes_images(model):
    if size is not None:
      raise ValueError(f"image_size={size}: this {kind} is exported without images")
    return None
  if has_adapters:
    raise Unsupported(
      f"the architecture {kind!r} takes images, and files with images have no adapters yet",
      remedy='leave "images" out of the features (--features), or give no adapters',
    )
  return pictures.of_model(model, size, most, min(most, _MOST_CHUNK))


def _functions(module: decoder.Decoder, features: set[str]) -> Mapping[str, Function]:
  """The functions of the file, with examples of their arguments. No example is 0, 1 or another
  limit, which torch would take for the only value."""
  auto, most = torch.export.Dim.AUTO, min(module.chunk, _MOST_CHUNK)
  length = torch.export.Dim("length", min=1, max=most)
  rows: Any = torch.export.Dim("rows", min=1, max=module.rows) if module.rows > 1 else None
  count = min(2, module.slots)
  numbers = torch.zeros(count, dtype=torch.int64)
  result = {
    "prefill": Function(
      module,
      (torch.zeros(3, dtype=torch.int64), min(1, module.slots - 1), 2, 6),
      dynamic_shapes={
        "tokens": {0: length},
        "slot": auto if module.slots > 1 else None,
        "position": auto,
        "span": auto,
      },
      method="prefill",
    ),
    "decode": Function(
      module,
      (numbers, numbers + 3, 6),
      dynamic_shapes={
        "tokens": rows and {0: rows},
        "positions": rows and {0: rows},
        "span": auto,
      },
      method="decode",
    ),
  }
  most_rows = module.rows
  if "verify" in features:
    verified = min(_VERIFIED, module.max_tokens)
    most_rows *= verified
    several = torch.export.Dim("several", min=2, max=verified)
    result["verify"] = Function(
      module,
      (torch.zeros(count, 3, dtype=torch.int64), numbers + 3, 7),
      dynamic_shapes={
        "tokens": {0: rows, 1: several} if rows else {1: several},
        "positions": rows and {0: rows},
        "span": auto,
      },
      method="verify",
    )
  if "copy" in features and module.slots > 1:
    result["copy"] = Function(
      module,
      (1, min(2, module.slots - 1), 2, 4),
      dynamic_shapes=dict.fromkeys(("source", "slot", "position", "count"), auto),
      method="copy",
    )
  if "embed" in features:
    result["embed"] = Function(
      module,
      (torch.zeros(3, dtype=torch.int64),),
      dynamic_shapes={"tokens": {0: length}},
      method="embed",
    )
  if module.pages:
    result = paging.with_tables(module, result)
  if isinstance(module, lora.AdaptedDecoder):
    result = module.with_adapters(result)
  if isinstance(module, pictures.ImageDecoder):
    result = module.with_images(result, most)
  if isinstance(module, encoders.EncoderDecoder):
    result = module.with_encoder(result)
  if _has_single(module, features):
    result["single"] = _single(result["decode"])
  return {**result, **_functions_of_logits(module, most_rows, features)}


def _has_single(module: decoder.Decoder, features: set[str]) -> bool:
  """Whether a file has the function `single`. With an encoder, torch would ask whether a single row
  of its keys is read whole, and the function would not take the longest source."""
  has_encoder = isinstance(module, encoders.EncoderDecoder)
  return "single" in features and module.slots > 1 and not has_encoder


def _single(decode: Function) -> Function:
  """The function `single` with the examples of `decode` for one row."""
  tokens, positions, *others = (
    one[:1] if isinstance(one, torch.Tensor) else one for one in decode.args
  )
  names = ("span", "more")[: len(others)]
  sizes = list(decode.dynamic_shapes.values())[2:]
  several = [
    {dim: size for dim, size in one.items() if dim > 0} if isinstance(one, Mapping) else one
    for one in sizes
  ]
  return Function(
    decode.model,
    (tokens, positions, 1, *others),
    dynamic_shapes={
      "tokens": None,
      "positions": None,
      "slot": torch.export.Dim.AUTO,
      **dict(zip(names, several, strict=True)),
    },
    method="single",
  )


def _functions_of_logits(
  module: decoder.Decoder, most_rows: int, features: set[str]
) -> Mapping[str, Function]:
  """`sample`, and `adjust` and `rank`, for up to `most_rows` rows of logits."""
  rows: Any = torch.export.Dim("rows", min=1, max=max(most_rows, 3))
  logits, two = torch.rand(2, module.vocabulary), torch.zeros(2)
  whole = two.long()

  def function(model: torch.nn.Module, others: Mapping[str, torch.Tensor], **sizes: Any) -> Any:
    return Function(
      model,
      (logits, *others.values()),
      dynamic_shapes={
        "logits": {0: rows},
        **{name: {0: rows, **sizes.get(name, {})} for name in others},
      },
    )

  settings = {
    "temperature": two,
    "top_k": whole,
    "top_p": two,
    "min_p": two,
    "seeds": whole,
    "positions": whole,
  }
  result = {"sample": function(sampling.Sampler(), settings)}
  if module.vocabulary > _CANDIDATES:
    result["sample_few"] = function(sampling.Sampler(_CANDIDATES), settings)
  if "controls" in features:
    longest = torch.export.Dim("longest", min=1, max=module.max_tokens + 1)
    result["adjust"] = function(
      sampling.Adjuster(),
      {
        "history": torch.zeros(2, 5, dtype=torch.int64),
        "lengths": whole,
        "prompts": whole,
        "repetition": two,
        "presence": two,
        "frequency": two,
        "allowed": torch.zeros(2, -(-module.vocabulary // 32), dtype=torch.int32),
      },
      history={1: longest},
    )
    result["rank"] = function(sampling.Ranker(min(_RANKED, module.vocabulary)), {"tokens": whole})
  return result
