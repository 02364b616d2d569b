"""Everything that differs between versions of torch, and everything private of it that is asked for in one place.

Tested with torch 2.11; INDUCTOR names of 2.15 are in the tables too.
"""

import contextlib
import functools
import os
import pathlib
import subprocess

TESTED = ("2.11",)

# Lines of the wrapper that say nothing here: memory is planned by huskc, checks of sizes are made from the signature.
IGNORED_LINES = {
    "CommentLine", "LineContext", "FreeLine", "FreeIfNotReusedLine", "NullLine", "EnterDeviceContextManagerLine",
    "ExitDeviceContextManagerLine", "AssertSizeStrideLine", "GroupedAssertSizeStrideLine", "AssertAlignmentLine",
    "EnterDeviceContextManagerWithStreamInfoLine", "ExitDeviceContextManagerWithStreamInfoLine",
    "EnterKernelProfileScopeLine", "ExitKernelProfileScopeLine",
}

# Options that one version has and another has not are left out by `options`.
OPTIONS = {
    "fx_wrapper": True, "size_asserts": False, "alignment_asserts": False, "scalar_asserts": False,
    "nan_asserts": False,
    "compile_threads": 1, "allow_buffer_reuse": False, "memory_planning": False, "always_keep_tensor_constants": True,
    "joint_graph_constant_folding": False,     # it takes a one-element buffer for a constant, even one that is written
    "comprehensive_padding": True, "triton.mix_order_reduction": False, "triton.enable_host_side_tma": False,
    "triton.autotune_at_compile_time": False, "triton.store_cubin": False, "fx_graph_cache": False,
}


def torch_version():
  import torch
  return torch.__version__.split("+")[0]


def options(more):
  """OPTIONS and `more`, as far as this torch knows them."""
  from torch._inductor import config
  return {key: value for key, value in {**OPTIONS, **more}.items() if _has(config, key)}


def _has(config, key):
  place = config
  for part in key.split("."):
    if not hasattr(place, part):
      return False
    place = getattr(place, part)
  return True


def optional_methods():
  """Methods of the wrapper that exist in one version only and must do nothing."""
  return ("register_alignment_check_inputs", "codegen_deferred_alignment_copies", "sync_d2h_copy")


@contextlib.contextmanager
def separate_host_kernels():
  """While open, Inductor does not put C++ loop nests that it did not fuse into one function."""
  from torch._inductor.codegen.cpp import CppScheduling
  before = CppScheduling.ready_to_flush
  CppScheduling.ready_to_flush = lambda self: True
  try:
    yield
  finally:
    CppScheduling.ready_to_flush = before


@contextlib.contextmanager
def ignored_guards():
  """While open, collects (condition, value) of what Inductor took for granted of sizes. The shapes of an exported
  program are frozen, so that torch itself drops these."""
  from torch.fx.experimental.symbolic_shapes import ShapeEnv
  before, collected = ShapeEnv._check_frozen, []

  def check_frozen(self, expression, value):
    if self.frozen:
      collected.append((expression, value))
    return before(self, expression, value)

  ShapeEnv._check_frozen = check_frozen
  try:
    yield collected
  finally:
    ShapeEnv._check_frozen = before


@functools.cache
def include_paths():
  """Where the headers of Inductor's C++ kernels lie."""
  import torch
  return [str(pathlib.Path(torch.__file__).parent / "include")]


def compiler():
  """The C++ compiler: CXX, or g++."""
  return os.environ.get("CXX", "g++")


def tool_output(command, first_column=False):
  """What a tool of binutils prints."""
  text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
  return [line.split()[0] for line in text.splitlines() if line.split()] if first_column else text


def allocation_size(graph, buffer):
  """The sizes that memory is allocated for: those of the buffer, or more where it is padded."""
  sizes = getattr(graph, "get_allocation_size", None)
  return sizes(buffer) if sizes else buffer.get_size()


# Compiling for a GPU that is not there (offline.py, products.py)

# Modules with caches of answers about the device.
MODULES_WITH_DEVICE_CACHES = ("torch.utils._triton", "torch._inductor.utils", "torch._inductor.codegen.cuda.cuda_env",
                              "torch._inductor.kernel.mm")


def known_options(wanted):
  """Those of `wanted` that this torch knows."""
  from torch._inductor import config
  return {key: value for key, value in wanted.items() if _has(config, key)}


def size_hint(size):
  """What a size was in the example, or 1024 where only the data decides. 2.15 has no `size_hint` any more."""
  from torch._inductor.virtualized import V
  sizevars = V.graph.sizevars
  hint = getattr(sizevars, "optimization_hint", None) or sizevars.size_hint
  return int(hint(size, fallback=1024))


def cuda_environment():
  """The module that knows the installed CUDA, where there is one."""
  import importlib
  try:
    return [importlib.import_module("torch._inductor.codegen.cuda.cuda_env")]
  except ModuleNotFoundError:
    return []
