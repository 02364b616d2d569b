"""The functions of SLEEF that Inductor's vector code calls, implemented by glibc.

The functions are those that compiled kernels leave undefined: `Sleef_expf16_u10` is expf of 16
floats. libmvec for x86 has most of them at the same widths (glibc 2.35 and later, with errors of at
most 4 ulp). The others are computed by libm, one lane at a time, but for lgamma and fmod of
float32, and for nextafter and copysign."""

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


# The logarithm of the gamma function of float32, computed in float64: Stirling's series (Abramowitz
# and Stegun, "Handbook of Mathematical Functions", 6.1.40) from 8 on, the recurrence 6.1.15 below
# it, and the reflection 6.1.17 below 0. Both take factors into one logarithm. In float64 the
# difference of large terms is as precise as a float where the result is near 0. {D} is a
# vector of `count` doubles, {F} one of twice as many floats.
_LGAMMA = """{vector_log} {vector_sin}
static inline {D} {name}_half({D} x) {{
  const {D} shift = {D}{{}} + 0x1.8p52, one = {D}{{}} + 1.0;
  const {D} z = x < 0 ? 1 - x : x;
  const {D} far = z < 8 ? z + 8 : z;
  const {D} factors = z * (z + 1) * ((z + 2) * (z + 3)) * ((z + 4) * (z + 5) * ((z + 6) * (z + 7)));
  const {D} inverse = 1 / far, u = inverse * inverse;
  const {D} rest = ((((((1.0 / 156 * u - 691.0 / 360360) * u + 1.0 / 1188) * u - 1.0 / 1680) * u +
                      1.0 / 1260) * u - 1.0 / 360) * u + 1.0 / 12) * inverse;
  const {D} stirling = (far - 0.5) * {log}(far) - far + 0.91893853320467274178 + rest;
  // The distance to the nearest integer. Floats from 2^23 on are integers.
  const {D} distance = x > -0x1p23 ? x - ((x + shift) - shift) : {D}{{}};
  const {D} sine = {sin}(distance * 3.14159265358979323846);
  const {D} product = z < 8 ? factors : one;
  const {D} factor = x < 0 ? product * 3.14159265358979323846 / (sine < 0 ? -sine : sine) : product;
  const {D} logarithm = {log}(factor);
  const {D} apart = x < 0 ? logarithm - stirling : stirling - logarithm;
  const {D} result = (x - 1) * (x - 2) == 0 ? {D}{{}} : apart;
  // Otherwise the difference of two infinite terms.
  return x - x == 0 ? result : x * x;
}}
{head} {{
  {F} r;
  {D} low, high;
  for (int i = 0; i < {count}; ++i) low[i] = a[i], high[i] = a[i + {count}];
  low = {name}_half(low);
  high = {name}_half(high);
  for (int i = 0; i < {count}; ++i) r[i] = (float)low[i], r[i + {count}] = (float)high[i];
  return r;
}}"""


# The remainder of float32, computed in float64. A quotient below 2^29 times the divisor is a number
# of float64, and so is the difference, so that no step but the quotient is rounded: it may be 1 too
# large. Other lanes, and those that are no numbers, are libm's.
_FMOD = """float fmodf(float, float);
static inline {D} {name}_half({D} x, {D} y, bool& complete) {{
  const {D} shift = {D}{{}} + 0x1p52;
  x = x < 0 ? -x : x;
  y = y < 0 ? -y : y;
  const {D} quotient = x / y;
  const {D} near = (quotient + shift) - shift;
  const {D} r = x - (near > quotient ? near - 1 : near) * y;
  for (int i = 0; i < {count}; ++i) complete = complete && quotient[i] < 0x1p29;
  return r < 0 ? r + y : r;
}}
{head} {{
  {F} r;
  {D} x[2], y[2];
  bool complete = true;
  for (int i = 0; i < {count}; ++i) {{
    x[0][i] = a[i], x[1][i] = a[i + {count}];
    y[0][i] = b[i], y[1][i] = b[i + {count}];
  }}
  const {D} low = {name}_half(x[0], y[0], complete), high = {name}_half(x[1], y[1], complete);
  if (complete) {{
    for (int i = 0; i < {count}; ++i) {{
      r[i] = __builtin_copysignf((float)low[i], a[i]);
      r[i + {count}] = __builtin_copysignf((float)high[i], a[i + {count}]);
    }}
  }} else {{
    for (int i = 0; i < 2 * {count}; ++i) r[i] = fmodf(a[i], b[i]);
  }}
  return r;
}}"""


# The next number towards another one, as an integer of the same bits: those of a number above 0
# grow with it, and those of one below 0 shrink.
_NEXTAFTER = """{head} {{
  const {I} sign = ({I})b & {least}, step = ((a < b) ^ (a > 0)) | 1;
  const {I} next = a == 0 ? sign | 1 : ({I})a + step;
  const {F} result = a == b ? b : ({F})next;
  return (a == a) & (b == b) ? result : a + b;
}}"""

_COPYSIGN = """{head} {{
  const {I} sign = {least};
  return ({F})((({I})a & ~sign) | (({I})b & sign));
}}"""

_OF_BITS = {"nextafter": _NEXTAFTER, "copysign": _COPYSIGN}

# The integers as large as the elements: the vectors of them and the least number.
_INTEGERS = {"f": ("int", -(2**31)), "d": ("long long", -(2**63))}


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
  if function in _WIDE and element == "f":
    return _in_float64(_WIDE[function], symbol, head, lanes)
  kind = _SCALARS[element]
  if function in _OF_BITS:
    return _in_integers(_OF_BITS[function], symbol, head, element, lanes)
  declaration = f"{kind} {scalar}({', '.join([kind] * len(names))});"
  lanes_of = ", ".join(f"{name}[i]" for name in names)
  loop = f"for (int i = 0; i < {lanes}; ++i) r[i] = {scalar}({lanes_of});"
  return f"{declaration}\n{head} {{\n  {vector} r;\n  {loop}\n  return r;\n}}"


_WIDE = {"lgamma": _LGAMMA, "fmod": _FMOD}


def _in_integers(text: str, symbol: str, head: str, element: str, lanes: int) -> str:
  """The definition of a function of vectors that computes with their bits."""
  integer, least = _INTEGERS[element]
  bits = f"{symbol}_bits"
  size = lanes * (4 if element == "f" else 8)
  typedef = f"typedef {integer} {bits} __attribute__((__vector_size__({size})));"
  # -2^63 is no number of C, and the negative of one that is too large.
  all_least = f"(({bits}){{}} + ({least + 1}) - 1)"
  vector, _ = _VECTORS[element, lanes]
  return f"{typedef}\n{text.format(head=head, F=vector, I=bits, least=all_least)}"


def _in_float64(text: str, symbol: str, head: str, lanes: int) -> str:
  """The definition of a function of vectors of float32 that computes in float64."""
  wide, letter = _VECTORS["d", lanes // 2]
  names = {name: f"_ZGV{letter}N{lanes // 2}v_{name}" for name in ("log", "sin")}
  declarations = {f"vector_{name}": f"{wide} {target}({wide});" for name, target in names.items()}
  return text.format(
    D=wide,
    F=_VECTORS["f", lanes][0],
    name=symbol,
    head=head,
    count=lanes // 2,
    **names,
    **declarations,
  )
