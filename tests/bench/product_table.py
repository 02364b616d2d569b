"""Measures up to how many rows a matrix product reads its second operand in place, and writes
ports/host/ops/linalg/product_table.h. Run it on a quiet machine with AVX-512 BF16; it takes half a
minute.

  python3 tests/bench/product_table.py [--print]     --print: write to the terminal instead
"""

import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
TABLE = ROOT / "ports/host/ops/linalg/product_table.h"
AVX2 = ["-mavx2", "-mfma", "-mf16c"]
AVX512 = [*AVX2, *(f"-mavx512{part}" for part in ("f", "bw", "dq", "vl"))]
AVX512 += ["-mprefer-vector-width=512"]
SETS = {"baseline": [], "avx2": AVX2, "avx512": AVX512, "bf16": [*AVX512, "-mavx512bf16"]}
HEAD = """\
// Written by tests/bench/product_table.py, which measures the kernels. CPU: {cpu}.
// The most rows of a product that reads its second operand in place instead of packing it.
#pragma once

namespace husk::host {{

// They depend on the depth of the product: the first number is for k < kDepthLimits[0], and so on.
constexpr int kDepths = 7;
constexpr int kDepthLimits[kDepths - 1] = {{24, 48, 96, 192, 512, 2048}};

struct InPlaceRows {{
  int columns[kDepths];  // if the columns of the second operand are contiguous
  int rows[kDepths];     // if its rows are
}};

// By instruction set, and by the dtype f64, f32, f16 and bf16. 64-bit Arm was not measured and
// takes the rows of the baseline.
"""


def measure(folder, name):
  """The numbers of an instruction set: two lists for each dtype that it computes."""
  ops = ROOT / "ports/host/ops"
  folders = [ops, ROOT / "ports/host/src", ROOT / "ports/host/include", ROOT / "runtime/include"]
  program = folder / name
  subprocess.run(
    ["c++", "-std=c++17", "-O3", "-DNDEBUG", "-ffp-contract=fast", "-fno-math-errno", *SETS[name]]
    + [f"-I{path}" for path in folders]
    + [pathlib.Path(__file__).with_suffix(".cpp"), ops / "core/cancellation.cpp", "-o", program],
    check=True,
  )
  lines = subprocess.run([program], check=True, capture_output=True, text=True).stdout.splitlines()
  numbers = [line.replace(" ", ", ") for line in lines]
  return list(zip(numbers[::2], numbers[1::2]))


def main():
  cpuinfo = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
  cpu = next(line.split(": ")[1] for line in cpuinfo if line.startswith("model name"))
  text = HEAD.format(cpu=cpu)
  with tempfile.TemporaryDirectory() as folder:
    for name in SETS:
      pairs = measure(pathlib.Path(folder), name)
      title = name.capitalize()
      row = ",\n".join(f"    {{{{{columns}}}, {{{rows}}}}}" for columns, rows in pairs)
      text += f"constexpr InPlaceRows kInPlace{title}[] = {{\n{row}}};\n"
  text += "\n}  // namespace husk::host\n"
  if sys.argv[1:] == ["--print"]:
    print(text, end="")
  else:
    TABLE.write_text(text)


if __name__ == "__main__":
  main()
