"""Files with names that are no text, and with trees that are wrong: each function of the package
gives a result or raises husk.Error, and what it prints is printable."""

import hashlib
import json
import subprocess
import sys

import conftest
import husk
import numpy as np
import pytest
from husk import check, tools
from husk.runtime.native import native
from husk.runtime.printable import printable

# Every name is eight letters that occur nowhere else.
NAMES = ("KKKKKKKK", "VVVVVVVV", "FFFFFFFF", "XXXXXXXX", "YYYYYYYY", "SSSSSSSS", "CCCCCCCC")
TEXT = """
user "KKKKKKKK" "VVVVVVVV"
constant CCCCCCCC f32 [4] bytes "0000803f0000803f0000803f0000803f"
state SSSSSSSS f32 [4] constant CCCCCCCC
function FFFFFFFF {
  input XXXXXXXX tensor f32 [1..4]
  output YYYYYYYY tensor f32 rank 1
  variant cpu {
    let n = size(XXXXXXXX, 0)
    check_stride(XXXXXXXX, 0, 1)
    buffer XXXXXXXX of input bytes mul(n, 4)
    buffer YYYYYYYY of output bytes mul(n, 4)
    fill u8 (write SSSSSSSS, 1) at "OOOOOOOO"
    copy (write YYYYYYYY, read XXXXXXXX)
    return (tensor YYYYYYYY f32 [n] [1])
  }
}
"""

BENT = {
  "no UTF-8": b"\xff\xfe\xc3(\x80abc",
  "a cut letter": b"abcdefg\xc3",
  "a surrogate": b"ab\xed\xa0\x80cde",
  "escapes": b"\x1b[31m\x07\r\n",
  "C1 controls": b"\xc2\x9b31m\x9bxx",
  "direction": b"\xe2\x80\xaeabcde",
  "deleted": b"\x7f\x7f\x08\x08\x08\x08\x08\x08",
  "quotes": b"\"'\\{}%s\n",
}


def bend(content, name, replacement):
  """The artifact with other bytes in place of a name, and the right hash."""
  metadata = int.from_bytes(content[12:16], "little")
  assert len(name) == len(replacement) and name in content[64 : 64 + metadata]
  bent = content[64 : 64 + metadata].replace(name, replacement)
  digest = hashlib.blake2b(bent, digest_size=32).digest()
  return content[:32] + digest + bent + content[64 + metadata :]


def check_text(text):
  for line in text.split("\n"):
    assert line == printable(line), line.encode("unicode_escape")


def use(program):
  """Calls everything. What is raised must be husk.Error, or be about the arguments of the test; the
  text of each exception is printable."""
  x = np.ones(2, np.float32)
  session = program.session()
  calls = [
    lambda: program(x),
    lambda: program(),
    lambda: program(x, x, x),
    lambda: program(other=x),
    lambda: program([x]),
    lambda: program(x, out=x),
    lambda: program(np.ones(9, np.float32)),
    lambda: program(np.ones(2)),
    lambda: session(x),
    lambda: session.stats(0),
    lambda: session.wait(),
    lambda: program.session(output_limit=1)(x),
    lambda: program.session(memory_limit=1)(x),
    lambda: program.missing,
    lambda: session.missing,
    lambda: session.state["missing"],
    lambda: program.session(ranges={"missing": {0: (1, 2)}}),
  ]
  for name in program.states():
    calls += [
      lambda name=name: session.state[name["name"]].numpy(),
      lambda name=name: session.state[name["name"]].copy_from(np.zeros(3)),
      lambda name=name: session.state_set(0, b"abc"),
      lambda name=name: session.state[name["name"]].reset(),
    ]
  for function in program.functions.values():
    calls += [
      lambda function=function: function(x),
      lambda function=function: getattr(session, function.name)(x),
      lambda function=function: program.session(
        ranges={one["name"]: {0: (100, 200)} for one in function.inputs}
      ),
    ]
    check_text(repr(function))
    check_text(function.target)
  for call in calls:
    try:
      call()
    except (husk.Error, TypeError, ValueError, AttributeError, KeyError) as error:
      assert not isinstance(error, UnicodeError), repr(error)
      check_text(str(error))
  check_text(repr(program))
  check_text(repr(session))
  for name in session.state:
    check_text(repr(session.state[name]))
  assert isinstance(program.metadata(), dict) and isinstance(program.pytree, str)
  assert len(program.constants()) >= 0


