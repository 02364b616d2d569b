"""The functions that Inductor may call in place of kernels, its extern choices. Either Husk has an
operator for one of them, or no program of Husk calls it."""

import gc
import importlib
import pkgutil

import husk
import pytest
import torch
from husk.inductor import decompositions
from husk.jit.backend import backend
from husk.lower import extern
from torch.nn import functional

# Choices that Husk calls as operators, of which its library for hosts has all.
CALLED = {
  "_int_mm": "aten::_int_mm.out",
  "addmm": "aten::addmm.out",
  "baddbmm": "aten::baddbmm.out",
  "bias_addmm": "aten::addmm.out",
  "bmm": "aten::bmm.out",
  "convolution": "aten::convolution",
  "mm": "aten::mm.out",
}
# Choices whose operators are decomposed before Inductor chooses.
DECOMPOSED = {
  "_grouped_mm": torch.ops.aten._grouped_mm.default,
  "_weight_int8pack_mm": torch.ops.aten._weight_int8pack_mm.default,
  "bmm_dtype": torch.ops.aten.bmm.dtype,
  "mm_dtype": torch.ops.aten.mm.dtype,
}
BYTES = torch.randint(-3, 4, (32, 32), dtype=torch.int8)
HALVES = torch.randint(-3, 4, (32, 32)).bfloat16()
F8 = HALVES.to(torch.float8_e4m3fn)
ONES = torch.ones(32)
X = torch.randn(32, 32)


class Quantized(torch.nn.Module):
  def __init__(self, op, rest):
    super().__init__()
    self.op, self.rest = op, rest
    self.register_buffer("weight", BYTES.clone())

  def forward(self, x, *tensors):
    scales, zeros, *other = tensors
    return self.op(x, 1.0, 0, self.weight, scales, zeros, *other, *self.rest)


class Linear(torch.nn.Module):
  def __init__(self):
    super().__init__()
    self.layer = torch.nn.Linear(32, 8).eval()

  def forward(self, x):
    return functional.relu(self.layer(x))


# Choices that programs do not call, with a target, a model for which Inductor would have them, and
# the words with which it is refused, if it is. None stands for an option of Inductor that is off.
NOT_CALLED = {
  "_linear_pointwise": ("host", Linear(), (X,), None),
  "_linear_pointwise.binary": ("host", lambda x, y: functional.linear(x, y) + y, (X, X), None),
  "_mkl_linear": ("host", Linear(), (X,), None),
  "_mm_plus_mm": ("cuda:h100", lambda a, b: a @ b + b @ a, (X, X), None),
  "_scaled_mm": (
    "host",
    lambda x, y, s: torch._scaled_mm(x, y.t(), s, s, out_dtype=torch.bfloat16),
    (F8, F8, torch.ones(())),
    None,
  ),
  "_scaled_grouped_mm": (
    "host",
    lambda x, y, s, n: torch._scaled_grouped_mm(
      x, y[None].mT, s, s[None], offs=n, out_dtype=torch.bfloat16
    ),
    (F8, F8, ONES, torch.tensor([32], dtype=torch.int32)),
    "no implementation of aten::_scaled_grouped_mm",
  ),
  "_sparse_semi_structured_mm": (
    "host",
    lambda x, places, y: torch._sparse_semi_structured_mm(x, places, y),
    (HALVES, torch.zeros(32, 4, dtype=torch.int16), torch.ones(64, 32).bfloat16()),
    "no implementation of aten::_sparse_semi_structured_mm",
  ),
  "conv1x1_via_mm": (
    "cuda:h100",
    lambda x, y: functional.conv2d(x, y),
    (torch.randn(1, 8, 4, 4).to(memory_format=torch.channels_last), torch.randn(4, 8, 1, 1)),
    None,
  ),
  "int4mm_packed_weight_cpu": (
    "host",
    lambda x, y, s: torch.ops.aten._weight_int4pack_mm_for_cpu(x, y, 32, s),
    (HALVES, torch.zeros(32, 16, dtype=torch.uint8), torch.ones(1, 32, 2).bfloat16()),
    "no implementation of quantized::int4mm_packed_weight_cpu",
  ),
  "qlinear_pointwise": (
    "host",
    Quantized(
      torch.ops.onednn.qlinear_pointwise.default, (None, 1.0, 0, torch.float32, "none", [], "")
    ),
    (BYTES.to(torch.uint8), ONES, torch.zeros(32, dtype=torch.int32)),
    "no implementation of onednn::qlinear_pointwise",
  ),
  "qlinear_pointwise.binary": (
    "host",
    Quantized(
      torch.ops.onednn.qlinear_pointwise.binary,
      (None, 1.0, 0, torch.float32, 1.0, 0, "add", 1.0, "none", [], ""),
    ),
    (BYTES.to(torch.uint8), ONES, torch.zeros(32, dtype=torch.int32), X),
    "no implementation of onednn::qlinear_pointwise.binary",
  ),
  "unoptimized_b2b_gemm": ("cuda:h100", lambda a, b: a @ b @ a, (X, X), None),
}


