"""Triton kernels as Inductor defines them, compiled for targets that are not there."""

import pytest
import sympy
from husk.cuda import fake_cuda, grids, launchable
from husk.cuda import kernels as tk
from husk.hir import NullArg, ScratchArg, ValueArg, ViewArg
from torch.utils._sympy.functions import CeilDiv
from torch.utils._sympy.value_ranges import ValueRanges

# A definition in the shape that Inductor writes: one read, one written, one both, an int, and an
# int that equals 1.
BODY = """async_compile.triton('triton_poi_{name}', '''
import triton
import triton.language as tl
from torch._inductor.runtime import triton_helpers, triton_heuristics
from torch._inductor.runtime.triton_helpers import libdevice, math as tl_math
from torch._inductor.runtime.hints import AutotuneHint, ReductionHint, TileHint, DeviceProperties
triton_helpers.set_driver_to_gpu()

@triton_heuristics.pointwise(
    size_hints={{'x': 1024}},
    filename=__file__,
    triton_meta={{'signature': {{'in_ptr0': '*{dtype}', 'in_out_ptr0': '*fp32', 'out_ptr0': '*fp32',
                                'ks0': 'i64', 'one': 'constexpr', 'xnumel': 'i32',
                                'XBLOCK': 'constexpr'}},
                 'device': DeviceProperties(type='cuda', index=0, multi_processor_count={sms},
                                            cc={cc}, major={major}, regs_per_multiprocessor=65536,
                                            max_threads_per_multi_processor=2048,
                                            max_threads_per_block=1024, warp_size=32),
                 'constants': {{'one': 1}}, 'configs': [{{(0,): [['tt.divisibility', 16]]}}]}},
    inductor_meta={{'grid_type': 'Grid1D', 'autotune_hints': set(),
                   'kernel_name': 'triton_poi_{name}',
                   'mutated_arg_names': ['in_out_ptr0'], 'num_load': 2, 'num_reduction': 0,
                   'backend_hash': 'x',
                   'deterministic': True, 'max_autotune': False, 'autotune_pointwise': True,
                   'autotune_local_cache': True, 'autotune_remote_cache': None,
                   'force_disable_caches': False}},
    min_elem_per_thread=0
)
@triton.jit
def triton_poi_{name}(in_ptr0, in_out_ptr0, out_ptr0, ks0, one, xnumel, XBLOCK : tl.constexpr):
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:]
    xmask = xindex < xnumel
    tmp0 = tl.load(in_ptr0 + (xindex % ks0) * one, xmask).to(tl.float32)
    tmp1 = tl.load(in_out_ptr0 + xindex, xmask)
    {extra}
    tl.store(in_out_ptr0 + xindex, tmp0 + tmp1, xmask)
    tl.store(out_ptr0 + xindex, tmp0 * 2.0, xmask)
''', device_str='cuda')"""


def body(target, name="f", dtype="fp32", extra="pass"):
  return BODY.format(
    name=name,
    dtype=dtype,
    extra=extra,
    sms=target.multi_processor_count,
    cc=target.capability,
    major=target.major,
  )


def kernels(key, **options):
  target = fake_cuda.Target.load(key)
  with fake_cuda.cuda(target):
    cuda_kernels = tk.CudaKernels(target, **options)
    cuda_kernels.define_kernel("triton_poi_f", body(target))
    launch = cuda_kernels.call_kernel(
      "triton_poi_f", ["x", "buf0", "buf1", n, 1, n], {n: ValueRanges(0, 1 << 20)}
    )
    cuda_kernels.finish()
  return cuda_kernels, launch


n = sympy.Symbol("s0", integer=True, nonnegative=True)


@pytest.fixture(scope="module")
def h200():
  return kernels("h200", prefix="h200.")


def test_rows(h200):
  image, kernel = h200[0].rows("gpu", "images/")
  assert image == 'image h200.triton_poi_f.cubin gpu cubin "images/h200.triton_poi_f.cubin"'
  assert kernel.startswith(
    'kernel h200.triton_poi_f h200.triton_poi_f.cubin "triton_poi_f" '
    "(ptr, ptr, ptr, i64, i32, ptr, ptr) block "
  )
  assert kernel.endswith(" 1 1 pdl_wait_first")


def test_the_image_is_for_the_target(h200):
  ((_, kernel),) = h200[0].kernels()
  assert kernel.cubin.startswith(b"\x7fELF") and ".target sm_90a" in kernel.ptx


def test_images_contain_no_path_of_this_machine(h200):
  ((_, kernel),) = h200[0].kernels()
  assert b"/tmp" not in kernel.cubin and b"/home" not in kernel.cubin and b".py" not in kernel.cubin


def test_access_is_derived_from_loads_and_stores(h200):
  ((_, kernel),) = h200[0].kernels()
  assert kernel.access == {"in_ptr0": "read", "in_out_ptr0": "both", "out_ptr0": "write"}