def use_file(path):
  """The same for the functions that take a file."""
  for call in (husk.inspect, lambda one: check.check(one, check.device("host:avx512"))):
    try:
      found = call(path)
    except husk.Error as error:
      check_text(str(error))
      continue
    check_text("\n".join(map(str, found)) if isinstance(found, list) else repr(found))


@pytest.mark.parametrize("name", BENT)
def test_names_that_are_no_text(compiled, tmp_path, name):
  content = compiled(TEXT).read_bytes()
  for original in (*NAMES, "OOOOOOOO"):
    bent = bend(content, original.encode(), BENT[name])
    try:
      program = husk.load(bent)
    except husk.Error as error:
      check_text(str(error))
    else:
      use(program)
    if original not in ("FFFFFFFF", "XXXXXXXX"):
      continue  # the tools below need a process for each
    path = tmp_path / "bent.husk"
    path.write_bytes(bent)
    use_file(path)


@pytest.mark.parametrize("name", ["escapes", "no UTF-8", "C1 controls"])
def test_the_tools_print_escapes(compiled, tmp_path, name):
  content = compiled(TEXT).read_bytes()
  for original in (*NAMES, "OOOOOOOO"):
    content = bend(content, original.encode(), BENT[name][:-1] + original[:1].encode())
  path = tmp_path / "bent.husk"
  path.write_bytes(content)
  commands = [
    ["husk-dump", "--output=all"],
    ["husk-dump", "--output=json"],
    ["husk-dump", "--output=svg"],
    ["husk-dump", "--at=missing=3"],
    ["husk-run", "--input=2xf32=iota", "--trace"],
    ["husk-run"],
    ["husk-run", "--input=9xf32=iota"],
    ["husk-run", "--function=missing"],
  ]
  for tool, *options in commands:
    if tools.find(tool) is None:
      continue
    done = subprocess.run([tools.find(tool), str(path), *options], capture_output=True)
    assert done.returncode in range(5), (tool, options, done.stderr)
    check_text((done.stdout + done.stderr).decode())  # raises if it is no UTF-8


def nested(depth, leaf):
  return "[" * depth + leaf + "]" * depth


TREES = {
  "no JSON": "{",
  "empty": "",
  "null": "null",
  "a number": "3",
  "a long number": "9" * 5000,
  "not finite": "[NaN, Infinity, -1e999]",
  "a list": "[]",
  "a text": '"x"',
  "half of a pair": '"\\ud800"',
  "deep": nested(100_000, ""),
  "deep objects": '{"a":' * 50_000 + "1" + "}" * 50_000,
  "functions is a list": '{"functions": []}',
  "functions is null": '{"functions": null}',
  "a function is a list": '{"functions": {"forward": [1]}}',
  "a function is a text": '{"functions": {"forward": "x"}}',
  "another function": '{"functions": {"other": {}}}',
  "args is null": '{"args": null, "kwargs": {}, "outputs": "y"}',
  "args is a text": '{"args": "xm", "kwargs": {}, "outputs": "y"}',
  "args is an object": '{"args": {"x": "m"}, "kwargs": {}, "outputs": "y"}',
  "kwargs is a list": '{"args": ["x", "m"], "kwargs": [], "outputs": "y"}',
  "no outputs": '{"args": ["x", "m"], "kwargs": {}}',
  "outputs is null": '{"args": ["x", "m"], "kwargs": {}, "outputs": null}',
  "tuples is a number": '{"args": ["x", "m"], "kwargs": {}, "outputs": ["y"], "tuples": 3}',
  "tuples of lists": '{"args": ["x", "m"], "kwargs": {}, "outputs": ["y"], "tuples": [[]]}',
  "too few inputs": '{"args": ["x"], "kwargs": {}, "outputs": "y"}',
  "an input twice": '{"args": ["x", "x", "m"], "kwargs": {}, "outputs": "y"}',
  "an unknown input": '{"args": ["x", "m", "z"], "kwargs": {}, "outputs": "y"}',
  "too many outputs": '{"args": ["x", "m"], "kwargs": {}, "outputs": ["y", "y"]}',
  "deep arguments": f'{{"args": [{nested(400, chr(34) + "x" + chr(34))}, "m"], "kwargs": {{}}, '
  '"outputs": "y"}',
  "deeper arguments": f'{{"args": [{nested(900, chr(34) + "x" + chr(34))}, "m"], "kwargs": {{}}, '
  '"outputs": "y"}',
  "deep results": f'{{"args": ["x", "m"], "kwargs": {{}}, '
  f'"outputs": {nested(700, chr(34) + "y" + chr(34))}}}',
  "keys of halves": '{"args": ["x"], "kwargs": {"\\ud800": "m"}, "outputs": {"\\udfff": "y"}}',
  "keys with controls": '{"args": ["x"], "kwargs": {"\\u001b[31m\\u0000": "m"}, "outputs": "y"}',
  "keys of the call": '{"args": ["x"], "kwargs": {"out": "m"}, "outputs": "y"}',
  "a key twice": '{"args": ["x"], "kwargs": {"a": "m", "a": "x"}, "outputs": "y"}',
}
TWO = """
function forward {
  input x tensor f32 [1..4]
  input m tensor f32 [1..4]
  output y int
  variant cpu {
    return (int 1)
  }
}
"""


