"""From a run of a compiled graph to a function of a file: tensors that are no arguments become
constants, or states if the program writes them."""

from __future__ import annotations

import ast
import collections
import dataclasses
import fnmatch
import inspect
import math
import re
import weakref
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeGuard

from .. import devices, hir
from ..errors import Unsupported
from ..inductor import dynamo_frames
from ..inductor.layouts import span
from ..lower import extern
from ..lower.operators import Operators
from ..program import signature, weights
from .recording import Number, Run, tensor_key
from .regions import Callee, Entry

if TYPE_CHECKING:
  import torch

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[A-Za-z_][\w.:]*')


def _renamed(line: str, names: Mapping[str, str]) -> str:
  """A line with other names. The content of strings stays."""
  return _TOKEN.sub(lambda found: names.get(found[0], found[0]), line)


@dataclasses.dataclass(frozen=True)
class Leaf:
  """A value among the arguments, by its name in the file."""

  index: int
  name: str


@dataclasses.dataclass
class Constant:
  """A constant or a state of the file."""

  name: str
  tensor: torch.Tensor
  is_state: bool = False


class Weights:
  """The constants of all functions of a file. Functions share those of equal memory."""

  def __init__(self, names: hir.Names) -> None:
    self._names = names
    self.rows: dict[Any, Constant] = {}

  def row(self, tensor: torch.Tensor, wanted: str, is_state: bool) -> Constant:
    key = tensor_key(tensor)
    if key not in self.rows:
      hir.required_dtype(tensor.dtype, f"the constant {wanted}")
      self.rows[key] = Constant(self._names.take(wanted), tensor)
    self.rows[key].is_state |= is_state
    return self.rows[key]

  def lines(self) -> tuple[list[str], dict[str, torch.Tensor]]:
    """The `constant` and `state` lines, and the tensors of the file of weights."""
    self._check_states()
    lines: list[str] = []
    tensors: dict[str, torch.Tensor] = {}
    for row in self.rows.values():
      stored = _stored(row.tensor)
      dims = f"{hir.dtype(stored.dtype)} [{', '.join(map(str, stored.shape))}]"
      name = self._names.take(f"{row.name}.initial") if row.is_state else row.name
      tensors[name] = stored
      lines.append(f'constant {name} {dims} file "{weights.FILE}" tensor {hir.quoted(name)}')
      if row.is_state:
        lines.append(f"state {row.name} {dims} constant {name}")
    return lines, tensors

  def _check_states(self) -> None:
    by_storage = collections.defaultdict(list)
    for (storage, *_), row in self.rows.items():
      by_storage[storage].append(row)
    for rows in by_storage.values():
      if len(rows) > 1 and any(row.is_state for row in rows):
        names = ", ".join(row.name for row in rows)
        raise Unsupported(f"{names} share memory that the program writes: keep one tensor of it")


def _stored(tensor: torch.Tensor) -> torch.Tensor:
  """The memory of a tensor from its first to its last element, as the file of weights has it."""
  tensor = tensor.detach()
  if not tensor.is_contiguous():
    tensor = tensor.as_strided((span(tensor.shape, tensor.stride()),), (1,))
  return weights.storable(tensor)


