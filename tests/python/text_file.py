"""A file of a language model with tokenizer and template, and programs of the build that make texts
with it, for the tests of husk.text."""

import json
import pathlib
import subprocess
import typing

import husk
import language_model
import pytest
import torch
from husk import tools

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
  """For a fixture of a module: a model, exported with a tokenizer and a template."""
  with pytest.MonkeyPatch.context() as patch:
    model = language_model.make(patch)
    folder = tmp_path_factory.mktemp("checkpoint")
    (folder / "tokenizer.json").write_text(tokenizer_json(), encoding="utf-8")
    settings = {"chat_template": TEMPLATE, "eos_token": {"content": "<|im_end|>"}}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    (folder / "LICENSE").write_text("Free.")
    path, traces = folder / "model.husk", []
    export = torch.export.export
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
    yield Made(model, path, len(traces))


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
