"""The texts that a file carries beside its functions: tokenizer, chat template, settings. They are
entries of its metadata, with a hash each:

husk.text.model          the architecture, the numbers of tokens and slots, as JSON
husk.text.tokenizer      tokenizer.json
husk.text.chat_template  the template, in Jinja
husk.text.roles          the template as prefixes and suffixes, as JSON, if it has that form
husk.text.generation     the tokens that end a text, and the author's settings, as JSON
husk.text.sound          how features of sound are computed, as JSON, if the model is one of speech
husk.text.license        what the checkpoint says about its license
husk.text.hashes         BLAKE2b-256 of each of the others, as JSON
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import pathlib
from collections.abc import Mapping
from typing import Any

from ..errors import Unsupported
from ..quantized import GgufFile
from ..text import chats
from . import gguf_tokenizer, sounds

PREFIX = "husk.text."
# Settings of generation that a file keeps.
_SETTINGS = (
  "do_sample",
  "temperature",
  "top_k",
  "top_p",
  "no_timestamps_token_id",
  "max_initial_timestamp_index",
  "lang_to_id",
  "task_to_id",
)


# Files of tokenizers that become tokenizer.json.
_OTHER_TOKENIZERS = (
  "tokenizer.model",
  "spiece.model",
  "sentencepiece.bpe.model",
  "source.spm",
  "vocab.json",
  "vocab.txt",
)


@dataclasses.dataclass(frozen=True)
class Files:
  """Where the texts of a checkpoint are: a folder, a GGUF file, or nowhere."""

  folder: pathlib.Path | None = None
  gguf: GgufFile | None = None


def texts(files: Files, described: Mapping[str, Any], model: Any) -> dict[str, str]:
  """The entries of the metadata."""
  if files.folder is not None:
    found = _of_folder(files.folder)
  elif files.gguf is not None:
    found = gguf_tokenizer.texts(files.gguf)
  else:
    found = {}
  generation = json.loads(found.pop("generation", "{}"))
  generation = {**_settings(model), **generation}
  if template := found.get("chat_template"):
    roles = chats.roles(template, generation)
    if roles is not None:
      found["roles"] = _json(roles)
  shape = described.get("encoder", {}).get("shape")
  if files.folder is not None and shape is not None:
    sound = sounds.entry(files.folder, shape)
    if sound is not None:
      found["sound"] = _json(sound)
  found["model"] = _json(described)
  found["generation"] = _json(generation)
  hashes = {
    name: hashlib.blake2b(text.encode(), digest_size=32).hexdigest() for name, text in found.items()
  }
  found["hashes"] = _json(hashes)
  return {PREFIX + name: text for name, text in sorted(found.items())}


def _json(value: Any) -> str:
  return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def generation(files: Files, model: Any) -> dict[str, Any]:
  """All settings of generation: those of the model, and those of the folder in their place."""
  config = getattr(model, "generation_config", None)
  result = config.to_dict() if config is not None else {}
  if files.folder is not None:
    result |= _loaded(files.folder / "generation_config.json")
  return result


def _settings(model: Any) -> dict[str, Any]:
  """The settings of a model of transformers."""
  config = getattr(model, "generation_config", None)
  ends = getattr(config, "eos_token_id", None)
  if ends is None:
    ends = getattr(model.config.get_text_config(decoder=True), "eos_token_id", None)
  result: dict[str, Any] = {"end": _list(ends)}
  for name in _SETTINGS:
    if (value := getattr(config, name, None)) is not None:
      result[name] = value
  return result


def _list(value: Any) -> list[int]:
  if value is None:
    return []
  return [int(one) for one in value] if isinstance(value, (list, tuple)) else [int(value)]


def _of_folder(folder: pathlib.Path) -> dict[str, str]:
  path = folder / "tokenizer.json"
  others = [name for name in _OTHER_TOKENIZERS if (folder / name).is_file()]
  if not path.is_file() and not others:
    return {}
  text = path.read_text(encoding="utf-8") if path.is_file() else _converted(folder, others[0])
  result = {"tokenizer": _json(json.loads(text))}
  settings = _loaded(folder / "tokenizer_config.json")
  template = settings.get("chat_template")
  if isinstance(template, list):  # several, by name
    template = next((one["template"] for one in template if one["name"] == "default"), None)
  if (folder / "chat_template.jinja").is_file():
    template = (folder / "chat_template.jinja").read_text(encoding="utf-8")
  if template:
    result["chat_template"] = template
  generation: dict[str, Any] = {}
  for name in ("bos_token", "eos_token"):
    token = settings.get(name)
    if token is not None:
      generation[name] = token["content"] if isinstance(token, dict) else token
  saved = _loaded(folder / "generation_config.json")
  if "eos_token_id" in saved:
    generation["end"] = _list(saved["eos_token_id"])
  generation.update({name: saved[name] for name in _SETTINGS if saved.get(name) is not None})
  result["generation"] = _json(generation)
  for name in ("LICENSE", "LICENSE.txt", "LICENSE.md"):
    if (folder / name).is_file():
      result["license"] = (folder / name).read_text(encoding="utf-8", errors="replace")
      break
  return result


def _converted(folder: pathlib.Path, name: str) -> str:
  """tokenizer.json of a tokenizer that is in another file, such as a model of SentencePiece.
  transformers makes it, since how the numbers of tokens follow from such a file depends on the
  model."""
  try:
    from transformers import AutoTokenizer  # pyright: ignore[reportMissingImports]

    text: str = AutoTokenizer.from_pretrained(folder).backend_tokenizer.to_str()
  except Exception as error:
    reason = str(error).splitlines()[0] if str(error) else ""
    raise Unsupported(
      f"{folder} has its tokenizer in {name}, of which transformers makes no tokenizer.json "
      f"({type(error).__name__}: {reason})",
      remedy="models of SentencePiece need the packages sentencepiece and protobuf; or give a "
      "folder with tokenizer.json as tokenizer= (--tokenizer)",
    ) from error
  return text


def _loaded(path: pathlib.Path) -> dict[str, Any]:
  if not path.is_file():
    return {}
  value = json.loads(path.read_text(encoding="utf-8"))
  return value if isinstance(value, dict) else {}
