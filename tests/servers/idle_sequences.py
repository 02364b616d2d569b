"""Sequences that are too many for a model, and sequences that are idle for too long."""

import pytest
from conftest import eventually
from tritonclient.utils import InferenceServerException

# The server waits for this idle time when it unloads a model, so it is short. A slow client's
# sequences may then end between its requests: it begins them anew.
CONFIG = """
    sequence_batching { max_sequence_idle_microseconds: 500000 oldest { } }
    parameters { key: "max_sequences" value { string_value: "2" } }
  """


def check(step, first):
  """Checks a model that was loaded with CONFIG. `step(sequence, **flags)` sends a request with the
  number 1, and returns the result, which is `first` for the first one of a sequence."""

  def error_of(sequence):
    try:
      assert step(sequence, start=True) == first
      return None
    except InferenceServerException as error:
      assert "max_sequences" in str(error)
      return error

  caught = eventually(lambda: [error_of(sequence) for sequence in (1, 2, 3)][2])
  assert caught.status() == "503"
  # Sequences that are idle for too long leave their places: the server says so to nobody.
  eventually(lambda: error_of(4) is None)
  with pytest.raises(InferenceServerException):
    step(1)
