"""What `quantization_config` of a checkpoint says about its weights: a row for each
`quant_method`."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from .errors import CheckpointError
from .layouts import Scheme

Config = Mapping[str, Any]
# The schemes that a weight may have, by the name of its module and the names of the module's class
# and of those that it is made from. The first one for which there are tensors counts.
SchemesOf = Callable[[str, Sequence[str]], Iterator[Scheme]]


def schemes_of(config: Config) -> SchemesOf:
  """The function that knows the schemes of weights. Raises CheckpointError if the configuration has
  something that does not load."""
  method = str(config.get("quant_method", config.get("quant_type", ""))).lower()
  if method not in _METHODS:
    raise CheckpointError(
      f"quant_method {method!r} is not known, only {', '.join(map(repr, _METHODS))}"
    )
  return _METHODS[method](config)


def _number(config: Config, *keys: str, otherwise: int | None = None) -> int:
  for key in keys:
    value = config.get(key)
    if isinstance(value, int) and not isinstance(value, bool):
      return value
  if otherwise is None:
    raise CheckpointError(f"the configuration has no number {' or '.join(keys)}")
  return otherwise


def _bits(bits: int, allowed: tuple[int, ...], method: str) -> int:
  if bits not in allowed:
    raise CheckpointError(f"{method} with {bits} bits: only {allowed} load")
  return bits


def _group(size: int | None) -> int:
  """0 if there is one group for all columns."""
  return 0 if size is None or size < 1 else size


def _gptq(config: Config) -> SchemesOf:
  form = str(config.get("checkpoint_format", config.get("format", "gptq"))).lower()
  offsets = {"gptq": 1, "gptq_v2": 0}
  if form not in offsets:
    raise CheckpointError(f"GPTQ's checkpoint_format {form!r} is not known, only {list(offsets)}")
  words = config.get("pack_dtype", "int32")
  if words != "int32":
    raise CheckpointError(f"GPTQ's pack_dtype {words!r} is not known, only 'int32'")
  dynamic = config.get("dynamic") or {}

  def schemes(name: str, _classes: Sequence[str]) -> Iterator[Scheme]:
    found = config
    for pattern, changes in dynamic.items():
      sign, rest = (pattern[0], pattern[2:]) if pattern[:2] in ("+:", "-:") else ("+", pattern)
      if re.match(rest, name):
        if sign == "-":
          return
        found = {**config, **changes}
        break
    yield Scheme(
      "gptq",
      _bits(_number(found, "bits"), (2, 3, 4, 8), "GPTQ"),
      _group(_number(found, "group_size", otherwise=-1)),
      zero_offset=offsets[form],
    )

  return schemes


def _awq(config: Config) -> SchemesOf:
  form = str(config.get("version", config.get("format", "gemm"))).lower()
  if form != "gemm":
    raise CheckpointError(f"AWQ's version {form!r} is not known, only 'gemm'")
  bits = _bits(_number(config, "bits", "w_bit"), (4,), "AWQ")
  group = _group(_number(config, "group_size", "q_group_size"))
  return lambda _name, _classes: iter([Scheme("awq", bits, group)])


def _fp8(config: Config) -> SchemesOf:
  size = config.get("weight_block_size")
  block = _block(size, "weight_block_size") if size else None
  is_dynamic = config.get("activation_scheme", "dynamic") == "dynamic"
  activations = {
    "num_bits": 8,
    "type": "float",
    "dynamic": is_dynamic,
    "strategy": ("group" if block else "token") if is_dynamic else "tensor",
    "group_size": block[1] if block else None,
  }
  schemes = [
    Scheme(layout, 8, block=block, activations=activations) for layout in ("inverse", "plain")
  ]
  return lambda _name, _classes: iter(schemes)


def _block(size: Any, key: str) -> tuple[int, int]:
  if (
    not isinstance(size, (list, tuple))
    or len(size) != 2
    or not all(isinstance(one, int) and one > 0 for one in size)
  ):
    raise CheckpointError(f"{key} is {size!r}, not two numbers over 0")
  return size[0], size[1]


def _mxfp4(_config: Config) -> SchemesOf:
  return lambda _name, _classes: iter([Scheme("mxfp4-stack", 4, 32)])


def _modelopt(config: Config) -> SchemesOf:
  algorithm = str(
    config.get("quant_algo", config.get("quantization", {}).get("quant_algo"))
  ).upper()
  schemes = {
    "NVFP4": Scheme("modelopt-nvfp4", 4, 16),
    "FP8": Scheme("plain", 8, activations=_STATIC_FP8),
  }
  if algorithm not in schemes:
    raise CheckpointError(f"modelopt's quant_algo {algorithm!r} is not known, only {list(schemes)}")
  return lambda _name, _classes: iter([schemes[algorithm]])


_STATIC_FP8 = {"num_bits": 8, "type": "float", "dynamic": False, "strategy": "tensor"}


def _compressed(config: Config) -> SchemesOf:
  for key in ("sparsity_config", "transform_config"):
    settings = config.get(key)
    if settings and settings.get("format", "") != "dense" and settings != {"config_groups": {}}:
      raise CheckpointError(f"compressed-tensors with {key} does not load: {settings}")
  groups = config.get("config_groups")
  if not isinstance(groups, dict) or not groups:
    raise CheckpointError("compressed-tensors: the configuration has no config_groups")
  rows = [_compressed_group(config, key, group) for key, group in groups.items()]

  def schemes(name: str, classes: Sequence[str]) -> Iterator[Scheme]:
    # Groups that name modules come before those that name classes.
    by_name = [scheme for targets, scheme in rows if _targets(targets, name, ())]
    by_class = [scheme for targets, scheme in rows if _targets(targets, name, classes)]
    yield from (by_name or by_class)[:1]

  return schemes


def _targets(targets: list[str], name: str, classes: Sequence[str]) -> bool:
  return any(
    re.match(target[3:], name) if target.startswith("re:") else target in (name, *classes)
    for target in targets
  )


# How compressed-tensors calls a format -> the layout, the bits that it may have, and the group if
# the format has only one.
_FORMATS: dict[str, tuple[str, tuple[int, ...], int | None]] = {
  "pack-quantized": ("packed", (2, 3, 4, 8), None),
  "int-quantized": ("plain", (8,), None),
  "float-quantized": ("plain", (8,), None),
  "naive-quantized": ("plain", (8,), None),
  "nvfp4-pack-quantized": ("nvfp4", (4,), 16),
  "mxfp4-pack-quantized": ("mxfp4", (4,), 32),
}


def _compressed_group(config: Config, key: str, group: Config) -> tuple[list[str], Scheme]:
  """What a group of modules is called, and its scheme."""
  form = group.get("format") or config.get("format")
  weights = group.get("weights")
  if form not in _FORMATS:
    raise CheckpointError(
      f"compressed-tensors: the format {form!r} of {key} does not load, only "
      f"{', '.join(map(repr, _FORMATS))}"
    )
  if not isinstance(weights, dict):
    raise CheckpointError(f"compressed-tensors: {key} has no weights, only activations")
  layout, bits, fixed_group = _FORMATS[form]
  strategy = weights.get("strategy") or ("group" if weights.get("group_size") else "tensor")
  known = ("tensor", "channel", "group", "tensor_group", "block")
  if strategy not in known:
    raise CheckpointError(f"compressed-tensors: the strategy {strategy!r} of {key} is not known")
  is_grouped = strategy in ("group", "tensor_group")
  size = _number(weights, "group_size", otherwise=0) if is_grouped else 0
  block = _block(weights.get("block_structure"), "block_structure") if strategy == "block" else None
  scheme = Scheme(
    layout,
    _bits(_number(weights, "num_bits"), bits, f"compressed-tensors' {form}"),
    fixed_group or _group(size),
    block,
    activations=group.get("input_activations"),
  )
  return [str(one) for one in group.get("targets", [])], scheme


_METHODS: dict[str, Callable[[Config], SchemesOf]] = {
  "gptq": _gptq,
  "awq": _awq,
  "fp8": _fp8,
  "mxfp4": _mxfp4,
  "modelopt": _modelopt,
  "compressed-tensors": _compressed,
}


def is_dropped(name: str) -> bool:
  """Whether a tensor has no part in the weights: scales of activations and of caches, and what a
  model computes itself."""
  return any(fnmatch.fnmatchcase(f".{name}", pattern) for pattern in _DROPPED)


_DROPPED = (
  "*.input_scale",
  "*.input_zero_point",
  "*.input_global_scale",
  "*.output_scale",
  "*.[kvq]_scale",
  "*.[kvq]_zero_point",
  "*.rotary_emb.inv_freq",
)
