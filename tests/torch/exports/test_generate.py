"""The C program of examples/generate: two functions over one cache, against eager PyTorch without a
cache."""

import subprocess

import built_tools
import husk
import models
import pytest
import torch
from husk.host import image as host_image

ISAS = host_image.isas()
pytestmark = pytest.mark.skipif(not ISAS, reason="this machine has no AVX2")
CONTEXT = 128


@pytest.fixture(scope="module")
def artifact(tmp_path_factory):
  path = tmp_path_factory.mktemp("generate") / "gpt.husk"
  built_tools.built("huskc")
  husk.export(models.generate(), path, targets=(f"host:{ISAS[0]}",))
  return path


def generate(artifact, count, *tokens):
  return subprocess.run(
    [built_tools.built("husk_example_generate"), artifact, *map(str, (count, *tokens))],
    capture_output=True,
    text=True,
  )


@pytest.mark.parametrize("prompt", [(5, 17, 200), (7,), tuple(range(0, 256, 4))])
def test_generated_tokens_equal_eager(prompt, artifact):
  """Eager PyTorch processes the whole sequence each time, by prefill alone."""
  done = generate(artifact, 24, *prompt)
  assert done.returncode == 0, done.stderr
  sequence = list(prompt)
  for _ in range(24):
    fresh = models.generate()["prefill"].model
    with torch.no_grad():
      sequence.append(int(fresh.prefill(torch.tensor(sequence)).argmax()))
  assert [int(token) for token in done.stdout.split()] == sequence[len(prompt) :]
  assert len(set(sequence)) > 10


def test_a_full_cache_is_an_error(artifact):
  assert generate(artifact, 3, *range(CONTEXT - 2)).returncode == 0
  done = generate(artifact, 4, *range(CONTEXT - 2))
  assert done.returncode == 1 and "index out of bounds" in done.stderr


def test_a_token_that_is_none_is_an_error(artifact):
  done = generate(artifact, 1, 256)
  assert done.returncode == 1 and "index out of bounds" in done.stderr
