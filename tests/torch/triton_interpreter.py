"""Runs the CUDA variant of a `.hir` text on the CPU: Triton's own interpreter takes the place of the images. So grids,
arguments, sizes and the claimed accesses are tested by what is computed, without a GPU.

    TRITON_INTERPRET=1 python triton_interpreter.py FOLDER TARGET INPUTS OUTPUTS

FOLDER has model.hir and kernels.json (`describe` writes it); INPUTS is a torch.save'd list of dicts, one for each
run, and OUTPUTS gets a list of dicts. To be run as a process of its own, since Triton decides at import whether it
interprets.
"""

import ast
import json
import linecache
import pathlib
import sys
import types

import torch


def describe(kernels, folder):
  """Writes what the interpreter needs of `kernels` (a CudaKernels) beside the `.hir`."""
  rows = {}
  for row, kernel in kernels.kernels():
    definition = kernels._definitions[row.removeprefix(kernels.prefix)]
    rows[row] = {"name": kernel.name, "source": definition.source, "config": kernel.config,
                 "parameters": kernel.parameters, "access": kernel.access, "arguments": kernel.arguments}
  (pathlib.Path(folder) / "kernels.json").write_text(json.dumps(rows))


class _Libdevice:
  """The device library is not there; Triton's own functions, or what they can be made of."""

  def __getattr__(self, name):
    import triton.language as tl
    made = {"tanh": lambda x: 2.0 / (1.0 + tl.exp(-2.0 * x)) - 1.0, "log1p": lambda x: tl.log(1.0 + x),
            "isnan": lambda x: x != x, "nearbyint": lambda x: tl.floor(x + 0.5)}
    return made.get(name) or getattr(tl.math, name, None) or getattr(tl, name)


def _patch_index():
  """The interpreter holds a scalar as an array of one element, which a NumPy of today does not take for an int."""
  from triton.runtime import interpreter
  original = interpreter._patch_lang_tensor

  def patched(tensor, scope):
    original(tensor, scope)
    scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

  interpreter._patch_lang_tensor = patched


def _patch_masks():
  """The interpreter of Triton 3.9 makes other arrays than bools of some masks, and its stores refuse them."""
  from triton.runtime import interpreter
  original = interpreter.InterpreterBuilder.create_masked_store

  def store(self, pointers, value, mask, cache_policy, *more):
    if not isinstance(mask, interpreter.TensorHandle):     # of a descriptor
      return original(self, pointers, value, mask, cache_policy, *more)
    return original(self, pointers, value, interpreter.TensorHandle(mask.data.astype(bool), mask.dtype), cache_policy, *more)

  interpreter.InterpreterBuilder.create_masked_store = store


def _patch_dots():
  """The interpreter holds bf16 as its bits, and multiplies those."""
  import numpy
  from triton.runtime import interpreter
  original = interpreter.InterpreterBuilder.create_dot

  def widened(handle):
    if handle.dtype.scalar.name != "bf16":
      return handle
    return interpreter.TensorHandle((handle.data.astype(numpy.uint32) << 16).view(numpy.float32), interpreter.tl.float32)

  def dot(self, one, other, *more, **named):
    return original(self, widened(one), widened(other), *more, **named)

  interpreter.InterpreterBuilder.create_dot = dot


def patch():
  """Mends the interpreter; before anything is interpreted."""
  _patch_index()
  _patch_masks()
  _patch_dots()


def interpreted(name, source):
  """The function of a kernel, without Inductor's decorators; with the functions that it calls."""
  import triton
  import triton.language as tl
  from torch._inductor.runtime import triton_helpers
  functions = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
  lines = source.split("\n")
  text = "\n".join(line for node in functions for line in ["@triton.jit", *lines[node.lineno - 1:node.end_lineno]]) + "\n"
  file = f"{name}.py"
  linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
  module = types.ModuleType(name)
  vars(module).update({"triton": triton, "tl": tl, "triton_helpers": triton_helpers, "libdevice": _Libdevice(),
                       "tl_math": tl.math})
  exec(compile(text, file, "exec"), vars(module))
  return vars(module)[name]


