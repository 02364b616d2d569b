"""Asserts of kernels on a GPU: in the source, in the image, and in a run."""

import re

import husk
import pytest
import torch
from cuda_numerics import computed
from husk.cuda import asserts, fake_cuda
from husk.cuda import kernels as triton_kernels
from test_triton_kernels import body

ROWS = 12


class Picks(torch.nn.Module):
  """A lookup, a gather, and writes of both kinds at the indices `i` and `j`."""

  def __init__(self):
    super().__init__()
    self.table = torch.nn.Embedding(ROWS, 8)

  def forward(self, i, j, x, y):
    return (
      self.table(i).sum(-1),
      torch.gather(x, 1, j) * 2,
      torch.index_put(y.clone(), (i,), x[: i.shape[0], 0]),
      y.clone().index_add(0, i, x[: i.shape[0], 1]),
    )


def named_inputs(i, j=((1, 0), (4, 4), (3, 2))):
  x = torch.arange(15.0).reshape(3, 5)
  return {"i": torch.tensor(i), "j": torch.tensor(j), "x": x, "y": torch.arange(float(ROWS))}


@pytest.fixture(scope="module")
def model():
  torch.manual_seed(3)
  return Picks().eval()


@pytest.fixture(scope="module")
def written(model, tmp_path_factory):
  """The text and its folder, by the effect of an assert."""
  by_mode = {}
  for mode in ("status", "trap", "off"):
    folder = tmp_path_factory.mktemp(mode)
    args = tuple(named_inputs([3, 0, 11]).values())
    by_mode[mode] = (
      husk.write(model, args, folder, targets=("cuda:h200",), asserts=mode).read_text(),
      folder,
    )
  return by_mode


def test_a_status_has_texts_and_a_parameter(written):
  text, folder = written["status"]
  said = re.findall(r'^assert "(.*)"$', text, re.M)
  assert len(said) >= 2 and all("index out of bounds: 0 <= " in one for one in said)
  for name in re.findall(r'^kernel (\S+) \S+ "\S+" \(.*?\)', text, re.M):
    launches = re.findall(rf"launch {name} grid .*?(\w+, )null, null\)", text)
    has = any(name in one for one in said)
    assert launches and all((last == "asserts, ") == has for last in launches)
    image = (folder / f"{name}.cubin").read_bytes()
    assert b"__assertfail" not in image and b"index out of bounds" not in image
  assert "# " not in text


def test_a_trap_stays_in_the_image(written):
  text, folder = written["trap"]
  assert "\nassert " not in text and "asserts, " not in text
  assert any(b"__assertfail" in path.read_bytes() for path in folder.glob("*.cubin"))


def test_asserts_off_removes_asserts(written):
  text, folder = written["off"]
  assert "\nassert " not in text and "asserts, " not in text
  assert not any(b"__assertfail" in path.read_bytes() for path in folder.glob("*.cubin"))


def test_unknown_assert_mode_is_refused():
  with pytest.raises(ValueError, match="asserts='never': give one of 'status', 'trap', 'off'"):
    husk.write(
      Picks(),
      tuple(named_inputs([1, 2, 3]).values()),
      "/nowhere",
      targets=("cuda:h200",),
      asserts="never",
    )


def test_values_are_those_of_the_model(model, tmp_path):
  runs = [named_inputs([3, 0, 11]), named_inputs([1, 7, 5], ((0, 1), (2, 3), (4, 4)))]
  for inputs, result in zip(runs, computed(model, tuple(runs[0].values()), None, runs, tmp_path)):
    for one, other in zip(result.values(), model(**inputs)):
      torch.testing.assert_close(one, other)


def test_lanes_with_failed_asserts_access_no_other_memory(model, tmp_path):
  """The lanes whose index is in range are right, and the other lanes write nothing."""
  results = computed(
    model,
    tuple(named_inputs([3, 0, 11]).values()),
    None,
    [named_inputs([3, 99999999, 11], ((1, 0), (4, 5), (3, 2)))],
    tmp_path,
  )
  lookup, gathered, put, added = results[0].values()
  good = model(**named_inputs([3, 0, 11], ((1, 0), (4, 0), (3, 2))))
  torch.testing.assert_close(lookup, good[0])  # the failed lane reads row 0
  torch.testing.assert_close(gathered, good[1])
  x, y = named_inputs([0])["x"], torch.arange(float(ROWS))
  for row, at in ((0, 3), (2, 11)):
    assert put[at] == x[row, 0] and added[at] == y[at] + x[row, 1]
    y[at] = put[at] = added[at] = 0
  torch.testing.assert_close(put, y)
  torch.testing.assert_close(added, y)


