"""The installed package where neither PyTorch nor NumPy nor a source tree is: tests/run.sh package.

env -i PYTHON tests/python/installed.py     PYTHON: that of the environment of the package
"""

import array
import importlib.util
import pathlib
import subprocess
import sys
import tempfile

import husk
import programs
from husk import tools


def matrix(numbers):
  """Four columns, by the buffer protocol alone."""
  memory = memoryview(array.array("f", numbers)).cast("B")
  return memory.cast("f", (len(memory) // 16, 4))


def command(*words):
  done = subprocess.run(words, capture_output=True, text=True)
  assert done.returncode == 0, done.stderr
  return done.stdout


def main():
  package = pathlib.Path(husk.__file__).parent
  assert package.is_relative_to(sys.prefix), package
  for absent in ("torch", "numpy", "nanobind"):
    assert importlib.util.find_spec(absent) is None, f"{absent} is there"
  for name in ("huskc", "husk-run", "husk-dump", "husk-bench", "husk-chat", "husk-text"):
    assert tools.find(name) == str(package / "bin" / name), name

  with tempfile.TemporaryDirectory() as folder:
    source, artifact = (f"{folder}/copy.{suffix}" for suffix in ("hir", "husk"))
    pathlib.Path(source).write_text(programs.text(programs.COPY))
    command(sys.executable, "-m", "husk", "compile", source, "-o", artifact)
    program = husk.load(artifact)
    x, y = matrix(range(8)), matrix([0] * 8)
    result = program(x, out=(y, None))
    assert result[0] is y and result[1] == 4 and y.tolist() == x.tolist()
    assert husk.inspect(artifact).functions["forward"].variants[0].ways == {"copies": 1}
    script = str(pathlib.Path(sys.prefix) / "bin" / "husk")
    assert "f32[2, 4]" in command(script, "run", artifact, "--input=2x4xf32=iota")
    assert "function forward" in command(script, "dump", artifact)
    command(script, "check", artifact)

  try:
    husk.export(None, (), "model.husk")
  except ModuleNotFoundError as error:
    assert "pip install './compiler/torch[export]'" in str(error), error
  else:
    raise AssertionError("an export without PyTorch")
  print("the installed package runs without PyTorch, NumPy and an environment")


if __name__ == "__main__":
  main()
