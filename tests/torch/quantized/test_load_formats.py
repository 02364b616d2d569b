"""Checkpoints of safetensors, a layout of each package: what their weights are in float64, in eager
mode and in an artifact."""

import gc
import logging
import pathlib
import shutil

import checkpoint_writer
import export_and_compare
import hir_interpreter
import husk
import numpy as np
import pytest
import torch
from checkpoint_writer import FORMATS, K, N, fields_of
from husk import quantized
from husk.quantized import schemes
from husk.quantized.checkpoints import scratch
from husk.quantized.layers import Rounding


def linear(bias=True):
  torch.manual_seed(1)
  return torch.nn.Linear(K, N, bias=bias)


def loaded(folder, name, bias=None, **options):
  """A layer of a format, and its matrix."""
  fields, matrix, config = fields_of(name)
  tensors = {f"up.{field}": tensor for field, tensor in fields.items()}
  if bias is not None:
    tensors["up.bias"] = bias
  model = torch.nn.Module()
  model.up = linear(bias is not None)
  quantized.load(checkpoint_writer.folder(folder, tensors, config), model, **options)
  return model.up, matrix


@pytest.mark.parametrize("name", FORMATS)
def test_each_format(tmp_path, name):
  bias = torch.linspace(-1, 1, N)
  layer, matrix = loaded(tmp_path, name, bias)
  assert isinstance(layer, quantized.QuantizedLinear)
  got = layer.weight().double().numpy()
  if layer.order is not None:
    got = got[:, layer.order.argsort()]
  # Codes, zeros and scales are exact, so that there is one rounding, to f32.
  np.testing.assert_array_equal(got, matrix.astype(np.float32))
  x = torch.randn(3, 2, K, generator=torch.Generator().manual_seed(2))
  with torch.no_grad():
    right = x.double() @ torch.from_numpy(matrix).T + bias.double()
    torch.testing.assert_close(layer(x).double(), right, rtol=1e-5, atol=1e-4)
  assert [name for name, _ in layer.named_parameters()] == ["bias"]
  assert {"bias", "weight.codes", "weight.scales"} <= set(layer.state_dict())


def test_all_in_an_artifact(tmp_path):
  class Model(torch.nn.Module):
    def __init__(self):
      super().__init__()
      self.layers = torch.nn.ModuleList(
        loaded(tmp_path / str(number), name)[0] for number, name in enumerate(FORMATS)
      )

    def forward(self, x):
      return tuple(layer(x) for layer in self.layers)

  model, x = Model(), torch.randn(3, K, generator=torch.Generator().manual_seed(2))
  text = export_and_compare.run(tmp_path, model, (x,))
  assert text.count("husk::linear_quantized") == len(FORMATS)
  # A file has the codes alone: none of the matrices in floats.
  assert f"f32[{N}, {K}]" not in text
  program = hir_interpreter.Program(tmp_path / "model.hir")
  export_and_compare.run_artifact(tmp_path, model, program, (x,))


def test_a_target_without_a_kernel(tmp_path):
  layer, _ = loaded(tmp_path / "checkpoint", "gptq, in order of activations")
  text = husk.write(layer, (torch.randn(2, K),), tmp_path, targets=("cuda:h100",)).read_text()
  assert "husk::linear_quantized" not in text and "constant weight.codes u8" in text


def test_types_stay_when_a_model_is_cast(tmp_path):
  layer, matrix = loaded(tmp_path, "fp8, a scale for a block", torch.zeros(N))
  layer.to(torch.bfloat16)
  weight = layer.weight
  assert (weight.dtype, layer.bias.dtype) == (torch.bfloat16, torch.bfloat16)
  assert (weight.codes.dtype, weight.scales.dtype) == (torch.float8_e4m3fn, torch.float16)
  assert layer(torch.ones(1, K, dtype=torch.bfloat16)).dtype == torch.bfloat16
  np.testing.assert_allclose(weight().float().numpy(), matrix, rtol=2**-8)


def test_a_state_dict_goes_into_a_layer_of_the_same_kind(tmp_path):
  layer, _ = loaded(tmp_path / "a", "awq")
  other, _ = loaded(tmp_path / "b", "awq")
  for tensor in other.state_dict().values():
    tensor.zero_()
  other.load_state_dict(layer.state_dict())
  assert torch.equal(other.weight(), layer.weight())


