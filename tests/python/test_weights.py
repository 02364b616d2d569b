"""Weights are exchanged while a program lives, as a whole or in part; programs share an engine."""

import threading

import conftest
import husk
import numpy as np
import pytest
import torch

# Returns its constants, and a state that begins with one of them.
WEIGHTS = """
user "husk.tied.head.weight" "embed.weight"
constant embed.weight f32 [3, 2] bytes "0000803f0000004000004040000080400000a0400000c040"
constant b bf16 [2] bytes "803f0040"
constant scale f32 [] bytes "0000803f"
state start f32 [3, 2] constant embed.weight
function forward {
  input x int
  output y tensor f32 rank 2
  output bb tensor bf16 rank 1
  output ss tensor f32 rank 0
  output tt tensor f32 rank 2
  variant cpu {
    buffer y of output bytes 24
    buffer bb of output bytes 4
    buffer ss of output bytes 4
    buffer tt of output bytes 24
    copy (write y, read embed.weight)
    copy (write bb, read b)
    copy (write ss, read scale)
    copy (write tt, read start)
    return (tensor y f32 [3, 2] [2, 1], tensor bb bf16 [2] [1], tensor ss f32 [] [],
      tensor tt f32 [3, 2] [2, 1])
  }
}
"""
FIRST = [[1, 2], [3, 4], [5, 6]]


def embedding(program):
  return np.from_dlpack(program(1)[0]).tolist()


def test_weights_are_described(load):
  weights = load(WEIGHTS).weights
  assert list(weights) == ["embed.weight", "b", "scale"] and len(weights) == 3
  weight = weights["embed.weight"]
  assert (weight.dtype, weight.shape, weight.nbytes) == ("f32", (3, 2), 24)
  assert repr(weights["b"]) == "husk.Weight b bf16[2]"


def test_a_weight_takes_the_value_of_a_tensor(load):
  program = load(WEIGHTS)
  session = program.session()
  assert embedding(session) == FIRST
  for value in (torch.arange(6.0).reshape(3, 2), np.arange(6, dtype=np.float32).reshape(3, 2) + 1):
    program.weights["embed.weight"].copy_from(value)
    assert embedding(session) == embedding(program) == value.tolist()
  transposed = torch.arange(6.0).reshape(2, 3).t()
  program.weights["embed.weight"].copy_from(transposed)
  assert embedding(program) == transposed.tolist()
  session.state["start"].reset()  # begins with the new value
  assert session.state["start"].numpy().tolist() == transposed.tolist()


def test_several_weights_are_exchanged_at_once(load):
  program = load(WEIGHTS)
  new = {
    "embed.weight": torch.zeros(3, 2),
    "b": torch.tensor([7.0, 8.0], dtype=torch.bfloat16),
    "scale": np.float32(3),
  }
  assert program.update_weights(new) == []
  results = program(1)
  assert torch.from_dlpack(results[1]).tolist() == [7, 8] and embedding(program) == [[0, 0]] * 3
  # All or none.
  with pytest.raises(ValueError, match=r"weight 'b' is bfloat16\[2\], not float32\[2\]"):
    program.update_weights({"embed.weight": torch.ones(3, 2), "b": torch.ones(2)})
  assert embedding(program) == [[0, 0]] * 3


def test_rows_of_a_weight(load):
  program = load(WEIGHTS)
  weight = program.weights["embed.weight"]
  weight[1] = torch.tensor([30.0, 40.0])
  assert embedding(program) == [[1, 2], [30, 40], [5, 6]]
  weight[-1] = np.array([50, 60], np.float32)
  weight[:1] = torch.tensor([[10.0, 20.0]])
  assert embedding(program) == [[10, 20], [30, 40], [50, 60]]
  weight[1:1] = torch.empty(0, 2)
  rows = {("embed.weight", range(2)): torch.zeros(2, 2), ("head.weight", 2): torch.ones(2)}
  program.update_weights(rows)
  assert embedding(program) == [[0, 0], [0, 0], [1, 1]]


