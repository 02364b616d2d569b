"""torch.compile(backend="husk") on the CPU: values, gradients and aliases against eager PyTorch."""

import copy
import gc
import importlib.metadata
import os
import pathlib
import re
import subprocess
import sys
import threading
import tomllib

import built_tools
import husk
import inductor_cache
import memory_growth
import pytest
import torch
from husk import tools
from husk.errors import Unsupported
from husk.host import image
from husk.inductor import repeated_sizes
from torch import nn
from torch._dynamo.exc import BackendCompilerFailed

ROOT = pathlib.Path(built_tools.__file__).resolve().parents[3]
if not image.isas():
  pytest.skip("this CPU has none of the instruction sets", allow_module_level=True)
try:
  from husk.jit import module
  from husk.jit.backend import backend
except ImportError as error:
  pytest.skip(str(error), allow_module_level=True)


@pytest.fixture(autouse=True)
def no_caches():
  """Each test compiles, and no program of Inductor's own wrapper can run."""
  from torch._functorch import config as functorch
  from torch._inductor import config as inductor

  # torch.export leaves its hook behind when it fails, as in tests of errors, and Dynamo cannot
  # trace the assignment of a buffer as long as there is one.
  torch.nn.modules.module._global_buffer_registration_hooks.clear()
  torch._dynamo.reset()
  with inductor.patch(fx_graph_cache=False), functorch.patch(enable_autograd_cache=False):
    yield
  torch._dynamo.reset()


@pytest.fixture
def programs(monkeypatch):
  """The programs that are loaded, as sessions whose runs can be counted."""
  sessions = []
  original = module.load

  def load(*args):
    program = original(*args)
    sessions.append(program.session())
    return sessions[-1]

  def refuse(*_, **__):
    raise AssertionError("a kernel is loaded without Husk")

  from torch._inductor import codecache

  monkeypatch.setattr(module, "load", load)
  monkeypatch.setattr(codecache.CppPythonBindingsCodeCache, "load_pybinding", refuse)
  monkeypatch.setattr(codecache.CppPythonBindingsCodeCache, "load_pybinding_async", refuse)
  return sessions


def compiled(function, fullgraph=True, **options):
  return torch.compile(function, backend=backend, fullgraph=fullgraph, **options)


def storages(values):
  """For each tensor the first of the tensors whose memory it shares."""
  known = {}
  keys = [
    value.untyped_storage()._cdata if isinstance(value, torch.Tensor) else None
    for value in torch.utils._pytree.tree_leaves(values)
  ]
  return [known.setdefault(key, index) for index, key in enumerate(keys)]


def equal(function, *args, grad=False, others=(), **options):
  """Compares results, written arguments, shared memory and gradients with those of eager mode, for
  `args` and for each of `others`."""
  program = compiled(function, **options)
  for arguments in (args, *others):
    mine, theirs = copy.deepcopy(arguments), copy.deepcopy(arguments)
    with torch.set_grad_enabled(grad):
      results, expected = program(*mine), function(*theirs)
    torch.testing.assert_close(results, expected, rtol=2e-5, atol=2e-5)
    torch.testing.assert_close(mine, theirs)
    assert storages([results, mine]) == storages([expected, theirs])
    for one, other in zip(*map(torch.utils._pytree.tree_leaves, (results, expected)), strict=True):
      if isinstance(one, torch.Tensor):
        assert one.stride() == other.stride() and one.requires_grad == other.requires_grad
    if grad:
      for values in (results, expected):
        leaves = torch.utils._pytree.tree_leaves(values)
        sum((one * one).sum() for one in leaves if one.requires_grad).backward()
      for one, other in zip(mine, theirs, strict=True):
        if isinstance(one, torch.Tensor):
          torch.testing.assert_close(one.grad, other.grad, rtol=2e-5, atol=2e-5)
  return program


