"""Artifacts with packed copies of weights."""

import json
import os
import subprocess
import sys

import built_tools
import husk
import pytest
import torch
from husk.errors import CompileError
from husk.hir import huskc


class Layers(torch.nn.Module):
  """A layer of each sort that operators of the CPU lay out."""

  def __init__(self):
    super().__init__()
    self.plain = torch.nn.Linear(64, 96)
    self.short = torch.nn.Linear(64, 96, dtype=torch.bfloat16)
    self.eight = torch.nn.Linear(64, 96)
    self.four = torch.nn.Linear(64, 96)
    self.image = torch.nn.Conv2d(32, 32, 3)

  def forward(self, x, image):
    return (
      self.plain(x),
      self.short(x.bfloat16()),
      self.eight(x),
      self.four(x),
      self.image(image),
    )


ARGS = (torch.randn(3, 64), torch.randn(1, 32, 9, 9))


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
  torch.manual_seed(0)
  path = tmp_path_factory.mktemp("pack") / "plain.husk"
  return husk.export(Layers(), ARGS, path, quantize={"eight": "int8", "four": "int4"})


@pytest.fixture(scope="module")
def packed(plain):
  path = plain.with_name("packed.husk")
  path.write_bytes(plain.read_bytes())
  huskc.pack(path)
  return path


def results(program):
  return [torch.from_dlpack(result).clone() for result in program(*ARGS)]


def equal(these, those):
  return all(map(torch.equal, these, those))


def copies(path):
  command = [built_tools.built("husk-dump"), path, "--output=json"]
  return json.loads(subprocess.check_output(command)).get("packed", [])


def test_values_are_those_of_an_open_that_packs(plain, packed):
  assert not copies(plain)
  # Two products of codes have scales too; bf16 is packed if the CPU has instructions for it.
  assert len(copies(packed)) in (6, 7)
  assert equal(results(husk.load(packed)), results(husk.load(plain)))
  assert equal(results(husk.load(packed, verify=True)), results(husk.load(plain)))


@pytest.mark.skipif("avx512f" not in open("/proc/cpuinfo").read(), reason="a CPU with AVX-512")
def test_copies_for_another_cpu_are_left_unused(plain, packed):
  other = plain.with_name("avx2.husk")
  command = [built_tools.built("husk-pack"), plain, "-o", other, "--cpu", "avx2"]
  subprocess.check_call(command, stdout=subprocess.DEVNULL)
  assert {copy["key"] for copy in copies(other)} != {copy["key"] for copy in copies(packed)}
  assert equal(results(husk.load(other)), results(husk.load(plain)))


def test_a_weight_is_updated(plain, packed):
  programs = [husk.load(plain), husk.load(packed)]
  for scale in (2.0, 3.0):
    for program in programs:
      program.update_weights(
        {
          "plain.weight": torch.eye(96, 64) * scale,
          "plain.bias": torch.zeros(96),
          "image.weight": torch.ones(32, 32, 3, 3),
        }
      )
    got = [results(program) for program in programs]
    assert equal(*got)
    assert torch.equal(got[1][0][:, :64], scale * ARGS[0])


def test_damaged_copies_are_found(packed, tmp_path):
  damaged = tmp_path / "damaged.husk"
  content = bytearray(packed.read_bytes())
  content[-1] ^= 1
  damaged.write_bytes(content)
  with pytest.raises(husk.InvalidFileError, match="packed copy"):
    husk.load(damaged, verify=True)
  check = subprocess.run(
    [built_tools.built("husk-dump"), damaged, "--check"], capture_output=True, text=True
  )
  assert check.returncode and "packed copy" in check.stderr + check.stdout


MEMORY = """
import sys, husk
def private():
  lines = open("/proc/self/smaps_rollup").read().splitlines()
  return sum(int(line.split()[1]) for line in lines if line.startswith("Private_Dirty"))
engine = husk.Engine("cpu")
before = private()
program = husk.load(sys.argv[1], engine=engine)
print(private() - before)
"""


def test_an_export_with_packed_weights_takes_no_memory_of_its_own(tmp_path):
  path = tmp_path / "model.husk"
  args = (torch.randn(1, 2048),)
  husk.export(torch.nn.Linear(2048, 2048, bias=False), args, path, pack=True)
  assert [copy["bytes"] >> 20 for copy in copies(path)] == [16]
  environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
  command = [sys.executable, "-c", MEMORY, path]
  assert int(subprocess.check_output(command, env=environment)) < 2048  # KiB, of 16 MiB


def test_a_missing_tool_is_named_before_anything_is_compiled(tmp_path, monkeypatch):
  monkeypatch.setattr(huskc.tools, "find", lambda name: None if name == "husk-pack" else name)
  with pytest.raises(CompileError, match="HUSK_PACK"):
    husk.export(torch.nn.Linear(4, 4), (torch.randn(1, 4),), tmp_path / "model.husk", pack=True)
