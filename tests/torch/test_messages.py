"""Failures that are planted at every layer of an export, and what a user reads.

helpers/planted.py says what a message must have. The tests of test_entry_messages.py do the same
for other ways into the exporter, those of tests/python/test_messages.py for the layers of a program
that runs.
"""

import contextlib
import errno
import importlib.util
import os
import pathlib
import subprocess
import tempfile
import types

import husk
import planted
import pytest
import sympy
import torch
from husk import devices, hir, output
from husk.cuda import kernels as cuda_kernels
from husk.hir import huskc
from husk.host import image
from husk.host import kernels as host_kernels
from husk.inductor import capture
from torch.export import Dim

FOLDER = pathlib.Path(tempfile.gettempdir())
X = torch.ones(3, 4)
HOST, GPU = "host:aarch64", "cuda:h200"


class Waves(torch.nn.Module):
  def forward(self, x):
    y = x + 1
    return torch.sin(y)


class Calls(torch.nn.Module):
  def __init__(self, function):
    super().__init__()
    self.function = function

  def forward(self, x):
    return self.function(x)


# The operator of `Waves` that fails, and its place.
WAVES = r"aten\.sin.*near test_messages\.py:\d+ return torch\.sin\(y\)"


def written(folder, function=None, args=(X,), target=HOST, **options):
  """Exports a function, or `Waves`, to a `.hir`."""
  model = Waves() if function is None else Calls(function)
  return husk.write(model, args, folder / "kept", targets=(target,), **options)


def exported(folder, model=None, args=(X,), path="model.husk", **options):
  return husk.export(model or Waves(), args, folder / path, targets=(HOST,), **options)


row = planted.Table()


# Options


@row("no target 'vulkan'", "give host.* or cuda:NAME")
def a_target_that_is_not_there(p):
  written(p.folder, target="vulkan")


@row("no target 'host:sse'", "host:avx2")
def an_instruction_set_that_is_not_there(p):
  written(p.folder, target="host:sse")


@row("h900", "known|give")
def a_gpu_that_is_not_there(p):
  written(p.folder, target="cuda:h900")


@row("tune='fast'", "give one of 'none', 'rules', 'heuristic', 'max'")
def a_mode_of_tuning(p):
  written(p.folder, target=GPU, tune="fast")


@row("tune='max' measures kernels on the GPU", "give tune='heuristic'")
def tuning_without_a_gpu(p):
  p.replace(torch.cuda, "is_available", lambda: False)
  written(p.folder, target=GPU, tune="max")


@row("asserts='loud'", "give one of 'status', 'trap', 'off'")
def an_option_of_asserts(p):
  written(p.folder, asserts="loud")


@row("no option 'optimise'", "it has targets")
def an_unknown_option(p):
  written(p.folder, optimise=True)


@row("no option 'target'", "targets may be meant")
def an_option_that_is_nearly_right(p):
  exported(p.folder, target="host")


@row("libraries='yes'", "give True or False")
def an_option_that_is_no_bool(p):
  written(p.folder, libraries="yes")


@row("nothing.json")
def records_that_are_not_there(p):
  written(p.folder, target=GPU, records=(p.folder.name + "/nothing.json",))


@row("no target 'cuda:h200:large'", "give 'templates' or 'fused' behind cuda:h200:")
def kernels_of_products(p):
  written(p.folder, target="cuda:h200:large")


@row("int is no model", "give an nn.Module or a torch.export.ExportedProgram")
def what_is_no_model(p):
  husk.write(5, (X,), p.folder / "kept", targets=(HOST,))


@row("Waves has no method decode")
def a_method_that_is_not_there(p):
  function = husk.Function(Waves(), (X,), method="decode")
  husk.write({"decode": function}, p.folder / "kept", targets=(HOST,))


@row("no path is given", r"export\(model, args, path\)")
def no_path(p):
  husk.export(Waves(), (X,))


@row("there are no functions", r"Function\(\.\.\.\)")
def no_functions(p):
  husk.export({}, p.folder / "model.husk")


@row("'a b' is no name of a function", "give letters, digits")
def a_name_of_a_function(p):
  husk.export({"a b": (Waves(), (X,))}, p.folder / "model.husk")


@row("is a folder", "give the name of a file")
def a_path_that_is_a_folder(p):
  exported(p.folder, path=".")


