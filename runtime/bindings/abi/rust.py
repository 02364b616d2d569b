"""The declarations of husk-sys, from the description of the C interface."""

from typing import Any

HEAD = """// The C interface of Husk, written by runtime/bindings/abi/describe.py from the headers.
// husk.h, op.h, types.h, ports.h, port_host.h, port_cuda.h, ops.h, weights.h, text.h, generate.h
// and sound.h describe what stands here.
"""
KEYWORDS = {"as", "fn", "in", "loop", "match", "mod", "move", "ref", "self", "type", "use"}
COLUMNS = 100
UNNAMED = 'unsafe extern "C" fn'
FEATURES = {"husk_text": "text"}  # libraries that a program needs only with a feature of the crate
SCALARS = {"void": "c_void", "char": "c_char"}


def name_of(name: str) -> str:
  return f"{name}_" if name in KEYWORDS else name


def type_of(kind: Any) -> str:
  if isinstance(kind, str):
    return SCALARS.get(kind, kind)
  if "struct" in kind:
    return kind["struct"]
  if "array" in kind:
    return f"[{type_of(kind['array'])}; {kind['count']}]"
  if "function" in kind:
    return f"Option<{signature('', kind['function']['parameters'], kind['function']['result'])}>"
  return f"*{'const' if kind['const'] else 'mut'} {type_of(kind['pointer'])}"


def signature(name: str, parameters: Any, result: Any) -> str:
  if isinstance(parameters, dict):
    listed = ", ".join(f"{name_of(one)}: {type_of(kind)}" for one, kind in parameters.items())
  else:
    listed = ", ".join(map(type_of, parameters))
  head = f"fn {name}" if name else UNNAMED
  return f"{head}({listed}){returned(result)}"


def returned(result: Any) -> str:
  return "" if result == "void" else f" -> {type_of(result)}"


def record(name: str, kind: str, fields: Any) -> list[str]:
  """The lines of a struct or of a union, after those of the unions inside it."""
  lines, inner = [], []
  for field, described in fields.items():
    if "union" in described["type"]:
      text = f"{name}_{field}"
      inner += record(text, "union", described["type"]["union"])
    else:
      text = type_of(described["type"])
    line = f"    pub {name_of(field)}: {text},"
    if len(line) <= COLUMNS:
      lines.append(line)
    else:
      function = described["type"]["function"]
      lines += [f"    pub {name_of(field)}: Option<", f"        {UNNAMED}("]
      lines += [f"            {type_of(one)}," for one in function["parameters"]]
      lines += [f"        ){returned(function['result'])},", "    >,"]
  derived = "#[derive(Clone, Copy)]"
  return [*inner, "#[repr(C)]", derived, f"pub {kind} {name} {{", *lines, "}", ""]


def declaration(name: str, function: Any) -> list[str]:
  line = f"    pub {signature(name, function['parameters'], function['result'])};"
  if len(line) <= COLUMNS:
    return [line]
  parameters = [
    f"        {name_of(one)}: {type_of(kind)}," for one, kind in function["parameters"].items()
  ]
  return [f"    pub fn {name}(", *parameters, f"    ){returned(function['result'])};"]


def layout_test(structs: Any) -> list[str]:
  lines = ["#[cfg(test)]", "#[test]", "fn layouts() {", "    use std::mem::{align_of, size_of};"]
  for name, struct in structs.items():
    lines.append(f"    assert_eq!(size_of::<{name}>(), {struct['size']});")
    lines.append(f"    assert_eq!(align_of::<{name}>(), {struct['alignment']});")
    lines += [
      f"    assert_eq!(offset_of!({name}, {name_of(field)}), {one['offset']});"
      for field, one in struct["fields"].items()
    ]
  return [*lines, "}", ""]


def text(abi: Any) -> str:
  lines = [HEAD, "use std::os::raw::{c_char, c_void};", ""]
  lines += [f"pub const {name}: i32 = {value};" for name, value in abi["constants"].items()]
  lines.append("")
  for name in abi["opaque"]:
    lines += ["#[repr(C)]", f"pub struct {name} {{", "    _opaque: [u8; 0],", "}", ""]
  for name, struct in abi["structs"].items():
    lines += record(name, "struct", struct["fields"])
  for library in sorted({function["library"] for function in abi["functions"].values()}):
    if library in FEATURES:
      lines.append(f'#[cfg(feature = "{FEATURES[library]}")]')
    lines += [f'#[link(name = "{library}")]', 'extern "C" {']
    for name, function in abi["functions"].items():
      if function["library"] == library:
        lines += declaration(name, function)
    lines += ["}", ""]
  return "\n".join([*lines, *layout_test(abi["structs"])])
