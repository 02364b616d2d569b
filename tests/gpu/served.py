"""Texts of several requests on a GPU: the tokens a second of `husk-text bench`, and the host's time
of a step, against runs of `decode` alone.

  python tests/gpu/served.py [--folder DIR] [--target cuda:h200] [--dry] [--device cuda]
                             [--slots 32,1] [--layers 16] [--tokens 512] [--requests 1,8,32]
                             [--pages N] [--runs 0] [--temperature T --top-k K]

The model has the sizes of Llama 3.2 1B (16 layers, 2048 wide, 32 heads of 64, 8 of them of keys,
8192 wide in between, 32,000 words) and random weights in bf16. Each request has a prompt of 128
tokens and a text of 64. `decode` alone runs with as many rows, at the position in the middle of the
texts, each run enqueued before the last one has ended; for one request in several slots it is the
function `single`. With --pages the caches are in N pages. --runs is how many runs a step has before
its tokens are read; several numbers are measured one after the other.
`--dry` only exports, and needs transformers and no GPU. A file that DIR has is not made again."""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1] / "compiler" / "torch"))

from husk import tools  # noqa: E402

PROMPT, NEW, WORDS = 128, 64, 32000


def export(path, options, slots):
  import torch
  import transformers
  from husk import language

  config = transformers.LlamaConfig(
    hidden_size=2048,
    intermediate_size=8192,
    num_hidden_layers=options.layers,
    num_attention_heads=32,
    num_key_value_heads=8,
    vocab_size=WORDS,
    max_position_embeddings=options.tokens,
  )
  with torch.device("meta"):
    model = transformers.LlamaForCausalLM(config).to(torch.bfloat16).eval()
  rotary = transformers.LlamaForCausalLM(
    transformers.LlamaConfig(**{**config.to_dict(), "num_hidden_layers": 1, "vocab_size": 8})
  ).model.rotary_emb
  model = model.to_empty(device="cpu")
  model.model.rotary_emb = rotary
  torch.manual_seed(0)
  for one in model.parameters():
    torch.nn.init.uniform_(one.data, -0.03, 0.03) if one.dim() > 1 else one.data.fill_(1)
  language.export(
    model,
    path,
    max_tokens=options.tokens,
    slots=slots,
    pages=options.pages,
    features=("single",),
    targets=(options.target,),
  )


def run(name, *words):
  program = tools.find(name)
  assert program is not None, f"{name} is not built"
  subprocess.run([program, *map(str, words)], check=True, stdout=subprocess.DEVNULL)


def decode_alone(path, rows, slots, options, folder):
  """The microseconds of a run of `decode`: alone, and enqueued behind another one."""
  alone = rows == 1 < slots
  positions = folder / "positions.npy"
  np.save(positions, np.full(rows, PROMPT + NEW // 2, np.int64))
  json_file = folder / "decode.json"
  seen = PROMPT + NEW
  if options.pages:
    seen = f"@{folder / 'table.npy'}"
    count = -(-(PROMPT + NEW) // 64)
    np.save(seen[1:], 1 + np.arange(rows * count).reshape(rows, count))
  inputs = (f"{rows}xi64=random", f"@{positions}", *((slots - 1,) if alone else ()), seen)
  words = [word for one in inputs for word in ("--input", one)]
  run("husk-bench", path, "--function", "single" if alone else "decode", "--device",
      options.device, *words, "--duration-s", 1, "--json", json_file)  # fmt: skip
  found = json.loads(json_file.read_text())["results"][0]
  once = found["run_us"]["median"]
  return once, found.get("queued_us", once)


def measure(path, slots, runs, options, folder):
  requests = [one for one in options.requests if one <= slots]
  json_file = folder / "bench.json"
  words = [word for one in requests for word in ("--requests", one)]
  for name in ("temperature", "top_k"):
    if value := getattr(options, name):
      words += [f"--{name.replace('_', '-')}", value]
  if runs:
    words += ["--runs", runs]
  run("husk-text", "bench", path, "--device", options.device, *words, "--prompt-tokens", PROMPT,
      "--new-tokens", NEW, "--json", json_file)  # fmt: skip
  for row in json.loads(json_file.read_text())["results"]:
    rows, rate = row["requests"], row["tokens_per_second"]
    times = decode_alone(path, rows, slots, options, folder)
    print(
      f"{slots} slots, runs {runs}, {rows} requests: {rate:.0f} tokens/s, host "
      f"{row['host_us_a_step']:.1f} us a step; decode alone {times[0]:.1f} us, enqueued "
      f"{times[1]:.1f} us; tokens a second divided by those of decode alone "
      f"{rate * times[1] / 1e6 / rows:.3f}",
      flush=True,
    )


def numbers(text):
  return [int(one) for one in text.split(",")]


def main():
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument("--folder", type=pathlib.Path)
  parser.add_argument("--target", default="cuda:h200")
  parser.add_argument("--device", default="cuda")
  parser.add_argument("--dry", action="store_true")
  parser.add_argument("--slots", type=numbers, default=[32, 1])
  parser.add_argument("--layers", type=int, default=16)
  parser.add_argument("--tokens", type=int, default=512)
  parser.add_argument("--requests", type=numbers, default=[1, 8, 32])
  parser.add_argument("--pages", type=int)
  parser.add_argument("--runs", type=numbers, default=[0])
  parser.add_argument("--temperature", type=float, default=0)
  parser.add_argument("--top-k", type=int, default=0)
  options = parser.parse_args()
  with tempfile.TemporaryDirectory() as temporary:
    folder = options.folder or pathlib.Path(temporary)
    folder.mkdir(exist_ok=True, parents=True)
    for slots in options.slots:
      path = folder / f"{f'pages{options.pages}' if options.pages else 'slots'}_{slots}.husk"
      if not path.exists():
        export(path, options, slots)
      for runs in options.runs if not options.dry else ():
        measure(path, slots, runs, options, folder)
  return 0


if __name__ == "__main__":
  sys.exit(main())
