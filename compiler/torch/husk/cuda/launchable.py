"""What a compiled Triton kernel says of its launches: the types and accesses of its parameters, and
its scratch memory."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from .. import dtypes
from ..errors import Unsupported
from .memory_effects import accesses

# Types of `.hir` by Triton's name.
_TYPES = {triton: name for name, triton in dtypes.TRITON.items()} | {"u1": "bool"}
_BYTES = dtypes.BYTES | {"ptr": 8}

_LARGEST_ALIGNMENT = 256  # bytes; the alignment of memory that a port allocates


def refuse(name: str, metadata: Any) -> None:
  """Refuses a cubin that needs more of a launch than a `.hir` can express."""
  if getattr(metadata, "tensordesc_meta", None):
    raise Unsupported(
      f"kernel {name}: takes a host tensor descriptor, which a launch cannot give yet; "
      "turn triton.enable_host_side_tma off"
    )
  if getattr(metadata, "instrumentation_mode", ""):
    raise Unsupported(
      f"kernel {name}: compiled with instrumentation {metadata.instrumentation_mode!r}; unset it"
    )
  if getattr(metadata, "tmem_size", 0) and not hasattr(metadata, "num_warps"):
    raise Unsupported(f"kernel {name}: its metadata does not say the number of warps")


def scratch_of(name: str, metadata: Any) -> list[tuple[int, int]]:
  """The (bytes, alignment) of both kinds of scratch memory that each block needs, for example to
  write tensor descriptors."""
  scratch = []
  for kind in ("global", "profile"):
    size: int = getattr(metadata, f"{kind}_scratch_size", 0) or 0
    alignment: int = getattr(metadata, f"{kind}_scratch_align", 0) or 0
    if size and alignment > _LARGEST_ALIGNMENT:
      raise Unsupported(
        f"kernel {name}: wants scratch at multiples of {alignment}, {_LARGEST_ALIGNMENT} are the "
        "most"
      )
    scratch.append((size, max(alignment, 1)))
  return scratch


def type_of(name: str, argument: str, text: str) -> str:
  """The type of a parameter in a `.hir`, of its type in Triton's signature."""
  if text.startswith("*"):
    return "ptr"
  if text not in _TYPES:
    raise Unsupported(
      f"kernel {name}: parameter {argument} has type {text!r}, which a launch cannot give"
    )
  return _TYPES[text]


def check_parameters(name: str, symbol: str, ptx: str, types_: Sequence[str]) -> None:
  """Compares the parameters that follow from the signature with those of the PTX."""
  head = re.search(r"\.entry\s+" + re.escape(symbol) + r"\s*\((.*?)\)", ptx, re.S)
  parameter = r"\.param\s+(?:\.align\s+\d+\s+)?\.[bsuf](\d+)"
  bits = re.findall(parameter, head.group(1)) if head else []
  sizes = [int(count) // 8 for count in bits]
  if sizes != [_BYTES[kind] for kind in types_]:
    raise Unsupported(
      f"kernel {name}: parameters ({', '.join(types_)}) were expected, the PTX has sizes {sizes}"
    )


def access(
  name: str, ttir: str, symbol: str, parameters: Sequence[tuple[str, str]]
) -> dict[str, str]:
  """What the kernel does with the memory of each pointer."""
  access = accesses(ttir, symbol, [parameter for parameter, kind in parameters if kind == "ptr"])
  if access is None:
    raise Unsupported(
      f"kernel {name}: its intermediate form does not have the pointers of its signature"
    )
  return access
