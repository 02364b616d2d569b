"""Models whose weights are made from codes: exported as one operator, whatever the model computes
them with, and equal to eager mode."""

import built_tools
import export_and_compare
import husk
import pytest
import torch
from husk.hir import huskc
from torch.nn import functional as F

K, N = 64, 24


def random(*shape, seed=0):
  return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def bytes_(*shape, seed=1):
  generator = torch.Generator().manual_seed(seed)
  return torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8)


def scales(groups):
  return random(N, groups, seed=2).abs() * 0.1 + 0.01


def low_half_first(m):
  both = torch.stack([m.packed & 15, m.packed >> 4], -1).reshape(N, -1, 32)
  return ((both - 8.0) * m.scales[:, :, None]).reshape(N, K)


def halves_of_a_row(m):
  """The first half of a row in the low halves, the second one in the high halves."""
  both = torch.cat([m.packed & 15, m.packed >> 4], 1).reshape(N, -1, 32)
  return ((both.float() - m.zeros[:, :, None]) * m.scales[:, :, None]).reshape(N, K)


def words(m):
  """Eight codes in a word along the rows, as GPTQ packs them."""
  shifts = torch.arange(0, 32, 4, dtype=torch.int32)
  codes = (m.words[:, None, :] >> shifts[None, :, None]) & 15
  codes = codes.reshape(K, N)
  return ((codes - 8) * m.scales.T.repeat_interleave(32, 0)).T


def by_table(m):
  both = torch.stack([m.packed & 15, m.packed >> 4], -1).reshape(N, K)
  return (m.table[both.long()].reshape(N, -1, 32) * m.scales[:, :, None]).reshape(N, K)