def together(cases, grad=False):
  """A function that computes all cases, functions with their arguments by name, and its arguments.
  To compile one function takes a part of the time that one for each case would."""
  counts = [len(args) for _, *args in cases.values()]

  def function(*args):
    args = iter(args)
    return {
      name: case(*[next(args) for _ in range(count)])
      for (name, (case, *_)), count in zip(cases.items(), counts, strict=True)
    }

  values = [x for _, *args in cases.values() for x in args]
  return function, *(
    x.clone().requires_grad_(grad) if isinstance(x, torch.Tensor) else x for x in values
  )


def mlp():
  torch.manual_seed(0)
  return nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 8))


def convolutions():
  torch.manual_seed(0)
  return nn.Sequential(
    nn.Conv2d(3, 8, 3, padding=1),
    nn.BatchNorm2d(8),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Conv2d(8, 8, 3, stride=2),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Linear(8, 4),
  )


X = torch.arange(24.0).reshape(4, 6) / 7 - 1


# Models


def test_inference_of_an_mlp_and_other_batches():
  equal(mlp(), torch.ones(4, 16), others=[(torch.ones(n, 16),) for n in (4, 7, 9)])


@pytest.mark.parametrize("dynamic", [None, True])
def test_inference_of_convolutions(dynamic):
  model = convolutions().eval()
  equal(model, torch.rand(2, 3, 16, 16), others=[(torch.rand(5, 3, 16, 16),)] * 2, dynamic=dynamic)


def test_parameters_are_inputs(programs):
  model = mlp()
  function = compiled(model)
  x = torch.ones(4, 16)
  with torch.no_grad():
    before = function(x).clone()
    model[0].weight.mul_(2)
    torch.testing.assert_close(function(x), model(x))
    assert not torch.allclose(function(x), before)
  assert len(programs) == 1 and not programs[0].program.constants()


def test_every_kernel_is_launched_by_husk(programs):
  def function(x, y):
    return torch.softmax(x @ y, -1).relu(), x.sin()

  args = torch.rand(4, 6), torch.rand(6, 8)
  run = compiled(function)
  for _ in range(5):
    torch.testing.assert_close(run(*args), function(*args))
  (session,) = programs
  stats = session.stats(0)
  # The product, the softmax with the relu, and the sine.
  assert stats["runs_as_list"] == 5 and stats["steps"] == 3


def test_the_second_shape_is_dynamic_and_later_ones_need_no_compilation(programs):
  function = compiled(lambda x: x.exp() * x.shape[0])
  for rows in (4, 5, 6, 70):
    x = torch.rand(rows, 6)
    torch.testing.assert_close(function(x), x.exp() * rows)
  assert [session.stats(0)["runs_as_list"] for session in programs] == [1, 3]


# Values of the graph


CASES = {
  "written input": (lambda x: x.add_(1).mul(2), X),
  "written part": (lambda x: (x[1:].mul_(3), x.sum())[1], X),
  "inputs as outputs": (lambda x: (x.view(24), x, x.t(), x[1:]), X),
  "views of one buffer": (
    lambda x: (lambda y: (y, y.t(), y[1:], y.view(-1)))(x.exp()),
    X,
  ),
  "part of a buffer twice": (lambda x: (lambda y: (y[0], y[0]))(torch.sort(x)[0]), X),
  "a part without dimensions": (lambda x: (lambda y: (y[0], y[1]))(x.sum(1)), X),
  "one buffer twice": (lambda x: (lambda y: (y, y))(x.exp()), X),
  "numbers": (lambda x, n: (x * n, n + 1, None, 3), X, 5),
  "a float": (lambda x, n: x * n, X, 5.5),
  "constants": (lambda x: x * torch.tensor([1.0, 2, 3, 4, 5, 6]) + torch.arange(6.0), X),
  "another dtype": (
    lambda x: (x.view(torch.int32), x.view(torch.int16), x.abs().view(torch.int16)),
    X,
  ),
  "no elements": (lambda x: (x[:0].exp(), x[:, 6:].sum(1)), X),
  "half precision": (lambda x: (x.bfloat16() @ x.t().bfloat16()).relu(), X),
  "complex": (lambda x: torch.fft.rfft(x).abs(), X),
  "attention": (
    lambda q: nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True),
    torch.rand(1, 2, 16, 8),
  ),
  "attention of nothing": (
    lambda q: nn.functional.scaled_dot_product_attention(q, q, q),
    torch.rand(0, 2, 16, 8),
  ),
  "control flow": (
    lambda x: torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x * 2, (x,)),
    X,
  ),
  "indices": (lambda x, i: x[i], X, torch.tensor([1, 3, 1])),
}


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_values_and_aliases(dynamic, programs):
  equal(*together(CASES), dynamic=dynamic)


