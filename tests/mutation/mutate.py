"""Removes each check of the runtime in turn, and runs the tests, which must notice it.

  python tests/mutation/mutate.py [--jobs N] [--only TEXT] [--list]

All mutants are in one build, in build/mutants: rewrite.py says what a check is and how a process
removes one. First, each test case runs alone and unchanged, and says which checks made a difference
in it; only these can notice that the check is gone. Then each mutant runs its cases, the fastest
ones first, until one fails. A crash, and a case that takes ten times as long as before, count.

The result is a list of the mutants that no test notices. The exit status is 1 if there are any
that are not in ALLOWED.
"""

import argparse
import collections
import concurrent.futures
import filecmp
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

import rewrite

ROOT = pathlib.Path(__file__).resolve().parents[2]
COPY = ROOT / "build" / "mutants"
BUILD = COPY / "build" / "dev"
SOURCES = "runtime/src"
FILES = (
  "model/verify.cpp model/verify_variant.cpp model/container.cpp model/evaluate.cpp "
  "model/interval.cpp model/integer.h model/overlap.cpp model/shape.cpp "
  "plan/dependences.cpp plan/liveness.cpp plan/planner.cpp "
  "program/constants.cpp program/contract.cpp program/engine.cpp program/gate.cpp "
  "program/packed.cpp program/program.cpp program/shared_memory.cpp "
  "session/encoding.cpp session/frame.cpp session/graph.cpp session/io_binding.cpp "
  "session/memory_plan.cpp session/prologue.cpp session/run.cpp session/session.cpp "
  "session/step_arguments.cpp session/step_timer.cpp"
).split()
# In the order in which a mutant runs them.
PROGRAMS = (
  "husk_runtime_test husk_graph_test husk_port_test husk_compiler_test husk_runtime_threads_test "
  "husk_runtime_large_test husk_host_sessions_test husk_host_test husk_linked_test"
).split()
# Mutants that no test needs to notice, and why.
ALLOWED = {
  "model/container.cpp: size >= FLATBUFFERS_MAX_BUFFER_SIZE": "a file of 2 GiB would reach it, "
  "and a test of it would take seconds and 4 GiB of memory",
  "model/verify_variant.cpp: found_ == limits::kMaxSegmentResults": "without it the shift of the "
  "next line is undefined; on x86 it has no effect, since step() refuses the segment",
  "session/step_arguments.cpp: memory_->check_buffer(view.buffer(), size, error)": "the checks of "
  "outer buffers and the planner's intervals imply it; it stays as a second line of defence, since "
  "an error in the intervals would otherwise be an access out of bounds",
}
SLOWEST = 600  # seconds of one program


def run(command, **options):
  return subprocess.run(command, check=True, **options)


def write_if_changed(path, text):
  if not path.exists() or path.read_text() != text:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def copy_tree():
  """Makes COPY a copy of the files that git knows or would add. Unchanged files stay untouched, so
  that a second build is short."""
  command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
  listed = run(command, cwd=ROOT, capture_output=True, text=True).stdout.split("\0")
  names = {name for name in listed if name and (ROOT / name).is_file()}
  rewritten = {f"{SOURCES}/{name}" for name in FILES} | {"runtime/CMakeLists.txt"}
  for name in sorted(names - rewritten):
    path = COPY / name
    if not path.exists() or not filecmp.cmp(ROOT / name, path, shallow=False):
      path.parent.mkdir(parents=True, exist_ok=True)
      shutil.copy(ROOT / name, path)
  for path in COPY.rglob("*"):
    relative = path.relative_to(COPY)
    if path.is_file() and relative.parts[0] != "build" and str(relative) not in names:
      path.unlink()


def rewrite_sources():
  """Writes the sources with removable checks to COPY, and returns the mutants."""
  mutants = []
  for name in FILES:
    file = f"{SOURCES}/{name}"
    rewriter = rewrite.Rewriter(file, (ROOT / file).read_text(), len(mutants) + 1)
    text = rewriter.run()
    write_if_changed(COPY / file, f'#include "base/mutant.h"\n#line 1\n{text}')
    mutants += rewriter.mutants
  here = pathlib.Path(__file__).parent
  for name in ("mutant.h", "mutant.cpp"):
    write_if_changed(COPY / SOURCES / "base" / name, (here / name).read_text())
  makefile = (ROOT / "runtime/CMakeLists.txt").read_text()
  one = "  src/base/status.cpp\n"
  assert makefile.count(one) == 1
  write_if_changed(
    COPY / "runtime/CMakeLists.txt", makefile.replace(one, one + "  src/base/mutant.cpp\n")
  )
  return mutants


def build():
  log = COPY / "build.log"
  launcher = []
  if shutil.which("ccache"):
    launcher = [f"-DCMAKE_{language}_COMPILER_LAUNCHER=ccache" for language in ("C", "CXX")]
    os.environ.setdefault("CCACHE_NOHASHDIR", "1")
    os.environ["CCACHE_BASEDIR"] = str(COPY)
  with log.open("w") as out:
    try:
      if not (BUILD / "build.ninja").exists():
        run(["cmake", "--preset", "dev", *launcher], cwd=COPY, stdout=out, stderr=out)
      run(["cmake", "--build", BUILD, "--target", *PROGRAMS], stdout=out, stderr=out)
    except subprocess.CalledProcessError:
      sys.exit(f"The mutants do not build: {log}\n{log.read_text()[-3000:]}")


