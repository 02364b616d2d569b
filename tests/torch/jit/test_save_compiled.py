"""husk.save_compiled: files of what torch.compile(backend="husk") runs."""

import functools
import os
import pathlib
import re
import subprocess
import sys
import threading
import weakref

import built_tools
import husk
import inductor_cache
import numpy
import pytest
import torch
from husk import tools
from husk.errors import Unsupported
from husk.host import image
from torch import nn

ROOT = pathlib.Path(built_tools.__file__).resolve().parents[3]
if not image.isas():
  pytest.skip("this CPU has none of the instruction sets", allow_module_level=True)
try:
  from husk.jit import module, recording
  from husk.jit.backend import backend
except ImportError as error:
  pytest.skip(str(error), allow_module_level=True)


@pytest.fixture(autouse=True)
def fresh():
  torch._dynamo.reset()
  torch.manual_seed(0)
  yield
  torch._dynamo.reset()


@pytest.fixture
def path(tmp_path):
  return tmp_path / "model.husk"


def compiled(function, fullgraph=True, **options):
  return torch.compile(function, backend=backend, fullgraph=fullgraph, **options)


def mlp():
  return nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 8))


X = torch.arange(24.0).reshape(4, 6) / 7 - 1


def same(results, expected):
  """Compares values, and how they nest."""
  torch.testing.assert_close(results, expected, rtol=0, atol=0)
  for one, other in zip(*map(torch.utils._pytree.tree_leaves, (results, expected)), strict=True):
    assert type(one) is type(other)
    if isinstance(one, torch.Tensor):
      assert one.stride() == other.stride()


@pytest.mark.parametrize("grad", [False, True], ids=["inference", "training"])
def test_a_model_with_its_parameters(path, grad):
  model = mlp()
  function = compiled(model)
  with torch.set_grad_enabled(grad):
    for rows in (4, 5, 6):
      x = torch.rand(rows, 16)
      expected = function(x).detach()
  assert husk.save_compiled(function, path) == path
  program = husk.load(path)
  same(program(x), expected)
  same(program(input=x[:3].contiguous()), husk.load(path)(x[:3].contiguous()))
  torch.testing.assert_close(program(torch.ones(20, 16)), model(torch.ones(20, 16)).detach())
  assert {one["name"] for one in program.constants()} == {
    "_0.weight",
    "_0.bias",
    "_2.weight",
    "_2.bias",
  }
  assert not [part for part in path.parent.iterdir() if part != path]


def test_constants_of_complex_doubles(path):
  weight, x = torch.randn(2, 4, dtype=torch.complex128)
  model = nn.Linear(1, 1)
  model.register_buffer("scale", weight)
  model.forward = lambda x: x * model.scale
  function = compiled(model)
  with torch.no_grad():
    expected = function(x)
  husk.save_compiled(function, path)
  same(husk.load(path)(x), expected)


WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None
import husk
import numpy
x = numpy.load(sys.argv[2])
results = husk.load(sys.argv[1])(x, mask=None)
assert list(results) == ["sum", "parts"] and isinstance(results["parts"], tuple), results
numpy.savez(sys.argv[3], results["sum"], *results["parts"])
"""


class Nested(nn.Module):
  def __init__(self):
    super().__init__()
    self.scale = nn.Parameter(torch.rand(6))
    self.offsets = torch.arange(6.0)  # neither a parameter nor a buffer

  def forward(self, x, *, mask=None):
    y = x * self.scale + self.offsets
    return {"sum": y.sum(1), "parts": (y.exp(), y.shape[1])}


def environment(folder):
  return {
    **os.environ,
    "PYTHONPATH": str(ROOT / "compiler/torch"),
    "TORCHINDUCTOR_CACHE_DIR": inductor_cache.folder(folder / "cache"),
    "HUSKC": tools.find("huskc"),
  }


def test_a_process_without_torch_loads_the_file(path, tmp_path):
  function = compiled(Nested())
  with torch.no_grad():
    expected = function(X, mask=None)
  husk.save_compiled(function, path, (X,), {"mask": None})
  numpy.save(tmp_path / "x.npy", X.numpy())
  files = [str(path), str(tmp_path / "x.npy"), str(tmp_path / "y.npz")]
  command = [sys.executable, "-c", WITHOUT_TORCH, *files]
  done = subprocess.run(command, env=environment(tmp_path), capture_output=True, text=True)
  assert done.returncode == 0, done.stderr
  found = numpy.load(tmp_path / "y.npz")
  numpy.testing.assert_array_equal(found["arr_0"], expected["sum"].numpy())
  numpy.testing.assert_array_equal(found["arr_1"], expected["parts"][0].numpy())
  assert found["arr_2"] == 6


SECOND = """
import sys
import torch
import husk
from torch import nn
from husk.hir import huskc
from husk.jit.backend import backend

