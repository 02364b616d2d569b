"""Compiling for a CUDA target on a machine without a GPU.

Inductor and Triton ask the device and the driver a few questions while they compile. `cuda(target)` answers them from
a description of the target (`targets/*.json`) and puts everything back afterwards. All such stand-ins are in this
file. `torch.cuda.is_available()` stays False on purpose: fake tensors on "cuda" then leave the driver alone.
"""

import contextlib
import contextvars
import dataclasses
import functools
import json
import pathlib
import subprocess
import types

from . import decompositions, products, tuning, versions

TARGETS = pathlib.Path(__file__).parent / "targets"


@dataclasses.dataclass(frozen=True)
class Target:
  """What the compilers want to know of a device. Field names are those of `torch.cuda.get_device_properties`, sizes in
  bytes, clocks in kHz, the bus in bits; `arch` is what the images are made for, `key` the name of the description."""

  key: str
  name: str
  major: int
  minor: int
  arch: str
  warp_size: int
  multi_processor_count: int
  max_threads_per_block: int
  max_threads_per_multi_processor: int
  regs_per_multiprocessor: int
  shared_memory_per_block: int
  shared_memory_per_block_optin: int
  shared_memory_per_multiprocessor: int
  L2_cache_size: int
  total_memory: int
  memory_clock_rate: int
  memory_bus_width: int
  clock_rate: int

  @staticmethod
  def load(what):
    """The target called `what` ("h200"), or the one that the JSON file `what` describes."""
    path = pathlib.Path(what)
    if path.suffix != ".json":
      path = TARGETS / f"{what}.json"
    if not path.is_file():
      raise ValueError(f"no CUDA target {str(what)!r}: known are {', '.join(names())}, or give the path of a JSON file")
    rows = json.loads(path.read_text())
    fields = {field.name for field in dataclasses.fields(Target)} - {"key"}
    for wrong in sorted(fields ^ set(rows)):
      raise ValueError(f"{path}: {'lacks' if wrong in fields else 'has an unknown'} field {wrong!r}")
    return Target(key=path.stem, **rows)

  @property
  def capability(self):
    return self.major * 10 + self.minor

  def properties(self):
    """Stands in for what `torch.cuda.get_device_properties` returns."""
    return types.SimpleNamespace(**{k: v for k, v in dataclasses.asdict(self).items() if k not in ("key", "arch")},
                                 gcnArchName="", is_integrated=0, is_multi_gpu_board=0)


def names():
  """The targets that come with the package."""
  return sorted(path.stem for path in TARGETS.glob("*.json"))


# Compiling with these gives Triton kernels for everything, without measuring anything on a device.
OPTIONS = {
    "always_keep_tensor_constants": True,
    "compile_threads": 1,               # worker processes know nothing of the stand-ins
    "deterministic": True,              # never measure, never pick by time
    "fx_graph_cache": False,
    "joint_graph_constant_folding": False,  # it computes on the device
    "use_static_cuda_launcher": False,  # it wants a driver
    "shape_padding": False,             # decides by measuring
    "max_autotune": False,
    "max_autotune_gemm": True,          # products from templates,
    "max_autotune_gemm_backends": "TRITON",
    "max_autotune_conv_backends": "TRITON",
    "autotune_fallback_to_aten": False,
    "benchmark_epilogue_fusion": False,
    "epilogue_fusion": True,
    "combo_kernels": False,
    "triton.autotune_at_compile_time": False,
    "triton.store_cubin": False,
    "triton.cudagraphs": False,
    "triton.enable_pdl": False,         # waits.py places the wait itself
    "triton.unique_user_kernel_names": True,
    "triton.mix_order_reduction": False,
    "triton.cooperative_reductions": False,
    "triton.enable_persistent_tma_matmul": False,
}

_current = contextvars.ContextVar("husk_cuda_target", default=None)


def current():
  """The target of the `cuda` that is open, or None."""
  return _current.get()


class _Driver:
  """Stands in for Triton's NVIDIA driver: answers what compiling asks, and can launch nothing."""

  def __init__(self, target):
    from triton.backends.compiler import GPUTarget
    self._target = GPUTarget("cuda", target.capability, target.warp_size)
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

  def get_current_target(self):
    return self._target

  def get_current_device(self):
    return 0

  def set_current_device(self, device):
    pass

  def get_device_capability(self, device=0):
    return divmod(self._target.arch, 10)

  def get_active_torch_device(self):
    import torch
    return torch.device("cuda", 0)