# These cases make programs that others beside them would hide: one without kernels, one whose only
# effect is on an argument, and one whose loops are all empty.
@pytest.mark.parametrize("name", ["written input", "inputs as outputs", "no elements", "numbers"])
def test_values_and_aliases_alone(name, programs):
  function, *args = CASES[name]
  equal(function, *args, dynamic=name in ("inputs as outputs", "no elements"))


def test_sizes_that_the_data_decides():
  with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
    equal(lambda x: torch.nonzero(x).sum(0), X)


def test_constants_and_written_state_of_a_module():
  class Counter(nn.Module):
    def __init__(self):
      super().__init__()
      self.register_buffer("count", torch.zeros(1))
      self.weight = torch.arange(6.0)  # neither a parameter nor a buffer

    def forward(self, x):
      self.count += 1
      return x * self.weight + self.count

  mine, theirs = Counter(), Counter()
  function = compiled(mine)
  for _ in range(3):
    torch.testing.assert_close(function(X), theirs(X))
  torch.testing.assert_close(mine.count, theirs.count)


def test_what_is_found_of_sizes_is_kept(monkeypatch):
  """Otherwise SymPy searches for minutes in the sizes of a model with windows. The forward is
  traced and compiled, and the backward is compiled later."""
  opened, known = [], repeated_sizes.known
  monkeypatch.setattr(repeated_sizes, "known", lambda: opened.append(1) or known())
  rows = X.clone().requires_grad_()
  equal(
    lambda x: nn.functional.pad(x, (0, 0, 0, -x.shape[0] % 3)).view(-1, 3, 6).sin(),
    rows,
    grad=True,
    dynamic=True,
  )
  assert len(opened) == 3


def test_inference_mode():
  function = compiled(mlp())
  with torch.inference_mode():
    result = function(torch.ones(2, 16))
  assert result.is_inference()
  torch.testing.assert_close(result, mlp()(torch.ones(2, 16)))


def test_an_index_out_of_range_is_an_error():
  function = compiled(lambda x, i: x[i] + 1)
  with pytest.raises(husk.Error, match="index out of bounds"):
    function(X, torch.tensor([9]))
  torch.testing.assert_close(function(X, torch.tensor([1])), X[[1]] + 1)


# Training


TRAINED = {
  "products": (lambda x: (x @ x.t()).relu(), X),
  "softmax": (lambda x: (x @ x.t()).softmax(-1).log(), X),
  "sums": (lambda x: ((x.sin() * x).sum(1), x.exp()), X),
  "embedding": (lambda x: x[torch.tensor([1, 2, 1])], X),
  "a place of all elements": (lambda x: x.sin().take(x.argmax()), X),
  "pools with one number": (
    lambda x: (
      nn.functional.avg_pool2d(x[None], (2, 2), (1, 2), (1,)),
      nn.functional.avg_pool3d(x.reshape(1, 2, 2, 6), (2, 2, 2), padding=(1,)),
      nn.functional.max_pool2d(x[None], (3, 2), stride=(2,), padding=(1,)),
    ),
    X,
  ),
}


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_gradients(dynamic, programs):
  equal(*together(TRAINED, grad=True), grad=True, dynamic=dynamic)
  assert len(programs) == 2  # forward and backward


