"""The values of a program in Gluon, for gluon_interpreter.py: ints, tensors and addresses."""

import operator
import types

import torch


class Kind:
  """A type of elements."""

  def __init__(self, of):
    self.of, self.primitive_bitwidth = of, 8 * of.itemsize


KINDS = {
  name: Kind(getattr(torch, name))
  for name in ("uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32")
}


class Scalar(int):
  """An int of a program."""

  def to(self, kind):
    assert not kind.of.is_floating_point
    return self


class Block:
  """A tensor of registers."""

  def __init__(self, data):
    self.data = data

  shape = property(lambda self: tuple(self.data.shape))
  type = types.SimpleNamespace(layout=None)

  def to(self, kind, bitcast=False):
    if bitcast:
      return Block(self.data.contiguous().view(kind.of))
    if self.data.dtype == torch.int32 and kind.of == torch.int8:
      return Block(self.data.contiguous().view(torch.int8)[..., ::4])
    return Block(self.data.to(kind.of))

  def __rshift__(self, bits):
    return Block(self.data >> bits)

  def __getitem__(self, at):
    return Block(self.data[at])

  def __neg__(self):
    return Block(-self.data)

  @property
  def dtype(self):
    return KINDS[str(self.data.dtype).removeprefix("torch.")]


def plain(x):
  return x if isinstance(x, (int, float)) else x.data


def _of_scalars(name):
  def operation(self, other):
    result = getattr(int, name)(self, other)
    return result if result is NotImplemented else Scalar(result)

  return operation


def _of_blocks(name):
  act = getattr(operator, name if name != "and" else "and_")
  return (
    lambda self, other: Block(act(self.data, plain(other))),
    lambda self, other: Block(act(plain(other), self.data)),
  )


for _name in (
  "add",
  "sub",
  "mul",
  "floordiv",
  "mod",
  "and",
  "xor",
  "truediv",
  "lt",
  "le",
  "gt",
  "ge",
  "eq",
  "ne",
):
  _one, _other = _of_blocks(_name)
  setattr(Block, f"__{_name}__", _one)
  setattr(Block, f"__r{_name}__", _other)
  for _full in (f"__{_name}__", f"__r{_name}__"):
    if hasattr(int, _full) and _name != "truediv":
      setattr(Scalar, _full, _of_scalars(_full))
Scalar.__hash__ = int.__hash__


class Pointer:
  """Addresses of elements of a tensor's storage: `at` is a number, or a Block of them."""

  def __init__(self, flat, at, kind):
    self.flat, self.at, self.dtype = flat, at, types.SimpleNamespace(element_ty=kind)

  @classmethod
  def of(cls, tensor):
    flat = torch.empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage())
    return cls(
      flat, Scalar(tensor.storage_offset()), KINDS[str(tensor.dtype).removeprefix("torch.")]
    )

  def __add__(self, far):
    return Pointer(self.flat, self.at + far, self.dtype.element_ty)

  def within(self, mask):
    """The offsets and the mask, in the same shape. An offset out of range is an IndexError."""
    at = self.at.data.long()
    mask = (
      torch.ones_like(at, dtype=torch.bool) if mask is None else mask.data.bool().expand(at.shape)
    )
    outside = at[mask & ((at < 0) | (at >= self.flat.numel()))]
    if outside.numel():
      raise IndexError(f"address {int(outside[0])} of a storage of {self.flat.numel()} elements")
    return at, mask


class Either:
  """Addresses of two storages: those of `one` where `first` is true."""

  def __init__(self, first, one, other):
    self.first, self.one, self.other = first, one, other

  def __add__(self, far):
    return Either(self.first, self.one + far, self.other + far)
