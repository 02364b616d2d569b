"""Writes a GGUF file of a Llama with random weights, with the tokenizer of another file.

  python tests/bench/random_decoder.py TOKENIZER.gguf OUT.gguf [--size 0.5b|1.2b]
                                       [--type BF16|Q4_0|Q8_0]

Needs gguf. Speed depends on the sizes alone, so tests/bench/language.py measures such a file as
well as a published one. The blocks of 32 weights have a scale in f16 and codes of 4 or 8 bits;
weights of the type BF16 are plain numbers."""

import argparse

import gguf  # pyright: ignore[reportMissingImports]
import numpy

# Layers, hidden size, size of the feed-forward layer, heads, heads of keys and values.
SIZES = {"0.5b": (20, 1280, 5120, 20, 5), "1.2b": (16, 2048, 8192, 32, 8)}
HEAD = 64
# The standard deviation of weights.
DEVIATION = 0.02
# Bytes of the codes of a block, and a scale with which weights have this standard deviation.
BLOCKS = {"Q4_0": (16, DEVIATION / 4.6), "Q8_0": (32, DEVIATION / 73.9)}
TYPES = ("BF16", *BLOCKS)


class Writer:
  def __init__(self, source, path, kind):
    self.file = gguf.GGUFWriter(path, "llama")
    self.kind = kind
    self.random = numpy.random.default_rng(1)
    for name, field in source.fields.items():
      if not name.startswith("tokenizer."):
        continue
      element = field.types[1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
      self.file.add_key_value(name, field.contents(), field.types[0], element)

  def weight(self, name, rows, columns):
    kind = gguf.GGMLQuantizationType[self.kind]
    if self.kind == "BF16":
      values = self.random.standard_normal((rows, columns), numpy.float32) * DEVIATION
      halves = (values.view(numpy.uint32) >> 16).astype(numpy.uint16).view(numpy.uint8)
      self.file.add_tensor(name + ".weight", halves, raw_dtype=kind)
      return
    size, scale = BLOCKS[self.kind]
    blocks = numpy.empty((rows, columns // 32, 2 + size), numpy.uint8)
    blocks[..., :2] = numpy.array([scale], numpy.float16).view(numpy.uint8)
    blocks[..., 2:] = self.random.integers(0, 256, (rows, columns // 32, size), numpy.uint8)
    self.file.add_tensor(name + ".weight", blocks.reshape(rows, -1), raw_dtype=kind)

  def norm(self, name, size):
    self.file.add_tensor(name + ".weight", numpy.ones(size, numpy.float32))

  def finish(self):
    self.file.write_header_to_file()
    self.file.write_kv_data_to_file()
    self.file.write_tensors_to_file()
    self.file.close()


def main():
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument("tokenizer")
  parser.add_argument("out")
  parser.add_argument("--size", choices=SIZES, default="1.2b")
  parser.add_argument("--type", choices=TYPES, default="Q4_0")
  options = parser.parse_args()
  layers, hidden, inner, heads, key_heads = SIZES[options.size]
  source = gguf.GGUFReader(options.tokenizer)
  vocabulary = len(source.fields["tokenizer.ggml.tokens"].data)
  writer = Writer(source, options.out, options.type)
  file = writer.file
  file.add_context_length(4096)
  file.add_embedding_length(hidden)
  file.add_block_count(layers)
  file.add_feed_forward_length(inner)
  file.add_head_count(heads)
  file.add_head_count_kv(key_heads)
  file.add_rope_dimension_count(HEAD)
  file.add_rope_freq_base(10000.0)
  file.add_layer_norm_rms_eps(1e-5)
  file.add_vocab_size(vocabulary)
  file.add_file_type(gguf.LlamaFileType[f"MOSTLY_{options.type}"])
  writer.weight("token_embd", vocabulary, hidden)
  writer.norm("output_norm", hidden)
  for layer in range(layers):
    for name, rows, columns in (
      ("attn_q", heads * HEAD, hidden),
      ("attn_k", key_heads * HEAD, hidden),
      ("attn_v", key_heads * HEAD, hidden),
      ("attn_output", hidden, heads * HEAD),
      ("ffn_gate", inner, hidden),
      ("ffn_up", inner, hidden),
      ("ffn_down", hidden, inner),
    ):
      writer.weight(f"blk.{layer}.{name}", rows, columns)
    for name in ("attn_norm", "ffn_norm"):
      writer.norm(f"blk.{layer}.{name}", hidden)
  writer.finish()


if __name__ == "__main__":
  main()
