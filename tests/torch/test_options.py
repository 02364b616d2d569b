"""The options of an export, and the interfaces that are made from them."""

import argparse
import inspect
import pathlib

import husk
import pytest
from husk import __main__ as command
from husk import options

PAGE = pathlib.Path(__file__).resolve().parents[2] / "compiler" / "CLI.md"


def named(*words):
  parser = command.parser()
  return options.from_arguments(parser, parser.parse_args(["model.py:f", *words]))


def test_the_page_has_the_table():
  assert options.table() in PAGE.read_text(), "put what `python -m husk.options` prints there"


@pytest.mark.parametrize("function", (husk.export, husk.write))
def test_the_signature_names_every_option(function):
  parameters = inspect.signature(function).parameters
  assert {name: parameters[name].default for name in options.ROWS} == options.DEFAULTS
  assert all(one.kind is not one.VAR_KEYWORD for one in parameters.values())


def test_the_text_of_export_has_every_option():
  text = " ".join(husk.export.__doc__.split())
  for name, row in options.ROWS.items():
    assert f"{name}: {row.text}" in text


def test_a_command_line_without_options_has_the_defaults():
  assert named() == husk.Options()


def test_a_command_line_names_every_option():
  words = {
    "targets": (["--target", "host:avx2", "--target", "cuda:h200"], ("host:avx2", "cuda:h200")),
    "metadata": (["--metadata", "a=1", "--metadata", "b=c=d"], {"a": "1", "b": "c=d"}),
    "libraries": (["--libraries"], True),
    "linkable": (["--linkable"], True),
    "pack": (["--pack"], True),
    "records": (["--records", "x.json"], ("x.json",)),
    "strict": (["--no-strict"], False),
    "prefer_deferred_runtime_asserts_over_guards": (["--deferred-asserts"], True),
    "quantize": (
      ["--quantize", "lm_head=int8", "--quantize", "int4"],
      {"lm_head": "int8", "*": "int4"},
    ),
    "ops": (["--op", "aten::topk", "--op", "aten::s*"], ("aten::topk", "aten::s*")),
  }
  for name, row in options.ROWS.items():
    if row.choices:
      words[name] = (["--" + name.replace("_", "-"), row.choices[-1]], row.choices[-1])
  assert words.keys() == options.ROWS.keys()
  for name, (line, value) in words.items():
    assert named(*line) == husk.Options(**{name: value})


def test_a_pair_without_a_value_is_refused(capsys):
  with pytest.raises(SystemExit):
    named("--metadata", "author")
  assert "--metadata author: give KEY=VALUE" in capsys.readouterr().err


@pytest.mark.parametrize("name", [name for name, row in options.ROWS.items() if row.choices])
def test_an_unknown_value_is_refused(name):
  first = options.ROWS[name].choices[0]
  with pytest.raises(ValueError, match=f"{name}='mine': give one of '{first}', "):
    husk.Options(**{name: "mine"})


@pytest.mark.parametrize("name", ("libraries", "linkable", "strict"))
def test_a_switch_is_true_or_false(name):
  with pytest.raises(ValueError, match=f"{name}='no': give True or False"):
    husk.Options(**{name: "no"})


def test_an_unknown_option_is_refused():
  with pytest.raises(TypeError, match="has no option 'target', targets may be meant: it has"):
    husk.export(None, (), "/nowhere", target="host")
  with pytest.raises(TypeError, match="has no option 'speed': it has targets, "):
    husk.write(None, (), "/nowhere", speed=2)


def test_one_text_is_one_target():
  assert husk.Options(targets="host").targets == ("host",)
  assert husk.Options(records=PAGE).records == (PAGE,)
  assert husk.Options(ops=["a::b"]).ops == ("a::b",)


def test_named_options_take_the_place_of_those_in_options():
  base = husk.Options(gemm="cublaslt", asserts="off")
  assert options.merged(base, {"asserts": "trap"}) == husk.Options(gemm="cublaslt", asserts="trap")


def test_libraries_decides_what_no_option_decides():
  chosen = husk.Options(libraries=True, conv="triton")
  assert [chosen.library(name) for name in ("gemm", "conv", "fft", "linalg")] == [
    "cublaslt",
    "triton",
    "cufft",
    "cusolver",
  ]
  assert husk.Options().library("linalg") == "host"


def test_options_stand_beside_other_arguments():
  parser = argparse.ArgumentParser()
  options.add_arguments(parser)
  assert options.from_arguments(parser, parser.parse_args(["--gemm=cublaslt"])).gemm == "cublaslt"
