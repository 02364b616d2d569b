"""Graphs of torch.compile(backend="husk") for a GPU that is not there."""

import re

import pytest
import torch
from cuda_numerics import interpreted
from husk.cuda import fake_cuda, here
from husk.errors import Unsupported
from husk.jit import backend, module, text
from torch._guards import TracingContext, tracing
from torch._inductor import config
from torch._inductor.decomposition import select_decomp_table
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv

H200 = fake_cuda.Target.load("h200")


def on_gpu(*shape, dtype=torch.float32, device="cuda:0"):
  """An input of a graph: its shape, dtype and device."""
  return shape, dtype, device


def refusal(run, *args, **options):
  """The words with which the exporter refuses a graph, whatever PyTorch wraps around them."""
  with pytest.raises(Exception) as raised:
    run(*args, **options)
  error = raised.value
  while error is not None and not isinstance(error, Unsupported):
    error = getattr(error, "inner_exception", None) or error.__cause__
  assert error is not None, raised.value
  return str(error)


class Compiler:
  """Compiles graphs for an H200. A call returns the `.hir` and the module's text without the
  artifact; the module with the artifact is at `path`."""

  def __init__(self, monkeypatch, path):
    self.path, self.hir, self.source, self.files, self.kernels = path, "", "", {}, None
    artifact, written, init = text._artifact, text._module, text.Writer.__init__

    def artifact_of(program, files):
      self.hir, self.files = program.text(), files
      return artifact(program, files)

    def module_of(*args):
      path.write_text(source := written(*args))
      self.source = re.sub(r"^#. .*\n", "", source, flags=re.M)
      return source

    def with_kernels(writer, device, kernels, *args):
      self.kernels = kernels
      init(writer, device, kernels, *args)

    monkeypatch.setattr(text, "_artifact", artifact_of)
    monkeypatch.setattr(text, "_module", module_of)
    monkeypatch.setattr(text.Writer, "__init__", with_kernels)
    monkeypatch.setattr(module, "load_program", lambda *args, **options: None)
    monkeypatch.setattr(here, "target", lambda device: H200)

  def __call__(self, function, *inputs, inference=True, **options):
    def flat(*args):
      results = function(*args)
      return [*results] if isinstance(results, (list, tuple)) else [results]

    run_mode, libraries, patches = backend._options(None, options)
    decomposed = dict(select_decomp_table())
    fakes = FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)
    # `fake_cuda.cuda` makes products of templates, and measures in place of torch.compile.
    own = {
      "coordinate_descent_tuning": False,
      "max_autotune_gemm": False,
      "max_autotune_conv_backends": "ATEN,TRITON",
      "fx_graph_cache": False,
    }
    with fake_cuda.cuda(H200), config.patch({**patches, **own}):
      # Control flow goes through Dynamo, which takes sizes for dynamic after it has seen others.
      torch._dynamo.reset()
      with fakes:
        values = [torch.empty(shape, dtype=dtype, device=on) for shape, dtype, on in inputs]
        graph = make_fx(flat, decomposed)(*values)
      self.constants = {
        name: value
        for node in graph.graph.find_nodes(op="get_attr")
        if isinstance(value := getattr(graph, node.target), torch.Tensor)
        for name in (node.target, f"{node.target}_cuda0")
      }
      with tracing(TracingContext(fakes)):
        backend._compile(
          "",
          run_mode,
          libraries,
          graph,
          values,
          static_input_idxs=[],
          cudagraphs=None,
          is_inference=inference,
        )
    return self.hir, self.source

  def run(self, monkeypatch, folder, *args):
    """The outputs of the graph that was compiled last, whose kernels Triton's interpreter runs.
    All tensors lie on the CPU; the graph changes those among `args`."""
    import triton_interpreter

    inputs = re.findall(r"^  input (\w+) (\w+)", self.hir, re.M)
    (folder / "model.hir").write_text(self.hir)
    for name, content in self.files.items():
      (folder / name).write_bytes(content)
    triton_interpreter.describe(self.kernels, folder)

    def program(*arguments):
      (results,) = interpreted(
        folder, [{name: value for (name, _), value in zip(inputs, arguments)}]
      )
      (left,) = torch.load(folder / "inputs.pt")
      for (name, kind), value in zip(inputs, arguments, strict=True):
        if kind == "tensor":
          value.copy_(left[name])
      results = [*results.values()]
      return results[0] if len(results) == 1 else results

    scope = {"__file__": str(self.path), **self.constants}
    with monkeypatch.context() as patch:
      patch.setattr(module, "load", lambda *args, **options: program)
      exec(self.source, scope)
      return scope["__getattr__"]("call")([*args])
