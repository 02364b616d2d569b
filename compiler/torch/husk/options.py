"""The options of an export. Each is one field with one text: `husk.export` takes its arguments from
here, `python -m husk` its command line and its help, and the table in compiler/CLI.md is
`python -m husk.options`."""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import inspect
import os
import textwrap
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

Path = str | os.PathLike[str]
Written = TypeVar("Written", bound=Callable[..., Any])


@dataclasses.dataclass(frozen=True)
class Row:
  """What the interfaces say about an option. `choices` are its values if these are known, `flag` is
  its word on the command line if that is not its name, `metavar` stands for its value there.
  `is_open` marks a switch with a third value, None, by which the export decides. A value that is
  given without a key has the key `whole`, if there is one."""

  text: str
  choices: tuple[str, ...] = ()
  flag: str = ""
  metavar: str | None = None
  is_open: bool = False
  whole: str = ""


def _option(default: Any, text: str, **row: Any) -> Any:
  """A field of Options."""
  metadata = {"row": Row(text, **row)}
  if isinstance(default, dict):
    return dataclasses.field(default_factory=dict, metadata=metadata)
  return dataclasses.field(default=default, metadata=metadata)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
  """The options of an export, as `husk.export` describes them."""

  targets: tuple[str, ...] = _option(
    ("host",),
    'what to compile for: "host" is every ISA of this machine\'s architecture, of which the loader '
    'takes the best that the CPU has; "host:avx2", "host:avx512" and "host:aarch64" are one ISA '
    '(compiled by the cross compiler if this machine has another architecture); "cuda:NAME" is a '
    "GPU with a description in cuda/targets, or the path of a description; "
    '"cuda:NAME:fused" has other kernels for products (see cuda/gemm_configs.py).',
    flag="target",
    metavar="TARGET",
  )
  metadata: Mapping[str, str] = _option(
    {},
    "texts of the author, by key.",
    metavar="KEY=VALUE",
  )
  attention: str = _option(
    "flash",
    '"flash" makes attention one step if that covers the call: a kernel on CUDA targets, an '
    'operator on hosts. "decompose" makes it products and a softmax. The `.hir` names the calls '
    'that "flash" does not cover, and for CUDA targets the logger "husk" does too.',
    choices=("flash", "decompose"),
  )
  gemm: str | None = _option(
    None,
    'on CUDA targets, "triton" compiles matrix products into the artifact, which is the default; '
    '"cublaslt" leaves them to cuBLASLt, which must then be installed where the artifact runs.',
    choices=("triton", "cublaslt"),
  )
  conv: str | None = _option(
    None,
    'on CUDA targets, "triton" compiles convolutions into the artifact, which is the default; '
    '"cudnn" leaves them to cuDNN 9, which must then be installed where the artifact runs.',
    choices=("triton", "cudnn"),
  )
  fft: str | None = _option(
    None,
    'on CUDA targets, "triton" computes Fourier transforms by products with constant matrices, '
    'which is the default; "cufft" leaves those of float32 and float64 to cuFFT, which must then '
    "be installed where the artifact runs.",
    choices=("triton", "cufft"),
  )
  linalg: str | None = _option(
    None,
    'on CUDA targets, "host" computes factorizations of matrices, eigenvalues, singular values and '
    'systems of equations on the CPU, which is the default; "cusolver" leaves those of real '
    "matrices to cuSOLVER, which must then be installed where the artifact runs.",
    choices=("host", "cusolver"),
  )
  libraries: bool = _option(
    False,
    "on CUDA targets, leaves to libraries whatever no other option decides: the defaults of "
    '`gemm`, `conv`, `fft` and `linalg` are "cublaslt", "cudnn", "cufft" and "cusolver" then.',
  )
  tune: str | None = _option(
    None,
    'on CUDA targets, how the configuration of a kernel is chosen. "none" takes the first one that '
    'Inductor has, "rules" follows rules about the target, "heuristic" takes what was measured '
    'before where the package has records of such kernels, else rules, and "max" measures on the '
    "GPU of this machine, which must be the target, and takes minutes. The default is HUSK_TUNE in "
    'the environment, else "heuristic". The metadata `husk.tuned.TARGET` of the artifact holds the '
    'choice, and the logger "husk" reports at level INFO how long each target took.',
    choices=("none", "rules", "heuristic", "max"),
  )
  records: tuple[Path, ...] = _option(
    (),
    "on CUDA targets, files with measured configurations that `python -m husk tune` wrote, for the "
    'mode "heuristic". They replace the records that come with the package.',
    metavar="FILE",
  )
  asserts: str = _option(
    "status",
    'on CUDA targets, the effect of an index out of range: "status" makes the run fail and leaves '
    'the session usable, "trap" ends the CUDA context of the process, "off" checks nothing. The '
    '`.hir` and the logger tell if "status" is not possible.',
    choices=("status", "trap", "off"),
  )
  ops: tuple[str, ...] = _option(
    (),
    'names of operators that the application registers, such as "my::op", or patterns such as '
    '"my::*". A model that calls another operator for which the target has no implementation is '
    "refused.",
    flag="op",
    metavar="NAME",
  )
  host_ops: str = _option(
    "allow",
    'on CUDA targets, "allow" runs operators that the target lacks and hosts have on the CPU, '
    'between copies that are steps of the program; the logger "husk" names them. "forbid" refuses '
    "a model that calls one.",
    choices=("allow", "forbid"),
  )
  weights: str = _option(
    "inside",
    'where the weights lie: "inside" the artifact, or "beside" it, in a safetensors file whose '
    "name is the hash of its content. `husk.load` and `husk-run` find that file in the folder of "
    "the artifact, or in one that is given.",
    choices=("inside", "beside"),
  )
  pack: bool = _option(
    False,
    "on hosts, the artifact also has copies of weights in the layouts that the operators of this "
    "machine's CPU read, so that an open on a CPU with the same instructions neither makes them "
    "nor keeps them in memory of its own, and processes share them. The file grows by about the "
    "size of these weights. Other CPUs make their copies at open, as without the option; "
    "`python -m husk pack` adds copies on a machine that has such a CPU.",
  )
  quantize: Mapping[str, Any] = _option(
    {},
    'the weights of linear layers and embeddings as codes: "int8" has 8 bits and a scale for each '
    'row, "int4" has 4 bits and a scale for each 32 elements, "fp8" has floats of 8 bits (e4m3) '
    "and a scale for each row; or a configuration of torchao, for linear layers. A dict has "
    'patterns of names, such as {"lm_head": "int8", "layers.*.mlp.*": "int4"}, of which the first '
    'one that matches counts, and "none" leaves a weight as it is. Weights that the model itself '
    "computes from codes need no option.",
    metavar="[PATTERN=]SCHEME",
    whole="*",
  )
  activations: str = _option(
    "exact",
    'on hosts, what layers multiply with weights that are ints of 8 or 4 bits: "exact" takes their '
    'inputs as they are, "int8" rounds these in each run to ints of 8 bits, with a scale for each '
    "32 elements, which is faster and less precise. Weights whose groups are no multiples of 32 "
    "elements, and other codes, stay exact.",
    choices=("exact", "int8"),
  )
  linkable: bool = _option(
    False,
    "host images also have the code that `huskc --emit=obj` links into programs, which makes them "
    "about twice as large.",
  )
  strict: bool | None = _option(
    None,
    "how torch.export traces a module: True reads the bytecode of the model by Dynamo, False runs "
    "the model. By default the model is run, and if torch.export then refuses it, its bytecode is "
    'read; the logger "husk" tells at level WARNING if that way was needed.',
    is_open=True,
  )
  prefer_deferred_runtime_asserts_over_guards: bool | None = _option(
    None,
    "whether a condition on sizes that torch.export cannot prove is checked in each run, where it "
    "is otherwise refused. By default this is tried last, and the logger "
    '"husk" tells at level WARNING if it was needed.',
    flag="deferred-asserts",
    is_open=True,
  )

  def __post_init__(self) -> None:
    for name in ROWS:
      object.__setattr__(self, name, _checked(name, getattr(self, name)))

  def library(self, name: str) -> str:
    """What computes "gemm", "conv", "fft" or "linalg": a library, or what is used without one."""
    own, library = ROWS[name].choices
    return getattr(self, name) or (library if self.libraries else own)


