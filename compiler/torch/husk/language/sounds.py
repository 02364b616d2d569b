"""How a model of speech takes sound, according to the feature extractor of its checkpoint."""

from __future__ import annotations

import json
import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import Unsupported

_EXTRACTOR = "WhisperFeatureExtractor"
_HIGHEST = 8000.0  # hertz, the end of the last band
_LINEAR = 1000.0  # hertz; below it the mel scale is linear
# By default, as transformers has it.
_DEFAULTS = {
  "feature_size": 80,
  "sampling_rate": 16000,
  "hop_length": 160,
  "chunk_length": 30,
  "n_fft": 400,
}


def entry(folder: pathlib.Path, shape: Sequence[int]) -> dict[str, Any] | None:
  """The entry husk.text.sound for an encoder that takes features of a shape; None if the checkpoint
  does not say how they are computed."""
  found = _settings(folder)
  if found is None:
    return None
  kind = found.get("feature_extractor_type", _EXTRACTOR)
  if kind != _EXTRACTOR:
    raise Unsupported(
      f"{folder}: the feature extractor is {kind!r}",
      remedy=f"sound is taken as {_EXTRACTOR} does it: delete the file with the settings of the "
      "extractor, and give the features yourself",
    )
  bins, rate, hop, seconds, window = (
    int(found.get(name) or by_default) for name, by_default in _DEFAULTS.items()
  )
  samples = seconds * rate
  if (bins, samples // hop) != tuple(shape):
    raise Unsupported(
      f"{folder}: the feature extractor gives [{bins}, {samples // hop}] numbers, but the encoder "
      f"takes {list(shape)}",
      remedy="take both from one checkpoint",
    )
  return {
    "rate": rate,
    "samples": samples,
    "window": window,
    "hop": hop,
    "filters": filters(bins, rate, window),
  }


def _settings(folder: pathlib.Path) -> Mapping[str, Any] | None:
  """Those of the feature extractor. Newer checkpoints have them beside those of the tokenizer."""
  for name, key in (
    ("preprocessor_config.json", None),
    ("processor_config.json", "feature_extractor"),
  ):
    if (folder / name).is_file():
      value = json.loads((folder / name).read_text(encoding="utf-8"))
      value = value if key is None else value.get(key)
      if isinstance(value, dict):
        return value
  return None


def filters(bins: int, rate: int, window: int) -> list[list[float]]:
  """For each band of the mel scale of Slaney the first frequency that it has, as the number of a
  result of the transform, and the factors from there on. A band is a triangle between the middles
  of its neighbors, and is divided by its width."""
  top = _mel(_HIGHEST)
  corners = [_hertz(top * i / (bins + 1)) for i in range(bins + 2)]
  result: list[list[float]] = []
  for low, middle, high in zip(corners, corners[1:], corners[2:], strict=False):
    first, factors = 0, []
    for number in range(window // 2 + 1):
      hertz = number * rate / window
      slope = min((hertz - low) / (middle - low), (high - hertz) / (high - middle))
      if slope > 0:
        first = number - len(factors)
        factors.append(float(f"{2 * slope / (high - low):.9g}"))
    result.append([first, *factors])
  return result


# Above 1000 hertz 27 steps multiply the frequency by 6.4.
def _mel(hertz: float) -> float:
  if hertz < _LINEAR:
    return hertz * 3 / 200
  return 15 + math.log(hertz / _LINEAR) * 27 / math.log(6.4)


def _hertz(mel: float) -> float:
  return mel * 200 / 3 if mel < 15 else _LINEAR * math.exp((mel - 15) * math.log(6.4) / 27)
