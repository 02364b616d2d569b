"""Images in the prompts of husk.text."""

import dataclasses
import json
import pathlib
import subprocess

import husk
import image_model
import numpy as np
import pytest
import torch
from husk import tools
from husk.language import exporting, images
from husk.text.images import Kind, PromptImages
from text_file import generated_in_c, host_target, without_sampling

MOST, SLOTS = 40, 2
IMAGE = [image_model.TOKEN] * image_model.ROWS


@pytest.fixture(scope="module")
def artifact(tmp_path_factory):
  with pytest.MonkeyPatch.context() as patch:
    model = image_model.make(patch)
    path = tmp_path_factory.mktemp("images") / "model.husk"
    without_sampling(patch)
    target = "host:avx2" if "avx2" in pathlib.Path("/proc/cpuinfo").read_text() else "host"
    husk.language.export(
      model, path, max_tokens=MOST, slots=SLOTS, features=("images", "single"), targets=(target,)
    )
    yield model, path


@pytest.fixture
def loaded(artifact):
  return husk.text.load(artifact[1], threads=1)


def pixels_of(seed):
  return np.random.default_rng(seed).normal(size=image_model.SHAPE).astype(np.float32)


def right_tokens(model, prompt, pixels, count, most=MOST):
  """What the model continues a prompt by, without a cache."""
  tokens = list(prompt)
  given = {}
  if pixels:
    given["pixel_values"] = torch.from_numpy(np.stack(pixels))
  for _ in range(min(count, most + 1 - len(prompt))):
    one = torch.tensor([tokens])
    kinds = one == image_model.TOKEN
    kinds[:, len(prompt) :] = False
    if pixels:
      given["token_type_ids"] = kinds.long()
    with torch.no_grad():
      tokens.append(int(model(input_ids=one, use_cache=False, **given).logits[0, -1].argmax()))
  return tokens[len(prompt) :]


@pytest.mark.parametrize("chunk", [MOST, 8])
def test_texts_with_images_are_those_of_the_model(artifact, loaded, monkeypatch, chunk):
  """Prompts with no image, one and two, which join and leave, and begin and end with an image."""
  loaded._chunk = chunk
  loaded._ends = set()
  cases = [
    ([20, 21, *IMAGE, 22, 23, 24], 1),
    ([30, 31, 32, 33, 34, 35, 36], 0),
    ([*IMAGE, 40, 41, *IMAGE, 42, 43], 2),
    ([50, 51, 52, 53, 54, 55, *IMAGE], 1),
    ([20, 21, *IMAGE, 22, 23, 24], 1),  # the first one, with another image
  ]
  pixels = [[pixels_of(10 * i + k) for k in range(count)] for i, (_, count) in enumerate(cases)]
  right = [
    right_tokens(artifact[0], prompt, given, 8)
    for (prompt, _), given in zip(cases, pixels, strict=True)
  ]
  requests = [
    loaded.submit(prompt, images=given, max_new_tokens=8)
    for (prompt, _), given in zip(cases, pixels, strict=True)
  ]
  loaded.run()
  assert [one.tokens for one in requests] == right
  # The image counts: the logits of two images differ.
  seen, draw = [], loaded._drawing.draw

  def drawn(rows, found, logits):
    seen.append(np.array(logits))
    return draw(rows, found, logits)

  monkeypatch.setattr(loaded._drawing, "draw", drawn)
  for one in (pixels[0], pixels[4]):
    loaded.submit(cases[0][0], images=one, max_new_tokens=1)
  loaded.run()
  assert len(seen) == 2 and (seen[0] != seen[1]).any()


def test_c_generates_the_same_texts(artifact, loaded):
  program = tools.find("husk_text_requests")
  if program is None:
    pytest.skip("husk_text_requests is not built")
  cases = [([20, 21, *IMAGE, 22], [pixels_of(1)]), ([*IMAGE, 40, *IMAGE], [pixels_of(2)] * 2)]
  cases += [([30, 31], []), ([30, *IMAGE], [np.zeros((3, 8, 8), np.float32)])]
  requests = [
    {"tokens": prompt, "images": [one.ravel().tolist() for one in given], "max_new_tokens": 8}
    for prompt, given in cases
  ]
  run = subprocess.run(
    [program, artifact[1]], input=json.dumps(requests), capture_output=True, text=True, check=True
  )
  found = json.loads(run.stdout)
  right = [loaded.submit(prompt, images=given, max_new_tokens=8) for prompt, given in cases[:3]]
  loaded.run()
  assert [one[0]["tokens"] for one in found[:3]] == [one.tokens for one in right]
  assert "192 numbers" in found[3][0]["error"]


