"""The example of Ray Serve, as its page runs it."""

import re

from conftest import run_example


def test_ray_example():
  output, tokens = run_example("ray", "HTTP_PORT")
  assert "gpt: 5 17 200 -> " + " ".join(tokens) in output
  assert re.search(r"^update: [1-9]\d+ answers, 0 sent again, 0 lost$", output, re.MULTILINE)
  assert re.search(r"^killed: [1-9]\d+ answers, \d+ sent again, 0 lost$", output, re.MULTILINE)
