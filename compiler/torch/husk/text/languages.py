"""Languages and tasks of a multilingual Whisper."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any


@dataclasses.dataclass(frozen=True)
class Languages:
  """languages: the tokens of languages by their names, such as "en". tasks: those of what to do,
  "transcribe" and "translate"."""

  languages: Mapping[str, int]
  tasks: Mapping[str, int]

  @classmethod
  def of(cls, generation: Mapping[str, Any]) -> Languages | None:
    """The languages that settings of generation name; None if they name none."""
    named = generation.get("lang_to_id")
    if not named:
      return None
    languages = {name.strip("<|>"): int(token) for name, token in named.items()}
    return cls(languages, generation.get("task_to_id") or {})

  def language(self, name: str) -> int:
    """The token of a language."""
    token = self.languages.get(name.strip("<|>"))
    if token is None:
      known = ", ".join(sorted(self.languages))
      raise ValueError(f"language={name!r}: this file knows {known}")
    return token

  def task(self, name: str) -> int:
    """The token of a task."""
    token = self.tasks.get(name)
    if token is None:
      raise ValueError(f"task={name!r}: this file knows {', '.join(sorted(self.tasks)) or 'none'}")
    return token

  def name_of(self, token: int) -> str:
    """The language that a token stands for."""
    return next(name for name, one in self.languages.items() if one == token)