@contextlib.contextmanager
def cuda(target, way="templates", tuned=None):
  """While open, torch.export and Inductor compile for `target`; `way` is how products are made (products.py), `tuned` how
  configurations are chosen (tuning.py). Where they are measured the GPU is here, and asked itself what it can be asked. Not
  re-entrant; one thread."""
  tuned = tuned or tuning.Tuning("heuristic")
  if _current.get() is not None:
    raise RuntimeError(f"already compiling for {_current.get().name}: close that `cuda` first")
  from torch._inductor import config
  known = versions.known_options({**OPTIONS, **products.options(way), **tuning.options(tuned.way)})
  _learn_patterns()
  _check_assembler(target)
  with contextlib.ExitStack() as stack:
    stack.callback(_forget)     # runs last: nothing learnt of this target stays
    stack.enter_context(decompositions.one_row())
    for place, name, stand_in in (*_stand_ins(target), *(() if tuned.measures else _without_a_gpu(target, tuned))):
      stack.enter_context(_patched(place, name, stand_in))
    if not tuned.measures:
      stack.enter_context(_triton_driver(_Driver(target)))
    stack.enter_context(_triton_knobs(target))
    stack.enter_context(_worker_properties(target))
    stack.enter_context(config.patch(known))
    _forget()
    token = _current.set(target)
    stack.callback(_current.reset, token)
    yield target


def moved(exported):
  """A copy of the ExportedProgram `exported` on "cuda:0" whose weights are fake: they keep their names, shapes and
  ties, and no byte of them is copied. For use under `cuda`."""
  import copy
  import torch
  from torch._guards import detect_fake_mode
  from torch.export.passes import move_to_device_pass
  from torch.utils import _pytree as pytree
  graph = copy.deepcopy(exported.graph_module)
  for node, copied in zip(exported.graph.nodes, graph.graph.nodes):
    copied.name = node.name     # the copy renames what is called like a function of Python, as `input`
  mode = detect_fake_mode([node.meta["val"] for node in graph.graph.nodes if node.meta.get("val") is not None])
  fakes = {}

  def fake(value):
    if not isinstance(value, torch.Tensor):
      return value
    key = (value.untyped_storage()._cdata, value.dtype, value.storage_offset(), value.size(), value.stride())
    if key not in fakes:
      made = torch.empty_strided(value.size(), value.stride(), dtype=value.dtype, device="cuda:0")
      fakes[key] = torch.nn.Parameter(made, value.requires_grad) if isinstance(value, torch.nn.Parameter) else made
    return fakes[key]

  mode = mode or torch._subclasses.FakeTensorMode()
  with mode:
    weights = {name: fake(value) for name, value in exported.state_dict.items()}
    constants = {name: fake(value) for name, value in exported.constants.items()}
    examples = pytree.tree_map(fake, exported.example_inputs)
    copied = exported._update(graph, copy.deepcopy(exported.graph_signature), state_dict=weights, constants=constants)
    copied._example_inputs = None
    copied = move_to_device_pass(copied, "cuda:0")
  # The pass made every parameter anew, tied or not.
  copied._state_dict, copied._constants, copied._example_inputs = weights, constants, examples
  return copied


def _stand_ins(target):
  """(object, attribute, replacement) of what asks for a device's properties, or for the bytes of weights."""
  import torch
  from torch._dynamo.device_interface import CudaInterface
  from torch._inductor import graph, utils
  from torch._inductor.fx_passes import joint_graph
  from torch._inductor.runtime import triton_heuristics
  properties = target.properties()
  capability = (target.major, target.minor)

  yield CudaInterface, "is_available", staticmethod(lambda: True)
  yield CudaInterface, "is_bf16_supported", staticmethod(lambda *args, **kwargs: target.major >= 8)
  for place in (CudaInterface, torch.cuda):
    keep = staticmethod if place is CudaInterface else lambda function: function
    yield place, "get_device_properties", keep(lambda device=None: properties)
    yield place, "current_device", keep(lambda: 0)
    yield place, "device_count", keep(lambda: 1)
  yield torch.cuda, "get_device_capability", lambda device=None: capability
  yield torch.cuda, "get_device_name", lambda device=None: target.name
  for cuda_env in versions.cuda_environment():
    yield cuda_env, "get_cuda_arch", lambda: str(target.capability)
    yield cuda_env, "get_cuda_version", lambda: torch.version.cuda

  # Templates are offered below 68 multiprocessors too. Modules that imported the name hold it themselves.
  for module in _modules_with("is_big_gpu", utils.is_big_gpu):
    yield module, "is_big_gpu", lambda *args, **kwargs: True

  # Weights are fake: they have identity, but no address.
  for module in _modules_with("is_same_tensor", utils.is_same_tensor):
    yield module, "is_same_tensor", lambda one, other: one is other
  yield graph.GraphLowering, "constant_name", _constant_name(graph.GraphLowering.constant_name)

  # The patterns were learnt on the CPU (`_learn_patterns`); they match graphs of either device.
  learnt = joint_graph.lazy_init
  yield joint_graph, "lazy_init", lambda device=None: learnt(torch.device("cpu"))

  # Inductor compiles Triton kernels only; one in Gluon begins at another form.
  yield triton_heuristics, "ASTSource", versions.kernel_source


