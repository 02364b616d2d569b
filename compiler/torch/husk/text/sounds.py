"""Sound of one channel: its features, by libhusk_text (husk/sound.h), and texts of it."""

from __future__ import annotations

import ctypes
import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from . import library

if TYPE_CHECKING:
  from .model import Model
  from .requests import Request

# The largest number of a sample of 16 bits, and one more.
_SCALE = 32768


class _Format(ctypes.Structure):
  """husk_sound_format of husk/sound.h."""

  _fields_ = (
    ("struct_size", ctypes.c_uint32),
    ("reserved", ctypes.c_int32),
    ("rate", ctypes.c_uint64),
    ("samples", ctypes.c_uint64),
    ("hop", ctypes.c_uint64),
    ("bins", ctypes.c_uint64),
  )


class Sound:
  """Computes the features that an encoder takes. `json` is the entry husk.text.sound of a file.

  rate: how many samples a second has. samples: how many the encoder takes at once. hop: how many
    lie between two columns of features. bins: how many rows the features have."""

  def __init__(self, json: str) -> None:
    self._handle = ctypes.c_void_p()
    data = json.encode()
    library.call("sound_create", data, len(data), ctypes.byref(self._handle))
    found = _Format(struct_size=ctypes.sizeof(_Format))
    library.call("sound_get", self._handle, ctypes.byref(found))
    self.rate, self.samples = int(found.rate), int(found.samples)
    self.hop, self.bins = int(found.hop), int(found.bins)

  def __del__(self) -> None:
    if getattr(self, "_handle", None):
      library.load().husk_sound_release(self._handle)

  def samples_of(self, audio: Any) -> Any:
    """The samples as an f32 array, from -1 to 1. Raises ValueError for what is no sound of one
    channel."""
    import numpy as np

    array = np.asarray(audio)
    if array.dtype != np.int16 and array.dtype.kind != "f":
      raise ValueError(
        f"audio has the type {array.dtype}: give floats from -1 to 1, or integers of 16 bits"
      )
    if array.ndim != 1:
      raise ValueError(
        f"audio has the shape {list(array.shape)}: give the samples of one channel, "
        f"{self.rate} a second"
      )
    if array.dtype == np.int16:
      array = array.astype(np.float32) / _SCALE
    return np.ascontiguousarray(array, np.float32)

  def features(self, samples: Any, columns: int) -> Any:
    """The log-mel spectrogram of what `samples_of` gives, f32 [bins, columns]. Zeros follow a sound
    that is shorter. Raises ValueError if a sample is not finite."""
    import numpy as np

    result = np.empty((self.bins, columns), np.float32)
    pointers = [ctypes.c_void_p(one.ctypes.data) for one in (samples, result)]
    library.call("sound_features", self._handle, pointers[0], len(samples), columns, pointers[1])
    return result

  def of_one_window(self, audio: Any) -> Any:
    """The features of a sound that the encoder takes at once."""
    samples = self.samples_of(audio)
    if len(samples) > self.samples:
      raise ValueError(
        f"audio has {len(samples) / self.rate:.1f} seconds, but the encoder of this file takes "
        f"{self.samples / self.rate:g} at once: call transcribe for a longer sound"
      )
    return self.features(samples, self.samples // self.hop)

  def windows(self, audio: Any) -> Windows:
    """The features of a sound of any length."""
    samples, columns = self.samples_of(audio), self.samples // self.hop
    seconds = self.hop / self.rate
    if len(samples) > self.samples:
      return Windows(self.features(samples, len(samples) // self.hop), columns, seconds)
    return Windows(self.features(samples, columns), columns, seconds)


@dataclasses.dataclass(frozen=True)
class Windows:
  """The features of a whole sound, [bins, columns], of which the encoder takes `size` columns at
  once. `seconds` is the time from one column to the next."""

  features: Any
  size: int
  seconds: float

  @property
  def columns(self) -> int:
    return int(self.features.shape[1])

  def at(self, begin: int) -> Any:
    """The window that begins with a column. Zeros follow the last column."""
    import numpy as np

    found = self.features[:, begin : begin + self.size]
    return np.pad(found, ((0, 0), (0, self.size - found.shape[1])))


@dataclasses.dataclass(frozen=True)
class Segment:
  """A part of a text of sound. `start` and `end` are seconds, and `tokens` has the tokens for times
  as well."""

  start: float
  end: float
  text: str
  tokens: list[int]


@dataclasses.dataclass(frozen=True)
class Timestamps:
  """The rules of Whisper for tokens that stand for times, as WhisperTimeStampLogitsProcessor of
  transformers has them.

  none: the token that says that a text has no times; the one after it is the time 0. end: the token
    that ends a text. latest: up to this time the first token may be, as a number of times."""

  none: int
  end: int
  latest: int | None = None

  @property
  def zero(self) -> int:
    """The token of the time 0."""
    return self.none + 1

  def allowed(self, tokens: Sequence[int], logits: Any) -> Any:
    """Which tokens may come next, as truth values, after `tokens` of a text, by the logits."""
    import numpy as np

    logits = logits.astype(np.float64)
    result = np.isfinite(logits)
    result[self.none] = False
    self._keep_pairs(tokens, result)
    times = [token for token in tokens if token >= self.zero]
    if times:
      # Times do not decrease; a time may come twice only if it ends a part and begins another one.
      is_open = tokens[-1] >= self.zero and not self._is_time(tokens, -2)
      result[self.zero : times[-1] + (not is_open)] = False
    if not tokens:
      result[: self.zero] = False
      if self.latest is not None:
        result[self.zero + self.latest + 1 :] = False
    # A time comes if all times together are likelier than each other token.
    most = logits[result].max() if result.any() else 0.0
    weights = np.where(result, np.exp(np.minimum(logits - most, 0)), 0)
    if weights[self.zero :].sum() > weights[: self.zero].max():
      result[: self.zero] = False
    return result

  def _keep_pairs(self, tokens: Sequence[int], result: Any) -> None:
    """Times come in pairs, but for the first one, and for one before the end."""
    if not tokens or tokens[-1] < self.zero:
      return
    if self._is_time(tokens, -2):
      result[self.zero :] = False
    else:
      result[: self.end] = False

  def _is_time(self, tokens: Sequence[int], at: int) -> bool:
    """Whether a token is a time; one before the first token counts as one."""
    return len(tokens) < -at or tokens[at] >= self.zero


def text_of(model: Model, windows: Windows, **settings: Any) -> str:
  """The texts of all windows, one after the other. They are worked on together."""
  begins = range(0, windows.columns, windows.size)
  requests = [model.submit(features=windows.at(begin), **settings) for begin in begins]
  try:
    while not all(one.done for one in requests):
      model.step()
  finally:
    for one in requests:
      one.cancel()
  for one in requests:
    if one.error is not None:
      raise one.error
  return "".join(one.text for one in requests)


def segments_of(
  model: Model, windows: Windows, rules: Timestamps, positions: int, **settings: Any
) -> Iterator[Segment]:
  """The segments of a sound. A window begins where the last whole segment of the one before it
  ends. `positions` is how many positions the encoder gives for a window: there is a time for each.
  """
  step = windows.size // positions  # columns from one time to the next
  begin = 0
  while begin < windows.columns:
    request = model.submit(features=windows.at(begin), **settings)
    request.timestamps = rules
    try:
      while not request.done:
        model.step()
    finally:
      request.cancel()
    if request.error is not None:
      raise request.error
    tokens = _without_end(request)
    left = min(windows.columns - begin, windows.size)
    parts, taken = cut(tokens, rules.zero, left, step)
    for first, last, some in parts:
      words = [token for token in some if token < rules.zero]
      text = "" if model.tokenizer is None else model.tokenizer.decode(words, skip_special=True)
      start, end = ((begin + step * time) * windows.seconds for time in (first, last))
      yield Segment(start, end, text, some)
    begin += taken


def _without_end(request: Request) -> list[int]:
  return request.tokens[:-1] if request.reason == "end" else request.tokens


def cut(
  tokens: list[int], zero: int, columns: int, step: int
) -> tuple[list[tuple[int, int, list[int]]], int]:
  """The segments of the text of a window, each with its first and last time and its tokens, and how
  many columns they take. `zero` is the token of the time 0, `columns` is how many the window has,
  and `step` how many lie between two times."""
  is_time = [token >= zero for token in tokens]
  # The last token of a segment and the first one of the next are two times in a row.
  ends = [i for i in range(1, len(tokens)) if is_time[i - 1] and is_time[i]]
  is_whole = is_time[-2:] == [False, True]  # nothing is said after the last time
  if not ends:
    times = [token - zero for token in tokens if token >= zero]
    last = times[-1] if times and times[-1] > 0 else columns // step
    return [(0, last, tokens)], columns
  begins = [0, *ends]
  if is_whole:
    ends.append(len(tokens))
  parts = [tokens[begin:end] for begin, end in zip(begins, ends, strict=False)]
  found = [(part[0] - zero, part[-1] - zero, part) for part in parts]
  # Text after the last pair of times has no end, and is the beginning of the next window.
  return found, columns if is_whole else found[-1][1] * step
