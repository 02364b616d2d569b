"""A Triton server with the backend "husk", for the tests of this folder.

HUSK_TRITON is the path of libtriton_husk.so, HUSKC that of huskc. The server itself comes with the
wheel nvidia-pytriton. HUSK_SERVER_PRELOAD names a library that is loaded into the server first:
that of AddressSanitizer, for a backend of the preset `asan`.
"""

import http
import http.client
import os
import pathlib
import queue
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http

HERE = pathlib.Path(__file__).parent
sys.path.append(str(HERE.parent))

from patience import HANG, eventually  # noqa: E402

WEIGHT = np.array([[1, 0], [0, 2], [3, 1]], np.float32)
BIAS = np.array([0.5, -0.5], np.float32)
TABLE = WEIGHT


def linear(x):
  return x @ WEIGHT + BIAS


def numbers(n):
  """Inputs of the functions `numbers`."""
  return {
    "one": np.array([2.5], np.float32),
    "n": np.array([n], np.int64),
    "t": np.array([1.25], np.float64),
    "flag": np.array([True]),
  }


# The configuration of generate.hir as a stream, or with sequences.
FUNCTIONS = """
parameters { key: "function" value { string_value: "prefill" } }
parameters { key: "next_function" value { string_value: "decode" } }
"""
STREAM = "model_transaction_policy { decoupled: true }\n"


def continued(prompt, count):
  """The tokens that follow a prompt, as generate.hir has them."""
  text = (HERE / "generate.hir").read_text()
  table = np.frombuffer(bytes.fromhex(re.search(r'table .* "(\w+)"', text)[1]), "f4").reshape(8, 8)
  tokens = list(prompt)
  for _ in range(count):
    logits = table[tokens[-1]].copy()
    for token in tokens:
      logits[token] -= 100
    tokens.append(int(logits.argmax()))
  return tokens[len(prompt) :]


def tritonserver():
  """The path of the server's program."""
  import importlib.util

  package = pathlib.Path(importlib.util.find_spec("pytriton").submodule_search_locations[0])
  program = package / "tritonserver" / "bin" / "tritonserver"
  if not os.access(program, os.X_OK):
    program.chmod(0o755)
  return program


def library():
  return pathlib.Path(os.environ["HUSK_TRITON"]).resolve()


def free_ports(count):
  """Ports that nobody listens on. The sockets are open at once, so the numbers differ."""
  sockets = [socket.socket() for _ in range(count)]
  for each in sockets:
    each.bind(("127.0.0.1", 0))
  ports = [each.getsockname()[1] for each in sockets]
  for each in sockets:
    each.close()
  return ports


class Server:
  """A running server, whose models are loaded on demand from `repository`."""

  def __init__(self, folder, artifacts, *options, environment=None, exit_timeout=HANG):
    self.repository = folder / "repository"
    self.repository.mkdir(exist_ok=True)
    self.artifacts = artifacts
    self.log = folder / "server.log"
    self.http_port, self.grpc_port, metrics_port = free_ports(3)
    command = [
      tritonserver(),
      f"--model-repository={self.repository}",
      f"--backend-directory={library().parents[1]}",
      f"--http-port={self.http_port}",
      f"--grpc-port={self.grpc_port}",
      f"--metrics-port={metrics_port}",
      "--http-address=127.0.0.1",
      "--grpc-address=127.0.0.1",
      "--model-control-mode=explicit",
      f"--exit-timeout-secs={exit_timeout}",
      *options,
    ]
    preload = {"LD_PRELOAD": os.environ.get("HUSK_SERVER_PRELOAD", "")}
    environment = os.environ | preload | (environment or {})
    self.process = subprocess.Popen(
      command, stdout=self.log.open("w"), stderr=subprocess.STDOUT, env=environment
    )
    self.threads = threading.local()
    self.http_clients = []
    self.exit_statuses = {0}  # that a test accepts
    self.grpc = self.grpc_client()
    self.wait_until_ready()

  @property
  def http(self):
    """The HTTP client of the calling thread: the package's clients are for one thread."""
    if not hasattr(self.threads, "http"):
      address = f"127.0.0.1:{self.http_port}"
      self.threads.http = tritonclient.http.InferenceServerClient(address, network_timeout=HANG)
      self.http_clients.append(self.threads.http)
    return self.threads.http

  def grpc_client(self):
    return tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{self.grpc_port}")

  def wait_until_ready(self):
    def is_ready_or_ended():
      try:
        return self.http.is_server_ready() or not self.is_alive()
      except Exception:
        return not self.is_alive()

    eventually(is_ready_or_ended, pause=0.1)
    if not self.is_alive():
      raise RuntimeError(f"the server did not start:\n{self.log.read_text()}")

  def is_alive(self):
    return self.process.poll() is None

  def write(self, name, artifact, config="", version=1):
    """Writes a model to the repository. A file is renamed into its place, since the old one may be
    open."""
    folder = self.repository / name
    (folder / str(version)).mkdir(parents=True, exist_ok=True)
    file = folder / str(version) / "model.husk"
    temporary = file.with_suffix(".new")
    shutil.copyfile(self.artifacts / f"{artifact}.husk", temporary)
    temporary.rename(file)
    (folder / "config.pbtxt").write_text('backend: "husk"\n' + config)

  def load(self, name, artifact="functions", config="", function=None, **more):
    if function:
      config += f'parameters {{ key: "function" value {{ string_value: "{function}" }} }}\n'
    self.write(name, artifact, config, **more)
    self.http.load_model(name)

  def infer(self, model, inputs, client="http", outputs=None, **more):
    """Sends arrays by name, and returns the outputs by name."""
    module = getattr(tritonclient, client)
    tensors = []
    for name, array in inputs.items():
      tensor = module.InferInput(name, list(array.shape), datatype(array))
      tensor.set_data_from_numpy(array)
      tensors.append(tensor)
    asked = outputs and [module.InferRequestedOutput(name) for name in outputs]
    result = getattr(self, client).infer(model, tensors, outputs=asked, **more)
    response = result.get_response()
    if client == "http":
      return {each["name"]: result.as_numpy(each["name"]) for each in response["outputs"]}
    return {each.name: result.as_numpy(each.name) for each in response.outputs}

  def wait_for_crash(self):
    """Waits, after a request failed, until the server has ended or has answered another one. A
    server that crashes may answer while it writes its stack: it is waited for until it ended."""

    def has_ended_or_answers():
      if not self.is_alive():
        return True
      text = self.log.read_text(errors="replace")
      return "Signal (" not in text and "ERROR: AddressSanitizer" not in text and self.answers()

    eventually(has_ended_or_answers, pause=0.1)

  def answers(self):
    """Whether the server answers a request on a new connection."""
    connection = http.client.HTTPConnection("127.0.0.1", self.http_port, timeout=HANG)
    try:
      connection.request("GET", "/v2/health/live")
      return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
      return False
    finally:
      connection.close()

  def crashed_by_itself(self):
    """Whether the server has ended by a fault that no function of the backend had a part in, as its
    stack in the log says. It aborts by assertions of gRPC, if it sends two answers of a stream at
    once for instance. AddressSanitizer reports that it uses the state of a cancelled call after it
    was freed."""
    text = self.log.read_text(errors="replace")
    _, reported, report = text.partition("ERROR: AddressSanitizer")
    before, signalled, stack = text.partition("Signal (")
    known = stack.startswith("11)") or (stack.startswith("6)") and "ASSERTION FAILED: " in before)
    known = bool(reported) or (bool(signalled) and known)
    return known and not self.is_alive() and library().name not in report + stack

  def stop(self):
    """Ends the server, and returns its exit status."""
    self.grpc.close()
    for client in self.http_clients:  # the server waits for open connections
      client.close()
    if self.is_alive():
      self.process.send_signal(signal.SIGTERM)
    try:
      # A server that may keep a model for ever is not waited for.
      return self.process.wait(30 if 1 in self.exit_statuses else HANG)
    except subprocess.TimeoutExpired:
      self.process.kill()
      return 1 if 1 in self.exit_statuses else self.process.wait()


