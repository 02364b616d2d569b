"""What steps may have written before a launch (hir/statements.py)."""

from husk import hir

a, b, c = (hir.Buffer(name, "state") for name in "abc")


def launch(kernel, *accesses):
  return hir.Launch(kernel, (), [hir.View(access, buffer) for access, buffer in accesses])


def written(statements):
  """The names of the buffers that are written before each launch."""
  return {
    found.kernel: {buffer.name for buffer in before} for found, before in hir.launches(statements)
  }


def test_a_launch_follows_what_stands_before_it():
  statements = [
    launch("first", ("read", a), ("both", b)),
    hir.Copy(hir.View("write", c), hir.View("read", a)),
    launch("second", ("write", a)),
  ]
  assert written(statements) == {"first": set(), "second": {"b", "c"}}


def test_a_buffer_that_stands_for_another_one():
  other = hir.Buffer("other", "arena", stands_for=a)
  statements = [launch("first", ("write", other)), launch("second", ("read", a))]
  assert written(statements) == {"first": set(), "second": {"a"}}


def test_a_loop_comes_back():
  loop = hir.Loop(hir.Literal(1), [launch("test", ("read", a))], [launch("body", ("write", b))])
  statements = [loop, launch("behind", ("write", c))]
  assert written(statements) == {"test": {"b"}, "body": {"b"}, "behind": {"b"}}


def test_branches():
  branches = hir.When(hir.Literal(1), [launch("yes", ("write", a))], [launch("no", ("read", a))])
  assert written([branches, launch("behind")]) == {"yes": set(), "no": {"a"}, "behind": {"a"}}
