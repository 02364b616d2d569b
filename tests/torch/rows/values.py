"""Inputs and outputs, and how they nest."""

import collections

import torch
from row_table import row_table
from torch.export import Dim

ROWS, row = row_table()
A = Dim("a", min=2, max=32)
Pair = collections.namedtuple("Pair", "first second")


@row(
  torch.randn(3),
  4,
  2.5,
  True,
  None,
  wrong=[
    ((torch.randn(3), 5, 2.5, True, None), "n"),
    (
      (torch.randn(3), 4, 2.25, True, None),
      "the value of f must be 2.5, which the export fixed (export a tensor to vary it): "
      "check failed",
    ),
    ((torch.randn(3), 4, 2.5, False, None), "the value of b must be True, which the export fixed"),
  ],
)
def numbers_that_are_constants(self, x, n, f, b, nothing):
  return x * f + n if b else x


@row(
  torch.randn(4, 3),
  7,
  shapes=({0: A}, Dim.DYNAMIC),
  cases=[(torch.randn(5, 3), 0), (torch.randn(2, 3), 2**40)],
)
def ints_of_any_size(self, x, n):
  return x * n, x.shape[0] * 2 + n, n


@row(
  torch.randn(6),
  3,
  shapes=({}, Dim.DYNAMIC),
  cases=[(torch.randn(6), 2), (torch.randn(6), 6)],
  wrong=[((torch.randn(6), 7), "6")],
)
def int_that_is_a_size(self, x, n):
  torch._check(n >= 2)
  torch._check(n <= 6)
  return x[:n], torch.ones(n) * 2, torch.arange(n)


@row(torch.randn(3, 4), shapes=({0: A},), cases=[(torch.randn(9, 4),)])
def numbers_out(self, x):
  return x.shape[0], x.shape[0] * 0.5, x.shape[0] > 4, None, x.shape[0] // 2, 3, 2.5, True


@row(
  {"a": torch.randn(3), "b": (torch.randn(3), [torch.randn(3)])},
  kwargs={"scale": torch.tensor(2.0)},
)
def nested(self, parts, scale):
  b, (c,) = parts["b"]
  return {"sum": parts["a"] + b, "more": [c * scale, {"deep": (b, None)}]}, scale


@row(torch.randn(4, 3), kwargs={"scale": torch.randn(3), "shift": None})
def keywords(self, x, *, scale, shift=None):
  return x * scale if shift is None else x * scale + shift


@row()
def no_input(self):
  return torch.arange(6).reshape(2, 3) * 2, torch.full((2,), 7.5)


@row(buffers={"w": torch.randn(2, 3)})
def no_input_but_weights(self):
  return self.w.exp()


@row(torch.randn(3), torch.randn(2))
def empty_graph(self, x, y):
  return x


@row(torch.randn(3))
def no_output(self, x):
  return ()


@row(torch.randn(3), torch.randn(3), torch.randn(3))
def unused_inputs(self, x, unused, y):
  return x + y


@row(torch.randn(3), [torch.randn(2), torch.randn(2)], shapes=({}, [{}, {}]))
def lists(self, x, parts):
  return [parts[1], parts[0] + 1], x


@row(torch.randn(4, 5))
def named_tuples(self, x):
  """Named tuples of PyTorch: the largest elements with indices, sorted elements with indices."""
  return torch.max(x, 1), torch.aminmax(x, dim=0), Pair(x + 1, x)


@row(torch.randn(4, 5))
def fractions(self, x):
  return torch.frexp(x)


@row(*(torch.randn(2) for _ in range(200)))
def many_inputs(self, *tensors):
  return sum(tensors), tensors[17] * 2


@row(torch.randn(2))
def many_outputs(self, x):
  return [x + n for n in range(60)]


@row(torch.tensor(3.0), torch.tensor(4), torch.tensor(True))
def scalars_as_tensors(self, f, n, b):
  return f * n, torch.where(b, f, -f), n + 1, ~b


@row(
  torch.randn(4, 3),
  3,
  5,
  shapes=({0: A}, Dim.DYNAMIC, Dim.DYNAMIC),
  cases=[(torch.randn(4, 3), 7, 2)],
)
def arithmetic_of_ints(self, x, n, m):
  return n + m, n * m, n // m, n % m, n - m, x + n * m, n < m, n == m, x.shape[0] ** 2


@row(torch.randn(3), torch.randn(3), name="x")
def _(self, output, s0):
  """Names that could be confused with words of the text form."""
  return {"x": output + s0, "result": output * 2, "buf0": s0 * 2, "0": output - s0}


@row(torch.randn(2, 3), refused="output1 is a str")
def text_out(self, x):
  return x, "text"
