"""Replays the programs of a grid in Triton's interpreter. It interprets the Python of a kernel anew
for each program, though most programs do the same operations with other numbers. Here the first
program of a launch is recorded as the list of its operations on arrays, and the others repeat the
list. What depends neither on the number of the program nor on memory is computed once.

Python code of a kernel that reads a number decides by it: an `if`, or the end of a loop. The number
is compared in each program, and one with another number is interpreted, and recorded itself.
Kernels that store before they read such a number are interpreted as before, since nothing may be
stored twice, and so are those that read numbers in a way that is not known here."""

import functools
import inspect
import itertools

import triton.language as tl
from triton.runtime import interpreter

# Operations of memory whose results differ from program to program, and those with an effect.
_READS = {"create_get_program_id", "create_load", "create_masked_load"}
_READS |= {"create_tensor_pointer_load", "create_descriptor_load", "create_descriptor_gather"}
_EFFECTS = {"create_store", "create_masked_store", "create_tensor_pointer_store"}
_EFFECTS |= {"create_descriptor_store", "create_descriptor_scatter", "create_print"}
_EFFECTS |= {"create_atomic_cas", "create_atomic_rmw"}
# The numbers of records of a launch from which on its programs are too different.
_MOST = 24

_recording = None


class _Stop(Exception):
  """A program reads another number than those that were recorded."""


class _Node:
  """Operations up to the next number that is read, and what follows for each of its values."""

  def __init__(self):
    self.steps, self.read, self.next = [], None, {}


class _Recording:
  def __init__(self, values):
    self.nodes = [(None, _Node())]  # with the value of the number that leads to each
    self.places = {}  # of objects that differ from program to program, by id
    self.kept = list(values)  # so that no id is used twice
    self.known = {id(value) for value in values}
    self.depth = 0
    self.is_valid, self.has_effect = True, False

  def args_of(self, values):
    """The arguments of a step: constants, and which of them are at which place."""
    fixed, varying = [], []
    for index, value in enumerate(values):
      if isinstance(value, (list, tuple)):
        inner, places = self.args_of(value)
        varying += [((index, *path), place) for path, place in places]
        fixed.append(inner if places else value)
      else:
        if id(value) in self.places:
          varying.append(((index,), self.places[id(value)]))
        elif isinstance(value, _HANDLES) and id(value) not in self.known:
          self.is_valid = False  # nobody has recorded how it is made
        fixed.append(value)
    return fixed, varying

  def add(self, name, function, args, results):
    fixed, varying = self.args_of(args)
    self.is_valid &= all(len(path) <= 2 for path, _ in varying)
    self.is_valid &= not any(id(one) in self.places or id(one) in self.known for one in results)
    self.kept += results
    has_effect = name in _EFFECTS
    if has_effect or varying or name in _READS:
      first = len(self.places)
      for result in results:
        self.places[id(result)] = len(self.places)
      self.nodes[-1][1].steps.append((function, fixed, varying, first, len(results)))
      self.has_effect |= has_effect
    else:
      self.known.update(map(id, results))

  def add_read(self, read, handle):
    if id(handle) in self.places:
      self.is_valid &= not self.has_effect
      value = read(handle)
      self.nodes[-1][1].read = read, self.places[id(handle)]
      self.nodes.append((value, _Node()))
    elif id(handle) not in self.known:
      self.is_valid = False


_HANDLES = (
  interpreter.TensorHandle,
  interpreter.BlockPointerHandle,
  interpreter.TensorDescHandle,
)


def _filled(fixed, varying, places):
  args = list(fixed)
  for path, place in varying:
    if len(path) == 1:
      args[path[0]] = places[place]
    else:
      inner = args[path[0]] = list(args[path[0]])
      inner[path[1]] = places[place]
  return args


def _replay(node, places):
  """Runs a program, or raises _Stop before it has an effect."""
  while True:
    for function, fixed, varying, first, count in node.steps:
      results = function(*_filled(fixed, varying, places))
      places[first : first + count] = results
    if node.read is None:
      return
    read, place = node.read
    node = node.next.get(read(places[place]))
    if node is None:
      raise _Stop


class Launch:
  """The programs of a launch."""

  def __init__(self, kernel, args):
    self.kernel, self.args = kernel, args
    self.first, self.records, self.replays = None, 0, True

  def run(self):
    if self.replays and self.first is not None:
      try:
        return _replay(self.first, [])
      except _Stop:
        pass
    if self.replays and self.records < _MOST:
      return self.record()
    return self.kernel(**self.args)

  def record(self):
    global _recording
    handles = [arg.handle for arg in self.args.values() if isinstance(arg, tl.tensor)]
    recording = _recording = _Recording(handles)
    interpreter.TensorHandle.data = _DATA
    try:
      self.kernel(**self.args)
    finally:
      _recording = None
      del interpreter.TensorHandle.data
    self.records += 1
    if not recording.is_valid:
      self.replays = False
      return
    (_, node), *others = recording.nodes
    node = self.first = self.first or node
    for value, other in others:
      node = node.next.setdefault(value, other)


