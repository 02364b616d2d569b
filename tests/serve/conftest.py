"""Servers in Python with artifacts, for the tests of husk.serve.

HUSKC is the path of huskc. The programs are those of tests/servers. test_mlserver*.py need MLServer
and test_ray*.py need Ray, which cannot share an environment.
"""

import http.client
import json
import os
import pathlib
import platform
import re
import signal
import socket
import subprocess
import sys

import numpy as np
import pytest

HERE = pathlib.Path(__file__).parent
sys.path.append(str(HERE.parent))

from patience import HANG, eventually  # noqa: E402

ROOT = HERE.parents[1]
PROGRAMS = HERE.parent / "servers"

ARCH = {"x86_64": "x86-64"}.get(platform.machine(), platform.machine())
WEIGHT = np.array([[1, 0], [0, 2], [3, 1]], np.float32)
BIAS = np.array([0.5, -0.5], np.float32)


def linear(x):
  return np.asarray(x, np.float32) @ WEIGHT + BIAS


def continued(prompt, count):
  """The tokens that follow a prompt, as generate.hir has them."""
  text = (PROGRAMS / "generate.hir").read_text()
  table = np.frombuffer(bytes.fromhex(re.search(r'table .* "(\w+)"', text)[1]), "f4").reshape(8, 8)
  tokens = list(prompt)
  for _ in range(count):
    logits = table[tokens[-1]].copy()
    for token in tokens:
      logits[token] -= 100
    tokens.append(int(logits.argmax()))
  return tokens[len(prompt) :]


def free_ports(count):
  """Ports that nobody listens on. The sockets are open at once, so the numbers differ."""
  sockets = [socket.socket() for _ in range(count)]
  for each in sockets:
    each.bind(("127.0.0.1", 0))
  ports = [each.getsockname()[1] for each in sockets]
  for each in sockets:
    each.close()
  return ports


# y: the sum of x * (rank + 1) over both ranks; a state adds up what it was called with.
RANKS = """hir 1
world 2 rank RANK set "5555555555555555555555555555555555555555555555555555555555555555"
target cpu host "ARCH"
constant factor f32 [2, 2] bytes "FACTOR0000000000000000FACTOR"
constant none_yet f32 [2] bytes "0000000000000000"
constant zero i64 [1] bytes "0000000000000000"
state total f32 [1, 2] fill 0
function add {
  input x tensor f32 [1..64, 2]
  output y tensor f32 rank 2
  variant cpu {
    let n = size(x, 0)
    buffer x of input bytes mul(n, 8)
    buffer y of output bytes mul(n, 8)
    buffer t bytes mul(n, 8) align 64
    buffer order bytes 1
    extern "aten::addmm.out" (read tensor none_yet f32 [2] [1], read tensor x f32 [n, 2] [2, 1],
      read tensor factor f32 [2, 2] [2, 1], 1, 1, write tensor t f32 [n, 2] [2, 1])
    extern "husk::all_reduce" (read tensor t f32 [n, 2] [2, 1], "sum", [0, 1],
      write tensor y f32 [n, 2] [2, 1], write tensor order u8 [1] [1])
    return (tensor y f32 [n, 2] [2, 1])
  }
}
function count {
  input x tensor f32 [1, 2]
  output y tensor f32 rank 2
  variant cpu {
    buffer x of input bytes 8
    buffer y of output bytes 8
    buffer order bytes 1
    extern "aten::index_put_" (both tensor total f32 [1, 2] [2, 1],
      tensors [read tensor zero i64 [1] [1], none], read tensor x f32 [1, 2] [2, 1], true)
    extern "husk::all_reduce" (read tensor total f32 [1, 2] [2, 1], "sum", [0, 1],
      write tensor y f32 [1, 2] [2, 1], write tensor order u8 [1] [1])
    return (tensor y f32 [1, 2] [2, 1])
  }
}
"""


def compile_text(text, artifact):
  """Writes an artifact. The file is renamed into its place, since the old one may be open."""
  temporary = artifact.with_suffix(".new")
  command = [os.environ["HUSKC"], str(text), "-o", str(temporary)]
  subprocess.run(command, check=True, capture_output=True)
  temporary.rename(artifact)


@pytest.fixture(scope="session")
def artifacts(tmp_path_factory):
  """A folder with the programs of tests/servers, compiled. functions-2.husk is functions.husk with
  another bias, ranks.husk a program of two ranks."""
  folder = tmp_path_factory.mktemp("artifacts")
  for text in PROGRAMS.glob("*.hir"):
    compile_text(text, folder / f"{text.stem}.husk")
  parts = []
  for rank, factor in enumerate(("0000803f", "00000040")):
    parts.append(folder / f"ranks.rank{rank}.husk")
    text = RANKS.replace("RANK", str(rank)).replace("ARCH", ARCH).replace("FACTOR", factor)
    parts[rank].with_suffix(".hir").write_text(text)
    compile_text(parts[rank].with_suffix(".hir"), parts[rank])
  command = [os.environ["HUSKC"], *parts, "-o", folder / "ranks.husk"]
  subprocess.run(command, check=True, capture_output=True)
  other = (
    (PROGRAMS / "functions.hir").read_text().replace('"0000003f000000bf"', '"0000204100002041"')
  )
  (folder / "functions-2.hir").write_text(other)
  compile_text(folder / "functions-2.hir", folder / "functions-2.husk")
  return folder