def test_training_equals_eager():
  def losses(step, model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    found = []
    for i in range(4):
      x = torch.sin(torch.arange(64.0) * (i + 1)).reshape(4, 16)
      loss = step(x).square().mean()
      loss.backward()
      optimizer.step()
      optimizer.zero_grad()
      found.append(loss.item())
    return found

  mine, theirs = mlp(), mlp()
  assert losses(compiled(mine), mine) == pytest.approx(losses(theirs, theirs), rel=1e-5)


def test_gradients_twice_with_retained_graph():
  gradients = []
  for function in (
    lambda x: (x @ x.t()).relu().exp(),
    compiled(lambda x: (x @ x.t()).relu().exp()),
  ):
    x = X.clone().requires_grad_()
    result = function(x * 0.1)
    for _ in range(2):
      result.sum().backward(retain_graph=True)
    gradients.append(x.grad)
  torch.testing.assert_close(*gradients)


# Options and errors


def test_freezing_makes_parameters_constants(programs):
  model = mlp().eval()
  function = compiled(model, options={"freezing": True})
  x = torch.ones(3, 16)
  with torch.no_grad():
    torch.testing.assert_close(function(x), model(x))
  assert len(programs) == 1


@pytest.mark.parametrize("mode", ["default", "reduce-overhead", "max-autotune-no-cudagraphs"])
def test_modes_of_torch(mode):
  equal(lambda x: x.exp() + 1, X, mode=mode)


@pytest.mark.parametrize("mode", ["auto", "list"])
def test_options_of_husk_and_inductor(mode):
  equal(lambda x: x.exp() + 1, X, options={"mode": mode, "epilogue_fusion": True})


@pytest.mark.parametrize(
  "options, text",
  [
    ({"no_such_option": 1}, "no option 'no_such_option'"),
    ({"fx_wrapper": True}, "no option 'fx_wrapper'"),
    ({"mode": "fast"}, "mode 'fast'"),
    ({"mode": "graph"}, "the CPU has no graphs"),
  ],
)
def test_wrong_options_are_refused(options, text):
  with pytest.raises(BackendCompilerFailed, match=text):
    compiled(lambda x: x + 1, options=options)(X)


# Operators


@torch.library.custom_op("husk_tests::scaled", mutates_args=())
def scaled(x: torch.Tensor, factor: float, negate: bool, text: str) -> torch.Tensor:
  assert text == "by hand" and isinstance(negate, bool)
  return x * (-factor if negate else factor)


@scaled.register_fake
def _(x, factor, negate, text):
  return torch.empty_like(x)


@torch.library.custom_op("husk_tests::filled", mutates_args={"x"})
def filled(x: torch.Tensor, value: float) -> None:
  x.fill_(value)


def with_filled(x):
  y = x.exp()
  filled(y, 3.0)
  return y + x


CALLED = {
  "a result": (lambda x: torch.linalg.qr(x)[1].abs() + 1, X),
  "a complex result": (lambda x: torch.linalg.eigvals(x @ x.t()).abs().sort()[0], X),
  "complex numbers": (lambda x: torch.linalg.solve(x[:, :4] * 1j + torch.eye(4), x * 1j).abs(), X),
  "an operator of Python": (lambda x: scaled(x.exp(), 1.5, True, "by hand") + 1, X),
  "a written argument": (with_filled, X),
}


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_operators_that_torch_provides(dynamic, programs):
  equal(*together(CALLED), dynamic=dynamic)


def test_a_backward_by_operators_of_torch(programs):
  equal(lambda x: torch.cdist(x, x, p=3.0) + 1, X.clone().requires_grad_(), grad=True)
  mine, theirs = convolutions(), convolutions()
  x = torch.rand(2, 3, 16, 16)
  compiled(mine)(x).square().sum().backward()
  theirs(x).square().sum().backward()
  for one, other in zip(mine.parameters(), theirs.parameters(), strict=True):
    torch.testing.assert_close(one.grad, other.grad, rtol=1e-4, atol=1e-4)
  for one, other in zip(mine.buffers(), theirs.buffers(), strict=True):
    torch.testing.assert_close(one, other)


def test_gradients_without_elements():
  x, y = (torch.randn(size).requires_grad_() for size in ((5, 5, 0), (0, 5)))
  equal(torch.matmul, x, y, grad=True)


def test_an_exception_of_an_operator():
  function = compiled(lambda x: scaled(x, 1.5, True, "another text") + 1)
  with pytest.raises(AssertionError):
    function(X)


def drawn(x):
  return nn.functional.dropout(x, 0.5), torch.randn_like(x), torch.rand(3), torch.randint(9, (4,))


def test_random_numbers_of_torchs_generators():
  function = compiled(drawn, options={"fallback_random": True})
  for seed in (3, 4):
    torch.manual_seed(seed)
    results = function(X), function(X)
    torch.manual_seed(seed)
    torch.testing.assert_close(results, (drawn(X), drawn(X)))


def test_random_numbers_of_inductors_own(programs):
  function = compiled(drawn)
  torch.manual_seed(3)
  first, second = function(X), function(X)
  torch.manual_seed(3)
  torch.testing.assert_close(function(X), first)
  assert not torch.equal(first[1], second[1])
  assert abs(compiled(lambda x: torch.rand_like(x))(torch.zeros(10000)).mean() - 0.5) < 0.02


@torch.library.custom_op("husk_tests::positive", mutates_args=())
def positive(x: torch.Tensor) -> torch.Tensor:
  return x[x > 0]


@positive.register_fake
def _(x):
  return x.new_empty(torch.library.get_ctx().new_dynamic_size())


def test_results_whose_size_only_the_data_decides_are_refused_by_name():
  function = lambda x: positive(x) + 1  # noqa: E731
  with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
    with pytest.raises(BackendCompilerFailed, match="husk_tests::positive, the sizes of whose"):
      compiled(function)(X)
    with torch._dynamo.config.patch(suppress_errors=True):
      torch.testing.assert_close(torch.compile(function, backend=backend)(X), function(X))


def test_what_a_backward_lacks_is_refused_by_name():
  class Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
      return x.exp()

    @staticmethod
    def backward(ctx, gradient):
      return gradient * positive(gradient).sum()

  x = X.clone().requires_grad_()
  with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
    result = compiled(lambda x: Function.apply(x))(x)
    with pytest.raises(Unsupported, match="husk_tests::positive"):
      result.sum().backward()


# Constructs of torch


class Exponential(torch.autograd.Function):
  @staticmethod
  def forward(ctx, x):
    ctx.save_for_backward(x)
    return x.exp()

  @staticmethod
  def backward(ctx, gradient):
    (x,) = ctx.saved_tensors
    return gradient * x.cos()


def with_autocast(x):
  with torch.autocast("cpu", dtype=torch.bfloat16):
    return (x @ x.t()).float().relu()


def with_checkpoint(x):
  return torch.utils.checkpoint.checkpoint(
    lambda y: (y @ y.t()).sin().exp(), x * 0.1, use_reentrant=False
  )


def with_graph_break(x):
  y = x.sin()
  torch._dynamo.graph_break()
  return y.cos() + 1


def with_loop(x):
  return torch._higher_order_ops.while_loop(
    lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), (torch.tensor(0), x)
  )


