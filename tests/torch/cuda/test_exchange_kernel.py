"""The kernels with which ranks exchange tensors (ports/cuda/ops/exchange*.ptx), which the driver
compiles on the machine of a user: the compiler of Triton takes them for each architecture."""

import pathlib
import re
import subprocess

import pytest

PORT = pathlib.Path(__file__).resolve().parents[3] / "ports/cuda/ops"


KERNELS = ("exchange", "exchange_pair", "exchange_sum")
# The most bytes of registers that a kernel puts into memory. A thread of the kernel of pairs has 32
# registers, so that two blocks of 1,024 threads fit a multiprocessor.
SPILLED = {"husk_exchange": 0, "husk_exchange_pair": 64, "husk_exchange_sum": 0}


def head(name):
  """What ops/peers.cpp puts before the text."""
  source = (PORT / "peers.cpp").read_text()
  lines = re.search(rf"constexpr char {name}\[\] =\n(.*?);\n", source, re.DOTALL)[1]
  return "".join(re.findall(r'"(.*?)"', lines)).replace(r"\n", "\n")


@pytest.mark.parametrize(
  ("name", "architecture"),
  [
    ("kPlainHead", "sm_80"),
    ("kPlainHead", "sm_89"),
    ("kHeadOfSm90", "sm_90"),
    ("kHeadOfSm90", "sm_100"),
    ("kHeadOfSm90", "sm_120"),
  ],
)
def test_compiles(tmp_path, name, architecture):
  from triton import knobs

  text = tmp_path / "exchange.ptx"
  kernels = [(PORT / f"{kernel}.ptx").read_text() for kernel in KERNELS]
  text.write_text("".join([head(name), *kernels]))
  is_new = architecture in ("sm_100", "sm_120")
  compiler = knobs.nvidia.ptxas_blackwell if is_new else knobs.nvidia.ptxas
  done = subprocess.run(
    [compiler.path, "-v", f"-arch={architecture}", text, "-o", tmp_path / "exchange.cubin"],
    capture_output=True,
    text=True,
  )
  assert done.returncode == 0, done.stderr
  assert "warning" not in done.stderr, done.stderr
  spilled = re.findall(r"properties for (husk_\w+)\n.* (\d+) bytes spill stores", done.stderr)
  found = {kernel: int(count) for kernel, count in spilled}
  assert found.keys() == SPILLED.keys(), done.stderr
  assert all(count <= SPILLED[kernel] for kernel, count in found.items()), found
