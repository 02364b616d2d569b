"""Layers that torchao's configurations have changed, exported on a machine with a GPU, run there
and compared with eager mode of the same layers. Needs torchao.

  python tests/gpu/recipes.py [--only NAME...] [--rows 1,8,64,200] [--seeds 8] [--json FILE]

Errors are those from the product in float64 with the weights that the layer stands for, in bf16:
`rms` and `worst` are ours divided by those of eager mode, `mean` is the mean error with its sign,
in standard errors of it. A row that eager mode itself refuses is named so."""

import argparse
import collections
import concurrent.futures
import copy
import json
import logging
import multiprocessing
import pathlib
import sys
import tempfile
import warnings

import torch
from torch import nn

N, K = 512, 1024


def configurations():
  """By name, each configuration of torchao that may run on a GPU."""
  from torchao import quantization as ao
  from torchao.prototype import mx_formats as mx

  def intx(bits, group):
    return ao.IntxWeightOnlyConfig(
      weight_dtype=getattr(torch, f"int{bits}"), granularity=ao.PerGroup(group)
    )

  def fp8(granularity):
    return ao.Float8DynamicActivationFloat8WeightConfig(granularity=granularity)

  return {
    "int8-weight": lambda: ao.Int8WeightOnlyConfig(),
    "int8-weight-group": lambda: ao.Int8WeightOnlyConfig(granularity=ao.PerGroup(128)),
    "int8-int8": lambda: ao.Int8DynamicActivationInt8WeightConfig(),
    "int8-int8-asymmetric": lambda: ao.Int8DynamicActivationInt8WeightConfig(
      act_mapping_type=ao.quant_primitives.MappingType.ASYMMETRIC
    ),
    "int8-intx8": lambda: ao.Int8DynamicActivationIntxWeightConfig(),
    "int8-intx4": lambda: ao.Int8DynamicActivationIntxWeightConfig(weight_dtype=torch.int4),
    "intx2": lambda: intx(2, 32),
    "intx3": lambda: intx(3, 64),
    "intx4": lambda: intx(4, 32),
    "intx8": lambda: intx(8, 128),
    "int4-tile-packed": lambda: ao.Int4WeightOnlyConfig(int4_packing_format="tile_packed_to_4d"),
    "int4-tile-packed-32": lambda: ao.Int4WeightOnlyConfig(
      group_size=32, int4_packing_format="tile_packed_to_4d"
    ),
    "int4-tile-packed-hqq": lambda: ao.Int4WeightOnlyConfig(
      group_size=64, int4_packing_format="tile_packed_to_4d", int4_choose_qparams_algorithm="hqq"
    ),
    "int4-plain": lambda: ao.Int4WeightOnlyConfig(),
    "fp8-int4": lambda: ao.Float8DynamicActivationInt4WeightConfig(),
    "fp8-weight": lambda: ao.Float8WeightOnlyConfig(),
    "fp8-fp8-tensor": lambda: fp8(ao.PerTensor()),
    "fp8-fp8-row": lambda: fp8(ao.PerRow()),
    "fp8-fp8-block": lambda: fp8([ao.PerBlock([1, 128]), ao.PerBlock([128, 128])]),
    "mxfp8": lambda: mx.inference_workflow.MXDynamicActivationMXWeightConfig(),
    "nvfp4-weight": lambda: mx.inference_workflow.NVFP4WeightOnlyConfig(),
  }


def changed(name, seed):
  from torchao.quantization import quantize_

  torch.manual_seed(seed)
  model = nn.Sequential(nn.Linear(K, N)).bfloat16().cuda().eval()
  quantize_(model, configurations()[name]())
  return model


def target():
  name = torch.cuda.get_device_name().lower()
  return next(f"cuda:{card}" for card in ("h100", "h200", "a100", "b200") if card in name)


