"""Tokens a second of a language model on this CPU: a file of Husk beside llama.cpp on a GGUF file.

    python -m husk llm MODEL.gguf -o model.husk --max-tokens 2048 [--activations int8]
    python tests/bench/language.py model.husk MODEL.gguf [--threads 1,2] [--prompt 512] [--new 64]
        [--openvino] [--onnxruntime-genai FOLDER,FOLDER] [--executorch MODEL.pte]

Needs llama-cpp-python; `--openvino` needs openvino-genai, the next two onnxruntime-genai and
executorch. In each round all take the same prompt, and then the tokens that Husk generates, one
after another; llama.cpp and ExecuTorch get them without choosing them themselves, and OpenVINO and
onnxruntime-genai generate their own. A row has medians of the rounds, in tokens a second, and the
ratio of Husk's to the other's. The last row of a number of threads compares a token with a read of
as many bytes as the GGUF file has, by as many threads. tests/bench/random_decoder.py writes larger
models, random_peers.py the same for the last two, whose names say what their activations are:
exact, or rounded to 8 bits by blocks of 32 or by rows. llama.cpp and OpenVINO round by blocks of
32."""

import argparse
import json
import os
import pathlib
import statistics
import sys
import time


def husk_model(path, threads):
  """What takes a prompt and a number of tokens, and returns (seconds of the prompt, seconds of the
  tokens, tokens)."""
  import husk.text

  model = husk.text.load(path, threads=threads)

  def run(prompt, count, _tokens):
    begin = time.perf_counter()
    request = model.submit(prompt, max_new_tokens=count + 1, temperature=0)
    model.step()
    middle = time.perf_counter()
    while not request.done:
      model.step()
    end = time.perf_counter()
    return middle - begin, end - middle, list(request.tokens)

  return run


def llama_model(path, threads, most):
  """The same by llama.cpp, for tokens that are given."""
  import llama_cpp

  model = llama_cpp.Llama(
    str(path),
    n_ctx=most,
    n_batch=most,
    n_threads=threads,
    n_threads_batch=threads,
    verbose=False,
  )

  def run(prompt, _count, tokens):
    model.reset()
    begin = time.perf_counter()
    model.eval(prompt)
    middle = time.perf_counter()
    for token in tokens[:-1]:
      model.eval([token])
    end = time.perf_counter()
    return middle - begin, end - middle, tokens

  return run


def openvino_model(path, threads):
  """The same by OpenVINO, which generates tokens of its own and counts the time itself."""
  import numpy
  import openvino  # pyright: ignore[reportMissingImports]
  import openvino_genai  # pyright: ignore[reportMissingImports]

  scheduler = openvino_genai.SchedulerConfig()
  scheduler.enable_prefix_caching = False
  model = openvino_genai.LLMPipeline(
    str(path), "CPU", scheduler_config=scheduler, INFERENCE_NUM_THREADS=threads
  )

  def run(prompt, count, tokens):
    ids = numpy.array([prompt], numpy.int64)
    inputs = openvino_genai.TokenizedInputs(
      openvino.Tensor(ids), openvino.Tensor(numpy.ones_like(ids))
    )
    config = openvino_genai.GenerationConfig()
    config.max_new_tokens, config.ignore_eos, config.do_sample = count + 1, True, False
    times = model.generate(inputs, config).perf_metrics
    of_tokens = times.get_tpot().mean * (len(tokens) - 1)
    return times.get_ttft().mean / 1e3, of_tokens / 1e3, tokens

  return run


def onnxruntime_model(folder, threads, most):
  """The same by onnxruntime-genai, which generates tokens of its own."""
  import numpy
  import onnxruntime_genai  # pyright: ignore[reportMissingImports]

  config = onnxruntime_genai.Config(str(folder))
  settings = {"intra_op_num_threads": threads, "inter_op_num_threads": 1}
  config.overlay(json.dumps({"model": {"decoder": {"session_options": settings}}}))
  model = onnxruntime_genai.Model(config)

  def run(prompt, count, tokens):
    settings = onnxruntime_genai.GeneratorParams(model)
    # No end of text ends the generation.
    settings.set_search_options(max_length=most, min_length=most, do_sample=False)
    generator = onnxruntime_genai.Generator(model, settings)
    begin = time.perf_counter()
    generator.append_tokens(numpy.array(prompt, numpy.int32))
    generator.generate_next_token()
    middle = time.perf_counter()
    for _ in range(count):
      generator.generate_next_token()
    end = time.perf_counter()
    return middle - begin, (end - middle) * (len(tokens) - 1) / count, tokens

  return run


