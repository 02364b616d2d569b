"""The records that come with the exporter: measured configurations of the matrix products and
convolutions of many models (compiler/torch/husk/cuda/records.py).

  python tests/gpu/records.py list FILE [--jobs 16] [MODEL...]
  python -m husk tune --problems FILE --target cuda:h100 --record RECORDS --seconds 300
  python tests/gpu/records.py regret RECORDS

`list` writes the problems of the models to FILE, and needs no GPU; problems.json is what it wrote.
The second command measures them on the GPU of this machine. `regret` compares what the rule and
what similar problems choose for each product with the best, without its own record. The records for
the chip of an H100 and an H200 are compiler/torch/husk/cuda/records/gh100.json. The models are in
fp16, whose records bf16 shares, and image networks are channels last; of transformers one layer is
enough, since all layers have the same problems. The convolutions of images of layer_times.py are
among the models, as layer.NAME. torchvision and transformers must be installed for the others.
"""

import argparse
import concurrent.futures
import functools
import multiprocessing
import pathlib
import re
import statistics
import sys

import torch
from torch import nn

HERE = str(pathlib.Path(__file__).resolve().parent)
sys.path.insert(0, HERE)
import image_models  # noqa: E402
import layer_times  # noqa: E402

# A package that transformers looks for has the name of a file of this folder.
sys.path[:] = [path for path in sys.path if path != HERE]

IMAGES = image_models.MODELS


class Output(nn.Module):
  """The first tensor that a model of transformers returns."""

  def __init__(self, model, name):
    super().__init__()
    self.model, self.name = model, name

  def forward(self, value):
    return self.model(**{self.name: value, "return_dict": False})[0]


def image(name, batch):
  model = image_models.model(name).half()
  return model, (image_models.image(batch, name).half(),)


def layer(name):
  module, inputs = layer_times.make(name)
  return module.half(), tuple(x.half() for x in inputs)


def tokens(batch, length):
  return torch.zeros(batch, length, dtype=torch.int64)


def bert(batch, length):
  from transformers import BertConfig, BertModel

  model = BertModel(BertConfig(num_hidden_layers=1)).half()
  return Output(model, "input_ids"), (tokens(batch, length),)


def vit(batch):
  from transformers import ViTConfig, ViTModel

  model = ViTModel(ViTConfig(num_hidden_layers=1)).half()
  return Output(model, "pixel_values"), (torch.zeros(batch, 3, 224, 224).half(),)


def whisper(batch):
  from transformers import WhisperConfig
  from transformers.models.whisper.modeling_whisper import WhisperEncoder

  sizes = dict(d_model=768, encoder_attention_heads=12, encoder_ffn_dim=3072)
  model = WhisperEncoder(WhisperConfig(encoder_layers=1, **sizes)).half()
  return Output(model, "input_features"), (torch.zeros(batch, 80, 3000).half(),)


def gpt2(batch, length):
  from transformers import GPT2Config, GPT2LMHeadModel

  model = GPT2LMHeadModel(GPT2Config(n_layer=1, use_cache=False)).half()
  return Output(model, "input_ids"), (tokens(batch, length),)


def llama(batch, length):
  """A layer of a Llama of 1.1 B."""
  from transformers import LlamaConfig, LlamaForCausalLM

  sizes = dict(hidden_size=2048, intermediate_size=5632, num_attention_heads=32)
  config = LlamaConfig(
    num_hidden_layers=1, num_key_value_heads=4, vocab_size=32000, use_cache=False, **sizes
  )
  return Output(LlamaForCausalLM(config).half(), "input_ids"), (tokens(batch, length),)


