"""Runs the CUDA variant of a `.hir` text on the CPU, with Triton's own interpreter in place of the
images. The results test grids, arguments, sizes and declared accesses without a GPU.

    TRITON_INTERPRET=1 python triton_interpreter.py

reads lines with [FOLDER, TARGET, INPUTS, OUTPUTS], and `serve` says how it answers. FOLDER has
model.hir and the kernels.json that `describe` writes. INPUTS is a list of dicts, one for each run,
saved by torch.save; OUTPUTS gets a list of dicts. The file runs as a process of its own, because
Triton decides at import whether it interprets."""

import ast
import json
import linecache
import os
import pathlib
import sys
import traceback
import types

# The process does not know the exporter's folder.
sys.path.append(str(pathlib.Path(__file__).resolve().parents[3] / "compiler" / "torch"))

import ptx
import torch


def describe(kernels, folder):
  """Writes kernels.json, which describes `kernels` (a CudaKernels), next to the `.hir`."""
  rows = {}
  for row, kernel in kernels.kernels():
    definition = kernels._definitions[row.removeprefix(kernels.prefix)]
    rows[row] = {
      "name": kernel.name,
      "source": definition.source,
      "meta": repr(kernel.triton_meta),
      "config": kernel.config,
      "parameters": kernel.parameters,
      "access": kernel.access,
      "arguments": kernel.arguments,
    }
  (pathlib.Path(folder) / "kernels.json").write_text(json.dumps(rows))


class _Libdevice:
  """Replaces the device library by Triton's own functions, or by expressions of them."""

  def __getattr__(self, name):
    import triton.language as tl

    functions = {
      "tanh": lambda x: 2.0 / (1.0 + tl.exp(-2.0 * x)) - 1.0,
      "log1p": lambda x: tl.log(1.0 + x),
      "isnan": lambda x: x != x,
      "nearbyint": lambda x: tl.floor(x + 0.5),
      "trunc": lambda x: tl.where(x < 0, tl.ceil(x), tl.floor(x)),
      "isinf": lambda x: tl.abs(x) == float("inf"),
      "pow": lambda x, y: tl.exp(y * tl.log(x)),
      "expm1": lambda x: tl.exp(x) - 1.0,
      "tan": lambda x: tl.sin(x) / tl.cos(x),
      "lgamma": lambda x: self._lgamma(tl, x),
    }
    if name in self._NUMPY:
      return lambda *args: self._by_numpy(self._NUMPY[name], *args)
    return functions.get(name) or getattr(tl.math, name, None) or getattr(tl, name)

  # Functions that NumPy has and Triton has not.
  _NUMPY = {
    "copysign": "copysign",
    "fmod": "fmod",
    "hypot": "hypot",
    "atan2": "arctan2",
    "asinh": "arcsinh",
    "sinh": "sinh",
    "cosh": "cosh",
  }

  def _by_numpy(self, name, *args):
    import numpy
    import replayed_programs
    import triton.language as tl
    from triton.runtime import interpreter

    def computed(*handles):
      data = getattr(numpy, name)(*(handle.data for handle in handles))
      dtype = handles[0].dtype
      return interpreter.TensorHandle(data.astype(handles[0].data.dtype), dtype)

    handle = replayed_programs.recorded(name, computed)(*(arg.handle for arg in args))
    return tl.core.tensor(handle, args[0].type)

  def _lgamma(self, tl, x):
    """Stirling's series of a positive number, at a larger one."""
    product = x
    for k in range(1, 9):
      product = product * (x + k)
    y = x + 9
    series = (1 / 12 - (1 / 360 - 1 / (1260 * y * y)) / (y * y)) / y
    return (y - 0.5) * tl.log(y) - y + 0.9189385332046727 + series - tl.log(product)


def _patch_masks():
  """Converts masks to bool. The interpreter of Triton 3.9 makes some masks of another dtype, which
  its stores refuse."""
  from triton.runtime import interpreter

  original = interpreter.InterpreterBuilder.create_masked_store

  def store(self, pointers, value, mask, cache_policy, *more):
    if not isinstance(mask, interpreter.TensorHandle):  # a store to a descriptor
      return original(self, pointers, value, mask, cache_policy, *more)
    return original(
      self,
      pointers,
      value,
      interpreter.TensorHandle(mask.data.astype(bool), mask.dtype),
      cache_policy,
      *more,
    )

  interpreter.InterpreterBuilder.create_masked_store = store


def _patch_dots():
  """Converts bf16 operands of products to f32. The interpreter holds a bf16 as an integer of its
  bits, and would multiply the integers."""
  import numpy
  from triton.runtime import interpreter

  original = interpreter.InterpreterBuilder.create_dot

  def widened(handle):
    if handle.dtype.scalar.name != "bf16":
      return handle
    return interpreter.TensorHandle(
      (handle.data.astype(numpy.uint32) << 16).view(numpy.float32), interpreter.tl.float32
    )

  def dot(self, one, other, *more, **named):
    return original(self, widened(one), widened(other), *more, **named)

  interpreter.InterpreterBuilder.create_dot = dot


