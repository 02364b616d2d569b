"""The option `quantize`: weights of floats as codes, by patterns of their names."""

import pathlib
import re

import hir_interpreter
import husk
import pytest
import torch
from export_and_compare import ISAS
from husk.options import Options
from husk.quantized import schemes
from husk.quantized.operator import numbers


class Model(torch.nn.Module):
  """Tokens in, logits out: the head is the table of the embedding."""

  def __init__(self, dtype=torch.float32):
    super().__init__()
    torch.manual_seed(0)
    self.table = torch.nn.Embedding(96, 64)
    self.up = torch.nn.Linear(64, 128)
    self.down = torch.nn.Linear(128, 64, bias=False)
    self.head = torch.nn.Linear(64, 96, bias=False)
    self.head.weight = self.table.weight
    self.to(dtype)

  def forward(self, tokens):
    x = self.table(tokens)
    return self.head(x + self.down(torch.nn.functional.silu(self.up(x))))


TARGET = f"host:{ISAS[0]}"
TOKENS = torch.arange(8).reshape(2, 4)


def written(folder, quantize, dtype=torch.float32):
  model = Model(dtype).eval()
  return husk.write(model, (TOKENS,), folder, targets=(TARGET,), quantize=quantize).read_text()


@pytest.mark.parametrize("name", ("int8", "int4", "fp8"))
def test_each_scheme(tmp_path, name):
  for dtype in (torch.float32, torch.bfloat16):
    tmp_path = tmp_path / str(dtype)  # a process keeps the libraries that it has loaded
    text = written(tmp_path, name, dtype)
    assert text.count("husk::linear_quantized") == 3
    # The embedding and the head have one weight: codes and scales.
    assert len(re.findall(r"^constant (?:table|head)\.weight", text, re.M)) == 2
    model = Model(dtype).eval()
    program = hir_interpreter.Program(tmp_path / "model.hir")
    with torch.no_grad():
      (got,) = program.run(f"host_{ISAS[0]}", tokens=TOKENS).values()
      right = model(TOKENS)
    error = (got.float() - right.float()).abs().max() / right.float().abs().max()
    assert error < {"int8": 0.02, "int4": 0.25, "fp8": 0.08}[name], error


def test_a_scheme_keeps_numbers_near():
  matrix = torch.randn(64, 96, generator=torch.Generator().manual_seed(1))
  matrix[3] = 0
  for name, most in (("int8", 0.01), ("int4", 0.1), ("fp8", 0.04)):
    codes = schemes.SCHEMES[name](matrix)
    near = numbers(codes.codes, codes.scales, codes.zeros, codes.values, codes.bits, codes.group)
    assert not near[3].any()
    error = (near - matrix).pow(2).mean().sqrt()
    assert error < most, (name, error)
  tiny = schemes.SCHEMES["int4"](matrix * 1e-6)  # scales of f16 would be 0
  assert tiny.scales.dtype == torch.float32 and tiny.scales.abs().min() > 0


def test_the_first_pattern_counts(tmp_path):
  text = written(tmp_path, {"down": "none", "up.weight": "int8", "*": "int4"})
  assert "constant up.weight i8" in text and "constant down.weight f32" in text
  assert re.search(r"constant (table|head)\.weight u8", text)


def test_a_value_without_a_pattern_is_for_all():
  assert Options(quantize="int4").quantize == {"*": "int4"}
  assert Options().quantize == {}


def test_unknown_schemes(tmp_path):
  with pytest.raises(ValueError, match="quantize='int5': give one of 'int8', 'int4', 'fp8'"):
    written(tmp_path, "int5")
  with pytest.raises(ValueError, match="quantize=3 of 'up': give one of"):
    written(tmp_path, {"up": 3})
  assert not list(pathlib.Path(tmp_path).iterdir())


def test_the_log_and_the_artifact_name_the_formats(tmp_path, caplog):
  with caplog.at_level("INFO", "husk"):
    text = written(tmp_path, {"up": "int8", "*": "int4"})
  lines = [record.message for record in caplog.records if record.message.startswith("weights of")]
  # The table is the head's too: 96 x 64 codes of 4 bits, with a scale of 2 bytes for 32.
  assert lines == [
    "weights of int4 with a scale for 32 columns: 2, 8,064 bytes",
    "weights of int8 with a scale for a row: 1, 8,704 bytes",
  ]
  (metadata,) = [line for line in text.splitlines() if "husk.weights" in line]
  assert "up.weight: int8 with a scale for a row, 8704 bytes" in metadata
  assert "down.weight: int4" in metadata and "head.weight" in metadata


def test_numbers_without_codes_are_refused(tmp_path):
  model = Model().eval()
  with torch.no_grad():
    model.up.weight[3, 4] = torch.inf
  arguments = (torch.zeros(2, 3, dtype=torch.int64),)
  path = tmp_path / "model.husk"
  with pytest.raises(ValueError, match="the weight 'up.weight' has numbers that are NaN or inf"):
    husk.export(model, arguments, path, quantize="int4")
  assert not path.exists()
  husk.export(model, arguments, path, quantize={"up.weight": "none", "*": "int4"})
