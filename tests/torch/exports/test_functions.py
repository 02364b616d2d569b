"""Several functions in one artifact: shared weights and state, and updates of constants."""

import re

import artifact_runner
import built_tools  # noqa: F401  (where the exporter lies)
import husk
import pytest
import row_table
import torch
from husk.host import kernels as host_kernels
from torch import nn
from torch.export import Dim

pytestmark = pytest.mark.skipif(
  "avx2" not in host_kernels.isas(), reason="this machine has no AVX2"
)
WIDTH, LENGTH = 8, 16


class Decoder(nn.Module):
  """Attention over a cache: `prefill` fills it from the start, `forward` adds one position."""

  def __init__(self):
    super().__init__()
    self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
    self.register_buffer("keys", torch.zeros(LENGTH, WIDTH))
    self.register_buffer("values", torch.zeros(LENGTH, WIDTH))

  def prefill(self, x):
    return self.attend(x, torch.arange(x.shape[0]))

  def forward(self, x, at):
    return self.attend(x, at)

  def attend(self, x, at):
    q, k, v = self.qkv(x).chunk(3, dim=-1)
    self.keys.index_copy_(0, at, k)
    self.values.index_copy_(0, at, v)
    scores = q @ self.keys.t()
    scores = scores.masked_fill(torch.arange(LENGTH) > at[:, None], float("-inf"))
    return scores.softmax(-1) @ self.values


def decoder():
  torch.manual_seed(3)
  return Decoder().eval()


@pytest.fixture(scope="module")
def artifact(tmp_path_factory):
  folder = tmp_path_factory.mktemp("decoder")
  model = decoder()
  husk.export(
    {
      "prefill": husk.Function(
        model,
        (torch.randn(4, WIDTH),),
        dynamic_shapes=({0: Dim("length", min=2, max=LENGTH)},),
        method="prefill",
      ),
      "decode": (model, (torch.randn(1, WIDTH), torch.tensor([4]))),
    },
    folder / "decoder.husk",
    keep=folder,
    targets=(row_table.TARGET,),
  )
  return folder / "decoder.husk"


def test_functions_share_weights_and_state(artifact):
  text = artifact.with_name("model.hir").read_text()
  assert len(re.findall("^constant qkv", text, re.M)) == 2  # weight and bias are stored once
  assert re.findall("^state (.*)", text, re.M) == [
    f"{name} f32 [{LENGTH}, {WIDTH}] fill 0.0" for name in ("keys", "values")
  ]
  assert artifact.stat().st_size < 150_000
  model, x, steps = decoder(), torch.randn(5, WIDTH), torch.randn(3, 1, WIDTH)
  with artifact_runner.Runner(artifact) as run, torch.no_grad():
    torch.testing.assert_close(run.run([x], "prefill")[0], model.prefill(x))
    for i, step in enumerate(steps):
      at = torch.tensor([5 + i])
      torch.testing.assert_close(run.run([step, at], "decode")[0], model(step, at))


def keys(run, session=0):
  return torch.frombuffer(bytearray(run.get("keys", session)), dtype=torch.float32).view(
    LENGTH, WIDTH
  )


def test_state_is_the_sessions_own(artifact):
  x, step, at = torch.randn(3, WIDTH), torch.randn(1, WIDTH), torch.tensor([3])
  model = decoder()
  with artifact_runner.Runner(artifact) as run, torch.no_grad():
    other = run.session()
    zeros = torch.zeros(LENGTH, WIDTH)
    run.run([x], "prefill")
    model.prefill(x)
    torch.testing.assert_close(keys(run), model.keys)
    assert torch.equal(keys(run, other), zeros)
    for state in ("keys", "values"):
      run.copy(state, 0, session=other)
    expected = model(step, at)
    torch.testing.assert_close(
      run.run([step, at], "decode", other)[0], expected
    )  # the session continues with the copy
    torch.testing.assert_close(
      run.run([step, at], "decode")[0], expected
    )  # the source of the copy is unchanged
    run.reset("keys")
    assert torch.equal(keys(run), zeros) and not torch.equal(keys(run, other), zeros)
    run.set("keys", model.keys)
    assert torch.equal(keys(run), model.keys)


def test_constants_are_replaced_for_all_sessions(artifact):
  model, x = decoder(), torch.randn(3, WIDTH)
  with artifact_runner.Runner(artifact) as run, torch.no_grad():
    other = run.session()
    before = run.run([x], "prefill")[0]
    model.qkv.weight.mul_(-0.5)
    run.update("qkv.weight", model.qkv.weight)
    expected = model.prefill(x)
    assert not torch.allclose(before, expected)
    for session in (0, other):
      torch.testing.assert_close(run.run([x], "prefill", session)[0], expected)
    with pytest.raises(artifact_runner.Failed, match="qkv.other"):
      run.update("qkv.other", model.qkv.bias)


class Writer(nn.Module):
  def __init__(self, rows):
    super().__init__()
    self.register_buffer("rows", rows)

  def forward(self, x):
    self.rows.add_(x)
    return self.rows.sum()


class Reader(nn.Module):
  def __init__(self, whole):
    super().__init__()
    self.register_buffer("whole", whole)

  def forward(self, x):
    return self.whole * x


def test_views_of_one_storage_in_two_functions(tmp_path):
  """Different modules have different names for one storage: one function writes it, the other reads
  it."""
  whole = torch.arange(12.0).reshape(4, 3)
  x, y = torch.randn(3), torch.randn(3)
  husk.export(
    {"write": (Writer(whole[1:3]), (x,)), "read": (Reader(whole), (y,))},
    tmp_path / "two.husk",
    keep=tmp_path,
    targets=(row_table.TARGET,),
  )
  assert len(re.findall("^state ", (tmp_path / "model.hir").read_text(), re.M)) == 1
  writer, reader = Writer(whole[1:3]), Reader(whole)
  with artifact_runner.Runner(tmp_path / "two.husk") as run:
    for _ in range(2):
      torch.testing.assert_close(run.run([x], "write")[0], writer(x))
      torch.testing.assert_close(run.run([y], "read")[0], reader(y))


def test_invalid_functions_are_refused(tmp_path):
  model = decoder()
  x = (torch.randn(2, WIDTH),)
  with pytest.raises(ValueError, match="Decoder has no method encode"):
    husk.write({"encode": husk.Function(model, x, method="encode")}, tmp_path)
  with pytest.raises(ValueError, match="'2nd' is no name of a function"):
    husk.write({"2nd": (model, x)}, tmp_path)
  with pytest.raises(ValueError, match="no functions"):
    husk.write({}, tmp_path)
  with pytest.raises(TypeError, match="no path is given"):
    husk.export(model, x)
  with pytest.raises(ValueError, match="int is no model"):
    husk.write(3, x, tmp_path)
  with pytest.raises(TypeError, match="the functions' own"):
    husk.write({"prefill": (model, x)}, tmp_path, kwargs={"y": 1})


def test_errors_name_the_function_and_the_output(tmp_path):
  class Wrong(nn.Module):
    def forward(self, x):
      return x + 1, "text"

  with pytest.raises(husk.Unsupported, match="function second: the output output1 is a str"):
    husk.write(
      {"first": (nn.Identity(), (torch.randn(2),)), "second": (Wrong(), (torch.randn(2),))},
      tmp_path,
      targets=(row_table.TARGET,),
    )
