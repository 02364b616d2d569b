"""Tensors beside memory that nobody may read or write.

A kernel that reads in front of such a tensor, or behind it, ends the process. The sanitizers of a
C++ compiler do not see that: the kernels of an artifact are compiled without them."""

import ctypes
import mmap

import torch

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [
  ctypes.c_void_p,
  ctypes.c_size_t,
  ctypes.c_int,
  ctypes.c_int,
  ctypes.c_int,
  ctypes.c_long,
]
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def fenced(tensor, side):
  """A copy of a tensor with the same strides, of which the `side` ("front" or "back") is at
  memory that may not be touched. The memory is never freed. A tensor without elements begins
  there."""
  room = sum(
    (size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
  )
  used = (room + 1) * tensor.element_size() if tensor.numel() else 0
  inner = -(-max(used, 1) // mmap.PAGESIZE) * mmap.PAGESIZE
  flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
  begin = _libc.mmap(
    None, inner + 2 * mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0
  )
  if begin in (None, ctypes.c_void_p(-1).value):
    raise MemoryError(f"mmap: error {ctypes.get_errno()}")
  for page in (begin, begin + mmap.PAGESIZE + inner):
    if _libc.mprotect(page, mmap.PAGESIZE, 0):
      raise MemoryError(f"mprotect: error {ctypes.get_errno()}")
  first = begin + mmap.PAGESIZE
  if side == "back":
    first += inner - used  # a multiple of the size of an element, which is all that hosts ask for
  if not used:
    memory = (ctypes.c_byte * 1).from_address(first)  # its address counts, and nothing is read
    flat = torch.frombuffer(memory, dtype=torch.uint8)[:0].view(tensor.dtype)
    return flat.as_strided(tensor.shape, tensor.stride())
  memory = (ctypes.c_byte * used).from_address(first)
  flat = torch.frombuffer(memory, dtype=torch.uint8).view(tensor.dtype)
  fenced_copy = flat.as_strided(tensor.shape, tensor.stride())
  fenced_copy.copy_(tensor)
  return fenced_copy
