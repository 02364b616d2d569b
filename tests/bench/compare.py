"""Measures models on the CPU with Husk and with its peers, in turns on one machine.

  python tests/bench/compare.py [CASE...] [--threads 1,2] [--peers ...] [--rounds 5]
                                [--seconds 0.5] [--json FILE] [--markdown FILE] [--keep FOLDER]
                                [--noisy] [--setup]

A CASE is a model and a shape, such as resnet18@8; tests/bench/compare/cases.py lists them. With
-bf16 or -f16 after the model, as in bert-bf16@1x128, weights and inputs have that dtype. The peers
are eager PyTorch, Inductor, AOTInductor from C++, onnxruntime, IREE and ExecuTorch. --setup first
makes their Python environments in build/compare. Husk's programs are those of build/release.

Each peer is a process of its own that keeps its model loaded. In each round every peer runs for
some seconds, one after the other. A ratio is Husk's median time of a round divided by that of the
fastest peer in the same round; the table shows the median, the smallest and the largest of the
rounds. A peer whose outputs differ from those of eager PyTorch counts as failed. The machine must
be quiet: if other work takes its CPUs, nothing is measured.
"""

import argparse
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import textwrap
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = ROOT / "tests" / "bench" / "compare"
HOME = ROOT / "build" / "compare"
# The environment of each peer, and what is installed there beside requirements.txt.
ENVIRONMENTS = {
  "torch": [],
  "iree": ["iree-base-compiler", "iree-base-runtime", "iree-turbine"],
  "executorch": ["executorch==1.2.0"],  # the release that is built for torch 2.11
}
PEERS = ("eager", "inductor", "aoti", "onnxruntime", "iree", "executorch")
REQUIRED = PEERS[:4]


def environment_of(peer):
  return peer if peer in ENVIRONMENTS else "torch"


def python_of(peer):
  return HOME / environment_of(peer) / "bin" / "python"


def setup(peers):
  for name in sorted({environment_of(peer) for peer in (*peers, "husk")}):
    folder = HOME / name
    if not (folder / "bin" / "pip").exists():
      subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    print(f"== installs into {folder.relative_to(ROOT)}", flush=True)
    command = [folder / "bin" / "pip", "install", "-q", "-r", HERE / "requirements.txt"]
    subprocess.run([*command, *ENVIRONMENTS[name]], check=True)


def busy_share(threads, seconds=0.2):
  """The share of the CPU time that `threads` processes get if they ask for all of it."""
  code = (
    "import time; wall, cpu = time.perf_counter(), time.process_time()\n"
    f"while time.perf_counter() < wall + {seconds}: pass\n"
    "print((time.process_time() - cpu) / (time.perf_counter() - wall))"
  )
  processes = [
    subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    for _ in range(threads)
  ]
  return min(float(process.communicate()[0]) for process in processes)


def require_quiet(threads, noisy):
  """Returns the share of the CPUs that is free. Ends the program if that is not all of it."""
  share = statistics.median(busy_share(threads) for _ in range(5))
  if share < 0.97 and not noisy:
    sys.exit(
      f"compare.py: the machine is not quiet: {threads} busy process(es) got {share:.0%} of the "
      "CPU time. Stop other work, or measure all the same with --noisy."
    )
  return share


class Peer:
  """A process of peers.py. It is to be waited for before it is used."""

  def __init__(self, name, case, threads, folder):
    self.name = name
    self.rounds = []
    self.error = None
    self.ready = False
    log = open(folder / f"{name}.{threads}.log", "w")
    environment = os.environ | {
      "OMP_NUM_THREADS": str(threads),
      "MKL_NUM_THREADS": str(threads),
      "HUSKC": os.environ.get("HUSKC", str(ROOT / "build" / "release" / "bin" / "huskc")),
      # What another side compiled before would make this side's compilation look cheap.
      "TORCHINDUCTOR_CACHE_DIR": str(folder / "cache" / name),
    }
    self.process = subprocess.Popen(
      [python_of(name), HERE / "peers.py", name, case, str(threads), folder],
      stdin=subprocess.PIPE,
      stdout=subprocess.PIPE,
      stderr=log,
      text=True,
      env=environment,
    )
    self.log = pathlib.Path(log.name)
    self.cpu_s = None

  def wait(self):
    """Waits until the model is ready."""
    if self.ready:
      return
    self.ready = True
    answer = self.answer()
    if answer is None:
      lines = self.log.read_text().strip().splitlines()
      answer = {"error": f"ended early: {lines[-1] if lines else 'it printed nothing'}"}
    self.error = answer.get("error")
    self.cpu_s = answer.get("cpu_s")

  def answer(self):
    line = self.process.stdout.readline()
    return json.loads(line) if line else None

  def measure(self, seconds):
    self.process.stdin.write(f"{seconds}\n")
    self.process.stdin.flush()
    times = self.answer()
    if times is None:
      self.error = "ended while it was measured"
    else:
      self.rounds.append(times[0])

  def close(self):
    self.process.stdin.close()
    self.process.wait()


