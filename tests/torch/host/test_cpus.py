"""The list of CPUs that code of hosts is compiled for."""

import written_lists
from husk import check
from husk.host import cpus, image


def test_the_written_list_is_that_of_the_rows():
  assert not written_lists.script("cpus.py").differing(), "run: python3 schema/cpus.py"


def test_sets_include_their_bases():
  lists = written_lists.script("cpus.py").written.rows(
    (written_lists.SCHEMA / "cpus.def").read_text()
  )
  assert [name for name, *_ in lists["CPU_OPTIONS"]] == list(cpus.SETS)
  for name, _, base, added in lists["CPU_SET"]:
    machine, features, options = cpus.SETS[name]
    assert set(features) <= set(cpus.FEATURES)
    below = cpus.SETS.get(base, (machine, (), ()))
    assert below[0] == machine and set(below[1]) < set(features)
    assert len(features) - len(below[1]) == len(added.split(" | "))
    assert options[: len(below[2])] == below[2]


def test_targets_are_those_of_files():
  """Files have these names, so that they never change."""
  assert list(cpus.TARGETS) == ["x86-64", "avx2", "avx512", "aarch64"]
  assert list(image.ISAS) == ["avx512", "avx2", "aarch64"]
  for arch in cpus.TARGETS:
    assert check.device(f"host:{arch}").arch == arch


def test_an_instruction_set_has_all_of_its_target():
  isa = image.ISAS["avx512"]
  assert isa.cpu >= {"avx2", "fma", "f16c", "avx512f", "avx512dq", "avx512vl", "avx512bw"}
  assert set(isa.flags.split()) >= {"-mavx512f", "-mavx512dq", "-mavx512vl", "-mavx512bw", "-mfma"}
  assert image.ISAS["aarch64"].flags == "-march=armv8-a"
