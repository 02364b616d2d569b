"""A husk_threads (husk/types.h) of Python threads, for runs of host images."""

import ctypes
import threading

_BODY = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32)
_PARALLEL = ctypes.CFUNCTYPE(
  None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_void_p
)


class _Table(ctypes.Structure):
  _fields_ = [("user", ctypes.c_void_p), ("count", ctypes.c_uint32), ("parallel", _PARALLEL)]


class Threads:
  """`regions` lists the number of bodies of each parallel region since the list was cleared."""

  def __init__(self, count):
    self.regions = []
    self._table = _Table(None, count, _PARALLEL(self._parallel))

  def give(self, image):
    """Passes these threads to a loaded image, as the loader does."""
    ctypes.c_void_p.in_dll(image, "husk_image_threads").value = ctypes.addressof(self._table)

  def _parallel(self, user, n, body, argument):
    self.regions.append(n)
    run = _BODY(body)
    others = [threading.Thread(target=run, args=(argument, index)) for index in range(1, n)]
    for thread in others:
      thread.start()
    run(argument, 0)
    for thread in others:
      thread.join()
