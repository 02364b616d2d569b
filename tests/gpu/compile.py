"""torch.compile(backend="husk") on a GPU: values, gradients and memory against eager PyTorch.

  python tests/gpu/compile.py [NAME...] [--device cpu] [--part I/N]

prints a line for each check, and fails if one of them fails. With `--device cpu` it runs the checks
that need no GPU. With `--part I/N` it runs every N-th check except those that look at the memory of
the whole GPU, which `--part memory` runs. A NAME is a part of the name of a check.
compile_bench.py measures.
"""

import argparse
import contextlib
import copy
import gc
import os
import subprocess
import sys
import tempfile
import threading
import time
import traceback

import husk
import torch
from husk.errors import Unsupported
from husk.jit import module
from husk.jit.backend import backend as husk_backend
from torch import nn
from torch._dynamo.exc import BackendCompilerFailed
from torch._inductor import config as inductor
from torch._inductor.runtime import triton_heuristics
from torch._inductor.test_operators import realize

try:
  import triton
  import triton.language as tl
except ImportError:
  triton = None

TREE = torch.utils._pytree
CHECKS = []
PROGRAMS = []  # those that were loaded since the beginning of the check
MEASURING = []  # not empty while Inductor may launch kernels


def check(needs_gpu=False):
  """Makes a function of a device one of the checks."""

  def add(function):
    CHECKS.append((function, needs_gpu))
    return function

  return add


def count_launches():
  """Records the programs that are loaded, and forbids Inductor's own launches of kernels."""
  original = module.load

  def load(*args):
    PROGRAMS.append(original(*args))
    return PROGRAMS[-1]

  def refuse(self, *args, **kwargs):
    if MEASURING:  # Inductor launches its templates to measure them
      return run(self, *args, **kwargs)
    raise AssertionError(f"{self.fn.__name__} was launched without Husk")

  module.load = load
  run = triton_heuristics.CachingAutotuner.run

  @contextlib.contextmanager
  def forbidden():
    triton_heuristics.CachingAutotuner.run = refuse
    try:
      yield
    finally:
      triton_heuristics.CachingAutotuner.run = run

  return forbidden


def stats():
  """The statistics of all sessions of the programs on a GPU, added up."""
  total = {}
  for program in PROGRAMS:
    for session in getattr(program, "sessions", ()):
      for name, value in session.stats(0).items():
        total[name] = total.get(name, 0) + value
  return total


def synchronize():
  if torch.cuda.is_available():
    torch.cuda.synchronize()


def compiled(function, fullgraph=True, **options):
  return torch.compile(function, backend=husk_backend, fullgraph=fullgraph, **options)


def storages(values):
  """For each tensor the first of the tensors whose memory it shares."""
  known = {}
  keys = [
    value.untyped_storage()._cdata if isinstance(value, torch.Tensor) else None
    for value in TREE.tree_leaves(values)
  ]
  return [known.setdefault(key, index) for index, key in enumerate(keys)]


def equal(
  function, *args, grad=False, others=(), rtol=2e-4, atol=2e-4, seed=None, fullgraph=True, **options
):
  """Compares results, written arguments, shared memory and gradients with those of eager mode, for
  `args` and for each of `others`."""
  own = compiled(function, fullgraph, **options)
  for arguments in (args, *others):
    mine, theirs = copy.deepcopy(arguments), copy.deepcopy(arguments)
    with torch.set_grad_enabled(grad):
      if seed is not None:
        torch.manual_seed(seed)
      results = own(*mine)
      if seed is not None:
        torch.manual_seed(seed)
      expected = function(*theirs)
    torch.testing.assert_close(results, expected, rtol=rtol, atol=atol)
    torch.testing.assert_close(mine, theirs, rtol=rtol, atol=atol)
    assert storages([results, mine]) == storages([expected, theirs]), "the results share memory"
    for one, other in zip(*map(TREE.tree_leaves, (results, expected)), strict=True):
      if isinstance(one, torch.Tensor):
        assert one.stride() == other.stride(), (one.stride(), other.stride())
        assert one.requires_grad == other.requires_grad
    if grad:
      for values in (results, expected):
        leaves = TREE.tree_leaves(values)
        sum((one * one).sum() for one in leaves if one.requires_grad).backward()
      for one, other in zip(mine, theirs, strict=True):
        if isinstance(one, torch.Tensor):
          torch.testing.assert_close(one.grad, other.grad, rtol=rtol, atol=atol)
  return own


