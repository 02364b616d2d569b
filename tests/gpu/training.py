"""A step of training of GPT-2 on two GPUs under DDP and under FSDP2: the time with
torch.compile(backend="husk") against Inductor's, and losses against eager mode.

  python tests/gpu/training.py [--layers 12] [--width 768] [--heads 12] [--words 50257]
                               [--tokens 1024] [--rows 8] [--steps 5] [--dtype bfloat16]
                               [--side NAME]... [WAY...]
WAY: ddp, fsdp; both by default. NAME: eager, inductor, husk; all by default

Each rank is a process with sequences of its own. Under DDP the whole model is compiled, in parts
between which DDP reduces gradients. Under FSDP2 each block is compiled and divided by itself, and
FSDP2 gathers its parameters before it. A row has the milliseconds of a step, the least of rounds in
which the sides take turns, and how much of the time of NCCL's kernels another kernel runs. The
model runs in bf16 under autocast, or with `--dtype float32` without autocast and without TF32.

The losses of the first steps must be those of eager mode, of which the exit status tells.
`--device cpu` tries the script without GPUs, in float32."""

import argparse
import contextlib
import functools
import os
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "compiler/torch"))

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

SIDES = ("eager", "inductor", "husk")


def backend(side):
  from husk.jit.backend import backend as husk_backend

  return husk_backend if side == "husk" else side


class WithLoss(nn.Module):
  def __init__(self, model):
    super().__init__()
    self.model = model

  def forward(self, tokens, targets):
    logits = self.model(tokens)
    return nn.functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def model_of(options, device):
  from compile import Gpt

  torch.manual_seed(0)
  model = Gpt(options.layers, options.width, options.heads, options.words, options.tokens)
  for module in model.modules():
    # As GPT-2 begins: the head has the embedding's weight, so that losses would be hundreds.
    if isinstance(module, nn.Embedding | nn.Linear):
      nn.init.normal_(module.weight, std=0.02)
  return WithLoss(model).to(device)


def ddp(options, side, device):
  model = nn.parallel.DistributedDataParallel(
    model_of(options, device), bucket_cap_mb=options.bucket
  )
  return model, (model if side == "eager" else torch.compile(model, backend=backend(side)))


def fsdp(options, side, device):
  from torch.distributed.fsdp import fully_shard

  mesh = dist.device_mesh.init_device_mesh(options.device, (options.ranks,))
  model = model_of(options, device)
  for block in model.model.blocks:
    if side != "eager":
      block.compile(backend=backend(side))
    fully_shard(block, mesh=mesh)
  fully_shard(model, mesh=mesh)
  return model, model


WAYS = {"ddp": ddp, "fsdp": fsdp}


def programs():
  """The number of Husk's programs that this process has compiled."""
  from husk.jit import module

  return len(module.calls)


def step_of(options, way, side, rank, device):
  """A step of training, which returns the loss."""
  torch._dynamo.reset()
  model, call = WAYS[way](options, side, device)
  optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
  generator = torch.Generator().manual_seed(rank)
  shape = (2, options.rows, options.tokens)
  tokens, targets = torch.randint(0, options.words, shape, generator=generator).to(device)

  def step():
    casts = contextlib.nullcontext()
    if options.dtype == "bfloat16":
      casts = torch.autocast(options.device, dtype=torch.bfloat16)
    with casts:
      loss = call(tokens, targets)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()

  return step


def synchronize(options):
  if options.device == "cuda":
    torch.cuda.synchronize()


def timed(options, steps, rounds=5):
  """The milliseconds of a step by side, the least of rounds that all ranks begin together."""
  found = {side: [] for side in steps}
  for _ in range(rounds):
    for side, step in steps.items():
      synchronize(options)
      dist.barrier()
      begin = time.perf_counter()
      for _ in range(options.steps):
        step()
      synchronize(options)
      found[side].append((time.perf_counter() - begin) / options.steps * 1e3)
  return {side: min(times) for side, times in found.items()}