def weight_of(model):
  """What the weight stands for, in float64, which its own dequantize() rounds. A packed weight that
  cannot say it multiplies the identity."""
  weight = model[0].weight
  blocks = getattr(weight, "block_size", None)
  if isinstance(blocks, (list, tuple)) and weight.qdata.shape == (N, K):

    def of_elements(one):
      one = one.double().reshape(N // blocks[0], K // blocks[1])
      return one.repeat_interleave(blocks[0], 0).repeat_interleave(blocks[1], 1)

    zero = getattr(weight, "zero_point", None)
    zeros = 0 if zero is None else of_elements(zero)
    return (weight.qdata.double() - zeros) * of_elements(weight.scale)
  try:
    return weight.dequantize().double()
  except NotImplementedError:
    alone = copy.deepcopy(model)
    alone[0].bias = None
    return alone(torch.eye(K, dtype=torch.bfloat16, device="cuda")).double().T


def errors(got, right):
  error = got.double() - right
  return [
    float(error.pow(2).mean().sqrt()),
    float(error.abs().max()),
    float(error.mean() / (error.std() / error.numel() ** 0.5)),
  ]


def sums(rows):
  return [sum(row[0] ** 2 for row in rows) ** 0.5, max(row[1] for row in rows)]


def measured(name, rows, seeds):
  """For each number of rows the errors, or why there are none."""
  warnings.simplefilter("ignore")
  import husk

  remarks = logging.Handler(logging.INFO)
  lines = []
  remarks.emit = lambda record: lines.append(record.getMessage())
  logging.getLogger("husk").addHandler(remarks)
  logging.getLogger("husk").setLevel(logging.INFO)
  found = collections.defaultdict(list)
  path = pathlib.Path(tempfile.mkdtemp()) / "model.husk"
  for seed in range(seeds):
    try:
      model = changed(name, seed)
      inputs = {each: torch.randn(each, K).bfloat16().cuda() for each in rows}
      with torch.no_grad():
        eager = {each: model(x) for each, x in inputs.items()}
        weight = weight_of(model)
    except Exception as error:
      return {"eager": f"{type(error).__name__}: {str(error)[:300]}"}
    try:
      functions = {f"rows_{each}": husk.Function(model, (x,)) for each, x in inputs.items()}
      husk.export(functions, path, targets=[target()], tune="none", progress=False)
      loaded = husk.load(path, device="cuda")
    except Exception as error:
      return {"refused": f"{type(error).__name__}: {husk.errors.message(error)[:600]}"}
    for each, x in inputs.items():
      right = x.double() @ weight.T + model[0].bias.double()
      got = getattr(loaded, f"rows_{each}")(x)
      found[each].append((errors(got, right), errors(eager[each], right)))
  result = {"weights": "; ".join(dict.fromkeys(line for line in lines if "codes" in line))[:200]}
  for each, pairs in found.items():
    ours, theirs = sums([one for one, _ in pairs]), sums([one for _, one in pairs])
    means = [one[2] for one, _ in pairs]
    result[str(each)] = [
      round(ours[0] / theirs[0], 3),
      round(ours[1] / theirs[1], 3),
      round(sum(means) / len(means) ** 0.5, 2),
    ]
  return result


def main():
  arguments = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  arguments.add_argument("--only", nargs="*", default=[], metavar="NAME")
  arguments.add_argument("--rows", default="1,8,64,200")
  arguments.add_argument("--seeds", type=int, default=8)
  arguments.add_argument("--jobs", type=int, default=8)
  arguments.add_argument("--json", type=pathlib.Path)
  options = arguments.parse_args()
  rows = [int(one) for one in options.rows.split(",")]
  names = options.only or list(configurations())
  context = multiprocessing.get_context("spawn")
  table, failed = {}, 0
  with concurrent.futures.ProcessPoolExecutor(
    options.jobs, mp_context=context, max_tasks_per_child=1
  ) as pool:
    waiting = {name: pool.submit(measured, name, rows, options.seeds) for name in names}
    for name, one in waiting.items():
      try:
        table[name] = one.result()
      except Exception as error:
        table[name] = {"died": f"{type(error).__name__}: {str(error)[:300]}"}
      failed += not all(str(each) in table[name] for each in rows) and "eager" not in table[name]
      print(f"{name:22}", *(f"{key}: {value}" for key, value in table[name].items()), flush=True)
  if options.json:
    options.json.write_text(json.dumps(table, indent=1))
  return failed


if __name__ == "__main__":
  sys.exit(main())
