"""Programs that leave matrix products to cuBLASLt. Programs without kernels run on the fake driver
with its fake cuBLASLt, others by Triton's interpreter."""

import os
import pathlib
import re
import subprocess

import built_tools
import husk
import models
import pytest
import torch
from cuda_numerics import close, computed
from function_module import FunctionModule
from torch import nn

B, N = (torch.export.Dim(name, min=1, max=most) for name, most in (("batch", 16), ("rows", 40)))
MATMUL = re.compile(r'extern "husk::matmul" \((.*?)\)(?: at .*)?$', re.M)
FP32 = {
  "float32": (torch.float32, 1e-5),
  "float64": (torch.float64, 1e-12),
  "float16": (torch.float16, 2e-3),
  "bfloat16": (torch.bfloat16, 1.6e-2),
}


def written(model, args, folder, shapes=None, target="h200", **options):
  model = model if isinstance(model, nn.Module) else FunctionModule(model)
  return husk.write(
    model.eval(),
    args,
    folder,
    dynamic_shapes=shapes,
    targets=(f"cuda:{target}",),
    **{"gemm": "cublaslt", **options},
  ).read_text()


def run(model, inputs, folder, shapes=None, *options):
  """The results and the output of husk-run on the fake driver, for a program without kernels.
  `inputs` are those of each run; the first is exported."""
  driver = pathlib.Path(built_tools.built("husk-run")).parents[1] / "fake_driver"
  if not (driver / "libcublasLt.so.13").exists():
    pytest.skip("the fake cuBLASLt is not built")
  os.environ["LD_LIBRARY_PATH"], before = str(driver), os.environ.get("LD_LIBRARY_PATH")
  try:
    husk.export(
      model.eval(),
      inputs[0],
      folder / "made.husk",
      dynamic_shapes=shapes,
      targets=("cuda:h200",),
      gemm="cublaslt",
      keep=folder,
    )
    assert "launch" not in (folder / "model.hir").read_text()
    results = []
    for tensors in inputs:
      code, outputs, text = built_tools.husk_run(
        folder / "made.husk",
        folder,
        {str(i): x for i, x in enumerate(tensors)},
        "--device=cuda",
        *options,
      )
      results.append((code, [outputs[name] for name in sorted(outputs)], text))
    return results
  finally:
    if before is None:
      del os.environ["LD_LIBRARY_PATH"]
    else:
      os.environ["LD_LIBRARY_PATH"] = before


def check(function, inputs, folder, shapes=None, tolerance=1e-5):
  model = function if isinstance(function, nn.Module) else FunctionModule(function)
  for tensors, (code, results, text) in zip(
    inputs, run(model, inputs, folder, shapes), strict=True
  ):
    assert code == 0, text
    with torch.no_grad():
      right = (
        model(*(x.double() for x in tensors))
        if not isinstance(function, nn.Module)
        else model(*tensors)
      )
    for one, other in zip(results, right if isinstance(right, tuple) else (right,), strict=True):
      close(one.double(), other.double(), tolerance)


# Results


@pytest.mark.parametrize("name", FP32)
def test_linear_layers_of_dynamic_batch_and_length(name, tmp_path):
  dtype, tolerance = FP32[name]
  torch.manual_seed(0)
  model = nn.Sequential(nn.Linear(24, 40), nn.Linear(40, 8, bias=False), nn.Linear(8, 13)).to(dtype)
  inputs = [
    (torch.randn(*sizes, 24, dtype=dtype),) for sizes in ((2, 5), (1, 1), (16, 40), (3, 17))
  ]
  check(model, inputs, tmp_path, ({0: B, 1: N},), tolerance)


def small(*sizes, dtype=torch.float32):
  return torch.randint(-4, 5, sizes).to(dtype) / 4