@row("cannot be written", "is no folder")
def a_path_below_a_file(p):
  (p.folder / "file").write_text("")
  exported(p.folder, path="file/model.husk")


@row("is no regular file", 'weights="beside" needs a folder')
def weights_beside_a_pipe(p):
  os.mkfifo(p.folder / "fifo")
  exported(p.folder, path="fifo", weights="beside")


# Tools that are missing


@row(r"needs g\+\+-lost, which was not found", "apt-get install|CXX")
def no_compiler(p):
  p.replace(image.host_toolchain, "compiler", lambda: "g++-lost")
  written(p.folder, target=f"host:{image.isas_of_this_machine()[0]}")


@row("aarch64-linux-gnu-g.*|g.*not found", "apt-get install")
def no_cross_compiler(p):
  p.replace(image.shutil, "which", lambda name: None)
  written(p.folder)


@row("huskc was not found", "pip install", "HUSKC")
def no_huskc(p):
  p.replace(huskc.tools, "find", lambda name: None)
  exported(p.folder)


@row("needs Triton", "pip install triton")
def no_triton(p):
  p.replace(importlib.util, "find_spec", lambda name: None)
  written(p.folder, target=GPU)


# torch.export: its exceptions keep their class, and `message` is what a command shows


def branch(x):
  return x if x.sum() > 0 else x + 1


def product(x):
  return torch.mm(x, x)


def assigns(x):
  return x.reshape(5, 5)


@row(
  "Could not guard on data-dependent expression", r"test_messages\.py:\d+, in branch: return x if"
)
def a_branch_on_data(p):
  written(p.folder, branch)


@row("4|3", r"test_messages\.py:\d+, in product: return torch\.mm")
def shapes_that_do_not_fit(p):
  written(p.folder, product)


@row("shape '\\[5, 5\\]' is invalid", r"test_messages\.py:\d+, in assigns")
def a_view_that_does_not_fit(p):
  written(p.folder, assigns)


@row("rows", "min|max|Dim|specialized|Constraints")
def a_size_that_is_always_the_same(p):
  shapes = {"x": {0: Dim("rows", min=1, max=8)}}
  written(p.folder, lambda x: x.reshape(12), dynamic_shapes=shapes)


# Below torch.export


# Rewriters: each replaces calls of a program by calls of Husk's, before Inductor gets the program


def in_a_pass(p, owner, name, model, args, target=HOST):
  """A pass of Husk's fails at the first operator of the program."""
  real = getattr(owner, name)

  def fail(node, *args, **kwargs):
    if isinstance(node, torch.fx.Node) and node.op != "call_function":
      return real(node, *args, **kwargs)
    raise KeyError("a pass of Husk")

  p.replace(owner, name, fail)
  husk.write(model, args, p.folder / "kept", targets=(target,))


@row(r"aten\.linear.*near test_messages\.py:\d+", "KeyError: 'a pass of Husk'", "report it")
def a_pass_of_layers(p):
  layer = torch.nn.Linear(4, 4)
  in_a_pass(p, devices.host.linear, "Chain", Calls(lambda x: torch.relu(layer(x))), (X,))


@row(r"aten\.conv2d.*near test_messages\.py:\d+", "KeyError: 'a pass of Husk'", "report it")
def a_pass_of_convolutions(p):
  layer = torch.nn.Conv2d(1, 1, 3)
  in_a_pass(
    p, devices.host.convolution, "_replace", Calls(lambda x: layer(x)), (torch.ones(1, 1, 8, 8),)
  )


def attends(x):
  return torch.nn.functional.scaled_dot_product_attention(x, x, x)


HEADS = torch.ones(1, 2, 16, 16)


@row(r"aten\.scaled_dot_product_attention.*near test_messages\.py:\d+", "KeyError: 'a pass")
def a_pass_of_attention(p):
  in_a_pass(p, devices.device.attention, "_rewrite_node", Calls(attends), (HEADS,))


@row(r"aten\.scaled_dot_product_attention.*near test_messages\.py:\d+", "KeyError: 'a pass")
def a_pass_of_attention_on_a_gpu(p):
  in_a_pass(p, devices.device.attention, "_rewrite_node", Calls(attends), (HEADS.half(),), GPU)


