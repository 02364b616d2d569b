"""compare.py: what breaks programs that were compiled against an older C interface, and what does
not. Each case changes the description of today's interface and states the lines that follow.

  python3 tests/bindings/test_compare.py
"""

import copy
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

ABI = pathlib.Path(__file__).resolve().parents[2] / "runtime/bindings/abi"
sys.path.insert(0, str(ABI))

import compare  # noqa: E402

TODAY = json.loads((ABI / "abi.json").read_text())
CREATE = TODAY["functions"]["husk_engine_create"]["parameters"]
# A struct that grows, and its last field.
OPTIONS = "husk_session_options"
SIZE = TODAY["structs"][OPTIONS]["size"]
LAST, LAST_FIELD = list(TODAY["structs"][OPTIONS]["fields"].items())[-1]


def remove(*path):
  def edit(abi):
    for key in path[:-1]:
      abi = abi[key]
    abi.remove(path[-1]) if isinstance(abi, list) else abi.pop(path[-1])

  return edit


def put(value, *path):
  def edit(abi):
    for key in path[:-1]:
      abi = abi[key]
    abi.append(value) if isinstance(abi, list) else abi.update({path[-1]: value})

  return edit


def both(*edits):
  def edit(abi):
    for one in edits:
      one(abi)

  return edit


def field(struct, name, offset):
  return put({"type": "i32", "offset": offset}, "structs", struct, "fields", name)


def size(struct, value):
  return put(value, "structs", struct, "size")


def renamed(abi):
  create = abi["functions"]["husk_engine_create"]
  create["parameters"] = {f"{name}_": kind for name, kind in create["parameters"].items()}


