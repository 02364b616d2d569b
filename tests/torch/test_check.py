"""`python -m husk check FILE --target NAME`."""

import subprocess

import built_tools
import pytest
from husk import artifact as described
from husk import check
from husk.__main__ import main

PTX = """.version {version}
.target sm_80
.address_size 64
.visible .entry k() {{ ret; }}
"""
# A program of two functions; `body` is a step of the first.
TEXT = """hir 1
producer "test"
target orin cuda "sm_87"
target any cuda "sm_80"
target cpu host "avx2"
constant w f32 [256] bytes "{weight}"
state total i64 [4] fill 0
image orin_code orin cubin "code.cubin"
image any_code any ptx "code.ptx"
kernel k orin_code "k" () shared {shared} cluster {cluster}
kernel k_ptx any_code "k" ()
function forward {{
  input x tensor f32 [1..{most}]
  output y tensor f32 rank 1
  variant orin {{
    let n = size(x, 0)
    buffer x of input bytes mul(n, 4)
    buffer t bytes mul(n, 4) align 64
    buffer y of output bytes mul(n, 4)
    launch k grid (1, 1, 1) ()
    copy (write t, read x)
    copy (write y, read t)
    {body}
    return (tensor y f32 [n] [1])
  }}
  variant any {{
    let n = size(x, 0)
    buffer x of input bytes mul(n, 4)
    buffer y of output bytes mul(n, 4)
    launch k_ptx grid (1, 1, 1) ()
    copy (write y, read x)
    return (tensor y f32 [n] [1])
  }}
  variant cpu {{
    let n = size(x, 0)
    buffer x of input bytes mul(n, 4)
    buffer y of output bytes mul(n, 4)
    extern "my::op" (read tensor x f32 [n] [1], write tensor y f32 [n] [1])
    extern "aten::mm.out" (read tensor x f32 [n] [1], write tensor y f32 [n] [1])
    return (tensor y f32 [n] [1])
  }}
}}
function ready {{
  output n int
  variant orin {{
    return (int add(1, 1))
  }}
}}
"""


@pytest.fixture
def artifact(tmp_path):
  def build(version="8.7", shared=0, cluster=1, body="", most=1024):
    fields = {"shared": shared, "cluster": cluster, "body": body, "most": most}
    (tmp_path / "code.ptx").write_text(PTX.format(version=version))
    (tmp_path / "code.cubin").write_bytes(b"\x7fELF" + bytes(60))
    text, path = tmp_path / "model.hir", tmp_path / "model.husk"
    text.write_text(TEXT.format(weight="00" * 1024, **fields))
    command = [built_tools.built("huskc"), text, "-o", path]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return path

  return build


def wrong(path, target, **options):
  """The texts of what is wrong."""
  return [
    f"{finding.subject}: {finding.text}"
    for finding in check.check(path, check.device(target), **options)
    if not finding.ok
  ]


def test_it_will_run(artifact, capsys):
  assert main(["check", str(artifact()), "--target", "orin", "--driver", "12.6"]) == 0
  printed = capsys.readouterr().out
  assert "will run on orin" in printed
  assert "function forward: runs as cuda sm_87" in printed
  assert "images: 1 of 2 are loaded, 64 bytes" in printed
  assert "driver: CUDA 11.4 or newer for sm_87" in printed
  # 1024 bytes of the constant, 4 * 8 of the state, 4096 of the buffer that is in the plan.
  assert "constants 1.0 KiB, states 32 bytes, plan 4.0 KiB: 5.0 KiB for one session" in printed


def test_code_of_another_device(artifact, capsys):
  path = artifact()
  # PTX of sm_80 runs on an H200, but only one function has it.
  (only,) = wrong(path, "h200")
  assert only == (
    "function ready: no code for cuda sm_90a, only for cuda sm_87: export with --target cuda:h200"
  )
  assert main(["check", str(path), "--target", "orin", "--target", "cuda:h200"]) == 1
  printed = capsys.readouterr().out
  assert "will run on orin" in printed and "will NOT run on cuda:h200" in printed
  assert "function forward: runs as cuda sm_80" in printed
  assert any("no code for host aarch64" in text for text in wrong(path, "host:aarch64"))


def test_the_driver(artifact):
  path = artifact()
  assert wrong(path, "orin", driver="11.4") == []
  (text,) = wrong(path, "orin", driver="11.3")
  assert "CUDA 11.4 or newer is needed for sm_87, the driver has 11.3" in text
  # The image of PTX is what an A100 loads.
  assert any(
    "CUDA 12.8 or newer is needed for PTX 8.7 of image any_code" in text
    for text in wrong(path, "a100", driver="12.4")
  )
  assert not any("driver" in text for text in wrong(path, "a100", driver="13.0"))
  assert any("PTX 99.1, which is unknown" in text for text in wrong(
    artifact(version="99.1"), "a100", driver="13.0"
  ))  # fmt: skip