@pytest.mark.parametrize(
  ("rows", "value", "error", "text"),
  [
    (3, torch.ones(2), IndexError, r"weight 'embed.weight'\[3\]: there are 3 rows"),
    (-4, torch.ones(2), IndexError, "there are 3 rows"),
    (slice(0, 3, 2), torch.ones(2, 2), IndexError, r"\[0:3:2\]: give rows that follow each other"),
    (slice(0, 2), torch.ones(3, 2), ValueError, r"\[0:2\] is float32\[2, 2\], not float32\[3, 2\]"),
    (0, torch.ones(2).double(), ValueError, r"\[0\] is float32\[2\], not float64\[2\]"),
    (0, [1.0, 2.0], TypeError, "give a torch.Tensor or a numpy.ndarray, not list"),
  ],
)
def test_wrong_rows(load, rows, value, error, text):
  program = load(WEIGHTS)
  with pytest.raises(error, match=text):
    program.weights["embed.weight"][rows] = value
  assert embedding(program) == FIRST


def test_a_weight_without_rows(load):
  with pytest.raises(IndexError, match="'scale' has no rows, since it has no dimensions"):
    load(WEIGHTS).weights["scale"][0] = torch.tensor(1.0)


def test_names(load):
  program = load(WEIGHTS)
  program.weights["head.weight"].copy_from(torch.zeros(3, 2))  # tied to embed.weight
  assert embedding(program) == [[0, 0]] * 3
  with pytest.raises(KeyError, match="no weight 'embed.weigth': the program has 3, such as 'embed"):
    program.weights["embed.weigth"]
  with pytest.raises(KeyError, match="no weight 'unused'"):
    program.update_weights({"scale": torch.tensor(2.0), "unused": torch.ones(1)})
  updates = {"scale": torch.tensor(2.0), "unused": torch.ones(1)}
  assert program.update_weights(updates, strict=False) == ["unused"]
  assert torch.from_dlpack(program(1)[2]).item() == 2


def test_weights_are_exchanged_between_runs_of_other_threads(load):
  program = load(WEIGHTS)
  values = [torch.full((3, 2), float(i)) for i in range(2)]
  program.weights["embed.weight"].copy_from(values[0])
  seen, ends = [], threading.Event()

  def run():
    session = program.session()
    while not ends.is_set():
      seen.append(tuple(map(tuple, embedding(session))))

  threads = [threading.Thread(target=run) for _ in range(2)]
  for thread in threads:
    thread.start()
  for i in range(200):
    program.update_weights({"embed.weight": values[i % 2]})
  ends.set()
  for thread in threads:
    thread.join()
  assert set(seen) <= {((i, i),) * 3 for i in (0.0, 1.0)}


def test_programs_share_an_engine(load):
  first = load(WEIGHTS)
  second = load(conftest.COPY, engine=first.engine)
  assert second.engine is first.engine
  assert torch.equal(second(torch.ones(2, 4))[0], torch.ones(2, 4))
  own = husk.Engine("cpu", threads=2)
  third, fourth = load(WEIGHTS, engine=own), load(WEIGHTS, engine=own)
  third.weights["scale"].copy_from(torch.tensor(5.0))  # the other program keeps its value
  assert torch.from_dlpack(fourth(1)[2]).item() == 1
  assert torch.from_dlpack(third(1)[2]).item() == 5
  del own, third
  assert embedding(fourth) == FIRST


@pytest.mark.parametrize(
  ("options", "error", "text"),
  [
    ({"device": "cpu"}, ValueError, "device=...): the engine has these options already"),
    ({"threads": 2, "verify": True}, ValueError, "threads, verify=...): the engine has these"),
  ],
)
def test_an_engine_has_its_options(load, options, error, text):
  engine = husk.Engine()
  with pytest.raises(error) as caught:
    load(conftest.COPY, engine=engine, **options)
  assert text in str(caught.value)
  with pytest.raises(TypeError, match="give a husk.Engine, not str"):
    load(conftest.COPY, engine="cpu")
  with pytest.raises(TypeError, match="no option 'treads'"):
    husk.Engine(treads=2)
