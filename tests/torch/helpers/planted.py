"""Failures that are planted, and what a user reads.

A test file has a `Table` of functions that fail. Each message must name the thing (the option, the
file, or the operator and the line of the model) and what to do, in a few lines without a file that
is gone when the message is read, or a page of what compilers print."""

import contextlib
import re

import pytest
from husk.errors import message


class Planted:
  """What the failures of a table use: pytest's monkeypatch, a folder, and contexts that end with
  the failure."""

  def __init__(self, monkeypatch, folder, contexts):
    self.monkeypatch, self.folder, self.contexts = monkeypatch, folder, contexts

  def replace(self, owner, name, value):
    self.monkeypatch.setattr(owner, name, value)

  def raising(self, owner, name, error):
    def fail(*args, **kwargs):
      raise error

    self.replace(owner, name, fail)

  def without_caches(self):
    """Lets torch.compile compile what an earlier test has compiled."""
    from torch._inductor import config

    self.contexts.enter_context(config.patch(force_disable_caches=True))


class Table:
  """Failures, as parameters of pytest: functions of a `Planted`, with regular expressions that the
  message must contain."""

  def __init__(self):
    self.rows = []

  def __call__(self, *words):
    """Adds a failure to the table."""

    def add(plant):
      self.rows.append(pytest.param(plant, words, id=plant.__name__.strip("_")))
      return plant

    return add


def check(plant, words, folder, monkeypatch, capfd):
  """Fails if a failure has a message that a stranger cannot use, or prints more than that."""
  with pytest.raises(Exception) as caught, contextlib.ExitStack() as contexts:
    plant(Planted(monkeypatch, folder, contexts))
  monkeypatch.undo()
  error = caught.value
  is_of_torch = type(error).__module__.startswith("torch") or (
    type(error) in (RuntimeError, AssertionError, TypeError)
    and not str(error).startswith(("export", "an export"))
  )
  text = message(error) if is_of_torch else str(error)
  for word in words:
    assert re.search(word, text), f"{word!r} is not in: {text}"
  read(text, str(folder))
  shown = "".join(capfd.readouterr())
  assert shown.count("\n") <= 1, shown


def read(text, temporary):
  """Fails if a message is none that a stranger can use. `temporary` is a folder of the test."""
  assert len(text.splitlines()) <= 12 and len(text) < 1500, text
  assert not re.search(r":\s*$", text), f"a reason is missing: {text}"
  assert " object at 0x" not in text and "Traceback (most recent" not in text, text
  lines = [line for line in text.splitlines() if "what compilers printed is in" not in line]
  shown = "\n".join(lines).replace(temporary, "")
  assert not re.search(
    r"/husk-[a-z0-9_]{3,}|kernels\.cpp|\btmp\w+\.(ptx|o|cpp)|/c\w+\.cpp", shown
  ), text
