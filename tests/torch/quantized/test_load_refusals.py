"""Checkpoints that do not load: the reason is in words, and the model is as it was."""

import json

import checkpoint_writer
import pytest
import torch
from checkpoint_writer import GROUP, K, N, compressed, fields_of, gptq_config
from husk import quantized


class Model(torch.nn.Module):
  def __init__(self):
    super().__init__()
    torch.manual_seed(1)
    self.up = torch.nn.Linear(K, N, bias=False)
    self.norm = torch.nn.LayerNorm(8)


class Refused:
  """Calls that must be refused: a checkpoint of a format, with changes."""

  def __init__(self, folder):
    self.folder, self.count, self.model = folder, 0, Model()

  def __call__(self, reason, name="gptq", config=None, shards=0, after=None, **changes):
    fields, _, own_config = fields_of(name)
    tensors = {f"up.{field}": tensor for field, tensor in fields.items()}
    tensors |= {"norm.weight": torch.ones(8), "norm.bias": torch.ones(8)}
    for field, change in changes.items():
      full = field if "." in field else f"up.{field}"
      if change is None:
        del tensors[full]
      else:
        tensors[full] = change(tensors.get(full)).contiguous()
    self.count += 1
    path = self.folder / str(self.count)
    checkpoint_writer.folder(path, tensors, own_config if config is None else config, shards)
    if after:
      after(path)
    self.load(reason, path)

  def load(self, reason, path, **options):
    before = {name: (one, one.clone()) for name, one in self.state()}
    with pytest.raises(quantized.CheckpointError, match=reason):
      quantized.load(path, self.model, **options)
    assert type(self.model.up) is torch.nn.Linear
    for name, one in self.state():
      assert one is before[name][0] and torch.equal(one, before[name][1])

  def state(self):
    return self.model.state_dict(keep_vars=True).items()


@pytest.fixture
def refused(tmp_path):
  return Refused(tmp_path)


def with_value(value, at=(0, 0)):
  def change(tensor):
    tensor = tensor.clone()
    tensor[at] = value
    return tensor

  return change


def test_tensors_of_a_weight(refused):
  refused("up.qweight of .* has no up.scales", scales=None)
  refused("up.qweight of .* has no up.qzeros and no up.scales", scales=None, qzeros=None)
  refused("up.weight_packed of .* has no up.weight_scale", "packed", weight_scale=None)
  refused(
    "up.weight of .* has no up.weight_scale_inv", "fp8, a scale for a block", weight_scale_inv=None
  )
  refused("'up.scales' of .* has scales that are NaN or infinite", scales=with_value(torch.nan))
  refused("NaN or infinite", "fp8, a scale", weight_scale=lambda t: t / 0)
  refused("'up.weight_scale' .* NaN", "mxfp4", weight_scale=with_value(255))
  refused(
    "'up.weight' .* codes that are NaN",
    "float8, a scale",
    weight=lambda t: with_value(127)(t.view(torch.uint8)).view(torch.float8_e4m3fn),
  )
  refused("'up.qweight' of .* has the dtype I64, not I32", qweight=lambda t: t.long())
  refused("'up.scales' of .* has the dtype I32, not F32", scales=lambda t: t.int())
  refused(r"'up.qweight' of .* has the shape \[8, 64\], not \[16, 64\]", qweight=lambda t: t[:8])
  refused(r"'up.scales' .* has the shape \[64, 4\], not \[4, 64\]", scales=lambda t: t.T)
  refused("groups that are not 0 to 3", g_idx=with_value(4, 0))
  refused("has groups that have not 32 columns each", g_idx=with_value(3, 0))
  refused(
    "zero points that are not -8 to 7",
    "packed, in order of activations, zeros in bytes",
    weight_zero_point=with_value(8),
  )
  refused("is not the shape of the weight", "packed", weight_shape=lambda t: t * 2)
  refused("is 0, by which scales are divided", "nvfp4", weight_global_scale=lambda t: t * 0)


def test_configurations(refused):
  refused("128 columns, which groups of 48 do not divide", config=gptq_config(group=48))
  refused(r"GPTQ with 5 bits: only \(2, 3, 4, 8\) load", config=gptq_config(5))
  refused("checkpoint_format 'marlin' is not known", config=gptq_config(checkpoint_format="marlin"))
  refused("quant_method 'aqlm' is not known, only 'gptq'", config={"quant_method": "aqlm"})
  refused("has no number bits", config={"quant_method": "gptq"})
  refused(
    "AWQ's version 'gemv' is not known",
    "awq",
    config={**checkpoint_writer.AWQ_CONFIG, "version": "gemv"},
  )
  refused(
    "the format 'marlin-24' of group_0 does not load, only 'pack-quantized'",
    "packed",
    config=compressed("marlin-24", num_bits=4),
  )
  refused("the strategy 'row' of group_0", config=compressed("int-quantized", strategy="row"))
  refused(
    "compressed-tensors with transform_config does not load",
    "packed",
    config={**compressed("pack-quantized"), "transform_config": {"config_groups": {"u": {}}}},
  )
  refused("weight_block_size is 128", config={"quant_method": "fp8", "weight_block_size": 128})
  refused(
    "has blocks of 36 columns, which do not divide the 128",
    "fp8, a scale for a block",
    config={"quant_method": "fp8", "weight_block_size": [32, 36]},
    weight_scale_inv=lambda t: torch.ones(2, 4),
  )
  refused("up.qweight of .* are codes, but no config.json", config={})
  skipped = {"-:up": {}}
  refused(
    "'up.qweight' .* are codes, but the configuration has no scheme",
    config=gptq_config(dynamic=skipped),
  )
  config = compressed("int-quantized", num_bits=8, strategy="channel")
  config["config_groups"]["group_0"]["targets"] = ["re:.*down"]
  refused("'up.weight' .* are codes, but the configuration has no scheme", "int8", config)


