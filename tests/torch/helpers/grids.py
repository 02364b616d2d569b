"""Parts of grids of parameters."""

import itertools


def alternating(choices, *others):
  """For pytest.mark.parametrize: each combination of the others, with one of the choices, in turns,
  so that each choice meets each value of the others. This is for choices that have code of their
  own, which the others do not change."""
  numbered = itertools.product(*(list(enumerate(values)) for values in others))
  return [
    (choices[sum(index for index, _ in row) % len(choices)], *(value for _, value in row))
    for row in numbered
  ]