torch.manual_seed(0)
model = nn.Linear(16, 32)
function = torch.compile(model, backend=backend)
if sys.argv[1] == "warm":
  compiled = huskc.compile
  def refuse(*_, **__):
    raise AssertionError("compiled again")
  huskc.compile = refuse
with torch.no_grad():
  expected = function(torch.ones(4, 16))
if sys.argv[1] == "warm":
  huskc.compile = compiled
husk.save_compiled(function, sys.argv[2])
assert torch.equal(husk.load(sys.argv[2])(torch.ones(4, 16)), expected)
"""


def test_a_graph_from_torchs_caches(path, tmp_path):
  same_cache = environment(tmp_path)
  for step in ("cold", "warm"):
    command = [sys.executable, "-c", SECOND, step, str(tmp_path / f"{step}.husk")]
    done = subprocess.run(command, env=same_cache, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
  content = [husk.inspect(tmp_path / f"{step}.husk").content_hash for step in ("cold", "warm")]
  assert content[0] == content[1]


CASES = {
  "nested results": (lambda x: {"a": [x.exp(), (x + 1, x.sum())]}, X),
  "nested arguments": (lambda d, e: d["x"] * e[0] + e[1][0], {"x": X}, (X + 1, [X - 1])),
  "views of one buffer": (lambda x: (lambda y: (y, y.t(), y[1:], y.view(-1)))(x.exp()), X),
  "one buffer twice": (lambda x: (lambda y: (y, y))(x.exp()), X),
  "a transposed result": (lambda x: x.exp().t(), X),
  "inputs as results": (lambda x, y: (x, x.exp(), y, x.t()), X, X + 2),
  "an unused argument": (lambda x, y: x + 1, X, X + 2),
  "another dtype": (lambda x: (x.view(torch.int32) + 1, x.bfloat16()), X),
  "numbers": (lambda x, n, f, b: (x * n * f if b else x, None, 3, 2.5, True), X, 5, 1.5, True),
  "constants": (lambda x: x * torch.tensor([1.0, 2, 3, 4, 5, 6]) + torch.arange(6.0), X),
  "a part of a tensor": (lambda x: x.exp(), X[1:3, 2:]),
  "no elements": (lambda x: (x[:0].exp(), x[:, 6:].sum(1)), X),
  "control flow": (lambda x: torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x * 2, (x,)), X),
}


@pytest.mark.parametrize("form", ["last", "arguments"])
@pytest.mark.parametrize("name", CASES)
def test_values(path, name, form):
  function, *args = CASES[name]
  compiled_function = compiled(function)
  expected = compiled_function(*args)
  husk.save_compiled(compiled_function, path, *([tuple(args)] if form == "arguments" else []))
  same(husk.load(path)(*args), expected)


WEIGHT = torch.linspace(-1, 1, 48).reshape(8, 6)
DYNAMIC = {
  "views of one buffer": (lambda x: (lambda y: (y, y.t(), y[1:]))(x.exp()), X),
  "two arguments": (lambda x, y: (x + y.sum(0), x @ y.t()), X, X[:3].contiguous()),
  "an int": (lambda x, n: x * n, X, 5),
  "parts of one product": (lambda x: (x @ WEIGHT.t()).chunk(2, 1), X),
}


@pytest.mark.parametrize("name", DYNAMIC)
def test_dynamic_sizes(path, name):
  function, *args = DYNAMIC[name]
  compiled_function = compiled(function, dynamic=True)
  compiled_function(*args)
  husk.save_compiled(compiled_function, path)
  program = husk.load(path)
  for rows in (4, 9):
    arguments = [torch.rand(rows, 6) if one is X else one for one in args]
    same(program(*arguments), compiled_function(*arguments))


MASK = torch.ones(3, 7)
SIZES_OF_UNUSED = {
  "a factor": (
    lambda x, y: x * y.shape[0],
    False,
    MASK,
    {"size 0 of input 'y' is 5": torch.ones(5, 7)},
  ),
  "a condition": (
    lambda x, y: x + (y.shape[1] > 4),
    False,
    MASK,
    {"size 1 of input 'y' is 3": torch.ones(3, 3)},
  ),
  "a stride": (
    lambda x, y: x * y.stride(0),
    False,
    MASK,
    {"stride 0 of input 'y' is 1": torch.ones(7, 3).t()},
  ),
  "a varying condition": (
    lambda x, y: x + 1 if y.shape[1] > 4 else x - 1,
    True,
    MASK,
    {
      "size 1 of input 'y' is 3": torch.ones(3, 3),
      "size 0 of input 'y' is 1": torch.ones(1, 7),
      "stride 0 of input 'y' is 1": torch.ones(7, 3).t(),
    },
  ),
  "a size of both": (
    lambda x, y: x * y.shape[1],
    True,
    torch.ones(3, 6),
    {"size 1 of input 'y' (7) must equal size 1 of input 'x' (6)": MASK},
  ),
}


@pytest.mark.parametrize("name", SIZES_OF_UNUSED)
def test_sizes_of_tensors_that_the_graph_does_not_use_are_checked(path, name):
  function, dynamic, tensor, wrong = SIZES_OF_UNUSED[name]
  compiled_function = compiled(function, dynamic=dynamic)
  expected = compiled_function(X, tensor)
  husk.save_compiled(compiled_function, path)
  program = husk.load(path)
  same(program(X, tensor), expected)
  for text, mask in wrong.items():
    with pytest.raises(husk.Error, match=re.escape(text)):
      program(X, mask)


def test_a_number_is_the_size_of_which_torch_knows(path):
  function = compiled(lambda x, mask, n: x * mask.shape[1], dynamic=True)
  function(X, MASK, 7)
  husk.save_compiled(function, path)
  program = husk.load(path)
  for columns in (7, 9):
    mask = torch.ones(3, columns)
    same(program(X, mask, 7), X * columns)
  with pytest.raises(husk.Error, match="input 'n' is 8, must be 7"):
    program(X, MASK, 8)  # the graph does not use n


def test_what_torch_assumes_of_sizes_is_checked(path):
  function = compiled(
    lambda x: x + 1 if x.shape[0] > 3 and x.shape[0] % 2 == 0 else x - 1, dynamic=True
  )
  function(X)
  husk.save_compiled(function, path)
  program = husk.load(path)
  same(program(torch.ones(6, 6)), torch.ones(6, 6) + 1)
  for rows, text in ((2, "size(x, 0) > 3"), (5, "Eq(Mod(size(x, 0), 2), 0)")):
    with pytest.raises(husk.Error, match=re.escape(f"the graph was compiled for {text}")):
      program(torch.ones(rows, 6))


def test_values_that_torch_compiled_for_are_checked(path):
  function = compiled(lambda x, flag, n: x + n if flag else x - n)
  function(X, True, 2)
  husk.save_compiled(function, path)
  program = husk.load(path)
  same(program(X, True, 2), X + 2)
  for wrong, text in (
    (
      (False, 2),
      "the value of flag must be True, for which PyTorch has compiled the graph: input 'flag' (0) "
      "must equal 1",
    ),
    ((True, 3), "input 'n' is 3, must be 2"),
  ):
    with pytest.raises(husk.InvalidInputError, match=re.escape(text)):
      program(X, *wrong)


def test_operators_that_husk_has_too_are_then_husks(path):
  function = compiled(lambda x: torch.fft.rfft(x).abs())
  expected = function(X)
  husk.save_compiled(function, path)
  torch.testing.assert_close(husk.load(path)(X), expected)


class Counter(nn.Module):
  def __init__(self):
    super().__init__()
    self.register_buffer("count", torch.zeros(1))
    self.bn = nn.BatchNorm1d(6)

  def forward(self, x):
    self.count += 1
    return self.bn(x) + self.count


def test_written_buffers_are_state(path):
  model = Counter()
  compiled_model = compiled(model)
  with torch.no_grad():
    compiled_model(X)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    husk.save_compiled(compiled_model, path)
    # Saving leaves the model as it was.
    for name, value in model.state_dict().items():
      torch.testing.assert_close(value, before[name], rtol=0, atol=0)
    session = husk.load(path).session()
    for _ in range(3):
      same(session(X), compiled_model(X))
    same(session.state["count"].torch(), model.count)
    same(session.state["bn.running_mean"].torch(), model.bn.running_mean)


def test_a_written_argument_is_written(path):
  function = compiled(lambda x: x.add_(1).mul(2))
  function(X.clone())
  husk.save_compiled(function, path)
  mine, theirs = X.clone(), X.clone()
  same(husk.load(path)(mine), function(theirs))
  same(mine, theirs)


def named(forward):
  """A decorator as those of transformers, which has parameters of its own."""

  @functools.wraps(forward)
  def wrapper(self, *args, **kwargs):
    names = kwargs.pop("return_dict", None)
    result = forward(self, *args, **kwargs)
    return {"hidden": result[0], "first": result[1]} if names is not False else result

  return wrapper


def checked(forward):
  """Another one, which has no parameter for the model."""

  @functools.wraps(forward)
  def wrapper(*args, **kwargs):
    assert "past" not in kwargs
    return forward(*args, **kwargs)

  return wrapper


class Transformer(nn.Module):
  """A model as transformers has them: most arguments are keywords, and some are none."""

  def __init__(self):
    super().__init__()
    self.embedding = nn.Embedding(11, 8)
    self.query, self.key, self.value = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)
    self.head = nn.Linear(8, 11, bias=False)

  @named
  def forward(self, input_ids=None, attention_mask=None, inputs_embeds=None, *, scale=1.0, **more):
    x = self.embedding(input_ids) if inputs_embeds is None else inputs_embeds
    mask = None if attention_mask is None else attention_mask[:, None, None].bool()
    q, k, v = (layer(x)[:, None] for layer in (self.query, self.key, self.value))
    x = nn.functional.scaled_dot_product_attention(q, k, v, mask)[:, 0] * scale
    return self.head(x), x[:, 0]


class CheckedTransformer(Transformer):
  @checked
  def forward(self, *args, **kwargs):
    return super().forward(*args, **kwargs)


@pytest.mark.parametrize("kind", [Transformer, CheckedTransformer])
@pytest.mark.parametrize("way", ["keywords", "positions", "embeddings"])
def test_a_transformer_without_arguments(path, way, kind):
  torch.manual_seed(0)
  model = kind().eval()
  ids, mask = torch.tensor([[1, 2, 3], [4, 5, 6]]), torch.tensor([[1, 1, 1], [1, 1, 0]])
  args, kwargs = {
    "keywords": ((), {"input_ids": ids, "attention_mask": mask, "return_dict": False}),
    "positions": ((ids, mask), {"scale": 2.0}),
    "embeddings": ((), {"inputs_embeds": torch.randn(2, 3, 8)}),
  }[way]
  with torch.no_grad():
    compiled_model = compiled(model)
    expected = compiled_model(*args, **kwargs)
    husk.save_compiled(compiled_model, path)
  torch.testing.assert_close(husk.load(path)(*args, **kwargs), expected)


@pytest.mark.parametrize("has_args", [True, False], ids=["args", "latest"])
def test_a_written_argument_that_autograd_follows(path, has_args):
  @compiled
  def function(x, y):
    x.mul_(2)
    return x + y

  leaf = torch.ones(4, requires_grad=True)
  x, y = leaf * 3, torch.ones(4)
  function(leaf * 3, y)
  with pytest.raises(Unsupported, match="writes x in place, and autograd follows it"):
    husk.save_compiled(function, path, (x, y) if has_args else None)
  assert x.tolist() == [3] * 4
  assert not path.exists()
  with torch.no_grad():
    husk.save_compiled(function, path, (x, y))
  assert x.tolist() == [3] * 4
  written = torch.ones(4)
  same(husk.load(path)(written, y), torch.full((4,), 3.0))
  assert written.tolist() == [2] * 4


def test_a_written_attribute_that_autograd_follows(path):
  class Model(nn.Module):
    def __init__(self):
      super().__init__()
      self.weight = nn.Parameter(torch.ones(4))
      self.sum = self.weight * 1

    def forward(self, x):
      self.sum.add_(x)
      return self.sum * 2

  function = compiled(Model())
  function(torch.ones(4))
  with pytest.raises(Unsupported, match="writes sum in place"):
    husk.save_compiled(function, path)


def test_floats_that_torch_has_compiled_for(path):
  norm = nn.LayerNorm(6, eps=0.5)

  def function(x, columns):
    return norm(x).reshape(-1, int(columns))

  compiled_function = compiled(function, dynamic=True)
  with torch.no_grad():
    compiled_function(X, 2.0)
    husk.save_compiled(compiled_function, path)
    program = husk.load(path)
    x = torch.rand(5, 6)
    torch.testing.assert_close(program(x, 2.0), compiled_function(x, 2.0))
  with pytest.raises(husk.Error, match="the value of columns must be 2.0, for which PyTorch has"):
    program(x, 3.0)


def test_an_argument_whose_shape_changes(path):
  def function(x):
    x.t_()
    return x + 1

  function = compiled(function, fullgraph=False)
  x = torch.ones(3, 4)
  function(torch.ones(3, 4))
  with pytest.raises(Unsupported, match="changes the shape or the strides of an argument"):
    husk.save_compiled(function, path, (x,))
  assert x.shape == (3, 4)


def test_the_graph_that_ran_last_or_all_graphs(path):
  def function(x, flag):
    return x + 1 if flag else x * 2

  compiled_function = compiled(function, dynamic=False)
  compiled_function(X, True)
  compiled_function(X, False)
  compiled_function(X, True)
  husk.save_compiled(compiled_function, path, function="added")
  program = husk.load(path)
  assert list(program.functions) == ["added"]
  same(program(X, True), X + 1)
  husk.save_compiled(compiled_function, path, graphs="all", metadata={"note": "both"})
  program = husk.load(path)
  same(program.forward(X, True), X + 1)
  same(program.forward_2(X, False), X * 2)
  assert husk.inspect(path).metadata == {"note": "both"}


def test_functions_share_constants(path):
  model = mlp()
  compiled_model = compiled(model, dynamic=False)
  # A product of up to 32 rows may read a parameter in place, and adds in another order than with
  # the packed constant of a file. Products of more rows have the same bits.
  few, many = torch.ones(2, 16), torch.ones(40, 16)
  with torch.no_grad():
    expected = [compiled_model(few), compiled_model(many)]
  husk.save_compiled(compiled_model, path, graphs="all")
  program = husk.load(path)
  assert len(program.constants()) == 4
  torch.testing.assert_close(program.forward(few), expected[0])
  same(program.forward_2(many), expected[1])


def test_methods_and_modules_compiled_in_place(path):
  class Model(nn.Module):
    def __init__(self):
      super().__init__()
      self.linear = nn.Linear(6, 3)

    def forward(self, x):
      return self.linear(x).exp()

    def decode(self, x, factor=2.0):
      return self.linear(x) * factor

  first, second = Model(), Model()
  for model in (first, second):
    compiled_method = compiled(model.decode)
    with torch.no_grad():
      expected = compiled_method(X)
    husk.save_compiled(compiled_method, path)
    same(husk.load(path)(X), expected)
  first.compile(backend=backend, fullgraph=True)
  with torch.no_grad():
    expected = first(X)
  husk.save_compiled(first, path)
  same(husk.load(path)(X), expected)


def test_tied_and_transposed_weights(path):
  class Tied(nn.Module):
    def __init__(self):
      super().__init__()
      self.embedding = nn.Embedding(10, 6)
      self.out = nn.Linear(6, 10, bias=False)
      self.out.weight = self.embedding.weight
      self.register_buffer("columns", torch.rand(6, 6).t())

    def forward(self, tokens):
      return self.out(self.embedding(tokens) @ self.columns)

  compiled_model = compiled(Tied())
  tokens = torch.tensor([[1, 2, 3], [7, 8, 9]])
  with torch.no_grad():
    expected = compiled_model(tokens)
  husk.save_compiled(compiled_model, path)
  program = husk.load(path)
  same(program(tokens), expected)
  assert len(program.constants()) == 2


def test_an_operator_that_the_application_registers(path):
  function = compiled(lambda x: torch.ops.husk_saved.double(x.exp()) + 1)
  expected = function(X)
  with pytest.raises(husk.Unsupported, match=r"give ops=\['husk_saved::double'\]"):
    husk.save_compiled(function, path)
  husk.save_compiled(function, path, ops=["husk_saved::double"])

  def double(x, out):
    out.copy_(x * 2)

  same(husk.load(path, ops={"husk_saved::double": double})(X), expected)


@torch.library.custom_op("husk_saved::double", mutates_args=())
def double_(x: torch.Tensor) -> torch.Tensor:
  return x * 2


@double_.register_fake
def _(x):
  return torch.empty_like(x)


class Assigning(nn.Module):
  def __init__(self):
    super().__init__()
    self.cache = torch.zeros(4, 6)

  def forward(self, x):
    self.cache = x + 1
    return x * 2


KEPT = None


def keeping(x):
  global KEPT
  KEPT = x + 1
  return x * 2


def breaking(x):
  y = x.sin()
  torch._dynamo.graph_break()
  return y.cos() + 1


REFUSED = {
  "an operator of torch's": (
    lambda x: torch.ops.aten._pdist_backward(x[0], x, 2.0, x[0]),
    "aten::_pdist_backward.* through PyTorch",
  ),
  "random numbers": (lambda x: torch.rand_like(x) + x, "through PyTorch"),
  "a graph break": (breaking, r"breaks in breaking \(test_save_compiled.py:\d+\)"),
  "an attribute": (Assigning(), "assigns another tensor to cache"),
  "a kept tensor": (keeping, "keeps output 1"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_write_nothing(path, name):
  function, text = REFUSED[name]
  compiled_function = compiled(function, fullgraph=False)
  with torch.no_grad():
    compiled_function(X)
    path.write_bytes(b"before")
    with pytest.raises(Unsupported, match=text):
      husk.save_compiled(compiled_function, path)
  assert path.read_bytes() == b"before" and len(list(path.parent.iterdir())) == 1


def test_wrong_calls(path):
  with pytest.raises(TypeError, match="no result of torch.compile"):
    husk.save_compiled(mlp(), path)
  with pytest.raises(Unsupported, match="compiled nothing of <lambda>"):
    husk.save_compiled(compiled(lambda x: x + 1), path)
  function = torch.compile(lambda x: x + 2, backend="eager")
  function(X)
  with pytest.raises(Unsupported, match="compiled nothing"):
    husk.save_compiled(function, path)
  with pytest.raises(ValueError, match="graphs='some'"):
    husk.save_compiled(function, path, graphs="some")
  with pytest.raises(ValueError, match="no name of a function"):
    husk.save_compiled(function, path, function="1")
  with pytest.raises(ValueError, match="give no args"):
    husk.save_compiled(function, path, (X,), graphs="all")


def test_one_tensor_as_two_arguments(path):
  function = compiled(lambda x, y: x + y)
  function(X, X)
  with pytest.raises(Unsupported, match="x and y are one tensor"):
    husk.save_compiled(function, path, (X, X))


def programs():
  """The program, or its recorder, of each compiled graph of this process."""
  return [
    call.__closure__[call.__code__.co_freevars.index("program")].cell_contents
    for call in list(module.calls)
  ]


def test_records_of_two_threads(path):
  function = compiled(lambda x: x + 3)
  function(X)
  entered, leave = threading.Event(), threading.Event()

  def record():
    with recording.recorded():
      entered.set()
      leave.wait(600)

  thread = threading.Thread(target=record)
  with recording.recorded() as runs:
    thread.start()
    entered.wait(0.5)
    function(X)
  leave.set()
  thread.join()
  assert len(runs) == 1
  assert not [one for one in programs() if isinstance(one, recording._Recorder)]


def test_another_thread_compiles_while_one_records(path):
  def compile_and_run():
    function = compiled(lambda x: x + 5)
    function(X)
    kept.append(function)

  kept = []
  with recording.recorded() as runs:
    thread = threading.Thread(target=compile_and_run)
    thread.start()
    thread.join()
  assert kept and not runs


def test_graphs_are_added_while_one_begins_to_record(monkeypatch):
  def call_of_graph():
    program = None
    return lambda: program

  class Calls(weakref.WeakSet):
    """Another thread adds a graph during each step of an iteration."""

    def __iter__(self):
      for one in super().__iter__():
        threads.append(threading.Thread(target=module.remembered, args=(added,)))
        threads[-1].start()
        threads[-1].join(0.2)
        yield one

  first, added, threads = call_of_graph(), call_of_graph(), []
  monkeypatch.setattr(module, "calls", Calls([first]))
  with recording.recorded():
    pass
  for thread in threads:
    thread.join()
  assert threads and len(module.calls) == 2


def test_arguments_that_were_not_compiled_yet(path):
  function = compiled(lambda x: x + 1)
  husk.save_compiled(function, path, (X,))
  same(husk.load(path)(X), X + 1)


def test_a_saved_file_has_the_text_of_its_program(path, tmp_path):
  function = compiled(lambda x: x + 1)
  function(X)
  husk.save_compiled(function, path, keep=tmp_path / "keep")
  text = (tmp_path / "keep/model.hir").read_text()
  assert re.search(r"input x tensor f32 \[4, 6\]", text)