def choices():
  """The names of all choices."""
  import torch._inductor.kernel
  from torch._inductor import mkldnn_lowerings, select_algorithm

  for module in pkgutil.iter_modules(torch._inductor.kernel.__path__, "torch._inductor.kernel."):
    importlib.import_module(module.name)
  for module in ("quantized_lowerings", "fx_passes.b2b_gemm"):
    importlib.import_module(f"torch._inductor.{module}")
  kind = select_algorithm.ExternKernelChoice
  if not hasattr(select_algorithm.extern_kernels, "_linear_pointwise"):
    mkldnn_lowerings.register_onednn_fusion_ops()
  gc.unfreeze()  # conftest.py leaves what is imported out of the objects that the collector lists
  try:
    return {one.name for one in gc.get_objects() if type(one) is kind}
  finally:
    gc.freeze()


def test_every_choice_is_called_or_left_out():
  known = [*CALLED, *DECOMPOSED, *NOT_CALLED]
  # Only builds of PyTorch with MKL have this one.
  assert choices() | {"_mkl_linear"} == set(known) and len(known) == len(set(known))


@pytest.mark.parametrize("name", CALLED.values(), ids=CALLED)
def test_operators_of_choices_are_in_the_library(name):
  from husk.host import operators

  assert name in operators.names() and extern.overload(name) is not None


@pytest.mark.parametrize("op", DECOMPOSED.values(), ids=DECOMPOSED)
def test_operators_of_choices_are_decomposed(op):
  assert op in decompositions.table()


@pytest.mark.parametrize("name", NOT_CALLED)
def test_no_program_calls_the_other_choices(name, tmp_path):
  target, function, args, refusal = NOT_CALLED[name]
  model = function if isinstance(function, torch.nn.Module) else Calling(function)
  if refusal is not None:
    with pytest.raises(husk.Unsupported, match=refusal):
      husk.write(model, args, tmp_path, targets=(target,))
    return
  text = husk.write(model, args, tmp_path, targets=(target,)).read_text()
  assert f"::{name.partition('.')[0]}" not in text


class Calling(torch.nn.Module):
  def __init__(self, function):
    super().__init__()
    self.function = function

  def forward(self, *args):
    return self.function(*args)


def test_products_in_other_dtypes(tmp_path):
  """Eager mode has them for GPUs alone."""

  def products(x, y):
    wide = {"out_dtype": torch.float32}
    return torch.mm(x, y, **wide), torch.bmm(x[None], y[None], **wide)

  husk.export(Calling(products), (HALVES, HALVES), tmp_path / "a.husk")
  expected = HALVES.float() @ HALVES.float()
  for result in husk.load(tmp_path / "a.husk")(HALVES, HALVES):
    torch.testing.assert_close(torch.as_tensor(result).view(32, 32), expected, rtol=0, atol=0)


@pytest.mark.parametrize("scales", [(ONES[0], ONES[:1] / 2), (ONES[:, None] * 2, ONES[None] / 4)])
def test_products_in_fp8(tmp_path, scales):
  class Scaled(torch.nn.Module):
    def forward(self, x, y, x_scale, y_scale, bias):
      return torch._scaled_mm(x, y.t(), x_scale, y_scale, bias, out_dtype=torch.bfloat16)

  expected = (F8.float() @ F8.float().t()) * scales[0] * scales[1] + HALVES[0].float()
  husk.export(Scaled(), (F8, F8, *scales, HALVES[0]), tmp_path / "a.husk")
  result = torch.as_tensor(husk.load(tmp_path / "a.husk")(F8, F8, *scales, HALVES[0]))
  torch.testing.assert_close(result, expected.bfloat16(), rtol=0, atol=0)


def test_a_choice_without_an_operator_in_a_compiled_graph():
  def function(x, weight, scales):
    return torch.ops.aten._weight_int8pack_mm(x, weight, scales)

  compiled = torch.compile(function, backend=backend)
  args = HALVES, BYTES, ONES.bfloat16()
  torch.testing.assert_close(compiled(*args), function(*args))


def test_the_place_of_a_choice_that_fails(tmp_path):
  """Inductor takes no packed weight that is an input."""

  def function(x, weight, scales, zeros):
    op = torch.ops.onednn.qlinear_pointwise.default
    return op(x, 1.0, 0, weight, scales, zeros, None, 1.0, 0, torch.float32, "none", [], "")

  args = BYTES.to(torch.uint8), BYTES, ONES, torch.zeros(32, dtype=torch.int32)
  with pytest.raises(husk.CompileError, match=r"^qlinear \(near test_extern_choices.py:"):
    husk.write(Calling(function), args, tmp_path, targets=("host",))


def test_the_words_if_there_is_no_choice(tmp_path):
  def function(x, y, s):
    return torch._scaled_mm(x, y.t(), s, s, out_dtype=torch.bfloat16)

  args = F8[:16, :16].clone(), F8[:16, :16].clone(), torch.ones(())
  with pytest.raises(husk.CompileError, match="it has no kernel for these dtypes and sizes"):
    husk.write(Calling(function), args, tmp_path, targets=("cuda:h100",))
