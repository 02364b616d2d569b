"""Fixtures that several test files use."""

import logging

import host_ops
import pytest
import quick_exports
import torch
from quick_exports import pytest_collection_finish, pytest_configure  # noqa: F401


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item, nextitem):
  """Each test draws the same random numbers, whichever ran before it."""
  torch.manual_seed(0)
  return quick_exports.run_protocol(item, nextitem)


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
