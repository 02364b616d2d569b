"""`husk.inspect`, and the tools as commands of `python -m husk`."""

import subprocess
import sys

import conftest
import husk
import pytest


def test_inspect(compiled):
  found = husk.inspect(compiled(conftest.CACHE))
  assert list(found.functions) == ["put", "get"] and found.targets == (f"host {conftest.ARCH}",)
  put = found.functions["put"]
  assert str(put.inputs[0]) == "x: f32[4]" and str(put.outputs[0]) == "before: f32[?]"
  assert put.variants[0].steps == 2 and put.variants[0].peak_bytes == 0
  assert put.variants[0].ways == {"copies": 2}
  assert found.constants[0].name == "start" and found.constant_bytes == 16
  assert found.states[0].shape == (4,) and found.operators == ()
  assert "put(x: f32[4]) -> (before: f32[?])" in repr(found) and "state cache: f32[4]" in repr(
    found
  )


def test_inspect_names_operators_and_memory(compiled):
  custom = husk.inspect(compiled(conftest.CUSTOM))
  assert custom.operators == ("my::scale",)
  assert f"host {conftest.ARCH}: 1 steps (1 my::scale), no memory" in repr(custom)
  scratch = husk.inspect(compiled(conftest.SCRATCH))
  assert scratch.functions["forward"].variants[0].peak_bytes == 16384
  assert "memory at most 16.0 KiB" in repr(scratch)


def test_inspect_of_no_artifact(tmp_path):
  (tmp_path / "text").write_text("text")
  with pytest.raises(ValueError, match="not a Husk artifact"):
    husk.inspect(tmp_path / "text")


def command(environment, *arguments):
  words = [sys.executable, "-m", "husk", *map(str, arguments)]
  return subprocess.run(words, capture_output=True, text=True, env=environment)


def test_the_tools_are_commands(compiled, environment, tmp_path):
  path = compiled(conftest.COPY)
  done = command(environment, "run", path, "--input=2x4xf32=iota")
  assert done.returncode == 0 and "output 0 y: f32[2, 4]" in done.stdout
  assert "function forward" in command(environment, "dump", path).stdout
  assert command(environment, "check", path).returncode == 0
  done = command(environment, "check", tmp_path / "missing.husk")
  assert done.returncode == 1 and "missing.husk" in done.stderr
