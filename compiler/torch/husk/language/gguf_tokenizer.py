"""The tokenizer, the chat template and the settings of a GGUF file. Its fields become
tokenizer.json, so that a file of Husk has one form of tokenizers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ..errors import Unsupported
from ..quantized import GgufFile

# The types of tokens that are found in a text before it is split into words.
_CONTROL, _USER = 3, 4
# This character is a space in the tokens of SentencePiece.
_SPACE = "\u2581"

_LLAMA3 = (
  r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
  r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2 = _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")


def _bytes(use_regex: bool) -> dict[str, Any]:
  return {
    "type": "ByteLevel",
    "add_prefix_space": False,
    "trim_offsets": True,
    "use_regex": use_regex,
  }


def _split(pattern: str) -> dict[str, Any]:
  return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


_DIGITS = {"type": "Digits", "individual_digits": True}
_WORDS = [_bytes(True)]
_WORDS_AND_DIGITS = [_DIGITS, _bytes(True)]
# tokenizer.ggml.pre -> what splits a text into words.
SPLITS = {
  "gpt-2": _WORDS,
  "gpt2": _WORDS,
  "smollm": _WORDS_AND_DIGITS,
  "starcoder": _WORDS_AND_DIGITS,
  "refact": _WORDS_AND_DIGITS,
  "command-r": _WORDS_AND_DIGITS,
  "llama-bpe": [_split(_LLAMA3), _bytes(False)],
  "llama3": [_split(_LLAMA3), _bytes(False)],
  "qwen2": [_split(_QWEN2), _bytes(False)],
}
COMPOSED = {"qwen2"}  # those that compose characters first


def texts(file: GgufFile) -> dict[str, str]:
  """The entries that `attachments` lists, without the prefix of their names."""
  metadata = file.metadata
  result: dict[str, str] = {}
  if "tokenizer.ggml.tokens" in metadata:
    result["tokenizer"] = json.dumps(_tokenizer(file), ensure_ascii=False, separators=(",", ":"))
  if isinstance(template := metadata.get("tokenizer.chat_template"), str):
    result["chat_template"] = template
  tokens = metadata.get("tokenizer.ggml.tokens", [])
  generation: dict[str, Any] = {}
  for name in ("bos", "eos"):
    number = metadata.get(f"tokenizer.ggml.{name}_token_id")
    if isinstance(number, int) and 0 <= number < len(tokens):
      generation[f"{name}_token"] = tokens[number]
  ends = [metadata.get(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot", "eom")]
  if known := sorted({one for one in ends if isinstance(one, int)}):
    generation["end"] = known
  result["generation"] = json.dumps(generation, ensure_ascii=False)
  if isinstance(license_text := metadata.get("general.license"), str):
    result["license"] = license_text
  return result


def _tokenizer(file: GgufFile) -> dict[str, Any]:
  metadata = file.metadata
  kind = metadata.get("tokenizer.ggml.model")
  if kind == "llama":
    return _spaced(file)
  if kind != "gpt2":
    raise Unsupported(
      f"{file.path} has a tokenizer of the kind {kind!r}",
      remedy="BPE of bytes ('gpt2') and of SentencePiece ('llama') are converted; tokenizer= takes "
      "a folder with tokenizer.json",
    )
  pre = metadata.get("tokenizer.ggml.pre", "gpt-2")
  if pre not in SPLITS:
    raise Unsupported(
      f"{file.path} splits texts by the rules {pre!r}",
      remedy=f"known are {', '.join(SPLITS)}; tokenizer= takes a folder with tokenizer.json",
    )
  tokens = metadata["tokenizer.ggml.tokens"]
  splits = SPLITS[pre]
  return {
    "version": "1.0",
    "truncation": None,
    "padding": None,
    "added_tokens": _added(file, tokens),
    "normalizer": {"type": "NFC"} if pre in COMPOSED else None,
    "pre_tokenizer": splits[0]
    if len(splits) == 1
    else {"type": "Sequence", "pretokenizers": splits},
    "post_processor": _begin(file, tokens),
    "decoder": _bytes(True),
    "model": {
      "type": "BPE",
      "dropout": None,
      "unk_token": None,
      "continuing_subword_prefix": None,
      "end_of_word_suffix": None,
      "fuse_unk": False,
      "byte_fallback": False,
      "ignore_merges": pre in ("llama-bpe", "llama3"),
      "vocab": {token: number for number, token in enumerate(tokens)},
      "merges": metadata["tokenizer.ggml.merges"],
    },
  }


def _added(file: GgufFile, tokens: list[str]) -> list[dict[str, Any]]:
  """The tokens that are found in a text before it is split into words."""
  types = file.metadata.get("tokenizer.ggml.token_type") or [1] * len(tokens)
  return [
    {
      "id": number,
      "content": tokens[number],
      "single_word": False,
      "lstrip": False,
      "rstrip": False,
      "normalized": False,
      "special": kind == _CONTROL,
    }
    for number, kind in enumerate(types)
    if kind in (_CONTROL, _USER)
  ]


def _spaced(file: GgufFile) -> dict[str, Any]:
  """A BPE of SentencePiece, whose rules are the scores of its tokens."""
  metadata = file.metadata
  tokens: list[str] = metadata["tokenizer.ggml.tokens"]
  scores = metadata["tokenizer.ggml.scores"]
  vocabulary = {token: number for number, token in enumerate(tokens)}
  unknown = metadata.get("tokenizer.ggml.unknown_token_id", 0)
  has_prefix = metadata.get("tokenizer.ggml.add_space_prefix", True)
  replace = {"type": "Replace", "pattern": {"String": " "}, "content": _SPACE}
  prepend = {"type": "Prepend", "prepend": _SPACE}
  strip = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
  return {
    "version": "1.0",
    "truncation": None,
    "padding": None,
    "added_tokens": _added(file, tokens),
    "normalizer": {"type": "Sequence", "normalizers": [*([prepend] * has_prefix), replace]},
    "pre_tokenizer": None,
    "post_processor": _begin(file, tokens, True),
    "decoder": {
      "type": "Sequence",
      "decoders": [
        {"type": "Replace", "pattern": {"String": _SPACE}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
        *([strip] * has_prefix),
      ],
    },
    "model": {
      "type": "BPE",
      "dropout": None,
      "unk_token": tokens[unknown],
      "continuing_subword_prefix": None,
      "end_of_word_suffix": None,
      "fuse_unk": True,
      "byte_fallback": True,
      "ignore_merges": False,
      "vocab": vocabulary,
      "merges": _rules(vocabulary, scores),
    },
  }


def _rules(vocabulary: dict[str, int], scores: Sequence[float]) -> list[list[str]]:
  """Every pair of tokens that makes a token, in the order of scores: the larger one comes first."""
  rules: list[tuple[float, list[str]]] = []
  for token, number in vocabulary.items():
    pairs = [(token[:at], token[at:]) for at in range(1, len(token))]
    known = [pair for pair in pairs if pair[0] in vocabulary and pair[1] in vocabulary]
    known.sort(key=lambda pair: (vocabulary[pair[0]], vocabulary[pair[1]]))
    rules += [(scores[number], list(pair)) for pair in known]
  rules.sort(key=lambda rule: -rule[0])
  return [pair for _, pair in rules]


def _begin(file: GgufFile, tokens: list[str], by_default: bool = False) -> dict[str, Any] | None:
  """What puts the token of the beginning before a text, if the file asks for it."""
  number = file.metadata.get("tokenizer.ggml.bos_token_id")
  adds = file.metadata.get("tokenizer.ggml.add_bos_token", by_default)
  if not adds or not isinstance(number, int):
    return None
  token = tokens[number]
  return {
    "type": "TemplateProcessing",
    "single": [
      {"SpecialToken": {"id": token, "type_id": 0}},
      {"Sequence": {"id": "A", "type_id": 0}},
    ],
    "pair": [],
    "special_tokens": {token: {"id": token, "ids": [number], "tokens": [token]}},
  }
