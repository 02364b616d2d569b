"""Programs of several ranks: husk.load with a rank, and `husk-run --ranks`, on the CPU and on the
fake driver with a fake NCCL."""

import os
import pathlib
import re
import subprocess
import threading

import husk
import numpy as np
import pytest
from husk.runtime.ranks import file_of_rank
from programs import ARCH

ROOT = pathlib.Path(husk.__file__).parents[3]

# y: three times the sum of x over two ranks; z: the sums of both, one behind the other.
TEXT = """hir 1
world 2 rank RANK set "SET"
target cpu host "ARCH"
target gpu cuda "sm_90a"
function f {
  input x tensor f32 [1..1000]
  output y tensor f32 rank 1
  output z tensor f32 rank 1
  VARIANTS
}
"""
VARIANT = """variant TARGET {
    let n = size(x, 0)
    buffer x of input bytes mul(n, 4)
    buffer y of output bytes mul(n, 4)
    buffer z of output bytes mul(n, 8)
    buffer t bytes mul(n, 4) align 256
    buffer order bytes 1
    copy (write t, read x)
    extern "husk::all_reduce" (both tensor t f32 [n] [1], "sum", [0, 1],
      both tensor t f32 [n] [1], write tensor order u8 [1] [1])
    extern "husk::all_gather_into_tensor" (read tensor t f32 [n] [1], [0, 1],
      write tensor z f32 [mul(n, 2)] [1], write tensor order u8 [1] [1])
    copy (write y, read t)
    return (tensor y f32 [n] [1], tensor z f32 [mul(n, 2)] [1])
  }
"""


