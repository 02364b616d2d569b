"""How much a process grows, for tests of leaks."""

import gc
import os


def resident_bytes():
  with open("/proc/self/statm") as file:
    return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def least_growth(work, n, rounds=3, enough=(-1, -1)):
  """The least growth of the memory and of the number of objects in a round of `n` calls, which
  work(n) makes. A leak shows in every round; what an allocator takes and keeps, in some. No round
  follows when both growths are below those that are `enough`."""
  work(n // 4)
  growths = []
  for _ in range(rounds):
    gc.collect()
    before = resident_bytes(), len(gc.get_objects())
    work(n)
    gc.collect()
    growths.append((resident_bytes() - before[0], len(gc.get_objects()) - before[1]))
    least = [min(values) for values in zip(*growths)]
    if all(one < limit for one, limit in zip(least, enough)):
      break
  return least
