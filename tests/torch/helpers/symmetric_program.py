"""What a process of test_compile_ranks.py does: a rank of two compiles functions with operators of
symmetric memory, and functions of which Inductor would make such operators, and compares the
results with those of functional collectives.

  python symmetric_program.py RANK STORE"""

import sys

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symmetric
import two_ranks
from husk.jit.backend import backend
from torch.distributed import _functional_collectives as functional

ops = torch.ops.symm_mem


def calls(x, w, group):
  added = ops.one_shot_all_reduce(x * 2, "sum", group)
  gathered, (product,) = ops.fused_all_gather_matmul(x, [w], 0, group)
  part = ops.fused_matmul_reduce_scatter(x + 1, w, "sum", scatter_dim=0, group_name=group)
  return added + 1, gathered, torch.relu(product), part


def expected_calls(x, w, group):
  gathered = functional.all_gather_tensor(x, 0, group)
  part = functional.reduce_scatter_tensor((x + 1) @ w, "sum", 0, group)
  return functional.all_reduce(x * 2, "sum", group) + 1, gathered, torch.relu(gathered @ w), part


def sequence_parallel(x, w, group):
  """A product of gathered rows, and one whose sum is scattered: Inductor's pass fuses both."""
  y = torch.relu(functional.all_gather_tensor(x, 0, group) @ w)
  return functional.reduce_scatter_tensor(y @ w.t(), "sum", 0, group)


def small_sum(x, w, group):
  """A sum that Inductor computes in one shot, if it may choose."""
  return functional.all_reduce(x * 3, "sum", group) + 1


def main():
  rank, path = int(sys.argv[1]), sys.argv[2]
  torch.set_num_threads(1)
  dist.init_process_group("gloo", store=dist.FileStore(path, 2), rank=rank, world_size=2)
  torch.manual_seed(rank)
  x, w = torch.randn(4, 8), torch.randn(8, 6)
  group = dist.group.WORLD.group_name
  options = {"_micro_pipeline_tp": True, "_collective.auto_select": True}
  pairs = (calls, expected_calls), (sequence_parallel,) * 2, (small_sum,) * 2
  for function, expected in pairs:
    compiled = torch.compile(function, backend=backend, fullgraph=True, options=options)
    with symmetric._test_mode():  # the groups count as such with symmetric memory
      found = compiled(x, w, group)
    for one, other in zip(found, expected(x, w, group), strict=True):
      torch.testing.assert_close(one, other)
  dist.destroy_process_group()
  two_ranks.end("equal")


if __name__ == "__main__":
  main()
