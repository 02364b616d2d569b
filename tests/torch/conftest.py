"""Fixtures that several test files use."""

import host_ops
import pytest


@pytest.fixture(scope="module")
def pack():
  """The operators of the host, called without a session."""
  return host_ops.HostOps(host_ops.library())


@pytest.fixture(autouse=True)
def hooks_of_torch():
  """A failed torch.export of one test leaves no hook that stops torch.compile in the next."""
  from husk.inductor import torch_compat

  with torch_compat.hooks_of_buffers_kept():
    yield
