"""The memory of tensors: who keeps it during a call, and what a program may write to."""

import ctypes
import gc
import mmap
import threading
import weakref

import conftest
import husk
import numpy as np
import pytest
import torch

# The argument is a list of two tensors; only the size of the second is read.
PAIR = """
tree "{\\"args\\": [[\\"a\\", \\"b\\"]], \\"kwargs\\": {\\"m\\": \\"m\\"}, \\"outputs\\": \\"n\\"}"
function forward {
  input a tensor f32 [1..64]
  input b tensor f32 [1..64]
  input m tensor f32 [1..64]
  output n int
  variant cpu {
    let k = size(b, 0)
    return (int k)
  }
}
"""

# Fills the bytes of its input with 88.
WRITES = """
function forward {
  input x tensor u8 [1..1048576]
  output n int
  variant cpu {
    let k = size(x, 0)
    check_stride(x, 0, 1)
    buffer x of input bytes k
    fill u8 (write x, 88)
    return (int k)
  }
}
"""

# Calls an operator of the test between its reads of the input.
CALLS = """
tree "{\\"args\\": [[\\"x\\"]], \\"kwargs\\": {}, \\"outputs\\": \\"y\\"}"
function forward {
  input x tensor f32 [4]
  output y tensor f32 rank 1
  variant cpu {
    buffer x of input bytes 16
    buffer y of output bytes 16
    extern "my::call" (write tensor y f32 [4] [1])
    copy (write y, read x)
    return (tensor y f32 [4] [1])
  }
}
"""


class Runs:
  """A tensor of a library with `__dlpack__`, which runs `body` when it is read."""

  def __init__(self, body, array):
    self.body = body
    self.array = array

  def __dlpack_device__(self):
    return (1, 0)

  def __dlpack__(self, **keywords):
    self.body()
    return self.array.__dlpack__(**keywords)


class Array(np.ndarray):
  """An array that can be referred to weakly."""


def test_leaves_live_as_long_as_a_call_uses_them(load):
  """The first leaf is read by code that drops the last reference of the user to the second one."""
  second = np.zeros(16, np.float32).view(Array)
  alive = weakref.ref(second)
  seen = []

  def drop():
    items[1] = None
    gc.collect()
    seen.append(alive() is not None)

  items = [Runs(drop, np.zeros(4, np.float32)), second]
  del second
  assert load(PAIR)(items, m=np.zeros(1, np.float32)) == 16
  gc.collect()
  assert seen == [True] and alive() is None


@pytest.mark.parametrize("library", [np, torch])
def test_leaves_live_while_a_program_runs(load, library):
  """The operator runs between two steps. It drops the reference of the user to the input."""
  x = library.ones(4, dtype=library.float32)
  if library is np:
    x = x.view(Array)
  alive = weakref.ref(x)
  seen = []

  def call(y):
    items[0] = None
    gc.collect()
    seen.append(alive() is not None)

  items = [x]
  del x
  y = load(CALLS, ops={"my::call": call})(items)
  gc.collect()
  assert seen == [True] and alive() is None and y.tolist() == [1, 1, 1, 1]


def test_a_list_that_becomes_shorter_is_refused(load):
  class Key(str):
    def __hash__(self):
      return hash("deep")

    def __eq__(self, other):
      items.clear()
      return True

  items = [np.zeros(2, np.float32), 3]
  zeros = np.zeros(2, np.float32)
  nested = load(conftest.NESTED)
  with pytest.raises(TypeError, match="argument 1"):
    nested(zeros, {Key("other"): items}, mask=zeros)


def test_a_dict_that_changes_while_its_keys_are_compared_is_refused(load):
  class Key(str):
    def __hash__(self):
      return hash("deep")

    def __eq__(self, other):
      values.clear()
      return False

  values = {Key("other"): [1, 2], "more": 2}
  zeros = np.zeros(2, np.float32)
  with pytest.raises((TypeError, RuntimeError)):
    load(conftest.NESTED)(zeros, values, mask=zeros)


