"""Tensors of the CPU in a graph of torch.compile for a GPU: they are computed on the GPU, and stay
on the CPU for the caller. Triton's interpreter runs the kernels."""

import re
import weakref

import built_tools  # noqa: F401  (finds huskc)
import pytest
import torch
from husk.inductor import one_device
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch._subclasses import FakeTensorMode
from torch.fx.passes.fake_tensor_prop import FakeTensorProp

try:
  import gpu_graphs
  from gpu_graphs import on_gpu, refusal
  from husk import compiled as save
  from husk.hir import huskc
  from husk.jit import recording, regions, saved, sections
except ImportError as error:
  pytest.skip(str(error), allow_module_level=True)
pytest.importorskip("triton")

CPU, GPU = torch.device("cpu"), torch.device("cuda:0")


@pytest.fixture
def compiled(monkeypatch, tmp_path):
  return gpu_graphs.Compiler(monkeypatch, tmp_path / "module.py")


def copied(x, device):
  return torch.ops.prims.device_put(x, device)


def counted(x, n):
  n.add_(1)
  return x + n, n * 2


def decayed(x, step, rate):
  step.copy_(step + 1)
  rate.mul_(0.5)
  return x * rate / step, torch.where(rate > 1, rate, -rate), torch.stack([rate, rate * 2])


def looped(x, i):
  i, y = while_loop(lambda i, y: i < 4, lambda i, y: (i + 1, y + x), (i, x * 0))
  return i + 1, y


def scanned(x, n):
  (n, total), rows = scan(
    lambda carry, row: ((carry[0] + 1, carry[1] + row), carry[1] * 2), (n, x[0] * 0), x
  )
  return n, total, rows


def branched(x, p, q):
  return [
    torch.cond(p, lambda x: x + 1, lambda x: x - 1, (x,)),
    torch.cond(q > 2, lambda x: x * 2, lambda x: x * 3, (x,)),
  ]


def half(x, y):
  return x.exp(), y.exp(), y.t() @ y, y.sort(0)[1]


def views(x, y):
  y[0].add_(1)
  z = y * 3
  return x + y.sum(), y, y[1:], z, z[1:], z.view(-1)


def both(x, y):
  z = x.exp()
  return z, copied(z, CPU), copied(x, CPU), copied(y, GPU) + x, copied(y, GPU)


def constants(x):
  return x.sum() * torch.full((), 3.0), x[torch.tensor([2, 0])], torch.arange(3) * 2, torch.eye(2)


def indices(x, i, b):
  return x[i], torch.index_put(x, [i], x[0] * 0), ~b, b & True


NUMBER, FLAG = ((), torch.int64, "cpu"), ((), torch.bool, "cpu")
CASES = {
  "counted": (counted, [NUMBER]),
  "decayed": (decayed, [NUMBER, ((), torch.float64, "cpu")]),
  "looped": (looped, [NUMBER]),
  "scanned": (scanned, [NUMBER]),
  "branched": (branched, [FLAG, NUMBER]),
  "half": (half, [((4, 3), torch.float32, "cpu")]),
  "views": (views, [((4, 3), torch.float32, "cpu")]),
  "both": (both, [((4, 3), torch.float32, "cpu")]),
  "constants": (constants, []),
  "indices": (indices, [((2,), torch.int64, "cpu"), FLAG]),
  "small types": (
    lambda x, u, h: (x + h, u + 250, h * 3),
    [((3,), torch.uint8, "cpu"), ((), torch.bfloat16, "cpu")],
  ),
}


def example(shape, dtype, _):
  return (torch.rand(shape) * 3 + 1).to(dtype)


@pytest.mark.parametrize("name", CASES)
def test_values(name, compiled, monkeypatch, tmp_path):
  function, inputs = CASES[name]
  inputs = [on_gpu(4, 3), *inputs]
  compiled(function, *inputs)
  tensors = [example(*each) for each in inputs]
  expected_given = [each.clone() for each in tensors]
  # On the CPU alone, a copy to the CPU would be the tensor itself.
  monkeypatch.setitem(globals(), "copied", lambda x, device: x.clone())
  expected = function(*expected_given)
  for one, other in zip(compiled.run(monkeypatch, tmp_path, *tensors), expected, strict=True):
    torch.testing.assert_close(one, other)
  torch.testing.assert_close(tensors, expected_given)


def new_tensors(n):
  return [torch.arange(2, 7, device=GPU), torch.full((3, 2), 3.0, device=GPU), torch.ones(2) * n]


def there_and_back(n):
  return copied(copied(n, GPU) * 2, CPU)


@pytest.mark.parametrize(
  "function, outputs", [(new_tensors, ["cuda:0", "cuda:0", "cpu"]), (there_and_back, ["cpu"])]
)
def test_only_the_graph_itself_has_tensors_on_the_gpu(
  function, outputs, compiled, monkeypatch, tmp_path
):
  hir, _ = compiled(function, ((2,), torch.float32, "cpu"))
  assert "target cuda_h200" in hir
  on_host = re.findall(r"buffer output\d of output bytes .*", hir)
  assert ["cpu" if line.endswith(" on host") else "cuda:0" for line in on_host] == outputs
  tensor = torch.rand(2)
  monkeypatch.setitem(globals(), "copied", lambda x, device: x.clone())
  monkeypatch.setitem(globals(), "GPU", CPU)
  expected = function(tensor)
  expected = expected if isinstance(expected, list) else [expected]
  for one, other in zip(compiled.run(monkeypatch, tmp_path, tensor), expected, strict=True):
    torch.testing.assert_close(one, other)


