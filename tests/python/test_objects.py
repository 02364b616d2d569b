"""Objects of the extension that are used in ways that the package itself never does."""

import copy

import conftest
import husk
import numpy as np
import pytest
from husk.runtime.native import native

X = np.ones((2, 4), np.float32)
CLASSES = ("Engine", "Program", "Session", "Function")
MEMBERS = {
  "Engine": ("device_name", "arch"),
  "Program": ("pytree", "called_function"),
  "Session": ("arena_bytes",),
  "Function": ("index",),
}
METHODS = {
  "Engine": (("add_op", ("name", print)),),
  "Program": (
    ("function_names", ()),
    ("function_target", (0,)),
    ("inputs", (0,)),
    ("outputs", (0,)),
    ("states", ()),
    ("constants", ()),
    ("find_constant", ("w",)),
    ("update_constants", ([(0, 0, b"")],)),
    ("metadata", ()),
    ("set_trees", (0, (), {}, 0)),
    ("__call__", (X,)),
  ),
  "Session": (
    ("set_range", (0, 0, 0, 1, 2)),
    ("wait", ()),
    ("set_arena", (None,)),
    ("set_output_limit", (1,)),
    ("state_get", (0, bytearray(4))),
    ("state_set", (0, bytes(4))),
    ("state_reset", (0,)),
    ("stats", (0,)),
    ("__call__", (X,)),
  ),
  "Function": (("__call__", (X,)),),
}
# nanobind refuses methods of such objects with a warning and a TypeError, the slots do it alone.
pytestmark = pytest.mark.filterwarnings("ignore:nanobind")
REFUSED = (TypeError, husk.InvalidArgumentError)


@pytest.mark.parametrize("name", CLASSES)
def test_every_member_of_an_object_from_new_alone(name):
  kind = getattr(native, name)
  known = {*MEMBERS[name], *(method for method, _ in METHODS[name])}
  own = {one for one in vars(kind) if not one.startswith("__")}
  assert own | {"__call__"} >= known - {"__call__"} and not own - known - {"state_copy"}
  for member in MEMBERS[name]:
    with pytest.raises(REFUSED):
      getattr(kind.__new__(kind), member)
  for method, arguments in METHODS[name]:
    with pytest.raises(REFUSED):
      getattr(kind.__new__(kind), method)(*arguments)


def test_objects_from_new_alone_as_arguments(load):
  program = load(conftest.CACHE)
  new = {name: getattr(native, name).__new__(getattr(native, name)) for name in CLASSES}
  for call in (
    lambda: native.Program(new["Engine"], b""),
    lambda: native.Program(None, b""),
    lambda: native.Session(new["Program"], {}),
    lambda: native.Session(None, {}),
    lambda: native.Function(new["Program"], 0),
    lambda: native.Function(new["Session"], 0),
    lambda: native.Function(None, 0),
    lambda: program.session().state_copy(0, new["Session"]),
  ):
    with pytest.raises(REFUSED):
      call()


class Forgetful(native.Program):
  def __init__(self):
    pass


def test_a_subclass_without_its_base(load):
  with pytest.raises(REFUSED):
    Forgetful()(X)


def test_copies_are_not_initialised(load):
  program = load(conftest.COPY)
  for one in (program, program.session(), program.forward):
    with pytest.raises((*REFUSED, RecursionError)):
      copy.copy(one)(X)


def test_init_is_called_once(load, compiled):
  program = load(conftest.COPY)
  session, function = program.session(), program.forward
  other = compiled(conftest.CACHE)
  for again in (
    lambda: native.Program.__init__(program, program.engine, str(other)),
    lambda: native.Session.__init__(session, program, {}),
    lambda: native.Function.__init__(function, program, 0),
    lambda: native.Engine.__init__(program.engine, "cpu", {}),
  ):
    with pytest.raises(REFUSED):
      again()
  for call in (program, session, function):
    assert np.array_equal(call(X)[0], X)


def test_init_within_init(compiled):
  """Code of Python that runs in `__init__` initialises the object first."""
  content = compiled(conftest.COPY).read_bytes()
  program = native.Program.__new__(native.Program)
  inner = []

  def accept(_):
    if not inner:
      inner.append(True)
      native.Program.__init__(program, engine, content)
    return True

  engine = native.Engine("cpu", {"accept": accept})
  with pytest.raises(husk.InvalidArgumentError, match="__init__ is called once"):
    native.Program.__init__(program, engine, content)
  assert program.function_names() == ["forward"]


def test_numbers_of_functions(load):
  program = load(conftest.COPY)
  with pytest.raises(husk.InvalidArgumentError, match="no function 99: there are 1"):
    native.Function(program, 99)
  with pytest.raises(husk.InvalidArgumentError, match="no function 7"):
    program.called_function = 7
  with pytest.raises(husk.InvalidArgumentError, match="no function 3"):
    program.set_trees(3, (), {}, 0)


@pytest.mark.parametrize(
  ("positional", "keywords", "results"),
  [
    (((0, 9),), {}, (0, 1)),
    ((), {}, (0, 1)),
    ((0, 0), {}, (0, 1)),
    ((0,), {"x": 0}, (0, 1)),
    ((-1,), {}, (0, 1)),
    ((2**80,), {}, (0, 1)),
    ((0,), {}, 0),
    ((0,), {}, (0, 2)),
    ((0.5,), {}, (0, 1)),
    (({1: 0},), {}, (0, 1)),
    ((object(),), {}, (0, 1)),
  ],
)
def test_wrong_trees(load, positional, keywords, results):
  program = load(conftest.COPY)
  with pytest.raises((husk.InvalidFileError, TypeError)):
    program.set_trees(0, positional, keywords, results)
  assert np.array_equal(program(X)[0], X)


def test_trees_may_be_set_during_a_call(load):
  program = load(conftest.COPY)

  class Sets:
    def __dlpack__(self, **keywords):
      program.set_trees(0, ((0,),), {}, [0, 1])
      return X.__dlpack__(**keywords)

  assert type(program(Sets())) is tuple  # the trees with which the call began
  assert type(program([X])) is list
