"""Models with Triton kernels that a user wrote, for an H200: DIR/kernels_NAME.husk with .in. and
.out.safetensors. No GPU is needed.

  python tests/gpu/kernels.py DIR
"""

import pathlib
import sys

import torch
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "torch" / folder) for folder in ("cuda", "helpers")]
import husk  # noqa: E402
from test_user_descriptors import FOURS, Doubled, Halves, N, Transposed  # noqa: E402

x, vector = torch.randn(100, 16), torch.randn(256)
half = vector * 2
CASES = {
  # Each block makes tensor descriptors in scratch memory of its own.
  "descriptors": (
    Doubled(),
    (x,),
    ({0: N},),
    torch.randn(777, 16),
    lambda tensor: (tensor + 1) * 2 - 1,
  ),
  # The host makes the descriptors, of memory and shapes that change from run to run.
  "host_descriptors": (
    Transposed(),
    (torch.randn(100, 48),),
    (FOURS,),
    torch.randn(236, 48),
    lambda tensor: tensor[:, 8:40].T.contiguous(),
  ),
  "views": (
    Halves(),
    (vector,),
    None,
    half,
    lambda tensor: torch.cat([tensor[:128] * 4, tensor[128:] * 6]),
  ),
}


def main():
  out = pathlib.Path(sys.argv[1])
  for name, (model, args, shapes, tensor, right) in CASES.items():
    husk.export(
      model, args, out / f"kernels_{name}.husk", dynamic_shapes=shapes, targets=("cuda:h200",)
    )
    save_file({"0": tensor}, out / f"kernels_{name}.in.safetensors")
    save_file({"0": right(tensor)}, out / f"kernels_{name}.out.safetensors")


if __name__ == "__main__":
  main()