def train(model, run, batches, steps, autocast=None, optimizer=None):
  """The losses of some steps of training."""
  optimizer = (optimizer or (lambda p: torch.optim.SGD(p, lr=0.05)))(model.parameters())
  losses = []
  for step in range(steps):
    x, y = batches[step % len(batches)]
    optimizer.zero_grad()
    with torch.autocast(x.device.type, dtype=autocast, enabled=autocast is not None):
      loss = nn.functional.cross_entropy(run(x).float(), y)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
  return losses


def same_training(model, batches, steps=6, rtol=1e-3, autocast=None, **options):
  mine, theirs = copy.deepcopy(model), copy.deepcopy(model)
  losses = train(mine, compiled(mine, **options), batches, steps, autocast)
  expected = train(theirs, theirs, batches, steps, autocast)
  torch.testing.assert_close(torch.tensor(losses), torch.tensor(expected), rtol=rtol, atol=rtol)


def mlp(device):
  torch.manual_seed(0)
  return nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 10)).to(device)


def convolutions(device):
  torch.manual_seed(0)
  return nn.Sequential(
    nn.Conv2d(3, 8, 3, padding=1),
    nn.BatchNorm2d(8),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Conv2d(8, 16, 3, stride=2),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Linear(16, 10),
  ).to(device)


STEPS = 100


def chain(x, steps=STEPS - 1):
  """Small kernels that depend on each other. `realize` and the option keep them apart. The last
  kernel is a copy."""
  for i in range(steps):
    x = realize(x * 1.0009765625 + (i % 7) * 0.125)
  return x


APART = {"max_fusion_size": 1}


