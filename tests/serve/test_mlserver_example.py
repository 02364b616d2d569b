"""The example of a model repository of MLServer, as its page runs it."""

from conftest import run_example


def test_kserve_example():
  output, tokens = run_example("kserve", "HTTP_PORT", "GRPC_PORT", "METRICS_PORT")
  assert output.count("[4, 32] -> ") == 2
  assert output.splitlines()[-1].split()[-8:] == tokens