def _patch_rounding(exact):
  """Lets instructions of assembly compute: those of ptx.py, and the conversion of operands to tf32
  (husk/cuda/rounding.py). The interpreter multiplies all of an f32. If `exact`, the conversion
  rounds, and products in tf32 cut their operands as a tensor core does; else the conversion changes
  nothing, so that results can be compared closely."""
  import numpy
  from triton.runtime import interpreter

  builder = interpreter.InterpreterBuilder
  original = builder.create_dot

  def create_inline_asm(self, text, constraints, values, kinds, is_pure, pack):
    if text == "mov.b32 $0, $1;":
      handles = values
    elif text == "cvt.rna.tf32.f32 $0, $1;":
      (value,) = values
      data = rounded_to_tf32(value.data) if exact else value.data
      handles = [interpreter.TensorHandle(data, value.dtype)]
    else:
      scalars = [kind.scalar for kind in kinds]
      kinds = [interpreter._get_np_dtype(scalar) for scalar in scalars]
      results = ptx.elementwise(text, constraints, [one.data for one in values], kinds, pack)
      handles = [interpreter.TensorHandle(one, scalar) for one, scalar in zip(results, scalars)]
    return types.SimpleNamespace(get_result=handles.__getitem__)

  def cut(handle):
    if handle.dtype.scalar.name != "fp32":
      return handle
    data = (handle.data.view(numpy.uint32) & numpy.uint32(0xFFFFE000)).view(numpy.float32)
    return interpreter.TensorHandle(data, handle.dtype)

  def create_dot(self, one, other, total, precision, *more):
    if precision == interpreter._ir.INPUT_PRECISION.TF32:
      one, other = cut(one), cut(other)
    return original(self, one, other, total, precision, *more)

  builder.create_inline_asm = create_inline_asm
  if exact:
    builder.create_dot = create_dot


def rounded_to_tf32(data):
  """Numbers of f32 rounded to the nearest of tf32, ties away from zero, as cvt.rna does."""
  import numpy

  bits = data.view(numpy.uint32)
  rounded = ((bits + numpy.uint32(0x1000)) & numpy.uint32(0xFFFFE000)).view(numpy.float32)
  return numpy.where(numpy.isfinite(data), rounded, data)


def _patch_atomics():
  """Copies values of atomic operations that are broadcast, since the interpreter's own code reads
  them as if they were contiguous."""
  import numpy
  from triton.runtime import interpreter

  original = interpreter.InterpreterBuilder.create_atomic_rmw

  def atomic(self, operation, pointers, value, mask, *more):
    copies = [
      interpreter.TensorHandle(numpy.ascontiguousarray(handle.data), handle.dtype)
      for handle in (pointers, value, mask)
    ]
    return original(self, operation, *copies, *more)

  interpreter.InterpreterBuilder.create_atomic_rmw = atomic


def patch():
  """Corrects the interpreter and makes it faster, before it interprets the first kernel."""
  import quick_interpreter
  import replayed_programs

  quick_interpreter.patch()
  _patch_masks()
  _patch_dots()
  _patch_rounding(os.environ.get("HUSK_INTERPRETED_TF32") == "exact")
  _patch_atomics()
  replayed_programs.patch()


def interpreted(name, source):
  """The function of a kernel and the functions that it calls, without Inductor's decorators."""
  import triton
  import triton.language as tl
  from torch._inductor.runtime import triton_helpers

  functions = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
  lines = source.split("\n")
  text = (
    "\n".join(
      line
      for node in functions
      for line in ["@triton.jit", *lines[node.lineno - 1 : node.end_lineno]]
    )
    + "\n"
  )
  file = f"{name}.py"
  linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
  module = types.ModuleType(name)
  vars(module).update(
    {
      "triton": triton,
      "tl": tl,
      "triton_helpers": triton_helpers,
      "libdevice": _Libdevice(),
      "tl_math": tl.math,
    }
  )
  exec(compile(text, file, "exec"), vars(module))
  return vars(module)[name]


