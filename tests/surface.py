"""Compares the exporter with its list of PyTorch's private names, husk/inductor/surface.py.

  python tests/surface.py check     fails if the exporter uses a private name that is no row
  python tests/surface.py count     prints how many private names each file uses
  python tests/surface.py missing   prints the rows that the installed PyTorch does not have, and
                                    whether a small model can be exported

`check` and `count` read the text of the exporter, and need no PyTorch. A name is private if a part
of its path begins with "_" (torch._inductor.ir), or if nothing promises that it stays: what is in
torch.fx.experimental, and in Triton beside its language. `check` also refuses what replaces a part
of PyTorch without `inductor.replace`, and rows that nothing uses. It sees attributes of objects
only where the text says whose they are, or if they begin with "_"; `missing` looks for all rows.
"""

import ast
import builtins
import collections
import functools
import importlib
import importlib.util
import inspect
import pathlib
import re
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "compiler" / "torch" / "husk"
LIST = PACKAGE / "inductor" / "surface.py"
REPLACE = PACKAGE / "inductor" / "replace.py"

UNPROMISED = ("torch.fx.experimental.",)
PROMISED_OF_TRITON = {"language", "jit", "Config"}
# Methods that change a table.
CHANGES = {"clear", "pop", "setdefault", "update", "__setitem__"}
# Settings, which PyTorch and Triton offer to be changed.
SETTINGS = ("torch.backends.", "triton.knobs.")

# Some names stand for an object of another class. The rows are replaced in this order.
STANDS_FOR = {
  "torch._inductor.virtualized.V.graph": "torch._inductor.graph.GraphLowering",
  "torch._inductor.virtualized.V.kernel": "torch._inductor.codegen.common.Kernel",
  "torch._inductor.virtualized.ops": "torch._inductor.ops_handler.OpsHandler",
  "torch._inductor.graph.GraphLowering.sizevars": "torch._inductor.sizevars.SizeVarAllocator",
  "torch._inductor.sizevars.SizeVarAllocator.shape_env": (
    "torch.fx.experimental.symbolic_shapes.ShapeEnv"
  ),
  "torch._inductor.codegen.common.Kernel.cse": "torch._inductor.codegen.common.CSE",
}


def rows():
  """The module surface.py, loaded without the package."""
  spec = importlib.util.spec_from_file_location("husk_surface", LIST)
  module = importlib.util.module_from_spec(spec)
  sys.modules[spec.name] = module  # dataclasses look it up
  spec.loader.exec_module(module)
  return module


def has_underscore(name):
  return name.startswith("_") and not name.endswith("__")


def is_private(path):
  package, *parts = path.split(".")
  if package == "triton":
    return bool(parts) and parts[0] not in PROMISED_OF_TRITON
  return package == "torch" and (any(map(has_underscore, parts)) or path.startswith(UNPROMISED))


