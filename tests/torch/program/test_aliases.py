"""Parameters, buffers, constants and inputs that share memory, on the host and by Triton's
interpreter. aliased_programs.py makes random programs of them, and tries more of them by name."""

import pathlib

import aliased_programs
import artifact_runner
import husk
import numpy
import pytest
import row_table
import torch
from cuda_numerics import computed
from husk.host import kernels as host_kernels

ON_HOST = pytest.mark.skipif(
  row_table.TARGET.partition(":")[2] not in host_kernels.isas(), reason="this machine has no AVX2"
)


class ReadsBefore(torch.nn.Module):
  """A cache, a row of which is a buffer too. The row is written between two reads of the cache."""

  def __init__(self):
    super().__init__()
    cache = torch.zeros(2, 3)
    self.register_buffer("cache", cache)
    self.register_buffer("first", cache[0])

  def forward(self, x):
    before = self.cache * 10
    self.first.add_(x)
    return before, self.cache.sum()


class WritesTwice(ReadsBefore):
  def forward(self, x):
    self.first.add_(x)
    between = self.cache * 2
    self.first.mul_(3)
    return between, self.cache + 0


class Layer(torch.nn.Module):
  def __init__(self, cache):
    super().__init__()
    self.register_buffer("cache", cache, persistent=False)

  def forward(self, x):
    self.cache.add_(x)
    return self.cache * 2


class TwoNames(torch.nn.Module):
  """One buffer of two layers, both of which write it."""

  def __init__(self):
    super().__init__()
    cache = torch.zeros(3)
    self.a, self.b = Layer(cache), Layer(cache)

  def forward(self, x):
    return self.a(x) + self.b(x)


class WritesParameter(torch.nn.Module):
  def __init__(self):
    super().__init__()
    self.weight = torch.nn.Parameter(torch.arange(3.0))
    self.register_buffer("last", self.weight.detach()[2:])

  def forward(self, x):
    self.weight.add_(x)
    return self.last * x, self.weight


class OneArray(torch.nn.Module):
  """Two tensors with storages of their own, whose memory is that of one NumPy array."""

  def __init__(self):
    super().__init__()
    array = numpy.zeros(3, numpy.float32)
    self.register_buffer("one", torch.from_numpy(array))
    self.register_buffer("other", torch.from_numpy(array))

  def forward(self, x):
    self.one.add_(x)
    return self.other * 2


class BetweenMultiples(torch.nn.Module):
  """Parts of one memory that nothing writes; the second begins at byte 12."""

  def __init__(self):
    super().__init__()
    whole = torch.arange(6.0)
    self.register_buffer("whole", whole)
    self.register_buffer("part", whole[3:])

  def forward(self, x):
    return self.part * x, self.whole + 1


class ReadsElsewhere(torch.nn.Module):
  """The last write reads one element of the cache, which it writes too, after another write."""

  def __init__(self):
    super().__init__()
    cache = torch.arange(5.0, 85.0).view(2, 40)
    self.register_buffer("cache", cache)
    self.register_buffer("last", cache[1:])

  def forward(self, x):
    self.last[-1] = self.last.mean() - 1
    self.cache[0::2].copy_(self.cache.flatten()[0] + 1)
    return self.cache + 1, self.last * 1, x * 2


class WritesBeside(torch.nn.Module):
  """A parameter and a buffer that are one number, beside an element of their storage that is
  written."""

  def __init__(self):
    super().__init__()
    whole = torch.arange(6.0)
    self.weight = torch.nn.Parameter(whole[3], requires_grad=False)
    self.register_buffer("number", whole[3])
    self.register_buffer("last", whole[5:])

  def forward(self, x):
    self.last.add_(1)
    return self.weight * x, self.number + x, self.last * x


class StatisticsAreParameters(torch.nn.Module):
  """Norms that train, whose schemas do not tell that they write their statistics. A part of the
  first statistics is a buffer, too."""

  def __init__(self):
    super().__init__()
    self.statistics = torch.nn.ParameterList(
      torch.nn.Parameter(torch.full((3,), n), requires_grad=False) for n in (1.0, 2.0, 3.0, 4.0)
    )
    self.register_buffer("part", self.statistics[0][:2])

  def forward(self, x):
    rows = torch.stack([x, x * x, x + 1]).unsqueeze(-1) + torch.arange(4.0)
    mean, variance, other_mean, other_variance = self.statistics
    first = torch.nn.functional.batch_norm(rows, mean, variance, training=True)
    second = torch.nn.functional.instance_norm(rows, other_mean, other_variance)
    results = first + second, self.part, variance, other_mean, other_variance
    return [(result * 64).round() for result in results]  # without the error of the arithmetic


MODELS = (
  ReadsBefore,
  WritesTwice,
  TwoNames,
  WritesParameter,
  OneArray,
  BetweenMultiples,
  ReadsElsewhere,
  WritesBeside,
  StatisticsAreParameters,
)
X = torch.tensor([1.0, 2.0, 3.0])


def runs_of(model):
  """The results of two runs in eager mode."""
  with torch.no_grad():
    return [[t.clone() for t in torch.utils._pytree.tree_leaves(model(X))] for _ in range(2)]


@ON_HOST
def test_memory_is_shared_on_hosts(tmp_path):
  functions = {kind.__name__: husk.Function(kind(), (X,)) for kind in MODELS}
  husk.export(functions, tmp_path / "made.husk", targets=(row_table.TARGET,), keep=tmp_path)
  text = (tmp_path / "model.hir").read_text()
  assert text.count("state cache ") == 1 and "state first " not in text
  with artifact_runner.Runner(tmp_path / "made.husk") as run:
    for kind in MODELS:
      for expected in runs_of(kind()):
        assert all(map(torch.equal, run.run([X], kind.__name__), expected)), kind.__name__


