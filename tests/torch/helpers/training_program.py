"""What a process of test_compile_training.py does: a rank of two trains a model under DDP, which
reduces gradients in several parts, and notes in which order programs of Husk and reductions begin.

  python training_program.py RANK STORE"""

import os
import sys

import torch
import torch.distributed as dist
from husk.jit import module
from husk.jit.backend import backend
from torch import nn

LAYERS, WIDTH = 4, 520


class Model(nn.Module):
  def __init__(self):
    super().__init__()
    self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))

  def forward(self, x):
    for layer in self.layers:
      x = torch.tanh(layer(x))
    return x


def main():
  rank, path = int(sys.argv[1]), sys.argv[2]
  torch.set_num_threads(1)
  dist.init_process_group("gloo", store=dist.FileStore(path, 2), rank=rank, world_size=2)
  events, load = [], module.load

  def noted(*args):
    program = load(*args)

    def call(*inputs):
      events.append("program")
      return program(*inputs)

    return call

  module.load = noted
  torch.manual_seed(0)
  # Every layer has 1.08 MB of parameters: a bucket of its own.
  model = nn.parallel.DistributedDataParallel(Model(), bucket_cap_mb=1)

  def reduce(state, bucket):
    events.append("reduction")
    summed = dist.all_reduce(bucket.buffer().div_(2), async_op=True).get_future()
    return summed.then(lambda done: done.value()[0])

  model.register_comm_hook(None, reduce)
  call = torch.compile(model, backend=backend)
  x = torch.randn(4, WIDTH)
  for _ in range(3):  # DDP forms its buckets anew after the first step
    events.clear()
    loss = (call(x) ** 2).mean()
    events.append("backward")
    loss.backward()
  dist.barrier()
  print(" ".join(events), flush=True)
  os._exit(0)  # threads of gloo may still run, which PyTorch takes ill at the end of a process


if __name__ == "__main__":
  main()
