"""Kernels whose programs differ, for test_replayed_programs.py. Run by Triton's interpreter with
TRITON_INTERPRET=1, this prints for each kernel the numbers that it computed, how many programs were
recorded, and whether others were replayed."""

import json

import quick_interpreter
import replayed_programs
import torch
import triton
import triton.language as tl

N = 8


@triton.jit
def moved(x, y, ends, N: tl.constexpr):
  """Depends on the number of the program alone."""
  i = tl.program_id(0) * N + tl.arange(0, N)
  values = tl.load(x + i)
  tl.store(y + i, tl.cumsum(values) + tl.max(values, 0) * 2 + tl.num_programs(0))


@triton.jit
def looped(x, y, ends, N: tl.constexpr):
  """The memory says how many elements are added."""
  row = tl.program_id(0)
  sum = tl.zeros((N,), tl.float32)
  for k in range(tl.load(ends + row)):
    sum += tl.load(x + k * N + tl.arange(0, N))
  tl.store(y + row * N + tl.arange(0, N), sum)


@triton.jit
def branched(x, y, ends, N: tl.constexpr):
  i = tl.program_id(0) * N + tl.arange(0, N)
  values = tl.load(x + i)
  if tl.sum(values) > 0:
    values = -values
  else:
    values = values * 3
  tl.store(y + i, values)


@triton.jit
def stored_before(x, y, ends, N: tl.constexpr):
  """A program may not run again when it reads a number behind a store."""
  i = tl.program_id(0) * N + tl.arange(0, N)
  tl.store(y + i, tl.load(y + i) + tl.load(x + i))
  if tl.load(ends + tl.program_id(0)) > 1:
    tl.store(y + i, tl.load(y + i) * 2)


@triton.jit
def added(x, y, ends, N: tl.constexpr):
  tl.atomic_add(y + tl.arange(0, N), tl.load(x + tl.program_id(0) * N + tl.arange(0, N)))


@triton.jit
def read_by_others(x, y, ends, N: tl.constexpr):
  """A program reads what the one before has stored."""
  row = tl.program_id(0)
  i = tl.arange(0, N)
  before = tl.load(y + (row - 1) * N + i, mask=row > 0, other=1.0)
  tl.store(y + row * N + i, before + tl.load(x + row * N + i))


@triton.jit
def printed(x, y, ends, N: tl.constexpr):
  """Python code reads all numbers of a tensor, which nobody records."""
  i = tl.program_id(0) * N + tl.arange(0, N)
  values = tl.load(x + i)
  if len(repr(values)) > 0:
    tl.store(y + i, values)


def main():
  quick_interpreter.patch()
  replayed_programs.patch()
  launches, run = [], replayed_programs.Launch.run

  def observed(launch):
    launches.append(launch)
    run(launch)

  replayed_programs.Launch.run = observed
  results = {}
  for kernel in (moved, looped, branched, stored_before, added, read_by_others, printed):
    torch.manual_seed(0)
    x, y = torch.randn(6, N), torch.ones(6, N)
    ends = torch.tensor([1, 2, 2, 5, 1, 2], dtype=torch.int32)
    kernel[(6,)](x, y, ends, N)
    results[kernel.__name__] = [y.tolist(), launches[-1].records, launches[-1].replays]
  print(json.dumps(results))


if __name__ == "__main__":
  main()
