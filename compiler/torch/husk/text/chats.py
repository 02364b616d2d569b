"""Chat templates. Their common form, where each message is a text between a prefix and a suffix
that depend on its role alone, is what C can fill in."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from typing import Any

Messages = Sequence[Mapping[str, Any]]

# Contents of messages in which no template has a part of its own.
_MARKS = ("aQ7xmark", "bQ8xmark", "cQ9xmark")
_PROBES: tuple[tuple[tuple[str, str], ...], ...] = (
  (("user", "Hello"),),
  (("system", "Be brief."), ("user", "One\n\ntwo")),
  (("user", "A"), ("assistant", "B"), ("user", "C"), ("assistant", "D"), ("user", "E")),
  (("system", "S"), ("user", "A"), ("assistant", "B"), ("user", "C")),
  (("user", "  spaces  "),),
)


def check(messages: Messages) -> None:
  """Raises ValueError if these are no messages."""
  for message in messages:
    if not isinstance(message, Mapping) or not {"role", "content"} <= set(message):
      raise ValueError('a message is a dict {"role": "user", "content": "..."}')
  if not messages:
    raise ValueError("there are no messages")


def render(
  template: str, messages: Messages, settings: Mapping[str, Any], generate: bool = True
) -> str:
  """Renders a template as transformers does. Raises ValueError if the template fails. Needs
  Jinja2."""
  try:
    import jinja2
    import jinja2.ext
    import jinja2.sandbox
  except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
      f"a chat template needs Jinja2 ({error}): run `pip install jinja2`", name=error.name
    ) from error

  def fail(text: str) -> None:
    raise jinja2.TemplateError(text)

  def as_json(value: Any, ensure_ascii: bool = False, indent: Any = None, **more: Any) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **more)

  environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
    trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols]
  )
  environment.filters["tojson"] = as_json
  environment.globals["raise_exception"] = fail
  environment.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
  try:
    return environment.from_string(template).render(
      messages=list(messages),
      add_generation_prompt=generate,
      tools=None,
      documents=None,
      bos_token=settings.get("bos_token", ""),
      eos_token=settings.get("eos_token", ""),
    )
  except jinja2.TemplateError as error:
    raise ValueError(f"the chat template fails: {error}") from error


def roles(template: str, settings: Mapping[str, Any]) -> dict[str, Any] | None:
  """The prefixes and suffixes of a template; None if it has another form, which only Jinja renders.

  `first` comes before messages without a system message. `system` is None if there can be none.
  """

  def rendered(pairs: Sequence[tuple[str, str]], generate: bool = False) -> str:
    messages = [{"role": role, "content": content} for role, content in pairs]
    return render(template, messages, settings, generate)

  a, b, c = _MARKS
  try:
    alone = rendered([("user", a)])
    asked = rendered([("user", a)], True)
    chain = rendered([("user", a), ("assistant", b), ("user", c)])
    before, between, back = _around(chain, a), _between(chain, a, b), _between(chain, b, c)
    end = chain.split(c)[1]
    generation = asked.removeprefix(alone)
    if not asked.startswith(alone) or not between.endswith(generation) or not generation:
      return None
    length = 0
    while length < min(len(before), len(back)) and before[-1 - length] == back[-1 - length]:
      length += 1
    user = back[len(back) - length :]
    result: dict[str, Any] = {
      "first": before[: len(before) - length],
      "system": None,
      "user": [user, end],
      "assistant": [generation, back[: len(back) - length]],
      "trim": False,
    }
  except (ValueError, IndexError):
    return None
  try:
    text = rendered([("system", b), ("user", a)])
    inner = _between(text, b, a)
    if inner.endswith(user):
      result["system"] = [_around(text, b), inner.removesuffix(user)]
  except (ValueError, IndexError):
    pass
  for trim in (False, True):
    result["trim"] = trim
    if _holds(result, rendered):
      return result
  return None


def _around(text: str, mark: str) -> str:
  """What comes before a mark, which must be there once."""
  if text.count(mark) != 1:
    raise ValueError("the template repeats a message")
  return text.split(mark)[0]


def _between(text: str, first: str, second: str) -> str:
  _around(text, first)
  _around(text, second)
  return text.split(first)[1].split(second)[0]


def _holds(result: Mapping[str, Any], rendered: Any) -> bool:
  """Whether prefixes and suffixes give what the template does."""
  for pairs in _PROBES:
    if pairs[0][0] == "system" and result["system"] is None:
      continue
    try:
      if filled(result, pairs) != rendered(pairs, True):
        return False
    except ValueError:
      return False
  return True


def filled(result: Mapping[str, Any], pairs: Sequence[tuple[str, str]]) -> str:
  """Messages between their prefixes and suffixes, and the prefix of the answer."""
  text = "" if pairs[0][0] == "system" else result["first"]
  for role, content in pairs:
    prefix, suffix = result[role]
    text += prefix + (content.strip() if result["trim"] else content) + suffix
  return text + result["assistant"][0]
