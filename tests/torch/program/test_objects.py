"""Objects of the application's own classes among the inputs and outputs of a model."""

import collections
import dataclasses
import json
import os
import subprocess
import sys

import built_tools
import husk
import pytest
import torch
from husk.program import objects, tracing, trees
from torch.utils import _pytree as pytree


@dataclasses.dataclass
class Batch:
  tokens: torch.Tensor
  mask: torch.Tensor | None = None
  weight: torch.Tensor | None = None


class Cache:
  """A class whose constructor needs tensors, as that of a cache of transformers."""

  def __init__(self, keys, values):
    self.keys, self.values, self.device = keys, values, keys.device


Pair = collections.namedtuple("Pair", "first second")
torch.export.register_dataclass(Batch, serialized_type_name="test_objects.Batch")
pytree.register_pytree_node(
  Cache,
  lambda cache: ([cache.keys, cache.values], ["keys", "values"]),
  lambda leaves, context: Cache(*leaves),
  serialized_type_name="test_objects.Cache",
  flatten_with_keys_fn=lambda cache: (
    [(pytree.GetAttrKey("keys"), cache.keys), (pytree.GetAttrKey("values"), cache.values)],
    ["keys", "values"],
  ),
)


class Model(torch.nn.Module):
  def forward(self, batch, *, cache):
    sums = Pair(cache.keys + batch.tokens, [cache.values + batch.weight])
    return {"sums": sums, "next": Batch(batch.tokens * 2, weight=batch.weight), "cache": cache}


@pytest.fixture(scope="module")
def path(tmp_path_factory):
  path = tmp_path_factory.mktemp("objects") / "made.husk"
  n = torch.export.Dim("n", min=1, max=9)
  dims = {"batch": [{0: n}, {0: n}], "cache": [{0: n}, {0: n}]}
  return husk.export(
    Model(), (batch(3),), path, kwargs={"cache": cache(3)}, dynamic_shapes=dims, targets=("host",)
  )


def batch(n):
  return Batch(torch.randn(n), weight=torch.randn(n))


def cache(n):
  return Cache(torch.randn(n), torch.randn(n))


def test_arguments_and_results_nest_as_in_the_model(path):
  program = husk.load(path)
  inputs, kept = batch(5), cache(5)
  result, expected = program(inputs, cache=kept), Model()(inputs, cache=kept)
  assert type(result["sums"]) is Pair and type(result["sums"].second) is list
  torch.testing.assert_close(result["sums"].first, expected["sums"].first)
  torch.testing.assert_close(result["sums"].second, expected["sums"].second)
  assert type(result["next"]) is Batch and result["next"].mask is None
  torch.testing.assert_close(result["next"].tokens, inputs.tokens * 2)
  # No call can make an object of a class that torch alone takes apart: its parts are a dict.
  assert list(result["cache"]) == ["keys", "values"]


def test_parts_take_the_place_of_an_object(path):
  program = husk.load(path)
  inputs, kept = batch(5), cache(5)
  expected = program(inputs, cache=kept)["sums"]
  fields = {"tokens": inputs.tokens, "weight": inputs.weight}
  for cached in ({"keys": kept.keys, "values": kept.values}, (kept.keys, kept.values)):
    torch.testing.assert_close(program(fields, cache=cached)["sums"], expected)
  with pytest.raises(
    TypeError, match="Batch in the model: pass one or a dict with 'tokens', 'weig"
  ):
    program(inputs.tokens, cache=kept)
  with pytest.raises(TypeError, match="tuple of its 2 parts, not dict"):
    program({"tokens": inputs.tokens}, cache=kept)
  with pytest.raises(TypeError, match="tuple of its 2 parts, not tuple"):
    program(inputs, cache=(kept.keys,))


def test_a_process_without_the_classes_gets_parts(path):
  code = f"""
import husk, numpy as np
x = np.ones(2, np.float32)
result = husk.load({str(path)!r})((x, x), cache=(x, x))
print(type(result["sums"]).__name__, type(result["next"]).__name__, list(result["next"]))
"""
  environment = {**os.environ, "PYTHONPATH": str(built_tools.ROOT / "compiler" / "torch")}
  ran = subprocess.run(
    [sys.executable, "-c", code], capture_output=True, text=True, env=environment
  )
  assert ran.stdout.split("\n")[0] == "tuple dict ['tokens', 'weight']", ran.stderr


