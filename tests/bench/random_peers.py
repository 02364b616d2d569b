"""Writes random decoders with the sizes of tests/bench/random_decoder.py for other runtimes.

    python tests/bench/random_peers.py TOKENIZER.gguf FOLDER [--size 0.5b|1.2b]
        [--runtimes onnxruntime-genai,executorch] [--tokens 1024]

Needs transformers and gguf, and the runtimes that are named. Weights of linear layers have 4 or 8
bits and a scale for each 32 of them, and so has the embedding where the runtime can have that.
FOLDER gets one model for each kind, whose name says what its activations are:

    onnxruntime-int4-exact, onnxruntime-int4-blocks, onnxruntime-int8-blocks
        folders of onnxruntime-genai's model builder: activations in f32 (accuracy_level=1), or
        rounded to 8 bits by blocks of 32 (accuracy_level=4);
    executorch-int4-rows.pte
        XNNPACK's 8da4w: activations rounded to 8 bits by row.

tests/bench/language.py measures them."""

import argparse
import json
import multiprocessing
import pathlib
import shutil
import subprocess
import sys

from random_decoder import DEVIATION, HEAD, SIZES

ONNX = {
  "onnxruntime-int4-exact": ("int4", 1),
  "onnxruntime-int4-blocks": ("int4", 4),
  "onnxruntime-int8-blocks": ("int8", 4),
}

EXECUTORCH = "executorch-int4-rows.pte"

# Names of transformers, and of ExecuTorch. Rotary embeddings want another order of rows,
# which takes no other time.
NAMES = {
  "model.layers.": "layers.",
  "model.norm": "norm",
  "model.embed_tokens": "tok_embeddings",
  "lm_head": "output",
  "self_attn.q_proj": "attention.wq",
  "self_attn.k_proj": "attention.wk",
  "self_attn.v_proj": "attention.wv",
  "self_attn.o_proj": "attention.wo",
  "mlp.gate_proj": "feed_forward.w1",
  "mlp.down_proj": "feed_forward.w2",
  "mlp.up_proj": "feed_forward.w3",
  "input_layernorm": "attention_norm",
  "post_attention_layernorm": "ffn_norm",
}


def checkpoints(tokenizer, folder, size, tokens):
  """A folder of Hugging Face's with random weights, and the same with the names of ExecuTorch."""
  import torch
  import transformers  # pyright: ignore[reportMissingImports]

  layers, hidden, inner, heads, key_heads = SIZES[size]
  words = transformers.AutoTokenizer.from_pretrained(tokenizer.parent, gguf_file=tokenizer.name)
  words.save_pretrained(folder)
  config = transformers.LlamaConfig(
    vocab_size=len(words),
    hidden_size=hidden,
    intermediate_size=inner,
    num_hidden_layers=layers,
    num_attention_heads=heads,
    num_key_value_heads=key_heads,
    head_dim=HEAD,
    max_position_embeddings=tokens,
    initializer_range=DEVIATION,
    tie_word_embeddings=True,
    rms_norm_eps=1e-5,
    dtype="float32",
  )
  torch.manual_seed(0)
  model = transformers.LlamaForCausalLM(config)
  model.save_pretrained(folder)
  renamed = {}
  for name, weight in model.state_dict().items():
    for before, after in NAMES.items():
      name = name.replace(before, after)
    renamed[name] = weight
  torch.save(renamed, folder / "executorch.pth")
  sizes = {
    "dim": hidden,
    "n_layers": layers,
    "n_heads": heads,
    "n_kv_heads": key_heads,
    "head_dim": HEAD,
    "hidden_dim": inner,
    "vocab_size": len(words),
    "norm_eps": 1e-5,
    "rope_theta": 10000.0,
  }
  (folder / "params.json").write_text(json.dumps(sizes))


def onnxruntime_genai(source, folder, _tokens):
  for name, (precision, level) in ONNX.items():
    subprocess.run(
      [
        *(sys.executable, "-m", "onnxruntime_genai.models.builder", "-i", source),
        *("-o", folder / name, "-p", precision, "-e", "cpu", "-c", folder / "cache"),
        *("--extra_options", f"accuracy_level={level}", "block_size=32"),
      ],
      check=True,
    )


def executorch(source, folder, tokens):
  subprocess.run(
    [
      *(sys.executable, "-m", "executorch.extension.llm.export.export_llm"),
      *("base.model_class=llama3", f"base.params={source / 'params.json'}"),
      f"base.checkpoint={source / 'executorch.pth'}",
      *("model.use_kv_cache=True", "model.use_sdpa_with_kv_cache=True"),
      *("model.dtype_override=fp32", "backend.xnnpack.enabled=True"),
      *("backend.xnnpack.extended_ops=True", "quantization.qmode=8da4w"),
      *("quantization.group_size=32", "quantization.use_hqq=False"),
      *("quantization.embedding_quantize='4,32'", f"export.max_seq_length={tokens}"),
      *(f"export.max_context_length={tokens}", f"export.output_name={EXECUTORCH}"),
    ],
    check=True,
    cwd=source,  # where it writes its file and its logs
  )
  shutil.move(source / EXECUTORCH, folder / EXECUTORCH)


RUNTIMES = {"onnxruntime-genai": onnxruntime_genai, "executorch": executorch}


def main():
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument("tokenizer", type=pathlib.Path)
  parser.add_argument("folder", type=pathlib.Path)
  parser.add_argument("--size", choices=SIZES, default="1.2b")
  parser.add_argument("--runtimes", default=",".join(RUNTIMES))
  parser.add_argument("--tokens", type=int, default=1024, help="how many a sequence may have")
  options = parser.parse_args()
  folder = options.folder.resolve()
  source = folder / "checkpoint"
  source.mkdir(parents=True, exist_ok=True)
  # A process of its own gives its memory back before the runtimes need theirs.
  arguments = (options.tokenizer.resolve(), source, options.size, options.tokens)
  process = multiprocessing.get_context("spawn").Process(target=checkpoints, args=arguments)
  process.start()
  process.join()
  if process.exitcode:
    return 1
  for name in options.runtimes.split(","):
    RUNTIMES[name](source, folder, options.tokens)
  shutil.rmtree(source)
  return 0


if __name__ == "__main__":
  sys.exit(main())