def test_large_weights_are_computed_in_blocks(tmp_path, monkeypatch):
  from husk.quantized import operator

  layer, _ = loaded(tmp_path, "awq", torch.linspace(-1, 1, N))
  x = torch.randn(2, K)
  with torch.no_grad():
    whole, numbers = layer(x), layer.weight()
    monkeypatch.setattr(operator, "_BLOCK", 7 * K)
    torch.testing.assert_close(layer(x), whole)
    assert torch.equal(layer.weight(), numbers)
    weight, scales, zeros, values = layer.weight.parts()
    parts = [one.unflatten(0, (2, -1)) for one in (weight, scales, zeros)]
    stack = operator.dequantized()(*parts, values, 4, layer.weight.group, torch.bfloat16)
    assert torch.equal(stack, numbers.bfloat16().unflatten(0, (2, -1)))


class Block(torch.nn.Module):
  """Modules of which some have codes, one is shared, and one has a weight of another."""

  def __init__(self, head=True):
    super().__init__()
    self.up = linear()
    self.down = torch.nn.Linear(N, 8)
    self.norm = torch.nn.BatchNorm1d(8)
    self.again = self.up
    self.head = torch.nn.Linear(N, 8, bias=False)
    if head:
      self.head.weight = self.down.weight

  def forward(self, x):
    y = torch.relu(self.up(x))
    return self.norm(self.down(y)) + self.head(y) + self.again(x)[:, :8]


def block_tensors(name="gptq"):
  fields, matrix, config = fields_of(name)
  tensors = {f"up.{field}": tensor for field, tensor in fields.items()}
  for field, tensor in Block().state_dict().items():
    if field.split(".")[0] in ("down", "norm"):
      tensors[field] = tensor + 1
  tensors["up.bias"] = torch.linspace(-1, 1, N)
  return tensors, matrix, config


@pytest.mark.parametrize("shards", (0, 3))
def test_a_module_with_shards(tmp_path, caplog, shards):
  tensors, _, config = block_tensors()
  tensors |= {"up.k_scale": torch.ones(1), "up.rotary_emb.inv_freq": torch.ones(1)}
  path = checkpoint_writer.folder(tmp_path, tensors, config, shards)
  model = Block()
  with caplog.at_level(logging.INFO, "husk"):
    assert quantized.load(path, model) is model
  assert "1 weights of 4 bits in groups of 32" in caplog.text
  assert isinstance(model.up, quantized.QuantizedLinear) and model.again is model.up
  assert model.head.weight is model.down.weight
  assert torch.equal(model.down.weight, tensors["down.weight"])
  assert torch.equal(model.norm.running_var, tensors["norm.running_var"])
  assert model.norm.num_batches_tracked == 1


def test_a_module_without_memory(tmp_path):
  tensors, _, config = block_tensors()
  path = checkpoint_writer.folder(tmp_path, tensors, config)
  with quantized.without_weights():
    model = Block()
  assert model.up.weight.is_meta and not model.norm.running_var.is_meta
  quantized.load(path, model)
  assert not any(one.is_meta for one in model.state_dict().values())
  assert model.head.weight is model.down.weight


def test_names_and_a_single_file(tmp_path):
  tensors, _, config = block_tensors("int8")
  renamed = {f"model.{name}": tensor for name, tensor in tensors.items()} | {
    "model.up_proj.weight": torch.ones(1)
  }
  path = checkpoint_writer.folder(tmp_path, renamed, None)

  def names(name):
    return None if "up_proj" in name else name.removeprefix("model.")

  model = quantized.load(path / "model.safetensors", Block(), names=names, quantization=config)
  assert isinstance(model.up, quantized.QuantizedLinear)


def test_a_bias_of_zeros_for_a_layer_without_one(tmp_path):
  fields, _, config = fields_of("gptq")
  path = checkpoint_writer.folder(tmp_path / "0", {**fields, "bias": torch.zeros(N)}, config)
  assert quantized.load(path, linear(bias=False)).bias is None
  path = checkpoint_writer.folder(tmp_path / "1", {**fields, "bias": torch.ones(N)}, config)
  with pytest.raises(quantized.CheckpointError, match="no module of the model takes bias"):
    quantized.load(path, linear(bias=False))


