"""Writes a model of triton.py as model.husk and model.onnx, for 1 to 64 rows.

build/compare/torch/bin/python tests/bench/triton_models.py mlp|bert-small
"""

import sys
import warnings

import husk
import torch
from torch.export import Dim


class BertSmall(torch.nn.Module):
  """The first token's features of BERT-small, for rows of 128 tokens."""

  def __init__(self):
    super().__init__()
    from transformers import BertConfig, BertModel

    small = dict(hidden_size=512, num_hidden_layers=4, num_attention_heads=8)
    self.bert = BertModel(BertConfig(intermediate_size=2048, **small))

  def forward(self, input):
    return self.bert(input_ids=input).pooler_output


def mlp():
  return torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.Linear(64, 10))


def main(name):
  warnings.simplefilter("ignore")
  torch.manual_seed(0)
  if name == "mlp":
    model, example = mlp(), torch.randn(4, 32)
  else:
    model, example = BertSmall(), torch.randint(0, 30000, (4, 128))
  model = model.eval().requires_grad_(False)
  rows = ({0: Dim("rows", min=1, max=64)},)
  husk.export(model, (example,), "model.husk", dynamic_shapes=rows)
  torch.onnx.export(
    model,
    (example,),
    "model.onnx",
    input_names=["input"],
    output_names=["output"],
    dynamic_shapes=rows,
    dynamo=True,
    verbose=False,
  )


if __name__ == "__main__":
  main(sys.argv[1])