# By name: what changed since OLD, and the lines about it.
CASES = {
  "nothing": (both(), []),
  "constant_gone": (
    remove("constants", "HUSK_LOG_WARNING"),
    ["constant HUSK_LOG_WARNING is gone"],
  ),
  "constant_value": (
    put(7, "constants", "HUSK_LOG_WARNING"),
    ["constant HUSK_LOG_WARNING changed from 1 to 7"],
  ),
  "constant_new": (put(2, "constants", "HUSK_LOG_ERROR"), ["new: constant HUSK_LOG_ERROR"]),
  "opaque_gone": (remove("opaque", "husk_port"), ["opaque struct husk_port is gone"]),
  "opaque_new": (put("husk_queue", "opaque", None), ["new: opaque struct husk_queue"]),
  "function_gone": (
    remove("functions", "husk_version"),
    ["function husk_version is gone"],
  ),
  "function_library": (
    put("husk_ops", "functions", "husk_version", "library"),
    ["function husk_version: its library changed from husk to husk_ops"],
  ),
  "function_parameter_more": (
    put("u32", "functions", "husk_version", "parameters", "flags"),
    ["function husk_version: its parameters changed from () to (u32)"],
  ),
  "function_parameter_order": (
    put(dict(reversed(CREATE.items())), "functions", "husk_engine_create", "parameters"),
    [
      "function husk_engine_create: its parameters changed from (const husk_engine_options*, "
      "husk_engine**, husk_error*) to (husk_error*, husk_engine**, const husk_engine_options*)"
    ],
  ),
  "function_result": (
    put("i32", "functions", "husk_version", "result"),
    ["function husk_version: its result changed from const char* to i32"],
  ),
  "function_parameter_name": (renamed, []),
  "function_new": (
    put(TODAY["functions"]["husk_version"], "functions", "husk_build"),
    ["new: function husk_build"],
  ),
  "struct_gone": (remove("structs", "husk_trace_event"), ["struct husk_trace_event is gone"]),
  "struct_new": (
    put(TODAY["structs"]["husk_threads"], "structs", "husk_pool"),
    ["new: struct husk_pool"],
  ),
  "struct_alignment": (
    put(16, "structs", "husk_op", "alignment"),
    ["struct husk_op: its alignment changed from 8 to 16"],
  ),
  "field_gone": (
    remove("structs", "husk_op", "fields", "pack"),
    ["struct husk_op: the field pack is gone"],
  ),
  "field_moved": (
    put(24, "structs", "husk_op", "fields", "name", "offset"),
    ["struct husk_op: the offset of name changed from 8 to 24"],
  ),
  "field_type": (
    put("u64", "structs", "husk_value", "fields", "kind", "type"),
    ["struct husk_value: the type of kind changed from i32 to u64"],
  ),
  "field_union": (
    remove("structs", "husk_value", "fields", "as", "type", "union", "f"),
    [
      "struct husk_value: the type of as changed from union {DLTensor* tensor; i64 i; f64 f} "
      "to union {DLTensor* tensor; i64 i}"
    ],
  ),
  "field_callback": (
    put("void", "structs", "husk_op_context", "fields", "cancel", "type", "function", "result"),
    ["struct husk_op_context: the type of cancel changed from i32 (*)(void*) to void (*)(void*)"],
  ),
  "fixed_size": (size("husk_error", 256), ["struct husk_error: its size changed from 252 to 256"]),
  "fixed_field": (
    both(field("husk_threads", "extra", 24), size("husk_threads", 32)),
    [
      "struct husk_threads: it has no struct_size, and the field extra is new",
      "struct husk_threads: its size changed from 24 to 32",
    ],
  ),
  "growing_size_less": (
    size(OPTIONS, SIZE - 8),
    [f"struct {OPTIONS}: its size changed from {SIZE} to {SIZE - 8}"],
  ),
  "growing_inserted": (
    both(
      field(OPTIONS, "extra", LAST_FIELD["offset"]),
      put(SIZE, "structs", OPTIONS, "fields", LAST, "offset"),
      size(OPTIONS, SIZE + 8),
    ),
    [
      f"struct {OPTIONS}: the offset of {LAST} changed from {LAST_FIELD['offset']} to {SIZE}",
      f"struct {OPTIONS}: the new field extra lies in the first {SIZE} bytes: append it",
    ],
  ),
  "growing_in_padding": (
    field(OPTIONS, "extra", SIZE - 4),
    [f"struct {OPTIONS}: the new field extra lies in the first {SIZE} bytes: append it"],
  ),
  "growing_appended": (
    both(field(OPTIONS, "extra", SIZE), size(OPTIONS, SIZE + 8)),
    [f"new: struct {OPTIONS}: the field extra"],
  ),
}


class Compare(unittest.TestCase):
  maxDiff = None

  def exits(self, new):
    with tempfile.TemporaryDirectory() as folder:
      path = pathlib.Path(folder, "new.json")
      path.write_text(new)
      command = [sys.executable, ABI / "compare.py", ABI / "abi.json", path]
      return subprocess.run(command, capture_output=True, text=True)

  def test_exit_codes(self):
    for name, code in (("constant_gone", 1), ("constant_new", 0), ("nothing", 0)):
      new = copy.deepcopy(TODAY)
      edit, lines = CASES[name]
      edit(new)
      done = self.exits(json.dumps(new))
      self.assertEqual((done.returncode, done.stdout.splitlines()), (code, lines), done.stderr)

  def test_files_that_are_no_description(self):
    for wrong in ("{", "[]", '{"constants": {}}'):
      done = self.exits(wrong)
      self.assertEqual(done.returncode, 2, done.stdout)
      self.assertIn("new.json", done.stderr)
      self.assertNotIn("Traceback", done.stderr)


def case(edit, lines):
  def test(self):
    new = copy.deepcopy(TODAY)
    edit(new)
    self.assertEqual(list(compare.compare(TODAY, new)), lines)

  return test


for name, (edit, lines) in CASES.items():
  setattr(Compare, f"test_{name}", case(edit, lines))

if __name__ == "__main__":
  unittest.main()