@row(r"aten\.linear.*near test_messages\.py:\d+", "KeyError: 'a pass of Husk'", "report it")
def a_pass_of_layers_of_few_rows(p):
  layer = torch.nn.Linear(4, 4)
  in_a_pass(p, devices.cuda.few_rows, "_layer", Calls(lambda x: layer(x)), (X,), GPU)


@row(r"aten\.complex.*near test_messages\.py:\d+", "Husk cannot compile this operator: KeyError")
def a_pass_of_complex_numbers(p):
  from husk.inductor.complex_numbers import dispatch

  model = Calls(lambda x: torch.complex(x, x).sin().abs())
  in_a_pass(p, dispatch, "_is_complex", model, (X,), GPU)


@row(r"aten\.softmax.*near test_messages\.py:\d+", "KeyError: 'a pass of Husk'", "report it")
def a_pass_of_quantized_graphs(p):
  in_a_pass(p, devices.host.quantized, "_is_layer", Calls(lambda x: x.softmax(-1)), (X,))


def lowering_that_raises(p, error, target=HOST):
  from torch._inductor import lowering

  def fail(*args, **kwargs):
    raise error

  p.monkeypatch.setitem(lowering.lowerings, torch.ops.aten.sin.default, fail)
  written(p.folder, target=target)


@row(WAVES, "Inductor cannot compile this operator: NotImplementedError", "in fail", "report it")
def a_lowering_without_a_text(p):
  lowering_that_raises(p, NotImplementedError())


@row(WAVES, "NotImplementedError", "in fail", "write this line with other operators")
def a_lowering_without_a_text_for_a_gpu(p):
  lowering_that_raises(p, NotImplementedError(), GPU)


@row(WAVES, "AssertionError: u2 -> u0", "HUSK_TRACEBACK=1")
def a_lowering_with_an_assertion(p):
  lowering_that_raises(p, AssertionError("u2 -> u0"))


@row(WAVES, "AttributeError: 'NoneType' object has no attribute 'is_nonnegative'", "report it")
def a_lowering_with_none(p):
  lowering_that_raises(p, AttributeError("'NoneType' object has no attribute 'is_nonnegative'"))


@row(WAVES, "TypeError: cannot determine truth value of Relational", "report it")
def a_lowering_with_a_condition(p):
  lowering_that_raises(p, TypeError("cannot determine truth value of Relational\n" + "more\n" * 50))


@row(WAVES, "RecursionError", "report it")
def a_lowering_without_an_end(p):
  lowering_that_raises(p, RecursionError("maximum recursion depth exceeded"))


@row(WAVES, "No such file: 'cab.cpp'", "report it")
def a_lowering_with_a_temporary_file(p):
  lowering_that_raises(p, RuntimeError(f"No such file: '{FOLDER}/torchinductor_me/ab/cab.cpp'"))


@row(WAVES, r"PyTorch cannot compile this operator: RuntimeError: no decomposition\n  write")
def a_decomposition(p):
  def fail(*args, **kwargs):
    raise RuntimeError("no decomposition")

  table = {torch.ops.aten.sin.default: fail}
  p.replace(capture.decompositions, "table", lambda: table)
  written(p.folder)


@row("Husk cannot compile the model for host:aarch64: KeyError: 'a pass of Husk'", "report it")
def a_rewriting(p):
  p.raising(devices.host.linear, "rewrite", KeyError("a pass of Husk"))
  written(p.folder)


@row(WAVES, "IndexError: list index out of range", "report it")
def a_scheduler(p):
  from torch._inductor import scheduler

  def fail(self, node, *args):
    raise IndexError("list index out of range")

  p.replace(scheduler.Scheduler, "get_backend", lambda self, device: types.SimpleNamespace())
  p.replace(scheduler.BaseSchedulerNode, "log_details", fail)
  p.replace(scheduler.SchedulerNode, "get_ranges", fail)
  p.replace(scheduler.Scheduler, "create_scheduler_node", lambda self, node: fail(self, node))
  written(p.folder)


@row(WAVES, "ValueError: a line", "report it")
def a_line_of_the_wrapper(p):
  p.raising(host_kernels.HostKernels, "call_kernel", ValueError("a line"))
  written(p.folder)


@row("the line .*print", "not supported")
def a_line_without_a_method(p):
  written(p.folder, lambda x: (torch.ops.higher_order.print("x {}", 1), x + 1)[1])


