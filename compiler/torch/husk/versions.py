"""Everything that differs between versions of torch, and everything private of it that is asked for in one place.

Tested with torch 2.11 and 2.15.
"""

import contextlib
import functools
import os
import pathlib
import subprocess

TESTED = ("2.11", "2.15")

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
  # Who wants eager's random numbers (config.fallback_random) wants their operators in the model's order.
  ordered = {"reorder_for_peak_memory": False} if config.fallback_random else {}
  return {key: value for key, value in {**OPTIONS, **ordered, **more}.items() if _has(config, key)}


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
def host_codegen(vectors, mark):
  """While open, Inductor does not put C++ loop nests that it did not fuse into one function; it writes vectors of the class
  `vectors` ("VecAVX2") of cpu_vec_isa, whatever this machine has; and before each loop nest stands a line of `mark` and how
  many elements the loops go over, in C++."""
  from torch._inductor import cpu_vec_isa
  from torch._inductor.codegen.cpp import CppKernel, CppScheduling, cexpr_index
  from torch._inductor.utils import sympy_product
  isa, write_loops = getattr(cpu_vec_isa, vectors)(), CppKernel.codegen_loops_impl

  def marked(self, nest, code, *args):
    code.writeline(mark + cexpr_index(self.rename_indexing(sympy_product(self.call_ranges))))
    return write_loops(self, nest, code, *args)

  with contextlib.ExitStack() as stack:
    for place, name, value in ((CppScheduling, "ready_to_flush", lambda self: True),
                               (CppKernel, "codegen_loops_impl", marked),
                               (cpu_vec_isa, "valid_vec_isa_list", lambda: [isa]),
                               (type(isa), "__bool__", lambda self: True)):
      stack.callback(setattr, place, name, getattr(place, name))
      setattr(place, name, value)
    yield


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


@contextlib.contextmanager
def kept_copies():
  """While open, Inductor keeps copies of what is written later. It takes a clone for nothing where the shapes are equal, so
  that `kept = x.clone(); x.copy_(y)` would give y for `kept`: torch.compile of 2.11 and 2.15 does."""
  from torch._inductor.fx_passes import post_grad
  before = post_grad.remove_noop_ops

  def remove(graph):
    kept = _copies_of_written(graph, post_grad.noop_registry)
    targets = {node: node.target for node in kept}
    for node in kept:
      node.target = _copy
    try:
      return before(graph)
    finally:
      for node, target in targets.items():
        node.target = target

  post_grad.remove_noop_ops = remove
  try:
    yield
  finally:
    post_grad.remove_noop_ops = before


def _copy(*args, **kwargs):
  raise AssertionError("stands for an operator while a pass runs, and is never called")


def _copies_of_written(graph, candidates):
  """The nodes among `candidates` (operators) that make new memory of an input or buffer which a later node writes."""
  storage = {}     # node -> the input or buffer that it is a view of
  found, written = [], set()
  for node in graph.nodes:
    if node.op in ("placeholder", "get_attr"):
      storage[node] = node.target if node.op == "get_attr" else node
    schema = getattr(node.target, "_schema", None)
    if node.op != "call_function" or schema is None or not node.args:
      continue
    sources = [argument for argument in node.all_input_nodes if argument in storage]
    if schema.is_mutable:
      written |= {storage[argument] for argument in sources if argument is node.args[0]}
    elif any(result.alias_info is not None for result in schema.returns):
      storage.update({node: storage[argument] for argument in sources[:1]})
    elif node.target in candidates and sources:
      found.append((node, {storage[argument] for argument in sources}))
  return [node for node, of in found if of & written]


# What stands before and behind Inductor's headers of C++ kernels. Those of 2.15 throw where those of 2.11 call a function:
# host kernels are compiled without exceptions, and a failed check leaves by `fail` (host_prefix.h). The headers of the
# compiler, in which the word must keep its meaning, come first.
_COMPILERS_HEADERS = """
algorithm array atomic bit cassert cfloat climits cmath complex cstddef cstdint cstdlib cstring exception
functional initializer_list iomanip iosfwd iostream iterator limits map memory omp.h optional
ostream ranges sstream stdexcept string string_view tuple type_traits typeinfo unordered_map utility variant
vector
"""
HOST_PRELUDE = "\n".join(
    ["#if __has_include(<torch/headeronly/util/TypeCast.h>)", *(f"#include <{name}>" for name in _COMPILERS_HEADERS.split()),
     "#if defined(__x86_64__)", "#include <immintrin.h>", "#elif defined(__aarch64__)", "#include <arm_neon.h>", "#endif",
     "namespace husk_kernels { [[noreturn]] static void fail(int check); }",
     "#define throw husk_kernels::fail(HUSK_UNNAMED_CHECK), (void)", "#endif"])
HOST_POSTLUDE = "#undef throw"

# What lines of a C++ kernel of 2.15 hold that tell a global variable where to note a division by zero: kernels of several
# sessions would share it. Without them the division is a failed check at once.
HOST_NOTE = "inductor_cpu_integer_div_error"


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


def guards(exported):
  """What torch.export found that must hold, as Python text."""
  return list(getattr(exported, "_guards_code", None) or ())


def with_guards(exported, of):
  """The program, with the guards of another; torch drops them when it decomposes one."""
  exported._guards_code = guards(of)
  return exported


def argument_names(exported):
  """The names of a program's positional and keyword arguments, of `*many` one for each."""
  signature = exported.module_call_graph[0].signature
  return signature and signature.forward_arg_names


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


def kernel_source(function, *rest):
  """What Triton compiles of a kernel."""
  from triton.compiler import ASTSource
  from triton.experimental.gluon._runtime import GluonASTSource
  return (GluonASTSource if function.is_gluon() else ASTSource)(function, *rest)


def gluon(text):
  """The text of a Gluon kernel as the Triton at hand has its functions, from one that is written for 3.6."""
  from triton.experimental.gluon.language.nvidia.ampere import async_copy
  return text.replace(".async_copy_global_to_shared(", ".async_load(") if hasattr(async_copy, "async_load") else text


def cuda_environment():
  """The module that knows the installed CUDA, where there is one."""
  import importlib
  try:
    return [importlib.import_module("torch._inductor.codegen.cuda.cuda_env")]
  except ModuleNotFoundError:
    return []
