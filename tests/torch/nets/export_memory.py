"""The memory that the export of a large language model takes.

    python tests/torch/nets/export_memory.py [--layers 6,12] [--width 2048] [--between 8192]
        [--words 32000] [--experts 0] [--quantize int4] [--target host:avx512] [--folder DIR]

Makes a Llama with random weights in bf16, as a folder with one file of safetensors for each layer,
and exports it with `husk llm --quantize`. With `--experts` it is a mixture as Qwen3's, whose
experts have `--between` rows each, of which a token chooses 8: Qwen3-30B-A3B has 48 layers of
`--between 768 --experts 128 --words 151936`. A folder that is given keeps the checkpoint for the
next call.

A row has the time, the file's bytes, and the largest sum of the memory of the process and of those
that it starts, sampled 50 times a second: memory of its own (`RssAnon` and `RssShmem`), and with
pages of mapped files (`VmRSS`), which the system can take back. Both are divided by the bytes of
the largest layer in f32 and of the file. The memory of a process that has only imported torch and
transformers is stated beside it.

Needs transformers and safetensors."""

import argparse
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import zlib

import torch

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parents[2]


def layer_shapes(options):
  """The weights of a layer: their names without `.weight`, and their shapes."""
  width, between = options.width, options.between
  if not options.experts:
    keys = width // 4
    return {
      "self_attn.q_proj": (width, width),
      "self_attn.k_proj": (keys, width),
      "self_attn.v_proj": (keys, width),
      "self_attn.o_proj": (width, width),
      "mlp.gate_proj": (between, width),
      "mlp.up_proj": (between, width),
      "mlp.down_proj": (width, between),
      "input_layernorm": (width,),
      "post_attention_layernorm": (width,),
    }
  heads, keys = 2 * width, width // 4  # of 128 each
  shapes = {
    "self_attn.q_proj": (heads, width),
    "self_attn.k_proj": (keys, width),
    "self_attn.v_proj": (keys, width),
    "self_attn.o_proj": (width, heads),
    "self_attn.q_norm": (128,),
    "self_attn.k_norm": (128,),
    "mlp.gate": (options.experts, width),
    "input_layernorm": (width,),
    "post_attention_layernorm": (width,),
  }
  for expert in range(options.experts):
    shapes |= {
      f"mlp.experts.{expert}.gate_proj": (between, width),
      f"mlp.experts.{expert}.up_proj": (between, width),
      f"mlp.experts.{expert}.down_proj": (width, between),
    }
  return shapes


def configuration(options, layers):
  width = options.width
  own = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "intermediate_size": options.between,
    "num_attention_heads": width // 64,
    "num_key_value_heads": width // 4 // 64,
    "tie_word_embeddings": True,
  }
  if options.experts:
    own = {
      "architectures": ["Qwen3MoeForCausalLM"],
      "model_type": "qwen3_moe",
      "intermediate_size": 3 * width,
      "moe_intermediate_size": options.between,
      "num_experts": options.experts,
      "num_experts_per_tok": 8,
      "norm_topk_prob": True,
      "head_dim": 128,
      "num_attention_heads": 2 * width // 128,
      "num_key_value_heads": width // 4 // 128,
      "tie_word_embeddings": False,
    }
  return {
    **own,
    "hidden_size": width,
    "num_hidden_layers": layers,
    "vocab_size": options.words,
    "max_position_embeddings": 2048,
    "dtype": "bfloat16",
  }


