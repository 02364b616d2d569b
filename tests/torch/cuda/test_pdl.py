"""The wait at the start of a kernel: inserted, found in the PTX, and rejected if the kernel
accesses memory before it."""

import pytest
from husk.cuda import pdl

SOURCE = '''import triton
import triton.language as tl

@triton.jit
def helper(x):
    return x

@triton.jit
def kernel(in_ptr0,
           out_ptr0, n, BLOCK: tl.constexpr):
    """Adds one."""
    i = tl.program_id(0)
    tl.store(out_ptr0 + i, helper(tl.load(in_ptr0 + i)) + 1)
'''


def test_rewritten_kernel_waits_first():
  lines = pdl.rewrite(SOURCE, "kernel", trigger=False).split("\n")
  at = lines.index('    """Adds one."""')
  assert lines[at + 1] == "    tl.extra.cuda.gdc_wait()"
  assert lines[at + 2] == "    i = tl.program_id(0)"
  assert "\n".join(lines[: at + 1] + lines[at + 2 :]) == SOURCE


def test_rewritten_kernel_triggers_before_the_wait():
  lines = pdl.rewrite(SOURCE, "kernel", trigger=True).split("\n")
  at = lines.index("    tl.extra.cuda.gdc_wait()")
  assert lines[at - 1] == "    tl.extra.cuda.gdc_launch_dependents()"


def test_only_the_named_function_changes():
  assert pdl.rewrite(SOURCE, "helper", trigger=False).count("gdc_wait") == 1
  with pytest.raises(ValueError, match="kernel other: no function of that name"):
    pdl.rewrite(SOURCE, "other", trigger=False)


def test_a_body_on_the_line_of_its_def_is_refused():
  with pytest.raises(ValueError, match="line of its own"):
    pdl.rewrite("def kernel(x): y = x\n", "kernel", trigger=False)


def ptx(body, name="kernel"):
  return f""".version 8.7
.target sm_90a
.visible .entry other(
	.param .u64 other_param_0
)
{{
	ld.global.b32 %r1, [%rd1];
	ret;
}}
.visible .entry {name}(
	.param .u64 .ptr .global .align 1 {name}_param_0
)
.reqntid 128
{{
	.reg .b32 	%r<4>;
	.shared .align 4 .b8 room[16];
// %bb.0:
{body}
}}
"""


BEFORE = """	ld.param.b64 	%rd1, [kernel_param_0];
	mov.u32 	%r1, %ctaid.x;
	shl.b32 	%r2, %r1, 7;
	mad.wide.s32 	%rd2, %r2, 4, %rd1;
"""
WAIT = """	// begin inline asm
	griddepcontrol.wait; // dummy %r9
	// end inline asm
"""


def test_computations_may_precede_the_wait():
  found = pdl.check(ptx(BEFORE + WAIT + "\tld.global.b32 %r1, [%rd2];\n\tret;"), "kernel")
  assert (found.first, found.triggers, found.why_not) == (True, False, None)


def test_vectors_of_registers_and_numbers_are_parts_of_instructions():
  vectors = """	mov.b32 	%r1, {1006648320, 1006648320};
	mov.b32 	%r2, {%rs1, 0};
	mov.b32 	{%rs2, %rs3}, %r1;
"""
  for before in (vectors, BEFORE + vectors):
    assert pdl.check(ptx(before + WAIT), "kernel").first


ADDRESSES = """	mov.u32 	%r1, %ctaid.x;
	setp.lt.u32 	%p1, %r1, 4;
	mov.b32 	%r2, kernel_param_2;
	mov.b32 	%r3, kernel_param_1;
	selp.b32 	%r4, %r3, %r2, %p1;
	ld.param.b64 	%rd1, [%r4];
	mad.wide.s32 	%rd2, %r1, 4, %rd1;
	ld.global.b32 	%r5, [%rd2];
"""