class Block(nn.Module):
  def __init__(self, width, heads):
    super().__init__()
    self.heads = heads
    self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
    self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
    self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

  def forward(self, x):
    batch, tokens, width = x.shape
    q, k, v = (
      one.view(batch, tokens, self.heads, -1).transpose(1, 2)
      for one in self.qkv(self.norm1(x)).chunk(3, -1)
    )
    y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    x = x + self.out(y.transpose(1, 2).reshape(batch, tokens, width))
    return x + self.down(nn.functional.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt(nn.Module):
  """A model of the size of GPT-2 small by default."""

  def __init__(self, layers=12, width=768, heads=12, vocabulary=50257, tokens=1024):
    super().__init__()
    self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(tokens, width)
    self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
    self.norm = nn.LayerNorm(width)
    self.head = nn.Linear(width, vocabulary, bias=False)
    self.head.weight = self.tokens.weight

  def forward(self, tokens):
    x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
    for block in self.blocks:
      x = block(x)
    return self.head(self.norm(x))


if triton is not None:

  @triton.jit
  def scaled_kernel(x, y, n, factor, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = index < n
    tl.store(y + index, tl.load(x + index, mask) * factor, mask)


def scaled(x, factor):
  y = torch.empty_like(x)
  scaled_kernel[(triton.cdiv(x.numel(), 64),)](x, y, x.numel(), factor, 64)
  return y


@torch.library.custom_op("husk_gpu::negated", mutates_args=())
def negated(x: torch.Tensor, times: int) -> torch.Tensor:
  return x * (-1) ** times


@negated.register_fake
def _(x, times):
  return torch.empty_like(x)


# Checks


@check()
def inference_of_an_mlp_and_other_batches(device):
  x = torch.randn(4, 64, device=device)
  others = [(torch.randn(n, 64, device=device),) for n in (4, 7, 9, 7)]
  # Where Inductor finds by measuring that it pays, a product gets padded columns, and so does its
  # result, with Inductor's own wrapper too.
  equal(mlp(device), x, others=others, options={"shape_padding": False})


@check()
def every_kernel_is_launched_by_husk(device):
  x = torch.randn(64, 32, device=device)

  def function(x):
    return torch.softmax(x, -1).cumsum(0), x.sin().sum(0)

  own = compiled(function, options={"mode": "list"})
  for _ in range(5):
    torch.testing.assert_close(own(x), function(x), rtol=1e-4, atol=1e-4)
  if device == "cpu":
    return
  assert len(PROGRAMS) == 1 and stats()["runs_as_list"] == 5, stats()
  assert stats()["steps"] >= 2, stats()
  from torch.profiler import ProfilerActivity, profile

  with profile(activities=[ProfilerActivity.CUDA]) as profiled:
    own(x)
    torch.cuda.synchronize()
  kernels = [event for event in profiled.events() if str(event.device_type).endswith("CUDA")]
  print(f"  steps {stats()['steps']}, kernels seen by the profiler: {len(kernels)}")


@check(needs_gpu=True)
def modes_of_sessions(device):
  x = torch.randn(8, 64, device=device)
  expected = chain(x)
  for mode in ("list", "graph", "auto"):
    PROGRAMS.clear()
    torch._dynamo.reset()
    own = compiled(chain, options={"mode": mode, **APART})
    for _ in range(6):
      torch.testing.assert_close(own(x), expected)
    counts = stats()
    print(
      f"  {mode}: {counts['steps']} steps, {counts['graph_nodes']} nodes, "
      f"{counts['runs_as_graph']} graphs, {counts['runs_as_list']} lists"
    )
    assert counts["steps"] == STEPS
    assert (counts["runs_as_graph"] > 0) == (mode != "list")


@check()
def modes_of_torch(device):
  model, x = mlp(device), torch.randn(16, 64, device=device)
  for mode in ("default", "reduce-overhead", "max-autotune-no-cudagraphs", "max-autotune"):
    torch._dynamo.reset()
    PROGRAMS.clear()
    MEASURING[:] = [mode] * ("autotune" in mode)
    try:
      own = equal(model, x, mode=mode, rtol=2e-3, atol=2e-3)
    finally:
      MEASURING.clear()
    counts = stats()
    with torch.no_grad():
      own(x)
    if device != "cpu":
      assert sum(stats()[key] - counts[key] for key in ("runs_as_graph", "runs_as_list")) == 1
    print(f"  {mode}: {stats()}")


@check(needs_gpu=True)
def without_libraries_a_model_is_a_graph(device):
  torch.manual_seed(0)
  model = Gpt(layers=2, width=256, heads=4, vocabulary=1000, tokens=64).to(device).half().eval()
  tokens = [torch.randint(0, 1000, (rows, 48), device=device) for rows in (1, 1, 3, 5, 3)]
  with torch.no_grad():
    expected = [model(one).float() for one in tokens]
    wanted = [copy.deepcopy(model).float()(one) for one in tokens]
    for options in ({"options": {"mode": "graph"}}, {"mode": "reduce-overhead"}):
      torch._dynamo.reset()
      PROGRAMS.clear()
      own = compiled(model, **options)
      results = [own(one).float() for one in tokens]
      for mine, eager, exact in zip(results, expected, wanted, strict=True):
        error, eagers = ((one - exact).abs().max().item() for one in (mine, eager))
        assert error <= 2 * eagers + 1e-3, (error, eagers)
      counts = stats()
      print(
        f"  {counts['runs_as_graph']} graphs, {counts['runs_as_list']} lists, {counts['steps']}"
      )
      assert counts["runs_as_graph"] > 0
      assert options.get("mode") or counts["runs_as_list"] == 0, counts


@check()
def dropout(device):
  model = nn.Sequential(nn.Linear(64, 64), nn.Dropout(0.5), nn.ReLU()).to(device)
  x = torch.randn(32, 64, device=device)
  equal(model, x, seed=3, options={"fallback_random": True})
  torch._dynamo.reset()
  own = compiled(nn.Dropout(0.25))
  ones = torch.ones(1000, 100, device=device)
  torch.manual_seed(5)
  first, second = own(ones), own(ones)
  torch.manual_seed(5)
  again = own(ones)
  assert torch.equal(first, again) and not torch.equal(first, second)
  assert abs((first == 0).float().mean().item() - 0.25) < 0.02
  assert set(first.unique().tolist()) == {0.0, 1 / 0.75} or len(first.unique()) == 2


@check()
def random_operators(device):
  options = {"fallback_random": True}
  x = torch.randn(50, 20, device=device)
  equal(
    lambda x: torch.rand_like(x) + torch.randn(50, 20, device=x.device), x, seed=1, options=options
  )
  equal(lambda x: torch.randperm(50, device=x.device), x, seed=1, options=options)
  equal(lambda x: torch.multinomial(x.softmax(-1), 5), x, seed=1, options=options)


@check()
def training(device):
  batches = [
    (torch.randn(32, 64, device=device), torch.randint(0, 10, (32,), device=device))
    for _ in range(3)
  ]
  same_training(mlp(device), batches)
  same_training(mlp(device), batches, dynamic=True)
  images = [
    (torch.randn(4, 3, 16, 16, device=device), torch.randint(0, 10, (4,), device=device))
    for _ in range(3)
  ]
  same_training(convolutions(device), images, steps=4, rtol=2e-3)


@check()
def training_with_autocast(device):
  batches = [
    (torch.randn(32, 64, device=device), torch.randint(0, 10, (32,), device=device))
    for _ in range(3)
  ]
  for dtype in (torch.bfloat16, torch.float16):
    same_training(mlp(device), batches, autocast=dtype, rtol=2e-2)


@check()
def gradients(device):
  def leaf(*shape):
    return torch.randn(*shape, device=device).requires_grad_()

  equal(lambda x, y: (x @ y).softmax(-1).tanh(), leaf(16, 32), leaf(32, 8), grad=True)
  equal(lambda x: nn.functional.layer_norm(x, (32,)), leaf(16, 32), grad=True)
  indices = torch.randint(0, 20, (30,), device=device)
  equal(lambda w: nn.functional.embedding(indices, w).sin(), leaf(20, 16), grad=True)
  equal(lambda x: x.sort(-1)[0].cumsum(-1), leaf(8, 16), grad=True)
  equal(lambda x: x[indices % 8].square(), leaf(8, 16), grad=True)


@check()
def attention(device):
  for dtype, tolerance in ((torch.float32, 2e-3), (torch.float16, 2e-2)):
    if device == "cpu" and dtype == torch.float16:
      continue
    q, k, v = (
      torch.randn(2, 4, 64, 32, device=device, dtype=dtype).requires_grad_() for _ in range(3)
    )
    equal(
      lambda q, k, v: nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True),
      *(q, k, v),
      grad=True,
      rtol=tolerance,
      atol=tolerance,
    )


@check(needs_gpu=True)
def attention_with_dropout(device):
  for dtype in (torch.float16, torch.float32):
    torch._dynamo.reset()
    q, k, v = (
      torch.randn(2, 4, 64, 32, device=device, dtype=dtype).requires_grad_() for _ in range(3)
    )
    equal(
      lambda q, k, v: nn.functional.scaled_dot_product_attention(q, k, v, dropout_p=0.3),
      *(q, k, v),
      grad=True,
      seed=4,
      rtol=2e-2,
      atol=2e-2,
      options={"fallback_random": True},
    )


@check()
def dynamic_shapes(device):
  def function(x, y):
    return torch.relu(x @ y).sum(0) * x.shape[0]

  args = [
    (torch.randn(n, 16, device=device), torch.randn(16, m, device=device))
    for n, m in ((4, 8), (5, 8), (70, 3), (2, 100), (1000, 64), (4, 8))
  ]
  equal(function, *args[0], others=args[1:], dynamic=True, rtol=1e-3, atol=1e-2)
  assert len(PROGRAMS) <= 2, len(PROGRAMS)
  torch._dynamo.reset()
  equal(lambda x: (x.exp(), x.shape[0]), *args[0][:1], others=[one[:1] for one in args[1:]])


@check()
def written_inputs_aliases_and_views(device):
  x = torch.arange(24.0, device=device).reshape(4, 6) / 7 - 1
  for name, function in {
    "written input": lambda x: x.add_(1).mul(2),
    "written part": lambda x: (x[1:].mul_(3), x.sum())[1],
    "inputs as outputs": lambda x: (x.view(24), x, x.t(), x[1:]),
    "views of one buffer": lambda x: (lambda y: (y, y.t(), y[1:], y.view(-1)))(x.exp()),
    "a part without dimensions": lambda x: (lambda y: (y[0], y[1]))(x.sum(1)),
    "another dtype": lambda x: (x.view(torch.int32), x.view(torch.int16)),
    "no elements": lambda x: (x[:0].exp(), x[:, 6:].sum(1)),
    "constants": lambda x: x * torch.tensor([1.0, 2, 3, 4, 5, 6], device=x.device),
  }.items():
    for dynamic in (False, True):
      torch._dynamo.reset()
      try:
        equal(function, x, dynamic=dynamic)
      except Exception as error:
        raise AssertionError(f"{name}, dynamic={dynamic}") from error


@check()
def misaligned_inputs(device):
  base = torch.randn(1001, device=device)
  own = compiled(lambda x: x.sin() + 1, dynamic=True)
  for begin in (0, 1, 2, 3, 4):
    part = base[begin : begin + 900]
    torch.testing.assert_close(own(part), part.sin() + 1)


@check()
def numbers_among_the_inputs(device):
  x = torch.randn(8, 8, device=device)
  equal(lambda x, n: (x * n, n + 1), x, 5, others=[(x, 6), (x, 7)])
  torch._dynamo.reset()
  equal(lambda x, n: x * n, x, 1.5, others=[(x, 2.5), (x, 3.5)])
  if device != "cpu":
    equal(lambda x, y: x * y, x, torch.tensor(2.5))


@check()
def operators_of_torch(device):
  x = torch.randn(12, 12, device=device)
  equal(lambda x: x.topk(3)[0], x)
  equal(lambda x: torch.linalg.inv(x + 20 * torch.eye(12, device=x.device)).abs() + 1, x)
  equal(lambda x: torch.fft.rfft(x).abs(), x, rtol=1e-3, atol=1e-3)
  equal(lambda x: negated(x.exp(), 3) + 1, x)
  index = torch.randint(0, 12, (12, 12), device=device)
  equal(lambda x: torch.zeros_like(x).scatter_add_(0, index, x), x)
  equal(lambda x: torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x * 2, (x,)), x)


