"""Times the GPT of examples/models.py in eager PyTorch on this GPU: the median of 100 calls, each
waited for."""

import pathlib
import statistics
import sys
import time

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "examples"))
import models


def main():
  model = models.gpt()[0].cuda()
  for batch, length in ((1, 32), (3, 70), (8, 128)):
    tokens = torch.randint(0, 256, (batch, length), device="cuda")
    times = []
    with torch.no_grad():
      for call in range(120):
        start = time.perf_counter()
        model(tokens)
        torch.cuda.synchronize()
        if call >= 20:
          times.append(time.perf_counter() - start)
    print(
      f"eager      f32[{batch}, {length}, 256]                      median "
      f"{statistics.median(times) * 1e6:.1f} us"
    )


if __name__ == "__main__":
  main()