@pytest.mark.parametrize(
  "function",
  [
    lambda self, x, y, z: x @ y,
    lambda self, x, y, z: (y.T @ x.T, x.T @ z, z @ y.T),
    lambda self, x, y, z: torch.addmm(z, x, y),
    lambda self, x, y, z: torch.addmm(z[0], x, y, alpha=0.5),
    lambda self, x, y, z: torch.addmm(z, x, y, beta=-2, alpha=0.25),
    lambda self, x, y, z: torch.addmm(z, x, y, beta=0),
    lambda self, x, y, z: x[:, 1:9] @ y[3:11],
    lambda self, x, y, z: x @ (y @ (z.T @ x)),
  ],
  ids="mm transposed addmm row_bias scaled beta_zero parts chain".split(),
)
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_products_of_two_matrices(function, dtype, tmp_path):
  inputs = [
    (small(rows, 12, dtype=dtype), small(12, 16, dtype=dtype), small(rows, 16, dtype=dtype))
    for rows in (6, 1, 33)
  ]
  check(
    function, inputs, tmp_path, ({0: N}, None, {0: N}), 2e-3 if dtype == torch.float16 else 1e-5
  )


@pytest.mark.parametrize(
  "function",
  [
    lambda self, x, y, z: torch.bmm(x, y),
    lambda self, x, y, z: torch.bmm(y.transpose(1, 2), x.transpose(1, 2)),
    lambda self, x, y, z: torch.baddbmm(z, x, y, beta=0.5, alpha=2),
    lambda self, x, y, z: torch.matmul(x[:1].expand(x.shape[0], -1, -1), y),
    lambda self, x, y, z: torch.bmm(x[:, 1:], y),
  ],
  ids="bmm transposed baddbmm shared part".split(),
)
def test_batches(function, tmp_path):
  inputs = [(small(batch, 6, 8), small(batch, 8, 5), small(batch, 6, 5)) for batch in (3, 1, 16)]
  check(function, inputs, tmp_path, ({0: B},) * 3)


def test_plans_are_created_once_and_run_allocates_nothing(tmp_path):
  ((code, _, text),) = run(
    nn.Linear(8, 8), [(torch.randn(4, 8),)], tmp_path, None, "--repeat=20", "--stats"
  )
  assert code == 0, text
  assert "as list" in text


@pytest.mark.parametrize("name", ["mlp", "gpt"])
def test_whole_models(name, tmp_path):
  torch.manual_seed(2)
  if name == "mlp":
    model, args, shapes = models.MODELS["mlp"]()
    runs = [{"x": torch.randn(batch, 32)} for batch in (4, 1, 64)]
  else:
    model = models.Gpt(vocabulary=64, width=32, layers=1, heads=2, context=16).eval()
    shapes = {
      "tokens": {
        0: torch.export.Dim("batch", min=1, max=8),
        1: torch.export.Dim("length", min=1, max=16),
      }
    }
    args, runs = (
      (torch.randint(0, 64, (2, 8)),),
      [{"tokens": torch.randint(0, 64, sizes)} for sizes in ((2, 8), (1, 1), (3, 13))],
    )
  results = computed(model, args, shapes, runs, tmp_path, gemm_set="", gemm="cublaslt")
  text = (tmp_path / "model.hir").read_text()
  assert len(MATMUL.findall(text)) >= 2 and "_tem_" not in text and "launch" in text
  for inputs, result in zip(runs, results):
    right = model(**inputs)
    close(
      result["logits" if name == "mlp" else "output"],
      right["logits"] if name == "mlp" else right,
      1e-4,
    )


# The products that are left to the library


def linear(dtype=torch.float32):
  return nn.Linear(16, 16).to(dtype), (torch.randn(4, 16).to(dtype),)


def test_no_product_is_called_by_default(tmp_path):
  assert "extern" not in written(*linear(), tmp_path, gemm="triton")


@pytest.mark.parametrize("target, size", [("h200", 32 << 20), ("orin", 4 << 20)])
def test_each_product_has_a_workspace_of_its_own(target, size, tmp_path):
  text = written(lambda self, x: (x @ x) @ x, (torch.randn(16, 16),), tmp_path, target=target)
  spaces = re.findall(rf"^    buffer (workspace\w*) bytes {size} align 256$", text, re.M)
  calls = MATMUL.findall(text)
  assert len(spaces) == len(calls) == 2
  for space, call in zip(spaces, calls):
    assert call.endswith(f"write tensor {space} u8 [{size}] [1]")


