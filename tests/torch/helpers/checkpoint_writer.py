"""Writes checkpoints of safetensors in the layouts that packages publish, of random codes, and says
in float64 what they stand for."""

import json

import numpy as np
import torch
from gguf_writer import E2M1
from safetensors.torch import save_file

N, K, GROUP = 64, 128, 32


def ints(random, low, high, *shape):
  return random.integers(low, high, shape).astype(np.int64)


def scales_of(random, *shape):
  """Scales that f16 has exactly."""
  return (random.random(shape) * 0.1 + 0.01).astype(np.float16).astype(np.float64)


def wide(numbers, group):
  return numbers.repeat(group, 1)


def words_along_rows(codes, bits):
  """Codes of each row as one string of bits, the lowest ones first, in words of 32 bits."""
  n, k = codes.shape
  strings = (codes[:, :, None] >> np.arange(bits) & 1).reshape(n, -1)
  strings = np.pad(strings, ((0, 0), (0, -strings.shape[1] % 32))).reshape(n, -1, 32)
  return torch.from_numpy(
    (strings.astype(np.uint64) << np.arange(32, dtype=np.uint64)).sum(2).astype(np.uint32)
  ).view(torch.int32)


def half(numbers):
  return torch.from_numpy(np.ascontiguousarray(numbers)).to(torch.float16)


def gptq(random, bits=4, version=1, order=False, group=GROUP):
  """The tensors of a weight of N x K, and the matrix."""
  codes, groups = ints(random, 0, 1 << bits, N, K), K // group
  zeros = ints(random, 0, 1 << bits, N, groups) + (version == 1)
  scales = scales_of(random, N, groups)
  of_group = np.arange(K) // group
  if order:
    of_group = random.permutation(of_group)
  matrix = (codes - zeros[:, of_group]) * scales[:, of_group]
  stored = zeros - (version == 1)
  return {
    "qweight": words_along_rows(codes, bits).T.contiguous(),
    "qzeros": words_along_rows(stored.T, bits).contiguous(),
    "scales": half(scales.T),
    "g_idx": torch.from_numpy(of_group.astype(np.int32)),
  }, matrix


def awq_words(codes):
  """Eight codes of a row in a word, in the order of the kernels of AWQ."""
  order = np.array([0, 2, 4, 6, 1, 3, 5, 7])
  return words_along_rows(codes.reshape(codes.shape[0], -1, 8)[:, :, order].reshape(codes.shape), 4)