def test_a_graph_without_inputs(compiled, monkeypatch, tmp_path):
  compiled(lambda: torch.arange(2, 7, device=GPU) * 2)
  (result,) = compiled.run(monkeypatch, tmp_path)
  assert result.tolist() == [4, 6, 8, 10, 12]


def test_what_a_graph_writes_on_the_cpu_is_there_when_it_returns(compiled):
  hir, source = compiled(counted, on_gpu(4), NUMBER)
  assert re.search(r"buffer (\w+) of input bytes 8 align 8 on host\n", hir)
  assert re.search(r"buffer output1 of output bytes 8 align 8 on host\n", hir)
  assert "load(__file__, 'cuda:0', [], 'auto', [], True)" in source
  hir, source = compiled(lambda x, y: x + copied(y, GPU), on_gpu(4), ((4,), torch.float32, "cpu"))
  assert "load(__file__, 'cuda:0', [], 'auto', [1], False)" in source


def test_constants_become_fake_tensors():
  """On a GPU Inductor propagates fake tensors and takes no real one among them."""
  mode = FakeTensorMode()
  with mode:
    x = torch.empty(3, device=GPU)
  graph = torch.fx.Graph()
  placeholder, constant = graph.placeholder("x"), graph.get_attr("constant")
  product = graph.call_function(torch.ops.aten.mul.Tensor, (placeholder, constant))
  graph.output((product,))
  value = torch.tensor([1.0, 2.0, 3.0])
  placeholder.meta["val"], product.meta["val"] = x, x
  constant.meta["val"] = mode.from_tensor(value)
  module = torch.fx.GraphModule({"constant": value}, graph)
  one_device.move(module, torch.device(GPU))
  (result,) = FakeTensorProp(module, mode).propagate_dont_convert_inputs(x)
  assert result.device == torch.device(GPU)


def test_numbers_that_are_only_read_need_no_memory_of_the_host(compiled):
  hir, source = compiled(lambda x, n: x * (n * 2 + 1), on_gpu(4), ((), torch.float32, "cpu"))
  (name,) = re.findall(r"input (\w+) float\n", hir)
  assert "on host" not in hir and f"fill f32 (write {name}_on_device, {name})" in hir
  assert f"{name}.item()" in source and "load(__file__, 'cuda:0', [], 'auto')" in source


def test_what_nothing_uses_is_not_copied(compiled):
  hir, _ = compiled(lambda x, y: [x * 2, y], on_gpu(4), ((4,), torch.float32, "cpu"))
  assert "copy (" not in hir


def test_large_arguments_on_the_cpu_are_announced(compiled, caplog):
  large = ((1 << 20,), torch.float32, "cpu")
  inputs = [on_gpu(4), large, ((4,), torch.float32, "cpu"), large]
  compiled(lambda x, y, z, unused: x + copied(y[:4], GPU) + copied(z, GPU), *inputs)
  assert caplog.text.count("each call copies an argument of 4.0 MiB from the CPU") == 1


@pytest.mark.parametrize("is_argument", [False, True])
def test_a_graph_that_counts_on_the_cpu_becomes_a_file(is_argument, compiled, tmp_path):
  compiled(counted, on_gpu(4), NUMBER)
  x, n, y, m = torch.rand(4), torch.tensor(3), torch.rand(4), torch.tensor(8)
  path, arguments = str(compiled.path), [weakref.ref(x), weakref.ref(n)]
  run = recording.Run(path, sections.source(path), arguments, [0, 1], [y, m])
  entry = regions.Entry((0, 0), None, regions.Region("", None, {}, [], {}, False, False), [])
  function = (lambda x, n: x) if is_argument else (lambda x: x)
  callee = regions.callee(torch.compile(function, backend="eager"))
  written = save._Artifact(callee, "forward", (), ["forward"])
  known = {} if is_argument else {id(n): "n"}
  writer = saved.FunctionWriter(
    "forward", run, entry, callee, written.names, written.weights, known, ()
  )
  written.trees["forward"] = writer.write((x, n) if is_argument else (x,), {}, (y, m))
  written.functions.append(writer)
  source = written.write(tmp_path, {})
  huskc.compile(source, tmp_path / "model.husk")
  text = source.read_text()
  assert ("state n i64 []" in text) != is_argument
  assert ("buffer n of input bytes 8 align 8 on host" in text) == is_argument
  assert re.search(r"buffer \w+ of output bytes 8 align 8 on host", text)
  assert re.search(r"copy \(write n, read \w+\)", text)


def test_random_numbers_of_the_cpu_are_refused(compiled):
  said = refusal(compiled, lambda x: [x * 2, torch.randperm(4)], on_gpu(4))
  assert "aten.randperm.default draws random numbers on the CPU in a graph of cuda:0" in said


def test_an_operator_of_the_models_own_on_the_cpu_is_refused(compiled):
  with torch.library._scoped_library("beside", "FRAGMENT") as library:
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x * 2, "CPU")
    library.impl("twice", torch.empty_like, "Meta")
    said = refusal(
      compiled,
      lambda x, y: [x * 2, torch.ops.beside.twice(y)],
      on_gpu(4),
      ((4,), torch.float32, "cpu"),
    )
  assert "beside.twice.default gets tensors of the CPU in a graph of cuda:0" in said