@row("only C\\+\\+ kernels can go to a host target", r"near test_messages\.py:\d+")
def a_kernel_of_another_kind(p):
  real = host_kernels.HostKernels.define_kernel

  def define(self, name, body, metadata=None):
    real(self, name, "async_compile.other('x')")

  p.replace(host_kernels.HostKernels, "define_kernel", define)
  written(p.folder)


@row(r"messages::lost", "ops|register", r"test_messages\.py:\d+")
def an_operator_that_nobody_has(p):
  with torch.library._scoped_library("messages", "DEF") as library:
    library.define("lost(Tensor x) -> Tensor")
    library.impl("lost", lambda x: torch.empty_like(x), "Meta")
    written(p.folder, lambda x: torch.ops.messages.lost(x))


@row(WAVES, "Inductor cannot compile this operator: AssertionError: u2 -> u0", "report it")
def a_lowering_in_torch_compile(p):
  from husk.jit.backend import backend
  from torch._inductor import lowering

  def fail(*args, **kwargs):
    raise AssertionError("u2 -> u0")

  p.monkeypatch.setitem(lowering.lowerings, torch.ops.aten.sin.default, fail)
  p.without_caches()
  torch._dynamo.reset()
  with torch.no_grad():
    torch.compile(Waves(), backend=backend)(X)


# Constructs that a `.hir` cannot express


class Adds(torch.nn.Module):
  """Adds a tensor of ones that is a constant."""

  def __init__(self):
    super().__init__()
    self.register_buffer("ones", torch.ones(4))

  def forward(self, x):
    return x + self.ones


COMPLEX = torch.ones(3, dtype=torch.complex32)


@row("the input x has the dtype torch.complex32", r"convert it by \.to\(\).*float32, ")
def an_input_of_a_dtype_that_artifacts_lack(p):
  written(p.folder, lambda x: x.view(torch.float16).sum(), (COMPLEX,))


@row("the output .* has the dtype torch.complex32", r"convert it by \.to\(\)")
def an_output_of_a_dtype_that_artifacts_lack(p):
  written(p.folder, lambda x: torch.view_as_complex(x.half()), (torch.ones(3, 2),))


@row("the input x is a sparse tensor", "to_dense")
def a_sparse_input(p):
  written(p.folder, lambda x: x.to_dense(), (X.to_sparse(),))


@row("makes a sparse tensor", r"near test_messages\.py:\d+", "to_dense")
def a_sparse_tensor(p):
  written(p.folder, lambda x: x.to_sparse().to_dense())


class Scaled(torch.nn.Module):
  def forward(self, x, mode):
    return x * 2 if mode == "fast" else x


@row("mode is a str \\('fast'\\)", "tensors, numbers, bools and None", "a module around the model")
def an_input_that_is_a_text(p):
  husk.write(Scaled(), (X, "fast"), p.folder / "kept", targets=(HOST,))


@row("the output .* is a str", "programs take and return tensors, numbers, bools and None")
def an_output_that_is_a_text(p):
  written(p.folder, lambda x: (x * 2, "fast"))


@row("the constant .*has no value", "register_buffer")
def a_constant_without_a_value(p):
  from husk.program import constants

  p.replace(constants, "_is_fake", lambda tensor: True)
  husk.write(Adds(), (X,), p.folder / "kept", targets=(HOST,))


def with_a_dim(p, function=None):
  shapes = {"x": {0: Dim("rows", min=2, max=8)}}
  written(p.folder, function or (lambda x: x * 2), dynamic_shapes=shapes)


@row(r"the guard L\['x'\] is None of torch.export", "cannot check", "give these sizes no Dim")
def a_guard_of_another_form(p):
  from husk.program import guards

  p.replace(guards.exported_programs, "guards", lambda program: ["L['x'] is None"])
  with_a_dim(p)


@row("only if Ne\\(s99, 1\\), which aten.mul assumes", "cannot check", "give these sizes no Dim")
def an_assumption_about_a_size_that_nothing_defines(p):
  from husk.inductor import assumed

  condition = sympy.Ne(sympy.Symbol("s99", integer=True), 1)
  p.replace(assumed, "found", lambda shapes: [assumed.Assumption(condition, "aten.mul")])
  with_a_dim(p)