def read_only(array):
  array.flags.writeable = False
  return array


def mapped(tmp_path):
  path = tmp_path / "bytes"
  path.write_bytes(b"x" * 4096)
  return np.memmap(path, dtype=np.uint8, mode="r")


READ_ONLY = {
  "bytes": lambda path: b"A",
  "long bytes": lambda path: b"a text of the program",
  "memoryview": lambda path: memoryview(b"bytes"),
  "array": lambda path: read_only(np.arange(4, dtype=np.uint8)),
  "view": lambda path: np.frombuffer(b"bytes", np.uint8),
  "broadcast": lambda path: np.broadcast_to(np.zeros(1, np.uint8), 4),
  "memmap": mapped,
  "mmap": lambda path: (
    mmap.mmap(mapped(path)._mmap.fileno(), 1, access=mmap.ACCESS_READ)
    if hasattr(mapped(path)._mmap, "fileno")
    else b"A"
  ),
  "capsule": lambda path: Runs(lambda: None, read_only(np.arange(4, dtype=np.uint8))),
}


@pytest.mark.parametrize("name", READ_ONLY)
def test_read_only_memory_is_refused_where_a_program_writes(load, tmp_path, name):
  memory = READ_ONLY[name](tmp_path)
  program = load(WRITES)
  text = "input 'x' (is read-only, and the program writes to it: pass a copy that|cannot be read)"
  for _ in range(2):
    before = None if isinstance(memory, Runs) else bytes(memory)
    with pytest.raises(husk.InvalidInputError, match=text):
      program(memory)
    assert before is None or bytes(memory) == before
  assert bytes([65]) == b"\x41"


@pytest.mark.parametrize(
  "make", [lambda: np.zeros(4, np.uint8), lambda: torch.zeros(4).byte(), lambda: bytearray(4)]
)
def test_memory_that_may_be_written_is_written(load, make):
  program = load(WRITES)
  assert (
    program.forward.inputs[0]["written"] and not load(conftest.COPY).forward.inputs[0]["written"]
  )
  memory = make()
  assert (
    program(memory) == 4
    and bytes(
      memory
      if isinstance(memory, bytearray)
      else memory.numpy()
      if isinstance(memory, torch.Tensor)
      else memory
    )
    == b"XXXX"
  )


def aligned(memory, size):
  address = ctypes.addressof((ctypes.c_char * 1).from_buffer(memory))
  start = -address % 256
  return memoryview(memory)[start : start + size]


def test_the_arena_of_the_caller_is_kept(load):
  session_memory = bytearray(16384 + 256)
  session = load(conftest.SCRATCH).session(arena=aligned(session_memory, 16384))
  x = np.ones((1024, 4), np.float32)
  assert np.array_equal(session(x)[0], x)
  with pytest.raises(BufferError):
    session_memory.clear()
  assert np.array_equal(session(x)[0], x)
  session.lend(aligned(bytearray(16384 + 256), 16384))  # nobody else keeps this one
  gc.collect()
  assert np.array_equal(session(x)[0], x)
  session_memory.clear()  # it was given back


@pytest.mark.parametrize(
  ("memory", "text"),
  [
    (torch.zeros(1, dtype=torch.uint8).expand(1 << 20), "is not contiguous"),
    (torch.zeros(1 << 20, dtype=torch.uint8)[::2], "is not contiguous"),
    (bytes(1 << 20), "is read-only"),
    (torch.zeros(1 << 20, dtype=torch.uint8, device="meta"), "does not lie on the device|meta"),
  ],
)
def test_wrong_arenas(load, memory, text):
  with pytest.raises((husk.Error, BufferError, ValueError, RuntimeError), match=text):
    load(conftest.SCRATCH).session(arena=memory)


