"""Memory for the frames of Python's functions."""

import inspect
import resource

from husk.inductor import frames

CALLS = 500


def called(one=1, two=2, three=3, four=4, five=5, six=6, seven=7, eight=8):
  nine = ten = eleven = twelve = one
  return nine, ten, eleven, twelve


def faults(depth):
  """How often Linux gives memory to calls from a frame that is `depth` frames below."""
  if depth:
    return faults(depth - 1)
  before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
  for _ in range(CALLS):
    called()
  return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def most_faults():
  return max(min(faults(depth) for _ in range(3)) for depth in range(600))


def test_no_call_asks_for_memory():
  assert frames.in_one_piece(most_faults)() < CALLS // 2


def test_a_function_stays_what_it_is():
  def function(one, *, two=2):
    """Its text."""
    return one, two

  kept = frames.in_one_piece(function)
  assert kept(1) == (1, 2) and kept(1, two=3) == (1, 3)
  assert kept.__doc__ == "Its text." and inspect.signature(kept) == inspect.signature(function)