@check()
def products(device):
  def random(*shape):
    return torch.randn(*shape, device=device)

  a, b = random(33, 40), random(40, 24)
  equal(torch.mm, a, b, rtol=1e-3, atol=1e-3)
  equal(
    lambda a, b, c: torch.addmm(c, a, b, beta=0.5, alpha=2), a, b, random(24), rtol=1e-3, atol=1e-3
  )
  equal(lambda a, b: a.t().mm(b.t()), random(40, 33), random(24, 40), rtol=1e-3, atol=1e-3)
  equal(torch.bmm, random(5, 8, 16), random(5, 16, 8), rtol=1e-3, atol=1e-3)
  equal(lambda a, b: a[:, ::2] @ b, random(16, 32), random(16, 8), rtol=1e-3, atol=1e-3)
  equal(
    lambda a, b: (a @ b).relu(),
    random(1, 64).bfloat16(),
    random(64, 64).bfloat16(),
    rtol=2e-2,
    atol=2e-2,
  )
  if device != "cpu":
    equal(
      lambda a, b: torch._int_mm(a, b),
      *(torch.randint(-9, 9, (32, 32), device=device, dtype=torch.int8) for _ in range(2)),
    )


@check()
def convolutions_and_batch_norm(device):
  model = convolutions(device).eval()
  images = [(torch.randn(n, 3, 16, 16, device=device),) for n in (2, 5, 3)]
  equal(model, *images[0], others=images[1:], rtol=2e-3, atol=2e-3)
  torch._dynamo.reset()
  equal(
    model.to(memory_format=torch.channels_last),
    images[0][0].contiguous(memory_format=torch.channels_last),
    rtol=2e-3,
    atol=2e-3,
  )


