"""An artifact gets its name when it is complete; whatever fails, an old file stays as it was."""

import os
import pathlib
import resource
import shutil
import signal
import stat
import subprocess
import sys
import threading

import built_tools
import husk
import pytest
import torch
from husk import output


@pytest.fixture
def artifact(tmp_path):
  path = tmp_path / "kept" / "model.husk"
  path.parent.mkdir()
  path.write_bytes(b"new" * 100000)
  return path


@pytest.fixture
def old(tmp_path):
  path = tmp_path / "out" / "model.husk"
  path.parent.mkdir()
  path.write_bytes(b"old")
  return path


def place(artifact, path):
  with output.replaced(path) as part:
    shutil.copyfile(artifact, part)


def names(path):
  return sorted(one.name for one in path.parent.iterdir())


def test_replaces_the_file_and_not_its_content(artifact, old):
  old.chmod(0o640)
  with open(old, "rb") as opened:
    place(artifact, old)
    assert opened.read() == b"old"
  assert old.read_bytes() == artifact.read_bytes() and names(old) == ["model.husk"]
  assert stat.S_IMODE(old.stat().st_mode) == 0o640


def test_makes_the_folder(artifact, tmp_path):
  place(artifact, tmp_path / "a" / "b" / "model.husk")
  assert (tmp_path / "a" / "b" / "model.husk").read_bytes() == artifact.read_bytes()


def test_a_link_stays_a_link(artifact, old):
  link = old.with_name("link.husk")
  link.symlink_to("model.husk")
  place(artifact, link)
  assert link.is_symlink() and old.read_bytes() == artifact.read_bytes()


@pytest.mark.parametrize("room", (0, 1, 4096, 299999))
def test_a_full_disk_leaves_the_old_file(room, artifact, old):
  """The size limit of a process stands in for the disk. Python ignores SIGXFSZ."""
  assert signal.getsignal(signal.SIGXFSZ) == signal.SIG_IGN
  before = resource.getrlimit(resource.RLIMIT_FSIZE)
  resource.setrlimit(resource.RLIMIT_FSIZE, (room, before[1]))
  try:
    with pytest.raises(OSError, match="File too large"):
      place(artifact, old)
  finally:
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
  assert old.read_bytes() == b"old" and names(old) == ["model.husk"]


def test_an_interrupt_leaves_the_old_file(artifact, old, monkeypatch):
  def interrupted(*_):
    raise KeyboardInterrupt

  monkeypatch.setattr(os, "replace", interrupted)
  with pytest.raises(KeyboardInterrupt):
    place(artifact, old)
  assert old.read_bytes() == b"old" and names(old) == ["model.husk"]


def test_a_fifo_and_a_device_are_written_directly(artifact, tmp_path):
  fifo = tmp_path / "fifo"
  os.mkfifo(fifo)
  got = []
  reader = threading.Thread(target=lambda: got.append(fifo.read_bytes()))
  reader.start()
  place(artifact, fifo)
  reader.join()
  assert got == [artifact.read_bytes()] and stat.S_ISFIFO(fifo.stat().st_mode)
  with pytest.raises(OSError, match="No space left on device"):
    place(artifact, type(fifo)("/dev/full"))


def test_export_uses_it(tmp_path):
  """An export in a process of its own, in which no file can be renamed."""
  built_tools.built("huskc")
  script = (
    "import os, sys, husk, torch\n"
    "def full(*_): raise OSError(28, 'No space left on device')\n"
    "os.replace = full\n"
    "husk.export(torch.nn.Identity(), (torch.randn(3),), sys.argv[1])\n"
  )
  (tmp_path / "model.husk").write_bytes(b"old")
  environment = dict(os.environ, PYTHONPATH=str(built_tools.ROOT / "compiler" / "torch"))
  done = subprocess.run(
    [sys.executable, "-c", script, str(tmp_path / "model.husk")],
    capture_output=True,
    text=True,
    env=environment,
  )
  assert done.returncode == 1 and "output.py" in done.stderr, done.stderr
  assert "No space left on device" in done.stderr
  assert (tmp_path / "model.husk").read_bytes() == b"old"
  assert names(tmp_path / "model.husk") == ["model.husk"]


class Large(torch.nn.Module):
  """A model with two buffers of 16 MiB, which it may write, and a weight of 16 MiB."""

  def __init__(self, writes):
    super().__init__()
    self.writes = writes
    self.register_buffer("a", torch.rand(1024, 4096))
    self.register_buffer("b", torch.rand(1024, 4096))
    self.linear = torch.nn.Linear(2048, 2048)

  def forward(self, x):
    if self.writes:
      self.a[0] += x[0]
      self.b[0] += x[0]
    return self.linear(x[:, :2048]) + self.a[0, 0] + self.b[0, 0]


MODEL_BYTES = 3 << 24


def exports():
  """A function that writes the model to a file."""
  built_tools.built("huskc")
  model = Large(writes=True).eval()
  return lambda file: husk.export(model, (torch.ones(2, 4096),), file, targets=("host:avx2",))


def saves():
  """As `exports`. To learn what a graph does, save_compiled runs it on copies of what it writes, so
  this model writes nothing."""
  from husk.jit.backend import backend

  built_tools.built("huskc")
  compiled = torch.compile(Large(writes=False).eval(), backend=backend)
  with torch.no_grad():
    compiled(torch.ones(2, 4096))
  return lambda file: husk.save_compiled(compiled, file)


def proc(file, word):
  """A number of the kernel about this process. Some kernels of containers do not count."""
  try:
    text = pathlib.Path(f"/proc/self/{file}").read_text()
    return int(text.split(f"{word}:")[1].split()[0])
  except (OSError, IndexError) as error:
    pytest.skip(f"the kernel does not tell {word} in /proc/self/{file}: {error}")


@pytest.mark.parametrize("how", (exports, saves))
def test_weights_are_written_once(how, tmp_path):
  """The kernel counts what the process and its children write to files, and not to pipes."""
  write = how()
  before = proc("io", "write_bytes")
  write(tmp_path / "model.husk")
  written = proc("io", "write_bytes") - before
  if not written:
    pytest.skip("the kernel does not count bytes of this file system")
  assert MODEL_BYTES < written < 1.5 * MODEL_BYTES


@pytest.mark.parametrize("how", (exports, saves))
def test_an_export_copies_no_more_than_one_tensor(how, tmp_path):
  write = how()
  write(tmp_path / "model.husk")  # imports what an export needs
  before = proc("status", "VmRSS")
  try:
    pathlib.Path("/proc/self/clear_refs").write_text("5")  # forgets the largest memory so far
  except OSError as error:
    pytest.skip(f"the kernel does not forget the largest memory: {error}")
  write(tmp_path / "model.husk")
  assert (proc("status", "VmHWM") - before) << 10 < MODEL_BYTES / 2


def test_a_place_for_no_file_is_refused_before_the_export(tmp_path):
  (tmp_path / "file").write_text("text")
  with pytest.raises(IsADirectoryError, match="give the name of a file"):
    output.require(tmp_path)
  with pytest.raises(NotADirectoryError, match="file is no folder"):
    output.require(tmp_path / "file" / "model.husk")
  output.require(tmp_path / "new" / "folder" / "model.husk")
  output.require(tmp_path / "file")