class Layer(torch.nn.Module):
  def __init__(self, weight, seed=3):
    super().__init__()
    self.weight_of = weight
    words = torch.randint(
      -(2**31), 2**31, (K // 8, N), generator=torch.Generator().manual_seed(seed)
    )
    for name, value in {
      "packed": bytes_(N, K // 2),
      "words": words.to(torch.int32),
      "scales": scales(2),
      "zeros": bytes_(N, 2) % 16,
      "table": torch.sort(random(16)).values,
    }.items():
      self.register_buffer(name, value)
    self.bias = torch.nn.Parameter(random(N, seed=4))

  def forward(self, x):
    return F.relu(F.linear(x, self.weight_of(self), self.bias)) + x[:, :N]


@pytest.mark.parametrize("weight", (low_half_first, halves_of_a_row, words, by_table))
def test_codes_of_4_bits(tmp_path, weight):
  text = export_and_compare.run(tmp_path, Layer(weight), (random(3, K, seed=5),))
  (call,) = [line for line in text.splitlines() if "extern" in line]
  assert "husk::linear_quantized" in call and ", 4, 32, write" in call
  assert '"relu"' in call and "read tensor bias" in call
  # The tensors that the weight was made from are not in the file.
  assert "constant table " not in text and "constant words i32" not in text


def test_codes_of_8_bits(tmp_path):
  class Model(torch.nn.Module):
    def __init__(self):
      super().__init__()
      self.register_buffer("codes", bytes_(N, K).view(torch.int8))
      self.register_buffer("s", scales(1)[:, 0])
      self.register_buffer("f8", random(N, N).to(torch.float8_e4m3fn))
      self.register_buffer("s8", scales(1))

    def forward(self, x):
      y = torch.mm(x, self.codes.t().to(x.dtype)) * self.s  # torchao's way
      return y @ (self.f8.to(x.dtype) * self.s8).t()

  text = export_and_compare.run(tmp_path, Model(), (random(5, K, seed=5),))
  assert text.count("husk::linear_quantized") == 2
  assert "constant codes i8" in text and "constant f8" in text


def test_sizes_that_vary_and_more_dimensions(tmp_path):
  class Plain(Layer):
    def forward(self, x):
      return F.linear(x, self.weight_of(self))

  text = export_and_compare.run(
    tmp_path,
    Plain(low_half_first),
    (random(3, 2, K),),
    shapes=({0: torch.export.Dim("batch", min=1, max=40)},),
    others=[(random(1, 2, K),), (random(20, 2, K),)],
  )
  assert "husk::linear_quantized" in text


def test_what_is_no_weight_of_codes(tmp_path):
  class Model(torch.nn.Module):
    def __init__(self):
      super().__init__()
      self.register_buffer("codes", bytes_(N, K))
      self.register_buffer("state", bytes_(N, K))

    def forward(self, x):
      self.state.add_(1)
      y = F.linear(x, self.codes.float() ** 2)  # no scale makes these ints of 8 bits
      return y + F.linear(x, self.state.float())  # written

  text = export_and_compare.run(tmp_path, Model(), (random(2, K),), artifact=False)
  assert "husk::linear_quantized" not in text


def test_functions_share_a_weight(tmp_path):
  layer = Layer(low_half_first)
  functions = {
    "one": husk.Function(layer, (random(1, K),)),
    "many": husk.Function(layer, (random(20, K),)),
  }
  text = husk.write(functions, tmp_path).read_text()
  assert text.count("constant packed u8") == 1 and text.count("husk::linear_quantized") >= 2


def test_a_gpu_computes_the_weight(tmp_path):
  text = husk.write(
    Layer(low_half_first), (random(3, K),), tmp_path, targets=("cuda:h100",)
  ).read_text()
  assert "husk::linear_quantized" not in text and "constant packed u8" in text


class Doubled(torch.Tensor):
  """A tensor that is made of two others, as torchao's are."""

  @staticmethod
  def __new__(cls, codes, scale):
    return torch.Tensor._make_wrapper_subclass(cls, codes.shape, dtype=scale.dtype)

  def __init__(self, codes, scale):
    self.codes, self.scale = codes, scale

  def __tensor_flatten__(self):
    return ["codes", "scale"], None

  @classmethod
  def __tensor_unflatten__(cls, parts, context, size, stride):
    return cls(parts["codes"], parts["scale"])

  @classmethod
  def __torch_function__(cls, function, types, args=(), kwargs=None):
    if function is F.linear:
      x, weight, bias = args
      return F.linear(x, weight.codes.to(x.dtype) * weight.scale, bias)
    return super().__torch_function__(function, types, args, kwargs or {})

  @classmethod
  def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
    if function is torch.ops.aten.detach.default:
      return args[0]
    raise NotImplementedError(function)


def test_parameters_that_are_made_of_others(tmp_path):
  model = torch.nn.Sequential(torch.nn.Linear(K, N))
  weight = Doubled(bytes_(N, K).view(torch.int8), scales(1))
  model[0].weight = torch.nn.Parameter(weight, requires_grad=False)
  x = random(2, K)
  with torch.no_grad():
    right = model(x)
  text = husk.write(model, (x,), tmp_path).read_text()
  assert "husk::linear_quantized" in text and "constant _0.weight i8" in text
  assert type(model[0].weight) is Doubled and type(model[0]) is torch.nn.Linear
  assert torch.equal(model(x), right)


class Written(torch.nn.Module):
  """A layer whose weight is written to in part while it is computed."""

  def __init__(self):
    super().__init__()
    self.register_buffer("codes", bytes_(N, K).view(torch.int8))
    self.register_buffer("s", scales(1))

  def forward(self, x):
    weight = self.codes.float() * self.s
    weight[self.codes > 100] = 0.0
    weight[:, 1::2].neg_()
    return F.linear(x, weight)


def test_a_weight_that_is_written_to_while_it_is_computed(tmp_path):
  model = Written()
  x = random(2, K)
  text = husk.write(model, (x,), tmp_path, targets=("host:avx2",)).read_text()
  assert "husk::linear_quantized" in text and "index_put" not in text
  torch.testing.assert_close(
    husk.load(husk.export(model, (x,), tmp_path / "model.husk", targets=("host:avx2",)))(x),
    model(x),
  )


class Scaled(torch.Tensor):
  """A matrix with scales that are powers of two, one for 32 elements of a row, as those of MX
  formats are. Only PyTorch's dispatcher asks it."""

  __torch_function__ = torch._C._disabled_torch_function_impl

  @staticmethod
  def __new__(cls, codes, exponents):
    return torch.Tensor._make_wrapper_subclass(cls, codes.shape, dtype=torch.float32)

  def __init__(self, codes, exponents):
    self.codes, self.exponents = codes, exponents

  def __tensor_flatten__(self):
    return ["codes", "exponents"], None

  @classmethod
  def __tensor_unflatten__(cls, parts, context, size, stride):
    return cls(parts["codes"], parts["exponents"])

  @classmethod
  def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
    if function is torch.ops.aten.detach.default:
      return args[0]
    if function is torch.ops.aten.t.default:
      return Scaled(args[0].codes.t(), args[0].exponents.t())
    # Eager mode calls the last two.
    aten = torch.ops.aten
    if function is aten.linear.default:
      return cls.product(args[0], args[1].t(), *args[2:])
    if function is aten.mm.default:
      return cls.product(*args)
    if function is aten.addmm.default:
      return cls.product(*args[1:], args[0])
    raise NotImplementedError(function)

  @staticmethod
  def product(x, weight, bias=None):
    # Of `x` only the powers of two are left, which have such a dtype on the way.
    x = x.abs().log2().floor().add(127).clamp(0, 254).to(torch.uint8)
    x = x.view(torch.float8_e8m0fnu).reshape(-1, x.shape[-1]).view(torch.uint8)
    scales = weight.exponents.t().to(torch.float32).repeat_interleave(32, 1)
    product = torch.exp2(x.float() - 127) @ (weight.codes.t().float() * scales).t()
    return product if bias is None else product + bias


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("target", ["host:avx2", "cuda:h100"])
def test_weights_with_exponents_as_scales(tmp_path, bias, target):
  model = torch.nn.Sequential(torch.nn.Linear(K, N, bias=bias))
  exponents = bytes_(N, K // 32) // 2 + 64
  exponents[0, 0], exponents[1, 0] = 0, 255  # 2^-127 and NaN
  codes = bytes_(N, K).view(torch.int8)
  weight = Scaled(codes, exponents.view(torch.float8_e8m0fnu))
  model[0].weight = torch.nn.Parameter(weight, requires_grad=False)
  x = random(2, K)
  with torch.no_grad():
    right = model(x)
  assert right.isnan().any(0).sum() == 1
  path = husk.export(model, (x,), tmp_path / "model.husk", targets=(target,), tune="none")
  if target.startswith("host"):
    torch.testing.assert_close(husk.load(path)(x), right, equal_nan=True)


class TwoLayers(torch.nn.Module):
  """A layer whose input can be rounded, and one whose groups are too small."""

  def __init__(self):
    super().__init__()
    self.first = Layer(low_half_first)
    self.register_buffer("codes", bytes_(N, N).view(torch.int8))
    self.register_buffer("s", random(N, 3, seed=2).abs() + 0.1)

  def forward(self, x):
    weight = (self.codes.float().reshape(N, 3, 8) * self.s[:, :, None]).reshape(N, N)
    return F.linear(self.first(x), weight)


def test_activations_of_8_bits(tmp_path):
  model, x = TwoLayers(), random(3, K, seed=5)
  path = husk.write(model, (x,), tmp_path, targets=("host",), activations="int8")
  text = path.read_text()
  assert "husk::linear_rounded" in text and "husk::linear_quantized" in text
  artifact = tmp_path / "model.husk"
  huskc.compile(path, artifact)
  code, outputs, error = built_tools.husk_run(artifact, tmp_path, {"x": x})
  assert code == 0, error
  with torch.no_grad():
    blocks = x.reshape(3, -1, 32)
    steps = blocks.abs().amax(2, keepdim=True) / 127
    rounded = ((blocks / steps).round() * steps).reshape(x.shape)
    first = F.relu(F.linear(rounded, low_half_first(model.first), model.first.bias)) + x[:, :N]
    weight = (model.codes.float().reshape(N, 3, 8) * model.s[:, :, None]).reshape(N, N)
    torch.testing.assert_close(outputs["0"], F.linear(first, weight), rtol=1e-4, atol=2e-2)
    assert (outputs["0"] - model(x)).abs().max() > 0.1
  with pytest.raises(ValueError, match="activations='int4': give one of 'exact', 'int8'"):
    husk.write(model, (x,), tmp_path, activations="int4")
