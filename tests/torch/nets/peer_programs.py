"""Small programs that cover what the test suites of other compilers of PyTorch's graphs try,
exported and compared with eager mode at sizes that the export did not see.

  python tests/torch/nets/peer_programs.py [--static], with the options of program_table.py

No package has the tests of Torch-TensorRT's converters, lowering and models, of torch-mlir's
end-to-end suite and of IREE's importers. The rows of peer_rows.py have the operators, the forms of
arguments, the shapes and the dtypes that their tests are about, as programs of our own.

A row is an expression and the arguments that it is called with, which are x, y, z, u and v:

    x + 2 * y ; f[n,4] i[4]@0:9 =3

An argument is a tensor with a dtype (`DTYPES`) and a shape, and after an @ the range of its
values, or a number after a =. A size that is a letter of `SIZES` varies; with `--static` it has the
first of its values. `T[n,4]` stands for each dtype that the row has before a colon, as in
`f w i: T[n,4]`. The expression of a row of LAYERS makes a module."""

import itertools
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "helpers"), str(HERE.parents[2] / "compiler" / "torch")]

import program_table  # noqa: E402
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from peer_rows import LAYERS, ROWS  # noqa: E402
from program_table import Program, of  # noqa: E402
from torch import nn  # noqa: E402

DTYPES = {
  "f": torch.float32,
  "d": torch.float64,
  "h": torch.float16,
  "w": torch.bfloat16,
  "i": torch.int64,
  "s": torch.int32,
  "t": torch.int16,
  "c": torch.int8,
  "u": torch.uint8,
  "b": torch.bool,
  "z": torch.complex64,
  "Z": torch.complex128,
}
SIZES = {"n": (4, 2, 9), "m": (5, 7, 3), "k": (6, 8, 5), "p": (12, 9, 17), "q": (14, 16, 11)}
LEAST = {"p": 8, "q": 8}  # images that a window of any row fits in
NAMES = "xyzuv"

# By program, the words with which Husk refuses it.
REFUSED: dict[str, str] = {}


class Argument:
  """The dtype, the shape and the range of a tensor, or a number."""

  def __init__(self, text):
    self.number = None
    if text.startswith("="):
      self.number = float(text[1:]) if "." in text else int(text[1:])
      return
    form = re.fullmatch(r"(\w)\[([\w,]*)\](?:@(-?[\d.]+):(-?[\d.]+))?", text)
    self.dtype = DTYPES[form[1]]
    self.shape = [one if one in SIZES else int(one) for one in form[2].split(",") if one]
    self.bounds = tuple(float(one) for one in form.groups()[2:]) if form[3] else None

  def value(self, number):
    """The value at the sizes of a number of SIZES."""
    if self.number is not None:
      return self.number
    shape = [SIZES[one][number] if isinstance(one, str) else one for one in self.shape]
    if self.dtype == torch.bool:
      return torch.rand(shape) < 0.5
    if self.dtype.is_floating_point or self.dtype.is_complex:
      if not self.bounds:
        return torch.randn(shape, dtype=self.dtype)
      low, high = self.bounds
      return (torch.rand(shape) * (high - low) + low).to(self.dtype)
    low, high = map(int, self.bounds or (0 if self.dtype == torch.uint8 else -9, 10))
    return torch.randint(low, high, shape, dtype=self.dtype)

  def dims(self):
    if self.number is not None:
      return None
    return {place: one for place, one in enumerate(self.shape) if isinstance(one, str)}


def program_of(expression, texts, is_layer, static):
  """The Program of a row."""
  names = {"torch": torch, "F": F, "nn": nn, "aten": torch.ops.aten, "prims": torch.ops.prims}
  arguments = [Argument(text) for text in texts]
  if is_layer:
    function = eval(expression, names)
  else:
    function = eval(f"lambda {', '.join(NAMES[: len(arguments)])}: {expression}", names)
  values = [tuple(one.value(number) for one in arguments) for number in range(3)]
  varies = any(one.dims() for one in arguments)
  if static or not varies:
    again = tuple(one.value(0) for one in arguments)
    return Program(of(function, *values[0]).model, values[0], None, [again])
  return of(
    function, *values[0], dims=[one.dims() for one in arguments], others=values[1:], least=LEAST
  )


def table(static):
  """The functions that make the programs, by name."""
  found = {}
  for text, is_layer in itertools.chain(
    ((row, False) for row in ROWS), ((row, True) for row in LAYERS)
  ):
    expression, signature = (part.strip() for part in text.rsplit(" ; ", 1))
    types, colon, rest = signature.partition(": ")
    for dtype in types.split() if colon else [""]:
      texts = [one.replace("T[", f"{dtype}[") for one in (rest if colon else signature).split()]
      name = re.sub(r"[^\w.]+", "-", f"{expression} {' '.join(texts)}".replace("-", "neg")).strip(
        "-"
      )
      assert name not in found, name
      found[name] = lambda row=(expression, texts, is_layer): program_of(*row, static)
  return found


if __name__ == "__main__":
  static = "--static" in sys.argv
  sys.argv = [one for one in sys.argv if one != "--static"]
  program_table.main(__doc__, table(static), REFUSED)