@pytest.mark.parametrize("name", TREES)
def test_trees_that_are_wrong(compiled, tmp_path, name):
  path = compiled(f"tree {json.dumps(TREES[name])}{TWO}")
  try:
    program = husk.load(path)
  except husk.Error as error:
    check_text(str(error))
    return
  use(program)
  x = np.ones(2, np.float32)
  if "keys" not in name and "a key" not in name:
    assert program(x, x) == 1
  elif name == "keys of the call":
    assert program(x, out=x) == 1
  elif name == "keys of halves":
    assert list(program(x, **{"\ud800": x})) == ["\udfff"]


def test_inspect_and_check_raise_husk_errors(compiled, tmp_path):
  content = compiled(conftest.COPY).read_bytes()
  for number, bent in enumerate(
    (b"", b"text", content[:100], content[:-1], content[:200] + b"\xff" + content[201:])
  ):
    path = tmp_path / f"{number}\x1b[31m.husk"
    path.write_bytes(bent)
    for call in (husk.inspect, husk.load, lambda one: check.check(one, check.device("host:avx2"))):
      with pytest.raises(husk.Error) as caught:
        call(path)
      check_text(str(caught.value))


def test_a_path_that_is_no_text(compiled, tmp_path):
  path = tmp_path / "\udcff.husk"
  path.write_bytes(compiled(conftest.COPY).read_bytes())
  assert husk.load(path).function_names() == ["forward"]
  with pytest.raises(husk.FileError):
    husk.load(tmp_path / "missing\udcff.husk")


@pytest.mark.parametrize("kind", ["functions", "tree", "states"])
def test_a_load_takes_time_in_proportion_to_the_file(compiled, monkeypatch, kind):
  """The calls of Python functions grow with the file, and none of the calls that read a whole table
  of it is repeated for each row."""
  whole = []
  for name in ("function_names", "states"):
    own = getattr(native.Program, name)
    monkeypatch.setattr(
      husk.Program, name, lambda self, own=own: whole.append(1) or own(self), raising=False
    )
  tree = native.Program.pytree
  pytree = property(lambda self: whole.append(1) or tree.__get__(self))
  monkeypatch.setattr(husk.Program, "pytree", pytree, raising=False)

  def calls(size):
    function = "function f{} {{\n output y{} int\n variant cpu {{\n return (int 1)\n }}\n}}\n"
    if kind == "states":
      text = "".join(f"state s{i} u8 [1] fill 0\n" for i in range(size)) + function.format(0, 0)
    else:
      trees = {f"f{i}": {"args": [], "kwargs": {}, "outputs": f"y{i}"} for i in range(size)}
      tree = {"functions": trees} if kind == "functions" else {"args": [[]] * 8 * size}
      text = f"tree {json.dumps(json.dumps(tree))}\n"
      text += "".join(function.format(i, i) for i in range(size))
    path = compiled(text)
    counted = [0]

    def count(*_):
      counted[0] += 1

    whole.clear()
    sys.setprofile(count)
    try:
      program = husk.load(path, threads=1)
      repr(program)
      session = program.session()
      states = session.state
      assert [states[name].nbytes for name in states] == [1] * len(states)
    finally:
      sys.setprofile(None)
    return counted[0], len(whole)

  (one, once), (two, _), (four, still) = calls(50), calls(100), calls(200)
  assert four - two < 2.2 * (two - one) + 100, (one, two, four)
  assert once == still < 10, (once, still)