@check(needs_gpu=True)
def kernels_of_the_models_own(device):
  x = torch.randn(1000, device=device)
  equal(lambda x: scaled(x.sin(), 3.0) + 1, x)
  equal(lambda x: scaled(x, 0.5), x, others=[(torch.randn(n, device=device),) for n in (7, 99)])


@check()
def a_graph_break_and_several_functions(device):
  def function(x):
    y = x.sin() + 1
    torch._dynamo.graph_break()
    return (y * x).sum(-1)

  equal(function, torch.randn(7, 9, device=device), fullgraph=False)


@check()
def inference_mode_and_freezing(device):
  model, x = mlp(device).eval(), torch.randn(3, 64, device=device)
  own = compiled(model)
  with torch.inference_mode():
    result = own(x)
    assert result.is_inference()
    torch.testing.assert_close(result, model(x), rtol=1e-3, atol=1e-3)
  torch._dynamo.reset()
  equal(model, x, options={"freezing": True}, rtol=1e-3, atol=1e-3)


def arriving_late(x, cycles):
  """A stream, and a copy of `x` that is complete only after the stream has slept."""
  stream = torch.cuda.Stream()
  with torch.cuda.stream(stream):
    late = torch.zeros_like(x)
    torch.cuda._sleep(cycles)
    late.copy_(x)
  return stream, late


@check(needs_gpu=True)
def a_run_is_on_the_current_stream(device):
  for mode in ("list", "graph"):
    torch._dynamo.reset()
    function = compiled(chain, options={"mode": mode, **APART})
    x = torch.randn(50, 64, device=device)
    expected = chain(x)
    function(x)
    torch.cuda.synchronize()
    stream, late = arriving_late(x, 400_000_000)
    with torch.cuda.stream(stream):
      result = function(late)
      if mode == "list":
        assert not stream.query(), f"{mode}: the call waited for the stream"
      doubled = result * 2
    stream.synchronize()
    torch.testing.assert_close(doubled, expected * 2)
    # The session's arena is used by both streams in turn.
    for _ in range(20):
      one = function(x)
      with torch.cuda.stream(stream):
        two = function(x)
    torch.cuda.synchronize()
    torch.testing.assert_close(one, expected)
    torch.testing.assert_close(two, expected)


@check(needs_gpu=True)
def operators_are_on_the_current_stream(device):
  def function(x):
    return (x.exp().sort(-1)[0] @ x.t()).relu()

  own = compiled(function)
  x = torch.randn(40, 64, device=device)
  own(x)
  torch.cuda.synchronize()
  stream, late = arriving_late(x, 200_000_000)
  with torch.cuda.stream(stream):
    result = own(late)
  stream.synchronize()
  torch.testing.assert_close(result, function(x), rtol=1e-3, atol=1e-3)


