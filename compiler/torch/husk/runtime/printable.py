"""Texts of files as one can print them."""


def printable(text: str) -> str:
  """The text with escapes for controls, for marks that turn the direction of writing round, and for
  everything else that is no printable letter. Names in a file may hold anything."""
  if text.isprintable():
    return text
  return "".join(
    one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in text
  )
