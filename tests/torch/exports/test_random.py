"""Random numbers: equal to eager's if operators draw them, and reproducible if kernels draw
them."""

import types

import artifact_runner
import built_tools  # noqa: F401  (where the exporter lies)
import husk
import pytest
import row_table
import torch
from husk.host import kernels as host_kernels
from torch.nn import functional as F

pytestmark = pytest.mark.skipif(
  "avx2" not in host_kernels.isas(), reason="this machine has no AVX2"
)


class Called(torch.nn.Module):
  """Operators that Inductor calls, or calls with its option fallback_random."""

  def forward(self, x):
    return torch.randperm(9), torch.multinomial(x.softmax(-1), 3)


class Drawn(torch.nn.Module):
  def forward(self, x):
    return (
      torch.rand(5),
      torch.randn(3, 4),
      torch.randint(-3, 9, (7,)),
      torch.rand_like(x),
      torch.randn_like(x),
    )


class Dropped(torch.nn.Module):
  def forward(self, x):
    return F.dropout(x, 0.4, training=True)


class Complex(torch.nn.Module):
  """Complex numbers, whose parts hosts draw."""

  def forward(self, x):
    z = torch.complex(x, x)
    return torch.randn(3, 40, dtype=z.dtype), z.clone().uniform_(-1, 3), z.clone().normal_(1, 2)


class Kernels(Drawn):
  def forward(self, x):
    return *super().forward(x), F.dropout(x, 0.4, training=True), torch.bernoulli(x.sigmoid())


X = torch.randn(6, 50)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  return tmp_path_factory.mktemp("random")


@pytest.fixture(scope="module")
def artifact(folder):
  with torch._inductor.config.patch(fallback_random=True):
    husk.export(
      {
        "called": husk.Function(Called(), (X,)),
        "drawn": husk.Function(Drawn(), (X,)),
        "dropped": husk.Function(Dropped(), (X,)),
        "complex": husk.Function(Complex(), (X,)),
      },
      folder / "called.husk",
      targets=(row_table.TARGET,),
    )
  husk.export(
    {"drawn": husk.Function(Kernels(), (X,))}, folder / "kernels.husk", targets=(row_table.TARGET,)
  )
  return folder


@pytest.mark.parametrize(
  "function, model",
  [("called", Called()), ("drawn", Drawn()), ("dropped", Dropped()), ("complex", Complex())],
)
def test_random_operators_equal_eager(function, model, artifact):
  with artifact_runner.Runner(artifact / "called.husk") as run:
    for seed in (None, 0, 7, 2**40):
      session = run.session()
      if seed is not None:
        run.seed(seed, session)
      torch.manual_seed(67280421310721 if seed is None else seed)  # PyTorch's default seed
      for _ in range(3):
        row_table.equal(
          run.run([X], function, session),
          torch.utils._pytree.tree_leaves(model(X)),
          types.SimpleNamespace(tolerance={}),
        )


def test_kernels_are_reproducible_by_seed(artifact):
  with artifact_runner.Runner(artifact / "kernels.husk") as run:
    run.seed(3)
    first, second = run.run([X], "drawn"), run.run([X], "drawn")
    other = run.session()
    run.seed(3, other)
    again = run.run([X], "drawn", other)
    assert all(torch.equal(one, two) for one, two in zip(first, again))
    assert not any(torch.equal(one, two) for one, two in zip(first, second))
    run.copy("husk.generator", other)  # it continues where the other session stopped
    assert all(torch.equal(one, two) for one, two in zip(second, run.run([X], "drawn")))
    run.reset("husk.generator")
    fresh = run.run([X], "drawn", run.session())
    assert all(torch.equal(one, two) for one, two in zip(fresh, run.run([X], "drawn")))


def test_kernels_draw_from_the_right_distributions(artifact):
  with artifact_runner.Runner(artifact / "kernels.husk") as run:
    uniform, normal, whole, like, _, dropped, coins = (
      torch.cat([part.flatten().double() for part in parts])
      for parts in zip(*(run.run([X], "drawn") for _ in range(300)))
    )
  assert (
    0 <= uniform.min()
    and uniform.max() < 1
    and abs(uniform.mean() - 0.5) < 0.03
    and abs(like.std() - 12**-0.5) < 0.01
  )
  assert abs(normal.mean()) < 0.06 and abs(normal.std() - 1) < 0.06
  assert set(whole.unique().tolist()) == set(range(-3, 9)) and set(coins.unique().tolist()) == {
    0.0,
    1.0,
  }
  assert abs((dropped == 0).double().mean() - 0.4) < 0.01
  assert abs(coins.mean() - X.sigmoid().mean()) < 0.01