ROWS: dict[str, Row] = {field.name: field.metadata["row"] for field in dataclasses.fields(Options)}
DEFAULTS: dict[str, Any] = {
  field.name: {} if field.default is dataclasses.MISSING else field.default
  for field in dataclasses.fields(Options)
}


def check_choice(name: str, value: Any) -> str:
  """Returns `value`, which must be one of the choices of the option `name`."""
  choices = ROWS[name].choices
  if value not in choices:
    raise ValueError(f"{name}={value!r}: give one of {', '.join(map(repr, choices))}")
  return value


def _checked(name: str, value: Any) -> Any:
  """The value of an option as Options holds it."""
  default = DEFAULTS[name]
  if isinstance(default, tuple):
    return (value,) if isinstance(value, str | os.PathLike) else tuple(value)
  if isinstance(default, dict):
    whole = ROWS[name].whole
    if whole and value is not None and not isinstance(value, Mapping):
      return {whole: value}
    return dict(value or {})
  if ROWS[name].is_open and value is None:
    return None
  if isinstance(default, bool) or ROWS[name].is_open:
    if value not in (True, False):
      raise ValueError(f"{name}={value!r}: give True or False")
    return bool(value)
  return None if value is None and default is None else check_choice(name, value)


def merged(options: Options | None, changes: Mapping[str, Any]) -> Options:
  """`options`, or the defaults, with the options that a call names."""
  for name in changes:
    if name not in ROWS:
      near = difflib.get_close_matches(name, ROWS, 1)
      meant = f", {near[0]} may be meant" if near else ""
      raise TypeError(f"an export has no option {name!r}{meant}: it has {', '.join(ROWS)}")
  return dataclasses.replace(options or Options(), **changes)


