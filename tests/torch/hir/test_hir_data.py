"""Statements of a `.hir` as data: what is written and read again is the same, and a copy has other
names."""

import json

import pytest
from husk import hir
from husk.jit import saved

X, N = hir.Name("x"), hir.Name("n")
SIZE = hir.op("size", X, 0)


def statements():
  x = hir.Buffer("x", "input", hir.op("mul", SIZE, 4), 16)
  part = hir.Buffer("part", "arena")
  part.stands_for = y = hir.Buffer("y", "output", hir.Literal(64))
  tensor = hir.Tensor("read", x, "f32", [N], [hir.Literal(1)])
  return [
    hir.CheckEqual(SIZE, N, "the size"),
    hir.CheckStride("x", 0, hir.Literal(1)),
    hir.Let("m", hir.op("fmul", hir.Literal(0.5), hir.Literal(float("inf")))),
    hir.Declare(x),
    hir.Declare(y),
    hir.When(
      N,
      [hir.Launch("kernel", (N,), [hir.View("write", part), hir.NullPointer(), N], "model.py:1")],
      [hir.Loop(N, [hir.Fill("f32", hir.View("write", y), hir.Literal(True))], [])],
    ),
    hir.Extern(
      "aten::f",
      [
        tensor,
        hir.TensorList([tensor, hir.NoneArg()]),
        hir.Text("m"),
        hir.Ints((N,)),
        hir.NumberResult(True),
      ],
      "model.py:2",
    ),
    hir.Copy(hir.View("write", y, hir.Literal(0), N), hir.View("read", x, N, N)),
  ]


def lines(values):
  return [line for value in values for line in value.lines()]


def test_data_is_read_as_it_was_written():
  data = json.loads(json.dumps(hir.encoded(statements())))
  again = hir.decoded(data)
  assert lines(again) == lines(statements())
  assert again[3].buffer is again[6].arguments[0].buffer is again[7].source.buffer
  assert hir.encoded(again) == data


def test_a_copy_has_other_names_and_numbers():
  before = statements()
  sizes = {"size": hir.Literal(7)}
  after = hir.rewritten(
    before, {"x": "input", "n": "rows", "m": "half", "y": "out"}, lambda one: sizes.get(one.op)
  )
  text = "\n".join(lines(after))
  assert 'check_eq(7, rows) "the size"' in text and "check_stride(input, 0, 1)" in text
  assert "let half = " in text and "buffer input of input bytes mul(7, 4) align 16" in text
  assert "launch kernel grid (rows) (write out, null, rows)" in text
  assert '"m"' in text  # a string is no name
  assert lines(before) == lines(statements())


def test_names_in_statements():
  assert hir.names_of(statements()) == {"x", "n", "m", "y"}


class Code:
  """What notes that it is called."""

  def __init__(self):
    self.calls = 0

  def __call__(self):
    self.calls += 1
    return [1]

  size = __call__


@pytest.mark.parametrize(
  "source, text",
  [
    ("L['x']", "rows"),
    ("L['x'].size()[1]", "size(rows, 1)"),
    ("L['x'].stride()[0]", "stride(rows, 0)"),
    ("L['self'].n", "3"),
    ("L['list'][-1]", "5"),
    ("L['flag']", ""),
    ("L['self'].missing", ""),
    ("L['list'][9]", ""),
    ("L['code']()", ""),
    ("L['code'].size()", ""),
    ("L['code'].size()[0]", ""),
    ("[one for one in L['list']][0]", ""),
    ("L['x'] if", ""),
    ("G['x']", ""),
  ],
)
def test_sources_of_torch_are_places_and_no_code(source, text):
  class Module:
    n = 3

  code = Code()
  places = {
    "L": {
      "x": saved.Leaf(0, "rows"),
      "self": Module(),
      "list": [4, 5],
      "flag": True,
      "code": code,
    },
    "G": {},
  }
  assert saved._value_text(source, places) == text
  assert code.calls == 0