@check(needs_gpu=True)
def memory_is_that_of_torchs_allocator(device):
  def function(x):
    return realize(realize(x.sin()).cos() @ x).exp().sum(0)

  x = torch.randn(1024, 1024, device=device)
  own = compiled(function, options=APART)
  own(x)
  torch.cuda.synchronize()
  gc.collect()
  before = torch.cuda.memory_allocated()
  result = own(x)
  grown = torch.cuda.memory_allocated() - before
  assert result.nbytes <= grown <= result.nbytes + 1024, (grown, result.nbytes)
  (program,) = PROGRAMS
  (session,) = program.sessions
  assert session.arena_bytes >= x.nbytes
  del result, program, session
  PROGRAMS.clear()
  torch._dynamo.reset()
  own = None
  gc.collect()
  print(f"  after the program is gone: {torch.cuda.memory_allocated() - before:+} bytes")


@check(needs_gpu=True)
def out_of_memory_and_then_a_smaller_shape(device):
  def function(x):
    y = realize(torch.cat([x, x, x, x, x, x, x, x]).sin())
    return realize(torch.cat([y, y, y, y])).sum(0)

  torch.cuda.empty_cache()
  free, _ = torch.cuda.mem_get_info()
  held = torch.empty(free - (3 << 30), dtype=torch.uint8, device=device)
  try:
    own = compiled(function, dynamic=True, options=APART)
    small = torch.randn(100, 64, device=device)
    expected = function(small)
    torch.testing.assert_close(own(small), expected, rtol=1e-3, atol=1e-3)
    large = torch.empty(1 << 21, 64, device=device)  # 512 MiB
    try:
      own(large)
      raise AssertionError("the memory was enough")
    except (torch.OutOfMemoryError, MemoryError) as error:
      print(f"  {type(error).__name__}: {str(error)[:90]}")
    del large
    torch.testing.assert_close(own(small), expected, rtol=1e-3, atol=1e-3)
    middle = torch.randn(1000, 64, device=device)
    torch.testing.assert_close(own(middle), function(middle), rtol=1e-3, atol=1e-3)
  finally:
    del held
    torch.cuda.empty_cache()


@check()
def a_thousand_calls_leak_nothing(device):
  def function(x):
    return (x.exp().sort(-1)[0] @ x.t()).relu()

  x = torch.randn(32, 32, device=device)
  for mode in ("auto", "list"):
    torch._dynamo.reset()
    own = compiled(function, options={"mode": mode})
    for _ in range(50):
      own(x)
    synchronize()
    gc.collect()

    def memory():
      pages = int(open("/proc/self/statm").read().split()[1])
      host = pages * os.sysconf("SC_PAGE_SIZE")
      if device == "cpu":
        return host, 0, 0
      free, total = torch.cuda.mem_get_info()
      return host, torch.cuda.memory_allocated(), total - free

    before = memory()
    for _ in range(1000):
      own(x)
    synchronize()
    gc.collect()
    grown = [after - start for start, after in zip(before, memory(), strict=True)]
    print(f"  {mode}: host {grown[0]:+}, PyTorch {grown[1]:+}, device {grown[2]:+} bytes")
    assert grown[0] < 8 << 20 and grown[1] <= 0 and grown[2] <= 0


@check()
def threads_run_at_the_same_time(device):
  own = compiled(chain, options=APART)
  values = [torch.randn(16, 64, device=device) for _ in range(4)]
  own(values[0])
  expected = [chain(value) for value in values]
  synchronize()
  failures = []

  def work(value, wanted):
    try:
      stream = torch.cuda.Stream() if device != "cpu" else None
      with torch.cuda.stream(stream):
        for _ in range(50):
          torch.testing.assert_close(own(value), wanted)
    except BaseException:
      failures.append(traceback.format_exc())

  threads = [
    threading.Thread(target=work, args=pair) for pair in zip(values, expected, strict=True)
  ]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  assert not failures, failures[0]


def _counted(x, n, rate):
  n += 1
  rate.mul_(0.5)
  return x * rate + n, n * 2, torch.where(rate > 0.1, rate, -rate)


def _looped(x, i):
  i, y = torch._higher_order_ops.while_loop(
    lambda i, y: i < 4, lambda i, y: (i + 1, y + x), (i, x * 0)
  )
  return i + 1, y


def _scanned(x):
  return torch._higher_order_ops.scan(lambda sum, row: (sum + row, sum * row), x[0] * 2, x)


