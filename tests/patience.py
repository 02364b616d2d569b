"""How long tests wait for what another thread or process does.

No test fails because a machine is slow or busy. A limit only ends a test that hangs, and all of
them are HANG (tests/patience.h has the same for C++).
"""

import time

HANG = 600  # seconds


def eventually(is_true, pause=0.02):
  """Waits until `is_true()` is true, and returns its value."""
  end = time.monotonic() + HANG
  while not (value := is_true()):
    assert time.monotonic() < end, f"this did not become true within {HANG} s"
    time.sleep(pause)
  return value
