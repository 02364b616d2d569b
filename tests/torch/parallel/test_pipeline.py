"""Pipeline parallelism: layers of a decoder on several ranks, and tensors sent between ranks."""

import re

import husk
import pytest
import torch
from husk.parallel import pipeline, recv, send
from torch import nn
from torch.distributed import _functional_collectives as functional

TARGETS = ("host:avx2",)


class Layer(nn.Module):
  def __init__(self, number, width):
    super().__init__()
    self.layer_idx = number  # in its cache
    self.norm = nn.RMSNorm(width)
    self.product = nn.Linear(width, width)

  def forward(self, x):
    return x + torch.tanh(self.product(self.norm(x)))


class Decoder(nn.Module):
  def __init__(self, layers=5, words=64, width=16):
    super().__init__()
    self.embed_tokens = nn.Embedding(words, width)
    self.layers = nn.ModuleList(Layer(number, width) for number in range(layers))
    self.norm = nn.RMSNorm(width)
    self.lm_head = nn.Linear(width, words, bias=False)

  def forward(self, tokens):
    x = self.embed_tokens(tokens)
    for layer in self.layers:
      x = layer(x)
    return self.lm_head(self.norm(x))


def whole(*args):
  torch.manual_seed(0)
  return Decoder(*args).eval()


def calls(folder, rank):
  """The operators of a rank's program that communicate, with their arguments."""
  text = (folder / f"rank{rank}" / "model.hir").read_text()
  return re.findall(r'extern "husk::(send|recv|broadcast)" \((.*?), write tensor order', text)


@pytest.mark.parametrize("target", ["host:avx2", "cuda:h200"])
def test_a_decoder_on_three_ranks(tmp_path, target):
  tokens = torch.arange(24).reshape(3, 8) % 64
  numbers = []

  def build(mesh):
    model = pipeline(whole(), mesh)
    numbers.append([layer.layer_idx for layer in model.layers])
    return model

  husk.parallel.export(
    build,
    (tokens,),
    tmp_path / "decoder.husk",
    ranks=3,
    dynamic_shapes={"tokens": {0: torch.export.Dim("rows", min=1, max=16)}},
    targets=(target,),
    keep=tmp_path,
  )
  assert numbers == [[0], [0, 1], [0, 1]]
  names = [[name for name, _ in calls(tmp_path, rank)] for rank in range(3)]
  assert names == [["send", "broadcast"], ["recv", "send", "broadcast"], ["recv", "broadcast"]]
  if target != "host:avx2":
    return
  ranks = husk.load_ranks(tmp_path / "decoder.husk", ["cpu"] * 3, threads=1)
  for rows in tokens, tokens[:1]:
    expected = whole()(rows).detach()
    for result in ranks.on_all(lambda rank, rows=rows: ranks.programs[rank](rows).clone()):
      torch.testing.assert_close(result, expected)
  # Each rank has its own layers, under the names of the whole model.
  layers = [
    sorted({name.split(".")[1] for name in program.weights if name.startswith("layers.")})
    for program in ranks.programs
  ]
  assert layers == [["0"], ["1", "2"], ["3", "4"]]
  assert ["lm_head.weight" in program.weights for program in ranks.programs] == [False, False, True]


def test_a_part_of_a_mesh(tmp_path):
  """Two pipelines beside each other: ranks 0 and 2, ranks 1 and 3."""
  tokens = torch.arange(8).reshape(1, 8)
  husk.parallel.export(
    lambda mesh: pipeline(whole(), mesh["stage"]),
    (tokens,),
    tmp_path / "decoder.husk",
    ranks=(2, 2),
    names=("stage", "copy"),
    targets=TARGETS,
  )
  ranks = husk.load_ranks(tmp_path / "decoder.husk", ["cpu"] * 4, threads=1)
  expected = whole()(tokens).detach()
  for result in ranks.on_all(lambda rank: ranks.programs[rank](tokens).clone()):
    torch.testing.assert_close(result, expected)


class Exchange(nn.Module):
  """Tensors that two ranks send each other in an order that follows from nothing but the model."""

  def __init__(self, mesh):
    super().__init__()
    self.rank = mesh.get_local_rank()

  def forward(self, x):
    if self.rank == 0:
      send(x, 1)
      send(torch.mm(x, x), 1)
      first = recv([1], 1)
      recv([1], 1)
      return first, recv([1], 1) + x.sum()
    one, other = recv(x.shape, 0), recv(x.shape, 0)
    send(other.sum()[None], 0)
    send(x[0, :1], 0)
    send(one.sum()[None], 0)
    return other, one - 1


def test_tensors_arrive_in_the_order_of_the_model(tmp_path):
  x = torch.arange(256.0).reshape(16, 16) / 64
  husk.parallel.export(Exchange, (x,), tmp_path / "x.husk", targets=TARGETS, keep=tmp_path)
  names = [[name for name, _ in calls(tmp_path, rank)] for rank in range(2)]
  assert names == [["send"] * 2 + ["recv"] * 3, ["recv"] * 2 + ["send"] * 3]
  ranks = husk.load_ranks(tmp_path / "x.husk", ["cpu"] * 2, threads=1)
  first, second = ranks.on_all(lambda rank: [one.clone() for one in ranks.programs[rank](x)])
  product = x @ x
  torch.testing.assert_close(first, [product.sum()[None], 2 * x.sum()[None]])
  torch.testing.assert_close(second, [product, x - 1])