def with_counter(x):
  i, y = torch._higher_order_ops.while_loop(
    lambda i, y: i < 3, lambda i, y: (i + 1, y * i + x), (1, x * 2)
  )
  return y * i, y


def scanned(x):
  return torch._higher_order_ops.scan(lambda sum, row: (sum + row, sum * row), x[0] * 2, x)


def mapped(x):
  return torch._higher_order_ops.map(lambda row: row.sin() + row.sum(), x)


def with_overlapping_views(x):
  one, two = x[:3], x[1:]
  return one.add_(1) + two


def transformer():
  torch.manual_seed(0)
  return nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True)


CONSTRUCTS = {
  "gradient of a function": (torch.func.grad(lambda x: (x.sin() ** 2).sum()), X),
  "vmap": (lambda x: torch.vmap(lambda row: row @ row)(x), X),
  "loop": (with_loop, X),
  "loop that counts with a number": (with_counter, X),
  "overlapping views": (with_overlapping_views, X),
  "a conjugate view": (lambda x: (x * 2).real + 1, (X * 1j).conj()),
  "channels last": (
    lambda x: (x + 1, x.mean((2, 3))),
    torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last),
  ),
}
TRAINED_CONSTRUCTS = {
  "autograd.Function": (lambda x: Exponential.apply(x) * 2, X),
  "autocast": (with_autocast, X),
  "checkpoint": (with_checkpoint, X),
  "transformer": (transformer(), torch.rand(2, 4, 8)),
  "scan": (scanned, X),
  "map": (mapped, X),
}