def test_activations(tmp_path):
  """Inputs are rounded if that is asked for."""
  x = torch.randn(3, K, generator=torch.Generator().manual_seed(2))
  exact, matrix = loaded(tmp_path / "0", "int8")
  rounded, _ = loaded(tmp_path / "1", "int8", activations="quantized")
  assert exact.rounding is None and rounded.rounding == Rounding(torch.int8)
  scale = x.abs().amax(1, keepdim=True) / 127
  near = (x / scale).round() * scale
  with torch.no_grad():
    torch.testing.assert_close(
      rounded(x).double(), near.double() @ torch.from_numpy(matrix).T, rtol=1e-5, atol=1e-4
    )
  blocks, _ = loaded(tmp_path / "2", "fp8, a scale for a block", activations="quantized")
  assert blocks.rounding == Rounding(torch.float8_e4m3fn, group=48)
  fields, _, _ = fields_of("fp8, a scale")
  config = {"quant_method": "modelopt", "quant_algo": "FP8"}
  fields["input_scale"] = torch.tensor(0.5)
  path = checkpoint_writer.folder(tmp_path / "3", fields, config)
  layer = quantized.load(path, linear(bias=False), activations="quantized")
  assert layer.rounding == Rounding(torch.float8_e4m3fn, 0.5)
  fixed = layer.rounding(x)
  assert torch.equal(fixed, (x / 0.5).to(torch.float8_e4m3fn).float() * 0.5)


class Experts(torch.nn.Module):
  """A stack of matrices as parameters, which are `sizes` x `inner`, or transposed."""

  def __init__(self, count=3, size=64, inner=32, transposed=True):
    super().__init__()
    shape = (count, size, inner) if transposed else (count, inner, size)
    self.up = torch.nn.Parameter(torch.zeros(shape))
    self.up_bias = torch.nn.Parameter(torch.zeros(count, inner))
    self.square = torch.nn.Parameter(torch.zeros(count, inner, inner))
    self.transposed = transposed

  def forward(self, x, which):
    up, square = self.up[which], self.square[which]
    if not self.transposed:
      up, square = up.mT, square.mT
    y = torch.bmm(x[:, None], up)[:, 0] + self.up_bias[which]
    return torch.bmm(y[:, None], square)[:, 0]


