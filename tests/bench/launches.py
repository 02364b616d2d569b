"""Writes a program of many launches, for measurements of the tools.

  python launches.py 10000 > many.hir

The program resembles the wrapper of a large model: sizes in two symbols, a kernel of its own for
every eighth launch, buffers that live for a few steps, and products by extern ops. The image,
many.so, is any ELF file in the folder of the text."""

import sys


def program(launches: int) -> str:
  kernels = max(1, launches // 8)
  lines = ["hir 1", 'target cpu host "x86-64"', 'image k cpu elf "many.so"']
  lines += [f'kernel fused_{i} k "cpp_fused_{i}" (ptr, ptr, ptr, i64, i64)' for i in range(kernels)]
  lines += [
    "function forward {",
    "  input x tensor f32 [1..64, 1..2048, 256]",
    "  output y tensor f32 rank 3",
    "  variant cpu {",
    "    let s0 = size(x, 0)",
    "    let s1 = size(x, 1)",
    "    check_stride(x, 2, 1)",
    "    check_stride(x, 1, 256)",
    "    buffer x of input bytes mul(mul(mul(256, s0), s1), 4) align 16",
    "    buffer y of output bytes mul(mul(mul(256, s0), s1), 4) align 16",
  ]
  live = ["x"]
  for i in range(launches):
    width = 64 * (1 + i % 7)
    lines.append(f"    buffer buf{i} bytes mul(mul(mul({width}, s0), s1), 4) align 64")
    a, b = live[-1], live[max(0, len(live) - 3)]
    if i % 10 == 9:
      lines.append(
        f'    extern "aten::mm.out" (read tensor {a} f32 [mul(s0, s1), 1] [1, 1], '
        f"read tensor {b} f32 [1, 8] [8, 1], write tensor buf{i} f32 [mul(s0, s1), 8] [8, 1])"
        f' at "model.py:{i}"'
      )
    else:
      lines.append(
        f"    launch fused_{i % kernels} grid (1, 1, 1) (read {a}, read {b}, write buf{i}, "
        f'mul(mul({width}, s0), s1), s0) at "model.py:{i}"'
      )
    live = (live + [f"buf{i}"])[-6:]
  lines += [
    f"    launch fused_0 grid (1, 1, 1) (read {live[-1]}, null, write y, s1, s0)",
    "    return (tensor y f32 [s0, s1, 256] [mul(256, s1), 256, 1])",
    "  }",
    "}",
  ]
  return "\n".join(lines) + "\n"


if __name__ == "__main__":
  sys.stdout.write(program(int(sys.argv[1])))