def test_activations_that_are_not_known(refused):
  config = gptq_config() | {}
  fields, _, _ = fields_of("int8")
  fours = {**checkpoint_writer.TOKENS, "num_bits": 4}
  config = compressed("int-quantized", num_bits=8, strategy="channel", activations=fours)
  path = checkpoint_writer.folder(
    refused.folder / "a",
    {f"up.{name}": one for name, one in fields.items()}
    | {"norm.weight": torch.ones(8), "norm.bias": torch.ones(8)},
    config,
  )
  refused.load("the input of 'up.weight' would be rounded", path, activations="quantized")
  with pytest.raises(ValueError, match="activations='int8': give one of 'exact', 'quantized'"):
    quantized.load(path, Model(), activations="int8")


def test_names(refused):
  refused(
    "no module of the model takes down.weight; no tensor fills norm.bias of the model. names= maps",
    **{"down.weight": lambda _: torch.ones(2), "norm.bias": None},
  )
  refused(r"'norm.bias' .* has the shape \[4\], but .* has \[8\]", **{"norm.bias": lambda t: t[:4]})
  refused("'norm.bias' .* has the dtype U8", **{"norm.bias": lambda t: t.to(torch.uint8)})
  refused("'norm.bias' .* has the dtype torch.int64", **{"norm.bias": lambda t: t.long()})
  refused.load(
    "several tensors are for 'norm.bias': norm.bias, norm.weight",
    refused.folder / str(refused.count),
    names={"norm.weight": "norm.bias"},
  )
  with torch.device("meta"):
    model = Model()
    model.register_buffer("mask", torch.ones(4), persistent=False)
  refused("no tensor fills", **{"norm.bias": None})
  fields, _, config = fields_of("gptq")
  tensors = {f"up.{field}": tensor for field, tensor in fields.items()}
  tensors |= {"norm.weight": torch.ones(8), "norm.bias": torch.ones(8)}
  path = checkpoint_writer.folder(refused.folder / "meta", tensors, config)
  with pytest.raises(quantized.CheckpointError, match="mask of the model are on the device meta"):
    quantized.load(path, model)


def test_files(refused):
  def without(file):
    return lambda path: (path / file).unlink()

  second = "model-00002-of-00003.safetensors"
  refused(
    f"lacks {second}, which model.safetensors.index.json names", shards=3, after=without(second)
  )
  refused("has neither .*index.json nor a file", after=without("model.safetensors"))

  def cut(path):
    file = path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-8])

  refused("model.safetensors does not open as safetensors", after=cut)

  def renamed(path):
    index = path / "model.safetensors.index.json"
    places = json.loads(index.read_text())
    places["weight_map"]["up.more"] = second
    index.write_text(json.dumps(places))

  refused(f"{second} lacks up.more, which", shards=3, after=renamed)

  def outside(path):
    text = json.dumps({"weight_map": {"up.qweight": "../x.safetensors"}})
    (path / "model.safetensors.index.json").write_text(text)

  refused("which is no file of the folder", after=outside)
  refused("config.json is no JSON", after=lambda path: (path / "config.json").write_text("{"))
  refused("holds no object", after=lambda path: (path / "config.json").write_text("[]"))
  refused.load("is not there", refused.folder / "nothing")


def test_orders_of_columns_are_for_linear_layers(tmp_path):
  class Scaled(torch.nn.Linear):
    def forward(self, x):
      return super().forward(x) * 2

  fields, _, config = fields_of("gptq, in order of activations")
  path = checkpoint_writer.folder(tmp_path / "model", fields, config)
  with pytest.raises(
    quantized.CheckpointError, match="order of groups, which only torch.nn.Linear"
  ):
    quantized.load(path, Scaled(K, N, bias=False))


def test_stacks(tmp_path):
  class Stack(torch.nn.Module):
    def __init__(self):
      super().__init__()
      self.up = torch.nn.Parameter(torch.zeros(3, 64, 32))

  tensors = {"up_blocks": torch.zeros(3, 32, 3, 16, dtype=torch.uint8)}
  tensors["up_scales"] = torch.zeros(3, 32, 3, dtype=torch.uint8)
  config = {"quant_method": "mxfp4"}
  path = checkpoint_writer.folder(tmp_path / "0", tensors, config)
  with pytest.raises(
    quantized.CheckpointError, match=r"'up_blocks' .* \[3, 32, 3, 16\], not \[3, "
  ):
    quantized.load(path, Stack())
  del tensors["up_scales"]
  path = checkpoint_writer.folder(tmp_path / "1", tensors, config)
  with pytest.raises(quantized.CheckpointError, match="up_blocks of .* has no up_scales"):
    quantized.load(path, Stack())
  assert GROUP == 32