def test_images_in_pages(artifact, monkeypatch, tmp_path):
  """Texts wait for pages, so that prompts with images, and texts after them, are taken again."""
  without_sampling(monkeypatch)
  path, most = tmp_path / "model.husk", 130
  husk.language.export(
    artifact[0],
    path,
    max_tokens=most,
    slots=SLOTS,
    pages=3,
    features=("copy", "images"),
    targets=(host_target(),),
  )
  begin = list(range(20, 50)) * 2
  cases = [[*begin[:50], *IMAGE, 22, 23], [*begin, *IMAGE, 40, *IMAGE], begin, [*IMAGE, 30]]
  pixels = [
    [pixels_of(10 * i + k) for k in range(prompt.count(image_model.TOKEN) // image_model.ROWS)]
    for i, prompt in enumerate(cases)
  ]
  right = [
    right_tokens(artifact[0], prompt, given, 30, most)
    for prompt, given in zip(cases, pixels, strict=True)
  ]
  loaded, paused = husk.text.load(path, threads=1), 0
  loaded._ends = set()
  requests = [
    loaded.submit(prompt, images=given, max_new_tokens=30)
    for prompt, given in zip(cases, pixels, strict=True)
  ]
  while loaded.step():
    paused += any(one.paused for one in requests)
  assert paused and [one.tokens for one in requests] == right
  asked = [
    {
      "tokens": prompt,
      "images": [one.ravel().tolist() for one in given],
      "max_new_tokens": 30,
      "samples": 2,
    }
    for prompt, given in zip(cases, pixels, strict=True)
  ]
  found = generated_in_c(path, asked)
  ended = [one[: one.index(2) + 1] if 2 in one else one for one in right]
  assert [[text["tokens"] for text in each] for each in found] == [[one] * 2 for one in ended]


def test_an_image_token_for_each_image_becomes_its_rows(loaded):
  token, both = image_model.TOKEN, np.stack([pixels_of(1), pixels_of(2)])
  short = loaded.submit([20, token, 21, token, 22], images=both, max_new_tokens=4)
  long = loaded.submit([20, *IMAGE, 21, *IMAGE, 22], images=list(both), max_new_tokens=4)
  loaded.run()
  assert short.prompt == long.prompt and short.tokens == long.tokens


@pytest.mark.parametrize(
  ("prompt", "given", "message"),
  [
    ([1, *IMAGE, 2], [np.zeros((3, 16, 24), np.float32)], "has the shape"),
    ([1, *IMAGE, 2], [np.zeros((1, 16, 16), np.float32)], "has the shape"),
    ([1, *IMAGE, 2], [np.zeros(image_model.SHAPE, complex)], "complex128"),
    ([1, *IMAGE, 2], [np.full(image_model.SHAPE, np.inf, np.float32)], "finite"),
    ([1, *IMAGE, 2], [pixels_of(1), pixels_of(2)], "image tokens"),
    ([1, *IMAGE[1:], 2], [pixels_of(1)], "image tokens"),
    ([1, *IMAGE, 2], (), "4 image tokens"),
    ([1, 2], [pixels_of(1)], "0 image tokens"),
    ([1, *IMAGE[2:], 3, *IMAGE[2:]], [pixels_of(1)], "one after the other"),
    ([1, *IMAGE * 10], [pixels_of(1)] * 10, "41 tokens"),
  ],
)
def test_wrong_images_are_refused_and_other_requests_go_on(loaded, prompt, given, message):
  request = loaded.submit([5, 6, 9], max_new_tokens=4)
  loaded.step()
  with pytest.raises(ValueError, match=message):
    loaded.submit(prompt, images=given)
  loaded.run()
  assert len(request.tokens) == 4


def test_a_file_without_images_refuses_them(artifact, loaded):
  loaded._images = None
  with pytest.raises(ValueError, match="takes none"):
    loaded.submit([1, 2], images=[pixels_of(1)])


def test_a_failure_of_an_image_ends_its_request_alone(loaded, monkeypatch):
  def fail(*_):
    raise husk.Error("no memory")

  session = loaded._session
  other = loaded.submit([5, 6, 9], max_new_tokens=4)
  wrong = loaded.submit([1, *IMAGE, 2], images=[pixels_of(1)])
  monkeypatch.setattr(loaded, "_compute_rows", fail)
  loaded.run()
  assert wrong.reason == "failed" and len(other.tokens) == 4 and loaded._session is session


def test_the_export_refuses_what_it_cannot_do(artifact, tmp_path):
  model = artifact[0]
  path = tmp_path / "model.husk"
  with pytest.raises(husk.Unsupported, match="no adapters yet"):
    husk.language.export(model, path, adapters=1)
  with pytest.raises(ValueError, match="16 x 16"):
    husk.language.export(model, path, image_size=(16, 24))
  with pytest.raises(ValueError, match="without images"):
    husk.language.export(model, path, image_size=(16, 16), features=())
  with pytest.raises(husk.Unsupported, match="room for 3"):
    husk.language.export(model, path, max_tokens=11)
  before = model.config.model_type
  model.config.model_type = "unknown_vl"
  try:
    with pytest.raises(husk.Unsupported, match="'unknown_vl' takes images in a way"):
      husk.language.export(model, path)
  finally:
    model.config.model_type = before


def test_the_export_compares_logits_with_images(artifact, monkeypatch):
  """Without the sight of later tokens of an image the logits are others."""
  model = artifact[0]
  inputs = PromptImages.inputs

  def causal(self, begin, end):
    return (*inputs(self, begin, end)[:2], np.arange(begin + 1, end + 1))

  monkeypatch.setattr(PromptImages, "inputs", causal)
  seen = images.of_model(model, None, MOST, MOST)
  with (
    pytest.raises(husk.Unsupported, match="prompt with images that differ"),
    exporting.decoder_of(model, SLOTS, MOST, None, None, seen),
  ):
    pass


def test_positions_in_a_grid():
  """Those of transformers' get_rope_index for Qwen-VL, for an image of 2 x 3 rows."""
  kind = Kind(9, (24, 4), 6, 8, grid=(2, 3))
  tokens = [1, 2, *[9] * 6, 3, *[9] * 6, 4, 5]
  prompt = PromptImages(kind, tokens, [])
  prompt.embeddings = np.zeros((12, 8), np.float32)
  places = prompt.inputs(0, len(tokens))[2]
  assert places.tolist() == [
    [0, 1, *[2] * 6, 5, *[6] * 6, 9, 10],
    [0, 1, 2, 2, 2, 3, 3, 3, 5, 6, 6, 6, 7, 7, 7, 9, 10],
    [0, 1, 2, 3, 4, 2, 3, 4, 5, 6, 7, 8, 6, 7, 8, 9, 10],
  ]
  assert [prompt.shift_at(at) for at in (0, 8, 15, 17)] == [0, -3, -6, -6]
  assert not prompt.are_in(0, 2) and prompt.are_in(8, 9)


def test_chunks_keep_images_whole_and_leave_no_single_token():
  kind = Kind(9, (24, 4), 4, 8, two_way=True)
  prompt = PromptImages(kind, [1, 2, 3, *[9] * 4, 4, *[9] * 4, 5], [])
  ends, at = [], 0
  while at < 13:
    at = prompt.end(at, 6)
    ends.append(at)
  assert ends == [3, 8, 13]
  last = PromptImages(kind, [1, 2, 3, *[9] * 4, 4], [])
  assert [last.end(0, 7), last.end(0, 6), last.end(3, 4)] == [7, 3, 7]
  assert PromptImages(dataclasses.replace(kind, two_way=False), [1, *[9] * 4], []).end(0, 4) == 3
