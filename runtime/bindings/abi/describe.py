"""Writes abi.json, the description of the C interface from which bindings are generated, and the
declarations of the bindings that are generated from it.

  python3 describe.py [--check]

The description is what clang understands of the public headers, for targets whose pointers have 64
bits. --check writes nothing, and fails if a file is not what would be written.

abi.json has these entries:

  constants   the values of all enums, by name
  opaque      the names of structs of which a caller only holds pointers
  structs     by name: size and alignment in bytes, and the fields with type and offset
  functions   by name: the parameters, the type of the result, and the library that has it

A type is one of

  "void" "char" "u8" "i32" "u32" "i64" "u64" "usize" "f32" "f64"   (a char is one byte of UTF-8)
  {"struct": NAME}
  {"pointer": TYPE, "const": BOOL}        "const": nothing is written through the pointer
  {"array": TYPE, "count": N}
  {"union": FIELDS}
  {"function": {"parameters": [TYPE...], "result": TYPE}}     a pointer to a function; may be null
"""

import json
import pathlib
import re
import subprocess
import sys
from typing import Any

import java
import rust

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path.append(str(ROOT / "schema"))
import written  # noqa: E402

LIBRARIES = {
  "husk": ["husk/husk.h", "husk/ports.h", "husk/port_host.h", "husk/port_cuda.h"],
  "husk_ops": ["husk/ops.h", "husk/weights.h"],
  "husk_text": ["husk/text.h", "husk/generate.h", "husk/sound.h"],
}
INCLUDE = ["runtime/include", "ports/host/include", "ports/cuda/include", "runtime/text/include"]
# Who writes a port of their own writes it in C or C++.
OPAQUE = {"husk_port"}
SCALARS = {
  "void": ("void", 0),
  "char": ("char", 1),
  "uint8_t": ("u8", 1),
  "int32_t": ("i32", 4),
  "uint32_t": ("u32", 4),
  "uint16_t": ("u16", 2),
  "int64_t": ("i64", 8),
  "uint64_t": ("u64", 8),
  "size_t": ("usize", 8),
  "float": ("f32", 4),
  "double": ("f64", 8),
  "int": ("i32", 4),
}
WIDTHS = dict(SCALARS.values())
Type = Any  # of abi.json, see above


def clang(source: str, *options: str) -> str:
  command = ["clang", "-x", "c", "-std=c11", "-fsyntax-only", *options]
  command += [f"-I{ROOT / folder}" for folder in INCLUDE]
  run = subprocess.run([*command, "-"], input=source, stdout=subprocess.PIPE, text=True, check=True)
  return run.stdout


def syntax_tree(header: str) -> list[Any]:
  dump = clang(f"#include <{header}>\n", "-Xclang", "-ast-dump=json")
  return json.loads(dump)["inner"]


def compare_layouts(structs: dict[str, Any]) -> None:
  """Fails if a size or an offset is not that of the compiler."""
  lines = ["#include <stddef.h>"]
  lines += [f"#include <{header}>" for headers in LIBRARIES.values() for header in headers]
  for name, struct in structs.items():
    lines.append(f'_Static_assert(sizeof({name}) == {struct["size"]}, "{name}");')
    lines.append(f'_Static_assert(_Alignof({name}) == {struct["alignment"]}, "{name}");')
    lines += [
      f'_Static_assert(offsetof({name}, {field}) == {one["offset"]}, "{name}.{field}");'
      for field, one in struct["fields"].items()
    ]
  clang("\n".join([*lines, ""]))


