"""Runs the files of two ranks, each in a process of its own, and prints what both computed. Neither
PyTorch nor a compiler is needed.

python run_mlp.py [DEVICE]    DEVICE: cpu (the default), or cuda for one GPU of each rank"""

import multiprocessing
import sys

import husk
import numpy as np

RANKS = 2


def run(rank, device, ids):
  # Rank 0 makes the id of the group, and brings it to the others.
  if rank == 0:
    own = husk.group_id(device)
    for _ in range(RANKS):
      ids.put(own)
  device = device if device == "cpu" else f"{device}:{rank}"
  # The files hold native code: load only files that you trust.
  program = husk.load("mlp.husk", device=device, rank=rank, world=RANKS, group=ids.get())
  x = 0.01 * np.arange(4 * 32, dtype=np.float32).reshape(4, 32)
  if device != "cpu":
    import torch

    x = torch.from_numpy(x).to(device)
  y = program(x)
  if rank == 0:
    for row in y:
      print("", *(f"{float(number):7.4f}" for number in row))


def main():
  device = sys.argv[1] if len(sys.argv) > 1 else "cpu"
  start = multiprocessing.get_context("spawn")
  ids = start.Queue()
  ranks = [start.Process(target=run, args=(rank, device, ids)) for rank in range(RANKS)]
  for process in ranks:
    process.start()
  for process in ranks:
    process.join()
  sys.exit(max(process.exitcode != 0 for process in ranks))


if __name__ == "__main__":
  main()
