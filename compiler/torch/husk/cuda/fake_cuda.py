"""Compiling for a CUDA target on a machine without a GPU.

Inductor and Triton query the device and the driver while they compile. `cuda(target)` answers the
queries from a description of the target (`targets/*.json`), and restores everything afterwards. The
functions that would query, and their replacements, are in this file. `torch.cuda.is_available()`
stays False on purpose: fake tensors on "cuda" then do not call the driver.
"""

from __future__ import annotations

import contextlib
import contextvars
import copy
import functools
import operator
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ..errors import Unsupported
from ..inductor import decompositions, exported_programs, shape_functions, torch_compat
from ..inductor.replace import Replacement, replaced, replaced_entries
from . import gemm_configs, products, settings, tuning
from .target import TARGETS as TARGETS
from .target import Target
from .target import names as names

if TYPE_CHECKING:
  import torch
  from torch.export import ExportedProgram

# With these options of Inductor everything becomes Triton kernels, and nothing is measured on a
# device.
OPTIONS = {
  **settings.OPTIONS,
  **products.OPTIONS,
  "always_keep_tensor_constants": True,
  "compile_threads": 1,  # the replacements do not exist in worker processes
  "fx_graph_cache": False,
  "joint_graph_constant_folding": False,  # computes on the device
  "shape_padding": False,  # decides by measuring
  "max_autotune": False,
  "epilogue_fusion": True,
  "triton.autotune_at_compile_time": False,
  "triton.store_cubin": False,
  "triton.cudagraphs": False,
  "triton.mix_order_reduction": False,
}

_current: contextvars.ContextVar[Target | None] = contextvars.ContextVar(
  "husk_cuda_target", default=None
)


def current() -> Target | None:
  """The target of the open `cuda`, or None."""
  return _current.get()


class _Driver:
  """Replaces Triton's NVIDIA driver. It answers the queries of the compiler, and cannot launch
  kernels."""

  def __init__(self, target: Target) -> None:
    from triton.backends.compiler import GPUTarget

    self._target: Any = GPUTarget("cuda", target.capability, target.warp_size)
    properties = {
      "max_shared_mem": target.shared_memory_per_block_optin,
      "max_num_regs": target.regs_per_multiprocessor,
      "multiprocessor_count": target.multi_processor_count,
      "warpSize": target.warp_size,
      "sm_clock_rate": target.clock_rate,
      "mem_clock_rate": target.memory_clock_rate,
      "mem_bus_width": target.memory_bus_width,
    }
    self.utils = types.SimpleNamespace(get_device_properties=lambda device: dict(properties))

  def get_current_target(self) -> Any:
    return self._target

  def get_current_device(self) -> int:
    return 0

  def set_current_device(self, device: int) -> None:
    pass

  def get_device_capability(self, device: int = 0) -> tuple[int, int]:
    return divmod(self._target.arch, 10)

  def get_active_torch_device(self) -> torch.device:
    import torch

    return torch.device("cuda", 0)


@contextlib.contextmanager
def cuda(
  target: Target,
  gemm_set: str = "templates",
  tuned: tuning.Tuning | None = None,
  check_operator: Callable[[str], None] | None = None,
) -> Iterator[Target]:
  """While open, torch.export and Inductor compile for `target`.

  gemm_set: the kernels of matrix products (gemm_configs.py).
  tuned: how configurations are chosen (tuning.py). If it is `on_gpu`, the GPU is in this machine,
    and answers queries itself where it can.
  check_operator: refuses an operator that programs for the target cannot call, by its name. By
    default that are all operators that torch would run for the shapes of their results.
  `cuda` cannot be nested, and supports one thread.
  """
  tuned = tuned or tuning.Tuning("heuristic")
  if (active := _current.get()) is not None:
    raise RuntimeError(f"already compiling for {active.name}: close that `cuda` first")
  from torch._inductor import config

  known = torch_compat.known_options(
    {**OPTIONS, **gemm_configs.options(gemm_set), **tuning.options(tuned.mode)}
  )
  _learn_patterns()
  _check_assembler(target)
  with contextlib.ExitStack() as stack:
    stack.callback(_clear_caches)  # runs last, so that nothing about this target stays
    stack.enter_context(decompositions.one_row())
    replacements = [
      *_stand_ins(target, check_operator or _refuse_to_run),
      *products.replacements(target, tuned),
      shape_functions.smaller_sizes(),
    ]
    if not tuned.on_gpu:
      replacements += _without_a_gpu(target)
    stack.enter_context(replaced(*replacements))
    stack.enter_context(settings.without_line_tables())
    stack.enter_context(_worker_properties(target))
    stack.enter_context(config.patch(known))
    _clear_caches()
    token = _current.set(target)
    stack.callback(_current.reset, token)
    yield target