# The source


KERNEL = """
@triton_heuristics.pointwise(triton_meta={{'signature': {{
    'in_ptr0': '*i64', 'in_ptr1': '*fp32', 'out_ptr0': '*fp32', 'ks0': 'i64', 'xnumel': 'i32',
    'XBLOCK': 'constexpr'}}, 'constants': {{}}}})
@triton.jit
def kernel(in_ptr0, in_ptr1, out_ptr0, ks0, xnumel, XBLOCK : tl.constexpr):
    tmp0 = tl.load(in_ptr0 + (x0), xmask)
{body}
"""


def changed(*lines):
  module = asserts.rewrite(
    KERNEL.format(body="\n".join("    " + line for line in lines)), "kernel", 5
  )
  return module, [
    line.strip() for line in module.source.split("    tmp0 = ")[1].splitlines()[1:] if line
  ]


def test_a_constant_bound_leaves_the_load_unchanged():
  module, lines = changed(
    'tl.device_assert(((0 <= tmp0) & (tmp0 < 9)) | ~(xmask), "index out of bounds: 0 <= tmp0 < 9")',
    "tmp1 = tl.load(in_ptr1 + (x0 + 20*tmp0), xmask, other=0.0)",
  )
  assert module.texts == ["index out of bounds: 0 <= tmp0 < 9"] and module.left == 0
  assert lines == [
    "husk_holds5 = ((0 <= tmp0) & (tmp0 < 9)) | ~(xmask)",
    "tl.store(husk_asserts + husk_holds5.to(tl.int32) * 0, 5, husk_holds5 == 0)",
    "husk_index5 = tl.where(husk_holds5, tmp0, 0).to(tmp0.dtype)",
    "tmp1 = tl.load(in_ptr1 + (x0 + 20*husk_index5), xmask, other=0.0)",
  ]
  assert (
    "XBLOCK : tl.constexpr, husk_asserts):" in module.source
    and "'husk_asserts': '*i32'}" in module.source
  )


def test_a_bound_that_may_be_0_guards_the_load():
  _, lines = changed(
    'tl.device_assert((0 <= tmp0) & (tmp0 < ks0), "index out of bounds: 0 <= tmp0 < ks0")',
    "tmp1 = tl.load(in_ptr1 + tl.broadcast_to(tmp0, [XBLOCK]), None).to(tl.float32)",
    "tmp2 = tl.load(in_ptr1 + (x0), None)",
  )
  assert lines[3:] == [
    "tmp1 = tl.load(in_ptr1 + tl.broadcast_to(husk_index5, [XBLOCK]), husk_holds5).to(tl.float32)",
    "tmp2 = tl.load(in_ptr1 + (x0), None)",
  ]


def test_writes_are_always_guarded():
  _, lines = changed(
    'tl.device_assert(tmp0 < 9, "index out of bounds: tmp0 < 9")',
    "tl.store(out_ptr0 + (tmp0), tmp0, xmask)",
    "tl.atomic_add(out_ptr0 + (tmp0), tmp0, mask=xmask, sem='relaxed')",
    "tl.store(out_ptr0 + (tmp0), tmp0)",
  )
  assert lines[3:] == [
    "tl.store(out_ptr0 + husk_index5, husk_index5, xmask & husk_holds5)",
    "tl.atomic_add(out_ptr0 + husk_index5, husk_index5, mask=xmask & husk_holds5, sem='relaxed')",
    "tl.store(out_ptr0 + husk_index5, husk_index5, mask=husk_holds5)",
  ]


def test_two_bounds_of_one_index():
  module, lines = changed(
    'tl.device_assert(tmp0 < 9, "index out of bounds: tmp0 < 9")',
    "tmp1 = tl.load(in_ptr1 + (tmp0), xmask)",
    'tl.device_assert(tmp0 < 7, "index out of bounds: tmp0 < 7")',
    "tmp2 = tl.load(in_ptr1 + (tmp0), xmask)",
  )
  assert len(module.texts) == 2 and "husk_holds6 = husk_index5 < 7" in lines
  assert lines[-1] == "tmp2 = tl.load(in_ptr1 + (husk_index6), xmask)"