def _read_data(handle):
  """An array that is read by code which is not recorded."""
  if _recording and not _recording.depth:
    _recording.is_valid = False
  return vars(handle)["data"]


_DATA = property(_read_data, lambda handle, data: vars(handle).__setitem__("data", data))


def recorded(name, function):
  """A function on handles that is recorded."""

  @functools.wraps(function)
  def call(*args, **options):
    recording = _recording
    if recording is None or recording.depth:
      return function(*args, **options)
    recording.depth += 1
    try:
      result = function(*args, **options)
      results = _handles(result)
    finally:
      recording.depth -= 1
    bound = functools.partial(function, **options) if options else function
    for value in options.values():
      recording.args_of([value])
      recording.is_valid &= id(value) not in recording.places
    recording.add(name, lambda *some: _handles(bound(*some)), args, results)
    return result

  return call


def _handles(result):
  """The handles of what an operation of the builder returns."""
  if isinstance(result, (list, tuple)):
    return list(result)
  if hasattr(result, "get_result"):  # an inline assembly
    return list(result.get_result.__self__)
  return [result] if isinstance(result, _HANDLES) else []


def _on_tensors(name, function):
  """The same for a function of tensors, whose operation has their handles."""

  def call(operation, tensors):
    recording = _recording
    if recording is None or recording.depth:
      return function(operation, tensors)
    inputs = tensors if isinstance(tensors, tuple) else (tensors,)
    made = []

    def of_handles(*handles):
      again = tuple(
        tl.tensor(handle, one.type) for handle, one in zip(handles, inputs, strict=True)
      )
      found = function(operation, again if isinstance(tensors, tuple) else again[0])
      made[:] = [found]
      return [one.handle for one in (found if isinstance(found, tuple) else (found,))]

    recorded(name, of_handles)(*(one.handle for one in inputs))
    return made.pop()

  return call


def _reader(read):
  """A function by which Python reads a number of a handle."""

  def call(handle):
    recording = _recording
    if recording is None or recording.depth:
      return read(handle)
    recording.depth += 1
    try:
      recording.add_read(read, handle)
      return read(handle)
    finally:
      recording.depth -= 1

  return call


def _run_grid(executor, *positional, **named):
  """In place of GridExecutor.__call__, for tensors on the CPU."""
  kernel = executor.fn
  known = inspect.getfullargspec(kernel).args
  named = {name: value for name, value in named.items() if name in known}
  interpreter._patch_lang(kernel)
  args = {
    name: value if name in executor.constexprs else interpreter._implicit_cvt(value)
    for name, value in inspect.getcallargs(kernel, *positional, **named).items()
  }
  grid = executor.grid(args) if callable(executor.grid) else executor.grid
  grid = (*grid, 1, 1)[:3]
  builder = interpreter.interpreter_builder
  builder.set_grid_dim(*grid)
  launch = Launch(kernel, args)
  launch.replays = grid[0] * grid[1] * grid[2] > 2
  for index in itertools.product(*map(range, grid)):
    builder.set_grid_idx(*index)
    launch.run()


def patch():
  """Must be called once, after all other changes of the interpreter."""
  builder = interpreter.InterpreterBuilder
  for name in dir(builder):
    if name.startswith(("create_", "get_")) and not name.endswith("_ty"):
      setattr(builder, name, recorded(name, getattr(builder, name)))
  for operation in (interpreter.ReduceOps, interpreter.ScanOps):
    operation.apply = _on_tensors(operation.__name__, operation.apply)
  interpreter.TensorHandle.__bool__ = _reader(interpreter.TensorHandle.__bool__)
  patch_tensor = interpreter._patch_lang_tensor
  as_bool = _reader(lambda handle: bool(handle.data) if handle.data.size == 1 else True)
  as_int = _reader(lambda handle: int(handle.data.item()))

  def patched(tensor, scope):
    patch_tensor(tensor, scope)
    scope.set_attr(tensor, "__index__", lambda self: as_int(self.handle))
    scope.set_attr(tensor, "__bool__", lambda self: as_bool(self.handle))

  interpreter._patch_lang_tensor = patched
  interpreter.GridExecutor.__call__ = _run_grid