def linear_2(x):
  """`linear` of functions-2.husk."""
  return np.asarray(x, np.float32) @ WEIGHT + 10


DATATYPES = {
  "float32": "FP32",
  "float64": "FP64",
  "int64": "INT64",
  "int32": "INT32",
  "bool": "BOOL",
}


def tensor(name, array, **changes):
  """An input of the KServe v2 protocol."""
  array = np.asarray(array)
  one = {
    "name": name,
    "datatype": DATATYPES[str(array.dtype)],
    "shape": list(array.shape),
    "data": array.reshape(-1).tolist(),
  }
  return one | changes


class Answer:
  """The status of an answer, its JSON or text, and the outputs as arrays."""

  def __init__(self, status, text):
    self.status = status
    self.text = text
    try:
      self.json = json.loads(text)
    except ValueError:
      self.json = None

  @property
  def outputs(self):
    assert self.status == 200, self.text
    return {
      one["name"]: np.array(one["data"]).reshape(one["shape"]) for one in self.json["outputs"]
    }

  @property
  def error(self):
    return self.json["error"]


class Client:
  """A client of HTTP. Each call has a connection of its own, so threads may share it."""

  def __init__(self, port):
    self.port = port

  def send(self, method, path, body=None, headers=None):
    connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=HANG)
    try:
      if body is not None and not isinstance(body, (bytes, str)):
        body = json.dumps(body)
      headers = {"Content-Type": "application/json"} | (headers or {})
      connection.request(method, path, body, headers)
      answer = connection.getresponse()
      return Answer(answer.status, answer.read().decode())
    finally:
      connection.close()

  def infer(self, model, inputs, headers=None, outputs=None, **parameters):
    """Sends arrays by name, or a list of tensors."""
    if isinstance(inputs, dict):
      inputs = [tensor(name, array) for name, array in inputs.items()]
    body = {"inputs": inputs}
    if parameters:
      body["parameters"] = parameters
    if outputs:
      body["outputs"] = [{"name": name} for name in outputs]
    return self.send("POST", f"/v2/models/{model}/infer", body, headers)

  def stream(self, model, prompt, **parameters):
    """The tokens of a stream, and its error."""
    body = {"inputs": [tensor("tokens", np.array(prompt, np.int64))], "parameters": parameters}
    answer = self.send("POST", f"/v2/models/{model}/infer_stream", body)
    assert answer.status == 200, answer.text
    tokens = []
    for event in answer.text.split("\n\n")[:-1]:
      one = json.loads(event.removeprefix("data: "))
      if not one["outputs"]:
        return tokens, one["parameters"]
      tokens.append(one["outputs"][0]["data"][0])
    return tokens, None


class Process:
  """A server's process, with its log."""

  def __init__(self, folder, command, is_ready):
    self.log = folder / "server.log"
    package = str(ROOT / "compiler" / "torch")
    self.process = subprocess.Popen(
      command,
      stdout=self.log.open("w"),
      stderr=subprocess.STDOUT,
      env=os.environ | {"PYTHONPATH": package},
      cwd=folder,
    )

    def is_ready_or_ended():
      try:
        if is_ready():
          return True
      except OSError:
        pass
      return self.process.poll() is not None

    try:
      eventually(is_ready_or_ended, pause=0.1)
      assert self.process.poll() is None
    except AssertionError:
      self.process.kill()
      raise RuntimeError(f"the server did not start:\n{self.log.read_text()}") from None

  def stop(self):
    """Ends the server, and returns its exit status."""
    self.process.send_signal(signal.SIGTERM)
    try:
      return self.process.wait(HANG)
    except subprocess.TimeoutExpired:
      self.process.kill()
      self.process.wait()
      return "killed"


def program(name):
  """A program of the environment that runs the tests."""
  return str(pathlib.Path(sys.executable).parent / name)


def run_example(name, *ports):
  """Runs examples/NAME/run.sh with free ports. Returns what it prints, and the tokens that
  examples/generate prints for the same prompt."""
  numbers = map(str, free_ports(len(ports)))
  done = subprocess.run(
    ["bash", ROOT / "examples" / name / "run.sh"],
    env=os.environ | dict(zip(ports, numbers)),
    capture_output=True,
    text=True,
    timeout=HANG,
  )
  assert done.returncode == 0, done.stdout + done.stderr
  generate = ROOT / "build" / "release" / "bin" / "husk_example_generate"
  command = [generate, ROOT / "build" / name / "gpt.husk", "8", "5", "17", "200"]
  tokens = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
  return done.stdout, tokens
