"""The table of exported programs: each row is a small model and its inputs, in the files of
`rows/`. The rows of a file become the functions of one artifact, so that their kernels are compiled
at once. test_table.py runs them from C and compares with eager PyTorch."""

import copy
import dataclasses
import functools
import importlib
import inspect
import pathlib

import artifact_runner
import built_tools
import husk
import torch
from function_module import FunctionModule
from torch.utils import _pytree as pytree

TARGET = "host:avx2"
FOLDER = pathlib.Path(__file__).resolve().parents[1] / "rows"
FILES = sorted(path.stem for path in FOLDER.glob("*.py"))


@dataclasses.dataclass
class Row:
  """`model` makes the module. `cases` are inputs (args, or args and kwargs as (args, kwargs)) for
  runs besides the inputs of the export. `wrong` pairs inputs with the text of the expected error.
  Each input is run `runs` times in one session. `check` replaces the comparison of the outputs:
  check(results, expected). `least` is the oldest version of torch."""

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


def row_table():
  """An empty table, and a decorator that adds the function `f(self, ...)` or the module class below
  it as a row: @row(x, y, shapes=..., buffers={...})."""
  rows = {}

  def row(*args, buffers=None, name=None, **options):
    def add(construct):
      key = name or construct.__name__
      assert key not in rows, key
      model = (
        construct
        if inspect.isclass(construct)
        else lambda: FunctionModule(construct, **copy.deepcopy(buffers or {}))
      )
      rows[key] = Row(key, model, args, **options)
      return construct

    return add

  return rows, row


@functools.cache
def rows_of(file):
  torch.manual_seed(0)
  rows = importlib.import_module(f"rows.{file}").ROWS
  version = tuple(int(part) for part in torch.__version__.split(".")[:2])
  return {name: row for name, row in rows.items() if version >= row.least}


def all_rows(refused=False):
  """The file and name of every row that is exported, or of every row that is refused."""
  return [
    (file, name)
    for file in FILES
    for name, row in rows_of(file).items()
    if bool(row.refused) == refused
  ]


@functools.cache
def artifact(file):
  """The artifact of all rows of a file, and {}. If a row does not compile, None and the errors by
  name."""
  folder = _folder(file)
  exported = {name: row for name, row in rows_of(file).items() if not row.refused}
  try:
    return husk.export(
      {name: row.function() for name, row in exported.items()},
      folder / "all.husk",
      keep=folder,
      targets=(TARGET,),
    ), {}
  except Exception:  # the row that fails is found when each is exported alone
    return None, {}


@functools.cache
def runner_of(file, name):
  """The runner of the artifact that contains a row."""
  whole, _ = artifact(file)
  if whole is None:
    row, folder = rows_of(file)[name], _folder(file)
    whole = husk.export(
      {name: row.function()}, folder / f"{name}.husk", keep=folder / name, targets=(TARGET,)
    )
    return artifact_runner.Runner(whole)
  return _shared(file)


@functools.cache
def _shared(file):
  return artifact_runner.Runner(artifact(file)[0])


@functools.cache
def _folder(file):
  import tempfile

  built_tools.built("huskc")
  return pathlib.Path(tempfile.mkdtemp(prefix=f"husk-{file}-"))


def flat(args, kwargs=None):
  """The leaves of the arguments, which the function receives."""
  return pytree.tree_leaves((tuple(args), kwargs or {}))


def equal(got, expected, row):
  """Checks value, dtype, shape and stride; of Python numbers the type too."""
  assert len(got) == len(expected), (got, expected)
  for one, other in zip(got, expected):
    if not isinstance(other, torch.Tensor):
      assert type(one) is type(other) and (one == other or one != one and other != other), (
        one,
        other,
      )
      continue
    assert one.dtype == other.dtype and one.shape == other.shape, (one, other)
    if other.numel():
      assert [s for s, n in zip(one.stride(), one.shape) if n > 1] == [
        s for s, n in zip(other.stride(), other.shape) if n > 1
      ], (one.stride(), other.stride(), other.shape)
    if one.dtype.itemsize == 1 and one.dtype.is_floating_point:
      one, other = one.float(), other.float()
    torch.testing.assert_close(
      one,
      other,
      equal_nan=True,
      **(
        row.tolerance or {"rtol": 2e-5, "atol": 2e-5}
        if other.dtype == torch.float32
        else row.tolerance
      ),
    )


def run(file, name):
  """Runs a row from C and in eager mode, and compares."""
  row = rows_of(file)[name]
  runner = runner_of(file, name)
  session = runner.session()
  model = row.function().model
  for case in (_given(row.args, row.kwargs), *(_case(case) for case in row.cases)):
    for _ in range(row.runs):
      mine, theirs = copy.deepcopy(case), copy.deepcopy(case)
      inputs = flat(*mine)
      got = runner.run(inputs, function=name, session=session)
      with torch.no_grad():
        expected = pytree.tree_leaves(model(*theirs[0], **theirs[1]))
      if row.check:
        row.check(got, expected)
      else:
        equal(got, expected, row)
      equal(inputs, flat(*theirs), row)  # inputs that are written
  for case, text in row.wrong:
    try:
      runner.run(flat(*_case(case)), function=name, session=session)
    except artifact_runner.Failed as failed:
      assert text in str(failed), failed
      assert failed.status in (4, 9), failed
    else:
      raise AssertionError(f"{name}: nothing failed where {text!r} was expected")
  runner.release(session)


def _given(args, kwargs):
  return tuple(args), dict(kwargs or {})


def _case(case):
  return (
    _given(*case)
    if len(case) == 2 and isinstance(case[0], tuple) and isinstance(case[1], dict)
    else _given(case, {})
  )
