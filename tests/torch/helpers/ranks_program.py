"""What a process of test_compile_ranks.py does: a rank of two compiles models with collective
operators and compares their results and gradients with eager mode.

  python ranks_program.py RANK STORE"""

import copy
import sys
import time
from unittest import mock

import torch
import torch.distributed as dist
import two_ranks
from husk.jit import waits as waits_of_jit
from husk.jit.backend import backend
from torch import nn
from torch.distributed import _functional_collectives as functional
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


class Mlp(nn.Module):
  def __init__(self):
    super().__init__()
    self.up = nn.Linear(8, 16)
    self.down = nn.Linear(16, 8)

  def forward(self, x):
    return x + self.down(torch.relu(self.up(x)))


def calls(x):
  group = dist.group.WORLD
  summed = functional.all_reduce(x + 1, "sum", group)
  gathered = functional.all_gather_tensor(x, 0, group)
  scattered = functional.reduce_scatter_tensor(x * 2, "sum", 0, group)
  moved = functional.all_to_all_single(x, [2, 2], [2, 2], group)
  one, other = functional.all_reduce_coalesced([x, x + 3], "max", group)
  added = x + functional.all_reduce(x * 3, "sum", group)
  return summed * 2, gathered, scattered + 1, moved, one, other, added


def check_calls(rank):
  x = torch.arange(8.0).reshape(4, 2) + 10 * rank
  compiled = torch.compile(calls, backend=backend, fullgraph=True)
  for found, wanted in zip(compiled(x), calls(x), strict=True):
    torch.testing.assert_close(found, wanted)


def waits(x):
  """Waits for a collective that began outside of the function."""
  return torch.ops._c10d_functional.wait_tensor(x) * 2


def begins(x):
  """Does not wait for its collective."""
  return torch.ops._c10d_functional.all_reduce(x * 2, "sum", dist.group.WORLD.group_name)


def check_waits(rank):
  """A rank is late, so that a function which does not wait has other numbers."""
  x = torch.full((64, 64), 1.0 + rank)
  compiled = torch.compile(waits, backend=backend, fullgraph=True)
  wait = torch.ops._c10d_functional.wait_tensor
  compiled(x.clone())  # which compiles it
  for reduce in (
    lambda: torch.ops._c10d_functional.all_reduce(x, "sum", dist.group.WORLD.group_name),
    lambda: functional.all_reduce(x, "sum", dist.group.WORLD),
  ):
    if rank == 1:
      time.sleep(0.5)
    assert torch.equal(compiled(reduce()), torch.full((64, 64), 6.0))
  found = torch.compile(begins, backend=backend, fullgraph=True)(x)
  assert torch.equal(wait(found), torch.full((64, 64), 6.0))


def gradients(x):
  """Collectives with gradients of PyTorch's."""
  group = dist.group.WORLD
  gathered = functional.all_gather_tensor_autograd(x * 2, 0, group)
  part = functional.reduce_scatter_tensor_autograd(gathered.sin(), "sum", 0, group)
  return functional.all_to_all_single_autograd(part * x, [2, 2], [2, 2], group).sum()


def check_gradients(rank):
  results = []
  for function in gradients, torch.compile(gradients, backend=backend, fullgraph=True):
    x = (torch.arange(8.0).reshape(4, 2) + rank).requires_grad_()
    function(x).backward()
    results.append(x.grad)
  torch.testing.assert_close(*results)


def several(x):
  """Collectives that Inductor may reorder and join."""
  group = dist.group.WORLD
  parts = [functional.all_gather_tensor(x + number, 0, group) for number in range(3)]
  products = [part @ part.t() for part in parts]
  scattered = [functional.reduce_scatter_tensor(one, "sum", 0, group) for one in products]
  sums = [functional.all_reduce(one, "sum", group) for one in scattered]
  return torch.stack(sums)


def check_passes(rank):
  """Passes of Inductor that reorder collectives, and make one of several."""
  x = torch.randn(4, 6, generator=torch.Generator().manual_seed(rank))
  options = {
    "reorder_for_compute_comm_overlap": True,
    "bucket_all_gathers_fx": "all",
    "bucket_reduce_scatters_fx": "all",
    "bucket_all_reduces_fx": "all",
  }
  compiled = torch.compile(several, backend=backend, fullgraph=True, options=options)
  torch.testing.assert_close(compiled(x), several(x))


@torch.library.custom_op("ranks::between", mutates_args=())
def between(x: torch.Tensor) -> torch.Tensor:
  """A step between the begin of a collective and the wait for it."""
  EVENTS.append("between")
  return x * 3


EVENTS = []
between.register_fake(torch.empty_like)


def overlapped(x):
  """Begins three collectives before other work, and waits for them behind it."""
  ops, group = torch.ops._c10d_functional, dist.group.WORLD.group_name
  summed = ops.all_reduce(x + 1, "sum", group)
  gathered = ops.all_gather_into_tensor(x * 2, 2, group)
  moved = ops.all_to_all_single(x - 1, [2, 2], [2, 2], group)
  middle = between(x)
  return [*map(ops.wait_tensor, (summed, gathered, moved)), middle]


def check_overlap():
  """Other steps of a program run between the begin of a collective and the wait for it."""
  x = torch.arange(8.0).reshape(4, 2) + dist.get_rank()
  options = {"reorder_for_peak_memory": False, "reorder_for_locality": False}
  compiled = torch.compile(overlapped, backend=backend, fullgraph=True, options=options)
  wanted = overlapped(x)
  add, wait = waits_of_jit.Begun.add, waits_of_jit.Result.wait
  with (
    mock.patch.object(
      waits_of_jit.Begun, "add", lambda *args: EVENTS.append("begin") or add(*args)
    ),
    mock.patch.object(
      waits_of_jit.Result, "wait", lambda self: EVENTS.append("wait") or wait(self)
    ),
  ):
    for _ in range(2):
      EVENTS.clear()
      torch.testing.assert_close(compiled(x), wanted)
      assert EVENTS == ["begin"] * 3 + ["between"] + ["wait"] * 3, EVENTS


def check_training(mesh):
  torch.manual_seed(0)
  eager = Mlp()
  x = torch.randn(4, 8)
  compiled = copy.deepcopy(eager)
  losses = {}
  for name, model in ("eager", eager), ("compiled", compiled):
    parallelize_module(model, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    call = torch.compile(model, backend=backend) if name == "compiled" else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses[name] = []
    for _ in range(2):
      optimizer.zero_grad()
      loss = (call(x) ** 2).mean()
      loss.backward()
      optimizer.step()
      losses[name].append(loss.item())
  torch.testing.assert_close(losses["compiled"], losses["eager"])
  assert losses["eager"][1] < losses["eager"][0]


def main():
  rank, path = int(sys.argv[1]), sys.argv[2]
  torch.set_num_threads(1)
  dist.init_process_group("gloo", store=dist.FileStore(path, 2), rank=rank, world_size=2)
  check_calls(rank)
  check_waits(rank)
  check_gradients(rank)
  check_passes(rank)
  check_overlap()
  check_training(init_device_mesh("cpu", (2,)))
  dist.destroy_process_group()
  two_ranks.end("equal")


if __name__ == "__main__":
  main()
