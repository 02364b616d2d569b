"""Functions of files of language models, of many architectures and with several options at once,
against the same functions in eager mode.

    python tests/torch/nets/language_features.py ARCHITECTURE... [--quantize int4] [--cache int8]
        [--pages 12] [--adapters 2] [--dtype bfloat16] [--slots 3] [--target host:avx2]
        [--folders] [--set FIELD=JSON]...

Needs transformers. An architecture is one of language_models.py, of which --set changes fields. Its
model, with random weights, is exported with `copy` and `single`, and with `verify` and `embed` if
it may have them. With --quantize the model in eager mode is what `husk.quantized.load` makes of its
checkpoint. A series of calls in several slots, with adapters of random numbers, gives logits that
differ from those in eager mode by --most of the largest one at most. With caches of floats, texts
of `husk.text` are compared with those of transformers' `generate`, too. The exit status is 1 if
something differs or an exception is raised."""

import argparse
import json
import logging
import pathlib
import sys
import tempfile

import numpy as np
import torch

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parents[2] / "compiler" / "torch"))

import compared  # noqa: E402
import husk  # noqa: E402
import language_models as models  # noqa: E402
from husk.language import adapters, caches, exporting, paging  # noqa: E402
from husk.quantized import operator, schemes  # noqa: E402
from husk.text import adapters as written  # noqa: E402

MOST, RANK, TOKENS = 200, 4, 24


class Calls:
  """The functions of a file, or of a module in eager mode, with tensors as inputs and results."""

  def __init__(self, called, pages, has_rows):
    self.called, self.pages, self.has_rows = called, pages, has_rows

  def __getattr__(self, name):
    in_file = not isinstance(self.called, torch.nn.Module)
    function = getattr(self.called, "copy" if in_file and name == "copy_page" else name)

    def call(*inputs):
      if in_file:
        inputs = [one.numpy() if isinstance(one, torch.Tensor) else one for one in inputs]
      with torch.no_grad():
        found = function(*inputs)
      if isinstance(found, (tuple, list)):
        return tuple(torch.as_tensor(np.asarray(one)) for one in found)
      return torch.as_tensor(np.asarray(found))

    return call

  def by_slots(self):
    return paging.BySlots(self) if self.pages else self


def series(calls, slots, has_states, has_adapters, embeds, vocabulary):
  """What a series of calls gives, by names: logits, and hidden states of `embed`."""
  random = torch.Generator().manual_seed(3)

  def tokens(*shape):
    return torch.randint(0, vocabulary, shape, generator=random)

  functions, found, last = calls.by_slots(), {}, slots - 1
  numbers = torch.arange(slots) % 3 if has_adapters else None
  at = torch.full((slots,), MOST)

  def of(slot):
    return (int(numbers[slot]),) if has_adapters else ()

  def note(name, result):
    found[f"{len(found)} {name}"] = result[1].float()

  def prefill(slot, count):
    begin = 0 if at[slot] == MOST else int(at[slot])
    note("prefill", functions.prefill(tokens(count), slot, begin, begin + count, *of(slot)))
    at[slot] = begin + count

  def decode(rows, idle=()):
    positions = at[:rows].clone()
    positions[list(idle)] = MOST
    span = int(positions[positions < MOST].max()) + 1
    more = (numbers[:rows],) if has_adapters else ()
    _, logits = functions.decode(tokens(rows), positions, span, *more)
    note("decode", (None, logits[positions < MOST]))
    at[:rows] += (positions < MOST).long()

  prefill(last, 20)
  prefill(last, 7)
  for slot in range(last):
    prefill(slot, 3 + 61 * slot)
  decode(slots)
  if slots > 1:
    decode(slots, [0])
    decode(1)
    span = int(at[last]) + 1
    where = functions._of_slot(at, last, span)[None] if calls.pages else span
    more = (where, numbers[last:]) if has_adapters else (where,)
    note("single", calls.single(tokens(1), at[last:], last, *more))
    at[last] += 1
  if not has_states:
    for rows, count in ((slots, 4), (1, 2)):
      span = int(at[:rows].max()) + count
      more = (numbers[:rows],) if has_adapters else ()
      note("verify", functions.verify(tokens(rows, count), at[:rows], span, *more))
      at[:rows] += count - 1
  if slots > 1:
    if has_adapters:
      numbers[0] = numbers[last]
    functions.copy(last, 0, 0, int(at[last]))
    at[0] = at[last]
    decode(slots)
  for _ in range(4):
    decode(slots)
  for count in (1, 5, 50) if embeds else ():
    note("embed", (None, calls.embed(tokens(count))[0]))
  return found