@check()
def tensors_on_the_cpu(device):
  """Tensors that a graph of a GPU has on the CPU: they stay there for the caller."""
  x, y = torch.randn(6, 3, device=device), torch.randn(6, 3)
  # torch 2.11 loses what a graph writes to a number on the CPU in float64, with every backend.
  n, rate, flag = torch.tensor(3), torch.tensor(0.5), torch.tensor(True)
  rows = torch.tensor([4, 0])
  for name, (function, *args) in {
    "a counter": (_counted, x, n, rate),
    "a number": (lambda x, f: (x * (f * 2 + 1), f * 2), x, torch.tensor(2.5)),
    "numbers that are made": (lambda x: (x.sum() * torch.full((), 3.0), torch.arange(3)), x),
    "constants": (lambda x: x * torch.tensor([1.0, 2, 3]).to(x.device) + torch.tensor(2), x),
    "large constants": (lambda x: x + torch.arange(30.0).cumsum(0)[-1], x),
    "copies": (lambda x, y: (x + y.to(x.device), y.exp(), x.exp().cpu(), x.cpu()), x, y),
    "what is written": (lambda x, y: (y[1:].mul_(2), x + y.sum().to(x.device), y), x, y),
    "pinned": (lambda x, y: x + y.to(x.device), x, y if device == "cpu" else y.pin_memory()),
    "there and back": (lambda y: (y.to(device) * 2).cpu(), y),
    "indices": (lambda x, rows: x[rows], x, rows),
    "a loop": (_looped, x, torch.tensor(1)),
    "a loop that counts with a number": (lambda x: _looped(x, 1), x),
    "scan": (_scanned, x),
    "map": (lambda x: torch._higher_order_ops.map(lambda row: row.sin() + row.sum(), x), x),
    "branches": (
      lambda x, p, n: (
        torch.cond(p, lambda x: x + 1, lambda x: x - 1, (x,)),
        torch.cond(n > 2, lambda x: x * 2, lambda x: x * 3, (x,)),
      ),
      x,
      flag,
      n,
    ),
    "no tensors among the inputs": (lambda: torch.arange(2, 7, device=device) * 2,),
  }.items():
    for dynamic in (False, True):
      torch._dynamo.reset()
      try:
        equal(function, *args, dynamic=dynamic)
      except Exception as error:
        raise AssertionError(f"{name}, dynamic={dynamic}") from error


@check()
def a_counter_on_the_cpu_counts_each_call(device):
  class Counter(nn.Module):
    def __init__(self):
      super().__init__()
      self.n = torch.zeros((), dtype=torch.int64)

    def forward(self, x):
      self.n += 1
      return x + self.n

  model, x = Counter(), torch.zeros(1000, device=device)
  own = compiled(model)
  for call in range(1, 200):
    assert own(x)[0].item() == call and model.n.item() == call


@check(needs_gpu=True)
def random_numbers_of_the_cpu_are_refused(device):
  try:
    compiled(lambda x: (x * 2, torch.randperm(4)))(torch.randn(4, device=device))
    raise AssertionError("nothing was refused")
  except BackendCompilerFailed as error:
    print(f"  {str(error.inner_exception)[:160]}")
    assert "randperm" in str(error.inner_exception)


@check(needs_gpu=True)
def a_callers_own_graph(device):
  own = compiled(chain, options=APART)
  x = torch.randn(8, 64, device=device)
  expected = chain(x)
  for _ in range(3):
    own(x)
  torch.cuda.synchronize()
  graph = torch.cuda.CUDAGraph()
  with torch.cuda.graph(graph):
    result = own(x)
  x.mul_(2)
  graph.replay()
  torch.cuda.synchronize()
  torch.testing.assert_close(result, chain(x))
  assert not torch.allclose(result, expected)


@check(needs_gpu=True)
def a_transformer(device):
  torch.manual_seed(0)
  model = Gpt(layers=2, width=128, heads=4, vocabulary=1000, tokens=128).to(device)
  tokens = [torch.randint(0, 1000, (2, n), device=device) for n in (64, 64, 100)]
  with torch.no_grad():
    own = compiled(model)
    for one in tokens:
      torch.testing.assert_close(own(one), model(one), rtol=2e-3, atol=2e-3)
  torch._dynamo.reset()
  batches = [(one, one.clone()) for one in tokens[:2]]

  def losses(model, run):
    return train(model, lambda x: run(x).flatten(0, 1), [(x, y.flatten()) for x, y in batches], 5)

  mine, theirs = copy.deepcopy(model), copy.deepcopy(model)
  torch.testing.assert_close(
    torch.tensor(losses(mine, compiled(mine))),
    torch.tensor(losses(theirs, theirs)),
    rtol=1e-3,
    atol=1e-3,
  )