def models():
  """Functions that make a model and its arguments, by name."""
  makers = {}
  for batch in (1, 8):
    for name in IMAGES:
      makers[f"{name}.{batch}"] = functools.partial(image, name, batch)
    makers[f"vit.{batch}"] = functools.partial(vit, batch)
    makers[f"whisper_small.{batch}"] = functools.partial(whisper, batch)
    for length in (1, 128, 512):
      makers[f"bert.{batch}.{length}"] = functools.partial(bert, batch, length)
      makers[f"gpt2.{batch}.{length}"] = functools.partial(gpt2, batch, length)
      makers[f"llama.{batch}.{length}"] = functools.partial(llama, batch, length)
  for name, (_, _, kernel, _, _, groups, _) in layer_times.LAYERS.items():
    if kernel > 1 and groups == 1:
      for batch in layer_times.BATCHES:
        makers[f"layer.{name}.{batch}"] = functools.partial(layer, f"{name}.{batch}")
  return makers


def problems(name, target):
  import husk
  from husk import tune

  torch.set_num_threads(1)
  with torch.no_grad():
    model, args = models()[name]()
    return tune.problems_of({"forward": husk.Function(model.eval(), args)}, target)


def tiles(config):
  """The tiles of the text of a configuration."""
  from husk.cuda import gemm_configs

  return gemm_configs.Tiles(*map(int, re.findall(r"\d+", config)[:5]))


def regret(path):
  """Prints how much longer the choices of the rule and of neighbours take than the best one. A
  configuration that is not among the fastest, which a record lists, counts as the slowest of
  them."""
  from husk.cuda import gemm_configs, records
  from husk.cuda.target import Target

  target, found = Target.load("h100"), records.read(pathlib.Path(path))
  products = {p: times for p, times in found.times.items() if p.kind == "product" and times}
  configs = sorted({config for times in products.values() for config in times})
  sides = {"rule": [], "rule, where there are neighbours": [], "neighbours": []}
  for problem, times in products.items():
    sizes = dict(problem.sizes)
    itemsize = getattr(torch, problem.dtype).itemsize
    shape = gemm_configs.Problem(sizes["m"], sizes["n"], sizes["k"], 1, itemsize)
    ruled = min(configs, key=lambda config: gemm_configs.cost(target, shape, tiles(config)))

    def factor(config, times=times):
      return times.get(config, max(times.values())) / min(times.values())

    sides["rule"].append(factor(ruled))
    others = {p: each for p, each in products.items() if p != problem}
    choice = records.Records(found.chip, "", others).choice(problem, configs)
    if choice is not None:
      sides["rule, where there are neighbours"].append(factor(ruled))
      sides["neighbours"].append(factor(configs[choice[0]]))
  for name, factors in sides.items():
    print(
      f"{name}: {len(factors)} products, mean {statistics.mean(factors):.3f}, "
      f"median {statistics.median(factors):.3f}, largest {max(factors):.3f}"
    )
  return 0


def main():
  arguments = argparse.ArgumentParser(description=__doc__)
  arguments.add_argument("command", choices=("list", "regret"))
  arguments.add_argument("file")
  arguments.add_argument("names", nargs="*", metavar="MODEL")
  arguments.add_argument("--target", default="h100")
  arguments.add_argument("--jobs", type=int, default=4)
  options = arguments.parse_intermixed_args()
  if options.command == "regret":
    return regret(options.file)
  from husk.cuda import records
  from husk.cuda.target import Target

  found = records.Records(records.Chip.of(Target.load(options.target)))
  failed = 0
  context = multiprocessing.get_context("spawn")
  with concurrent.futures.ProcessPoolExecutor(options.jobs, context) as pool:
    futures = {
      name: pool.submit(problems, name, options.target) for name in options.names or models()
    }
    for name, result in futures.items():
      error = result.exception()
      failed += error is not None
      if error:
        print(f"FAILED  {name}: {type(error).__name__}: {error}", flush=True)
        continue
      print(f"{name}: {len(result.result())} problems", flush=True)
      for problem in result.result():
        found.times.setdefault(problem, {})
  found.save(pathlib.Path(options.file))
  print(f"{options.file}: {len(found.times)} problems")
  return failed != 0


if __name__ == "__main__":
  sys.exit(main())