DIFFERENCE = """
import json, sys, torch
expected = torch.load(sys.argv[1], weights_only=True)
def difference(path):
  try:
    actual = torch.load(path, weights_only=True)
  except OSError as error:
    return str(error)
  if len(expected) != len(actual):
    return f"{len(actual)} outputs, {len(expected)} were expected"
  worst = 0
  for a, b in zip(expected, actual):
    if a.shape != b.shape:
      return f"{tuple(b.shape)}, {tuple(a.shape)} was expected"
    a, b = a.double(), b.double()
    worst = max(worst, ((a - b).abs().max() / a.abs().max().clamp(min=1e-6)).item())
  return worst
print(json.dumps([difference(path) for path in sys.argv[2:]]))
"""


def differences(folder, names, threads):
  """For each peer the largest difference between its outputs and those of eager PyTorch, divided by
  the largest number of that output; or an error."""
  files = [folder / f"{each}.{threads}.pt" for each in ("eager", *names)]
  done = subprocess.run(
    [python_of("eager"), "-c", DIFFERENCE, *files], capture_output=True, text=True, check=False
  )
  if done.returncode:
    return [(done.stderr.strip().splitlines() or ["no outputs"])[-1]] * len(names)
  return json.loads(done.stdout)


def wait_for(peers):
  for peer in peers:
    peer.wait()


def compare(case, threads, options, work):
  folder = work / case
  folder.mkdir(parents=True, exist_ok=True)
  share = require_quiet(threads, options.noisy)
  peers = []
  for name in (*options.peers, "husk"):
    print(f"  {case}, {threads} thread(s): making {name}", file=sys.stderr, flush=True)
    # Peers that only load what is there start together. Nothing disturbs one that makes something.
    makes = not (folder / f"{name}.made").exists()
    if makes:
      wait_for(peers)
    peers.append(Peer(name, case, threads, folder))
    if makes:
      wait_for(peers)
  wait_for(peers)
  compared = [peer for peer in peers if not peer.error and peer.name != "eager"]
  for peer, worst in zip(
    compared, differences(folder, [p.name for p in compared], threads), strict=True
  ):
    if not isinstance(worst, float | int):
      peer.error = worst
    elif not worst < (1e-1 if "-" in case else 1e-3):  # in half precision, or in f32
      peer.error = f"its outputs differ by {worst:.1e} of the largest number"
  running = [peer for peer in peers if not peer.error]
  for peer in running:  # warms up
    peer.measure(options.seconds)
    peer.rounds.clear()
  for turn in range(options.rounds):
    for i in range(len(running)):
      peer = running[(i + turn) % len(running)]
      if not peer.error:
        peer.measure(options.seconds)
  for peer in peers:
    peer.close()
  result = {
    "case": case,
    "threads": threads,
    "cpu_share": share,
    "us": {p.name: statistics.median(p.rounds) for p in peers if p.rounds},
    "cpu_s": {p.name: p.cpu_s for p in peers if p.cpu_s is not None},
    "errors": {p.name: textwrap.shorten(p.error, 80) for p in peers if p.error},
  }
  husk = next(peer for peer in peers if peer.name == "husk")
  others = [peer for peer in running if peer.name != "husk" and not peer.error]
  if husk.rounds and others:
    ratios = [time / min(other.rounds[i] for other in others) for i, time in enumerate(husk.rounds)]
    result["ratio"] = {
      "median": statistics.median(ratios),
      "least": min(ratios),
      "most": max(ratios),
    }
    result["best"] = min(others, key=lambda peer: statistics.median(peer.rounds)).name
  return result


def number(value):
  return "" if value is None else f"{value:.3g}" if value < 100 else f"{value:.0f}"


