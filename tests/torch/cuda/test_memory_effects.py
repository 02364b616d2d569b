"""The pointers that a kernel reads and writes, on hand-written intermediate forms."""

import pytest
from husk.cuda.memory_effects import accesses


def access(*body):
  lines = "\n".join("    " + line for line in body)
  text = f"""#loc = loc("k.py":1:0)
module {{
  tt.func public @k(%a: !tt.ptr<f32> {{tt.divisibility = 16 : i32}} loc("a"(#loc)), \
%n: i32 loc(#loc), %b: !tt.ptr<f32> loc(#loc)) attributes {{noinline = false}} {{
{lines}
    tt.return loc(#loc)
  }} loc(#loc)
}} loc(#loc)
"""
  found = accesses(text, "k", ["a", "b"])
  return found["a"], found["b"]


LOAD = "%0 = tt.load %a : !tt.ptr<f32> loc(#loc1)"


def test_loads_and_stores():
  assert access(LOAD, "tt.store %b, %0 : !tt.ptr<f32>") == ("read", "write")


def test_unused_pointers_are_read():
  assert access() == ("read", "read")


def test_offsets_shapes_and_choices_keep_the_pointer():
  assert access(
    "%1 = tt.splat %a : !tt.ptr<f32> -> tensor<8x!tt.ptr<f32>>",
    "%2 = tt.addptr %1, %9 : tensor<8x!tt.ptr<f32>>, tensor<8xi32>",
    "%3 = tt.splat %b : !tt.ptr<f32> -> tensor<8x!tt.ptr<f32>>",
    "%4 = arith.select %c, %2, %3 : tensor<8xi1>, tensor<8x!tt.ptr<f32>>",
    "tt.store %4, %cst : tensor<8x!tt.ptr<f32>>",
    "%5 = tt.load %2 : tensor<8x!tt.ptr<f32>>",
  ) == ("both", "write")


def test_atomics():
  add = "%1 = tt.atomic_rmw fadd, acq_rel, gpu, %b, %c, %true : (!tt.ptr<f32>, f32, i1) -> f32"
  assert access(add) == ("read", "both")
  assert access(
    "%1 = tt.atomic_cas acq_rel, gpu, %a, %c, %d : (!tt.ptr<f32>, f32, f32) -> f32"
  ) == ("both", "read")


LOOP = [
  "%r:2 = scf.for %i = %c0 to %n step %c1 iter_args(%acc = %cst, %at = %a) -> (f32, !tt.ptr<f32>)  "
  ": i32 {",
  "  %1 = tt.load %at : !tt.ptr<f32>",
  "  %2 = tt.addptr %at, %n : !tt.ptr<f32>, i32",
  "  scf.yield %1, %2 : f32, !tt.ptr<f32>",
  "}",
]


def test_a_loop():
  assert access(*LOOP) == ("read", "read")
  assert access(*LOOP, "tt.store %r#1, %r#0 : !tt.ptr<f32>") == ("both", "read")


def test_a_name_may_be_a_number_and_later_a_pointer():
  loop = "scf.for %i = %c0 to %n step %c1  : i32 {"
  assert access(
    loop,
    "  %1 = tt.load %a : !tt.ptr<f32>",
    "  %2 = arith.addf %1, %cst : f32",
    '  %3 = "tt.reduce"(%2) <{axis = 0 : i32}> ({',
    "  ^bb0(%x: f32, %y: f32):",
    "    tt.reduce.return %x : f32",
    "  }) : (tensor<8xf32>) -> f32",
    "  tt.store %b, %2 : !tt.ptr<f32>",
    "}",
    loop,
    "  %1 = tt.addptr %a, %n : !tt.ptr<f32>, i32",
    "  %2 = tt.addptr %1, %n : !tt.ptr<f32>, i32",
    "  %3 = tt.load %2 : !tt.ptr<f32>",
    "}",
  ) == ("read", "write")


def test_a_pointer_that_is_stored():
  assert access("tt.store %p, %b : !tt.ptr<!tt.ptr<f32>>")[1] == "both"


def test_a_loop_that_swaps_its_pointers():
  assert access(
    "%r:2 = scf.for %i = %c0 to %n step %c1 iter_args(%x = %a, %y = %b) "
    "-> (!tt.ptr<f32>, !tt.ptr<f32>) : i32 {",
    "  %1 = tt.load %x : !tt.ptr<f32>",
    "  tt.store %y, %1 : !tt.ptr<f32>",
    "  scf.yield %y, %x : !tt.ptr<f32>, !tt.ptr<f32>",
    "}",
  ) == ("both", "both")


def test_a_branch():
  assert access(
    "%p = scf.if %c -> (!tt.ptr<f32>) {",
    "  scf.yield %a : !tt.ptr<f32>",
    "} else {",
    "  scf.yield %b : !tt.ptr<f32>",
    "}",
    "tt.store %p, %cst : !tt.ptr<f32>",
  ) == ("write", "write")


