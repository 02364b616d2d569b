"""Tokenizers, by libhusk_text."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable

from . import library

_ADD_SPECIAL, _PLAIN, _SKIP_SPECIAL = 1, 2, 4


class Tokenizer:
  """Makes tokens of a text, and a text of tokens. `json` is the content of a tokenizer.json.

  Raises ValueError if a part of it is of a kind that the library lacks, and names the part."""

  def __init__(self, json: str) -> None:
    self._handle = ctypes.c_void_p()
    data = json.encode("utf-8", "surrogatepass")
    library.call("tokenizer_create", data, len(data), ctypes.byref(self._handle))
    self.size: int = library.load().husk_tokenizer_size(self._handle)

  def __del__(self) -> None:
    if getattr(self, "_handle", None):
      library.load().husk_tokenizer_release(self._handle)

  def encode(self, text: str | bytes, *, special: bool = False, plain: bool = False) -> list[int]:
    """The tokens of a text. special: with the tokens that belong before and after each text. plain:
    takes special tokens in the text for plain text, as in the words of a user."""
    data = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    options = special * _ADD_SPECIAL + plain * _PLAIN
    count = ctypes.c_size_t()
    capacity = len(data) + 16
    while True:
      tokens = (ctypes.c_int32 * capacity)()
      library.call(
        "tokenizer_encode",
        self._handle,
        data,
        len(data),
        options,
        tokens,
        capacity,
        ctypes.byref(count),
      )
      if count.value <= capacity:
        return tokens[: count.value]
      capacity = count.value

  def token(self, number: int) -> bytes:
    """The bytes of a token, which may be a part of a character."""
    size = ctypes.c_size_t()
    found = library.load().husk_tokenizer_token(self._handle, number, ctypes.byref(size))
    if found is None:
      raise ValueError(f"no token has the number {number}")
    return ctypes.string_at(found, size.value)

  def is_special(self, number: int) -> bool:
    return bool(library.load().husk_tokenizer_is_special(self._handle, number))

  def decode(self, tokens: Iterable[int], *, skip_special: bool = False) -> str:
    """The text of tokens. Bytes that are no UTF-8 become U+FFFD."""
    decoder = Decoder(self, skip_special=skip_special)
    return "".join([*(decoder.push(token) for token in tokens), decoder.finish()])


class Decoder:
  """Makes a text of the tokens of one sequence, as they come. It never splits a character."""

  def __init__(self, tokenizer: Tokenizer, *, skip_special: bool = True) -> None:
    self._tokenizer = tokenizer  # which the handle uses
    self._handle = ctypes.c_void_p()
    library.call(
      "text_decoder_create",
      tokenizer._handle,
      skip_special * _SKIP_SPECIAL,
      ctypes.byref(self._handle),
    )

  def __del__(self) -> None:
    if getattr(self, "_handle", None):
      library.load().husk_text_decoder_release(self._handle)

  def push(self, token: int) -> str:
    """Takes the next token, and returns the text that is complete with it."""
    text, size = ctypes.c_void_p(), ctypes.c_size_t()
    library.call("text_decoder_push", self._handle, token, ctypes.byref(text), ctypes.byref(size))
    return ctypes.string_at(text, size.value).decode("utf-8") if size.value else ""

  def finish(self) -> str:
    """Ends the sequence: U+FFFD if it ended inside of a character, else no text."""
    text, size = ctypes.c_void_p(), ctypes.c_size_t()
    library.call("text_decoder_finish", self._handle, ctypes.byref(text), ctypes.byref(size))
    return ctypes.string_at(text, size.value).decode("utf-8") if size.value else ""