def write(folder, options, layers):
  """The checkpoint, and the number of elements of its largest layer."""
  from safetensors.torch import save_file

  width, words = options.width, options.words
  folder.mkdir(parents=True, exist_ok=True)
  config = configuration(options, layers)
  (folder / "config.json").write_text(json.dumps(config))

  def random(shape, generator):
    tensor = torch.empty(shape, dtype=torch.bfloat16)
    return tensor.normal_(0, 0.02, generator=generator) if len(shape) > 1 else tensor.fill_(1)

  shapes = {
    f"model-{number:05}.safetensors": {
      f"model.layers.{number}.{name}.weight": shape for name, shape in layer_shapes(options).items()
    }
    for number in range(layers)
  }
  shapes["model-words.safetensors"] = {
    "model.embed_tokens.weight": (words, width),
    "model.norm.weight": (width,),
  }
  if not config["tie_word_embeddings"]:
    shapes["model-head.safetensors"] = {"lm_head.weight": (words, width)}
  for file, tensors in shapes.items():
    if not (folder / file).exists():
      # Equal weights would be one in the artifact.
      generator = torch.Generator().manual_seed(zlib.crc32(file.encode()))
      made = {name: random(shape, generator) for name, shape in tensors.items()}
      save_file(made, folder / file, metadata={"format": "pt"})
  places = {name: file for file, tensors in shapes.items() for name in tensors}
  index = {"metadata": {}, "weight_map": places}
  (folder / "model.safetensors.index.json").write_text(json.dumps(index))
  return max(sum(map(math.prod, tensors.values())) for tensors in shapes.values())


def children(pid):
  found = [pid]
  try:
    for task in os.listdir(f"/proc/{pid}/task"):
      for child in pathlib.Path(f"/proc/{pid}/task/{task}/children").read_text().split():
        found += children(int(child))
  except (OSError, ValueError):
    pass
  return found


def memory(pid):
  """(bytes of its own, all bytes) of a process and of those that it has started."""
  own = all_bytes = 0
  for one in children(pid):
    try:
      lines = pathlib.Path(f"/proc/{one}/status").read_text().splitlines()
    except OSError:
      continue
    values = {line.split(":")[0]: line.split()[1] for line in lines if line.endswith(" kB")}
    own += int(values.get("RssAnon", 0)) + int(values.get("RssShmem", 0))
    all_bytes += int(values.get("VmRSS", 0))
  return own << 10, all_bytes << 10


def measured(command):
  """(seconds, peak of its own memory, peak of all) of a command."""
  begin = time.monotonic()
  process = subprocess.Popen(command)
  peaks = [0, 0]
  while process.poll() is None:
    peaks = [max(pair) for pair in zip(peaks, memory(process.pid), strict=True)]
    time.sleep(0.02)
  if process.returncode:
    raise SystemExit(f"{command} failed")
  return time.monotonic() - begin, *peaks


def main():
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("--layers", default="6,12")
  parser.add_argument("--width", type=int, default=2048)
  parser.add_argument("--between", type=int, default=8192)
  parser.add_argument("--words", type=int, default=32000)
  parser.add_argument("--experts", type=int, default=0)
  parser.add_argument("--quantize", default="int4")
  parser.add_argument("--target", default="host:avx512")
  parser.add_argument("--folder", type=pathlib.Path)
  options = parser.parse_args()
  os.environ["PYTHONPATH"] = f"{ROOT / 'compiler' / 'torch'}:{os.environ.get('PYTHONPATH', '')}"
  imports = "import torch, transformers, torch._inductor.compile_fx, transformers.models.llama"
  _, plain, _ = measured([sys.executable, "-c", f"{imports}; import time; time.sleep(0.3)"])
  with tempfile.TemporaryDirectory() as temporary:
    for layers in map(int, options.layers.split(",")):
      folder = options.folder or pathlib.Path(temporary)
      folder.mkdir(parents=True, exist_ok=True)
      largest = write(folder / "checkpoint", options, layers)
      path = folder / "model.husk"
      seconds, own, whole = measured(
        [
          *(sys.executable, "-m", "husk", "llm", str(folder / "checkpoint"), "-o", str(path)),
          *("--quantize", options.quantize, "--target", options.target, "--max-tokens", "512"),
        ]
      )
      size = path.stat().st_size
      limit = largest * 4 + size
      print(
        f"{layers} layers: {seconds:.0f} s, file {size / 2**20:.0f} MiB, largest layer in floats "
        f"{largest * 4 / 2**20:.0f} MiB; own memory {own / 2**20:.0f} MiB, {own / limit:.2f} of "
        f"both; with mapped pages {whole / 2**20:.0f} MiB, {whole / limit:.2f}; imports alone "
        f"{plain / 2**20:.0f} MiB",
        flush=True,
      )


if __name__ == "__main__":
  main()
