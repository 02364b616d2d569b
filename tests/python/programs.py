"""What the tests need without pytest: they share it with installed.py."""

import platform

ARCH = {"x86_64": "x86-64"}.get(platform.machine(), platform.machine())
CPU = f'cpu host "{ARCH}"'

# Copies x to y. The number of rows decides the size of y and the value of k.
COPY = """
function forward {
  input x tensor f32 [1..1024, 4]
  output y tensor f32 rank 2
  output k int
  variant cpu {
    let n = size(x, 0)
    buffer x of input bytes mul(n, 16)
    buffer y of output bytes mul(n, 16)
    copy (write y, read x)
    return (tensor y f32 [n, 4] [4, 1], int mul(n, 2))
  }
}
"""


def text(functions, target=CPU):
  """The text of a program for a target."""
  return f"hir 1\ntarget {target}\n{functions}"
