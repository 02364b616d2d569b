"""Models that launch Triton kernels of their own (tests/gpu/user_kernels.py), run on the CPU by
Triton's interpreter."""

import re
import sys

import built_tools
import husk
import pytest
import torch
from cuda_numerics import close, computed

sys.path.append(str(built_tools.ROOT / "tests" / "gpu"))
import user_kernels


def expected(name, inputs):
  """The result of the model without Triton."""
  if name.startswith("plain"):
    x, y = inputs
    return ((x.relu() + y[1:]).sin(),)
  (x,) = inputs
  if name.startswith("tuned"):
    out = x * x - 2.5
    return out, (out.half().float() ** 2 - 0.5).half()
  if name.startswith("transposed"):
    bias = user_kernels.make(name)[0].bias
    return x.t(), (x[:, 5:75] + bias[1, :70]).t()
  total = torch.zeros(4, 64)
  total[2] += x
  return (total * 2,)


@pytest.mark.parametrize("name", user_kernels.MODELS)
def test_user_kernels_equal_eager(name, tmp_path):
  model, args, shapes, more = user_kernels.make(name)
  runs = [args] if name == "counting" else [args, *more]
  text = None
  named_runs = [dict(zip(("x", "y"), run)) for run in runs]
  results = computed(model, args, shapes, named_runs, tmp_path)
  text = (tmp_path / "model.hir").read_text()
  for run, result in zip(runs, results):
    for one, other in zip(result.values(), expected(name, run), strict=True):
      close(one, other, 2e-3 if one.dtype is torch.float16 else 1e-5)
  assert "extern" not in text
  for row in re.findall(r"^kernel .*", text, re.M):
    assert row.endswith(" pdl_wait_first")


def written(name, folder, **options):
  model, args, shapes, _ = user_kernels.make(name)
  return husk.write(
    model, args, folder, dynamic_shapes=shapes, targets=("cuda:h200",), **options
  ).read_text()


def test_a_view_is_passed_as_a_view(tmp_path):
  text = written("plain", tmp_path)
  assert re.search(
    r"launch h200_add_0 grid \(3, 1, 1\) \(read \S+, read y\[192, 1536\], write \S+, 384, null, "
    r"null\)",
    text,
  )


def test_metadata_records_the_first_configuration(tmp_path):
  text = written("tuned_dynamic", tmp_path)
  assert re.search(
    r'^user "husk.tuned.cuda_h200" '
    r'"heuristic; scale_0 has the first of its 3 configurations; scale_1 .*"$',
    text,
    re.M,
  )
  assert re.search(r"launch h200_scale_0 grid \(\S*div\(.*128\), 1, 1\)", text)
  assert len(set(re.findall(r"launch h200_scale_(\d)", text))) == 2  # one kernel for each dtype


def test_user_kernels_on_a_host_are_refused(tmp_path):
  model, args, _, _ = user_kernels.make("tuned")
  with pytest.raises(
    husk.Unsupported,
    match="scale, scale: Triton kernels of the model's own run on CUDA targets only",
  ):
    husk.write(model, args, tmp_path, targets=("host:avx2",))


def test_launches_are_as_before_after_an_export(tmp_path):
  from triton.runtime.jit import KernelInterface

  before = KernelInterface.__getitem__
  written("plain", tmp_path)
  assert KernelInterface.__getitem__ is before
