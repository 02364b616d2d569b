"""Fixtures that several test files use."""

import host_ops
import pytest


@pytest.fixture(scope="module")
def pack():
  """The operators of the host, called without a session."""
  return host_ops.HostOps(host_ops.library())
