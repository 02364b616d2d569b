"""Products of matrices and convolutions as kernels of Inductor's templates and of Husk's. Unless
kernels are measured, a rule picks the template (gemm_configs.py)."""

from __future__ import annotations

import dataclasses
import functools
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..inductor import torch_compat
from ..inductor.lines import InductorObject
from ..inductor.replace import Replacement
from . import convolution, deferred, depthwise, gemm_configs, rounded_weights, tensor_maps
from .target import Target
from .tuning import Tuning, milliseconds

# Inductor's options.
OPTIONS = {
  "deterministic": True,  # never measure, never pick by time
  "max_autotune_gemm": True,  # products from templates
  "max_autotune_gemm_backends": "TRITON",
  "max_autotune_conv_backends": "TRITON",
  "autotune_fallback_to_aten": False,
}


def replacements(target: Target, tuned: Tuning) -> Iterator[Replacement]:
  """What is replaced while Inductor compiles."""
  from torch._inductor import select_algorithm, utils
  from torch._inductor.choices import InductorChoices
  from torch._inductor.kernel import conv, mm_plus_mm
  from torch._inductor.runtime import benchmarking
  from torch._inductor.template_heuristics.triton import BaseConfigHeuristic

  # Devices with less than 68 multiprocessors get templates too. Each module that imported the name
  # is patched.
  for module in modules_with("is_big_gpu", utils.is_big_gpu):
    yield module, "is_big_gpu", lambda *args, **kwargs: True
  yield (
    mm_plus_mm,
    "tuned_mm_plus_mm",
    functools.partial(_sum_of_products, mm_plus_mm.tuned_mm_plus_mm),
  )
  append = select_algorithm.TritonTemplate.maybe_append_choice
  if not tuned.measures:
    append = deferred.appending(append)
  marking = rounded_weights.marking(append)
  yield select_algorithm.TritonTemplate, "maybe_append_choice", marking
  for template in (conv.conv2d_template, conv.conv3d_template):
    method = functools.partial(_with_tf32_as_torch_is_set, functools.partial(marking, template))
    yield template, "maybe_append_choice", method
  beside = tensor_maps.beside(target, InductorChoices.get_template_configs)
  yield InductorChoices, "get_template_configs", beside
  yield InductorChoices, "get_conv_configs", _with_more_tiles(InductorChoices.get_conv_configs)
  prepared = functools.partialmethod(_with_exact_tiles, BaseConfigHeuristic.preprocess_mm_configs)
  yield BaseConfigHeuristic, "preprocess_mm_configs", prepared
  if tuned.measures:
    yield type(benchmarking.benchmarker), "benchmark_gpu", milliseconds
    cache = select_algorithm.AlgorithmSelectorCache
    yield cache, "__call__", functools.partialmethod(_measured, cache.__call__, tuned)
  else:
    yield (
      select_algorithm.AlgorithmSelectorCache,
      "pick_deterministic_choice",
      deferred.choosing(lambda choices: tuned.pick_template(target, choices)),
    )


def _measured(
  cache: InductorObject, original: Callable[..., Any], tuned: Tuning, *args: Any, **named: Any
) -> Any:
  """Inductor's choice among templates, which prints a table of times."""
  with tuned.measured_by_inductor():
    return original(cache, *args, **named)


def _sum_of_products(
  original: Callable[..., Any],
  mat1: InductorObject,
  mat2: InductorObject,
  mat3: InductorObject,
  mat4: InductorObject,
  *,
  layout: Any = None,
) -> Any:
  """Inductor's kernel of the sum of two products, or two products and a sum: with a short depth no
  tile of its template fits, and no library has the operator."""
  import torch
  from torch._inductor import config, lowering, select_algorithm

  table, aten = lowering.lowerings, torch.ops.aten
  if "ATEN" not in config.max_autotune_gemm_backends:
    try:
      return original(mat1, mat2, mat3, mat4, layout=layout)
    except select_algorithm.NoValidChoicesError:
      pass
  return table[aten.add](table[aten.mm](mat1, mat2), table[aten.mm](mat3, mat4))


