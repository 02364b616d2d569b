"""Names of a `.hir`."""

import re

# The words that begin an argument or an expression are not names (compiler/ir/HIR.md).
_WORDS = frozenset(
  (
    "read write both atomic tensor tensors floats result dtype null asserts none true false inf nan"
  ).split()
)


class Names:
  """A scope that gives each thing a unique name which the grammar allows.

  A name is known in its scope and in the scopes below. A scope takes no name that a scope above or
  below it has taken; scopes side by side may take equal names."""

  def __init__(self, parent: "Names | None" = None) -> None:
    self._parent = parent
    self._taken: set[str] = set()
    self._below: set[str] = set()

  def child(self) -> "Names":
    return Names(self)

  def take(self, wanted: str) -> str:
    """The name `wanted`, or one that is derived from it if that is not allowed or is taken."""
    base = re.sub(r"[^A-Za-z0-9_.:]", "_", wanted)
    if not base or not (base[0].isalpha() or base[0] == "_"):
      base = "_" + base
    name, n = base, 1
    while name in _WORDS or self._has(name):
      n += 1
      name = f"{base}_{n}"
    self._taken.add(name)
    above = self._parent
    while above is not None:
      above._below.add(name)
      above = above._parent
    return name

  def _has(self, name: str) -> bool:
    above = self._parent
    while above is not None:
      if name in above._taken:
        return True
      above = above._parent
    return name in self._taken or name in self._below
