"""The log of what compilers print during an export, and the line that shows how far it is."""

import io
import logging
import os
import pathlib
import re
import subprocess
import sys
import threading

import built_tools
import husk
import pytest
import torch
from husk import prints
from husk.inductor import capture
from husk.progress import Progress

sys.path.append(str(pathlib.Path(__file__).parents[1]))
from patience import eventually


def print_everywhere(text):
  """Prints as Python does, as C++ does, and as a program that is called does."""
  print(text, "stdout")
  print(text, "stderr", file=sys.stderr)
  os.write(1, f"{text} descriptor 1\n".encode())
  os.write(2, f"{text} descriptor 2\n".encode())
  subprocess.run(["sh", "-c", f"echo {text} child; echo {text} child >&2"], check=True)


def test_all_prints_go_to_the_log(tmp_path, capfd):
  with prints.logged(tmp_path) as log:
    print("before")
    with prints.kept():
      print_everywhere("inside")
    print("after", file=sys.stderr)
    assert log.path == tmp_path / prints.NAME
  shown = capfd.readouterr()
  assert (shown.out, shown.err) == ("before\n", "after\n")
  assert (tmp_path / prints.NAME).read_text().count("inside") == 6


def test_nothing_is_left_if_nothing_is_printed(tmp_path, monkeypatch):
  monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
  with prints.logged(None) as log, prints.kept():
    pass
  assert log.path is None and not list(tmp_path.iterdir())


def record_of(name, text):
  return logging.LogRecord(name, logging.WARNING, "", 1, text, (), None)


def test_warnings_of_loggers_of_torch_go_to_the_log(tmp_path, monkeypatch):
  shown = io.StringIO()
  monkeypatch.setattr(logging.getLogger("torch"), "handlers", [logging.StreamHandler(shown)])
  logger = logging.getLogger("torch.utils._sympy.interp")
  with prints.logged(tmp_path), capture.quiet():
    logger.warning("failed while executing %s", "pow")
    logger.error("an error")
    logging.getLogger("torch").handlers[0].handle(record_of("husk", "a remark"))
  logger.warning("later")
  assert shown.getvalue() == "an error\na remark\nlater\n"
  kept = (tmp_path / prints.NAME).read_text()
  assert kept == "torch.utils._sympy.interp: failed while executing pow\n"


class Misshapen(torch.nn.Module):
  def forward(self, x):
    return x.reshape(2, 7, 3)


@pytest.mark.parametrize("logger", ("torch", "torch.export"))
@pytest.mark.parametrize("strict", (None, True))
def test_errors_that_torch_logs_when_it_refuses_a_model_go_to_the_log(
  tmp_path, monkeypatch, logger, strict
):
  """The exception says them to the caller. Some packages of torch have handlers of their own."""
  shown = io.StringIO()
  handlers = [*logging.getLogger(logger).handlers, logging.StreamHandler(shown)]
  monkeypatch.setattr(logging.getLogger(logger), "handlers", handlers)
  monkeypatch.setattr(logging.getLogger("torch.export"), "propagate", True)
  with pytest.raises(RuntimeError, match="invalid for input of size 12"):
    husk.write(Misshapen(), (torch.ones(2, 6),), tmp_path, targets=("host:avx2",), strict=strict)
  assert not shown.getvalue()
  if strict:  # else that is a second attempt, of which nothing is kept
    assert "always_classified is unsupported" in (tmp_path / prints.NAME).read_text()


def test_without_an_export_prints_are_shown(capfd):
  with prints.kept():
    print("shown")
  assert capfd.readouterr().out == "shown\n"


def test_several_threads(tmp_path, capfd):
  both_inside, first_left = threading.Barrier(2), threading.Event()

  def leave_first(log):
    with log.receiving():
      both_inside.wait()
    first_left.set()

  with prints.logged(tmp_path) as log:
    thread = threading.Thread(target=leave_first, args=(log,))
    thread.start()
    with log.receiving():
      both_inside.wait()
      first_left.wait()
      print("still inside")
    thread.join()
  assert capfd.readouterr().out == ""
  assert (tmp_path / prints.NAME).read_text() == "still inside\n"


def test_prints_are_shown_again_after_a_failure(tmp_path, capfd):
  with prints.logged(tmp_path), pytest.raises(KeyError), prints.kept():
    raise KeyError
  print_everywhere("shown")
  shown = capfd.readouterr()
  assert shown.out.count("shown") == 3 and shown.err.count("shown") == 3


def test_a_closed_descriptor_is_no_failure(tmp_path):
  text = f"""
import os, pathlib
from husk import prints
os.close(1)
with prints.logged(pathlib.Path({str(tmp_path)!r})), prints.kept():
  os.write(2, b"inside")
os.write(2, b"outside")
"""
  environment = {**os.environ, "PYTHONPATH": str(built_tools.ROOT / "compiler" / "torch")}
  done = subprocess.run(
    [sys.executable, "-c", text], stderr=subprocess.PIPE, check=True, env=environment
  )
  assert done.stderr == b"outside" and (tmp_path / prints.NAME).read_text() == "inside"


def test_an_export_names_its_log(tmp_path, monkeypatch, capfd, caplog):
  from torch._inductor.runtime import triton_heuristics

  precompile = triton_heuristics.CachingAutotuner._precompile_config

  def printing(tuner, config):
    print_everywhere("of Triton")
    return precompile(tuner, config)

  monkeypatch.setattr(triton_heuristics.CachingAutotuner, "_precompile_config", printing)
  with caplog.at_level(logging.INFO, "husk"):
    husk.export(torch.nn.ReLU(), (torch.randn(7),), tmp_path / "relu.husk", targets=("cuda:h200",))
  named = re.search(r"what compilers printed is in (\S+)", caplog.text)
  path = pathlib.Path(named.group(1))
  assert path.read_text().count("of Triton") >= 6
  path.unlink()
  assert "of Triton" not in "".join(capfd.readouterr())


def test_the_line_of_a_stage_is_shown_beside_the_log(tmp_path, capfd):
  progress = Progress(shown=True)
  progress.total = 1
  with prints.logged(tmp_path) as log, progress.stage("cuda_h200", "forward"), prints.kept():
    progress.report("kernels measured: 3")
    eventually(lambda: "forward: kernels measured: 3 (" in capfd.readouterr().err)
  assert log.path is None
  with progress.stage("images"):  # another stage begins without the report
    eventually(lambda: "images (" in capfd.readouterr().err)


def test_the_line_of_a_stage_goes_to_a_stream_without_a_file(monkeypatch):
  stream = io.StringIO()
  monkeypatch.setattr(sys, "stderr", stream)
  progress = Progress(shown=True)
  with progress.stage("trace"):
    pass
  assert "trace" in stream.getvalue()