def test_a_launch_has_an_argument_for_every_parameter(h200):
  cuda_kernels, launch = h200
  ((_, kernel),) = cuda_kernels.kernels()
  assert launch.arguments == [
    ViewArg("read", "x"),
    ViewArg("both", "buf0"),
    ViewArg("write", "buf1"),
    ValueArg(n),
    ValueArg(n),
    NullArg(),
    NullArg(),
  ]
  assert launch.kernel == "h200.triton_poi_f"
  assert launch.grid == (CeilDiv(n, kernel.config["XBLOCK"]), 1, 1)
  assert kernel.block[1:] == (1, 1) and kernel.block[0] % 32 == 0


def test_compilation_is_deterministic(h200):
  cuda_kernels, _ = kernels("h200", prefix="h200.")
  assert cuda_kernels.rows("gpu") == h200[0].rows("gpu")
  assert cuda_kernels.files() == h200[0].files()


def test_kernels_before_sm_90_do_not_wait():
  cuda_kernels, _ = kernels("orin")
  ((_, kernel),) = cuda_kernels.kernels()
  assert not kernel.pdl_wait_first and "griddepcontrol" not in kernel.ptx


def test_wait_can_be_disabled():
  cuda_kernels, _ = kernels("h200", wait=False)
  ((_, kernel),) = cuda_kernels.kernels()
  assert not kernel.pdl_wait_first and "griddepcontrol" not in kernel.ptx


@pytest.mark.parametrize(
  "largest, trigger, early",
  [
    (1000, "small", True),
    (1000, "never", False),
    (1 << 20, "small", False),
    (None, "small", False),
  ],
)
def test_small_grids_trigger_early(largest, trigger, early):
  target = fake_cuda.Target.load("h200")
  with fake_cuda.cuda(target):
    cuda_kernels = tk.CudaKernels(target, trigger=trigger)
    cuda_kernels.define_kernel("triton_poi_f", body(target))
    ranges = {n: ValueRanges(0, largest)} if largest else {}
    cuda_kernels.call_kernel("triton_poi_f", ["x", "buf0", "buf1", n, 1, n], ranges)
    cuda_kernels.finish()
  ((_, kernel),) = cuda_kernels.kernels()
  assert kernel.pdl_wait_first and kernel.triggers_early is early


def test_one_large_call_forbids_the_trigger():
  target = fake_cuda.Target.load("h200")
  with fake_cuda.cuda(target):
    cuda_kernels = tk.CudaKernels(target, trigger="small")
    cuda_kernels.define_kernel("triton_poi_f", body(target))
    for size in (100, 1 << 24, 100):
      cuda_kernels.call_kernel("triton_poi_f", ["x", "buf0", "buf1", 7, 1, size])
    cuda_kernels.finish()
  assert not cuda_kernels.kernels()[0][1].triggers_early


def test_equal_kernels_are_one_and_equal_names_are_two():
  target = fake_cuda.Target.load("h200")
  with fake_cuda.cuda(target):
    cuda_kernels = tk.CudaKernels(target)
    cuda_kernels.define_kernel("triton_poi_f", body(target))
    cuda_kernels.define_kernel("triton_poi_g", body(target, name="g"))  # the same but for its name
    cuda_kernels.begin_function()
    cuda_kernels.define_kernel(
      "triton_poi_f", body(target, dtype="fp16")
    )  # another function's kernel of that name
    call = cuda_kernels.call_kernel("triton_poi_f", ["x", "buf0", "buf1", 7, 1, 100])
  assert [name for name, _ in cuda_kernels.kernels()] == ["triton_poi_f", "triton_poi_f_2"]
  assert call.kernel == "triton_poi_f_2"


def test_a_pointer_of_an_atomic_is_read_and_written():
  target = fake_cuda.Target.load("h200")
  with fake_cuda.cuda(target):
    cuda_kernels = tk.CudaKernels(target)
    cuda_kernels.define_kernel(
      "triton_poi_f", body(target, extra="tl.atomic_add(out_ptr0 + xindex, tmp1, xmask)")
    )
  assert cuda_kernels.kernels()[0][1].access["out_ptr0"] == "both"


def access(extra):
  target = fake_cuda.Target.load("h200")
  with fake_cuda.cuda(target):
    cuda_kernels = tk.CudaKernels(target)
    cuda_kernels.define_kernel("triton_poi_f", body(target, extra=extra))
  return cuda_kernels.kernels()[0][1].access


def test_a_pointer_is_followed_through_a_loop():
  extra = """at = in_ptr0
    for step in range(0, ks0):
        tmp1 += tl.load(at + xindex, xmask)
        at += xnumel"""
  assert access(extra) == {"in_ptr0": "read", "in_out_ptr0": "both", "out_ptr0": "write"}


def test_a_pointer_is_followed_through_a_branch():
  extra = """at = in_ptr0
    if xnumel > 7:
        at = out_ptr0
    tmp1 += tl.load(at + xindex, xmask)"""
  assert access(extra) == {"in_ptr0": "read", "in_out_ptr0": "both", "out_ptr0": "both"}


def test_a_pointer_cast_to_an_int_is_read_and_written():
  extra = """at = (in_ptr0.to(tl.int64) + 64).to(tl.pointer_type(tl.float32))
    tl.store(at + xindex, tmp1, xmask)"""
  assert access(extra)["in_ptr0"] == "both"