def environment(**more):
  return {**os.environ, "LD_LIBRARY_PATH": str(BUILD / "fake_driver"), **more}


class Case:
  """A test case, with the seconds that it takes and the numbers of the mutants that it may
  notice."""

  def __init__(self, program, name):
    self.program = program
    self.name = name
    self.seconds = 0.0
    self.reached = set()

  def trace(self):
    with tempfile.TemporaryDirectory() as folder:
      path = pathlib.Path(folder) / "trace"
      begin = time.monotonic()
      passed = passes(self.program, [self], SLOWEST, HUSK_MUTANT_TRACE=str(path))
      self.seconds = time.monotonic() - begin
      if path.exists():
        self.reached = {int(number) for number in path.read_text().split()}
    return passed


def passes(program, cases, seconds, **variables):
  """Whether cases of a program pass."""
  names = ":".join(case.name for case in cases)
  command = [BUILD / "bin" / program, f"--gtest_filter={names}", "--gtest_fail_fast"]
  quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
  with tempfile.TemporaryDirectory() as folder:
    os.chmod(folder, 0o755)  # some tests become another user
    process = subprocess.Popen(
      command, env=environment(TMPDIR=folder, **variables), start_new_session=True, **quiet
    )
    try:
      return process.wait(seconds) == 0
    except subprocess.TimeoutExpired:
      os.killpg(process.pid, 9)
      process.wait()
      return False


def list_cases(program):
  listing = run(
    [BUILD / "bin" / program, "--gtest_list_tests"],
    env=environment(),
    capture_output=True,
    text=True,
  ).stdout
  suite, cases = "", []
  for line in listing.splitlines():
    name = line.split("#")[0].strip()
    if not line.startswith(" "):
      suite = name if name.endswith(".") else ""
    elif suite and "DISABLED_" not in suite + name:
      cases.append(Case(program, suite + name))
  return cases


def is_noticed(number, cases):
  """Whether a case fails without the check. The cases of a program run together, in groups that
  take about 1, 2, 4, ... seconds."""
  for program in PROGRAMS:
    left = sorted((c for c in cases if c.program == program), key=lambda case: case.seconds)
    seconds = 1.0
    while left:
      group, total = [], 0.0
      while left and (not group or total < seconds and len(group) < 500):
        group.append(left.pop(0))
        total += group[-1].seconds
      if not passes(program, group, 10 + 10 * total, HUSK_MUTANT=str(number)):
        return True
      seconds *= 2
  return False


def main():
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes at a time")
  parser.add_argument("--only", default="", help="mutants whose FILE:LINE: CONDITION has this text")
  parser.add_argument("--list", action="store_true", help="print the mutants and stop")
  options = parser.parse_args()
  COPY.mkdir(parents=True, exist_ok=True)
  copy_tree()
  mutants = rewrite_sources()
  chosen = [m for m in mutants if options.only in str(m)]
  if options.list:
    print(*chosen, sep="\n")
    return 0
  begin = time.monotonic()
  build()
  print(f"{len(chosen)} mutants; built in {time.monotonic() - begin:.0f} s", flush=True)
  begin = time.monotonic()
  with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
    cases = [case for program in PROGRAMS for case in list_cases(program)]
    passed = dict(zip(cases, pool.map(Case.trace, cases), strict=True))
    for case in cases:
      if not passed[case]:
        print(f"left out, since it fails without a mutant: {case.name}", flush=True)
    cases = [case for case in cases if passed[case]]
    reached_by = collections.defaultdict(list)
    for case in cases:
      for number in case.reached:
        reached_by[number].append(case)
    print(f"{len(cases)} cases traced in {time.monotonic() - begin:.0f} s", flush=True)
    begin = time.monotonic()
    noticed = pool.map(lambda m: is_noticed(m.number, reached_by[m.number]), chosen)
    survivors, allowed = 0, 0
    for mutant, good in zip(chosen, noticed, strict=True):
      reason = ALLOWED.get(f"{mutant.file.removeprefix(SOURCES + '/')}: {mutant.condition()}")
      if not good and reason:
        allowed += 1
        print(f"allowed, {reason}: {mutant}", flush=True)
      elif not good:
        survivors += 1
        n = len(reached_by[mutant.number])
        print(f"not noticed by {n} cases that reach it: {mutant}", flush=True)
  print(f"mutants tested in {time.monotonic() - begin:.0f} s")
  noticed_count = len(chosen) - survivors - allowed
  print(
    f"{len(chosen)} mutants: {noticed_count} noticed, {allowed} allowed, {survivors} unexplained"
  )
  return survivors > 0


if __name__ == "__main__":
  sys.exit(main())