class Names(ast.NodeVisitor):
  """The private names of PyTorch and Triton that a module uses.

  found: (line, dotted path) of each name whose path is known: it is imported, or an attribute of
    what is imported or was assigned from that.
  attributes: (line, name) of each attribute of another object that begins with "_".
  classes: (line, name) of each text that is compared with the name of a class, and of each class
    that a method `visit_X` is for.
  changes: (line, path) of each attribute or entry of PyTorch's that is assigned.
  own: the names that the module itself defines.
  """

  def __init__(self, tree):
    self.found, self.attributes, self.classes, self.changes = [], [], [], []
    self.scopes = [{}]
    self.own = set()
    for node in ast.walk(tree):
      if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        self.own.add(node.name)
      if isinstance(node, ast.ClassDef):
        fields = [each for each in ast.walk(node) if isinstance(each, ast.Name)]
        self.own.update(each.id for each in fields if isinstance(each.ctx, ast.Store))
      elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        if isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"):
          self.own.add(node.attr)
    self.visit(tree)

  def path(self, node):
    """The dotted path of an expression; None if it is not known."""
    if isinstance(node, ast.Name):
      for scope in reversed(self.scopes):
        if node.id in scope:
          return scope[node.id]
      return None
    if isinstance(node, ast.Attribute):
      base = self.path(node.value)
      return base and f"{base}.{node.attr}"
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "getattr":
      owner, name = node.args[:2]
      base = self.path(owner)
      if base and isinstance(name, ast.Constant):
        return f"{base}.{name.value}"
    return None

  def use(self, node, path):
    if is_private(path):
      self.found.append((node.lineno, path))

  def bind(self, target, value):
    """The variable `target` stands for `value`, an expression, or for something unknown."""
    if isinstance(target, ast.Name):
      self.scopes[-1][target.id] = None if value is None else self.path(value)
    elif isinstance(target, (ast.Tuple, ast.List)):
      same = isinstance(value, ast.Tuple) and len(value.elts) == len(target.elts)
      for place, each in enumerate(target.elts):
        self.bind(each, value.elts[place] if same else None)
    elif isinstance(target, ast.Starred):
      self.bind(target.value, None)
    elif isinstance(target, (ast.Attribute, ast.Subscript)):
      path = self.path(target if isinstance(target, ast.Attribute) else target.value)
      if path and path.split(".")[0] in ("torch", "triton"):
        self.changes.append((target.lineno, path))

  def visit_Import(self, node):
    for alias in node.names:
      package = alias.name.split(".")[0]
      self.scopes[-1][alias.asname or package] = alias.name if alias.asname else package
      self.use(node, alias.name)

  def visit_ImportFrom(self, node):
    for alias in node.names:
      path = None if node.level else f"{node.module}.{alias.name}"
      self.scopes[-1][alias.asname or alias.name] = path
      if path:
        self.use(node, path)

  def visit_FunctionDef(self, node):
    if node.name.startswith("visit_"):
      self.classes.append((node.lineno, node.name.removeprefix("visit_")))
    for each in [*node.decorator_list, *node.args.defaults]:
      self.visit(each)
    self.inside(node.args, node.body)

  visit_AsyncFunctionDef = visit_FunctionDef

  def visit_Lambda(self, node):
    self.inside(node.args, [node.body])

  def inside(self, args, body):
    everyone = [*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg]
    self.scopes.append({each.arg: None for each in everyone if each})
    for each in everyone:
      if each and each.annotation:
        self.visit(each.annotation)
    for each in body:
      self.visit(each)
    self.scopes.pop()

  def visit_Assign(self, node):
    self.visit(node.value)
    for target in node.targets:
      self.visit(target)
      self.bind(target, node.value)

  def visit_AnnAssign(self, node):
    self.visit(node.annotation)
    self.visit(node.target)
    if node.value:
      self.visit(node.value)
      self.bind(node.target, node.value)

  def visit_AugAssign(self, node):
    self.generic_visit(node)
    self.bind(node.target, None)

  def visit_For(self, node):
    self.visit(node.iter)
    self.bind(node.target, None)
    for each in [node.target, *node.body, *node.orelse]:
      self.visit(each)

  def visit_comprehension(self, node):
    self.bind(node.target, None)
    self.generic_visit(node)

  def comprehension(self, node):
    self.scopes.append({})
    for each in node.generators:
      self.visit(each)
    for part in ("key", "value", "elt"):
      if hasattr(node, part):
        self.visit(getattr(node, part))
    self.scopes.pop()

  visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = comprehension

  def visit_withitem(self, node):
    self.visit(node.context_expr)
    if node.optional_vars:
      self.bind(node.optional_vars, None)

  def visit_Attribute(self, node):
    path = self.path(node)
    if path:
      self.use(node, path)
      return
    if has_underscore(node.attr):
      self.attributes.append((node.lineno, node.attr))
    self.visit(node.value)

  def visit_Call(self, node):
    name = node.func.id if isinstance(node.func, ast.Name) else ""
    if name in ("getattr", "hasattr", "setattr", "delattr"):
      owner, attribute = node.args[:2]
      path = self.path(owner)
      if path and path.split(".")[0] in ("torch", "triton"):
        if isinstance(attribute, ast.Constant):
          self.use(node, f"{path}.{attribute.value}")
        if name in ("setattr", "delattr"):
          self.changes.append((node.lineno, path))
      elif isinstance(attribute, ast.Constant) and has_underscore(attribute.value):
        self.attributes.append((node.lineno, attribute.value))
    if isinstance(node.func, ast.Attribute) and node.func.attr in CHANGES:
      path = self.path(node.func.value)
      if path and is_private(path):
        self.changes.append((node.lineno, path))
    self.generic_visit(node)

  def visit_Constant(self, node):
    """The path of a module or of a table as text."""
    if isinstance(node.value, str) and re.fullmatch(r"(torch|triton)(\.\w+)+", node.value):
      self.use(node, node.value)

  def visit_Compare(self, node):
    """`type(x).__name__ == "X"`, or in ("X", "Y"), or the same with a variable `kind`."""
    if is_name_of_class(node.left):
      for each in node.comparators:
        for part in each.elts if isinstance(each, (ast.Tuple, ast.List, ast.Set)) else [each]:
          if (
            isinstance(part, ast.Constant)
            and isinstance(part.value, str)
            and part.value[:1].isupper()
          ):
            self.classes.append((part.lineno, part.value))
    self.generic_visit(node)