def test_the_address_of_a_parameter_may_be_chosen():
  """The form of later versions of LLVM for a pointer that is one of several."""
  found = pdl.check(ptx(ADDRESSES + WAIT), "kernel", reads_early=True)
  assert found.first and found.reads == {1, 2}
  for unknown in ("ld.shared.b32 \t%r4, [room]", "mov.u32 \t%r4, %tid.x"):
    text = ADDRESSES.replace("selp.b32 \t%r4, %r3, %r2, %p1", unknown)
    assert not pdl.check(ptx(text + WAIT), "kernel", reads_early=True).first


def test_allocation_of_tensor_memory_may_precede_the_wait():
  """The form that Triton writes for compute capability 10.0."""
  taken = """	@%p3 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r1], 256;
	bar.sync 	0;
	ld.shared.b32 	%r2, [room];
	bar.sync 	0;
	@%p3 tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;
"""
  text = ptx(BEFORE + taken + WAIT + "\tret;")
  assert pdl.check(text, "kernel").first
  assert not pdl.may_trigger(text) and pdl.may_trigger(ptx(BEFORE + WAIT))
  assert not pdl.check(ptx(taken + "\t@%p3 bra $L__BB0_2;\n" + WAIT), "kernel").first


PARTS = """	mov.u32 	%r1, %tid.x;
	shr.u32 	%r5, %r1, 5;
	shfl.sync.idx.b32 	%r2, %r5, 0, 31, -1;
	setp.lt.u32 	%p1, %r2, 4;
"""
FIRST = (
  """	setmaxnreg.inc.sync.aligned.u32 	240;
"""
  + WAIT
  + """	st.shared.b32 	[room], %r1;
	bar.sync 	0, 128;
	barrier.sync 	1;
	ret;
"""
)
OTHERS = """	ld.param.b64 	%rd5, [kernel_param_0];
	bra.uni 	$L__BB0_3;
$L__BB0_4:
	ld.shared.b32 	%r6, [room];
	ret;
$L__BB0_3:
	setmaxnreg.dec.sync.aligned.u32 	24;
	barrier.sync 	1;
	bra.uni 	$L__BB0_4;
"""
PARTED = {
  "the others go on": PARTS
  + "\t@%p1 bra $L__BB0_2;\n\tbra.uni $L__BB0_1;\n$L__BB0_2:\n"
  + FIRST
  + "$L__BB0_1:\n"
  + OTHERS,
  "the first go on": PARTS + "\t@!%p1 bra $L__BB0_1;\n" + FIRST + "$L__BB0_1:\n" + OTHERS,
}


@pytest.mark.parametrize("text", PARTED.values(), ids=PARTED)
def test_wait_of_one_warp_group_is_first_if_the_others_stop_at_a_barrier(text):
  """The form that Triton writes for a kernel whose warps share the work."""
  found = pdl.check(ptx(text), "kernel")
  assert (found.first, found.why_not) == (True, None)


@pytest.mark.parametrize(
  "before, after",
  [
    ("\tbarrier.sync \t1;\n\tbra", "\tbarrier.sync \t1, 256;\n\tbra"),  # a barrier of some warps
    # memory before the wait
    ("\tsetmaxnreg.dec", "\tst.global.b32 [%rd1], %r7;\n\tsetmaxnreg.dec"),
    ("\tld.param.b64 \t%rd5", "\tld.global.b64 \t%rd5, [%rd1];\n\tld.param.b64 \t%rd5"),
    ("\tbarrier.sync \t1;\n\tbra", "\tret;\n\tbra"),  # the warps never reach a wait
    ("\tbra.uni \t$L__BB0_3;", "\t@%p3 bra \t$L__BB0_3;"),  # only some warps go there
    ("\tbra.uni \t$L__BB0_3;", "\tbra.uni \t$L__BB0_9;"),
    ("setp.lt.u32 \t%p1, %r2, 4", "setp.lt.u32 \t%p1, %r2, 0"),  # no warp waits
    ("setp.lt.u32 \t%p1, %r2, 4", "setp.gt.u32 \t%p1, %r2, 4"),
    # a condition on something else than the thread
    ("shr.u32 \t%r5, %r1, 5", "shr.u32 \t%r5, %r4, 5"),
    (
      "\tsetmaxnreg.inc",
      "\tst.shared.b32 \t[room], %r1;\n\tsetmaxnreg.inc",
    ),  # memory before the wait
    ("\tgriddepcontrol.wait;", "\tmov.u32 \t%r9, 0;"),
  ],
)
def test_wait_of_one_warp_group_is_not_first_otherwise(before, after):
  for text in PARTED.values():
    assert text.count(before) == 1
    assert not pdl.check(ptx(text.replace(before, after)), "kernel").first


