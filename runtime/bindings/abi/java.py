"""The constants of the Java binding, from the description of the C interface."""

from typing import Any

HEAD = """package husk;

// The constants of the C interface, written by runtime/bindings/abi/describe.py from the headers.
final class Constants {
  private Constants() {}
"""


def text(abi: Any) -> str:
  lines = [
    f"  static final int {name} = {value};"
    for name, value in abi["constants"].items()
    if name.startswith("HUSK_")
  ]
  return "\n".join([HEAD, *lines, "}", ""])