def program(folder):
  from hir_interpreter import Program

  class CudaProgram(Program):
    """Interprets the launches of a CUDA variant. Pointers are byte tensors. Memory that a kernel
    declares as read-only must be unchanged after the launch."""

    def _kernel(self, r):
      begin = r.at
      name = r.next()
      r.at = begin
      super()._kernel(r)
      self.described = getattr(self, "described", None) or json.loads(
        (self.folder / "kernels.json").read_text()
      )
      if name in self.described:
        row = self.described[name]
        self.kernels[name] = (interpreted(row["name"], row["source"]), row)

    launching = False
    failed_assert = torch.zeros(4, dtype=torch.uint8)  # an i32

    def _argument(self, r):
      access = r.peek()
      if access == "asserts":
        return r.next()
      value = super()._argument(r)
      return (
        (access, value)
        if self.launching and access in ("read", "write", "both", "atomic")
        else value
      )

    def _launch(self, r):
      kernel, row = self.kernels[r.next()]
      r.next("grid")
      r.next("(")
      grid = tuple(self._eval(e) for e in r.listed(")", r.expr))
      r.next("(")
      self.launching = True
      arguments = r.listed(")", lambda: self._argument(r))
      self.launching = False
      # The last two arguments are scratch memory of the blocks, which the interpreter ignores.
      assert (
        all(one is None or one[0] == "write" for one in arguments[-2:])
        and len(arguments) == len(row["parameters"]) + 2
      )
      if 0 in grid:
        return
      values, kept, meta = {}, [], ast.literal_eval(row["meta"])
      aligned = _aligned(meta)
      for (parameter, kind), value in zip(row["parameters"], arguments):
        if value == "asserts":
          values[parameter] = self.failed_assert
        elif kind == "ptr":
          access, memory = value
          assert access == row["access"][parameter]
          assert memory.data_ptr() % 16 == 0 or parameter not in aligned, parameter
          values[parameter] = memory
          if access == "read":
            kept.append((parameter, memory, memory.clone()))
        else:
          values[parameter] = value
      written = {
        value[1].data_ptr()
        for value in arguments[:-2]
        if isinstance(value, tuple) and value[0] != "read"
      }
      self._run_kernel(kernel, row, meta, grid, values)
      for parameter, memory, before in kept:
        assert memory.data_ptr() in written or torch.equal(memory, before), (
          f"{row['name']} wrote {parameter}"
        )

    def _extern(self, r):
      begin = r.at
      if r.string() != "husk::matmul":
        r.at = begin
        return super()._extern(r)
      r.next("(")
      one, other, bias, alpha, beta, _, out, workspace = r.listed(")", lambda: self._argument(r))
      workspace.fill_(0xEE)  # no other data may be in the workspace
      product = alpha * (one.double() @ other.double())
      out.copy_(product if bias is None else product + beta * bias)

    def _run_kernel(self, kernel, row, meta, grid, values):
      pointers = _pointer_types(meta)
      arguments = {}
      for parameter in kernel.arg_names:
        if parameter in row["config"]:
          arguments[parameter] = row["config"][parameter]
        elif parameter in values:
          value = values[parameter]
          arguments[parameter] = value.view(pointers[parameter]) if parameter in pointers else value
        else:
          arguments[parameter] = meta["constants"][parameter]
      kernel[grid](**arguments)

  return CudaProgram(pathlib.Path(folder) / "model.hir")


_POINTERS = {
  "*fp32": torch.float32,
  "*fp16": torch.float16,
  "*bf16": torch.bfloat16,
  "*fp64": torch.float64,
  "*i64": torch.int64,
  "*i32": torch.int32,
  "*i16": torch.int16,
  "*i8": torch.int8,
  "*u8": torch.uint8,
  "*fp8e4nv": torch.float8_e4m3fn,
  "*fp8e5": torch.float8_e5m2,
  "*u16": torch.uint16,
  "*u32": torch.uint32,
  "*u64": torch.uint64,
  "*i1": torch.bool,
}


def _pointer_types(meta):
  return {
    parameter: _POINTERS[kind] for parameter, kind in meta["signature"].items() if kind in _POINTERS
  }


def _aligned(meta):
  """The parameters whose addresses the kernel takes for multiples of 16."""
  (found,) = meta["configs"]
  names = list(meta["signature"])
  return {names[index] for (index,) in found if ["tt.divisibility", 16] in found[(index,)]}


def main(folder, target, inputs, outputs):
  """Runs the variant for each of `inputs`, which are saved as the runs have left them."""
  interpreter, runs = program(folder), torch.load(inputs)
  results = [interpreter.run(target, **values) for values in runs]
  torch.save(runs, inputs)
  torch.save(
    [
      {
        name: value.clone() if isinstance(value, torch.Tensor) else value
        for name, value in result.items()
      }
      for result in results
    ],
    outputs,
  )


def serve():
  """Reads the arguments of `main` from each line, a JSON list, runs it in a forked process, and
  answers with a line of JSON: the end of what it printed if it failed, else an empty text. A
  process that has imported torch and Triton is there at once."""
  import hir_interpreter  # noqa: F401
  from torch._inductor.runtime import triton_helpers  # noqa: F401

  for line in sys.stdin:
    arguments = json.loads(line)
    log = pathlib.Path(arguments[0]) / "interpreter.log"
    child = os.fork()
    if child == 0:
      with log.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        try:
          main(*arguments)
        except BaseException:
          traceback.print_exc()
          os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    print(json.dumps((log.read_text() or f"status {status}")[-4000:] if status else ""), flush=True)


if __name__ == "__main__":
  sys.path.insert(0, str(pathlib.Path(__file__).parent))
  patch()
  serve()