def test_calls_have_numbers_and_dtypes(tmp_path):
  text = written(
    lambda self, x, y: torch.addmm(y, x, x, alpha=0.5),
    (torch.randn(8, 8).bfloat16(),) * 2,
    tmp_path,
  )
  (call,) = MATMUL.findall(text)
  assert re.match(
    r"read tensor \w+ bf16 \[8, 8\] \[8, 1\], read tensor \w+ bf16 \[8, 8\] \[8, 1\], read tensor "
    r"\w+ bf16 \[8, 8\] "
    r"\[8, 1\], 0\.5, 1\.0, false, write tensor \w+ bf16 \[8, 8\] \[8, 1\], ",
    call,
  ), call


def test_tf32_only_if_torch_allows_it(tmp_path):
  before = torch.backends.cuda.matmul.fp32_precision
  try:
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    assert ", 1.0, 1.0, true, " in written(*linear(), tmp_path / "tf32")
  finally:
    torch.backends.cuda.matmul.fp32_precision = before
  assert ", 1.0, 1.0, false, " in written(*linear(), tmp_path / "exact")


@pytest.mark.parametrize(
  "function, args",
  [
    (lambda self, x, y: torch._int_mm(x, y), (torch.ones(32, 32, dtype=torch.int8),) * 2),
    (lambda self, x, y: torch.addmm(x[0], x, y, beta=0.5), (torch.randn(16, 16),) * 2),
    (lambda self, x, y: torch.addmm(x.T, x, y), (torch.randn(16, 16),) * 2),
  ],
  ids="int scaled_row transposed_bias".split(),
)
def test_products_that_cublaslt_does_not_support_are_templates(function, args, tmp_path):
  text = written(function, args, tmp_path)
  assert "extern" not in text and "_tem_" in text


@pytest.mark.parametrize(
  "function",
  [lambda self, x, y: x[:, ::2] @ y[:8], lambda self, x, y: x[:, :1].expand(16, 16) @ y],
  ids="scattered expanded".split(),
)
def test_factors_in_other_layouts_are_copied(function, tmp_path):
  text = written(function, (torch.randn(16, 16),) * 2, tmp_path)
  assert MATMUL.search(text) and "launch" in text and "_tem_" not in text


def test_convolutions_stay(tmp_path):
  text = written(nn.Conv2d(3, 8, 3), (torch.randn(1, 3, 16, 16),), tmp_path)
  assert "extern" not in text


def test_the_host_is_as_ever(tmp_path):
  model, args = linear()
  text = husk.write(
    model, args, tmp_path, targets=("host:avx2", "cuda:h200"), gemm="cublaslt"
  ).read_text()
  host, cuda = text.split("variant cuda_h200")
  assert "husk::matmul" not in host and "husk::matmul" in cuda


def test_fused_products_exclude_cublaslt(tmp_path):
  with pytest.raises(
    ValueError,
    match="cuda:h200:fused with gemm=cublaslt: matrix products are left to cuBLASLt, "
    "give cuda:h200",
  ):
    written(*linear(), tmp_path, target="h200:fused")


def test_on_the_command_line(tmp_path):
  from husk import __main__ as command

  root = built_tools.ROOT / "examples/models.py"
  assert (
    command.main(
      [f"{root}:mlp", "--keep", str(tmp_path), "--target", "cuda:h200", "--gemm=cublaslt"]
    )
    == 0
  )
  assert "husk::matmul" in (tmp_path / "model.hir").read_text()


def test_missing_cublaslt_is_an_error(tmp_path):
  husk.export(*linear(), tmp_path / "model.husk", targets=("cuda:h200",), gemm="cublaslt")
  driver = pathlib.Path(built_tools.built("husk-run")).parents[1] / "fake_driver"
  if not (driver / "libcuda.so.1").exists():
    pytest.skip("the fake driver is not built")
  (tmp_path / "libcuda.so.1").symlink_to(driver / "libcuda.so.1")
  done = subprocess.run(
    [
      built_tools.built("husk-run"),
      tmp_path / "model.husk",
      "--device=cuda",
      "--input=4x16xf32=random",
      "--cublas=/no/such/library",
    ],
    capture_output=True,
    text=True,
    env={**os.environ, "LD_LIBRARY_PATH": str(tmp_path)},
  )
  assert done.returncode
  assert (
    "cuBLASLt" in done.stderr
    and "/no/such/library" in done.stderr
    and "gemm='triton'" in done.stderr
  )