def written_out(function: Written) -> Written:
  """Puts the options in place of `**changes` into the signature of a function, which help() and
  editors show, and in place of {options} into its text."""
  signature = inspect.signature(function)
  own = [one for one in signature.parameters.values() if one.kind is not one.VAR_KEYWORD]
  added = [
    inspect.Parameter(
      field.name,
      inspect.Parameter.KEYWORD_ONLY,
      default=DEFAULTS[field.name],
      annotation=field.type,
    )
    for field in dataclasses.fields(Options)
  ]
  setattr(function, "__signature__", signature.replace(parameters=own + added))  # noqa: B010
  texts = (
    textwrap.fill(
      f"{name}: {row.text}",
      width=100,
      initial_indent="  ",
      subsequent_indent="    ",
      break_on_hyphens=False,
    )
    for name, row in ROWS.items()
  )
  function.__doc__ = (function.__doc__ or "").replace("  {options}", "\n".join(texts))
  return function


# The command line


def _flag(name: str) -> str:
  return "--" + (ROWS[name].flag or name).replace("_", "-")


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Gives a command line the options."""
  for name, row in ROWS.items():
    default = DEFAULTS[name]
    keywords: dict[str, Any] = {"dest": name, "help": row.text}
    if ROWS[name].is_open:
      keywords["action"] = argparse.BooleanOptionalAction
    elif isinstance(default, bool):
      keywords["action"] = "store_true"
    elif isinstance(default, tuple | dict):
      keywords.update(action="append", metavar=row.metavar)
      keywords["help"] = row.text.removesuffix(".") + "; may be given several times."
    else:
      keywords.update(choices=row.choices, default=default)
    parser.add_argument(_flag(name), **keywords)


def from_arguments(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> Options:
  """The options of a command line that `parser` has read; ends the program if one is wrong."""
  values: dict[str, Any] = {}
  for name in ROWS:
    value = getattr(arguments, name)
    if value is None:
      continue
    if isinstance(DEFAULTS[name], dict):
      if whole := ROWS[name].whole:
        value = [pair if "=" in pair else f"{whole}={pair}" for pair in value]
      for pair in value:
        if "=" not in pair:
          parser.error(f"{_flag(name)} {pair}: give {ROWS[name].metavar}")
      value = dict(pair.split("=", 1) for pair in value)
    values[name] = value
  return Options(**values)


# The page


def table() -> str:
  """The options as a table of Markdown."""
  return "\n".join(["| option | `husk.export` | what it does |", "|---|---|---|", *_lines()])


def _lines() -> Iterator[str]:
  for name, row in ROWS.items():
    values = row.choices or ((row.metavar,) if row.metavar else ())
    words = [f"`{_flag(name)} {value}`" for value in values] or [f"`{_flag(name)}`"]
    if row.is_open:
      words.append(f"`--no-{_flag(name)[2:]}`")
    yield f"| {' or '.join(words)} | `{name}={DEFAULTS[name]!r}` | {row.text} |"


if __name__ == "__main__":
  print(table())
