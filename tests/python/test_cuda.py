"""Programs on a GPU, with the CUDA driver of tests/fake_driver. PyTorch has no memory there, so the
tensors come from a library with `__dlpack__` alone."""

import os
import pathlib
import subprocess
import sys

import conftest
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]

GPU = conftest.COPY.replace("variant cpu", "variant gpu")

# y = the cumulative sums of the rows of x, which the host computes.
HOST_STEP = GPU.replace(
  "copy (write y, read x)",
  """buffer a bytes mul(n, 16) align 64 on host
    buffer b bytes mul(n, 16) align 64 on host
    copy (write a, read x)
    extern "aten::cumsum" (read tensor a f32 [n, 4] [4, 1], 1, none,
                           write tensor b f32 [n, 4] [4, 1])
    copy (write y, read b)""",
)

# The places of the elements that are not 0, which the host finds and the GPU gets.
NONZERO = """
function forward {
  input x tensor f32 [1..1000]
  output y tensor i64 rank 2
  variant gpu {
    let n = size(x, 0)
    buffer x of input bytes mul(n, 4)
    buffer a bytes mul(n, 4) align 64 on host
    copy (write a, read x)
    extern "aten::nonzero:sizes" (read tensor a f32 [n] [1], result int)
    let u = result(0)
    buffer b bytes mul(u, 8) align 64 on host
    buffer y of output bytes mul(u, 8)
    extern "aten::nonzero" (read tensor a f32 [n] [1], write tensor b i64 [u, 1] [1, 1])
    copy (write y, read b)
    return (tensor y i64 [u, 1] [1, 1])
  }
}
"""

SCRIPT = '''
import ctypes, sys
import husk, numpy as np

cuda = ctypes.CDLL("libcuda.so.1")
def call(name, version, *args):
  """Calls a function of the driver by its name and the version of its interface."""
  address = ctypes.c_void_p()
  legacy_stream = ctypes.c_uint64(1)
  cuda.cuGetProcAddress_v2(name.encode(), ctypes.byref(address), version, legacy_stream, None)
  assert ctypes.CFUNCTYPE(ctypes.c_int)(address.value)(*args) == 0, name
call("cuInit", 2000, 0)
context = ctypes.c_void_p()
call("cuDevicePrimaryCtxRetain", 7000, ctypes.byref(context), 0)
call("cuCtxPushCurrent", 4000, context)

class Tensor(ctypes.Structure):
  """DLManagedTensor."""
  _fields_ = [
    ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
    ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
    ("lanes", ctypes.c_uint16), ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p),
    ("byte_offset", ctypes.c_uint64), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
  ]

class DeviceArray:
  """Memory of the device."""
  def __init__(self, array):
    self.array = array
    self.memory = ctypes.c_uint64()
    call("cuMemAlloc", 3020, ctypes.byref(self.memory), ctypes.c_size_t(array.nbytes))
    source = array.ctypes.data_as(ctypes.c_void_p)
    call("cuMemcpyHtoDAsync", 3020, self.memory, source, ctypes.c_size_t(array.nbytes), None)
    call("cuStreamSynchronize", 2000, None)
    self.shape = (ctypes.c_int64 * array.ndim)(*array.shape)
    self.tensor = Tensor(
      self.memory.value, 2, 0, array.ndim, 2, 32, 1, ctypes.addressof(self.shape), None, 0)
  def __dlpack__(self):
    new = ctypes.pythonapi.PyCapsule_New
    new.restype = ctypes.py_object
    new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return new(ctypes.addressof(self.tensor), b"dltensor", None)
  def numpy(self):
    out = np.zeros_like(self.array)
    target = out.ctypes.data_as(ctypes.c_void_p)
    call("cuMemcpyDtoHAsync", 3020, target, self.memory, ctypes.c_size_t(out.nbytes), None)
    call("cuStreamSynchronize", 2000, None)
    return out

program = husk.load(sys.argv[1], device="cuda:0")
x = np.arange(12, dtype=np.float32).reshape(3, 4)
device_x, device_y = DeviceArray(x), DeviceArray(np.zeros_like(x))
host_steps = husk.load(sys.argv[2], device="cuda", threads=2).session()
for run in range(2):
  host_steps(device_x, out=(device_y, None), stream=0)
  assert (device_y.numpy() == x.cumsum(1)).all()
host_steps.wait()
for mode in ("auto", "list", "graph"):
  session = program.session(mode=mode)
  for rows in range(2):
    y, k = session(device_x, out=(device_y, None), stream=0)
    assert y is device_y and k == 6 and (y.numpy() == x).all()
  session.wait()

# Arrays of NumPy are copied to the device and back, and give arrays.
for rows in (3, 1, 2):
  y, k = program(x[:rows])
  assert type(y) is np.ndarray and k == 2 * rows and (y == x[:rows]).all()
y = np.zeros_like(x)
assert program(x, out=(y, None))[0] is y and (y == x).all()
y[:] = 0
assert program(device_x, out=(y, None))[0] is y and (y == x).all()
y, k = host_steps(x)
assert (y == x.cumsum(1)).all()

# A result whose size only the data decides is copied, too.
nonzero = husk.load(sys.argv[3], device="cuda").session()
for row in (np.arange(6, dtype=np.float32), np.zeros(3, np.float32), np.ones(40, np.float32)):
  y = nonzero(row)
  assert type(y) is np.ndarray and (y == np.argwhere(row)).all() and len(y) == (row != 0).sum()

class Elsewhere(DeviceArray):
  """Memory that is said to be another device's."""
  def __init__(self, array):
    super().__init__(array)
    self.tensor.device_id = 3

def refused(error, text, *args, **kwargs):
  try:
    program(*args, **kwargs)
  except error as caught:
    assert text in str(caught), caught
  else:
    raise AssertionError("nothing was raised")

elsewhere = Elsewhere(x)
refused(
  husk.InvalidInputError,
  "input 'x' lies on cuda:3, the program runs on cuda:0: copy it there",
  elsewhere,
)
refused(
  husk.InvalidInputError,
  "output 'y' lies on cuda:3, the program runs on cuda:0: pass memory of that device",
  device_x,
  out=(elsewhere, None),
)
refused(husk.InvalidInputError, "'y' lies on a GPU, where NumPy has no memory", device_x)
try:
  husk.load(sys.argv[1], device="cuda:99")
except husk.Error as caught:
  assert "99" in str(caught), caught
else:
  raise AssertionError("there is no such device")
'''


def test_a_program_on_a_gpu(compiled, environment):
  # A driver of a build with sanitizers cannot be opened by Python.
  folder = ROOT / "build" / "release" / "fake_driver"
  if not (folder / "libcuda.so.1").exists():
    pytest.skip("the target fake_driver of build/release is not built")
  target = 'gpu cuda "sm_80"'
  artifacts = [str(compiled(functions, target=target)) for functions in (GPU, HOST_STEP, NONZERO)]
  paths = f"{folder}:{os.environ.get('LD_LIBRARY_PATH', '')}"
  environment = {**environment, "LD_LIBRARY_PATH": paths}
  done = subprocess.run(
    [sys.executable, "-c", SCRIPT, *artifacts], env=environment, capture_output=True, text=True
  )
  assert done.returncode == 0, done.stderr