def test_trigger_is_found_at_any_position():
  trigger = "\tgriddepcontrol.launch_dependents;\n"
  assert pdl.check(ptx(trigger + WAIT + "\tret;"), "kernel").triggers
  assert pdl.check(
    ptx(WAIT + "\tst.global.b32 [%rd2], %r1;\n" + trigger + "\tret;"), "kernel"
  ).triggers


@pytest.mark.parametrize(
  "instruction",
  [
    "ld.global.b32 %r1, [%rd2];",
    "ld.b32 %r1, [%rd2];",
    "ld.const.b32 %r1, [table];",
    "st.global.b32 [%rd2], %r1;",
    "st.shared::cluster.b32 [room], %r1;",
    "@%p1 ld.global.b32 %r1, [%rd2];",
    "@%p1 mov.u32 %r1, 0;",
    "atom.global.add.u32 %r1, [%rd2], 1;",
    "red.global.add.u32 [%rd2], 1;",
    "cp.async.cg.shared.global [room], [%rd2], 16;",
    "cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes [room], [%rd2, "
    "{%r1, %r2}], [%r3];",
    "prefetch.global.L2 [%rd2];",
    "createpolicy.fractional.L2::evict_last.b64 %rd17, 1.0;",
    "mbarrier.init.shared.b64 [room], 1;",
    "wgmma.fence.sync.aligned;",
    "call.uni other, (param0);",
    "bra $L__BB0_2;",
    "@%p1 bra $L__BB0_2;",
    "$L__BB0_1:",
    "ret;",
    "{ ld.global.b32 %r1, [%rd2]; }",
    "mov.u32 %r1, 0; ld.global.b32 %r1, [%rd2];",
  ],
)
def test_memory_access_and_jumps_may_not_precede_the_wait(instruction):
  found = pdl.check(ptx(BEFORE + "\t" + instruction + "\n" + WAIT + "\tret;"), "kernel")
  assert not found.first
  assert found.why_not.split()[0].rstrip(";") in instruction


def test_a_guarded_wait_does_not_count():
  assert not pdl.check(ptx("\t@%p1 griddepcontrol.wait;\n\tret;"), "kernel").first


def test_a_kernel_without_a_wait():
  assert pdl.check(ptx(BEFORE), "kernel").why_not == "the end of the kernel"


def test_a_wait_in_a_comment_does_not_count():
  assert not pdl.check(
    ptx("\t// griddepcontrol.wait;\n\t/* griddepcontrol.wait; */\n\tret;"), "kernel"
  ).first


def test_a_missing_entry_is_an_error():
  with pytest.raises(ValueError, match="no entry nothing"):
    pdl.check(ptx(WAIT), "nothing")


@pytest.mark.parametrize(
  "policy, largest, early",
  [
    ("small", 1, True),
    ("small", 132, True),
    ("small", 133, False),
    ("small", None, False),
    ("never", 1, False),
  ],
)
def test_triggers_early(policy, largest, early):
  assert pdl.triggers_early(policy, largest, 132) is early


def test_an_unknown_policy_is_refused():
  with pytest.raises(ValueError, match="'often'.*'never', 'small'"):
    pdl.triggers_early("often", 1, 132)


def test_capabilities_that_support_the_wait():
  assert [
    capability for capability in (80, 87, 89, 90, 100, 110, 120) if pdl.supported(capability)
  ] == [90, 100, 110, 120]