@ON_HOST
def test_an_input_is_written_after_all_reads(tmp_path):
  """The C++ backend gives the nodes that read the input and the one that writes it the same loops,
  but for the mean, which runs before the write."""

  class WritesInput(torch.nn.Module):
    def __init__(self):
      super().__init__()
      self.register_buffer("cache", torch.zeros(6))

    def forward(self, x, y):
      self.cache[-1] = x.mean() - 1
      before = x + 1
      x[-1] = y.mean() - 1
      return before, self.cache * 1

  x = torch.arange(6.0).view(2, 3)
  husk.export(WritesInput(), (x, X), tmp_path / "made.husk", targets=(row_table.TARGET,))
  actual, expected = x.clone(), x.clone()
  with artifact_runner.Runner(tmp_path / "made.husk") as run, torch.no_grad():
    results = run.run([actual, X])
    assert all(map(torch.equal, results, WritesInput()(expected, X)))
  assert torch.equal(actual, expected)


@pytest.mark.parametrize("kind", (ReadsBefore, BetweenMultiples, ReadsElsewhere, WritesBeside))
def test_memory_is_shared_on_cuda(kind, tmp_path):
  results = computed(kind(), (X,), None, [{"x": X}, {"x": X}], tmp_path, tune="none")
  for result, expected in zip(results, runs_of(kind()), strict=True):
    assert all(map(torch.equal, result.values(), expected))


@ON_HOST
def test_functions_share_a_cache_and_its_parts(tmp_path):
  class Both(ReadsBefore):
    def whole(self, x):
      return self.cache + x

    def forward(self, x):
      self.first.add_(x)
      return self.first * 1

  model = Both()
  functions = {
    "part": husk.Function(model, (X,)),
    "whole": husk.Function(model, (X,), method="whole"),
  }
  husk.export(functions, tmp_path / "made.husk", targets=(row_table.TARGET,))
  with artifact_runner.Runner(tmp_path / "made.husk") as run, torch.no_grad():
    for name in ("whole", "part", "whole"):
      torch.testing.assert_close(
        run.run([X], name)[0],
        functions[name].model.__getattribute__("forward" if name == "part" else name)(X),
      )


def test_a_view_of_another_dtype_is_refused(tmp_path):
  class Bits(torch.nn.Module):
    def __init__(self):
      super().__init__()
      self.register_buffer("values", torch.zeros(4))
      self.register_buffer("bits", self.values.view(torch.int32))

    def forward(self, x):
      self.values.add_(x)
      return self.bits + 1

  with pytest.raises(husk.Unsupported, match="values, bits share memory and have different dtypes"):
    husk.write(Bits(), (torch.ones(4),), tmp_path)


def test_examples_that_share_memory_have_sizes_of_their_own(tmp_path):
  class Sum(torch.nn.Module):
    def forward(self, x, y):
      x.add_(1)
      return x + y

  memory = torch.zeros(6)
  text = husk.write(Sum(), (memory[:3], memory[3:]), tmp_path, targets=("host:avx2",)).read_text()
  assert "input x tensor f32 [3]" in text and "input y tensor f32 [3]" in text


@ON_HOST
def test_random_programs_on_hosts(tmp_path):
  programs = [aliased_programs.valid(seed) for seed in (110, 111, 112, 113)]
  aliased_programs.check_on_host(programs, tmp_path, row_table.TARGET)


@pytest.mark.parametrize("seed", (36, 38))
def test_random_programs_on_cuda(seed, tmp_path):
  aliased_programs.check_on_cuda(aliased_programs.valid(seed), tmp_path)


class Doubles(torch.nn.Module):
  """A tensor of one element that is no buffer, and that the model writes."""

  def __init__(self):
    super().__init__()
    self.c = torch.tensor(2.0)

  def forward(self, x):
    self.c.mul_(2)
    return x + self.c


def test_an_export_writes_to_no_tensor_of_the_model(tmp_path):
  """torch computes with tensors of one element while it traces."""
  model = Doubles()
  text = husk.write(model, (torch.ones(3),), tmp_path, targets=("host:avx2", "cuda:h200"))
  assert model.c.item() == 2
  assert "fill 2.0" in pathlib.Path(text).read_text()


class Update(torch.nn.Module):
  """A buffer whose new elements are computed from its first one, or each from itself."""

  def __init__(self, update):
    super().__init__()
    self.register_buffer("kept", torch.arange(5.0, 22.0).view(1, 17))
    self.update = update

  def forward(self, x):
    self.kept.transpose(0, 1).copy_(self.update(self.kept))
    return x + 1


@pytest.mark.parametrize(
  "update",
  [
    lambda kept: kept.flatten()[0] + 1,
    lambda kept: kept.flatten().flip(0).unsqueeze(1) * 2,
    lambda kept: kept.transpose(0, 1) * 2 + 1,
  ],
  ids=["first", "reversed", "own"],
)
def test_a_buffer_is_updated_from_its_old_elements(tmp_path, update):
  model, eager = Update(update), Update(update)
  path = husk.export(model, (torch.zeros(2),), tmp_path / "made.husk", targets=("host:avx2",))
  session = husk.load(path).session()
  for _ in range(2):
    session(torch.zeros(2))
    eager(torch.zeros(2))
    torch.testing.assert_close(session.state["kept"].torch(), eager.kept)
