"""The library of the backend: what it exports, and what it needs of a server."""

import subprocess

from conftest import library, tritonserver

ENTRY_POINTS = {
  "TRITONBACKEND_Initialize",
  "TRITONBACKEND_Finalize",
  "TRITONBACKEND_GetBackendAttribute",
  "TRITONBACKEND_ModelInitialize",
  "TRITONBACKEND_ModelFinalize",
  "TRITONBACKEND_ModelInstanceInitialize",
  "TRITONBACKEND_ModelInstanceFinalize",
  "TRITONBACKEND_ModelInstanceExecute",
}


def symbols(file, kind):
  command = ["nm", "-D", f"--{kind}-only", str(file)]
  lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
  return {line.split()[-1].split("@")[0] for line in lines}


def server_library():
  """The library of the server that its program loads. The wheel adds a hash to its name."""
  folder = tritonserver().parents[3] / "nvidia_pytriton.libs"
  (found,) = folder.glob("libtritonserver*.so*")
  return found


def test_only_entry_points_are_exported():
  assert symbols(library(), "defined") == ENTRY_POINTS


def test_the_server_has_all_functions_that_are_called():
  called = {name for name in symbols(library(), "undefined") if name.startswith("TRITON")}
  assert len(called) > 30
  assert called <= symbols(server_library(), "defined")


def test_no_library_but_the_c_library_is_needed():
  dynamic = subprocess.run(
    ["readelf", "-d", str(library())], check=True, capture_output=True, text=True
  ).stdout
  needed = {line.split("[")[1].rstrip("]") for line in dynamic.splitlines() if "NEEDED" in line}
  assert {name.split(".so")[0].split("-")[0] for name in needed} <= {"libc", "libm", "ld"}
