"""The table of what an exported program must do: rows, each a small model and its inputs, in the files of `rows/`.

All rows of a file become the functions of one artifact, so that its kernels are compiled at once. test_table.py runs them
from C and compares with eager PyTorch.
"""

import copy
import dataclasses
import functools
import importlib
import inspect
import pathlib

import torch
from torch.utils import _pytree as pytree

import husk
import runner
import tools
from module import Of

TARGET = "host:avx2"
FILES = sorted(path.stem for path in pathlib.Path(__file__).with_name("rows").glob("*.py"))


@dataclasses.dataclass
class Row:
  """`model` makes the module. `cases` are inputs (args, or args and kwargs as (args, kwargs)) that are run besides those of
  the export; `wrong` pairs inputs with the text of the error that they must give; each input is run `runs` times, in one
  session. `check` replaces the comparison of the outputs: check(got, expected). `least` is the oldest torch."""

  name: str
  model: object
  args: tuple
  kwargs: dict | None = None
  shapes: object = None
  cases: tuple = ()
  wrong: tuple = ()
  runs: int = 1
  check: object = None
  tolerance: dict = dataclasses.field(default_factory=dict)
  refused: str = ""
  least: tuple = (2, 11)

  def function(self):
    torch.manual_seed(0)
    return husk.Function(self.model(), self.args, self.kwargs, self.shapes)


def table():
  """A table that is empty yet, and `row`, which enters the function `f(self, ...)` or module class below it:
  @row(x, y, shapes=..., **buffers)."""
  rows = {}

  def row(*args, buffers=None, name=None, **options):
    def entered(made):
      key = name or made.__name__
      assert key not in rows, key
      model = made if inspect.isclass(made) else lambda: Of(made, **copy.deepcopy(buffers or {}))
      rows[key] = Row(key, model, args, **options)
      return made
    return entered

  return rows, row


@functools.cache
def rows_of(file):
  torch.manual_seed(0)
  found = importlib.import_module(f"rows.{file}").ROWS
  version = tuple(int(part) for part in torch.__version__.split(".")[:2])
  return {name: row for name, row in found.items() if version >= row.least}


def all_rows(refused=False):
  """(file, name) of every row, of those that are exported or of those that are refused."""
  return [(file, name) for file in FILES for name, row in rows_of(file).items() if bool(row.refused) == refused]


@functools.cache
def artifact(file):
  """The artifact of all rows of a file, and {} — or, if one of them does not compile, none and the errors by name."""
  folder = _folder(file)
  wanted = {name: row for name, row in rows_of(file).items() if not row.refused}
  try:
    return husk.export({name: row.function() for name, row in wanted.items()}, folder / "all.husk", keep=folder,
                       targets=(TARGET,)), {}
  except Exception:  # which one it is shows when each is exported by itself
    return None, {}


@functools.cache
def process(file, name):
  """The runner of the artifact that holds a row."""
  whole, _ = artifact(file)
  if whole is None:
    row, folder = rows_of(file)[name], _folder(file)
    whole = husk.export({name: row.function()}, folder / f"{name}.husk", keep=folder / name, targets=(TARGET,))
    return runner.Runner(whole)
  return _shared(file)


@functools.cache
def _shared(file):
  return runner.Runner(artifact(file)[0])


@functools.cache
def _folder(file):
  import tempfile
  tools.built("huskc")
  return pathlib.Path(tempfile.mkdtemp(prefix=f"husk-{file}-"))


def flat(args, kwargs=None):
  """What the function is given: the leaves of its arguments."""
  return pytree.tree_leaves((tuple(args), kwargs or {}))


def equal(got, expected, row):
  """Value, dtype, shape and stride; Python's numbers by type too."""
  assert len(got) == len(expected), (got, expected)
  for one, other in zip(got, expected):
    if not isinstance(other, torch.Tensor):
      assert type(one) is type(other) and (one == other or one != one and other != other), (one, other)
      continue
    assert one.dtype == other.dtype and one.shape == other.shape, (one, other)
    if other.numel():
      assert [s for s, n in zip(one.stride(), one.shape) if n > 1] == [
          s for s, n in zip(other.stride(), other.shape) if n > 1], (one.stride(), other.stride(), other.shape)
    if one.dtype.itemsize == 1 and one.dtype.is_floating_point:
      one, other = one.float(), other.float()
    torch.testing.assert_close(one, other, equal_nan=True, **(row.tolerance or {"rtol": 2e-5, "atol": 2e-5}
                                                              if other.dtype == torch.float32 else row.tolerance))


def run(file, name):
  """Runs a row from C and in eager mode, and compares."""
  row = rows_of(file)[name]
  process_ = process(file, name)
  session = process_.session()
  model = row.function().model
  for case in (_given(row.args, row.kwargs), *(_case(case) for case in row.cases)):
    for _ in range(row.runs):
      mine, theirs = copy.deepcopy(case), copy.deepcopy(case)
      given = flat(*mine)
      got = process_.run(given, function=name, session=session)
      with torch.no_grad():
        expected = pytree.tree_leaves(model(*theirs[0], **theirs[1]))
      if row.check:
        row.check(got, expected)
      else:
        equal(got, expected, row)
      equal(given, flat(*theirs), row)      # inputs that are written
  for case, text in row.wrong:
    try:
      process_.run(flat(*_case(case)), function=name, session=session)
    except runner.Failed as failed:
      assert text in str(failed), failed
      assert failed.status in (4, 9), failed
    else:
      raise AssertionError(f"{name}: nothing failed where {text!r} was expected")
  process_.release(session)


def _given(args, kwargs):
  return tuple(args), dict(kwargs or {})


def _case(case):
  return _given(*case) if len(case) == 2 and isinstance(case[0], tuple) and isinstance(case[1], dict) else _given(case, {})