@row(r"size 0 of the input x is ", "cannot compute the sizes", "size 0 of x a Dim of its own")
def a_size_that_cannot_be_solved(p):
  from husk.lower import prologue
  from torch.utils._sympy import solve

  def unsolved(*args):
    p.replace(solve, "try_solve", lambda *equation: None)
    real(*args)

  real = prologue._define_solved
  p.replace(prologue, "_define_solved", unsolved)
  shapes = {"x": {0: 2 * Dim("pairs", min=1, max=8)}}
  written(p.folder, lambda x: x * 2, (torch.ones(6, 4),), dynamic_shapes=shapes)


def expression(value):
  numbers = hir.Expressions()
  numbers.define(N, hir.Name("n"))
  numbers.int(value)


N, M = (sympy.Symbol(name, integer=True, positive=True) for name in "nm")


@row("sin is not supported", r"sin\(n\)", "outside of the model")
def a_function_of_a_size(p):
  expression(sympy.sin(N))


@row("the symbol m is used before anything defines it", "report it")
def a_size_that_is_not_defined(p):
  expression(N + M)


@row("an int is needed, but .*n", "outside of the model")
def a_size_that_is_a_float(p):
  expression(N * sympy.Float(1.5))


@row("may have a remainder", "//")
def a_quotient_of_sizes(p):
  expression(1 / N)


@row("DeviceCopy", r"near test_messages\.py:\d+", "write this line with other operators")
def a_node_without_a_writer(p):
  from husk.lower import lines

  def visit(self, line):
    self.visit_NodeLine(types.SimpleNamespace(node=type("DeviceCopy", (), {})()))

  p.replace(lines, "NODES", {})
  p.replace(lines.LineVisitor, "visit_KernelCallLine", visit)
  written(p.folder)


@row("a copy between devices", "write this line with other operators")
def a_method_of_the_wrapper(p):
  capture._refusing(capture._REFUSED["codegen_device_copy"])(None)


@row("messages::named gets a list of str as its argument names", r"near test_messages", "report it")
def an_argument_that_is_a_list_of_texts(p):
  with torch.library._scoped_library("messages", "DEF") as library:
    library.define("named(Tensor x, str[] names) -> Tensor")
    library.impl("named", lambda x, names: torch.empty_like(x), "Meta")
    names = ["a", "b"]
    written(p.folder, lambda x: torch.ops.messages.named(x, names), ops=("messages::named",))


@row("complex64 is read from a tensor", r"near test_messages\.py:\d+", r"\.real\.item\(\)")
def a_complex_number_that_is_read(p):
  from husk.lower import scalars

  def read(body, source):
    return real(body, types.SimpleNamespace())

  real = scalars.read
  view = types.SimpleNamespace(dtype=torch.complex64)
  p.replace(scalars, "node_view", lambda node: view)
  written(p.folder, lambda x: torch.ones(x[0, 0].to(torch.int64).item()))


@row("decides the sizes u0", "write this line with other operators")
def a_size_of_the_data_that_nothing_defines(p):
  from husk.lower import lines

  line = types.SimpleNamespace(unbacked_bindings=[sympy.Symbol("u0")], output_name="buf0")
  visitor = types.SimpleNamespace(body=types.SimpleNamespace(exprs=hir.Expressions()))
  lines.LineVisitor.visit_UnbackedSymbolDefsLine(visitor, line)


@row(
  r"^function decode: .*near test_messages\.py:\d+.*: write this line|^function decode: .*sparse"
)
def a_refusal_in_one_of_several_functions(p):
  functions = {
    "encode": husk.Function(Waves(), (X,)),
    "decode": husk.Function(Calls(lambda x: x.to_sparse().to_dense()), (X,)),
  }
  husk.write(functions, p.folder / "kept", targets=(HOST,))


# g++

BODY = "async_compile.cpp_pybinding(['float*'], r'''\n%s''')"
SOURCE = 'extern "C"  void kernel(float* out_ptr0)\n{\n  out_ptr0[0] = %s;\n}\n'


