"""How the modules of the exporter may depend on each other."""

import ast
import graphlib
import pathlib

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2] / "compiler" / "torch" / "husk"

# For each package, the packages that its modules may import. "" is the top level. Every package may
# import the modules of EVERYWHERE. A row may name only packages of earlier rows.
EVERYWHERE = {"dtypes", "errors", "options", "prints", "tools", "version"}
BELOW = {
  "runtime",
  "hir",
  "inductor",
  "fusion",
  "program",
  "lower",
  "quantized",
  "host",
  "cuda",
  "libraries",
  "launches",
  "rows",
  "recurrent",
  "experts",
  "attention",
}
ALLOWED = {
  "runtime": set(),
  "serve": {"runtime"},
  "text": {"runtime"},
  "hir": set(),
  "inductor": set(),
  "fusion": {"inductor"},
  "program": {"hir", "inductor"},
  "lower": {"hir", "inductor", "program"},
  "quantized": {"inductor", "fusion"},
  "host": {"hir", "inductor", "fusion", "lower", "quantized"},
  "cuda": {"hir", "inductor", "fusion", "quantized"},
  "libraries": {"hir", "inductor", "lower"},
  "launches": {"hir", "inductor", "lower", "cuda"},
  "rows": {"hir", "inductor", "lower", "cuda", "launches"},
  "recurrent": {"hir", "inductor", "fusion", "lower", "cuda", "launches"},
  "experts": {"hir", "inductor", "fusion", "lower", "quantized", "cuda", "launches", "rows"},
  "attention": {"hir", "inductor", "fusion", "lower", "cuda", "launches"},
  "devices": BELOW - {"runtime"},
  "jit": BELOW | {"devices"},
  "": BELOW | {"devices", "jit", "text"},
  "language": {"", "text", "quantized", "attention"},
  "parallel": {"", "runtime", "hir", "inductor", "program"},
}

# Kernels that are compiled from their text, which the exporter does not import.
KERNELS = {
  "attention.kernel",
  "attention.hopper_kernel",
  "attention.step_kernel",
  "experts.kernel",
  "recurrent.kernel",
  "rows.codes_kernel",
  "rows.kernel",
  "rows.tiles",
}


def module_name(path):
  """`lower.lines` for lower/lines.py, `lower` for lower/__init__.py, "" for __init__.py."""
  parts = path.relative_to(ROOT).with_suffix("").parts
  return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


PATHS = {module_name(path): path for path in sorted(ROOT.rglob("*.py"))}


def imported(name, node):
  """The modules of the exporter that an import statement in the module `name` names."""
  if isinstance(node, ast.Import):
    full = [alias.name for alias in node.names]
  else:
    base = (node.module or "").split(".") if node.module else []
    if node.level:
      package = name.split(".") if PATHS[name].name == "__init__.py" else name.split(".")[:-1]
      package = [part for part in package if part]
      base = ["husk", *package[: len(package) - node.level + 1], *base]
    # `from .a import b` imports the module a.b if it exists, else a.
    full = [".".join([*base, alias.name]) for alias in node.names]
    full = [one if one[5:] in PATHS else ".".join(base) for one in full]
  return {one[5:] for one in full if one == "husk" or one.startswith("husk.")}


def package_of(name):
  first = name.split(".")[0]
  return first if (ROOT / first).is_dir() else ""


@pytest.fixture(scope="module")
def trees():
  return {name: ast.parse(path.read_text()) for name, path in PATHS.items()}


def imports(name, nodes):
  found = set()
  for node in nodes:
    if isinstance(node, (ast.Import, ast.ImportFrom)):
      found |= imported(name, node)
  return found


def test_every_package_has_a_row():
  assert {package_of(name) for name in PATHS} == set(ALLOWED)


def test_imports_have_no_cycle(trees):
  graph = {name: imports(name, tree.body) - {name} for name, tree in trees.items()}
  graphlib.TopologicalSorter(graph).prepare()


def is_for_types(node):
  """Whether the statement is `if TYPE_CHECKING:`, whose imports are not executed."""
  return isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"


def test_no_function_imports_a_module_of_the_exporter(trees):
  for name, tree in trees.items():
    known = [*tree.body, *(one for node in tree.body if is_for_types(node) for one in node.body)]
    nested = imports(name, ast.walk(tree)) - imports(name, known)
    inside = [
      node
      for function in ast.walk(tree)
      if isinstance(function, (ast.FunctionDef, ast.Lambda))
      for node in ast.walk(function)
    ]
    assert not nested and not imports(name, inside), name


def test_packages_import_only_allowed_packages(trees):
  for name, tree in trees.items():
    package = package_of(name)
    for other in imports(name, ast.walk(tree)) - EVERYWHERE:
      assert package_of(other) in {package, *ALLOWED[package]}, f"{name} imports {other}"


def test_packages_are_in_order():
  """A package is imported only by those below it in the table."""
  rows = list(ALLOWED)
  for package, others in ALLOWED.items():
    assert all(rows.index(other) < rows.index(package) for other in others), package


def test_kernels_are_not_imported(trees):
  for name, tree in trees.items():
    if name not in KERNELS:
      assert not imports(name, ast.walk(tree)) & KERNELS, name
