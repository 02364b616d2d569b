"""Exports a model that calls the operator app::scale to scale.husk.

python export_scale.py [TARGET]    TARGET: a GPU, by default cuda:h200"""

import sys

import husk
import torch


@torch.library.custom_op("app::scale", mutates_args=())
def scale(x: torch.Tensor, factor: float) -> torch.Tensor:
  return x * factor


@scale.register_fake
def _(x, factor):
  return torch.empty_like(x)


class Model(torch.nn.Module):
  def forward(self, x):
    return scale(x, 2.5) + 1


rows = torch.export.Dim("rows", min=1, max=1024)
target = sys.argv[1] if len(sys.argv) > 1 else "cuda:h200"
husk.export(
  Model(),
  (torch.ones(4, 8),),
  "scale.husk",
  dynamic_shapes=({0: rows},),
  targets=(target,),
  ops=["app::scale"],
)