def of_a_compiler(p, output, status=1, kernels=2):
  """Compiles kernels of which the last one fails: g++ prints `output`, in which LINE is the line of
  this kernel."""
  of_target = host_kernels.HostKernels(image.isas()[0])
  for index in range(kernels):
    value = f"{index}.0f"
    of_target.define_kernel(f"cpp_fused_sin_{index}", BODY % (SOURCE % value))
    place = f"aten.op_{index} (near m.py:{index})"
    of_target.note_call(f"cpp_sin_{index}", lambda place=place: place)
  text = f'#include "h"\n{of_target.source()}'.splitlines()
  line = next(i for i, one in enumerate(text, 1) if f"= {kernels - 1}.0f" in one)

  def run(command, **kwargs):
    if isinstance(output, Exception):
      raise output
    return subprocess.CompletedProcess(command, status, "", output.replace("LINE", str(line)))

  p.replace(image.images, "read", lambda kept: None)
  p.replace(image.precompiled, "folder", lambda command, headers: None)
  p.replace(image.subprocess, "run", run)
  of_target.files()


LAST = r"^aten\.op_1 \(near m\.py:1\): g\+\+ cannot compile the kernel cpp_sin_1 for host:"


@row(LAST, "error: 'nonsense' was not declared", "CXX")
def an_error_of_the_compiler(p):
  of_a_compiler(p, "kernels.cpp:LINE:17: error: 'nonsense' was not declared\n  12 | x\n" * 30)


@row(LAST, "undefined reference to `husk_cpp_sin_1'", "CXX")
def an_error_of_the_linker(p):
  of_a_compiler(
    p, f"/usr/bin/ld: {FOLDER}/husk-x/kernels.o: undefined reference to `husk_cpp_sin_1'"
  )


@row(LAST, "internal compiler error", "another compiler in CXX")
def an_error_in_the_compiler(p):
  of_a_compiler(p, "kernels.cpp:LINE:3: internal compiler error: Segmentation fault\nPlease report")


@row("cannot compile the kernels for host:", "it printed nothing", "CXX")
def a_compiler_that_is_ended(p):
  of_a_compiler(p, "", -9)


@row("which compiles the host kernels, was not found", "CXX")
def a_compiler_that_vanishes(p):
  of_a_compiler(p, FileNotFoundError("g++"))


@row(r"aten\.op_0", "fatal error: cc1plus: out of memory|out of memory", "CXX")
def a_compiler_without_memory(p):
  of_a_compiler(p, "fatal error: cc1plus: out of memory allocating 65536 bytes", kernels=1)


@row("cannot compile the kernels for host:", "cannot find -lmvec|error: ld returned", "CXX")
def a_library_that_is_missing(p):
  of_a_compiler(p, "/usr/bin/ld: cannot find -lmvec\ncollect2: error: ld returned 1 exit status")


# Triton


def of_triton(p, error):
  """A kernel of `Waves` whose compilation prints and raises."""
  from torch._inductor.runtime import triton_heuristics

  def fail(tuner, config):
    print("a table\n" * 300)
    os.write(2, b"MLIR\n" * 200)
    raise error

  p.replace(triton_heuristics.CachingAutotuner, "_precompile_config", fail)
  written(p.folder, target=GPU)


KERNEL = (
  r"^.*aten\.sin\.default \(near .*Triton cannot compile the kernel triton_poi_\w+ for NVIDIA"
)
LOG = r"what compilers printed is in \S+/kept/prints\.log"


@row(KERNEL, "RuntimeError: PassManager::run failed", "report it", LOG)
def a_pass_of_triton(p):
  of_triton(p, RuntimeError("PassManager::run failed"))


@row(KERNEL, "CompilationError: .*AssertionError|out of range", "report it", LOG)
def a_kernel_that_is_wrong(p):
  from triton.compiler.errors import CompilationError

  of_triton(p, CompilationError("def k():\n  x\n" * 20, None, "AssertionError: out of range"))


@row(KERNEL, "RuntimeError: Cannot find ptxas", "TRITON_PTXAS_PATH", LOG)
def no_assembler(p):
  of_triton(p, RuntimeError("Cannot find ptxas"))


@row(
  "no configuration fits NVIDIA H200",
  "PTXASError: line 9 of the PTX: error: syntax error near 'x'",
  r"near test_messages",
)
def an_error_of_the_assembler(p):
  from triton.runtime.errors import PTXASError

  of_triton(
    p,
    PTXASError(
      "`ptxas` failed with error code 255\n`ptxas` stderr:\n"
      f"ptxas {FOLDER}/tmp1.ptx, line 9; error: syntax error near 'x'\n"
      f"Repro command: ptxas -v {FOLDER}/tmp1.ptx -o {FOLDER}/tmp1.o\n"
    ),
  )


