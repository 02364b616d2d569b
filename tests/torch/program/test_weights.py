"""Artifacts whose weights lie in a file beside them."""

import hashlib
import os
import shutil

import built_tools
import husk
import on_fake_driver
import pytest
import torch
from safetensors.torch import load_file

TARGET = {"targets": ("host:avx2",)}


class Model(torch.nn.Module):
  def __init__(self):
    super().__init__()
    self.linear = torch.nn.Linear(30, 20)
    self.offset = torch.nn.Parameter(torch.randn(7).half())
    self.register_buffer("count", torch.tensor([3, 4]))  # a state with an initial value

  def forward(self, x):
    self.count += 1
    return self.linear(x) + self.offset.sum() + self.count.sum()


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
  built_tools.built("huskc")
  folder = tmp_path_factory.mktemp("exported")
  model, x = Model().eval(), torch.randn(3, 30)
  husk.export(model, (x,), folder / "model.husk", weights="beside", **TARGET)
  return folder, model, x


@pytest.fixture
def files(exported, tmp_path):
  """The artifact and its weights, which a test may change."""
  folder, _, _ = exported
  shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
  path = tmp_path / "model.husk"
  return path, path.with_name(husk.inspect(path).weights)


def test_the_weights_are_tensors_in_a_file_that_their_hash_names(exported, files):
  _, model, _ = exported
  path, weights = files
  assert sorted(one.name for one in path.parent.iterdir()) == sorted([weights.name, path.name])
  digest = hashlib.blake2b(weights.read_bytes(), digest_size=32).hexdigest()
  assert weights.name == f"{digest[:32]}.safetensors"
  tensors = load_file(weights)
  assert torch.equal(tensors["linear.weight"], model.linear.weight)
  assert torch.equal(tensors["offset"], model.offset)
  described = husk.inspect(path)
  assert {one.name for one in described.constants} <= tensors.keys()
  assert f"beside it, in {weights.name}" in described.summary()
  inside = husk.export(*exported[1:2], (exported[2],), path.with_name("inside.husk"), **TARGET)
  assert husk.inspect(inside).weights is None


def test_they_are_found_beside_the_artifact_or_in_a_folder(exported, files, tmp_path):
  _, model, x = exported
  path, weights = files
  for options in ({}, {"verify": True}, {"weights": path.parent}):
    expected = model.linear(x) + model.offset.sum() + 9
    torch.testing.assert_close(husk.load(path, **options)(x), expected)
  other = tmp_path / "other"
  other.mkdir()
  weights.rename(other / weights.name)
  torch.testing.assert_close(husk.load(path, weights=other)(x), expected)
  assert husk.inspect(path).weights == weights.name  # without the weights
  arguments = [path, other, {"x": x}, "--function=forward"]
  code, outputs, printed = built_tools.husk_run(*arguments, f"--weights={other}")
  assert code == 0, printed
  torch.testing.assert_close(next(iter(outputs.values())), expected)
  code, _, printed = built_tools.husk_run(*arguments)
  assert code == 3 and f"put the file {weights.name} beside it" in printed


def test_an_artifact_with_other_code_has_the_same_weights(exported, tmp_path):
  folder, model, x = exported
  shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
  before = (tmp_path / "model.husk").read_bytes()
  model = Model().eval()
  model.load_state_dict({**exported[1].state_dict(), "count": torch.tensor([3, 4])})
  options = {"metadata": {"a": "b"}, "weights": "beside", "keep": tmp_path / "kept"}
  husk.export(model, (x,), tmp_path / "model.husk", **options, **TARGET)
  assert (tmp_path / "model.husk").read_bytes() != before
  names = {one.name for one in tmp_path.glob("*.safetensors")}
  assert names == {husk.inspect(tmp_path / "model.husk").weights}


def test_what_is_missing_or_another_file_is_refused(exported, files):
  _, _, x = exported
  path, weights = files
  right = weights.read_bytes()

  def refused(error, text, content, **options):
    weights.unlink(missing_ok=True)
    if content is not None:
      weights.write_bytes(content)
    with pytest.raises(error, match=text):
      husk.load(path, **options)

  refused(husk.FileError, f"put the file {weights.name} beside it", None)
  refused(husk.FileError, f"put the file {weights.name} into the folder", right, weights="/nowhere")
  refused(husk.InvalidFileError, "is truncated; copy it again", right[:-1])
  refused(husk.InvalidFileError, "is another one; copy it again", right + b"x")
  other = right.replace(b'"F32"', b'"I32"', 1)
  refused(husk.InvalidFileError, f"{weights.name} is damaged, or not the weights", other)
  changed = right[:-1] + bytes([right[-1] ^ 1])
  refused(
    husk.InvalidFileError, f"{weights.name}: constant '.*' does not match", changed, verify=True
  )
  weights.write_bytes(changed)
  husk.load(path)(x)  # without verify nothing reads all bytes
  with pytest.raises(husk.InvalidFileError, match="weights lie in a file beside it"):
    husk.load(path.read_bytes())


def test_a_gpu_gets_them(tmp_path, monkeypatch):
  model, x = torch.nn.Linear(16, 8), torch.randn(4, 16)
  options = {"gemm": "cublaslt", "weights": "beside"}
  ((code, (y,), text),) = on_fake_driver.run(
    model, [(x,)], tmp_path, "libcublasLt.so", monkeypatch, **options
  )
  assert code == 0, text
  torch.testing.assert_close(y, model(x))


def test_wrong_arguments_are_refused(exported, files):
  _, model, x = exported
  path, _ = files
  with pytest.raises(ValueError, match="the source must be the path of a file"):
    husk.load(path.read_bytes(), weights=path.parent)
  with pytest.raises(ValueError, match="weights='outside': give one of 'inside', 'beside'"):
    husk.export(model, (x,), path, weights="outside")
  os.mkfifo(path.with_name("fifo"))
  with pytest.raises(ValueError, match='weights="beside" needs a folder'):
    husk.export(model, (x,), path.with_name("fifo"), weights="beside")


class Tied(torch.nn.Module):
  """Two names of one tensor, and a parameter with the name of an input."""

  def __init__(self):
    super().__init__()
    self.embedding = torch.nn.Embedding(5, 3)
    self.head = torch.nn.Linear(3, 5, bias=False)
    self.head.weight = self.embedding.weight
    self.ids = torch.nn.Parameter(torch.randn(5))
    self.register_buffer("unused", torch.zeros(2))

  def forward(self, ids):
    return self.head(self.embedding(ids)) + self.ids


def test_weights_are_exchanged_by_the_names_of_the_model(tmp_path):
  model, other, ids = Tied(), Tied(), torch.arange(4)
  path = husk.export(model, (ids,), tmp_path / "tied.husk", **TARGET)
  program = husk.load(path)
  assert program.metadata()["husk.tied.head.weight"] == "embedding.weight"
  assert program.update_weights(other.state_dict(), strict=False) == ["unused"]
  torch.testing.assert_close(program(ids), other(ids))
  rows = torch.zeros(2, 3)
  program.weights["head.weight"][1:3] = rows
  with torch.no_grad():
    other.embedding.weight[1:3] = rows
  torch.testing.assert_close(program(ids), other(ids))
  program.weights["ids"].copy_from(model.ids)  # stored as another name than that of the input
  other.ids = model.ids
  torch.testing.assert_close(program(ids), other(ids))
