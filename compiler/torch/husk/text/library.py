"""libhusk_text, by ctypes: in the installed package, or in a build of the source tree."""

from __future__ import annotations

import ctypes
import functools
import os
import pathlib
from typing import Any

NAME = "libhusk_text.so"

_Handle = ctypes.c_void_p
_Size = ctypes.c_size_t


class _Error(ctypes.Structure):
  """husk_error of husk/types.h."""

  _fields_ = (
    ("code", ctypes.c_int32),
    ("driver_code", ctypes.c_int32),
    ("step", ctypes.c_int32),
    ("text", ctypes.c_char * 240),
  )


# The functions of husk/text.h and husk/sound.h that return a husk_status, with their arguments but
# the last one, which is the error.
_CALLS: dict[str, tuple[Any, ...]] = {
  "tokenizer_create": (ctypes.c_char_p, _Size, ctypes.POINTER(_Handle)),
  "tokenizer_encode": (
    _Handle,
    ctypes.c_char_p,
    _Size,
    ctypes.c_uint32,
    ctypes.POINTER(ctypes.c_int32),
    _Size,
    ctypes.POINTER(_Size),
  ),
  "text_decoder_create": (_Handle, ctypes.c_uint32, ctypes.POINTER(_Handle)),
  "text_decoder_push": (
    _Handle,
    ctypes.c_int32,
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.POINTER(_Size),
  ),
  "text_decoder_finish": (_Handle, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(_Size)),
  "sound_create": (ctypes.c_char_p, _Size, ctypes.POINTER(_Handle)),
  "sound_get": (_Handle, ctypes.c_void_p),
  "sound_features": (_Handle, ctypes.c_void_p, _Size, _Size, ctypes.c_void_p),
}
_OTHERS: dict[str, tuple[Any, tuple[Any, ...]]] = {
  "tokenizer_release": (None, (_Handle,)),
  "text_decoder_release": (None, (_Handle,)),
  "sound_release": (None, (_Handle,)),
  "tokenizer_size": (ctypes.c_uint32, (_Handle,)),
  "tokenizer_token": (ctypes.c_void_p, (_Handle, ctypes.c_int32, ctypes.POINTER(_Size))),
  "tokenizer_is_special": (ctypes.c_int, (_Handle, ctypes.c_int32)),
}


def find(package: pathlib.Path) -> pathlib.Path | None:
  """The file of the library: that of HUSK_TEXT_LIBRARY in the environment, one in the package
  `husk`, or the newest build in the source tree that contains it. None if there is none."""
  if named := os.environ.get("HUSK_TEXT_LIBRARY"):
    return pathlib.Path(named)
  if installed := sorted((package / "lib").glob(f"{NAME}*")):
    return installed[0]
  if len(package.parents) < 3:
    return None
  found = (package.parents[2] / "build").glob(f"*/lib/{NAME}")
  return max(found, key=lambda path: path.stat().st_mtime, default=None)


@functools.cache
def load() -> ctypes.CDLL:
  """The library with the types of its functions. Raises ImportError with the remedy if it was not
  built."""
  path = find(pathlib.Path(__file__).resolve().parents[1])
  if path is None:
    raise ImportError(
      f"{NAME} is not there: install libpcre2-dev and libutf8proc-dev, and build Husk again "
      "(HUSK_TEXT=ON says why if it is left out)"
    )
  library = ctypes.CDLL(str(path))
  for name, arguments in _CALLS.items():
    function = getattr(library, f"husk_{name}")
    function.restype, function.argtypes = ctypes.c_int32, (*arguments, ctypes.POINTER(_Error))
  for name, (result, arguments) in _OTHERS.items():
    function = getattr(library, f"husk_{name}")
    function.restype, function.argtypes = result, arguments
  return library


def call(name: str, *arguments: Any) -> None:
  """Calls a function that returns a status. Raises ValueError, or MemoryError, with its text."""
  error = _Error()
  status = getattr(load(), f"husk_{name}")(*arguments, ctypes.byref(error))
  if status:
    text = error.text.decode("utf-8", "replace")
    raise MemoryError(text) if "no memory" in text else ValueError(text)