@row("no configuration fits NVIDIA H200", "out of resource: registers", r"near test_messages\.py")
def a_kernel_that_is_too_large(p):
  from triton.runtime.errors import OutOfResources

  of_triton(p, OutOfResources(300, 255, "registers"))


@row("its definition is not understood", r"near test_messages\.py")
def a_kernel_that_is_not_understood(p):
  p.raising(
    cuda_kernels,
    "source_of",
    husk.Unsupported("kernel k: its definition is not understood (invalid syntax)"),
  )
  written(p.folder, target=GPU)


# huskc


def of_huskc(p, script):
  """Compiles a `.hir` by a program of the shell in place of huskc."""
  program = p.folder / "huskc"
  program.write_text(f"#!/bin/sh\n{script}\n")
  program.chmod(0o755)
  p.replace(huskc, "require", lambda: str(program))
  folder = pathlib.Path(tempfile.mkdtemp())
  text = folder / "model.hir"
  text.write_text('hir 1\nlaunch cpp_sin_0 (write y, read x) at "model.py:5 x.sin()"\n')
  try:
    huskc.compile(text, folder / "model.husk")
  finally:
    for path in folder.iterdir():
      path.unlink()
    folder.rmdir()


@row(
  r"^near model\.py:5 x\.sin\(\): huskc refuses line 2 of the `\.hir`, `launch cpp_sin_0 \(",
  "9223372036854775808 does not fit 64 bits",
  "keep=",
  "report",
)
def a_step_that_is_refused(p):
  of_huskc(p, 'echo "$1:2:9: 9223372036854775808 does not fit 64 bits" >&2; exit 1')


@row("cannot write the artifact", "No space left on device", "room")
def no_room_for_the_artifact(p):
  of_huskc(p, 'echo "$3: cannot write $3: No space left on device" >&2; exit 1')


@row("signal 9 ended it", "report")
def a_huskc_that_is_ended(p):
  of_huskc(p, "kill -9 $$")


@row("it printed nothing", "report")
def a_huskc_that_says_nothing(p):
  of_huskc(p, "exit 3")


# Disks


def of_a_disk(number, where):
  with output.disk_explained(pathlib.Path("out/model.husk")):
    raise OSError(number, os.strerror(number), str(where))


@row("out/model.husk was not written: the disk is full", "TMPDIR")
def a_full_disk_of_temporary_files(p):
  of_a_disk(errno.ENOSPC, FOLDER / "husk-abc" / "weights.safetensors")


@row("out/model.husk was not written: the disk is full", "free some")
def a_full_disk_without_a_name(p):
  with output.disk_explained(pathlib.Path("out/model.husk")):
    raise OSError(errno.ENOSPC, "No space left on device")


@row("out/model.husk was not written: the disk quota", "TMPDIR")
def a_quota(p):
  of_a_disk(errno.EDQUOT, FOLDER / "husk-abc" / "kernels.so")


@row("out/model.husk cannot be written: the disk is read-only", "give another path")
def a_disk_that_is_read_only(p):
  of_a_disk(errno.EROFS, "out/model.husk.17.part")


@row("out/model.husk was not written: this user may not write there", "TMPDIR")
def a_folder_of_another_user(p):
  of_a_disk(errno.EACCES, FOLDER / "torchinductor_root" / "x")


@row("the file is larger than", "free some")
def a_file_that_is_too_large(p):
  with output.disk_explained(pathlib.Path("out/model.husk")):
    raise OSError(errno.EFBIG, "File too large")


@pytest.mark.parametrize(("plant", "words"), row.rows)
def test_what_a_user_reads(plant, words, tmp_path, monkeypatch, capfd):
  planted.check(plant, words, tmp_path, monkeypatch, capfd)


def test_the_table_is_long_enough():
  assert len(row.rows) >= 80, len(row.rows)


def test_memory_and_interrupts_pass():
  from husk.inductor import failures

  for kind in (MemoryError, KeyboardInterrupt, OSError):
    with contextlib.suppress(kind):
      with failures.explained("Inductor"):
        raise kind
      raise AssertionError(kind)