def table(results, peers):
  """A table in Markdown. Times are in microseconds."""
  head = ["model", "threads", *peers, "husk", "husk ÷ best", "from", "to", "best"]
  rows = [head, ["---", *["---:"] * (len(head) - 2), "---"]]
  for result in results:
    ratio = result.get("ratio", {})
    row = [result["case"], str(result["threads"])]
    for name in (*peers, "husk"):
      row.append("failed" if name in result["errors"] else number(result["us"].get(name)))
    row += [f"{ratio[key]:.2f}" if ratio else "" for key in ("median", "least", "most")]
    rows.append([*row, result.get("best", "")])
  return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def making_table(results):
  """A table of the CPU seconds that husk.export and AOTInductor's packaging take, for the first
  number of threads."""
  rows = []
  for result in results:
    seconds = result["cpu_s"]
    if result["case"] in (row[0] for row in rows) or not {"aoti", "husk"} <= set(seconds):
      continue
    ratio = seconds["husk"] / seconds["aoti"]
    rows.append([result["case"], *(f"{seconds[p]:.1f}" for p in ("aoti", "husk")), f"{ratio:.2f}"])
  head = [["made in CPU s", "aoti", "husk", "husk ÷ aoti"], ["---", "---:", "---:", "---:"]]
  return "\n".join("| " + " | ".join(row) + " |" for row in head + rows) if rows else ""


def words(text):
  return [word for word in text.split(",") if word]


def main():
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument("cases", nargs="*", metavar="CASE")
  parser.add_argument("--threads", type=words, default=["1", "2"])
  parser.add_argument("--peers", type=words, default=list(PEERS))
  parser.add_argument("--rounds", type=int, default=5)
  parser.add_argument("--seconds", type=float, default=0.5)
  parser.add_argument("--json", type=pathlib.Path)
  parser.add_argument("--markdown", type=pathlib.Path)
  parser.add_argument(
    "--keep",
    type=pathlib.Path,
    metavar="FOLDER",
    help="keep what the peers make in a folder, and use what is there; Husk's files are made anew",
  )
  parser.add_argument("--noisy", action="store_true", help="measure on a machine that is busy")
  parser.add_argument("--setup", action="store_true", help="make the environments of the peers")
  options = parser.parse_args()
  unknown = set(options.peers) - set(PEERS)
  if unknown:
    parser.error(f"--peers: {', '.join(sorted(unknown))}: write some of {','.join(PEERS)}")
  if "eager" not in options.peers:
    parser.error("--peers: eager is needed, since the outputs of all others are compared with it")
  if options.setup:
    setup(options.peers)
  missing = sorted({environment_of(p) for p in options.peers if not python_of(p).exists()})
  if missing:
    parser.error(f"there is no build/compare/{missing[0]}: call it with --setup first")
  cases = options.cases or default_cases()
  results = []
  begin = time.monotonic()
  with contextlib.ExitStack() as stack:
    work = options.keep and options.keep.resolve()
    if not work:
      work = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="husk-compare-")))
    for case in cases:
      for name in ("model.husk", "husk.made"):
        (work / case / name).unlink(missing_ok=True)
      for threads in options.threads:
        result = compare(case, int(threads), options, work)
        results.append(result)
        if options.json:
          options.json.write_text(json.dumps(results, indent=1) + "\n")
        ratio = result.get("ratio")
        summary = f"{ratio['median']:.2f} of {result['best']}" if ratio else "not measured"
        print(f"  {case}, {threads} thread(s): {summary}", file=sys.stderr, flush=True)
  peers = [p for p in options.peers if any(p in r["us"] or p in r["errors"] for r in results)]
  text = "\n\n".join(filter(None, [table(results, peers), making_table(results)]))
  print(text)
  for result in results:
    for name, error in result["errors"].items():
      print(f"{result['case']}, {result['threads']} thread(s): {name}: {error}")
  print(f"{len(results)} rows in {time.monotonic() - begin:.0f} s")
  if options.markdown:
    options.markdown.write_text(text + "\n")
  absent = [p for p in REQUIRED if p not in options.peers or all(p in r["errors"] for r in results)]
  if absent:
    sys.exit(f"compare.py: not a table to report: {', '.join(absent)} is missing")


def default_cases():
  code = "import cases; print(*cases.CASES)"
  done = subprocess.run(
    [python_of("eager"), "-c", code], cwd=HERE, capture_output=True, text=True, check=True
  )
  return done.stdout.split()


if __name__ == "__main__":
  main()
