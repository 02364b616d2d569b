"""Measures up to how many rows a matrix product reads its second operand in place, and writes
ports/host/ops/linalg/product_table.h. Run it on a quiet machine with AVX-512 BF16; it takes half a
minute. The numbers of other instruction sets than the named ones stay as they are, as do those of
AMX if the CPU does not have it.

  python3 tests/bench/product_table.py [--print] [SET...]     --print: write to the terminal instead
"""

import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
TABLE = ROOT / "ports/host/ops/linalg/product_table.h"
sys.path.insert(0, str(ROOT / "compiler/torch/husk/host"))
import cpus  # noqa: E402

LONG = ["-mprefer-vector-width=512"]  # as ports/host/CMakeLists.txt
SETS = {
  "baseline": [],
  "avx2": [*cpus.SETS["Avx2"][2]],
  "avx512": [*cpus.SETS["Avx512"][2], *LONG],
  "bf16": [*cpus.SETS["Avx512Bf16"][2], *LONG],
  "amx": [*cpus.SETS["Amx"][2], *LONG],
}
HEAD = """\
// Written by tests/bench/product_table.py, which measures the kernels.
// The most rows of a product that reads its second operand in place instead of packing it.
#pragma once

namespace husk::host {

// They depend on the depth of the product: the first number is for k < kDepthLimits[0], and so on.
constexpr int kDepths = 7;
constexpr int kDepthLimits[kDepths - 1] = {24, 48, 96, 192, 512, 2048};

struct InPlaceRows {
  int columns[kDepths];  // if the columns of the second operand are contiguous
  int rows[kDepths];     // if its rows are
};

// By instruction set, and by the dtype f64, f32, f16 and bf16. 64-bit Arm was not measured and
// takes the rows of the baseline.

"""


def measure(folder, name):
  """The numbers of an instruction set: two lists for each dtype that it computes. None if the CPU
  does not have the set."""
  ops = ROOT / "ports/host/ops"
  folders = [ops, *(ROOT / path for path in ("ports/host/src", "ports/host/include"))]
  folders += [ROOT / "runtime/include", ROOT / "schema"]
  program = folder / name
  subprocess.run(
    ["c++", "-std=c++17", "-O3", "-DNDEBUG", "-ffp-contract=fast", "-fno-math-errno", *SETS[name]]
    + [f"-I{path}" for path in folders]
    + [pathlib.Path(__file__).with_suffix(".cpp"), ops / "core/cancellation.cpp"]
    + [ROOT / "ports/host/src/cpu.cpp", "-o", program],
    check=True,
  )
  done = subprocess.run([program], capture_output=True, text=True)
  if name == "amx" and done.returncode == 1:
    return None
  done.check_returncode()
  numbers = [line.replace(" ", ", ") for line in done.stdout.splitlines()]
  return list(zip(numbers[::2], numbers[1::2]))


def main():
  names = [name for name in sys.argv[1:] if name != "--print"] or list(SETS)
  if unknown := set(names) - set(SETS):
    sys.exit(f"product_table.py: there is no set {', '.join(sorted(unknown))}")
  kept = re.findall(r"// CPU: [^\n]*\nconstexpr InPlaceRows .*?;\n", TABLE.read_text(), re.DOTALL)
  cpuinfo = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
  cpu = next(line.split(": ")[1] for line in cpuinfo if line.startswith("model name"))
  text = HEAD
  with tempfile.TemporaryDirectory() as folder:
    for name, old in zip(SETS, kept):
      pairs = measure(pathlib.Path(folder), name) if name in names else None
      if pairs is None:
        text += old
        continue
      title = name.capitalize()
      row = ",\n".join(f"    {{{{{columns}}}, {{{rows}}}}}" for columns, rows in pairs)
      text += f"// CPU: {cpu}.\nconstexpr InPlaceRows kInPlace{title}[] = {{\n{row}}};\n"
  text += "\n}  // namespace husk::host\n"
  if "--print" in sys.argv[1:]:
    print(text, end="")
  else:
    TABLE.write_text(text)


if __name__ == "__main__":
  main()