def is_name_of_class(node):
  if isinstance(node, ast.Name):
    return node.id in ("kind", "kinds")
  if isinstance(node, ast.Subscript):
    return is_name_of_class(node.value)
  return isinstance(node, ast.Attribute) and node.attr == "__name__"


def modules():
  """The exporter's modules by path, the list of names left out."""
  paths = [path for path in sorted(PACKAGE.rglob("*.py")) if path not in (LIST, REPLACE)]
  return {path.relative_to(PACKAGE): Names(ast.parse(path.read_text())) for path in paths}


class Rows:
  """The rows as `check` needs them."""

  def __init__(self):
    listed = rows()
    self.used = listed.PATHS
    owners = {
      f"{module}.{owner}"
      for module, rows in listed.SURFACE.items()
      for row in rows
      for owner in row.of.split()
    }
    self.paths = self.used | owners
    self.modules = set(listed.SURFACE)
    self.ignored = listed.IGNORED_LINES
    self.last = {path.rpartition(".")[2] for path in self.paths}

  def has(self, path):
    """Whether a name is a row: a module, or a name of it, and for a class its member, too."""
    for name, meaning in STANDS_FOR.items():
      if path.startswith(f"{name}."):
        path = meaning + path.removeprefix(name)
    if any(f"{module}.".startswith(f"{path}.") for module in self.modules):
      return True
    owner, _, name = path.rpartition(".")
    if not is_private(owner) and name in self.last:  # an attribute of a public object
      return True
    parts = path.split(".")
    counts = range(len(parts), 0, -1)
    count = next((n for n in counts if ".".join(parts[:n]) in self.modules), len(parts))
    depth = count + 1
    if len(parts) > depth and parts[count][0].isupper() and not parts[depth].startswith("__"):
      depth += 1
    return ".".join(parts[:depth]) in self.paths

  def unused(self, texts):
    words = {word for text in texts for word in re.findall(r"\w+", text)} | self.ignored
    # Methods visit_X and _X are for the class X.
    words |= {re.sub(r"^(visit)?_(?=[A-Z])", "", word) for word in words}
    return sorted(path for path in self.used if path.rpartition(".")[2] not in words)


def faults_of(names, known, own):
  """What `check` refuses in a module, as (line, text). `own` are the names of the exporter."""
  last = known.last | own
  unknown = [
    *((line, name) for line, name in names.found if not known.has(name)),
    *((line, f".{name}") for line, name in names.attributes if name not in last),
    *((line, name) for line, name in names.classes if name not in last),
  ]
  changed = [(line, name) for line, name in names.changes if not name.startswith(SETTINGS)]
  return sorted(
    {(line, f"{name} has no row in inductor/surface.py") for line, name in unknown}
    | {(line, f"{name} is replaced without inductor/replace.py") for line, name in changed}
  )


def faults():
  """What `check` refuses, as texts."""
  known, found = Rows(), modules()
  own = {name for names in found.values() for name in names.own}
  for path, names in found.items():
    for line, text in faults_of(names, known, own):
      yield f"{path}:{line}: {text}"
  for path in known.unused([(PACKAGE / path).read_text() for path in found]):
    yield f"inductor/surface.py: nothing uses {path}"


def check():
  wrong = list(faults())
  print(*wrong, f"{len(Rows().paths)} private names, {len(wrong)} faults", sep="\n")
  return bool(wrong)


def count():
  """Prints the number of uses and of different names by file, and of all."""
  everything = collections.Counter()
  for path, names in modules().items():
    uses = collections.Counter(
      name for _, name in [*names.found, *names.attributes] if name not in names.own
    )
    everything.update(uses)
    if uses:
      print(f"{sum(uses.values()):5} {len(uses):4}  {path}")
  print(f"{sum(everything.values()):5} {len(everything):4}  in all")
  return 0