@pytest.mark.parametrize("grad", [False, True], ids=["values", "gradients"])
def test_constructs(grad, programs):
  equal(*together(TRAINED_CONSTRUCTS if grad else CONSTRUCTS, grad), grad=grad)
  assert programs


@pytest.mark.parametrize(
  "function, grad",
  [(with_graph_break, True), (lambda x: x + 1 if x.sum() > 0 else x - 1, False)],
  ids=["graph break", "branch on data"],
)
def test_functions_of_several_graphs(function, grad, programs):
  equal(function, X.clone().requires_grad_(grad), grad=grad, fullgraph=False)
  assert programs


def test_a_function_without_tensors_and_a_marked_dimension():
  program = compiled(lambda: torch.ones(3) + 1)
  torch.testing.assert_close(program(), torch.full((3,), 2.0))
  x = torch.rand(5, 6)
  torch._dynamo.mark_dynamic(x, 0)
  equal(lambda x: x.exp() * x.shape[0], x)


def test_memory_stays_flat():
  model = mlp()
  function = compiled(model)
  x = torch.ones(4, 16)

  def run(times):
    for _ in range(times):
      function(x).sum().backward()
    model.zero_grad()

  growth, _ = memory_growth.least_growth(run, 700)
  assert growth < 512 << 10


def test_recompilations_release_their_programs():
  def run(times):
    for _ in range(times):
      torch._dynamo.reset()
      compiled(lambda x: x.exp() + 1)(X)
    gc.collect()
    return len(os.listdir("/proc/self/fd"))  # a program has its image open

  assert run(1) == run(4)


# Together with the rest of torch

# Inductor itself would compile a program for each instruction set, to see whether it runs, and the
# headers of its kernels, and would start processes that compile: here for one kernel.
FEW_COMPILATIONS = {
  "compile_threads": 1,
  "cpp_cache_precompile_headers": False,
  "cpp.vec_isa_ok": True,
}


@torch._inductor.config.patch(FEW_COMPILATIONS)
def test_inductor_and_an_export_beside_it(tmp_path):
  mine = compiled(lambda x: x.exp() + 1)
  theirs = torch.compile(lambda x: x.exp() + 2, backend="inductor")
  for _ in range(2):
    torch.testing.assert_close(mine(X) + 1, theirs(X))
  targets = (f"host:{image.isas()[0]}",)
  path = husk.export(mlp(), (torch.ones(2, 16),), tmp_path / "model.husk", targets=targets)
  torch.testing.assert_close(husk.load(path)(torch.ones(2, 16)), mlp()(torch.ones(2, 16)))
  torch.testing.assert_close(mine(X.double()), X.double().exp() + 1)


