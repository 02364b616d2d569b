"""Tokens a second of a language model on this CPU: a file of Husk beside llama.cpp on a GGUF file.

    python -m husk llm MODEL.gguf -o model.husk --max-tokens 2048
    python tests/bench/language.py model.husk MODEL.gguf [--threads 1,2] [--prompt 512] [--new 64]

Needs llama-cpp-python. In each round both take the same prompt, and then the tokens that Husk
generates, one after another; llama.cpp gets them without choosing them itself. A row has medians of
the rounds, in tokens a second, and what they are of llama.cpp's."""

import argparse
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
  options = parser.parse_args()
  for threads in map(int, options.threads.split(",")):
    runs = {
      "husk": husk_model(options.file, threads),
      "llama.cpp": llama_model(options.gguf, threads, options.prompt + options.new + 8),
    }
    prompt = prompt_of(options.prompt)
    found = {name: ([], []) for name in runs}
    for round_ in range(options.rounds + 1):
      tokens = []
      for name, run in runs.items():
        of_prompt, of_tokens, tokens = run(prompt, options.new, tokens)
        if round_ and len(tokens) > 1:  # the first round warms up
          found[name][0].append(len(prompt) / of_prompt)
          found[name][1].append((len(tokens) - 1) / of_tokens)
    (prompts, decodes), (other_prompts, other_decodes) = found.values()
    for what, ours, theirs in (
      (f"a prompt of {options.prompt}", prompts, other_prompts),
      (f"{options.new} tokens", decodes, other_decodes),
    ):
      ratio = statistics.median(one / other for one, other in zip(ours, theirs))
      print(
        f"{threads} threads, {what}: husk {statistics.median(ours):.1f} tokens/s, llama.cpp "
        f"{statistics.median(theirs):.1f}, ratio {ratio:.2f}",
        flush=True,
      )
  return 0


if __name__ == "__main__":
  sys.exit(main())
