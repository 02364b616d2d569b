"""The records that come with the exporter: measured configurations of the matrix products and
convolutions of many models (compiler/torch/husk/cuda/records.py).

  python tests/gpu/records.py list FILE [--jobs 16] [MODEL...]
  python -m husk tune --problems FILE --target cuda:h100 --record RECORDS --seconds 300

`list` writes the problems of the models to FILE, and needs no GPU. The second command measures them
on the GPU of this machine. The records for the chip of an H100 and an H200 are
compiler/torch/husk/cuda/records/gh100.json. The models are in fp16, whose records bf16 shares, and
image networks are channels last; of transformers one layer is enough, since all layers have the
same problems. torchvision and transformers must be installed.
"""

import argparse
import concurrent.futures
import functools
import multiprocessing
import pathlib
import sys

import torch
from torch import nn

HERE = str(pathlib.Path(__file__).resolve().parent)
sys.path.insert(0, HERE)
import image_models  # noqa: E402

# A package that transformers looks for has the name of a file of this folder.
sys.path[:] = [path for path in sys.path if path != HERE]

IMAGES = (*image_models.MODELS, "swin_t", "deeplabv3_resnet50")


class Output(nn.Module):
  """The first tensor that a model of transformers returns."""

  def __init__(self, model, name):
    super().__init__()
    self.model, self.name = model, name

  def forward(self, value):
    return self.model(**{self.name: value, "return_dict": False})[0]


def image(name, batch):
  made = image_models.model(name).half()
  return made, (image_models.image(batch).half(),)


def tokens(batch, length):
  return torch.zeros(batch, length, dtype=torch.int64)


def bert(batch, length):
  from transformers import BertConfig, BertModel

  made = BertModel(BertConfig(num_hidden_layers=1)).half()
  return Output(made, "input_ids"), (tokens(batch, length),)


def vit(batch):
  from transformers import ViTConfig, ViTModel

  made = ViTModel(ViTConfig(num_hidden_layers=1)).half()
  return Output(made, "pixel_values"), (torch.zeros(batch, 3, 224, 224).half(),)


def whisper(batch):
  from transformers import WhisperConfig
  from transformers.models.whisper.modeling_whisper import WhisperEncoder

  sizes = dict(d_model=768, encoder_attention_heads=12, encoder_ffn_dim=3072)
  made = WhisperEncoder(WhisperConfig(encoder_layers=1, **sizes)).half()
  return Output(made, "input_features"), (torch.zeros(batch, 80, 3000).half(),)


def gpt2(batch, length):
  from transformers import GPT2Config, GPT2LMHeadModel

  made = GPT2LMHeadModel(GPT2Config(n_layer=1, use_cache=False)).half()
  return Output(made, "input_ids"), (tokens(batch, length),)


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
  made = {}
  for batch in (1, 8):
    for name in IMAGES:
      made[f"{name}.{batch}"] = functools.partial(image, name, batch)
    made[f"vit.{batch}"] = functools.partial(vit, batch)
    made[f"whisper.{batch}"] = functools.partial(whisper, batch)
    for length in (1, 128, 512):
      made[f"bert.{batch}.{length}"] = functools.partial(bert, batch, length)
      made[f"gpt2.{batch}.{length}"] = functools.partial(gpt2, batch, length)
      made[f"llama.{batch}.{length}"] = functools.partial(llama, batch, length)
  return made


def problems(name, target):
  import husk
  from husk import tune

  torch.set_num_threads(1)
  with torch.no_grad():
    model, args = models()[name]()
    return tune.problems_of({"forward": husk.Function(model.eval(), args)}, target)


def main():
  arguments = argparse.ArgumentParser(description=__doc__)
  arguments.add_argument("command", choices=("list",))
  arguments.add_argument("file")
  arguments.add_argument("names", nargs="*", metavar="MODEL")
  arguments.add_argument("--target", default="h100")
  arguments.add_argument("--jobs", type=int, default=4)
  options = arguments.parse_args()
  from husk.cuda import records
  from husk.cuda.target import Target

  found = records.Records(records.Chip.of(Target.load(options.target)))
  failed = 0
  context = multiprocessing.get_context("spawn")
  with concurrent.futures.ProcessPoolExecutor(options.jobs, context) as pool:
    made = {
      name: pool.submit(problems, name, options.target) for name in options.names or models()
    }
    for name, result in made.items():
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