# Memory of a launch's own


def test_a_kernel_gets_scratch_for_each_block():
  extra = """desc = tl.make_tensor_descriptor(out_ptr0, [xnumel, 16], [16, 1], [16, 16])
    desc.store([0, 0], tl.zeros([16, 16], tl.float32))"""
  target = fake_cuda.Target.load("h200")
  with fake_cuda.cuda(target):
    cuda_kernels = tk.CudaKernels(target)
    cuda_kernels.define_kernel("triton_poi_f", body(target, extra=extra))
    launch = cuda_kernels.call_kernel("triton_poi_f", ["x", "buf0", "buf1", n, 1, n])
  ((_, kernel),) = cuda_kernels.kernels()
  (size, align), (profile, _) = kernel.scratch
  assert size >= 128 and size % align == 0 and align >= 64 and profile == 0
  assert kernel.types[-2:] == ["ptr", "ptr"] and kernel.access["out_ptr0"] == "write"
  assert launch.arguments[-2:] == [
    ScratchArg(CeilDiv(n, kernel.config["XBLOCK"]) * size, align),
    NullArg(),
  ]


# Kernels that are refused


def refused(text, name="triton_poi_f", key="h200"):
  target = fake_cuda.Target.load(key)
  with fake_cuda.cuda(target), pytest.raises(tk.Unsupported) as failure:
    tk.CudaKernels(target).define_kernel(name, text(target))
  return str(failure.value)


def test_other_kernels_than_triton():
  assert "made by async_compile.cpp_pybinding" in refused(
    lambda target: "async_compile.cpp_pybinding(['float*'], '''void k() {}''')"
  )
  assert "is not understood" in refused(lambda target: "kernel = None")


def test_too_large_scratch_alignment_is_refused():
  import types

  metadata = types.SimpleNamespace(global_scratch_size=64, global_scratch_align=512)
  with pytest.raises(
    tk.Unsupported, match="kernel k: wants scratch at multiples of 512, 256 are the most"
  ):
    launchable.scratch_of("k", metadata)


def test_a_call_with_too_few_arguments():
  target = fake_cuda.Target.load("h200")
  with fake_cuda.cuda(target):
    cuda_kernels = tk.CudaKernels(target)
    cuda_kernels.define_kernel("triton_poi_f", body(target))
    with pytest.raises(tk.Unsupported, match="called with 2 arguments, it takes 6"):
      cuda_kernels.call_kernel("triton_poi_f", ["x", "buf0"])
    with pytest.raises(tk.Unsupported, match="triton_poi_z: called but not defined"):
      cuda_kernels.call_kernel("triton_poi_z", [])


# Grids


def grid(kind, config, scope, **meta):
  return grids.of_call("k", {"grid_type": kind, **meta}, config, {**config, **scope})


def test_grids_with_numbers():
  assert grid("Grid1D", {"XBLOCK": 128}, {"xnumel": 1000}) == (8, 1, 1)
  assert grid("Grid2D", {"XBLOCK": 16, "YBLOCK": 64}, {"xnumel": 17, "ynumel": 65}) == (2, 2, 1)
  assert grid(
    "Grid3D", {"XBLOCK": 1, "YBLOCK": 2, "ZBLOCK": 4}, {"xnumel": 3, "ynumel": 3, "znumel": 9}
  ) == (3, 2, 3)
  assert grid(
    "BatchMatmulGrid3D",
    {"XBLOCK": 1, "YBLOCK": 2, "ZBLOCK": 4},
    {"xnumel": 3, "ynumel": 3, "znumel": 9},
  ) == (3, 2, 3)
  assert grid(
    "FixedGrid",
    {},
    {"_grid_0": 5, "_grid_1": 2, "_grid_2": 1},
    fixed_grid=["_grid_0", "_grid_1", "_grid_2"],
  ) == (5, 2, 1)


def test_a_grid_of_symbols():
  x, y, z = grid("Grid1D", {"XBLOCK": 128}, {"xnumel": 10 * n})
  assert (x.subs(n, 13), x.subs(n, 0), y, z) == (2, 0, 1, 1)


@pytest.mark.parametrize(
  "rows, expected",
  [
    (0, (1, 0, 0)),
    (1, (1, 1, 1)),
    (65535, (1, 65535, 1)),
    (65536, (1, 32768, 2)),
    (200000, (1, 50000, 4)),
  ],
)
def test_rows_beyond_the_limit_go_to_z(rows, expected):
  y = sympy.Symbol("y", integer=True, nonnegative=True)
  sides = grid("Grid2DWithYZOverflow", {"XBLOCK": 1, "YBLOCK": 1}, {"xnumel": 1, "ynumel": y})
  assert tuple(int(side.subs(y, rows)) for side in sides) == expected


def test_unknown_grid_is_refused():
  with pytest.raises(tk.Unsupported, match="kernel k: grid type 'Spiral' is not known"):
    grid("Spiral", {}, {})
  with pytest.raises(tk.Unsupported, match="is not understood"):
    grid("FixedGrid", {}, {}, fixed_grid=["a ** b", 1, 1])
