"""Calls the operators of libhusk_ops through their C interface, with tensors of PyTorch.

HUSK_TEST_ISA is the number of the best set of features that they use, among those of SETS that this
machine has.
"""

import ctypes
import os
import pathlib
import platform

import pytest
import torch
from husk import dtypes
from husk.host import cpus

ROOT = pathlib.Path(__file__).resolve().parents[3]

DTYPES = {getattr(torch, name): dtypes.CODES[own] for own, name in dtypes.TORCH.items()}
LATER = tuple(int(part) for part in torch.__version__.split(".")[:2]) > (2, 11)
NONE, TENSOR, INT, FLOAT, INTS, STRING, DTYPE, FLOATS, TENSORS, RESULT = range(10)
INVALID_ARGUMENT, UNSUPPORTED, INVALID_INPUT, KERNEL = 1, 3, 4, 9
GENERATOR_BYTES = 2536

# The sets of features that operators of this machine are compiled for, without that of AMX, which
# needs the permission of Linux. The last one is the best.
SETS = [
  features
  for name, (machine, features, _) in cpus.SETS.items()
  if machine == platform.machine() and name != "Amx"
]


class Arg(ctypes.Structure):
  pass


Arg._fields_ = [
  ("kind", ctypes.c_int32),
  ("access", ctypes.c_int32),
  ("dtype", ctypes.c_int32),
  ("rank", ctypes.c_int32),
  ("data", ctypes.c_void_p),
  ("sizes", ctypes.POINTER(ctypes.c_int64)),
  ("strides", ctypes.POINTER(ctypes.c_int64)),
  ("count", ctypes.c_int64),
  ("i", ctypes.c_int64),
  ("f", ctypes.c_double),
  ("string", ctypes.c_char_p),
  ("floats", ctypes.POINTER(ctypes.c_double)),
  ("tensors", ctypes.POINTER(Arg)),
]


class Context(ctypes.Structure):
  _fields_ = [
    ("struct_size", ctypes.c_uint32),
    ("reserved", ctypes.c_uint32),
    ("user", ctypes.c_void_p),
    ("device", ctypes.c_void_p),
    ("stream", ctypes.c_void_p),
    ("threads", ctypes.c_void_p),
    ("cancel", ctypes.c_void_p),
    ("cancel_user", ctypes.c_void_p),
    ("packed", ctypes.c_void_p),
    ("scratch", ctypes.c_void_p),
  ]


class Error(ctypes.Structure):
  _fields_ = [
    ("code", ctypes.c_int32),
    ("driver_code", ctypes.c_int32),
    ("step", ctypes.c_int32),
    ("text", ctypes.c_char * 240),
  ]


Call = ctypes.CFUNCTYPE(
  ctypes.c_int32,
  ctypes.POINTER(Context),
  ctypes.POINTER(Arg),
  ctypes.c_uint32,
  ctypes.POINTER(Error),
)


class Packing(ctypes.Structure):
  _fields_ = [
    ("struct_size", ctypes.c_uint32),
    ("argument", ctypes.c_uint32),
    ("bytes", ctypes.c_uint64),
    ("layout", ctypes.c_uint64),
    ("data", ctypes.c_void_p),
  ]


Pack = ctypes.CFUNCTYPE(
  ctypes.c_int32,
  ctypes.POINTER(Context),
  ctypes.POINTER(Arg),
  ctypes.c_uint32,
  ctypes.POINTER(Packing),
  ctypes.POINTER(Error),
)


class Row(ctypes.Structure):
  _fields_ = [
    ("struct_size", ctypes.c_uint32),
    ("reserved", ctypes.c_uint32),
    ("name", ctypes.c_char_p),
    ("call", Call),
    ("user", ctypes.c_void_p),
    ("prepare", ctypes.c_void_p),
    ("contract", ctypes.c_char_p),
    ("pack", Pack),
    ("place", ctypes.c_int32),
    ("flags", ctypes.c_uint32),
    ("scratch_bytes", ctypes.c_uint64),
    ("thread_scratch_bytes", ctypes.c_uint64),
  ]


class Failed(Exception):
  def __init__(self, code, text):
    super().__init__(f"{code}: {text}")
    self.code, self.text = code, text


class IntResult:
  """An int that the op returns; `value` holds it after the call."""

  value = None


def library():
  """The path of libhusk_ops: HUSK_OPS, else the library of the build of HUSKC, else of the newest
  build."""
  if path := os.environ.get("HUSK_OPS"):
    return path
  if "HUSKC" in os.environ:
    found = [pathlib.Path(os.environ["HUSKC"]).resolve().parents[1] / "lib" / "libhusk_ops.so"]
  else:
    found = sorted(ROOT.glob("build/*/lib/libhusk_ops.so"), key=lambda path: path.stat().st_mtime)
  if not found or not found[-1].exists():
    pytest.skip("libhusk_ops is not built")
  return str(found[-1])