def executorch_model(path, threads):
  """The same by ExecuTorch, for tokens that are given."""
  import importlib

  import torch
  from executorch.extension.pybindings import portable_lib  # pyright: ignore[reportMissingImports]

  for operators in ("extension.llm.custom_ops.custom_ops", "kernels.quantized"):
    importlib.import_module(f"executorch.{operators}")
  portable_lib._unsafe_reset_threadpool(threads)
  model = portable_lib._load_for_executorch(str(path))

  def run(prompt, _count, tokens):
    def step(part, position):
      (logits,) = model.forward((torch.tensor([part]), torch.tensor([position])))
      return int(logits.argmax())

    begin = time.perf_counter()
    step(prompt, 0)
    middle = time.perf_counter()
    for place, token in enumerate(tokens[:-1], len(prompt)):
      step([token], place)
    end = time.perf_counter()
    return middle - begin, end - middle, tokens

  return run


def reader(path, threads):
  """A function that returns the seconds in which so many threads read as many bytes as a file
  has."""
  import torch

  words = torch.ones(os.path.getsize(path) // 8, dtype=torch.int64)

  def run():
    torch.set_num_threads(threads)
    begin = time.perf_counter()
    words.sum()
    return time.perf_counter() - begin

  return run


def _paths(text):
  return [pathlib.Path(one) for one in text.split(",")] if text else []


def prompt_of(length):
  """Tokens of a text that is no repetition of itself."""
  vocabulary = 1000
  return [1 + (7 * at * at + 31 * at) % vocabulary for at in range(length)]


def main():
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument("file", help="a language model that husk.language.export has made")
  parser.add_argument("gguf")
  parser.add_argument("--threads", default="1,2")
  parser.add_argument("--prompt", type=int, default=512)
  parser.add_argument("--new", type=int, default=64)
  parser.add_argument("--rounds", type=int, default=5)
  parser.add_argument("--openvino", action="store_true")
  parser.add_argument("--onnxruntime-genai", help="folders of its model builder")
  parser.add_argument("--executorch", help="files of its export of a Llama")
  options = parser.parse_args()
  for threads in map(int, options.threads.split(",")):
    runs = {
      "husk": husk_model(options.file, threads),
      "llama.cpp": llama_model(options.gguf, threads, options.prompt + options.new + 8),
    }
    if options.openvino:
      runs["OpenVINO"] = openvino_model(options.gguf, threads)
    most = options.prompt + options.new + 8
    for path in _paths(options.onnxruntime_genai):
      runs[path.name] = onnxruntime_model(path, threads, most)
    for path in _paths(options.executorch):
      runs[path.stem] = executorch_model(path, threads)
    read = reader(options.gguf, threads)
    prompt = prompt_of(options.prompt)
    reads = []
    found = {name: ([], []) for name in runs}
    for round_ in range(options.rounds + 1):
      tokens = []
      for name, run in runs.items():
        of_prompt, of_tokens, tokens = run(prompt, options.new, tokens)
        if round_ and len(tokens) > 1:  # the first round warms up
          found[name][0].append(len(prompt) / of_prompt)
          found[name][1].append((len(tokens) - 1) / of_tokens)
      if round_:
        reads.append(min(read() for _ in range(3)))
    for at, what in enumerate((f"a prompt of {options.prompt}", f"{options.new} tokens")):
      ours = found["husk"][at]
      texts = [f"husk {statistics.median(ours):.1f} tokens/s"]
      for name, rates in list(found.items())[1:]:
        theirs = rates[at]
        ratio = statistics.median(one / other for one, other in zip(ours, theirs))
        texts.append(f"{name} {statistics.median(theirs):.1f}, ratio {ratio:.2f}")
      print(f"{threads} threads, {what}: {'; '.join(texts)}", flush=True)
    shares = [
      f"{name} {statistics.median(one * seconds for one, seconds in zip(rates[1], reads)):.2f}"
      for name, rates in found.items()
    ]
    print(
      f"{threads} threads, a read of {os.path.getsize(options.gguf) >> 20} MiB: "
      f"{statistics.median(reads) * 1e3:.1f} ms, divided by the time of a token: "
      f"{', '.join(shares)}",
      flush=True,
    )
  return 0


if __name__ == "__main__":
  sys.exit(main())