# While a thread traces, torch refuses calls of compiled functions in other threads by default.
@torch._dynamo.config.patch(error_on_nested_fx_trace=False)
def test_several_threads():
  model = mlp().eval()
  function = compiled(model)
  failures = []

  def run(rows):
    try:
      with torch.no_grad():
        for i in range(20):
          x = torch.full((rows + i % 3, 16), 0.1 * rows)
          torch.testing.assert_close(function(x), model(x))
    except Exception as error:
      failures.append(error)

  threads = [threading.Thread(target=run, args=(rows,)) for rows in (2, 3, 4)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  assert not failures


FORKED = """
import os, signal
import torch
from husk.jit.backend import backend

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.GELU(), torch.nn.Linear(256, 8))
functions = [(torch.compile(model, backend=backend), torch.rand(64, 256))]
functions.append((torch.compile(lambda x: x.exp().sum(1), backend=backend), torch.rand(2000, 2000)))
with torch.no_grad():
  expected = [function(x) for function, x in functions]
  child = os.fork()
  signal.alarm(600)  # a child that hangs ends
  for (function, x), values in zip(functions, expected):
    assert torch.equal(function(x), values)
if not child:
  os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""


def test_a_forked_process_goes_on():
  environment = {**os.environ, "PYTHONPATH": str(ROOT / "compiler/torch")}
  command = [sys.executable, "-c", FORKED]
  done = subprocess.run(command, env=environment, capture_output=True, text=True)
  assert done.returncode == 0, done.stderr


# Compiles in processes that have torch's modules, but no compiled function.
PROCESSES = """
import os
import sys
import torch
import torch._inductor.compile_fx
from torch import nn
from torch._dynamo.utils import counters
from torch._inductor import config

for name, value in eval(sys.argv[1]).items():
  setattr(config, name, value)

def run(backend, cache):
  if backend == "husk":
    from husk.jit.backend import backend
    if cache == "warm":
      def refuse(*_, **__):
        raise AssertionError("compiled again")
      from husk.hir import huskc
      huskc.compile = refuse
  torch.manual_seed(0)
  model = nn.Linear(16, 32, bias=False)
  function = torch.compile(model, backend=backend)
  x = torch.ones(4, 16)
  loss = function(x).square().sum()
  loss.backward()
  torch.testing.assert_close(loss, model(x).square().sum())
  inductor, autograd = counters["inductor"], counters["aot_autograd"]
  print("hits", inductor["fxgraph_cache_hit"], autograd["autograd_cache_hit"], flush=True)

for arguments in (("inductor", "cold"), ("husk", "cold"), ("husk", "warm")):
  child = os.fork()
  if not child:
    run(*arguments)
    os._exit(0)
  assert os.waitpid(child, 0)[1] == 0, arguments
"""


def test_the_caches_of_torch_hold_the_programs(tmp_path):
  environment = {
    **os.environ,
    "PYTHONPATH": str(ROOT / "compiler/torch"),
    "TORCHINDUCTOR_CACHE_DIR": inductor_cache.folder(tmp_path / "cache"),
    "HUSKC": tools.find("huskc"),
  }

  done = subprocess.run(
    [sys.executable, "-c", PROCESSES, repr(FEW_COMPILATIONS)],
    env=environment,
    capture_output=True,
    text=True,
  )
  assert done.returncode == 0, done.stderr
  # The backend does not take what Inductor has stored for an equal graph.
  assert re.findall(r"hits (.*)", done.stdout) == ["0 0", "0 0", "2 1"]


def test_the_entry_point_names_the_backend():
  data = tomllib.loads((ROOT / "compiler/torch/pyproject.toml").read_text())
  group = "torch_dynamo_backends"
  ((name, value),) = data["project"]["entry-points"][group].items()
  assert name == "husk" and importlib.metadata.EntryPoint(name, value, group).load() is backend