class Tensor(ctypes.Structure):
  """DLTensor."""

  _fields_ = [
    ("data", ctypes.c_void_p),
    ("device", ctypes.c_int32 * 2),
    ("ndim", ctypes.c_int32),
    ("code", ctypes.c_uint8),
    ("bits", ctypes.c_uint8),
    ("lanes", ctypes.c_uint16),
    ("shape", ctypes.c_void_p),
    ("strides", ctypes.c_void_p),
    ("byte_offset", ctypes.c_uint64),
  ]


class Managed(ctypes.Structure):
  """DLManagedTensor."""

  _fields_ = [("tensor", Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class Capsule:
  """A tensor whose capsule has wrong fields."""

  def __init__(self, **fields):
    self.memory = (ctypes.c_float * 16)()
    self.sizes = (ctypes.c_int64 * 16)(*fields.pop("sizes", [4, 4]))
    self.managed = Managed(
      Tensor(ctypes.addressof(self.memory), (1, 0), 2, 2, 32, 1, ctypes.addressof(self.sizes))
    )
    for name, value in fields.items():
      setattr(self.managed.tensor, name, value)

  def __dlpack__(self, **keywords):
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p] * 3
    return new(ctypes.addressof(self.managed), ctypes.addressof(self.name), None)

  name = ctypes.create_string_buffer(b"dltensor")


@pytest.mark.parametrize("ndim", [-1, 17, 10**6, 2**31 - 1, -(2**31)])
def test_capsules_with_wrong_ranks(load, ndim):
  with pytest.raises(husk.InvalidInputError, match=f"has {ndim} dims, at most 16"):
    load(conftest.COPY)(Capsule(ndim=ndim))


@pytest.mark.parametrize(
  ("fields", "text"),
  [
    ({"shape": None}, "has 2 dims, and no sizes"),
    ({"sizes": [-4, 4]}, "size 0 of input 'x' is -4"),
    ({"sizes": [2**62, 4]}, "size 0 of input 'x'"),
    ({"lanes": 0}, "dtype unknown"),
    ({"bits": 0}, "dtype unknown"),
    ({"data": None}, "has no memory"),
    ({"device": (ctypes.c_int32 * 2)(99, 7)}, "DLPack device 99:7"),
  ],
)
def test_wrong_capsules(load, fields, text):
  with pytest.raises(husk.InvalidInputError, match=text):
    load(conftest.COPY)(Capsule(**fields))


def test_sizes_are_those_at_the_begin_of_a_call(load):
  """A later leaf changes the sizes that the capsule of an earlier one points to."""
  first = Capsule(ndim=1)

  def change():
    first.sizes[0] = 1 << 40

  items = [first, Runs(change, np.zeros(16, np.float32))]
  assert load(PAIR)(items, m=np.zeros(1, np.float32)) == 16


def test_bytes_that_may_change_are_copied(compiled):
  """A program borrows memory only if it stays as it is."""
  content = compiled(conftest.COPY).read_bytes()
  memory = np.zeros(len(content) + 64, np.uint8)
  memory = memory[-memory.ctypes.data % 64 :][: len(content)]
  memory[:] = np.frombuffer(content, np.uint8)
  program = husk.load(memory)
  memory[:] = 255
  x = np.ones((2, 4), np.float32)
  assert np.array_equal(program(x)[0], x) and "forward(x: f32" in repr(program)


def put_from_threads(program):
  """Calls the program from four threads that begin at the same time; returns what they have put."""
  barrier = threading.Barrier(4)
  done = []

  def put(number):
    barrier.wait()
    try:
      program.put(torch.full((4,), float(number)))
      done.append(number)
    except husk.InvalidArgumentError:
      pass  # another call is using the session

  threads = [threading.Thread(target=put, args=(i,)) for i in range(2, 6)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  return done


def test_one_session_of_a_program_with_states(load):
  """Threads that begin at the same time find the same states."""
  for _ in range(20):
    program = load(conftest.CACHE)
    done = put_from_threads(program)
    assert done and program.get().tolist()[0] in done