class HostOps:
  def __init__(self, path):
    self.library = ctypes.CDLL(path)
    self.library.husk_host_ops.restype = ctypes.POINTER(Row)
    count = ctypes.c_uint32()
    rows = self.library.husk_host_ops(ctypes.byref(count))
    # The rows lie struct_size apart: rows of the library may have more fields than Row.
    first, stride = ctypes.addressof(rows.contents), rows.contents.struct_size
    listed = [Row.from_address(first + i * stride) for i in range(count.value)]
    self.rows = {row.name.decode(): row for row in listed}
    # The ops read only the features of the port's device, which follow the three pointers of the
    # allocator.
    self.device = (ctypes.c_int64 * 32)()
    words = set(pathlib.Path("/proc/cpuinfo").read_text().split())
    self.sets = [features for features in SETS if words.issuperset(features)]
    best = len(self.sets)
    self.use(min(best, int(os.environ.get("HUSK_TEST_ISA", best))))

  def use(self, number):
    """Uses a set by its number among those that this machine has, from 1: on x86-64 1 for any CPU,
    2 for AVX2."""
    self.number = number
    self.device[3] = sum(1 << cpus.FEATURES.index(name) for name in self.sets[number - 1])

  def each_use(self):
    """Uses each set of this machine in turn, the best one last, which stays."""
    best = self.number
    try:
      for number in range(1, best + 1):
        self.use(number)
        yield number
    finally:
      self.use(best)

  def __call__(self, name, *args, packed=()):
    """Calls an op, which finds copies of the arguments `packed`, by their numbers, if it asks for
    them. Raises Failed. Returns the numbers of bytes of the copies."""
    keep = []
    items = (Arg * max(1, len(args)))(*[_arg(value, keep) for value in args])
    row = self.rows[name]
    context = Context(struct_size=ctypes.sizeof(Context), user=row.user)
    context.device = ctypes.addressof(self.device)
    if row.scratch_bytes:
      scratch = ctypes.create_string_buffer(row.scratch_bytes + 64)
      context.scratch = -(-ctypes.addressof(scratch) // 64) * 64
    error = Error()
    copies = (ctypes.c_void_p * max(1, len(args)))()
    sizes = []
    for number in packed:
      packing = Packing(struct_size=ctypes.sizeof(Packing), argument=number)
      ask = (ctypes.byref(context), items, len(args), ctypes.byref(packing), ctypes.byref(error))
      if row.pack(*ask):
        raise Failed(error.code, error.text.decode())
      sizes.append(packing.bytes)
      if packing.bytes:
        # Behind the copy there are bytes that must stay.
        copy = ctypes.create_string_buffer(b"\x5a" * (packing.bytes + 128))
        packing.data = copies[number] = -(-ctypes.addressof(copy) // 64) * 64
        end = packing.data + packing.bytes
        assert row.pack(*ask) == 0, error.text
        left = ctypes.addressof(copy) + packing.bytes + 128 - end
        assert ctypes.string_at(end, left) == b"\x5a" * left
        keep.append(copy)
    context.packed = ctypes.addressof(copies)
    status = row.call(ctypes.byref(context), items, len(args), ctypes.byref(error))
    if status:
      assert error.code == status
      raise Failed(status, error.text.decode())
    for value, item in zip(args, items):
      if isinstance(value, IntResult):
        value.value = ctypes.c_int64.from_address(item.data).value
    return sizes


def _arg(value, keep):
  arg = Arg()
  if value is None:
    arg.kind = NONE
  elif isinstance(value, torch.Tensor):
    arg.kind, arg.dtype, arg.rank, arg.access = TENSOR, DTYPES[value.dtype], value.dim(), 3
    arg.data = value.data_ptr()
    sizes, strides = (ctypes.c_int64 * 16)(*value.shape), (ctypes.c_int64 * 16)(*value.stride())
    keep += [value, sizes, strides]
    arg.sizes, arg.strides = sizes, strides
  elif isinstance(value, (bool, int)):
    arg.kind, arg.i = INT, int(value)
  elif isinstance(value, float):
    arg.kind, arg.f = FLOAT, value
  elif isinstance(value, complex):
    arg.kind, arg.count = FLOATS, 2
    arg.floats = (ctypes.c_double * 2)(value.real, value.imag)
    keep.append(arg.floats)
  elif isinstance(value, str):
    arg.kind, arg.string = STRING, value.encode()
    keep.append(arg.string)
  elif isinstance(value, torch.dtype):
    arg.kind, arg.dtype = DTYPE, DTYPES[value]
  elif isinstance(value, IntResult):
    place = ctypes.c_int64(-1)
    keep.append(place)
    arg.kind, arg.dtype, arg.data = RESULT, 9, ctypes.addressof(place)
  elif any(item is None or isinstance(item, torch.Tensor) for item in value):
    items = (Arg * len(value))(*[_arg(item, keep) for item in value])
    keep.append(items)
    arg.kind, arg.count, arg.tensors = TENSORS, len(value), items
  elif any(isinstance(item, float) for item in value):
    arg.kind, arg.count, arg.floats = (
      FLOATS,
      len(value),
      (ctypes.c_double * max(1, len(value)))(*value),
    )
    keep.append(arg.floats)
  else:
    sizes = (ctypes.c_int64 * max(1, len(value)))(*value)
    keep.append(sizes)
    arg.kind, arg.count, arg.sizes = INTS, len(value), sizes
  return arg


def layouts(tensor):
  """The values of a tensor with other strides: unchanged, dimensions in another order, with
  gaps, and expanded."""
  yield tensor
  if tensor.dim() > 1:
    order = list(range(tensor.dim()))[::-1]
    yield tensor.permute(order).contiguous().permute(order)
  if tensor.dim() > 0:
    wide = torch.zeros([*tensor.shape[:-1], tensor.shape[-1] * 2 + 1], dtype=tensor.dtype)
    view = wide[..., 1::2]
    view.copy_(tensor)
    yield view


def like(result):
  """Memory for a result, filled with a value that no op may leave."""
  return torch.empty_strided(result.shape, result.stride(), dtype=result.dtype).copy_(
    torch.ones((), dtype=result.dtype)
  )


def close(got, expected, rtol=0.0, atol=0.0):
  torch.testing.assert_close(got, expected, rtol=rtol, atol=atol, equal_nan=True)


def refused(pack, code, text, name, *args):
  """Checks that the call fails with this code and that the error names the op and contains
  `text`."""
  with pytest.raises(Failed) as failure:
    pack(name, *args)
  assert failure.value.code == code, failure.value.text
  assert name in failure.value.text and text in failure.value.text, failure.value.text
