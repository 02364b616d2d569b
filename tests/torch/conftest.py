"""Fixtures that several test files use."""

import host_ops
import pytest


@pytest.fixture(scope="module")
def pack():
  """The operators of the host, called without a session."""
  return host_ops.HostOps(host_ops.library())


@pytest.fixture(autouse=True)
def hooks_of_torch():
  """A test whose torch.export fails leaves no hook that would stop torch.compile in the next one."""
  from husk.inductor import torch_compat

  with torch_compat.hooks_of_buffers_kept():
    yield
