"""Programs for the tests of the runtime in Python, compiled from their text."""

import json
import os
import pathlib
import subprocess

import pytest
import quick_exports
from husk import tools
from programs import ARCH, COPY, CPU, text  # noqa: F401
from quick_exports import pytest_collection_finish, pytest_configure  # noqa: F401

# Copies through a buffer of the arena.
SCRATCH = COPY.replace(
  "copy (write y, read x)",
  """buffer t bytes mul(n, 16) align 64
    copy (write t, read x)
    copy (write y, read t)""",
)

# Each of the three values has a place in a nested argument; the results nest too.
TREE = {
  "args": ["x", {"deep": ["a", "b"]}],
  "kwargs": {"mask": "m"},
  "outputs": {"first": "y", "rest": [["z"], "n"]},
  "tuples": ["/rest"],
}
NESTED = (
  f"tree {json.dumps(json.dumps(TREE))}"
  + """
function forward {
  input x tensor f32 [2]
  input a tensor f32 [2]
  input b int
  input m tensor bool [2]
  output y tensor f32 rank 1
  output z tensor bool rank 1
  output n int
  variant cpu {
    buffer x of input bytes 8
    buffer a of input bytes 8
    buffer m of input bytes 2
    buffer y of output bytes 8
    buffer z of output bytes 2
    copy (write y, read a)
    copy (write z, read m)
    return (tensor y f32 [2] [1], tensor z bool [2] [1], int add(b, 1))
  }
}
"""
)

# A cache of four numbers: `put` stores its input and returns what was there before.
CACHE = """
constant start f32 [4] bytes "0000803f0000803f0000803f0000803f"
state cache f32 [4] constant start
function put {
  input x tensor f32 [4]
  output before tensor f32 rank 1
  variant cpu {
    buffer x of input bytes 16
    buffer before of output bytes 16
    copy (write before, read cache)
    copy (write cache, read x)
    return (tensor before f32 [4] [1])
  }
}
function get {
  output y tensor f32 rank 1
  variant cpu {
    buffer y of output bytes 16
    copy (write y, read cache)
    return (tensor y f32 [4] [1])
  }
}
"""

# Only the data decides how many rows the output has.
NONZERO = """
function forward {
  input x tensor f32 [1..1000]
  output y tensor i64 rank 2
  variant cpu {
    let n = size(x, 0)
    buffer x of input bytes mul(n, 4)
    extern "aten::nonzero:sizes" (read tensor x f32 [n] [1], result int)
    let u = result(0)
    buffer y of output bytes mul(u, 8)
    extern "aten::nonzero" (read tensor x f32 [n] [1], write tensor y i64 [u, 1] [1, 1])
    return (tensor y i64 [u, 1] [1, 1])
  }
}
"""

# Goes round for as long as the flag is set.
ENDLESS = """
function forward {
  input flag tensor bool [1]
  variant cpu {
    buffer flag of input bytes 1
    loop {
      read bool (read flag[0, 1])
      while result(0)
    }
    return ()
  }
}
"""

# An operator that only the test has.
CUSTOM = """
function forward {
  input x tensor f32 [1..100]
  input k int
  output y tensor f32 rank 1
  variant cpu {
    let n = size(x, 0)
    buffer x of input bytes mul(n, 4)
    buffer y of output bytes mul(n, 4)
    extern "my::scale" (read tensor x f32 [n] [1], k, 0.5, "text", [n, 7],
      write tensor y f32 [n] [1])
    return (tensor y f32 [n] [1])
  }
}
"""


# Numbers of each kind.
NUMBERS = """
function forward {
  input i int 0..10
  input f float
  input b bool
  input nothing none
  output i2 int
  output f2 float
  output none_out none
  variant cpu {
    return (int add(i, 1), float f, none)
  }
}
"""


# The number of elements of y.
FLOAT_SIZE = """
function forward {
  input t float
  output y tensor f32 rank 1
  variant cpu {
    let n = min(max(trunc(t), 0), 64)
    buffer y of output bytes mul(n, 4)
    fill f32 (write y, 1.0)
    return (tensor y f32 [n] [1])
  }
}
"""


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item, nextitem):
  return quick_exports.run_protocol(item, nextitem)


@pytest.fixture(scope="session")
def compiled(tmp_path_factory):
  """compiled(functions) is the path of the artifact of functions in text form, for a target."""
  folder = tmp_path_factory.mktemp("programs")
  known = {}

  def compile_text(functions, target=CPU):
    source_text = text(functions, target)
    if source_text not in known:
      source, artifact = (folder / f"{len(known)}{suffix}" for suffix in (".hir", ".husk"))
      source.write_text(source_text)
      command = [tools.find("huskc"), str(source), "-o", str(artifact)]
      subprocess.run(command, check=True, capture_output=True)
      known[source_text] = artifact
    return known[source_text]

  return compile_text


@pytest.fixture(scope="session")
def load(compiled):
  """load(text, ...) is the program of husk.load."""
  import husk

  return lambda text, *args, **kwargs: husk.load(compiled(text), *args, **kwargs)


@pytest.fixture
def environment():
  """The environment of a Python process that imports the package of this source tree."""
  package = pathlib.Path(__file__).resolve().parents[2] / "compiler" / "torch"
  return {**os.environ, "PYTHONPATH": str(package)}