def moved(exported: ExportedProgram) -> ExportedProgram:
  """A copy of `exported` on "cuda:0" whose weights are fake. They keep their names, shapes and
  ties, and none of their bytes are copied. `cuda` must be open."""
  import torch
  from torch._guards import detect_fake_mode
  from torch._subclasses import FakeTensorMode
  from torch.export.passes import move_to_device_pass
  from torch.utils import _pytree as pytree

  graph = copy.deepcopy(exported.graph_module)
  for node, copied in zip(exported.graph.nodes, graph.graph.nodes):
    # The copy renames nodes that are named like a function of Python, as `input`.
    copied.name = node.name
  for module in graph.modules():
    if isinstance(module, torch.fx.GraphModule):
      _move_positional_devices(module)
  signature = copy.deepcopy(exported.graph_signature)
  _keep_dtypes_of_norms(graph, signature)
  fakes: dict[tuple[Any, ...], torch.Tensor] = {}

  def fake(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
      return value
    key = (
      value.untyped_storage()._cdata,
      value.dtype,
      value.storage_offset(),
      str(value.size()),  # torch.vmap leaves constants whose sizes vary, which have no hash
      str(value.stride()),
    )
    if key not in fakes:
      tensor = torch.empty_strided(value.size(), value.stride(), dtype=value.dtype, device="cuda:0")
      if isinstance(value, torch.nn.Parameter):
        tensor = torch.nn.Parameter(tensor, value.requires_grad)
      fakes[key] = tensor
    return fakes[key]

  values = [node.meta.get("val") for node in graph.graph.nodes]
  mode: Any = detect_fake_mode([value for value in values if value is not None])
  mode = mode or FakeTensorMode()
  with mode:
    weights = {name: fake(value) for name, value in exported.state_dict.items()}
    constants = {name: fake(value) for name, value in exported.constants.items()}
    examples = pytree.tree_map(fake, exported.example_inputs)
    program: Any = exported._update(graph, signature, state_dict=weights, constants=constants)
    program._example_inputs = None
    program = move_to_device_pass(program, "cuda:0")
  # The pass makes new parameters, even of tied ones.
  program._state_dict, program._constants, program._example_inputs = weights, constants, examples
  return exported_programs.with_guards(program, exported)


def _move_positional_devices(module: torch.fx.GraphModule) -> None:
  """Makes devices among the positional arguments of operators "cuda:0". torch's pass moves those
  that are passed by name, and that of `to`."""
  import torch

  for node in module.graph.find_nodes(
    op="call_function", target=torch.ops.prims.device_put.default
  ):
    source, _, *more = node.args
    node.args = (source, torch.device("cuda:0"), *more)


# The norms whose means and deviations are of f16 or bf16 on a CPU, and of f32 on a GPU.
_NORMS = (
  "native_layer_norm",
  "native_batch_norm",
  "_native_batch_norm_legit",
  "_native_batch_norm_legit_no_training",
  "_native_batch_norm_legit_functional",
  "_batch_norm_with_update",
  "_batch_norm_with_update_functional",
)


def _keep_dtypes_of_norms(module: torch.fx.GraphModule, signature: Any) -> None:
  """Converts the means and deviations that norms return to the dtypes that a program exported on a
  CPU promises."""
  import torch
  from torch.export.graph_signature import TensorArgument

  renamed: dict[str, str] = {}
  for node in list(module.graph.nodes):
    if node.target is not operator.getitem or node.args[1] == 0:
      continue
    source: Any = node.args[0]
    norm: Any = getattr(source.target, "_schema", None)
    value = node.meta.get("val")
    if norm is None or norm.name.removeprefix("aten::") not in _NORMS or value is None:
      continue
    if value.dtype in (torch.float16, torch.bfloat16) and value.device.type == "cpu":
      with module.graph.inserting_after(node):
        converted = module.graph.call_function(torch.ops.aten.to.dtype, (node, value.dtype))
      converted.meta = dict(node.meta)
      node.replace_all_uses_with(
        converted, lambda user, conversion=converted: user is not conversion
      )
      renamed[node.name] = converted.name
  for spec in signature.output_specs:
    if spec.arg.name in renamed:
      spec.arg = TensorArgument(name=renamed[spec.arg.name])
  if renamed:
    module.recompile()


def _stand_ins(target: Target, check_operator: Callable[[str], None]) -> Iterator[Replacement]:
  """Replacements of functions that query a device's properties, or read the bytes of weights."""
  import torch
  from torch._dynamo.device_interface import CudaInterface
  from torch._inductor import graph, utils
  from torch._inductor.fx_passes import joint_graph
  from torch._inductor.runtime import triton_heuristics
  from torch._subclasses import fake_impls, fake_tensor

  properties = target.properties()
  capability = (target.major, target.minor)

  yield CudaInterface, "is_available", staticmethod(lambda: True)
  yield CudaInterface, "is_bf16_supported", staticmethod(lambda *args, **kwargs: target.major >= 8)
  functions: dict[str, Callable[..., Any]] = {
    "get_device_properties": lambda device=None: properties,
    "current_device": lambda: 0,
    "device_count": lambda: 1,
  }
  for name, function in functions.items():
    yield CudaInterface, name, staticmethod(function)
    yield torch.cuda, name, function
  yield torch.cuda, "get_device_capability", lambda device=None: capability
  yield torch.cuda, "get_device_name", lambda device=None: target.name
  for cuda_env in torch_compat.cuda_environment():
    yield cuda_env, "get_cuda_arch", lambda: str(target.capability)
    yield cuda_env, "get_cuda_version", lambda: torch.version.cuda

  # An operator that does not tell the shapes of its results would be run on the device for them.
  for module in (fake_impls, fake_tensor):
    yield module, "run_fallback_kernel", _fallback(check_operator)
  # Asked whether cuDNN computes a batch norm. No program calls it.
  native: Any = torch._C
  yield native, "_select_batch_norm_backend", lambda *args: native._BatchNormBackend.Native

  # Fake weights have identity, but no address.
  for module in products.modules_with("is_same_tensor", utils.is_same_tensor):
    yield module, "is_same_tensor", lambda left, right: left is right
  yield graph.GraphLowering, "constant_name", _constant_name(graph.GraphLowering.constant_name)

  # Patterns that were traced on the CPU (`_learn_patterns`) match graphs of either device.
  lazy_init: Any = joint_graph.lazy_init
  yield joint_graph, "lazy_init", lambda device=None: lazy_init(torch.device("cpu"))

  # Inductor compiles kernels in Triton only; a kernel in Gluon needs another class.
  yield triton_heuristics, "ASTSource", torch_compat.kernel_source


def _refuse_to_run(name: str) -> None:
  raise Unsupported(
    f"no implementation of {name} on CUDA targets: compute it outside of the exported model"
  )


def _fallback(check_operator: Callable[[str], None]) -> Callable[..., Any]:
  """The replacement of run_fallback_kernel: it runs an operator that `check_operator` does not
  refuse on the CPU, with tensors of zeros, for the shapes of its results."""
  import torch
  from torch.utils import _pytree as pytree
  from torch.utils._mode_utils import no_dispatch

  def fallback(fake_mode: Any, op: Any, flat_args: Any, args_spec: Any, error: Any) -> Any:
    check_operator(op.name())

    def zeros(value: Any) -> Any:
      return torch.zeros_like(value, device="cpu") if fake_mode.is_our_fake(value) else value

    def fake(value: Any) -> Any:
      if not isinstance(value, torch.Tensor):
        return value
      if value.untyped_storage()._cdata in storages:  # the fake results would not be views
        raise error
      return torch.empty_strided(value.size(), value.stride(), dtype=value.dtype, device="cuda:0")

    with no_dispatch():
      leaves = [zeros(value) for value in flat_args]
      args, kwargs = pytree.tree_unflatten(leaves, args_spec)
      results = op(*args, **kwargs)
    tensors = (value for value in leaves if isinstance(value, torch.Tensor))
    storages = {tensor.untyped_storage()._cdata for tensor in tensors}
    with fake_mode:
      return pytree.tree_map(fake, results)

  return fallback


def _without_a_gpu(target: Target) -> Iterator[Replacement]:
  """Replacements of Triton's driver, and of functions that would ask it."""
  from torch._inductor.runtime import triton_helpers, triton_heuristics
  from triton import runtime

  yield runtime.driver, "_active", _Driver(target)
  yield triton_helpers, "set_driver_to_gpu", lambda: None
  yield triton_heuristics.CachingAutotuner, "_make_launchers", lambda self: None


def _check_assembler(target: Target) -> None:
  """Refuses a target that is newer than the assembler that Triton brings along."""
  from triton import knobs

  nvidia: Any = knobs.nvidia
  tool, variable = nvidia.ptxas, "TRITON_PTXAS_PATH"
  if target.major >= 10 and hasattr(nvidia, "ptxas_blackwell"):
    tool, variable = nvidia.ptxas_blackwell, "TRITON_PTXAS_BLACKWELL_PATH"
  if not _assembles(tool.path, target.arch):
    raise ValueError(
      f"{target.name}: the assembler {tool.version} that comes with Triton does not know "
      f"{target.arch}; set {variable} to a newer ptxas"
    )


@functools.cache
def _assembles(path: str, arch: str) -> bool:
  """Whether an assembler knows an architecture."""
  empty_module = ".version 7.0\n.target sm_80\n.address_size 64\n"
  process = subprocess.run(
    [path, f"--gpu-name={arch}", "-o", "/dev/null", "-"],
    input=empty_module,
    text=True,
    check=False,
    capture_output=True,
  )
  return "is not defined for option" not in process.stderr


def _learn_patterns() -> None:
  """Traces Inductor's replacement patterns, once per process, before anything is replaced."""
  import torch
  from torch._inductor.fx_passes import joint_graph

  lazy_init: Any = joint_graph.lazy_init
  lazy_init(torch.device("cpu"))


def _constant_name(original: Callable[..., str]) -> Callable[..., str]:
  """The replacement of GraphLowering.constant_name. A CPU constant that a CUDA kernel needs becomes
  a fake CUDA constant, and nothing is copied to a device."""

  def constant_name(self: Any, name: str, device_override: torch.device | None) -> str:
    import torch
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
    from torch.utils import _python_dispatch

    value = self.constants[name]
    if device_override is None or device_override.type != "cuda" or value.device == device_override:
      return original(self, name, device_override)
    key = f"{name}_{device_override.type}{device_override.index or 0}"
    if key not in self.constants:
      with _python_dispatch._disable_current_modes():
        mode = value.fake_mode if isinstance(value, FakeTensor) else FakeTensorMode()
        with mode:
          self.constants[key] = torch.empty_strided(
            value.size(), value.stride(), dtype=value.dtype, device=device_override
          )
      self.constant_reprs[key] = (
        f"{key} {value.dtype!r} {tuple(value.size())!r} {tuple(value.stride())!r}"
      )
      self.allocated_constant_name[key] = self.allocated_constant_name.get(name, name)
    return key

  return constant_name


# Replacing and restoring


@contextlib.contextmanager
def _worker_properties(target: Target) -> Iterator[None]:
  """While open, Dynamo's tables of devices have the target as the GPU."""
  properties = "torch._dynamo.device_interface.caching_worker_device_properties"
  devices = "torch._dynamo.device_interface.caching_worker_current_devices"
  with (
    replaced_entries(properties, {"cuda": [target.properties()]}),
    replaced_entries(devices, {"cuda": 0}),
  ):
    yield


def _clear_caches() -> None:
  """Empties every cache of answers about the device."""
  from torch._inductor.runtime.hints import DeviceProperties

  create: Any = DeviceProperties.create
  create.cache_clear()
  for module in torch_compat.MODULES_WITH_DEVICE_CACHES:
    for value in list(vars(sys.modules[module]).values()) if module in sys.modules else ():
      if isinstance(value, functools._lru_cache_wrapper) and value.__module__ == module:
        value.cache_clear()