class Hasty(nn.Module):
  """Adds up what rank 1 alone calls for."""

  def __init__(self, mesh):
    super().__init__()
    self.rank, self.group = mesh.get_local_rank(), (mesh, 0)

  def forward(self, x):
    return x if self.rank == 0 else functional.all_reduce(x, "sum", self.group)


def test_a_rank_that_waits_for_nothing(tmp_path):
  husk.parallel.export(Hasty, (torch.ones(4),), tmp_path / "x.husk", targets=TARGETS)
  ranks = husk.load_ranks(tmp_path / "x.husk", ["cpu"] * 2, threads=1, group_timeout_ms=200)
  with pytest.raises(husk.DeviceError, match="did not come within 200 ms|has ended"):
    ranks(torch.ones(4))


class Scripted(nn.Module):
  """Each rank has its own calls of a script: ("send", elements) or ("recv", elements, dtype)."""

  def __init__(self, mesh, scripts):
    super().__init__()
    rank = mesh.get_local_rank()
    self.script, self.other = scripts[rank], 1 - rank

  def forward(self, x):
    total = x.sum()
    for call, elements, *dtype in self.script:
      if call == "send":
        send((x + total)[:elements], self.other)
      else:
        received = recv([elements], self.other, dtype=dtype[0] if dtype else torch.float32)
        total = total + received.sum()
    return total


@pytest.mark.parametrize(
  ("first", "second", "words"),
  [
    (
      [("send", 3)],
      [("recv", 3), ("recv", 3)],
      "call 2 .* between rank 0 and rank 1: rank 0 has none, and rank 1 receives 3 elements of "
      "float32",
    ),
    ([("send", 3)], [("recv", 2)], "rank 0 sends 3 elements of float32, and rank 1 receives 2 el"),
    ([("send", 3)], [("recv", 3, torch.int32)], "rank 1 receives 3 elements of int32"),
    ([("send", 3)], [], "rank 0 sends 3 elements of float32, and rank 1 has none"),
    ([("recv", 3)], [("recv", 3)], "rank 0 receives 3 .* and rank 1 receives 3"),
    (
      [("send", 3), ("recv", 2)],
      [("send", 2), ("recv", 3)],
      "call 1 .* rank 0 sends 3 .* and rank 1 sends 2",
    ),
  ],
)
def test_each_send_has_its_receive(tmp_path, first, second, words):
  def export(*scripts):
    husk.parallel.export(
      lambda mesh: Scripted(mesh, scripts), (torch.ones(4),), tmp_path / "x.husk", targets=TARGETS
    )

  with pytest.raises(ValueError, match=words):
    export(first, second)
  assert not list(tmp_path.iterdir())


def test_numbers_of_elements_that_inputs_decide(tmp_path):
  """They are compared in each run."""

  class Rows(Exchange):
    def forward(self, x):
      if self.rank == 0:
        send(x, 1)
        return x
      return recv([x.shape[0]], 0)

  husk.parallel.export(
    Rows,
    (torch.ones(4),),
    tmp_path / "x.husk",
    dynamic_shapes={"x": {0: torch.export.Dim("rows", min=1, max=16)}},
    targets=TARGETS,
  )
  ranks = husk.load_ranks(tmp_path / "x.husk", ["cpu"] * 2, threads=1)
  x = torch.arange(7.0)
  for found in ranks.on_all(lambda rank: ranks.programs[rank](x).clone()):
    assert torch.equal(found, x)


def test_refusals(tmp_path):
  def export(build):
    husk.parallel.export(build, (torch.ones(2),), tmp_path / "x.husk", targets=TARGETS)

  class To(nn.Module):
    def __init__(self, rank):
      super().__init__()
      self.rank = rank

    def forward(self, x):
      send(x, self.rank)
      return x

  with pytest.raises(ValueError, match="to=2: this is rank 0 of 2, give the number of another"):
    export(lambda mesh: To(2))
  with pytest.raises(ValueError, match="to=0: this is rank 0 of 2"):
    export(lambda mesh: To(0))
  with pytest.raises(ValueError, match="Linear has no embed_tokens, layers, norm, lm_head: write"):
    export(lambda mesh: pipeline(nn.Linear(2, 2), mesh))
  with pytest.raises(ValueError, match="Decoder has 1 layers, fewer than 2, the number of ranks"):
    export(lambda mesh: pipeline(whole(1), mesh))
  with pytest.raises(RuntimeError, match="that husk.parallel.export exports"):
    send(torch.ones(2), 1)
  with pytest.raises(RuntimeError, match="that husk.parallel.export exports"):
    recv([2], 1)
  assert not list(tmp_path.iterdir())