SECOND = """
import torch
from torch._dynamo.utils import counters
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU()).to(DEVICE)
from husk.jit.backend import backend
own = torch.compile(model, backend=backend)
x = torch.ones(4, 8, device=DEVICE)
own(x).sum().backward()
torch.testing.assert_close(own(x), model(x), rtol=1e-3, atol=1e-3)
aot, fx = counters["aot_autograd"], counters["inductor"]
print("hits", aot["autograd_cache_hit"], fx["fxgraph_cache_hit"])
"""


@check()
def a_second_process_takes_the_programs_from_torchs_caches(device):
  with tempfile.TemporaryDirectory() as folder:
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": folder}
    found = [
      subprocess.run(
        [sys.executable, "-c", SECOND.replace("DEVICE", repr(device))],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
      )
      for _ in range(2)
    ]
  for one in found:
    assert one.returncode == 0, one.stderr
  print(f"  {[one.stdout.strip() for one in found]}")
  assert found[0].stdout.split()[1] == "0" and int(found[1].stdout.split()[1]) > 0


class Counting(nn.Module):
  """A model with a state: the number of its calls."""

  def __init__(self):
    super().__init__()
    self.layers = nn.Sequential(
      nn.Linear(64, 128), nn.GELU(), nn.LayerNorm(128), nn.Linear(128, 16)
    )
    self.register_buffer("calls", torch.zeros(1))

  def forward(self, x):
    self.calls.add_(1)
    return self.layers(x) + self.calls, x.sum(1)


@check()
def a_compiled_region_is_saved(device):
  model = Counting().to(device).eval()
  function = compiled(model, options={"libraries": False}, dynamic=True)
  with torch.no_grad(), tempfile.TemporaryDirectory() as folder:
    for rows in (4, 7):
      function(torch.randn(rows, 64, device=device))
    path = husk.save_compiled(function, os.path.join(folder, "model.husk"))
    assert model.calls.item() == 2
    program = husk.load(path, device=device)
    for mode in ("list",) if device == "cpu" else ("list", "graph"):
      theirs, session = copy.deepcopy(model), program.session(mode=mode)
      for rows in (4, 9, 33, 9):
        x = torch.randn(rows, 64, device=device)
        for own, other in zip(session(x), theirs(x), strict=True):
          torch.testing.assert_close(own, other, rtol=2e-3, atol=2e-3)
      assert session.state["calls"].torch().item() == 6


@check(needs_gpu=True)
def a_region_that_calls_an_operator_of_torch_is_not_saved(device):
  function = compiled(nn.Conv2d(8, 8, 3).to(device).eval())
  with torch.no_grad(), tempfile.TemporaryDirectory() as folder:
    function(torch.randn(2, 8, 16, 16, device=device))
    try:
      husk.save_compiled(function, os.path.join(folder, "model.husk"))
    except Unsupported as error:
      assert "aten::convolution" in str(error), error
    else:
      raise AssertionError("nothing was refused")


# Checks that no other process may disturb.
OF_ALL_MEMORY = ("out of memory", "a thousand calls", "memory is that")


def is_in(part, index, name):
  """Whether a check belongs to a part, None: all checks."""
  alone = name.startswith(OF_ALL_MEMORY)
  if part is None or part == "memory":
    return part is None or alone
  number, count = map(int, part.split("/"))
  return not alone and index % count == number


def run_checks(device, names, part, forbidden):
  failed = 0
  torch.manual_seed(7)
  count = 0
  for index, (function, needs_gpu) in enumerate(CHECKS):
    name = function.__name__.replace("_", " ")
    if not is_in(part, index, name) or names and not any(one in name for one in names):
      continue
    if needs_gpu and device == "cpu":
      print(f"skip    {name}", flush=True)
      continue
    count += 1
    PROGRAMS.clear()
    torch._dynamo.reset()
    begin = time.perf_counter()
    try:
      # Inductor pads products if that was faster when it measured. A result has other strides then
      # than in eager mode, with Inductor's own backend too.
      with forbidden(), inductor.patch(fx_graph_cache=False, shape_padding=False):
        function(device)
        synchronize()
      print(f"ok      {name} ({time.perf_counter() - begin:.1f} s)", flush=True)
    except Exception:
      failed += 1
      print(f"FAILED  {name}\n{traceback.format_exc()[-3500:]}", flush=True)
  print(f"{count} checks, {failed} failed")
  return failed


def main():
  arguments = argparse.ArgumentParser(description=__doc__)
  arguments.add_argument("names", nargs="*")
  arguments.add_argument("--device", default="cuda:0")
  arguments.add_argument("--part")
  options = arguments.parse_args()
  print(f"Python {sys.version.split()[0]}, torch {torch.__version__}, husk {husk.__version__}")
  return run_checks(options.device, options.names, options.part, count_launches()) != 0


if __name__ == "__main__":
  sys.exit(main())