def test_attributes_in_braces_are_not_regions():
  assert access(
    "%p = scf.if %c -> (!tt.ptr<f32>) {",
    "  %8 = tt.make_range {end = 16 : i32, start = 0 : i32} : tensor<16xi32>",
    "  scf.yield %a : !tt.ptr<f32>",
    "} else {",
    "  scf.yield %b : !tt.ptr<f32>",
    "} {some.attribute}",
    "tt.store %p, %cst : !tt.ptr<f32>",
  ) == ("write", "write")


def test_jumps():
  assert access(
    "cf.cond_br %c, ^bb1(%a : !tt.ptr<f32>), ^bb2",
    "^bb1(%x: !tt.ptr<f32> loc(#loc)):  // pred: ^bb0",
    "tt.store %x, %cst : !tt.ptr<f32>",
    "cf.br ^bb2",
    "^bb2:  // 2 preds",
  ) == ("write", "read")


def test_descriptors():
  descriptor = "%d = tt.make_tensor_descriptor %{}, [%n], [%c1] : <f32>, <tensor<16xf32>>".format
  load = "%v = tt.descriptor_load %d[%c0] : !tt.tensordesc<tensor<16xf32>> -> tensor<16xf32>"
  store = "tt.descriptor_store %d[%c0], %v : !tt.tensordesc<tensor<16xf32>>, tensor<16xf32>"
  add = "tt.descriptor_reduce add, %d[%c0], %v : !tt.tensordesc<tensor<16xf32>>, tensor<16xf32>"
  assert access(LOAD, descriptor("b"), load) == ("read", "read")
  assert access(LOAD, descriptor("b"), store) == ("read", "write")
  assert access(LOAD, descriptor("b"), add) == ("read", "both")
  assert access(
    LOAD, descriptor("b"), "tt.call @other(%d) : (!tt.tensordesc<tensor<16xf32>>) -> ()"
  ) == (
    "read",
    "both",
  )


@pytest.mark.parametrize(
  "line",
  [
    "%1 = tt.ptr_to_int %b : !tt.ptr<f32> -> i64",
    "tt.call @other(%b) : (!tt.ptr<f32>) -> ()",
    '%1 = "tt.something"(%b) : (!tt.ptr<f32>) -> f32',
    "%r = scf.while (%x = %b) : (!tt.ptr<f32>) -> !tt.ptr<f32> {",
  ],
)
def test_pointers_that_escape_are_read_and_written(line):
  assert access(LOAD, line) == ("read", "both")


def test_access_of_unknown_origin_affects_all_pointers():
  lines = "%1 = tt.int_to_ptr %n : i64 -> !tt.ptr<f32>", "tt.store %1, %cst : !tt.ptr<f32>"
  assert access(*lines) == ("write", "write")
  assert access(LOAD, *lines) == ("both", "write")


def test_other_functions_do_not_count():
  assert access(
    LOAD,
    "tt.return",
    "}",
    "tt.func private @f(%a: !tt.ptr<f32>) {",
    "tt.store %a, %cst : !tt.ptr<f32>",
  ) == ("read", "read")


def test_other_pointers_than_expected():
  assert accesses("tt.func public @k(%a: !tt.ptr<f32>) {\n", "k", ["a", "b"]) is None
  assert accesses("tt.func public @k(%a: !tt.ptr<f32>) {\n", "j", ["a"]) is None


# The operands of both partitions.
OPERANDS = "(%x: !tt.ptr<f32> loc(unknown), %1: i32 loc(unknown), %y: !tt.ptr<f32> loc(unknown))"
PARTITIONS = """ttg.warp_specialize(%b, %n, %a) attributes {requestedRegisters = array<i32: 24>}
default {
  %1 = tt.load %a : !tt.ptr<f32>
  ttg.warp_yield loc(#loc1)
}
partition0OPERANDS num_warps(4) {
  %2 = tt.addptr %y, %1 : !tt.ptr<f32>, i32
  FIRST
  ttg.warp_return
}
partition1OPERANDS num_warps(4) {
  %2 = tt.addptr %x, %1 : !tt.ptr<f32>, i32
  SECOND
  ttg.warp_return
} : (!tt.ptr<f32>, i32, !tt.ptr<f32>) -> ()""".replace("OPERANDS", OPERANDS)


@pytest.mark.parametrize(
  "first, second, expected",
  [
    (
      "%3 = ttg.async_copy_global_to_local %2, %t : tensor<8x!tt.ptr<f32>> -> <8xf32, #shared, "
      "#smem, mutable>",
      "tt.store %2, %3 : !tt.ptr<f32>",
      ("read", "write"),
    ),
    ("%3 = tt.load %2 : !tt.ptr<f32>", "%3 = tt.load %2 : !tt.ptr<f32>", ("read", "read")),
    ("tt.store %2, %1 : !tt.ptr<f32>", "%3 = tt.load %2 : !tt.ptr<f32>", ("both", "read")),
    ("some.thing %2 : !tt.ptr<f32>", "tt.store %x, %1 : !tt.ptr<f32>", ("both", "write")),
  ],
)
def test_accesses_in_warp_partitions(first, second, expected):
  """Functions have names of their own for values, which mean the arguments of the call."""
  text = PARTITIONS.replace("FIRST", first).replace("SECOND", second)
  assert access(*text.split("\n")) == expected