def test_names_of_values_and_the_tree(path):
  program = husk.load(path)
  assert [one["name"] for one in program.forward.outputs] == [
    "sums_first",
    "sums_second_0",
    "next_tokens",
    "next_weight",
    "cache_keys_2",
    "cache_values_2",
  ]
  classes = json.loads(program.pytree)["classes"]
  assert {path: one["kind"] for path, one in classes.items()} == {
    "args/0": "dataclass",
    "kwargs/cache": "node",
    "outputs/sums": "namedtuple",
    "outputs/next": "dataclass",
    "outputs/cache": "node",
  }


def test_classes_are_not_built_from_names():
  spec = pytree.tree_structure((cache(2), {"x": [1, (2, 3)]}))
  value = trees.filled(spec, "abcde")
  assert value[0].type is Cache and value[0].parts == ["a", "b"]
  assert value[1] == {"x": ["c", ("d", "e")]}
  texts = [trees.in_code(path) for path in trees.paths(spec)]
  assert texts[0] == ["[0].keys", "[0]['keys']", "[0][0]"]
  assert texts[4] == ["[1]['x'][1][1]"]


def test_a_bad_description_of_a_class_is_ignored(path):
  from husk.runtime import trees as read

  tree = {
    "args": ["x"],
    "kwargs": {},
    "outputs": {"a": "y"},
    "tuples": [],
    "classes": {"outputs": 3},
  }
  assert read.of_function(tree, ["x"], ["y"]).results == 0


class Layer:
  def __init__(self, keys, values):
    self.keys, self.values, self.length = keys, values, 7


class Layers:
  """Objects in an object, none of which torch knows how to take apart."""

  def __init__(self, layers):
    self.layers, self.kind = layers, "dynamic"


class Attention(torch.nn.Module):
  def forward(self, x, cache=None):
    if cache is None:
      return {"x": x * 2, "cache": Layers([Layer(x + 1, x + 2)])}
    layer = cache.layers[0]
    assert layer.length == 7 and cache.kind == "dynamic"
    return {"x": x + layer.keys, "cache": Layers([Layer(layer.values, x)])}


def test_objects_that_torch_does_not_know(tmp_path):
  known = dict(pytree.SUPPORTED_NODES)
  x, cache = torch.randn(3), Layers([Layer(torch.randn(3), torch.randn(3))])
  path = husk.export(
    {"first": husk.Function(Attention(), (x,)), "next": husk.Function(Attention(), (x, cache))},
    tmp_path / "made.husk",
    targets=("host",),
  )
  assert pytree.SUPPORTED_NODES == known
  program = husk.load(path)
  result, expected = program.first(x), Attention()(x)
  (layer,) = result["cache"]["layers"]
  torch.testing.assert_close(layer["values"], expected["cache"].layers[0].values)
  result, expected = program.next(x, cache), Attention()(x, cache)
  torch.testing.assert_close(result["x"], expected["x"])
  torch.testing.assert_close(
    program.next(x, program.first(x)["cache"])["x"], x + Attention()(x)["cache"].layers[0].keys
  )


class Measured(torch.nn.Module):
  """Returns a size beside an object. A size has attributes, too, and stays as it is."""

  def forward(self, x):
    return Layers([Layer(x + 1, x * 2)]), x.shape[0] * 2


@pytest.mark.parametrize("model", [Attention(), Measured()])
def test_a_model_that_returns_such_objects_is_traced_once(model, monkeypatch):
  """A trace that ends with an object that torch does not know would be lost."""
  export, count = torch.export.export, []

  def counted(*args, **options):
    count.append(options)
    return export(*args, **options)

  monkeypatch.setattr(torch.export, "export", counted)
  dims = ({0: torch.export.Dim("n", min=2, max=9)},)
  with objects.taken_apart() as classes:
    program = tracing.traced(model, (torch.randn(3),), None, dims, classes=classes)
  assert len(count) == 1
  assert len(program.graph_signature.user_outputs) == 3
  assert not model._forward_hooks
