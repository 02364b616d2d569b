"""Vision-language models from small random configurations: their texts from a file of Husk against
those of transformers' `generate`.

    python tests/torch/nets/vision_models.py [ARCHITECTURE...] [--eager] [--compile cuda:h200]

Needs transformers. Each model is exported with three slots. Prompts with no image, one and two are
continued by 32 tokens, greedily, each alone, and then all of them in the slots, which they join and
leave, also with chunks of a few tokens. Images must change texts. Wrong images are refused while
other requests go on. --eager runs the module that is exported, and exports nothing. With --compile
cuda:h200 the file is also exported for that target, where it does not run. The exit status is 1 if
a token is wrong or another exception is raised."""

import argparse
import contextlib
import json
import logging
import pathlib
import sys
import tempfile
import time

import numpy
import torch

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parents[2] / "compiler" / "torch"))

import compared  # noqa: E402
import husk  # noqa: E402

VOCABULARY, MOST, SLOTS, NEW = 300, 256, 3, 32
IMAGE, START, END, VIDEO = 299, 298, 297, 296
TEXT = {
  "vocab_size": VOCABULARY,
  "hidden_size": 64,
  "intermediate_size": 128,
  "num_hidden_layers": 3,
  "num_attention_heads": 4,
  "num_key_value_heads": 2,
  "max_position_embeddings": 512,
  "pad_token_id": 0,
  "bos_token_id": 1,
  "eos_token_id": 2,
}
SIGLIP = {
  "hidden_size": 32,
  "intermediate_size": 64,
  "num_hidden_layers": 2,
  "num_attention_heads": 2,
  "image_size": 32,
  "patch_size": 8,
}
QWEN = {
  "depth": 3,
  "hidden_size": 32,
  "intermediate_size": 64,
  "num_heads": 2,
  "out_hidden_size": 64,
  "patch_size": 4,
  "spatial_merge_size": 2,
  "temporal_patch_size": 2,
}
GRID = {
  "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 3, 3]},
}
QWEN_TOKENS = {
  "image_token_id": IMAGE,
  "vision_start_token_id": START,
  "vision_end_token_id": END,
  "video_token_id": VIDEO,
}
TILES = {
  "vision_config": SIGLIP,
  "text_config": {**TEXT, "model_type": "llama"},
  "image_token_id": IMAGE,
  "scale_factor": 2,
  "pad_token_id": 0,
}
ARCHITECTURES = {
  "gemma3": {
    "vision_config": {**SIGLIP, "model_type": "siglip_vision_model"},
    "text_config": {
      **TEXT,
      "model_type": "gemma3_text",
      "head_dim": 16,
      "query_pre_attn_scalar": 16,
      "sliding_window": 8,
      "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    },
    "image_token_id": IMAGE,
    "mm_tokens_per_image": 16,
  },
  "idefics3": TILES,
  "internvl": {
    "vision_config": {
      **SIGLIP,
      "model_type": "internvl_vision",
      "image_size": [32, 32],
      "patch_size": [8, 8],
    },
    "text_config": {**TEXT, "model_type": "qwen2"},
    "image_token_id": IMAGE,
  },
  "llava": {
    "vision_config": {**SIGLIP, "model_type": "clip_vision_model", "projection_dim": 32},
    "text_config": {**TEXT, "model_type": "llama"},
    "image_token_id": IMAGE,
  },
  "qwen2_5_vl": {
    "vision_config": {**QWEN, "window_size": 16, "fullatt_block_indexes": [1]},
    "text_config": {**TEXT, **GRID, "model_type": "qwen2_5_vl_text"},
    **QWEN_TOKENS,
  },
  "qwen3_vl": {
    "vision_config": {
      **QWEN,
      "num_position_embeddings": 16,
      "deepstack_visual_indexes": [0, 1],
    },
    "text_config": {**TEXT, **GRID, "model_type": "qwen3_vl_text", "head_dim": 16},
    **QWEN_TOKENS,
  },
  "smolvlm": TILES,
  # Refused by name.
  "paligemma": {
    "vision_config": {**SIGLIP, "model_type": "siglip_vision_model"},
    "text_config": {**TEXT, "model_type": "gemma", "head_dim": 16},
    "image_token_id": IMAGE,
    "projection_dim": 64,
  },
}
SIZES = {"qwen2_5_vl": (40, 24), "qwen3_vl": (24, 40)}  # height and width


def model_of(name):
  """A model whose weights are large enough that images change texts."""
  import transformers

  config = transformers.AutoConfig.for_model(name, **ARCHITECTURES[name])
  torch.manual_seed(0)
  model = transformers.AutoModelForImageTextToText.from_config(config).eval()
  random = torch.Generator().manual_seed(2)
  with torch.no_grad():
    for one in model.parameters():
      if one.dim() < 2:
        one.add_(torch.randn(one.shape, generator=random) * 0.1)
      else:
        # Embeddings that are scaled, as those of Gemma, would hide images.
        size = one[0].numel() if one.shape[0] != VOCABULARY else 256 if name == "gemma3" else 4
        one.copy_(torch.randn(one.shape, generator=random) * 1.2 * size**-0.5)
  model.tie_weights()
  return model


def prompts(rows, has_grid):
  """Tokens and how many images they have. In a grid, `generate` continues an image at the end of a
  prompt by other positions than get_rope_index of the model gives, so that there is none."""
  random = torch.Generator().manual_seed(1)

  def text(count):
    return torch.randint(3, VIDEO, (count,), generator=random).tolist()

  image = [START, *[IMAGE] * rows, END]
  return [
    (text(7), 0),
    ([*text(3), *image, *text(5)], 1),
    ([*image, *text(9), *image, *text(1)], 2),
    ([*text(30), *image, *text(40)], 1),
    ([*text(4), *(image if has_grid else image[:-1])], 1),
    ([*text(1), *image, *image], 2),
    (text(50), 0),
    ([*text(5), *image, *text(3)], 1),  # as the second one, with another image
  ]


def right_tokens(model, tower, prompt, pixels):
  tokens = torch.tensor([prompt])
  given = tower.inputs(torch.stack(pixels), tokens, IMAGE) if pixels else {}
  with torch.no_grad():
    sequences = model.generate(
      input_ids=tokens,
      attention_mask=torch.ones_like(tokens),
      max_new_tokens=NEW,
      do_sample=False,
      pad_token_id=0,
      eos_token_id=2,
      **given,
    )
  return sequences[0, len(prompt) :].tolist()


def check_refusals(loaded, shape, rows):
  """Wrong images are refused, and the request that is in progress goes on."""
  request = loaded.submit([5, 6, 7], max_new_tokens=NEW)
  loaded.step()
  right = numpy.zeros(shape, numpy.float32)
  other = numpy.zeros((*shape[:-1], shape[-1] + 1), numpy.float32)
  image = [IMAGE] * rows
  for prompt, images in (
    ([3, *image, 4], [other]),
    ([3, *image, 4], [right, right]),
    ([3, *image[1:], 4], [right]),
    ([3, *image, 4], []),
    ([3, 4], [right]),
    ([3, *image[1:], 4, *image[:1]], [right]),
    ([3, *image, 4], [right * numpy.nan]),
    ([3, *[*image, 4] * (MOST // rows)], [right] * (MOST // rows)),
  ):
    try:
      loaded.submit(prompt, images=images)
    except ValueError:
      continue
    raise AssertionError(f"not refused: {len(prompt)} tokens, {len(images)} images")
  loaded.run()
  alone = loaded.submit([5, 6, 7], max_new_tokens=NEW)
  loaded.run()
  assert request.tokens == alone.tokens
  # One image token for each image becomes as many as there are rows.
  short, long = (
    loaded.submit([3, *middle, 4], images=[right], max_new_tokens=4) for middle in ([IMAGE], image)
  )
  loaded.run()
  assert short.tokens == long.tokens and short.prompt == long.prompt


class Eager:
  """The module that is exported, as a program of the runtime."""

  def __init__(self, module, seen):
    self.module = module
    self.described = {
      "architecture": "eager",
      "max_tokens": MOST,
      "slots": SLOTS,
      "vocabulary": VOCABULARY,
      "chunk": MOST,
      "image": seen.kind.description(),
    }

  def metadata(self):
    return {
      "husk.text.model": json.dumps(self.described),
      "husk.text.generation": json.dumps({"end": [2]}),
    }

  def session(self):
    return self

  def __getattr__(self, name):
    function = getattr(self.module, name)

    def call(*given):
      given = [torch.from_numpy(one) if isinstance(one, numpy.ndarray) else one for one in given]
      with torch.no_grad():
        found = function(*given)
      return found.numpy() if isinstance(found, torch.Tensor) else [one.numpy() for one in found]

    return call


@contextlib.contextmanager
def loaded_file(model, seen, path, size, options):
  """What husk.text loads, and the seconds of the export."""
  from husk.language import exporting
  from husk.text.model import Model

  if options.eager:
    with exporting.decoder_of(model, SLOTS, MOST, None, None, seen) as module:
      yield Model(Eager(module, seen), "eager"), 0
    return
  before = time.perf_counter()
  export(model, path, size, options.target)
  seconds = time.perf_counter() - before
  device = "cuda" if options.target.startswith("cuda") else "cpu"
  yield husk.text.load(path, device=device), seconds


def export(model, path, size, target):
  husk.language.export(
    model,
    path,
    slots=SLOTS,
    max_tokens=MOST,
    image_size=size,
    features=("images", "single"),
    targets=(target,),
  )


def compare(name, folder, options):
  """How many texts differ: alone, together, and with small chunks."""
  from husk.language import images

  path, model = folder / "model.husk", model_of(name)
  size = SIZES.get(name)
  seen = images.of_model(model, size, MOST, MOST)
  cases = prompts(seen.kind.rows, seen.kind.grid is not None)
  random = torch.Generator().manual_seed(3)
  pixels = [
    [torch.randn(seen.kind.shape, generator=random) for _ in range(count)] for _, count in cases
  ]
  right = [
    right_tokens(model, seen.tower, prompt, given)
    for (prompt, _), given in zip(cases, pixels, strict=True)
  ]
  other = right_tokens(model, seen.tower, cases[1][0], pixels[-1])
  assert other != right[1], "the image does not change the text"
  with loaded_file(model, seen, path, size, options) as (loaded, seconds):
    check_refusals(loaded, seen.kind.shape, seen.kind.rows)

    def request(case, given):
      return loaded.submit(case[0], images=[one.numpy() for one in given], max_new_tokens=NEW)

    alone = []
    for case, given in zip(cases, pixels, strict=True):
      one = request(case, given)
      loaded.run()
      alone.append(one.tokens)
    different = [sum(a != b for a, b in zip(alone, right, strict=True))]
    for chunk in (loaded._chunk, max(seen.kind.rows, 8) if seen.kind.two_way else 8):
      loaded._chunk = chunk
      together = [request(case, given) for case, given in zip(cases, pixels, strict=True)]
      loaded.run()
      different.append(sum(a.tokens != b for a, b in zip(together, right, strict=True)))
  if options.compile:
    export(model, path, size, options.compile)
  return different, len(cases), seconds


def main():
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("names", nargs="*", metavar="ARCHITECTURE")
  parser.add_argument("--target", default="host:avx2")
  parser.add_argument("--eager", action="store_true")
  parser.add_argument("--compile", metavar="TARGET")
  options = parser.parse_args()
  logging.getLogger("transformers").setLevel(logging.ERROR)
  with tempfile.TemporaryDirectory() as folder:

    def one(name):
      different, count, seconds = compare(name, pathlib.Path(folder), options)
      text = f"{different} of {count} texts differ, exported in {seconds:.0f} s"
      return any(different), text

    return compared.each(options.names or list(ARCHITECTURES), one)


if __name__ == "__main__":
  sys.exit(main())