def program(folder):
  from interpreter import DTYPES, Program

  class CudaProgram(Program):
    """Pointers come as byte tensors; what a kernel says it only reads must stay, what it says it only writes comes as
    NaNs to it, so that a read shows."""

    def _kernel(self, r):
      begin = r.at
      name = r.next()
      r.at = begin
      super()._kernel(r)
      self.described = getattr(self, "described", None) or json.loads((self.folder / "kernels.json").read_text())
      if name in self.described:
        row = self.described[name]
        self.kernels[name] = (interpreted(row["name"], row["source"]), row)

    launching = False
    failed_assert = torch.zeros(4, dtype=torch.uint8)     # an i32

    def _argument(self, r):
      access = r.peek()
      if access == "asserts":
        return r.next()
      value = super()._argument(r)
      return (access, value) if self.launching and access in ("read", "write", "both", "atomic") else value

    def _launch(self, r):
      kernel, row = self.kernels[r.next()]
      r.next("grid")
      r.next("(")
      grid = tuple(self._eval(e) for e in r.listed(")", r.expr))
      r.next("(")
      self.launching = True
      given = r.listed(")", lambda: self._argument(r))
      self.launching = False
      # Memory for each block, which kernels get here by other means.
      assert all(one is None or one[0] == "write" for one in given[-2:]) and len(given) == len(row["parameters"]) + 2
      if 0 in grid:
        return
      values, kept, aligned = {}, [], _aligned(row["source"], row["name"])
      for (parameter, kind), value in zip(row["parameters"], given):
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
      written = {value[1].data_ptr() for value in given[:-2] if isinstance(value, tuple) and value[0] != "read"}
      self._run_kernel(kernel, row, grid, values)
      for parameter, memory, before in kept:
        assert memory.data_ptr() in written or torch.equal(memory, before), f"{row['name']} wrote {parameter}"

    def _extern(self, r):
      begin = r.at
      if r.string() != "husk::matmul":
        r.at = begin
        return super()._extern(r)
      r.next("(")
      one, other, bias, alpha, beta, _, out, workspace = r.listed(")", lambda: self._argument(r))
      workspace.fill_(0xEE)     # nothing else may lie there
      made = alpha * (one.double() @ other.double())
      out.copy_(made if bias is None else made + beta * bias)

    def _run_kernel(self, kernel, row, grid, values):
      pointers = _pointer_types(row["source"], row["name"])
      arguments = {}
      for parameter in kernel.arg_names:
        if parameter in row["config"]:
          arguments[parameter] = row["config"][parameter]
        elif parameter in values:
          value = values[parameter]
          arguments[parameter] = value.view(pointers[parameter]) if parameter in pointers else value
        else:
          arguments[parameter] = _constants(row["source"], row["name"])[parameter]
      kernel[grid](**arguments)

  return CudaProgram(pathlib.Path(folder) / "model.hir")


_POINTERS = {"*fp32": torch.float32, "*fp16": torch.float16, "*bf16": torch.bfloat16, "*fp64": torch.float64,
             "*i64": torch.int64, "*i32": torch.int32, "*i16": torch.int16, "*i8": torch.int8, "*u8": torch.uint8,
             "*i1": torch.bool}


def _meta(source, name):
  """The `triton_meta` of a kernel's decorator: signature and constants, as literals."""
  kernel = next(node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef) and node.name == name)
  for decorator in kernel.decorator_list:
    for keyword in getattr(decorator, "keywords", ()):
      if keyword.arg == "triton_meta":
        return {key.value: ast.literal_eval(value) for key, value in zip(keyword.value.keys, keyword.value.values)
                if key.value in ("signature", "constants", "configs")}
  raise ValueError(name)


def _pointer_types(source, name):
  signature = _meta(source, name)["signature"]
  return {parameter: _POINTERS[kind] for parameter, kind in signature.items() if kind in _POINTERS}


def _aligned(source, name):
  """The parameters whose addresses the kernel takes for multiples of 16."""
  meta = _meta(source, name)
  (found,) = meta["configs"]
  names = list(meta["signature"])
  return {names[index] for index, in found if ["tt.divisibility", 16] in found[(index,)]}


def _constants(source, name):
  return _meta(source, name)["constants"]


def main(folder, target, inputs, outputs):
  sys.path.insert(0, str(pathlib.Path(__file__).parent))
  patch()
  made = program(folder)
  results = [made.run(target, **given) for given in torch.load(inputs)]
  torch.save([{name: value.clone() if isinstance(value, torch.Tensor) else value for name, value in result.items()}
              for result in results], outputs)


if __name__ == "__main__":
  main(*sys.argv[1:])
