"""A file of a language model with tokenizer and template, and programs of the build that make texts
with it, for the tests of husk.text."""

import fcntl
import json
import os
import pathlib
import subprocess
import typing

import husk
import language_model
import pytest
import torch
from husk import tools
from husk.language import exporting, sampling

GOLDEN = pathlib.Path(__file__).parents[1] / "text" / "golden.json"
MOST, SLOTS = 40, 3
FEATURES = ("copy", "controls", "single", "verify", "embed")
TEMPLATE = (
  "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}"
  "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
PENALTIES = {"repetition_penalty": 1.4, "presence_penalty": 0.3, "frequency_penalty": 0.15}


def tokenizer_json():
  """The tokenizer of the golden table, with a pre-tokenizer, cut to the vocabulary of the model."""
  golden = json.loads(GOLDEN.read_text(encoding="utf-8"))
  fields = {**golden["tokenizer"], **golden["kinds"]["gpt-2"]["fields"]}
  model = fields["model"]
  size = language_model.VOCABULARY
  model["vocab"] = {token: number for token, number in model["vocab"].items() if number < size}
  model["merges"] = [
    pair for pair in model["merges"] if "".join(pair).replace(" ", "") in model["vocab"]
  ]
  return json.dumps(fields)


class Made(typing.NamedTuple):
  """A model, the path of its file, and how often torch.export was called for it."""

  model: torch.nn.Module
  path: pathlib.Path
  traces: int


def exported(tmp_path_factory):
  """For a fixture of a module: a model, exported with a tokenizer and a template. The file is that
  of all modules, also of those in another process of pytest-xdist."""
  base = tmp_path_factory.getbasetemp()
  folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "checkpoint"
  folder.mkdir(exist_ok=True)
  path, traces = folder / "model.husk", folder / "traces.txt"
  with pytest.MonkeyPatch.context() as patch:
    model = language_model.make(patch)
    with (folder / "lock").open("w") as lock:
      fcntl.flock(lock, fcntl.LOCK_EX)
      if not traces.exists():
        traces.write_text(str(_export(model, folder, path)))
    yield Made(model, path, int(traces.read_text()))


def _export(model, folder, path):
  """How often torch.export was called for the file."""
  (folder / "tokenizer.json").write_text(tokenizer_json(), encoding="utf-8")
  settings = {"chat_template": TEMPLATE, "eos_token": {"content": "<|im_end|>"}}
  (folder / "tokenizer_config.json").write_text(json.dumps(settings))
  (folder / "LICENSE").write_text("Free.")
  traces, export = [], torch.export.export
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(torch.export, "export", lambda *a, **k: traces.append(a) or export(*a, **k))
    husk.language.export(
      model,
      path,
      max_tokens=MOST,
      slots=SLOTS,
      tokenizer=folder,
      features=FEATURES,
      targets=(host_target(),),
    )
  return len(traces)


class Zeros(torch.nn.Module):
  """In place of the function `sample`: draws the token 0."""

  def forward(self, logits, temperature, top_k, top_p, min_p, seeds, positions):
    return torch.zeros_like(positions), temperature.clone()


def without_sampling(patch):
  """Exports have a small function `sample` and no `sample_few`, for texts of the most likely tokens
  alone. Both functions are the same in all files, and take as long to export as a model. Texts that
  are drawn are wrong."""
  without_few(patch)
  patch.setattr(sampling, "Sampler", Zeros)


def without_few(patch):
  """Exports have no function `sample_few`, as those of small vocabularies."""
  patch.setattr(exporting, "_CANDIDATES", language_model.VOCABULARY)


def host_target():
  return "host:avx2" if "avx2" in pathlib.Path("/proc/cpuinfo").read_text() else "host"


def right_tokens(model, prompt, count):
  return language_model.continued(model, prompt, min(count, MOST + 1 - len(prompt)))


def program_output(name, *arguments):
  """What a program of the build prints."""
  path = tools.find(name)
  if path is None:
    pytest.skip(f"{name} is not built")
  return subprocess.run([path, *map(str, arguments)], capture_output=True)


def generated_in_c(path, requests, chunk=0, counts=False):
  """What the generator of libhusk_text makes of requests: a list of texts for each."""
  program = tools.find("husk_text_requests")
  if program is None:
    pytest.skip("husk_text_requests is not built")
  found = subprocess.run(
    [program, path, str(chunk)], input=json.dumps(requests).encode(), capture_output=True
  )
  assert found.returncode == 0, found.stderr.decode()
  texts = json.loads(found.stdout)
  return (texts, json.loads(found.stderr)) if counts else texts