@pytest.fixture
def files(tmp_path):
  """The name of the files of two ranks."""
  for rank in range(2):
    variants = "  ".join(VARIANT.replace("TARGET", target) for target in ("cpu", "gpu"))
    text = TEXT.replace("VARIANTS", variants).replace("RANK", str(rank))
    text = text.replace("SET", "5" * 64).replace("ARCH", ARCH)
    (tmp_path / f"sum.rank{rank}.hir").write_text(text)
    command = [husk.tools.find("huskc"), f"sum.rank{rank}.hir", "-o", f"sum.rank{rank}.husk"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
  return tmp_path / "sum.husk"


def run(files, *options, **environment):
  return subprocess.run(
    [husk.tools.find("husk-run"), files, "--ranks", "2", *options],
    env=os.environ | environment,
    capture_output=True,
    text=True,
  )


INPUT = ("--input", "5xf32=iota", "--print", "all")


def test_ranks_on_threads(files):
  own, results = husk.group_id(), {}
  assert len(own) == 128 and own != husk.group_id()
  assert husk.group_id("cuda", one_machine=True).startswith(b"huskmeet")

  def rank(number):
    program = husk.load(files, rank=number, world=2, group=own, threads=1)
    x = np.arange(4, dtype=np.float32) + number
    results[number] = [np.array(value) for value in program(x)]

  threads = [threading.Thread(target=rank, args=(number,)) for number in range(2)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  for number in range(2):
    assert results[number][0].tolist() == [1, 3, 5, 7]
    assert results[number][1].tolist() == [1, 3, 5, 7] * 2


def test_errors(files):
  rank1 = file_of_rank(files, 1)
  with pytest.raises(husk.InvalidArgumentError, match="rank 1 of 2, the engine is rank 0 of 1"):
    husk.load(rank1)
  with pytest.raises(husk.InvalidArgumentError, match="rank.* is 2, world is 2"):
    husk.load(files, rank=2, world=2, group=husk.group_id())
  with pytest.raises(husk.DeviceError, match=r"rank 0 did not come within 50 ms \(husk.load"):
    husk.load(files, rank=1, world=2, group=husk.group_id(), group_timeout_ms=50)
  for wrong in ("0" * 128, b"0" * 127):
    with pytest.raises(ValueError, match="group: give the bytes that husk.group_id"):
      husk.load(files, rank=1, world=2, group=wrong)
  with pytest.raises(husk.InvalidArgumentError, match="the engine has joined none"):
    program = husk.load(rank1, rank=1, world=2)
    program(np.zeros(4, np.float32))


def test_processes(files):
  done = run(files, *INPUT)
  assert done.returncode == 0, done.stderr
  assert "\n0 2 4 6 8\n" in done.stdout and "\n0 2 4 6 8 0 2 4 6 8\n" in done.stdout
  assert done.stdout.count("output 0") == 1  # rank 0 prints alone


def huskc(*args):
  return subprocess.run(
    [husk.tools.find("huskc"), *map(str, args)], capture_output=True, text=True, check=False
  )


def test_one_file(files):
  """The artifacts of both ranks in one file."""
  parts = [file_of_rank(files, rank) for rank in range(2)]
  done = huskc(*parts, "-o", files)
  assert done.returncode == 0, done.stderr
  assert done.stdout.endswith("2 ranks, 12288 bytes; files of their own would have 0 bytes more\n")
  for part in parts:
    part.unlink()
  done = run(files, *INPUT)
  assert done.returncode == 0, done.stderr
  assert "\n0 2 4 6 8 0 2 4 6 8\n" in done.stdout
  dump = husk.tools.find("husk-dump")
  for rank in range(2):
    text = subprocess.run([dump, files, "--rank", str(rank)], capture_output=True, text=True).stdout
    assert "\nranks 2 in this file\n" in text and f"\nworld 2 rank {rank} set " in text
  done = subprocess.run([dump, files, "--rank", "2"], capture_output=True, text=True)
  assert done.returncode == 1 and "it has no rank 2: it is an artifact for 2 ranks" in done.stderr
  with pytest.raises(husk.InvalidArgumentError, match="is for rank 0 of 2, .* is rank 0 of 1"):
    husk.load(files)


def test_files_that_are_not_joined(files):
  first, second = (file_of_rank(files, rank) for rank in range(2))
  done = huskc(second, first, "-o", files)
  assert done.returncode == 1 and "name those of all ranks, in order" in done.stderr
  done = huskc(first, second, "-o", second)
  assert done.returncode == 1 and "the output would overwrite the input" in done.stderr
  done = huskc(first, second, "-o", files, "--print")
  assert done.returncode == 2 and "--print takes one input" in done.stderr
  assert not files.exists()
  assert huskc(first, second, "-o", files).returncode == 0
  done = huskc(files, "-o", files.with_suffix(".o"), "--emit=obj")
  assert done.returncode == 1 and "compile the file of one rank" in done.stderr


def test_processes_that_fail(files):
  file_of_rank(files, 1).unlink()
  done = run(files, *INPUT, "--timeout", "200")
  assert done.returncode == 3
  assert "husk-run: rank 1: cannot open" in done.stderr
  assert "husk-run: rank 0: the files of the ranks: " in done.stderr
  done = run(files, *INPUT, "--device", "tpu")
  assert done.returncode == 2 and "--device=tpu: unknown device" in done.stderr


@pytest.fixture
def fake():
  """The environment of the fake driver."""
  folders = sorted((ROOT / "build").glob("*/fake_driver/libnccl.so.2"))
  if not folders:
    pytest.skip("the fake NCCL is not built")
  newest = max(folders, key=lambda path: path.stat().st_mtime)
  return {
    "LD_LIBRARY_PATH": str(newest.parent),
    "FAKE_CUDA_DEVICES": "2",
    "FAKE_CUDA_CAPABILITY": "9.0",
  }


@pytest.mark.parametrize("mode", ["list", "graph"])
def test_processes_on_the_fake_driver(files, fake, mode):
  done = run(files, *INPUT, "--device", "cuda", "--mode", mode, "--repeat", "3", "--stats", **fake)
  assert done.returncode == 0, done.stderr
  assert "\n0 2 4 6 8\n" in done.stdout and "\n0 2 4 6 8 0 2 4 6 8\n" in done.stdout
  wanted = "runs as graph 3, as list 0" if mode == "graph" else "runs as graph 0, as list 3"
  assert wanted in done.stdout


def test_independent_calls_have_an_order(files, fake):
  """Two all-reduces that share nothing but the token have an edge between them."""
  body = """let n = size(x, 0)
    buffer x of input bytes mul(n, 4)
    buffer y of output bytes mul(n, 4)
    buffer z of output bytes mul(n, 4)
    buffer s bytes mul(n, 4) align 256
    buffer t bytes mul(n, 4) align 256
    buffer order bytes 1
    buffer other bytes 1
    fill f32 (write s, 1.0)
    fill f32 (write t, 2.0)
    extern "husk::all_reduce" (read tensor s f32 [n] [1], "sum", [0, 1],
      write tensor y f32 [n] [1], write tensor order u8 [1] [1])
    extern "husk::all_reduce" (read tensor t f32 [n] [1], "sum", [0, 1],
      write tensor z f32 [n] [1], write tensor TOKEN u8 [1] [1])
    return (tensor y f32 [n] [1], tensor z f32 [n] [1])
  }
}
"""
  edges = {}
  for token in ("order", "other"):
    for rank in range(2):
      path = file_of_rank(files, rank)
      text = TEXT.replace("RANK", str(rank)).replace("SET", "6" * 64).replace("ARCH", ARCH)
      text = text[: text.index("VARIANTS")] + "variant gpu {\n    " + body.replace("TOKEN", token)
      path.with_suffix(".hir").write_text(text)
      command = [husk.tools.find("huskc"), path.with_suffix(".hir"), "-o", path]
      subprocess.run(command, check=True, capture_output=True)
    options = ("--device", "cuda", "--mode", "graph", "--stats")
    done = run(files, *INPUT, *options, **fake)
    assert done.returncode == 0, done.stderr
    assert "\n2 2 2 2 2\n" in done.stdout and "\n4 4 4 4 4\n" in done.stdout
    edges[token] = int(re.search(r"edges (\d+)", done.stdout)[1])
  assert edges["order"] == edges["other"] + 1


@pytest.mark.parametrize("mode", ["list", "graph"])
def test_a_mesh_on_the_fake_driver(tmp_path, fake, mode):
  """Rows 0, 1 and 2, 3 of four ranks add up, and then columns 0, 2 and 1, 3 gather. Rank 0 prints
  what it has."""
  for rank in range(4):
    row, column = f"[{rank // 2 * 2}, {rank // 2 * 2 + 1}]", f"[{rank % 2}, {rank % 2 + 2}]"
    start, middle, end = VARIANT.replace("TARGET", "gpu").split("[0, 1]")
    variant = f"{start}{row}{middle}{column}{end}".replace("copy (write t, read x)", "START")
    text = TEXT.replace("VARIANTS", variant).replace("RANK", str(rank)).replace("ARCH", ARCH)
    text = text.replace("world 2", "world 4").replace("SET", "4" * 64)
    text = text.replace("START", f"fill f32 (write t, {10**rank}.0)")
    path = tmp_path / f"mesh.rank{rank}.hir"
    path.write_text(text)
    command = [husk.tools.find("huskc"), path, "-o", path.with_suffix(".husk")]
    subprocess.run(command, check=True, capture_output=True)
  command = [husk.tools.find("husk-run"), tmp_path / "mesh.husk", "--ranks", "4", "--mode", mode]
  command += ["--device", "cuda", "--repeat", "2", "--input", "1xf32=zeros", "--print", "all"]
  environment = os.environ | fake | {"FAKE_CUDA_DEVICES": "4"}
  done = subprocess.run(command, env=environment, capture_output=True, text=True)
  assert done.returncode == 0, done.stdout + done.stderr
  assert re.findall(r"^\d+(?: \d+)*$", done.stdout, re.M) == ["11", "11 1100"]


def test_no_nccl(files, fake):
  done = run(files, *INPUT, "--device", "cuda", "--nccl", "/nowhere/libnccl.so.2", **fake)
  assert done.returncode == 3
  assert "no NCCL (/nowhere/libnccl.so.2" in done.stderr
