"""Weights in the layouts of PyTorch's operators for codes of 4 bits."""

import husk
import pytest
import torch
from husk.quantized.packed import codes_of_packed
from torch import nn

ATEN = torch.ops.aten
N, K, GROUP = 32, 128, 32


def numbers(dtype=torch.bfloat16):
  """Codes, scales and offsets, and the weight that they stand for."""
  torch.manual_seed(0)
  codes = torch.randint(0, 16, (N, K), dtype=torch.int32)
  scales = (torch.rand(N, K // GROUP) / 8 + 0.01).to(dtype)
  offsets = (torch.randn(N, K // GROUP) / 8).to(dtype)
  weight = (codes - 8) * scales.double().repeat_interleave(GROUP, 1)
  weight += offsets.double().repeat_interleave(GROUP, 1)
  return codes, torch.stack([scales.T, offsets.T], 2).contiguous(), weight


def in_tiles(codes, inner):
  """As aten::_convert_weight_to_int4pack, which has no kernel for CPUs, places the codes: each
  thread's word, code by code."""
  packed = torch.zeros(N // 8, K // (16 * inner), 32, inner // 2, dtype=torch.int64)
  for band, step, thread, word in torch.cartesian_prod(*map(torch.arange, packed.shape)).tolist():
    row = codes[band * 8 + thread // 4]
    first = (step * inner + word * 2) * 16 + thread % 4 * 2
    columns = [first + more for more in (0, 1, 8, 9, 16, 17, 24, 25)]
    for place, index in enumerate((0, 2, 4, 6, 1, 3, 5, 7)):
      packed[band, step, thread, word] |= int(row[columns[index]]) << 4 * place
  return packed.where(packed < 1 << 31, packed - (1 << 32)).to(torch.int32)


def weight_of(codes):
  """The matrix that codes stand for, as codes.Codes has it."""
  bytes = codes.codes.to(torch.int64)
  each = torch.stack([bytes & 15, bytes >> 4], 2).reshape(bytes.shape[0], -1) - 8.0
  zeros = 0.0 if codes.zeros is None else codes.zeros.double().repeat_interleave(codes.group, 1)
  return (each - zeros) * codes.scales.double().repeat_interleave(codes.group, 1)


class Layer(nn.Module):
  def __init__(self, operator, packed, scales):
    super().__init__()
    self.operator = operator
    self.register_buffer("weight", packed)
    self.register_buffer("scales", scales)

  def forward(self, x):
    return self.operator(x, self.weight, GROUP, self.scales)


@pytest.mark.parametrize("inner", [2, 4, 8])
def test_codes_in_tiles_of_tensor_cores_are_put_in_order(inner):
  codes, scales, weight = numbers()
  found = codes_of_packed(ATEN._weight_int4pack_mm.default, in_tiles(codes, inner), GROUP, scales)
  torch.testing.assert_close(weight_of(found), weight, rtol=1e-6, atol=1e-6)
  assert found.codes.shape == (N, K // 2) and found.group == GROUP


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_layer_packed_for_cpus_becomes_the_operator(tmp_path, dtype):
  codes, scales, weight = numbers(dtype)
  packed = ATEN._convert_weight_to_int4pack_for_cpu(codes, 2)
  model = Layer(ATEN._weight_int4pack_mm_for_cpu, packed, scales)
  x = torch.randn(3, K, dtype=dtype)
  husk.export(model, (x,), tmp_path / "m.husk", progress=False)
  program = husk.load(tmp_path / "m.husk")
  assert "int4 with a scale for 32 columns" in program.metadata()["husk.weights"]
  got, right = program(x).double(), x.double() @ weight.T
  error, eager = (got - right).abs().max(), (model(x).double() - right).abs().max()
  assert error <= 1.5 * eager + 1e-5


def test_a_layer_in_tiles_is_exported_for_a_gpu(tmp_path):
  codes, scales, _ = numbers()
  model = Layer(ATEN._weight_int4pack_mm, in_tiles(codes, 8), scales)
  x = torch.randn(3, K, dtype=torch.bfloat16)
  husk.export(model, (x,), tmp_path / "m.husk", targets=["cuda:h100"], progress=False)


@pytest.mark.parametrize("damage", ["shape", "groups", "nan"])
def test_damaged_packed_weights_have_no_codes(damage):
  codes, scales, _ = numbers()
  packed = in_tiles(codes, 2)
  if damage == "shape":
    packed = packed[:, :, :16]
  elif damage == "groups":
    scales = scales[:2]
  else:
    scales[0, 0, 0] = float("nan")
  assert codes_of_packed(ATEN._weight_int4pack_mm.default, packed, GROUP, scales) is None


def test_a_group_without_a_scale_is_its_offset():
  codes, scales, _ = numbers()
  scales[0, :, 0] = 0
  found = codes_of_packed(ATEN._weight_int4pack_mm.default, in_tiles(codes, 2), GROUP, scales)
  expected = scales[0, :, 1].double()[:, None].expand(N, GROUP)
  torch.testing.assert_close(weight_of(found)[:, :GROUP], expected, rtol=1e-6, atol=1e-7)