def experts(transposed):
  random = np.random.default_rng(3)
  tensors, matrices = {"up_bias": torch.randn(3, 32)}, {}
  for name, shape in (("up", (3, 32, 64)), ("square", (3, 32, 32))):
    codes = random.integers(0, 16, shape)
    exponents = random.integers(120, 126, (*shape[:-1], shape[-1] // 32))
    tensors[f"{name}_blocks"] = checkpoint_writer.pairs(codes).reshape(*exponents.shape, 16)
    tensors[f"{name}_scales"] = torch.from_numpy(exponents.astype(np.uint8))
    numbers = checkpoint_writer.E2M1[codes] * (2.0 ** (exponents - 127)).repeat(32, -1)
    matrices[name] = numbers.swapaxes(1, 2) if transposed else numbers
  return tensors, matrices


@pytest.mark.parametrize("transposed", (True, False))
def test_stacks_of_experts(tmp_path, transposed):
  tensors, matrices = experts(transposed)
  path = checkpoint_writer.folder(tmp_path / "model", tensors, {"quant_method": "mxfp4"})
  model = quantized.load(path, Experts(transposed=transposed))
  for name, matrix in matrices.items():
    np.testing.assert_array_equal(getattr(model, name).numpy(), matrix.astype(np.float32))
  assert "up_quantized.codes" in model.state_dict() and [*dict(model.named_parameters())] == [
    "up_bias"
  ]
  if transposed:
    x, which = torch.randn(4, 64), torch.tensor([0, 2, 2, 1])
    text = export_and_compare.run(tmp_path, model, (x, which))
    assert "constant up_quantized.codes u8" in text and "constant up_quantized.scales " in text
    assert text.count("husk::grouped_linear_quantized") == 2 and "f32 [3, 64, 32]" not in text


def test_a_layer_of_a_class_of_the_users_own(tmp_path):
  """It computes what its own forward does, and an export finds its codes."""

  class Scaled(torch.nn.Linear):
    def forward(self, x):
      return super().forward(x) * 2

  fields, matrix, config = fields_of("awq")
  path = checkpoint_writer.folder(tmp_path / "model", fields, config)
  model = quantized.load(path, Scaled(K, N, bias=False))
  assert type(model).__name__ == "Scaled"
  x = torch.randn(2, K)
  right = 2 * x.double() @ torch.from_numpy(matrix).T
  torch.testing.assert_close(model(x).double(), right, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("name", ("fp8, a scale for a block", "awq", "packed"))
def test_experts_that_are_apart(tmp_path, name):
  """The checkpoint has layers of each expert, the model stacks of them."""

  class Mixture(torch.nn.Module):
    def __init__(self):
      super().__init__()
      self.experts = torch.nn.Module()
      self.experts.gate_up_proj = torch.nn.Parameter(torch.zeros(2, 2 * N, K))
      self.experts.down_proj = torch.nn.Parameter(torch.zeros(2, N, K))

  tensors, matrices, config = {}, {}, None
  for number in range(2):
    for place, part in enumerate(("gate_proj", "up_proj", "down_proj")):
      fields, matrix, config = fields_of(name, seed=10 * number + place)
      matrices[number, part] = matrix
      for field, tensor in fields.items():
        tensors[f"experts.{number}.{part}.{field}"] = tensor
  path = checkpoint_writer.folder(tmp_path / "0", tensors, config)
  experts = quantized.load(path, Mixture()).experts
  for number in range(2):
    both = np.concatenate([matrices[number, part] for part in ("gate_proj", "up_proj")])
    np.testing.assert_array_equal(experts.gate_up_proj[number].numpy(), both.astype(np.float32))
    np.testing.assert_array_equal(
      experts.down_proj[number].numpy(), matrices[number, "down_proj"].astype(np.float32)
    )
  lost = {field: one for field, one in tensors.items() if ".1.up_proj." not in field}
  path = checkpoint_writer.folder(tmp_path / "1", lost, config)
  with pytest.raises(quantized.CheckpointError, match="is experts.1.up_proj.weight, a part of"):
    quantized.load(path, Mixture())


@pytest.mark.parametrize("scheme", ["int8", "int4", "fp8"])
def test_floats_become_codes_one_by_one(scheme, tmp_path):
  """`quantize` makes the codes that an export makes of the whole model, some rows at a time."""

  class Model(torch.nn.Module):
    def __init__(self):
      super().__init__()
      self.table, self.up = torch.nn.Embedding(70, 64), torch.nn.Linear(64, 48)
      self.head = torch.nn.Linear(64, 70, bias=False)
      self.head.weight = self.table.weight
      self.small = torch.nn.Linear(8, 4)

  torch.manual_seed(0)
  tensors = {name: one.detach().clone() for name, one in Model().state_dict().items()}
  del tensors["head.weight"]
  path = checkpoint_writer.folder(tmp_path / "model", tensors, {})
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(schemes, "_AT_ONCE", 700)  # ten rows
    model = quantized.load(path, Model(), quantize={"up": "none", "*": scheme})
  assert type(model.table).__name__ == "QuantizedEmbedding"
  assert type(model.head).__name__ == "QuantizedLinear"
  assert type(model.up) is type(model.small) is torch.nn.Linear
  expected = schemes.SCHEMES[scheme](tensors["table.weight"])
  found = model.table.weight
  assert torch.equal(found.codes.view(torch.uint8), expected.codes.view(torch.uint8))
  assert torch.equal(found.scales.float(), expected.scales.float())
  assert found.codes.data_ptr() == model.head.weight.codes.data_ptr()
  tensors["table.weight"][3, 4] = torch.nan
  path = checkpoint_writer.folder(tmp_path / "nan", tensors, {})
  with pytest.raises(quantized.CheckpointError, match="'table.weight' has numbers that are NaN"):
    quantized.load(path, Model(), quantize=scheme)
  with pytest.raises(ValueError, match="quantize='int3': give one of 'int8'"):
    quantized.load(path, Model(), quantize="int3")


class Mixture(torch.nn.Module):
  """A layer of experts as transformers' are: `is_transposed` says which form its stacks have."""

  def __init__(self, transposed, experts=3, n=48, k=64):
    super().__init__()
    self.num_experts, self.is_transposed = experts, transposed
    self.gate_up_proj = torch.nn.Parameter(torch.zeros(experts, n, k))
    self.down_proj = torch.nn.Parameter(torch.zeros(experts, k, k))
    self.bias = torch.nn.Parameter(torch.zeros(experts, k))

  def forward(self, x, which):
    weight = self.down_proj[which]
    if not self.is_transposed:
      weight = weight.transpose(-2, -1)
    return torch.bmm(x[:, None], weight)[:, 0]


@pytest.mark.parametrize("form", ("apart", "stacks", "transposed"))
@pytest.mark.parametrize("scheme", ("int8", "int4"))
def test_experts_become_codes_one_by_one(scheme, form, tmp_path):
  """`quantize` makes codes of stacks, whether the checkpoint has experts or whole stacks."""
  torch.manual_seed(0)
  whole = {name: torch.randn_like(one) for name, one in Mixture(False).state_dict().items()}
  tensors = dict(whole)
  if form == "apart":
    for number, both in enumerate(tensors.pop("gate_up_proj")):
      names = [f"{number}.{part}.weight" for part in ("gate_proj", "up_proj")]
      tensors |= dict(zip(names, both.chunk(2), strict=True))
    for number, one in enumerate(tensors.pop("down_proj")):
      tensors[f"{number}.down_proj.weight"] = one
  tensors = {f"experts.{name}": one.clone() for name, one in tensors.items()}
  path = checkpoint_writer.folder(tmp_path / "model", tensors, {})
  model = torch.nn.Module()
  model.experts = Mixture(form == "transposed", n=64 if form == "transposed" else 48)
  if form == "transposed":  # a square stack, whose shape does not tell
    tensors["experts.gate_up_proj"] = torch.randn(3, 64, 64)
    path = checkpoint_writer.folder(tmp_path / "square", tensors, {})
  experts = quantized.load(path, model, quantize=scheme).experts
  assert [*dict(experts.named_parameters())] == ["bias"]
  found = experts.down_proj_quantized
  for number, matrix in enumerate(whole["down_proj"]):
    expected = schemes.SCHEMES[scheme](matrix.T if form == "transposed" else matrix)
    assert torch.equal(found.codes[number], expected.codes)
    assert torch.equal(found.scales[number].float(), expected.scales.float())
  args = torch.randn(4, 64), torch.tensor([0, 2, 2, 1])
  text = export_and_compare.run(tmp_path, experts, args)
  assert text.count("husk::grouped_linear_quantized") == 1 and "f32 [3, 64, 64]" not in text


def test_stacks_that_stay_floats(tmp_path):
  """Those for which no pattern has a scheme, and those of layers that are not as transformers'."""
  whole = {name: torch.randn_like(one) for name, one in Mixture(False).state_dict().items()}
  path = checkpoint_writer.folder(tmp_path / "model", whole, {})
  model = quantized.load(path, Mixture(False), quantize={"down*": "none", "*": "int8"})
  assert torch.equal(model.down_proj, whole["down_proj"])
  assert model.gate_up_proj_quantized.bits == 8
  other = Mixture(False)
  del other.is_transposed
  model = quantized.load(path, other, quantize="int8")
  assert torch.equal(model.down_proj, whole["down_proj"])
  whole["down_proj"][1, 2, 3] = torch.inf
  path = checkpoint_writer.folder(tmp_path / "inf", whole, {})
  with pytest.raises(quantized.CheckpointError, match="'down_proj' has numbers that are NaN or"):
    quantized.load(path, Mixture(False), quantize="int8")


def test_codes_of_a_large_model_lie_in_files(tmp_path, monkeypatch):
  fields = {"weight": torch.randn(96, 64), "bias": torch.randn(96)}
  path = checkpoint_writer.folder(tmp_path / "model", fields, {})

  def load(**options):
    return quantized.load(path, torch.nn.Linear(64, 96), quantize="int4", **options)

  def mapped():
    """How many files without a name of the folder are mapped."""
    gc.collect()
    lines = pathlib.Path("/proc/self/maps").read_text().splitlines()
    return sum(str(tmp_path) in line and line.endswith("(deleted)") for line in lines)

  plain, small = load().weight, load(scratch=tmp_path).weight
  assert mapped() == 0
  monkeypatch.setattr(scratch, "_IN_MEMORY", 0)
  monkeypatch.setattr(scratch, "_SMALL", 1024)
  large = load(scratch=tmp_path).weight
  assert mapped() == 1
  full = shutil.disk_usage(tmp_path)._replace(free=5000)
  monkeypatch.setattr(scratch.shutil, "disk_usage", lambda _folder: full)
  kept = load(scratch=tmp_path).weight  # the disk has no room for an artifact beside it
  missing = load(scratch=tmp_path / "missing").weight
  assert mapped() == 1
  for codes, scales in ((one.codes, one.scales) for one in (small, large, kept, missing)):
    assert torch.equal(codes, plain.codes) and torch.equal(scales, plain.scales)
  del large, codes, scales
  assert mapped() == 0


def test_an_export_of_codes_in_files(tmp_path, monkeypatch):
  monkeypatch.setattr(scratch, "_IN_MEMORY", 0)
  monkeypatch.setattr(scratch, "_SMALL", 1024)
  path = checkpoint_writer.folder(tmp_path / "model", {"weight": torch.randn(96, 64)}, {})
  model = torch.nn.Linear(64, 96, bias=False)
  model = quantized.load(path, model, quantize="int4", scratch=tmp_path)
  args = (torch.randn(2, 64),)
  model, text, program = export_and_compare.exported(tmp_path, model, args)
  assert "husk::linear_quantized" in text
  export_and_compare.run_artifact(tmp_path, model, program, args)