def fill(module, folder):
  """Gives a module two adapters of random numbers, and writes them as PEFT does."""
  from safetensors.torch import save_file

  random = torch.Generator().manual_seed(5)
  for number in (1, 2):
    tensors = {}
    for name, layer in module._adapters.layers.items():
      for one in ("A", "B"):
        stack = layer.get_buffer(f"lora_{one}")
        part = torch.randn(stack.shape[1:], generator=random) * 0.1
        stack[number] = part.to(stack.dtype)
        tensors[f"base_model.model.{name}.lora_{one}.weight"] = stack[number].clone()
    (folder / str(number)).mkdir()
    save_file(tensors, folder / str(number) / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": RANK, "lora_alpha": RANK}
    (folder / str(number) / "adapter_config.json").write_text(json.dumps(config))


def round_floats(model, name):
  """Gives the layers whose weights are floats, such as a head that is tied to an embedding of
  another kind, the numbers of the codes that an export makes of them."""
  for module in model.modules():
    weight = getattr(module, "weight", None)
    if not isinstance(module, (torch.nn.Linear, torch.nn.Embedding)) or weight is None:
      continue
    if weight.numel() < schemes.LEAST_ELEMENTS or hasattr(weight, "rounded"):
      continue
    codes = schemes.by_rows(schemes.SCHEMES[name], "weight", weight.data)
    parts = codes.codes, codes.scales, codes.zeros, codes.values, codes.bits, codes.group
    weight.data.copy_(operator.numbers(*parts))
    weight.rounded = True


def prompts(vocabulary):
  random = torch.Generator().manual_seed(1)
  return [torch.randint(3, vocabulary, (n,), generator=random).tolist() for n in (1, 2, 70, 150)]


def compare(name, options, folder):
  fields = {**models.ARCHITECTURES[name]}
  models.ARCHITECTURES[name] = fields | dict(options.set)
  model = models.model_of(name)
  models.ARCHITECTURES[name] = fields
  dtype = getattr(torch, options.dtype)
  model = model.to(dtype)
  path, right = folder / "model.husk", model
  if options.quantize:
    model.save_pretrained(folder / "checkpoint")
    right = husk.quantized.load(folder / "checkpoint", quantize=options.quantize, dtype=dtype)
    round_floats(right, options.quantize)
  has_base = getattr(model, "base_model", model) is not model
  kind = caches.KINDS[options.cache] if options.cache else None
  wanted = adapters.chosen(options.adapters, RANK, models.TARGETS.get(name))
  with exporting.decoder_of(
    right, options.slots, MOST, kind, wanted, pages=options.pages
  ) as module:
    has_states = module.has_states
    features = ["copy", "single"]
    features += [*(() if has_states else ("verify",)), *(("embed",) if has_base else ())]
    if wanted:
      fill(module, folder)
    given = (
      options.slots,
      has_states,
      wanted is not None,
      has_base,
      module.vocabulary,
    )
    expected = series(Calls(module, options.pages, module.has_rows), *given)
    has_rows = module.has_rows
  husk.language.export(
    folder / "checkpoint" if options.quantize and options.folders else model,
    path,
    slots=options.slots,
    max_tokens=MOST,
    cache=options.cache if module.has_keys else None,
    pages=options.pages,
    adapters=options.adapters,
    rank=RANK,
    adapter_targets=models.TARGETS.get(name) if wanted else None,
    features=features,
    targets=(options.target,),
    **({"quantize": options.quantize} if options.quantize else {}),
  )
  program = husk.load(path)
  if wanted:
    filled = written.Adapters(program, str(path), options.adapters, RANK)
    for number in ("1", "2"):
      filled.add(number, folder / number)
  found = series(Calls(program.session(), options.pages, has_rows), *given)
  errors = {}
  for one, logits in expected.items():
    error = (found[one] - logits).abs().max() / logits.abs().max()
    kind_of_call = one.split()[1]
    errors[kind_of_call] = max(errors.get(kind_of_call, 0.0), float(error))
    if not error <= options.most:
      errors[f"FAR {one}"] = float(error)
  text = ", ".join(f"{one} {error:.1e}" for one, error in errors.items())
  differs = any(one.startswith("FAR") for one in errors)
  if options.cache in (None, "float32") and options.dtype == "float32":
    right_texts = [
      models.right_tokens(right, prompt, TOKENS, MOST) for prompt in prompts(module.vocabulary)
    ]
    loaded = husk.text.load(path)
    kinds = []
    for together in (False, True):
      requests = []
      for prompt in prompts(module.vocabulary):
        requests.append(loaded.submit(prompt, max_new_tokens=TOKENS))
        if not together:
          loaded.run()
      loaded.run()
      kinds += [
        compared.text(one.tokens, tokens) for one, tokens in zip(requests, right_texts, strict=True)
      ]
    differs |= "different" in kinds
    text += "; texts: " + ", ".join(f"{kinds.count(one)} {one}" for one in sorted({*kinds}))
  return differs, text


def field(text):
  name, _, value = text.partition("=")
  return name, json.loads(value)


def main():
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("names", nargs="+", metavar="ARCHITECTURE")
  parser.add_argument("--target", default="host:avx2")
  parser.add_argument("--quantize")
  parser.add_argument("--cache")
  parser.add_argument("--pages", type=int)
  parser.add_argument("--adapters", type=int, default=0)
  parser.add_argument("--dtype", default="float32")
  parser.add_argument("--slots", type=int, default=3)
  parser.add_argument("--most", type=float, default=1e-3)
  parser.add_argument("--folders", action="store_true", help="export the checkpoint's folder")
  parser.add_argument("--set", type=field, action="append", default=[], metavar="FIELD=JSON")
  options = parser.parse_args()
  logging.getLogger("transformers").setLevel(logging.ERROR)

  def one(name):
    with tempfile.TemporaryDirectory() as folder:
      return compare(name, options, pathlib.Path(folder))

  return compared.each(options.names, one)


if __name__ == "__main__":
  sys.exit(main())