class FunctionWriter:
  """Writes the function `name` from a run.

  names: those of the file. weights: the constants of the file. known: names of tensors by id.
  ops: patterns of operators that the application registers.
  """

  def __init__(
    self,
    name: str,
    run: Run,
    entry: Entry,
    callee: Callee,
    names: hir.Names,
    weights: Weights,
    known: Mapping[int, str],
    ops: Sequence[str],
  ) -> None:
    self.name, self.run, self.entry, self.callee = name, run, entry, callee
    self.source = run.source
    self.names, self.weights, self.known = names.child(), weights, known
    self.ops = ops
    self.renames: dict[str, str] = {}  # from names of the program to those of the function
    self.head: list[str] = []  # statements before those of the program
    self.dropped: list[hir.Statement] = []  # statements of the program that are left out
    self.used = hir.names_of([self.source.statements, self.source.results])
    self.inputs: dict[int, str] = {}  # the lines of inputs by the index of the leaf
    self.varies = False  # whether sizes vary that are no inputs of the program
    self.declared: set[str] = set()  # the tensors among the arguments that have a `buffer` line
    # The tensors of the model among the program's inputs: the name there -> the constant.
    self.constants: dict[str, Constant] = {}

  def check_operators(self) -> None:
    """Refuses operators that only torch provides."""
    names = self._operators_of_husk()
    known = Operators("the target", names, self.ops)
    missing = [
      name
      for name in self.source.called
      if not known.has(name) or not self._is_registered(name) and _is_random(name)
    ]
    if not missing:
      return
    said = []
    for name in missing:
      calls = (
        one
        for one in hir.walk(self.source.statements)
        if isinstance(one, hir.Extern) and one.name == name
      )
      place = next((call.origin for call in calls), "")
      said.append(f"{name} (near {hir.quoted(place)})" if place else name)
    raise Unsupported(
      f"the graph calls {', '.join(said)} through PyTorch, and a file cannot: compute that outside "
      "of the compiled function, or register an operator of this name where the file is loaded and "
      f"give ops=[{missing[0]!r}]"
    )

  def runs_operators_of_husk(self) -> bool:
    """Whether all operators that torch has provided are those of Husk's host in the file."""
    called = set(self.source.called)
    return bool(called) and called <= self._operators_of_husk()

  def _operators_of_husk(self) -> frozenset[str]:
    """The operators that a file for the device of the graph may call."""
    return devices.of_line(self.source.target).operators_in_files()

  def _is_registered(self, name: str) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in self.ops)

  def write(self, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> dict[str, Any]:
    """Writes the function; returns how its inputs and outputs nest."""
    from torch.utils import _pytree as pytree

    self.check_operators()
    _, self.values, spec = self._flat((args, kwargs))
    self.leaves = self._named_leaves(spec)
    self.keys: dict[Any, Leaf] = {}
    for value, leaf in zip(self.values, self.leaves):
      if _is_tensor(value) and (other := self.keys.setdefault(tensor_key(value), leaf)) != leaf:
        raise Unsupported(
          f"the arguments {other.name} and {leaf.name} are one tensor, of which the graph takes one"
        )
    self.storages = {key[0]: leaf for key, leaf in self.keys.items()}
    self.symbols = self._symbols(args, kwargs)
    for line, value in zip(self.source.inputs, self.run.arguments, strict=True):
      self._bind(line, value)
    self._check_writes()
    for leaf, value in zip(self.leaves, self.values):
      if leaf.index not in self.inputs:
        self._unused(leaf, value)
    self._derive_numbers()
    self._write_guards()
    self._name_locals()
    result_paths, results, result_spec = self._flat(result)
    self._write_results([signature.path_name(path) for path in result_paths], results)
    leaf_names = [leaf.name for leaf in self.leaves]
    nested_args, nested_kwargs = pytree.tree_unflatten(leaf_names, spec)
    return signature.nesting(
      list(nested_args),
      nested_kwargs,
      pytree.tree_unflatten(self.output_names, result_spec),
      leaf_names,
      self.output_names,
    )

  @staticmethod
  def _flat(value: Any) -> tuple[list[Any], list[Any], Any]:
    from torch.utils import _pytree as pytree

    pairs, spec = pytree.tree_flatten_with_path(value)
    return [path for path, _ in pairs], [leaf for _, leaf in pairs], spec

  # Inputs

  def _named_leaves(self, spec: Any) -> list[Leaf]:
    """The leaves of the arguments, named after the parameters of the callable."""
    from torch.utils import _pytree as pytree

    args, kwargs = pytree.tree_unflatten(list(range(spec.num_leaves)), spec)
    bound = self.callee.signature.bind(*args, **kwargs).arguments
    for parameter in self.callee.signature.parameters.values():
      if parameter.kind is inspect.Parameter.VAR_KEYWORD:
        bound.update(bound.pop(parameter.name, {}))
    paths, indices, _ = self._flat(dict(bound))
    names = {index: signature.path_name(path) for path, index in zip(paths, indices)}
    return [Leaf(index, self.names.take(names[index])) for index in range(spec.num_leaves)]

  def _bind(self, line: str, value: Any) -> None:
    """Finds where an input of the program comes from."""
    name, kind, *rest = line.split(" ", 2)
    if not isinstance(value, weakref.ref):
      self._bind_number(name, kind, rest, value)
      return
    tensor = value()
    leaf = None if tensor is None else self.keys.get(tensor_key(tensor))
    if leaf is not None:
      if kind == "tensor":
        self.inputs[leaf.index] = f"{leaf.name} tensor {rest[0]}"
        self.renames[name] = leaf.name
        self.declared.add(leaf.name)
    elif kind == "none":
      pass  # the program does not use it
    elif tensor is None:
      self._bind_temporary(name)
    elif (leaf := self.storages.get(tensor.untyped_storage()._cdata)) is not None:
      raise Unsupported(
        f"the graph gets another view of the argument {leaf.name} than the caller gives"
      )
    else:
      row = self.weights.row(
        tensor, self.known.get(id(tensor), "constant"), name in self.source.written
      )
      self.constants[name] = row
      self.renames[name] = row.name

  def _bind_temporary(self, name: str) -> None:
    """A tensor that only the call has."""
    raise Unsupported(
      f"the graph gets the tensor {name}, which {self.callee.name} makes outside of the graph, "
      "from a float or in Python: give it a tensor"
    )

  def _bind_number(self, name: str, kind: str, rest: list[str], value: Any) -> None:
    if name not in self.used or self._size_of_tensor(name):
      return
    texts = self.symbols.get(self.source.symbols.get(name, ""), [])
    for leaf in self.leaves:
      if leaf.name in texts and kind == "int":
        self.inputs[leaf.index] = " ".join([leaf.name, kind, *rest])
        self.renames[name] = leaf.name
        return
    sizes = [text for text in texts if text.startswith("size(")]
    if not sizes:
      raise Unsupported(
        f"the number {value}, which the graph gets, is no argument and no size of an argument"
      )
    self.renames[name] = self.names.take("size")
    self.head.append(f"let {self.renames[name]} = {sizes[0]}")
    self.varies = True

  def _check_writes(self) -> None:
    """Refuses writes to tensors that autograd follows: torch does them after the graph."""
    for tensor in self.run.written_outside():
      leaf = self.storages.get(tensor.untyped_storage()._cdata)
      name = leaf.name if leaf is not None else self.known.get(id(tensor), "a tensor")
      raise Unsupported(
        f"{self.callee.name} writes {name} in place, and autograd follows it, so torch writes it "
        "outside of the graph: call it under torch.no_grad(), or give it .detach()"
      )

  def _size_of_tensor(self, name: str) -> tuple[hir.Statement, hir.Op] | None:
    """The statement that compares the number `name` with a size or stride of an input, and that
    size or stride."""
    for one in self.source.statements:
      if isinstance(one, hir.CheckEqual) and _is_name(one.right, name) and _is_size(one.left):
        return one, one.left
      if isinstance(one, hir.CheckStride) and _is_name(one.stride, name):
        return one, hir.op("stride", hir.Name(one.name), one.dim)
    return None

  def _derive_numbers(self) -> None:
    """Numbers that are sizes of tensors are computed from the tensors."""
    for line, value in zip(self.source.inputs, self.run.arguments):
      name, kind = line.split()[:2]
      if kind != "int" or name in self.renames or name not in self.used:
        continue
      found = self._size_of_tensor(name)
      assert found is not None
      statement, size = found
      tensor, dim = size.operands
      self.dropped.append(statement)
      self.renames[name] = self.names.take(f"{size.op}_{dim}")
      number = value if str(tensor) in self.constants else hir.rewritten(size, self.renames)
      self.head.append(f"let {self.renames[name]} = {number}")

  def _unused(self, leaf: Leaf, value: Any) -> None:
    """An argument that is no input of the program: torch has compiled for its value."""
    name = leaf.name
    fixed = f'"the value of {name} must be {value}, for which PyTorch has compiled the graph"'
    if value is None:
      line = f"{name} none"
    elif isinstance(value, bool):
      line = f"{name} bool"
      self.head.append(f"check_eq({name}, {int(value)}) {fixed}")
    elif isinstance(value, int):
      line = f"{name} int {value}"
    elif isinstance(value, float):
      line = f"{name} float"
      self.head.append(f"check(feq({name}, {hir.Literal(value)})) {fixed}")
    elif _is_tensor(value):
      dtype = hir.required_dtype(value.dtype, f"the argument {name}")
      sizes = [self._unused_size(name, dim, size) for dim, size in enumerate(value.shape)]
      line = f"{name} tensor {dtype} [{', '.join(sizes)}]"
      self._check_unused_strides(name, value, sizes)
    else:
      raise Unsupported(
        f"the argument {name} is a {type(value).__name__}",
        remedy="give tensors, numbers, bools and None, and what is left in the function itself",
      )
    self.inputs[leaf.index] = line

  def _unused_size(self, name: str, dim: int, size: int) -> str:
    """The range of a size of a tensor that is no input of the program: the size itself, unless
    torch has compiled for more sizes. The range has the size of every tensor with that symbol."""
    text = f"size({name}, {dim})"
    for symbol, texts in self.symbols.items():
      if text in texts:
        self.varies = True
        self.head += [
          f'check_eq({text}, {other}) "size {dim} of {name}"' for other in texts if other != text
        ]
        return self.entry.region.ranges.get(symbol, str(size))
    return str(size)

  def _check_unused_strides(self, name: str, value: torch.Tensor, sizes: list[str]) -> None:
    """Checks the strides, on which the Python of the model may have depended."""
    strides = list(map(str, value.stride()))
    if any(".." in size for size in sizes):
      if not value.is_contiguous():
        raise Unsupported(
          f"the argument {name}, whose sizes vary, is not contiguous: give it .contiguous()"
        )
      stride = "1"
      for dim in reversed(range(value.dim())):
        strides[dim] = stride
        stride = f"mul(size({name}, {dim}), {stride})" if stride != "1" else f"size({name}, {dim})"
    for dim, text in enumerate(strides):
      if sizes[dim] != "1" and value.numel():
        self.head.append(f"check_stride({name}, {dim}, {text})")

  # Guards

  def _symbols(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, list[str]]:
    """For each of torch's symbols the expressions of a `.hir` that have its value."""
    symbols = self.entry.region.symbols
    places = self._frame(args, kwargs) if symbols else {}
    return {
      symbol: [text for name in names if (text := _value_text(name, places))]
      for symbol, names in symbols.items()
    }

  def _write_guards(self) -> None:
    """Checks what torch has assumed of sizes and ints."""
    region = self.entry.region
    if not region.guards or not (self._is_dynamic() or self.varies):
      return
    values = {symbol: next(iter(texts), "") for symbol, texts in self.symbols.items()}
    for condition, text in region.guards:
      symbols = [one for one in _TOKEN.findall(condition) if one in values]
      if not condition or not all(values[one] for one in symbols):
        raise Unsupported(f"torch has compiled for {text}, which a file cannot check")
      if symbols:
        message = f"the graph was compiled for {_renamed(text, values)}"
        self.head.append(f"check({_renamed(condition, values)}) {hir.quoted(message)}")

  def _frame(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The variables of the compiled frame, with the names of the arguments in place of values."""
    import inspect

    from torch.utils import _pytree as pytree

    _, spec = pytree.tree_flatten((args, kwargs))
    leaves = list(self.leaves)
    args, kwargs = pytree.tree_unflatten(leaves, spec)
    function = self.entry.function
    if self.callee.module is not None and not dynamo_frames.wraps(function.__code__):
      args = (self.callee.module, *args)
    bound = inspect.signature(function).bind(*args, **kwargs)
    bound.apply_defaults()
    free = dict(zip(function.__code__.co_freevars, function.__closure__ or ()))
    closed = {name: cell.cell_contents for name, cell in free.items()}
    return {"L": {**closed, **bound.arguments}, "G": self.entry.names()}

  def _is_dynamic(self) -> bool:
    return any(".." in line or line.split()[1] == "int" for line in self.source.inputs)

  # The program

  def _name_locals(self) -> None:
    for one in hir.walk(self.source.statements):
      name = one.buffer.name if isinstance(one, hir.Declare) else None
      name = one.name if isinstance(one, hir.Let) else name
      if name is not None and name not in self.renames:
        self.renames[name] = self.names.take(name)

  def _statements(self) -> list[hir.Statement]:
    """The statements of the program with the file's names."""
    kept = [
      one
      for one in self.source.statements
      if not any(one is dropped for dropped in self.dropped)
      and not (isinstance(one, hir.Declare) and one.buffer.name in self.constants)
      and not (isinstance(one, hir.CheckStride) and one.name in self.constants)
    ]
    return hir.rewritten(kept, self.renames, self._constant_size)

  def _constant_size(self, operation: hir.Op) -> hir.Expr | None:
    """The number in place of a size or a stride of a tensor that is a constant of the file."""
    if not _is_size(operation):
      return None
    tensor, dim = operation.operands
    row = self.constants.get(str(tensor))
    if row is None:
      return None
    numbers = row.tensor.shape if operation.op == "size" else row.tensor.stride()
    return hir.Literal(int(numbers[int(str(dim))]))

  # Results

  def _write_results(self, names: list[str], values: list[Any]) -> None:
    keys = {
      tensor_key(value): index
      for index, value in reversed(list(enumerate(self.run.outputs)))
      if _is_tensor(value)
    }
    places: list[int | None] = [keys.get(tensor_key(v)) if _is_tensor(v) else None for v in values]
    self._check_kept(values)
    outputs = {line.split()[0]: index for index, line in enumerate(self.source.outputs)}
    uses = collections.Counter(
      self.source.values[place][1] for place in places if place is not None
    )
    self.output_names: list[str] = []
    self.output_lines: list[str] = []
    self.results: list[str] = []
    self.copies: list[str] = []
    whole: set[str] = set()
    for wanted, value, place in zip(names, values, places):
      name = self.names.take(wanted)
      self.output_names.append(name)
      if place is not None:
        text, buffer, dtype, _, _ = self.source.values[place]
        if not text:
          hir.required_dtype(value.dtype, f"the result {wanted}")
          raise Unsupported(f"the result {wanted} is a number on the CPU", remedy="return a tensor")
        index = outputs.get(buffer)
        if (
          index is not None
          and uses[buffer] == 1
          and str(self.source.results[index]) == f"tensor {buffer} {dtype} {text}"
        ):
          self.renames[buffer] = name
          whole.add(buffer)
          self.output_lines.append(f"{name} tensor {dtype} rank {value.dim()}")
          self.results.append(f"tensor {buffer} {dtype} {text}")
          continue
        self._copied(name, value, *self.source.values[place][1:], layout=text)
      elif _is_tensor(value):
        self._copied(name, value, *self._memory(wanted, value))
      else:
        self._number(name, wanted, value)
    self.body = self._statements()
    renamed = {self.renames[name]: name for name in outputs if name in self.renames}
    for one in hir.parts(self.body):
      if isinstance(one, hir.Buffer) and one.space == "output":
        if renamed.get(one.name, one.name) not in whole:
          one.space, one.align = "arena", 64
    self.copies = [_renamed(line, self.renames) for line in self.copies]
    self.results = [_renamed(line, self.renames) for line in self.results]

  def _check_kept(self, values: list[Any]) -> None:
    """Every output of the graph must be a result, unless it is kept for a backward."""
    if self.entry.region.grad and not self.entry.region.inference:
      return
    inputs = [value() for value in self.run.arguments if isinstance(value, weakref.ref)]
    returned = {value.untyped_storage()._cdata for value in [*values, *inputs] if _is_tensor(value)}
    for index, value in enumerate(self.run.outputs):
      if _is_tensor(value) and value.untyped_storage()._cdata not in returned:
        raise Unsupported(
          f"{self.callee.name} keeps output {index} of the graph and does not return it: return "
          "it, or copy it into a buffer of the model by copy_()"
        )

  def _copied(
    self,
    name: str,
    value: torch.Tensor,
    buffer: str,
    dtype: str,
    offset: str,
    size: str,
    layout: str = "",
  ) -> None:
    """An output that is a copy of a part of other memory."""
    layout = layout or f"{list(value.shape)} {list(value.stride())}"
    self.copies += [
      f"buffer {name} of output bytes {size} align {value.element_size()}",
      f"copy (write {name}, read {buffer}[{offset}, {size}])",
    ]
    self.output_lines.append(f"{name} tensor {dtype} rank {value.dim()}")
    self.results.append(f"tensor {name} {dtype} {layout}")

  def _memory(self, wanted: str, value: torch.Tensor) -> tuple[str, str, str, str]:
    """The buffer, dtype, offset and size of a result that is no output of the graph. Its sizes are
    those of the call."""
    storage = value.untyped_storage()._cdata
    begin = value.storage_offset() * value.element_size()
    dtype = hir.required_dtype(value.dtype, f"the result {wanted}")
    size = str(span(value.shape, value.stride()) * value.element_size())
    for one, (text, buffer, _, offset, _) in zip(self.run.outputs, self.source.values):
      if _is_tensor(one) and text and one.untyped_storage()._cdata == storage:
        self._require_static(wanted)
        before = one.storage_offset() * one.element_size()
        return buffer, dtype, str(int(offset) + begin - before), size
    for argument, leaf in zip(self.values, self.leaves):
      if _is_tensor(argument) and argument.untyped_storage()._cdata == storage:
        self._require_static(wanted)
        self._declare(leaf, argument)
        before = argument.storage_offset() * argument.element_size()
        return leaf.name, dtype, str(begin - before), size
    if id(value) in self.known:
      return self.weights.row(value, self.known[id(value)], False).name, dtype, "0", size
    raise Unsupported(f"the result {wanted} is no output of the graph: {self.callee.name} makes it")

  def _declare(self, leaf: Leaf, tensor: torch.Tensor) -> None:
    """Declares the memory of an argument that the program does not use."""
    if leaf.name in self.declared:
      return
    self.declared.add(leaf.name)
    sizes = ", ".join(map(str, tensor.shape))
    self.inputs[leaf.index] = f"{leaf.name} tensor {hir.dtype(tensor.dtype)} [{sizes}]"
    self.head += [
      f"check_stride({leaf.name}, {dim}, {stride})" for dim, stride in enumerate(tensor.stride())
    ]
    size = span(tensor.shape, tensor.stride()) * tensor.element_size()
    self.head.append(f"buffer {leaf.name} of input bytes {size} align {tensor.element_size()}")

  def _require_static(self, wanted: str) -> None:
    if self._is_dynamic():
      raise Unsupported(
        f"the result {wanted} is a view that torch makes after the graph, whose sizes vary: return "
        "a copy of it (.clone())"
      )

  def _number(self, name: str, wanted: str, value: Any) -> None:
    if value is None:
      self.output_lines.append(f"{name} none")
      self.results.append("none")
    elif isinstance(value, Number):
      text = str(self.source.results[value.result])
      self.output_lines.append(f"{name} {text.split()[0]}")
      self.results.append(text)
    elif isinstance(value, (bool, int)) and (isinstance(value, bool) or not self._is_dynamic()):
      self.output_lines.append(f"{name} {'bool' if isinstance(value, bool) else 'int'}")
      self.results.append(f"int {int(value)}")
    elif isinstance(value, float) and math.isfinite(value):
      self.output_lines.append(f"{name} float")
      self.results.append(f"float {hir.Literal(value)}")
    else:
      raise Unsupported(
        f"the result {wanted} is the {type(value).__name__} {value!r}, which Python computes"
      )

  # Text

  def lines(self, prefix: str, row: str) -> tuple[list[str], list[str], dict[str, str]]:
    """The function, its `image` and `kernel` rows, and the files of the images: the name of the
    row in the artifact by the name of the file. `prefix` goes before the names of kernels."""
    names = {line.split()[1]: prefix + line.split()[1] for line in self.source.rows}
    files = {}
    rows = []
    for line in self.source.rows:
      word, name, *rest = line.split(" ")
      if word == "image":
        _, form, file = rest
        file = file.strip('"')
        files[prefix + file] = name
        line = f'image {name} {row} {form} "{prefix}{file}"'
      rows.append(_renamed(line, names))
    for one in hir.walk(self.body):
      if isinstance(one, hir.Launch):
        one.kernel = names[one.kernel]
    body = [*self.head, *(line for one in self.body for line in one.lines()), *self.copies]
    return (
      [
        f"function {self.name} {{",
        *(f"  input {self.inputs[leaf.index]}" for leaf in self.leaves),
        *(f"  output {line}" for line in self.output_lines),
        f"  variant {row} {{",
        *(f"    {line}" for line in body),
        f"    return ({', '.join(self.results)})",
        "  }",
        "}",
      ],
      rows,
      files,
    )


def _is_random(name: str) -> bool:
  """Whether an operator draws numbers from torch's generator, as an operator of Husk would not."""
  op = extern.overload(name)
  return op is not None and extern.is_random(op)


def _is_tensor(value: Any) -> bool:
  import torch

  return isinstance(value, torch.Tensor) and value.layout == torch.strided


def _is_name(value: hir.Expr, name: str) -> bool:
  return isinstance(value, hir.Name) and value.name == name


def _is_size(value: hir.Expr) -> TypeGuard[hir.Op]:
  """Whether an expression is a size or a stride of an input."""
  return isinstance(value, hir.Op) and value.op in ("size", "stride")


def _value_text(source: str, places: Mapping[str, Any]) -> str:
  """The value of one of torch's sources in a `.hir`: "size(x, 0)" for "L['x'].size()[0]". Empty if
  it has none."""
  import torch

  try:
    place, quantity, dim = _size_in(ast.parse(source, mode="eval").body)
    value = _value(place, places)
  except Exception:  # a source of another kind
    return ""
  if isinstance(value, Leaf):
    return f"{quantity}({value.name}, {dim})" if quantity else value.name
  if quantity and isinstance(value, torch.Tensor):
    return str(int(getattr(value, quantity)(dim)))
  return str(value) if not quantity and type(value) is int else ""


def _size_in(node: ast.expr) -> tuple[ast.expr, str, int]:
  """The tensor, "size" or "stride", and the dimension, of a source such as "L['x'].size()[0]". Of
  another source the source itself, "" and 0."""
  match node:
    case ast.Subscript(
      value=ast.Call(func=ast.Attribute(value=place, attr="size" | "stride" as quantity), args=[]),
      slice=ast.Constant(value=int(dim)),
    ):
      return place, quantity, dim
  return node, "", 0


def _value(node: ast.expr, places: Mapping[str, Any]) -> Any:
  """The value of names, attributes and items. A source with anything else is no place: nothing of
  it is called."""
  if isinstance(node, ast.Name):
    return places[node.id]
  if isinstance(node, ast.Attribute):
    return getattr(_value(node.value, places), node.attr)
  if isinstance(node, ast.Subscript):
    return _value(node.value, places)[ast.literal_eval(node.slice)]
  raise LookupError(ast.unparse(node))