def overlap(step):
  """The milliseconds in which kernels of NCCL run in a step, and those of them in which another
  kernel runs too."""
  from torch.profiler import ProfilerActivity, profile

  with profile(activities=[ProfilerActivity.CUDA]) as profiled:
    step()
    torch.cuda.synchronize()
  kernels = [
    (event.time_range.start, event.time_range.end, "nccl" in event.name.lower())
    for event in profiled.events()
    if event.device_type == torch.autograd.DeviceType.CUDA
  ]
  of_nccl, others = (merged(kernels, kind) for kind in (True, False))
  both = sum(
    max(0, min(end, other_end) - max(start, other_start))
    for start, end in of_nccl
    for other_start, other_end in others
  )
  return sum(end - start for start, end in of_nccl) / 1e3, both / 1e3


def merged(kernels, of_nccl):
  """The times in which kernels run: intervals that do not touch."""
  found = []
  for start, end, kind in sorted(kernels):
    if kind != of_nccl:
      continue
    if found and start <= found[-1][1]:
      found[-1][1] = max(found[-1][1], end)
    else:
      found.append([start, end])
  return found


def compared(options, way, rank, device):
  """Whether the losses of all sides are those of eager mode."""
  steps, losses, made = {}, {}, {}
  for side in options.side or SIDES:
    begin, before = time.perf_counter(), programs()
    steps[side] = step_of(options, way, side, rank, device)
    losses[side] = [steps[side]().item() for _ in range(4)]
    made[side] = programs() - before
    if rank == 0:
      took = time.perf_counter() - begin
      text = ", ".join(f"{loss:.5f}" for loss in losses[side])
      print(
        f"{way}, {side}: four steps in {took:.1f} s, losses {text}, {made[side]} programs",
        flush=True,
      )
  tolerance = 1e-4 if options.dtype == "float32" else 2e-2
  good = True
  for side, found in losses.items():
    differences = [abs(one - other) for one, other in zip(found, losses["eager"], strict=True)]
    if max(differences) > tolerance or found[-1] >= found[0]:
      print(f"{way}, {side}, rank {rank}: losses {found} and {losses['eager']} differ", flush=True)
      good = False
  if made.get("husk") == 0:
    print(f"{way}: no program of Husk's was made", flush=True)
    good = False
  times = timed(options, steps)
  rows = [f"{side} {took:.2f} ms" for side, took in times.items()]
  if "inductor" in times and "husk" in times:
    rows.append(f"husk {times['husk'] / times['inductor']:.3f} of inductor")
  if rank == 0:
    print(f"{way}: a step: {', '.join(rows)}", flush=True)
  if options.device == "cuda":
    for side, step in steps.items():
      whole, beside = overlap(step)
      if rank == 0:
        print(
          f"{way}, {side}: kernels of NCCL run {whole:.2f} ms, {beside:.2f} of them beside others",
          flush=True,
        )
  return good


def run(rank, options, port):
  os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
  device = "cpu"
  if options.device == "cuda":
    torch.cuda.set_device(rank)
    device = f"cuda:{rank}"
  else:
    torch.set_num_threads(1)
  backends = {"cpu": "gloo", "cuda": "nccl"}
  dist.init_process_group(backends[options.device], rank=rank, world_size=options.ranks)
  good = True
  for way in options.ways:
    good &= compared(options, way, rank, device)
  dist.barrier()
  dist.destroy_process_group()
  sys.exit(not good)


def main():
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  for name, number in {
    "layers": 12,
    "width": 768,
    "heads": 12,
    "words": 50257,
    "tokens": 1024,
    "rows": 8,
    "steps": 5,
    "ranks": 2,
  }.items():
    parser.add_argument(f"--{name}", type=int, default=number)
  parser.add_argument("--bucket", type=float, default=25, help="MB that DDP reduces at once")
  parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
  parser.add_argument("--dtype", choices=("bfloat16", "float32"))
  parser.add_argument("--side", action="append", choices=SIDES)
  parser.add_argument("ways", nargs="*", default=list(WAYS))
  options = parser.parse_args()
  if options.side and "eager" not in options.side:
    options.side.insert(0, "eager")
  if options.dtype is None:
    options.dtype = "float32" if options.device == "cpu" else "bfloat16"
  start = mp.get_context("spawn")
  port = 29500 + os.getpid() % 400
  ranks = [
    start.Process(target=functools.partial(run, options=options, port=port), args=(rank,))
    for rank in range(options.ranks)
  ]
  for process in ranks:
    process.start()
  for process in ranks:
    process.join()
  sys.exit(any(process.exitcode for process in ranks))


if __name__ == "__main__":
  main()