def test_memory(artifact):
  path = artifact()
  total = 1024 + 32 + 4096
  assert wrong(path, "orin", memory=total) == []
  (text,) = wrong(path, "orin", memory=total - 1)
  assert text.startswith("memory: ") and "5.0 KiB for one session, of 5.0 KiB" in text
  unlimited = artifact(most="inf")
  assert wrong(unlimited, "orin") == []
  (text,) = wrong(unlimited, "orin", memory=1000)
  assert "a plan whose size has no limit" in text


def test_operators(artifact):
  path = artifact()
  found = wrong(path, "host:avx512")
  assert "operators: the application must register my::op (--op says that it does)" in found
  assert not any("aten::mm.out" in text for text in found)
  assert not any("operators" in text for text in wrong(path, "host:avx2", ops=["my::op"]))
  body = 'extern "aten::sort" (read tensor x f32 [n] [1], write tensor y f32 [n] [1])'
  (text,) = wrong(artifact(body=body), "orin")
  assert "must register aten::sort" in text


def test_operators_on_the_host_beside_a_device(artifact):
  host = """buffer a bytes mul(n, 4) on host
  buffer b bytes mul(n, 4) on host
  copy (write a, read x)
  extern "{}" (read tensor a f32 [n] [1], write tensor b f32 [n] [1])
  copy (write y, read b)"""
  path = artifact(body=host.format("aten::sort"))
  assert wrong(path, "orin") == []
  found = [finding.text for finding in check.check(path, check.device("orin"))]
  assert "aten::sort of libhusk_ops, on the host beside the device" in found
  (text,) = wrong(artifact(body=host.format("my::op")), "orin")
  assert text.startswith("operators: the application must register my::op")
  assert wrong(artifact(body=host.format("my::op")), "orin", ops=["my::op"]) == []


def test_kernels_that_the_device_is_too_small_for(artifact):
  assert wrong(artifact(shared=166912), "orin") == []
  (text,) = wrong(artifact(shared=166913), "orin")
  assert "kernel k: it needs 163.0 KiB of shared memory, the device has 163.0 KiB" in text
  (text,) = wrong(artifact(cluster=2), "orin")
  assert text.startswith("kernel k: it has clusters of blocks")


def test_damaged_files_and_wrong_commands(artifact, tmp_path, capsys):
  path = artifact()
  damaged = bytearray(path.read_bytes())
  damaged[-1] ^= 1
  path.write_bytes(damaged)
  assert main(["check", str(path), "--target", "orin"]) == 1
  assert "does not match its hash" in capsys.readouterr().err
  assert main(["check", str(tmp_path / "none.husk"), "--target", "orin"]) == 1
  assert "none.husk" in capsys.readouterr().err
  assert main(["check", str(path), "--target", "orion"]) == 1
  assert "no target 'orion': known are a100" in capsys.readouterr().err
  assert main(["check", str(path), "--target", "host:mips"]) == 1
  assert "known are host:x86-64" in capsys.readouterr().err
  for words in (["--driver", "new"], ["--memory", "much"]):
    with pytest.raises(SystemExit, match="2"):
      main(["check", str(path), "--target", "orin", *words])
  assert check.parser().parse_args(["f", "--target=orin", "--memory=1.5G"]).memory == 3 << 29


# The values are those of ports/cuda/src/arch_rank.cpp and of the targets of port_host.h.
@pytest.mark.parametrize(
  ("target", "arch", "form", "rank"),
  [
    ("h200", "sm_90a", "cubin", 1000),
    ("h200", "sm_90", "cubin", 900),
    ("h200", "sm_80", "cubin", 0),
    ("h200", "sm_100a", "cubin", 0),
    ("h200", "sm_80", "ptx", 90),
    ("h200", "sm_90a", "ptx", 450),
    ("h200", "sm_100", "ptx", 0),
    ("rtx4090", "sm_86", "cubin", 806),
    ("rtx4090", "sm_87", "cubin", 0),
    ("orin", "sm_86", "cubin", 0),
    ("orin", "sm_87", "cubin", 900),
    ("orin", "sm_80", "ptx", 90),
    ("b200", "sm_100f", "cubin", 950),
    ("orin", "compute_87", "cubin", 0),
    ("host:avx512", "avx2", "elf", 2),
    ("host:avx2", "avx512", "elf", 0),
    ("host:aarch64", "aarch64", "elf", 1),
  ],
)
def test_ranks(target, arch, form, rank, tmp_path):
  """The port says how well code runs on a device that is not there."""
  on = check.device(target)
  (tmp_path / "code").write_bytes(b"\x7fELF" + bytes(60))
  (tmp_path / "model.hir").write_text(f"""hir 1
producer "test"
target t {on.port} "{arch}"
image code t {form} "code"
kernel k code "k" ()
function f {{
  variant t {{
    launch k grid (1, 1, 1) ()
    return ()
  }}
}}
""")
  path = tmp_path / "model.husk"
  subprocess.run([built_tools.built("huskc"), tmp_path / "model.hir", "-o", path], check=True)
  (image,) = described.describe(path, f"--on={on.port}:{on.arch}")["images"]
  assert image["rank"] == rank
  assert [one.ok for one in check.check(path, on)][0] == (rank > 0)
