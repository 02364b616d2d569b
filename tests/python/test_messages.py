"""Messages of the runtime are in the words of Python: none names a function or a struct of C, and
each says what to do."""

import re

import conftest
import husk
import numpy as np
import pytest
import torch
from husk.serve import Model, RequestError, request, settings

X = np.ones((2, 4), np.float32)
# The number of rows is a number that the export fixed.
FIXED = conftest.NUMBERS.replace(
  "    return (int",
  '    check(feq(f, 0.5)) "the value of f must be 0.5, which the export fixed"\n    return (int',
)


def fails(load, text, call=lambda program: program, **options):
  return lambda: call(load(text, **options))


def lent(program):
  memory = torch.empty(1024, dtype=torch.uint8)
  offset = -memory.data_ptr() % 256
  program.session(arena=memory[offset : offset + 256])(torch.ones(1024, 4))


def without_an_arena_of_its_own(program):
  program.session().lend(torch.empty(256, dtype=torch.uint8))


def damaged(compiled):
  content = bytearray(compiled(conftest.COPY).read_bytes())
  content[64:80] = bytes(16)
  return content


def served(text, inputs, compiled, values=None, **parameters):
  """Answers one request to a model of husk.serve."""
  Model(compiled(text), settings.read(values or {})).run(request.read(inputs, parameters))


ROWS = {
  "no file": (lambda load, compiled: husk.load("/nowhere/x.husk"), "/nowhere/x.husk.*No such file"),
  "no artifact": (lambda load, compiled: husk.load(b"x" * 100), "not a Husk artifact"),
  "a damaged file": (lambda load, compiled: husk.load(damaged(compiled)), "."),
  "half a file": (
    lambda load, compiled: husk.load(compiled(conftest.COPY).read_bytes()[:200]),
    "bytes",
  ),
  "no device": (lambda load, compiled: load(conftest.COPY, "gpu"), 'give "cpu", "cuda"'),
  "other code": (
    lambda load, compiled: husk.load(compiled(conftest.COPY, 'cpu cuda "sm_90"')),
    "cuda sm_90",
  ),
  "an operator": (
    lambda load, compiled: load(conftest.CUSTOM),
    r"my::scale.*register a function for it in ops= of husk\.load",
  ),
  "metadata": (
    lambda load, compiled: load(conftest.COPY, max_metadata_bytes=1),
    r"husk\.load\(max_metadata_bytes=\.\.\.\) is 1",
  ),
  "steps": (
    lambda load, compiled: load(conftest.CACHE, max_steps=1),
    r"husk\.load\(max_steps=\.\.\.\) is 1",
  ),
  "states": (
    lambda load, compiled: load(conftest.CACHE, max_state_bytes=1),
    r"husk\.load\(max_state_bytes=\.\.\.\)",
  ),
  "work": (
    lambda load, compiled: load(conftest.CUSTOM, ops={"my::scale": print}, max_step_elements=1)(
      np.ones(50, np.float32), 1
    ),
    r"husk\.load\(max_step_elements=\.\.\.\)",
  ),
  "a dtype": (lambda load, compiled: load(conftest.COPY)(X.astype(int)), "must be f32: convert"),
  "a rank": (lambda load, compiled: load(conftest.COPY)(X[0]), "has 1 dims, must have 2"),
  "a size": (lambda load, compiled: load(conftest.COPY)(X[:, :3]), "is 3, must be 4"),
  "a range": (
    lambda load, compiled: load(conftest.COPY)(np.ones((2000, 4), np.float32)),
    "must be in 1..1024: export with a wider range",
  ),
  "a narrowed range": (
    lambda load, compiled: load(conftest.COPY).session(ranges={"x": {0: (1, 1)}})(X),
    "must be 1: the session's ranges narrowed it",
  ),
  "a number that is fixed": (
    lambda load, compiled: load(FIXED)(1, 0.7, True, None),
    "the value of f must be 0.5, which the export fixed: check failed",
  ),
  "a lent arena": (lambda load, compiled: lent(load(conftest.SCRATCH)), "call session.lend with"),
  "an arena": (
    lambda load, compiled: without_an_arena_of_its_own(load(conftest.SCRATCH)),
    "external_arena",
  ),
  "memory": (
    lambda load, compiled: load(conftest.SCRATCH).session(memory_limit=16)(X),
    "memory_limit",
  ),
  "a loop": (
    lambda load, compiled: load(conftest.ENDLESS).session(loop_limit=3)(np.array([True])),
    "loop_limit",
  ),
  "a mode": (
    lambda load, compiled: load(conftest.COPY).session(mode="fast"),
    "give one of 'auto', 'list', 'graph'",
  ),
  "an option of a session": (
    lambda load, compiled: load(conftest.COPY).session(speed=1),
    "no option 'speed'",
  ),
  "results": (
    lambda load, compiled: load(conftest.COPY).session(output_limit=4)(X),
    "limit",
  ),
  "a function": (lambda load, compiled: load(conftest.CACHE).decode, "it has 'put', 'get'"),
  "no file to serve": (lambda load, compiled: Model("/nowhere/x.husk"), "/nowhere/x.husk.*No such"),
  "a damaged file to serve": (lambda load, compiled: Model(__file__), "not a Husk artifact"),
  "a setting": (
    lambda load, compiled: settings.read({"sesions": 2}),
    "no setting 'sesions': the settings are device",
  ),
  "a value of a setting": (
    lambda load, compiled: settings.read({"sessions": 0}),
    "setting sessions is 0, must be at least 1",
  ),
  "a function to serve": (
    lambda load, compiled: served(conftest.COPY, {}, compiled, {"function": "no"}),
    "no function 'no', it has 'forward'",
  ),
  "batches of a model with states": (
    lambda load, compiled: served(conftest.CACHE, {}, compiled, {"max_batch_size": 2}),
    "has states, .* leave max_batch_size out",
  ),
  "a function of a request": (
    lambda load, compiled: served(conftest.COPY, {"x": X}, compiled, function="no"),
    "no function 'no': the functions are 'forward'",
  ),
  "a name in a request": (
    lambda load, compiled: served(conftest.COPY, {"y": X}, compiled),
    "no input 'y'.*'x'",
  ),
  "a request without an input": (
    lambda load, compiled: served(conftest.COPY, {}, compiled),
    "input 'x'.*missing|no input|'x'",
  ),
  "a dtype in a request": (
    lambda load, compiled: served(conftest.COPY, {"x": X.astype(int)}, compiled),
    "'x' has the (type|datatype) int64, must be FP32",
  ),
  "a size in a request": (
    lambda load, compiled: served(conftest.COPY, {"x": X[:, :3]}, compiled),
    "is 3, must be 4",
  ),
  "a sequence of a model without states": (
    lambda load, compiled: served(conftest.COPY, {"x": X}, compiled, sequence_id="1"),
    "no state: leave the parameter sequence_id out",
  ),
  "a range of a request": (
    lambda load, compiled: served(conftest.COPY, {"x": np.ones((2000, 4), np.float32)}, compiled),
    "must be in 1..1024",
  ),
}


@pytest.mark.parametrize("name", ROWS)
def test_words(load, compiled, name):
  plant, text = ROWS[name]
  with pytest.raises((husk.Error, RequestError, ValueError, TypeError, AttributeError)) as caught:
    plant(load, compiled)
  said = str(caught.value)
  assert re.search(text, said), said
  assert not re.search(r"\bhusk_\w+", said), said
  assert "\n" not in said and len(said) > 15, said