def test_only_the_block_of_an_assert_changes():
  _, lines = changed(
    "for r0_offset in tl.range(0, r0_numel, R0_BLOCK):",
    '    tl.device_assert(tmp0 < 9, "index out of bounds: tmp0 < 9")',
    "    tmp1 = tl.load(in_ptr1 + (tmp0), xmask)",
    "tl.store(out_ptr0 + (x0), tmp0, xmask)",
  )
  assert lines[-1] == "tl.store(out_ptr0 + (x0), tmp0, xmask)" and "husk_index5" in lines[-2]


def test_a_sum_of_sizes_and_places_guards_what_its_names_address():
  module, lines = changed(
    'tl.device_assert((ks0 + x2 < 513) | ~(xmask), "index out of bounds: ks0 + x2 < 513")',
    "tmp1 = tl.load(in_ptr1 + (x2), xmask)",
    "tmp2 = tl.load(in_ptr1 + (x1 + 64*ks0 + 64*x2), xmask).to(tl.float32)",
    "tl.store(out_ptr0 + (x0 + 64*ks0 + 64*x2 + 32832*x1), tmp1, xmask)",
    "tl.store(out_ptr0 + (x0 + ks0), tmp1, xmask)",
  )
  assert module.texts == ["index out of bounds: ks0 + x2 < 513"] and module.left == 0
  assert lines == [
    "husk_holds5 = (ks0 + x2 < 513) | ~(xmask)",
    "tl.store(husk_asserts + husk_holds5.to(tl.int32) * 0, 5, husk_holds5 == 0)",
    "tmp1 = tl.load(in_ptr1 + (x2), xmask)",
    "tmp2 = tl.load(in_ptr1 + (x1 + 64 * ks0 + 64 * x2), xmask & husk_holds5).to(tl.float32)",
    "tl.store(out_ptr0 + (x0 + 64 * ks0 + 64 * x2 + 32832 * x1), tmp1, xmask & husk_holds5)",
    "tl.store(out_ptr0 + (x0 + ks0), tmp1, xmask)",
  ]


@pytest.mark.parametrize(
  "lines",
  [
    ['tl.device_assert(tmp0 == tmp0, "finite")'],
    [
      'tl.device_assert(ks0 + tmp0 < 9, "index out of bounds: ks0 + tmp0 < 9")',
      "tl.store(out_ptr0 + (ks0 + tmp0), tmp0, xmask)",
    ],
    [
      'tl.device_assert(ks0 + x0 < 9, "index out of bounds: ks0 + x0 < 9")',
      "tmp1 = in_ptr1 + ks0 + x0",
    ],
    [
      'tl.device_assert((0 <= x0 + ks0) & (x0 + ks0 < 9), "index out of bounds: 0 <= x0 + ks0 < 9")'
    ],
    [
      'tl.device_assert(tmp0 < 9, "index out of bounds: tmp0 < 9")',
      "tmp1 = in_ptr1 + tmp0",
      "tmp2 = tl.load(tmp1, None)",
    ],
    ['tl.device_assert(tmp0 < 9, "index out of bounds: tmp0 < 9")', "tmp1 = other(in_ptr1 + tmp0)"],
  ],
)
def test_asserts_of_unknown_form_stay_traps(lines):
  module, after = changed(*lines)
  assert module.texts == [] and module.left == 1 and after == lines and "husk_" not in module.source


def test_asserts_of_user_kernels_stay_traps_with_a_note():
  target, notes = fake_cuda.Target.load("h200"), []
  text = body(target, extra='tl.device_assert(tmp0 < 9.0, "below 9")')
  with fake_cuda.cuda(target):
    kernels = triton_kernels.CudaKernels(target, prefix="p.", note=notes.append)
    kernels.define_kernel("triton_poi_f", text)
  assert kernels.texts == [] and "__assertfail" in kernels.kernels()[0][1].ptx
  assert notes == [
    "kernel p.triton_poi_f: 1 of its asserts are traps: what they protect is not known"
  ]
