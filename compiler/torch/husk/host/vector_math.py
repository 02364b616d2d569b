"""The functions of SLEEF that Inductor's vector code calls, implemented by glibc.

The functions are those that compiled kernels leave undefined: `Sleef_expf16_u10` is expf of 16
floats. libmvec for x86 has most of them at the same widths (glibc 2.35 and later, with errors of at
most 4 ulp). The others are computed by libm, one lane at a time."""

from __future__ import annotations

import re
from collections.abc import Collection

from ..errors import Unsupported

_MVEC = {
  "acos",
  "acosh",
  "asin",
  "asinh",
  "atan",
  "atanh",
  "cbrt",
  "cos",
  "cosh",
  "erf",
  "erfc",
  "exp",
  "exp10",
  "exp2",
  "expm1",
  "log",
  "log10",
  "log1p",
  "log2",
  "sin",
  "sinh",
  "tan",
  "tanh",
  "atan2",
  "hypot",
  "pow",
}
_LANES = {"lgamma", "fmod", "nextafter", "copysign", "tgamma"}
_BINARY = {"atan2", "hypot", "pow", "fmod", "nextafter", "copysign"}

# (element, lanes): vector type, libmvec's letter for the ISA. The types are declared here, since
# <immintrin.h> takes a compiler longer than the kernels of a small model.
_VECTORS = {
  ("f", 16): ("__m512", "e"),
  ("d", 8): ("__m512d", "e"),
  ("f", 8): ("__m256", "d"),
  ("d", 4): ("__m256d", "d"),
}
_SCALARS = {"f": "float", "d": "double"}


def source(symbols: Collection[str]) -> str:
  """C++ that defines `symbols`; empty if there are none."""
  if not symbols:
    return ""
  parts = ['extern "C" {', *_types(), *map(_definition, sorted(symbols))]
  return "\n".join([*parts, "}", ""])


def _types() -> list[str]:
  """The declarations of the vector types, as in <immintrin.h>."""
  return [
    f"typedef {_SCALARS[element]} {vector} __attribute__((__vector_size__({size}), __may_alias__));"
    for (element, lanes), (vector, _) in _VECTORS.items()
    for size in [lanes * (4 if element == "f" else 8)]
  ]


def _definition(symbol: str) -> str:
  match = re.fullmatch(r"Sleef_([a-z0-9]+?)([fd])(\d+)(_u\d+)?", symbol)
  if not match:
    raise Unsupported(f"the host kernels call {symbol}, which is not known here")
  function, element, lanes = match.group(1), match.group(2), int(match.group(3))
  if (element, lanes) not in _VECTORS or function not in _MVEC | _LANES:
    raise Unsupported(f"the host kernels call {symbol}, which is not known here")
  vector, letter = _VECTORS[element, lanes]
  scalar = function + ("f" if element == "f" else "")
  names = ["a", "b"][: 2 if function in _BINARY else 1]
  parameters = ", ".join(f"{vector} {name}" for name in names)
  head = f'__attribute__((visibility("hidden"))) {vector} {symbol}({parameters})'
  if function in _MVEC:
    target = f"_ZGV{letter}N{lanes}{'v' * len(names)}_{scalar}"
    declaration = f"{vector} {target}({', '.join([vector] * len(names))});"
    return f"{declaration}\n{head} {{ return {target}({', '.join(names)}); }}"
  kind = _SCALARS[element]
  declaration = f"{kind} {scalar}({', '.join([kind] * len(names))});"
  lanes_of = ", ".join(f"{name}[i]" for name in names)
  loop = f"for (int i = 0; i < {lanes}; ++i) r[i] = {scalar}({lanes_of});"
  return f"{declaration}\n{head} {{\n  {vector} r;\n  {loop}\n  return r;\n}}"