def awq(random):
  codes, zeros = ints(random, 0, 16, N, K), ints(random, 0, 16, N, K // GROUP)
  scales = scales_of(random, N, K // GROUP)
  matrix = (codes - wide(zeros, GROUP)) * wide(scales, GROUP)
  return {
    "qweight": awq_words(codes.T),
    "qzeros": awq_words(zeros.T),
    "scales": half(scales.T),
  }, matrix


def packed(random, bits=4, group=GROUP, zeros="", order=False):
  """compressed-tensors, pack-quantized. `zeros`: "words" or "bytes" if there are some."""
  low, groups = -(1 << bits - 1), K // group
  codes, points = ints(random, low, -low, N, K), ints(random, low, -low, N, groups)
  scales = scales_of(random, N, groups)
  of_group = np.arange(K) // group
  if order:
    of_group = random.permutation(of_group)
  if not zeros:
    points = points * 0
  tensors = {
    "weight_packed": words_along_rows(codes - low, bits),
    "weight_scale": half(scales),
    "weight_shape": torch.tensor([N, K]),
  }
  if zeros == "words":
    tensors["weight_zero_point"] = words_along_rows((points - low).T, bits).T.contiguous()
  elif zeros:
    tensors["weight_zero_point"] = torch.from_numpy(points.astype(np.int8))
  if order:
    tensors["weight_g_idx"] = torch.from_numpy(of_group.astype(np.int32))
  return tensors, (codes - points[:, of_group]) * scales[:, of_group]


def int8(random):
  codes, scales = ints(random, -128, 128, N, K), scales_of(random, N, 1)
  tensors = {"weight": torch.from_numpy(codes.astype(np.int8)), "weight_scale": half(scales)}
  return tensors, codes * scales


def float8(random, scale, shape):
  """Floats of 8 bits with scales of a shape under a name."""
  codes = torch.from_numpy(random.standard_normal((N, K))).to(torch.float8_e4m3fn)
  scales = scales_of(random, *shape)
  rows, columns = (shape[0], shape[1]) if len(shape) == 2 else (1, 1)
  spread = scales.reshape(rows, columns)
  block = (-(-N // rows), -(-K // columns)) if len(shape) < 2 or shape[1] == 1 else (32, 48)
  spread = spread.repeat(block[0], 0).repeat(block[1], 1)[:N, :K]
  stored = torch.from_numpy(np.asarray(scales, np.float32))
  return {"weight": codes, scale: stored}, codes.double().numpy() * spread


def pairs(codes):
  return torch.from_numpy((codes[..., ::2] | codes[..., 1::2] << 4).astype(np.uint8))


def nvfp4(random, names=("weight_packed", "weight_global_scale")):
  codes = ints(random, 0, 16, N, K)
  scales = torch.from_numpy(random.random((N, K // 16)) * 400).to(torch.float8_e4m3fn)
  whole = 512.0 if "packed" in names[0] else 2.0**-9
  factor = wide(scales.double().numpy(), 16) / 512
  tensors = {names[0]: pairs(codes), "weight_scale": scales, names[1]: torch.tensor([whole])}
  return tensors, E2M1[codes] * factor


def mxfp4(random):
  codes, exponents = ints(random, 0, 16, N, K), ints(random, 118, 126, N, K // 32)
  tensors = {
    "weight_packed": pairs(codes),
    "weight_scale": torch.from_numpy(exponents.astype(np.uint8)),
  }
  return tensors, E2M1[codes] * wide(2.0 ** (exponents - 127), 32)


def compressed(form, **weights):
  """A configuration of compressed-tensors."""
  activations = weights.pop("activations", None)
  group = {"targets": ["Linear"], "weights": weights, "input_activations": activations}
  return {"quant_method": "compressed-tensors", "format": form, "config_groups": {"group_0": group}}


def gptq_config(bits=4, version=1, group=GROUP, **more):
  form = "gptq" if version == 1 else "gptq_v2"
  return {
    "quant_method": "gptq",
    "bits": bits,
    "group_size": group,
    "checkpoint_format": form,
    **more,
  }


TOKENS = {"num_bits": 8, "type": "int", "strategy": "token", "dynamic": True, "symmetric": True}
AWQ_CONFIG = {"quant_method": "awq", "bits": 4, "group_size": GROUP, "version": "gemm"}

# By name: what writes a weight, and the configuration.
FORMATS = {
  "gptq": (gptq, gptq_config()),
  "gptq, 2 bits": (lambda r: gptq(r, 2), gptq_config(2)),
  "gptq, 3 bits, in order of activations": (
    lambda r: gptq(r, 3, order=True, group=64),
    gptq_config(3, group=64),
  ),
  "gptq, 8 bits, version 2": (lambda r: gptq(r, 8, 2), gptq_config(8, 2)),
  "gptq, in order of activations": (lambda r: gptq(r, order=True), gptq_config(desc_act=True)),
  "gptq, a scale for a row": (lambda r: gptq(r, group=K), gptq_config(group=-1)),
  "awq": (awq, AWQ_CONFIG),
  "packed": (
    packed,
    compressed("pack-quantized", num_bits=4, strategy="group", group_size=GROUP),
  ),
  "packed, 8 bits, zeros in words": (
    lambda r: packed(r, 8, zeros="words"),
    compressed("pack-quantized", num_bits=8, strategy="group", group_size=GROUP),
  ),
  "packed, a scale for a row, zeros in words": (
    lambda r: packed(r, group=K, zeros="words"),
    compressed("pack-quantized", num_bits=4, strategy="channel"),
  ),
  "packed, in order of activations, zeros in bytes": (
    lambda r: packed(r, zeros="bytes", order=True),
    compressed("pack-quantized", num_bits=4, strategy="group", group_size=GROUP),
  ),
  "int8": (
    int8,
    compressed("int-quantized", num_bits=8, strategy="channel", activations=TOKENS),
  ),
  "float8, a scale": (
    lambda r: float8(r, "weight_scale", (1,)),
    compressed("float-quantized", num_bits=8, type="float", strategy="tensor"),
  ),
  "float8, a scale for a row": (
    lambda r: float8(r, "weight_scale", (N, 1)),
    compressed("float-quantized", num_bits=8, type="float", strategy="channel"),
  ),
  "float8, a scale for a block": (
    lambda r: float8(r, "weight_scale", (2, 3)),
    compressed("float-quantized", num_bits=8, strategy="block", block_structure=[32, 48]),
  ),
  "fp8, a scale for a block": (
    lambda r: float8(r, "weight_scale_inv", (2, 3)),
    {"quant_method": "fp8", "weight_block_size": [32, 48]},
  ),
  "fp8, a scale": (lambda r: float8(r, "weight_scale", ()), {"quant_method": "fp8"}),
  "nvfp4": (nvfp4, compressed("nvfp4-pack-quantized", num_bits=4, type="float")),
  "nvfp4 of modelopt": (
    lambda r: nvfp4(r, ("weight", "weight_scale_2")),
    {"quant_method": "modelopt", "quant_algo": "NVFP4"},
  ),
  "mxfp4": (mxfp4, compressed("mxfp4-pack-quantized", num_bits=4, type="float")),
}


def fields_of(name, seed=0):
  """The tensors of a weight by the last parts of their names, the matrix and the configuration."""
  write, config = FORMATS[name]
  tensors, matrix = write(np.random.default_rng(seed))
  return tensors, matrix, config


def folder(path, tensors, config=None, shards=0):
  """Writes a checkpoint, in several files if `shards` is set."""
  path.mkdir(parents=True, exist_ok=True)
  if config is not None:
    (path / "config.json").write_text(json.dumps({"quantization_config": config}))
  if not shards:
    save_file(tensors, path / "model.safetensors")
    return path
  names, places = sorted(tensors), {}
  for shard in range(shards):
    file = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
    part = names[shard::shards]
    save_file({name: tensors[name] for name in part}, path / file)
    places.update(dict.fromkeys(part, file))
  (path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
  return path