def exists(path, replaced=()):
  """Whether the installed PyTorch has a dotted path. An attribute that only objects of a class have
  is found in the text of the class; a builtin that is replaced in a module, and a method of ints
  that a class of numbers gets, in Python."""
  parts = path.split(".")
  for length in range(len(parts), 0, -1):
    try:
      found = importlib.import_module(".".join(parts[:length]))
      break
    except ImportError:
      pass
  else:
    return False
  for part in parts[length:]:
    if not hasattr(found, part):
      is_set = isinstance(found, type) and any(part in attributes(each) for each in found.__mro__)
      return is_set or (path in replaced and (hasattr(builtins, part) or hasattr(int, part)))
    found = getattr(found, part)
  return True


@functools.cache
def attributes(owner):
  """The attributes that the text of a class gives to its objects."""
  return classes(owner.__module__).get(owner.__qualname__.rpartition(".")[2], set())


@functools.cache
def classes(module):
  """The classes of a module by name, each with the attributes of `self` and the fields."""
  try:
    tree = ast.parse(inspect.getsource(sys.modules[module]))
  except (KeyError, OSError, TypeError):  # it is not written in Python
    return {}
  return {
    node.name: {
      each.attr if isinstance(each, ast.Attribute) else each.id
      for each in ast.walk(node)
      if isinstance(getattr(each, "ctx", None), ast.Store)
      and isinstance(each, (ast.Attribute, ast.Name))
    }
    for node in ast.walk(tree)
    if isinstance(node, ast.ClassDef)
  }


def missing_paths(version, listed):
  """The paths of rows that PyTorch of this version should have, and that cannot be found, each with
  the reason for which the exporter uses it. A package that is not installed has no paths."""
  gone = {}
  for module, rows in listed.SURFACE.items():
    if importlib.util.find_spec(module.partition(".")[0]) is None:
      continue
    for row in rows:
      for path in (row.paths(module) or [module]) if row.is_in(version) else ():
        if not exists(path, listed.REPLACED):
          gone[path] = row.why
  return gone


def unknown_lines(listed):
  """The classes of lines of Inductor's wrapper that the list does not have."""
  from torch._inductor.codegen import wrapper

  known = {path.rpartition(".")[2] for path in Rows().paths} | listed.REFUSED_LINES
  lines = [each for each in vars(wrapper).values() if isinstance(each, type)]
  names = {each.__name__ for each in lines if issubclass(each, wrapper.WrapperLine)}
  return sorted(names - known)


def missing_places():
  """The functions of PyTorch by which husk/inductor/assumed.py knows who asks for a size, as far as
  the installed PyTorch does not define them."""
  import torch

  sys.path.insert(0, str(PACKAGE.parent))
  from husk.inductor import assumed

  folder = pathlib.Path(torch.__file__).parent.parent
  for file, functions in assumed.asking_places():
    text = (folder / file).read_text() if (folder / file).is_file() else None
    if text is None:
      yield file
    for function in sorted(functions or ()):
      if text is not None and not re.search(rf"^ *def {function}\(", text, re.MULTILINE):
        yield f"{file}: {function}"


def refused_exports():
  """What an export of a small model for a host and for a GPU is refused for, by target."""
  import torch

  sys.path.insert(0, str(PACKAGE.parent))
  import husk

  model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.Flatten(), torch.nn.Linear(144, 3))
  for target in ("host:avx2", "cuda:h200"):
    with tempfile.TemporaryDirectory() as folder:
      try:
        husk.write(model.eval(), (torch.zeros(2, 3, 8, 8),), folder, targets=[target])
      except Exception as error:
        yield target, f"{type(error).__name__}: {error}"


def missing():
  import torch

  listed, version = rows(), torch.__version__
  gone, lines = missing_paths(version, listed), unknown_lines(listed)
  gone.update(dict.fromkeys(missing_places(), "asks for sizes, husk/inductor/assumed.py"))
  for path, why in gone.items():
    print(f"missing: {path} ({why})")
  for path in lines:
    print(f"new: {path}, a line of Inductor's wrapper (the exporter refuses it by its name)")
  refused = dict(refused_exports())
  for target, error in refused.items():
    print(f"refused: an export for {target}: {error}")
  tested = "" if _minor(version) in listed.TESTED else ", which is not tested"
  print(
    f"torch {version}{tested}: {len(gone)} names are missing, {len(lines)} lines are new, "
    f"{2 - len(refused)} of 2 exports succeed"
  )
  return bool(gone or refused)


def _minor(version):
  return ".".join(version.split(".")[:2])


COMMANDS = {"check": check, "count": count, "missing": missing}

if __name__ == "__main__":
  if len(sys.argv) != 2 or sys.argv[1] not in COMMANDS:
    sys.exit(__doc__)
  sys.exit(COMMANDS[sys.argv[1]]())