def lowerings(target: Target, tuned: Tuning, folds: bool) -> dict[Any, Callable[..., Any]]:
  """The lowering of convolutions, which takes the templates of Husk where there are some; and if
  what depends on constants alone is computed once, those of products, whose weights are rounded."""
  import torch
  from torch._inductor import lowering
  from torch._inductor.kernel import conv

  aten = torch.ops.aten
  op = aten.convolution.default
  del conv  # importing it registers Inductor's lowering
  lowered = convolution.lowering(
    target, tuned.takes_template, tuned.pick_tiles, lowering.lowerings[op]
  )
  lowered = depthwise.lowering(lowered)
  if not folds:
    return {op: lowered}
  weights = {aten.mm: 1, aten.bmm: 1, aten.addmm: 2, aten.baddbmm: 2}  # by place
  return {op: functools.partial(_with_rounded_kernel, lowered)} | {
    product.default: functools.partial(
      _with_rounded_weight, lowering.lowerings[product.default], place
    )
    for product, place in weights.items()
  }


def lowerings_beside_cudnn() -> dict[Any, Callable[..., Any]]:
  """The lowering of convolutions where cuDNN computes them, all but those with one tap."""
  import torch
  from torch._inductor import lowering
  from torch._inductor.kernel import conv

  op = torch.ops.aten.convolution.default
  del conv  # importing it registers Inductor's lowering
  return {op: functools.partial(convolution.with_products_in_tf32, lowering.lowerings[op])}


def _with_rounded_kernel(
  original: Callable[..., Any], x: InductorObject, weight: InductorObject, *rest: Any
) -> Any:
  """A convolution whose kernel is rounded once, if it is a weight and the products in tf32."""
  *_, transposed, _, groups = rest
  if groups == 1 and not transposed and convolution.is_in_tf32(x, weight):
    weight = rounded_weights.once(weight)
  return original(x, weight, *rest)


def _with_rounded_weight(
  original: Callable[..., Any], place: int, *args: Any, **kwargs: Any
) -> Any:
  """A product whose second factor is rounded once, if it is a weight and the product in tf32."""
  factors = list(args)
  if torch_compat.are_products_in_tf32():
    factors[place] = rounded_weights.once(factors[place])
  return original(*factors, **kwargs)


def _tiled(config: InductorObject, tiles: gemm_configs.Tiles) -> Any:
  """A configuration of Inductor's with these tiles."""
  return dataclasses.replace(
    config,
    block_m=tiles.m,
    block_n=tiles.n,
    block_k=tiles.k,
    num_stages=tiles.stages,
    num_warps=tiles.warps,
  )


def _with_exact_tiles(
  self: Any, original: Callable[..., Any], *sizes: Any, configs: Sequence[Any], **rest: Any
) -> Any:
  """BaseConfigHeuristic.preprocess_mm_configs, with tiles of their own for products in f32 without
  tf32."""
  is_f32 = rest.get("dtype_size") == 4
  if is_f32 and rest.get("op_name") != "conv" and not torch_compat.are_products_in_tf32():
    configs = [_tiled(configs[0], tiles) for tiles in gemm_configs.WITHOUT_TENSOR_CORES]
  return original(self, *sizes, configs=configs, **rest)


def _with_more_tiles(original: Callable[..., Any]) -> Callable[..., Any]:
  """InductorChoices.get_conv_configs with more tiles."""

  def get_conv_configs(*args: Any) -> Any:
    found = original(*args)
    configs = list(found.keywords["configs"])
    configs += [_tiled(configs[0], tiles) for tiles in gemm_configs.CONVOLUTIONS]
    return functools.partial(found, configs=configs)

  return get_conv_configs


def _with_tf32_as_torch_is_set(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
  """TritonTemplate.maybe_append_choice of a convolution."""
  return original(*args, **{**kwargs, "ALLOW_TF32": torch_compat.convolutions_in_tf32()})


def modules_with(name: str, value: Any) -> list[types.ModuleType]:
  """Modules of Inductor in which `name` is `value`."""
  return [
    module
    for key, module in sorted(sys.modules.items())
    if key.startswith("torch._inductor") and getattr(module, name, None) is value
  ]
