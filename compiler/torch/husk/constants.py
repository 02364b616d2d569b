"""The weights and buffers of a model: one row for each storage, and the safetensors file that holds their bytes.

A storage that some step writes is state: it begins with the model's value (or a fill) and is each session's own.
"""

import dataclasses
import re

from . import hir
from .errors import Unsupported

FILE = "weights.safetensors"
GENERATOR, GENERATOR_BYTES = "husk.generator", 2536


@dataclasses.dataclass(eq=False)
class Row:
  buffer: hir.Buffer
  tensor: object      # what is stored: contiguous
  offset: int         # bytes of the storage before it


class Constants:
  """All constants of a program, for all its functions. Rows appear when something uses them."""

  def __init__(self, names):
    self._names = names
    self._tensors = []    # all that the functions bring along
    self._of = {}         # id of an exported program -> {FQN: tensor}
    self._rows = {}       # storage -> Row
    self._taken = {}      # storage -> reserved name

  def add(self, exported):
    """Takes in what a function's program brings along, before any row is asked for."""
    import torch
    mine = self._of[id(exported)] = {}
    for fqn, tensor in {**exported.state_dict, **exported.constants}.items():
      if isinstance(tensor, torch.Tensor):
        if re.fullmatch(r"buf\d+", fqn):
          raise Unsupported(f"a parameter or buffer named {fqn}: Inductor calls buffers of its own so; give it another name")
        mine[fqn] = tensor.detach()
        self._tensors.append(mine[fqn])
        if (key := _key(tensor)) not in self._taken:
          self._taken[key] = self._names.take(fqn)

  def of(self, exported):
    """What answers for the constants of one function's program: its `place`."""
    return Of(self, self._of[id(exported)])

  def place(self, graph, name, tensors):
    """The row of Inductor's constant `name`, and the bytes before the tensor in it."""
    tensor = tensors.get(graph.allocated_constant_name.get(name, name))
    tensor = graph.constants[name] if tensor is None else tensor
    if _is_fake(tensor):
      raise Unsupported(f"the constant {name} has no value: it was made while compiling for a device that is not here")
    row = self._rows.get(_key(tensor)) or self._row(name, tensor)
    return row.buffer, tensor.storage_offset() * tensor.element_size() - row.offset

  def _row(self, name, tensor):
    views = [tensor, *(other for other in self._tensors if _key(other) == _key(tensor))]
    whole = {(view.dtype, view.storage_offset(), tuple(view.shape), tuple(view.stride())) for view in views}
    if len(whole) == 1 and tensor.is_contiguous():
      stored, offset = tensor, tensor.storage_offset() * tensor.element_size()
    else:
      begin = min(view.storage_offset() * view.element_size() for view in views)
      end = max(_end(view) for view in views)
      size = tensor.element_size()
      begin -= begin % size
      stored, offset = tensor.as_strided(((end - begin + size - 1) // size,), (1,), begin // size), begin
    if hir.dtype(tensor.dtype) is None:
      raise Unsupported(f"the constant {name} has dtype {tensor.dtype}")
    taken = self._taken.get(_key(tensor)) or self._names.take(name)
    row = Row(hir.Buffer(taken, "constant", str(stored.numel() * stored.element_size())), stored, offset)
    self._rows[_key(tensor)] = row
    return row

  def generator(self):
    """The state of the random numbers, zeros at first (ports/host/include/husk/port_host.h)."""
    import torch
    if GENERATOR not in self._rows:
      buffer = hir.Buffer(self._names.take(GENERATOR), "state", str(GENERATOR_BYTES))
      self._rows[GENERATOR] = Row(buffer, torch.zeros(GENERATOR_BYTES, dtype=torch.uint8), 0)
    return self._rows[GENERATOR].buffer

  def lines(self):
    """The `constant` and `state` lines, and the tensors of the file by name."""
    lines, tensors = [], {}
    for row in sorted(self._rows.values(), key=lambda row: row.buffer.name):
      dims = f"{hir.dtype(row.tensor.dtype)} [{', '.join(map(str, row.tensor.shape))}]"
      name = row.buffer.name
      fill = _fill(row.tensor) if row.buffer.space == "state" else None
      if fill is None:
        initial = name if row.buffer.space == "constant" else self._names.take(f"{name}.initial")
        tensors[initial] = row.tensor.cpu().contiguous()
        lines.append(f'constant {initial} {dims} file "{FILE}" tensor {hir.quoted(initial)}')
      if row.buffer.space == "state":
        lines.append(f"state {name} {dims} " + (f"constant {initial}" if fill is None else f"fill {fill}"))
    return lines, tensors


@dataclasses.dataclass
class Of:
  """The constants as one function names them."""

  constants: Constants
  tensors: dict

  def generator(self):
    return self.constants.generator()

  def place(self, graph, name):
    return self.constants.place(graph, name, self.tensors)


def _key(tensor):
  return tensor.untyped_storage()._cdata


def _end(tensor):
  """Bytes of the storage up to the tensor's last element."""
  if tensor.numel() == 0:
    return tensor.storage_offset() * tensor.element_size()
  last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
  return (tensor.storage_offset() + last + 1) * tensor.element_size()


def _is_fake(tensor):
  from torch._subclasses.fake_tensor import FakeTensor
  return isinstance(tensor, FakeTensor)


def _fill(tensor):
  """The literal that all elements equal, or None. Bytes are compared: -0.0 is no 0.0."""
  import torch
  if tensor.is_complex() or tensor.element_size() * tensor.numel() == 0:
    return None
  flat = tensor.cpu().contiguous().flatten()
  raw = flat.view(torch.uint8).view(flat.numel(), -1)
  if not bool((raw == raw[0]).all()):
    return None
  value = flat[0].item()
  if not tensor.is_floating_point() and int(value) >= 2**63:
    return None
  return hir.number(int(value) if not tensor.is_floating_point() else value)
