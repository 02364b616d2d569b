"""Hooks for a conftest.py whose tests export models: an export then takes as long as outside a
test, where pytest would make it slower."""

import gc
import logging

from _pytest import runner
from husk.inductor import frames


def pytest_configure():
  """Turns off the traces of torch, which write each graph as text several times in an export. torch
  does so if the logger of the traces has a handler, and pytest gives a handler to each logger that
  does not propagate."""
  traces = logging.getLogger("torch.__trace")
  traces.handlers.clear()
  traces.propagate = True


def pytest_collection_finish():
  """Leaves what is imported out of Python's search for cycles of garbage, since it lives as long as
  the process, and makes the search as rare as it is in an export. With Python's own thresholds the
  search takes a tenth of the time of the tests."""
  gc.collect()
  gc.freeze()
  gc.set_threshold(50_000, 50, 10)


# Runs a test, like an export, with the memory for all frames in one piece.
run_protocol = frames.in_one_piece(runner.pytest_runtest_protocol)