class Description:
  """What the trees of some headers declare."""

  def __init__(self) -> None:
    self.constants: dict[str, int] = {}
    self.records: dict[str, Any] = {}
    self.aliases: dict[str, str] = {}
    self.functions: dict[str, Any] = {}
    self.structs: dict[str, Any] = {}
    self.opaque: set[str] = set()

  def add(self, library: str, tree: list[Any]) -> None:
    for node in tree:
      name = node.get("name", "")
      if node["kind"] == "EnumDecl":
        self._add_enum(node)
      elif node["kind"] == "RecordDecl" and node.get("completeDefinition"):
        self.records[name or node["id"]] = node
      elif node["kind"] == "TypedefDecl":
        self._add_alias(name, node)
      elif node["kind"] == "FunctionDecl" and name.startswith("husk_"):
        self.functions.setdefault(name, (library, node))

  def _add_enum(self, node: Any) -> None:
    value = -1
    for constant in node["inner"]:
      if constant["kind"] != "EnumConstantDecl":
        continue
      initializers = [one["value"] for one in constant.get("inner", []) if "value" in one]
      value = int(initializers[0]) if initializers else value + 1
      if constant["name"].startswith(("HUSK_", "kDL")):
        self.constants[constant["name"]] = value

  def _add_alias(self, name: str, node: Any) -> None:
    self.aliases[name] = node["type"].get("qualType", "")
    for inner in node.get("inner", []):  # `typedef struct { … } NAME;` and `typedef enum`
      owned = inner.get("ownedTagDecl", {})
      if owned.get("kind") == "RecordDecl" and not owned.get("name"):
        self.records[name] = self.records[owned["id"]]
      if owned.get("kind") == "EnumDecl":
        self.aliases[name] = "uint32_t"

  def finished(self) -> dict[str, Any]:
    functions = {}
    for name, (library, node) in sorted(self.functions.items()):
      parameters = [one for one in node.get("inner", []) if one["kind"] == "ParmVarDecl"]
      result = node["type"]["qualType"].split("(")[0]
      functions[name] = {
        "library": library,
        "parameters": {one["name"]: self.type_of(one["type"]["qualType"]) for one in parameters},
        "result": self.type_of(result),
      }
    return {
      "constants": self.constants,
      "opaque": sorted(self.opaque),
      "structs": dict(sorted(self.structs.items())),
      "functions": functions,
    }

  def type_of(self, text: str) -> Type:
    text = re.sub(r"\bstruct ", "", text).strip()
    if match := re.fullmatch(r"(.*?)\(\*\)\((.*)\)", text):
      parameters = [] if match[2] in ("", "void") else split(match[2])
      return {
        "function": {
          "parameters": [self.type_of(one) for one in parameters],
          "result": self.type_of(match[1]),
        }
      }
    if match := re.fullmatch(r"(.*?)\[(\d+)\]", text):
      return {"array": self.type_of(match[1]), "count": int(match[2])}
    text = re.sub(r"\*\s*const$", "*", text).strip()
    if text.endswith("*"):
      to = text[:-1].strip()
      if to.endswith("*"):  # a "const" before it belongs to the inner pointer
        return {"pointer": self.type_of(to), "const": False}
      return {"pointer": self.type_of(to.removeprefix("const ")), "const": to.startswith("const ")}
    text = text.removeprefix("const ")
    if text in SCALARS:
      return SCALARS[text][0]
    if text in OPAQUE or (text not in self.records and self.aliases.get(text) == f"struct {text}"):
      self.opaque.add(text)
      return {"struct": text}
    if text in self.records:
      self.struct(text)
      return {"struct": text}
    return self.type_of(self.aliases[text])

  def struct(self, name: str) -> None:
    if name in self.structs:
      return
    self.structs[name] = {}  # a struct may have pointers to itself
    fields = self.fields(self.records[name])
    size, alignment = 0, 1
    for field in fields.values():
      width, aligned = self.layout(field["type"])
      field["offset"] = size = rounded_up(size, aligned)
      size, alignment = size + width, max(alignment, aligned)
    self.structs[name] = {
      "size": rounded_up(size, alignment),
      "alignment": alignment,
      "fields": fields,
    }

  def fields(self, record: Any) -> dict[str, Any]:
    fields = {}
    unions = [one for one in record["inner"] if one["kind"] == "RecordDecl"]
    for field in record["inner"]:
      if field["kind"] != "FieldDecl":
        continue
      text = field["type"]["qualType"]
      if text.startswith("union"):
        fields[field["name"]] = {"type": {"union": self.fields(unions[0])}}
      else:
        fields[field["name"]] = {"type": self.type_of(text)}
    return fields

  def layout(self, kind: Type) -> tuple[int, int]:
    """Size and alignment in bytes."""
    if isinstance(kind, str):
      return WIDTHS[kind], WIDTHS[kind]
    if "array" in kind:
      width, alignment = self.layout(kind["array"])
      return kind["count"] * width, alignment
    if "struct" in kind:
      struct = self.structs[kind["struct"]]
      return struct["size"], struct["alignment"]
    if "union" in kind:
      layouts = [self.layout(field["type"]) for field in kind["union"].values()]
      return max(width for width, _ in layouts), max(alignment for _, alignment in layouts)
    return 8, 8


def rounded_up(value: int, to: int) -> int:
  return -(-value // to) * to


def split(parameters: str) -> list[str]:
  """The parameters of a function's type; a comma inside parentheses belongs to an inner type."""
  parts, depth = [""], 0
  for letter in parameters:
    depth += (letter == "(") - (letter == ")")
    if letter == "," and depth == 0:
      parts.append("")
    else:
      parts[-1] += letter
  return [part.strip() for part in parts]


def described() -> dict[str, Any]:
  description = Description()
  for library, headers in LIBRARIES.items():
    for header in headers:
      description.add(library, syntax_tree(header))
  finished = description.finished()
  compare_layouts(finished["structs"])
  return finished


def main() -> int:
  abi = described()
  files = {
    HERE / "abi.json": json.dumps(abi, indent=1) + "\n",
    HERE.parent / "rust/husk-sys/src/bindings.rs": rust.text(abi),
    HERE.parent / "java/src/husk/Constants.java": java.text(abi),
  }
  wrong = written.out_of_date(files)
  return written.main("describe.py", __doc__, wrong, folder="runtime/bindings/abi")


if __name__ == "__main__":
  sys.exit(main())