def _without_a_gpu(target, tuned):
  """The same of what would launch kernels, or choose by time."""
  from torch._inductor import select_algorithm
  from torch._inductor.runtime import triton_helpers, triton_heuristics
  yield select_algorithm.AlgorithmSelectorCache, "pick_deterministic_choice", (
      lambda self, choices: tuned.pick_template(target, choices))
  yield triton_helpers, "set_driver_to_gpu", lambda: None
  yield triton_heuristics.CachingAutotuner, "_make_launchers", lambda self: None


def _check_assembler(target):
  """Triton brings assemblers of its own; one that is older than the target says so here, with a remedy."""
  from triton import knobs
  tool, variable = ((knobs.nvidia.ptxas_blackwell, "TRITON_PTXAS_BLACKWELL_PATH") if target.major >= 10 and
                    hasattr(knobs.nvidia, "ptxas_blackwell") else (knobs.nvidia.ptxas, "TRITON_PTXAS_PATH"))
  if not _assembles(tool.path, target.arch):
    raise ValueError(f"{target.name}: the assembler {tool.version} that comes with Triton does not know {target.arch}; "
                     f"set {variable} to a newer ptxas")


@functools.cache
def _assembles(path, arch):
  nothing = ".version 7.0\n.target sm_80\n.address_size 64\n"
  made = subprocess.run([path, f"--gpu-name={arch}", "-o", "/dev/null", "-"], input=nothing, text=True, check=False,
                        capture_output=True)
  return "is not defined for option" not in made.stderr


def _modules_with(name, what):
  """Modules of Inductor that hold `what` under `name`."""
  import sys
  return [module for key, module in sorted(sys.modules.items())
          if key.startswith("torch._inductor") and getattr(module, name, None) is what]


def _learn_patterns():
  """Traces Inductor's replacement patterns, once a process, before anything stands in for a device."""
  import torch
  from torch._inductor.fx_passes import joint_graph
  joint_graph.lazy_init(torch.device("cpu"))


def _constant_name(original):
  """A CPU constant that a CUDA kernel wants becomes a fake CUDA constant: nothing is copied to a device."""

  def constant_name(self, name, device_override):
    import torch
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
    value = self.constants[name]
    if device_override is None or device_override.type != "cuda" or value.device == device_override:
      return original(self, name, device_override)
    key = f"{name}_{device_override.type}{device_override.index or 0}"
    if key not in self.constants:
      with torch.utils._python_dispatch._disable_current_modes():
        mode = value.fake_mode if isinstance(value, FakeTensor) else FakeTensorMode()
        with mode:
          self.constants[key] = torch.empty_strided(value.size(), value.stride(), dtype=value.dtype,
                                                    device=device_override)
      self.constant_reprs[key] = f"{key} {value.dtype!r} {tuple(value.size())!r} {tuple(value.stride())!r}"
      self.allocated_constant_name[key] = self.allocated_constant_name.get(name, name)
    return key

  return constant_name


# What is put in place and back


@contextlib.contextmanager
def _patched(place, name, stand_in):
  own = vars(place).get(name)
  setattr(place, name, stand_in)
  try:
    yield
  finally:
    if own is None:
      delattr(place, name)
    else:
      setattr(place, name, own)


@contextlib.contextmanager
def _triton_driver(stand_in):
  from triton.runtime import driver
  before = getattr(driver, "_active", None)
  driver.set_active(stand_in)
  try:
    yield
  finally:
    driver._active = before


@contextlib.contextmanager
def _triton_knobs(target):
  """No line tables: they would hold the paths of this machine."""
  from triton import knobs
  with knobs.compilation.scope():
    knobs.compilation.disable_line_info = True
    yield


@contextlib.contextmanager
def _worker_properties(target):
  from torch._dynamo import device_interface
  tables = ((device_interface.caching_worker_device_properties, [target.properties()]),
            (device_interface.caching_worker_current_devices, 0))
  before = [dict(table) for table, _ in tables]
  for table, value in tables:
    table["cuda"] = value
  try:
    yield
  finally:
    for (table, _), old in zip(tables, before):
      table.clear()
      table.update(old)


def _forget():
  """Empties every cache that holds an answer about the device."""
  import sys
  from torch._inductor.runtime.hints import DeviceProperties
  DeviceProperties.create.cache_clear()
  for module in versions.MODULES_WITH_DEVICE_CACHES:
    for value in list(vars(sys.modules[module]).values()) if module in sys.modules else ():
      if isinstance(value, functools._lru_cache_wrapper) and value.__module__ == module:
        value.cache_clear()
