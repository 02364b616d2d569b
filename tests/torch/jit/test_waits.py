"""Which collectives of a program are waited for by a later step, and what that step keeps."""

import pytest
from husk import hir
from husk.jit import waits


def tensor(access, name, rows=4):
  return hir.Tensor(access, BUFFERS[name], "f32", [hir.Literal(rows)], [hir.Literal(1)])


BUFFERS = {name: hir.Buffer(name, "arena", hir.Literal(16)) for name in "xyzv"}


def begin(name, *arguments):
  return hir.Extern(f"_c10d_functional::{name}", [*arguments, hir.Text("group")])


def wait(name, access="read"):
  return hir.Extern("_c10d_functional::wait_tensor", [tensor(access, name)])


def described(statement):
  """The arguments of a call but the name of the group: "read x", or a number."""
  found = []
  for one in statement.arguments:
    if isinstance(one, hir.Tensor):
      found.append(f"{one.access} {one.buffer.name}")
    elif isinstance(one, hir.Literal):
      found.append(one.value)
  return found


def test_a_wait_keeps_the_tensors_of_its_collective():
  gather, reduce = begin("gather", tensor("read", "x")), begin("reduce_", tensor("both", "y"))
  gather.arguments.append(tensor("write", "z"))
  first, second = wait("z"), wait("y")
  waits.pair([gather, reduce, second, first])
  assert described(gather) == ["read x", "write z", 1]
  assert described(reduce) == ["both y", 1]
  assert described(first) == ["read z", "read x", "both z"]
  assert described(second) == ["read y", "both y"]


def test_a_collective_without_a_wait_of_its_block_waits_at_once():
  reduce = begin("reduce_", tensor("both", "y"))
  inside = begin("reduce_", tensor("both", "x"))
  block = hir.When(hir.Literal(1), [inside], [])
  last = wait("x")
  waits.pair([wait("y"), reduce, block, last])
  assert described(reduce) == ["both y", 0]
  assert described(inside) == ["both x", 0]
  assert described(last) == ["read x"]


def test_all_results_must_be_waited_for():
  def several(*names):
    return begin("reduce_coalesced_", hir.TensorList([tensor("both", one) for one in names]))

  some, all_of_them = several("x", "y"), several("z", "v")
  first, second = wait("z"), wait("v")
  waits.pair([some, all_of_them, wait("x"), first, second])
  assert described(some) == [0]
  assert described(all_of_them) == [1]
  assert described(first) == ["read z", "both z", "both v"]
  assert described(second) == ["read v", "both z", "both v"]


class Memory:
  def __init__(self, place):
    self.place = place

  def data_ptr(self):
    return self.place


class Result:
  def __init__(self, place, log):
    self.target, self.log = Memory(place), log

  def wait(self):
    self.log.append(self.target.place)


def test_a_wait_is_for_one_collective_or_for_all():
  log = []
  begun = waits.Begun()
  for place in (1, 2, 3, 2):
    begun.add(Result(place, log))
  begun.wait(Memory(2))
  assert log == [2, 2]
  begun.add(Result(4, log))
  begun.wait(Memory(7))  # a part of one of them
  assert sorted(log) == [1, 2, 2, 3, 4]
  assert begun.results == {}


@pytest.mark.parametrize("fails", [False, True])
def test_the_end_of_a_run_waits(fails):
  log = []
  begun = waits.Begun()

  def program(number):
    begun.add(Result(number, log))
    if fails:
      raise ValueError("the run")
    return number + 1

  run = begun.guard(program)
  if fails:
    with pytest.raises(ValueError, match="the run"):
      run(5)
  else:
    assert run(5) == 6
  assert log == [5]
