"""Fixtures that several test files use."""

import gc
import logging

import host_ops
import pytest
import torch
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


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item, nextitem):
  """Runs a test, like an export, with the memory for all frames in one piece. Each test draws the
  same random numbers, whichever ran before it."""
  torch.manual_seed(0)
  return frames.in_one_piece(runner.pytest_runtest_protocol)(item, nextitem)


@pytest.fixture(scope="module")
def pack():
  """The operators of the host, called without a session."""
  return host_ops.HostOps(host_ops.library())


@pytest.fixture(autouse=True)
def handlers_of_husk():
  """A test of a command, which prints what Husk logs, leaves no handler to the next one. Its stream
  would be one that pytest has closed."""
  logger = logging.getLogger("husk")
  handlers, level = logger.handlers[:], logger.level
  yield
  logger.handlers[:] = handlers
  logger.setLevel(level)


@pytest.fixture(autouse=True)
def hooks_of_torch():
  """A failed torch.export of one test leaves no hook that stops torch.compile in the next."""
  from husk.inductor import torch_compat

  with torch_compat.hooks_of_buffers_kept():
    yield