def datatype(array):
  from tritonclient.utils import np_to_triton_dtype

  return np_to_triton_dtype(array.dtype)


def stream(server, prompt, cancel_after=None, name="stream", **parameters):
  """Returns the tokens of a stream, and its error."""
  tensor = tritonclient.grpc.InferInput("tokens", [len(prompt)], "INT64")
  tensor.set_data_from_numpy(np.array(prompt, np.int64))
  results, tokens = queue.Queue(), []
  with server.grpc_client() as client:
    client.start_stream(lambda result, error: results.put((result, error)))
    client.async_stream_infer(
      name, [tensor], parameters=parameters, enable_empty_final_response=True
    )
    while True:
      result, error = results.get(timeout=HANG)
      if error:
        return tokens, error
      tokens.append(int(result.as_numpy("token")[0]))
      if result.get_response().parameters["triton_final_response"].bool_param:
        return tokens, None
      if len(tokens) == cancel_after:
        client.stop_stream(cancel_requests=True)
        return tokens, None


@pytest.fixture(scope="session")
def artifacts(tmp_path_factory):
  """A folder with the programs of this folder, compiled."""
  folder = tmp_path_factory.mktemp("artifacts")
  for text in HERE.glob("*.hir"):
    compile_text(text, folder / f"{text.stem}.husk")
  return folder


def compile_text(text, artifact):
  command = [os.environ["HUSKC"], str(text), "-o", str(artifact)]
  subprocess.run(command, check=True, capture_output=True)


@pytest.fixture(scope="session")
def start(tmp_path_factory, artifacts):
  """Starts servers with options of their own, and stops them at the end."""
  servers = []

  def run(*options, **more):
    folder = tmp_path_factory.mktemp("server")
    servers.append(Server(folder, artifacts, *options, **more))
    return servers[-1]

  yield run
  logs = [server.log.read_text() for server in servers if server.stop() not in server.exit_statuses]
  assert logs == []


@pytest.fixture
def try_cancelling(start):
  """Calls a test with a server of its own. This version of the server has faults of its own after
  requests were cancelled, with any backend: it may keep the model for ever, and end with status 1;
  and it may crash, after which the test is tried again."""

  def run(test):
    for _ in range(5):
      server = start(exit_timeout=5)
      server.exit_statuses = {0, 1}
      try:
        return test(server)
      except Exception:
        server.wait_for_crash()
        if not server.crashed_by_itself():
          raise
        crashes = {signal.SIGSEGV, signal.SIGABRT}
        server.exit_statuses = {-each for each in crashes} | {128 + each for each in crashes}
    pytest.fail("the server crashed by itself five times")

  return run


@pytest.fixture(scope="session")
def server(start):
  """A server that the tests share; each loads models of its own names."""
  return start()
