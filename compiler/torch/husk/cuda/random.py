"""Random numbers of CUDA targets: Inductor's kernels draw them by seeds, which come from the state
of the program.

The state begins with the seed, a 64-bit int. The fourth of its ints, which is 0 after seeding, is
the number of seeds that runs have taken. A run takes the next numbers of the generator SplitMix64
(Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014), which begins at a
place that depends on the seed. Equal seeds therefore give equal numbers, whether a session runs a
list or a graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import Unsupported

# The distance of the generator's states, and the factors that make a number of a state.
_DISTANCE = 0x9E3779B97F4A7C15
_FACTORS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_SHIFTS = (30, 27, 31)
_SEED, _TAKEN = 0, 3


def lowerings(name: str, size: int) -> dict[Any, Callable[..., Any]]:
  """The lowering of Inductor's operator that makes the seeds of a run. The state is Inductor's
  constant `name` of `size` bytes."""
  from torch._inductor import inductor_prims

  def seeds(count: int, device: Any) -> Any:
    return _seeds(count, device, name, size)

  return {inductor_prims.seeds: seeds}


def _seeds(count: int, device: Any, name: str, size: int) -> Any:
  import torch
  from torch._inductor import ir, lowering
  from torch._inductor.graph import SubgraphLowering
  from torch._inductor.virtualized import V, ops

  graph: Any = V.graph
  if isinstance(graph, SubgraphLowering):
    raise Unsupported("random numbers inside of a branch or a loop: draw them before it")
  with graph.fake_mode:
    values = torch.empty(size // 8, dtype=torch.int64, device=device)
  state = graph.add_tensor_constant(values, name)
  load = state.make_loader()

  def constant(value: int) -> Any:
    return ops.constant(_signed(value), torch.int64)

  def number(place: Any) -> Any:
    for shift, factor in zip(_SHIFTS, (*_FACTORS, None)):
      # A shift of signed ints copies the sign.
      shifted = ops.bitwise_right_shift(place, constant(shift))
      mask = constant((1 << (64 - shift)) - 1)
      place = ops.bitwise_xor(place, ops.bitwise_and(shifted, mask))
      place = place if factor is None else ops.mul(place, constant(factor))
    return place

  def seed(index: Any) -> Any:
    begin = number(ops.add(load([_SEED]), constant(_DISTANCE)))
    taken = ops.add(load([_TAKEN]), ops.index_expr(index[0] + 1, torch.int64))
    return number(ops.add(begin, ops.mul(taken, constant(_DISTANCE))))

  def advanced(index: Any) -> Any:
    is_count = ops.eq(ops.index_expr(index[0], torch.int64), constant(_TAKEN))
    more = ops.where(is_count, constant(count), constant(0))
    return ops.add(load(index), more)

  def pointwise(inner: Callable[[Any], Any], length: int) -> Any:
    result = ir.Pointwise.create(
      device=state.get_device(), dtype=torch.int64, inner_fn=inner, ranges=[length]
    )
    result.realize()
    return result

  result = pointwise(seed, count)
  # A kernel reads a seed from memory, so the seeds are there before it runs.
  graph.no_fuse_buffer_names.add(result.get_name())
  lowering.mutate_to(state, pointwise(advanced, size // 8))
  return result


def _signed(value: int) -> int:
  """The int with the same 64 bits that has a sign."""
  return value - (1 << 64) if value >= 1 << 63 else value
