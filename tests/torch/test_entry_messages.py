"""Failures that are planted behind torch.compile, save_compiled, husk.quantized.load,
husk.parallel and the command, and what a user reads. helpers/planted.py says what that must be."""

import contextlib
import json
import sys

import checkpoint_writer
import husk
import planted
import pytest
import torch
from husk import __main__ as command
from husk import quantized
from husk.hir import huskc
from husk.host import image
from husk.host import kernels as host_kernels
from husk.jit.backend import backend

X = torch.ones(3, 4)
HOST = f"host:{image.isas_of_this_machine()[0]}"


class Waves(torch.nn.Module):
  def forward(self, x):
    y = x + 1
    return torch.sin(y)


# The operator of `Waves` that fails, and its place.
WAVES = r"aten\.sin.*near test_entry_messages\.py:\d+ return torch\.sin\(y\)"

row = planted.Table()

# torch.compile


def compiled(function=None, args=(X,), **options):
  torch._dynamo.reset()
  made = torch.compile(function or Waves(), backend=backend, **options)
  with torch.no_grad():
    made(*args)
  return made


def lowering_that_raises(p, error, name="sin"):
  from torch._inductor import lowering

  def fail(*args, **kwargs):
    raise error

  p.without_caches()
  p.monkeypatch.setitem(lowering.lowerings, getattr(torch.ops.aten, name).default, fail)


@row("has no option 'optimise': it has mode, libraries")
def an_option_of_torch_compile(p):
  compiled(options={"optimise": True})


@row("mode 'fast'", "give one of 'auto'")
def a_mode_of_torch_compile(p):
  compiled(options={"mode": "fast"})


@row("libraries='no'", "give True or False")
def libraries_of_torch_compile(p):
  compiled(options={"libraries": "no"})


@row("huskc was not found", "pip install", "HUSKC")
def torch_compile_without_huskc(p):
  p.without_caches()
  p.replace(huskc.tools, "find", lambda name: None)
  compiled()


@row(WAVES, "Inductor cannot compile this operator: NotImplementedError: View", "report it")
def a_lowering_of_torch_compile(p):
  lowering_that_raises(p, NotImplementedError("View"))
  compiled()


@row(r"aten\.(cos|sin|mul)", "Inductor cannot compile this operator: KeyError", "report it")
def a_lowering_of_a_backward(p):
  lowering_that_raises(p, KeyError("u0"), "cos")
  torch._dynamo.reset()
  torch.compile(Waves(), backend=backend)(X.clone().requires_grad_()).sum().backward()


@row(WAVES, r"g\+\+ cannot compile the kernel", "error: 'nonsense' was not declared", "CXX")
def a_compiler_in_torch_compile(p):
  p.without_caches()
  output = "kernels.cpp:9:17: error: 'nonsense' was not declared\n  12 | x\n" * 30
  p.raising(image, "build", image.CompilerFailed("g++", output))
  compiled()


@row("huskc refuses", "9223372036854775808 does not fit 64 bits", "report")
def a_step_in_torch_compile(p):
  p.without_caches()
  program = p.folder / "huskc"
  program.write_text(
    '#!/bin/sh\necho "$1:9:9: 9223372036854775808 does not fit 64 bits" >&2; exit 1\n'
  )
  program.chmod(0o755)
  p.replace(huskc, "require", lambda: str(program))
  compiled()


@row(WAVES, "ValueError: a line", "report it")
def a_line_of_torch_compile(p):
  p.without_caches()
  p.raising(host_kernels.HostKernels, "call_kernel", ValueError("a line"))
  compiled()


@row("uses meta", "compiles a graph for the CPU")
def a_device_of_torch_compile(p):
  compiled(lambda x: x + 1, (X.to("meta"),))


# save_compiled


@row("compiled nothing of Waves", "call it first")
def what_was_not_called(p):
  husk.save_compiled(torch.compile(Waves(), backend=backend), p.folder / "x.husk")


@row("Waves is no result of torch.compile", "give what torch.compile")
def what_was_not_compiled(p):
  husk.save_compiled(Waves(), p.folder / "x.husk")


@row("is a folder", "give the name of a file")
def a_folder_for_a_graph(p):
  husk.save_compiled(compiled(), p.folder)


@row(r"aten::_pdist_backward.* through PyTorch", "outside of the compiled function", "ops=")
def an_operator_of_torch_in_a_file(p):
  made = compiled(lambda x: torch.ops.aten._pdist_backward(x[0], x, 2.0, x[0]))
  husk.save_compiled(made, p.folder / "x.husk")


# husk.quantized.load


class Layers(torch.nn.Module):
  def __init__(self):
    super().__init__()
    self.up = torch.nn.Linear(checkpoint_writer.K, checkpoint_writer.N, bias=False)


def checkpoint(p, change=None, shards=0):
  fields, _, config = checkpoint_writer.fields_of("gptq")
  path = p.folder / "checkpoint"
  tensors = {f"up.{name}": one for name, one in fields.items()}
  checkpoint_writer.folder(path, tensors, config, shards)
  if change:
    change(path)
  quantized.load(path, Layers())


@row("nowhere is not there", "give a GGUF file")
def a_checkpoint_that_is_not_there(p):
  quantized.load(p.folder / "nowhere", Layers())


@row("has neither .*index.json nor a file")
def a_checkpoint_without_files(p):
  quantized.load(p.folder, Layers())


def cut(path):
  file = path / "model.safetensors"
  file.write_bytes(file.read_bytes()[:-8])


@row("model.safetensors does not open as safetensors", "download|again")
def a_checkpoint_that_is_cut(p):
  checkpoint(p, cut)


@row("is no GGUF file", "cut|begins")
def what_is_no_gguf_file(p):
  (p.folder / "x.gguf").write_bytes(b"GGML" + bytes(64))
  quantized.load(p.folder / "x.gguf", Layers())


@row("x.gguf", "cut short", "download|again")
def a_gguf_file_that_is_cut(p):
  (p.folder / "x.gguf").write_bytes(b"GGUF\3\0\0\0")
  quantized.load(p.folder / "x.gguf", Layers())


@row("lacks .*00002-of-00003.safetensors", "which model.safetensors.index.json names")
def a_part_that_is_missing(p):
  checkpoint(p, lambda path: (path / "model-00002-of-00003.safetensors").unlink(), 3)


@row("config.json is no JSON")
def a_configuration_that_is_cut(p):
  checkpoint(p, lambda path: (path / "config.json").write_text("{"))


@row("quant_method 'aqlm' is not known, only 'gptq'")
def a_method_of_quantization(p):
  config = json.dumps({"quantization_config": {"quant_method": "aqlm"}})
  checkpoint(p, lambda path: (path / "config.json").write_text(config))


@row("no module of the model takes", "names= maps names of the checkpoint")
def a_checkpoint_of_another_model(p):
  fields, _, config = checkpoint_writer.fields_of("gptq")
  tensors = {f"down.{name}": one for name, one in fields.items()}
  quantized.load(checkpoint_writer.folder(p.folder / "c", tensors, config), Layers())


@row("needs transformers", "install it, or give the model")
def a_checkpoint_without_transformers(p):
  p.monkeypatch.setitem(sys.modules, "transformers", None)
  fields, _, config = checkpoint_writer.fields_of("gptq")
  quantized.load(checkpoint_writer.folder(p.folder / "c", fields, config))


# husk.parallel


def on_ranks(p, build, ranks=2, path="x.husk", **options):
  options = {"targets": (HOST,), **options}
  husk.parallel.export(build, (X,), p.folder / path, ranks=ranks, **options)


@row("ranks=1", "at least 2")
def one_rank(p):
  on_ranks(p, lambda mesh: Waves(), 1)


@row("is no folder")
def a_path_of_ranks(p):
  (p.folder / "file").write_text("")
  on_ranks(p, lambda mesh: Waves(), path="file/x.husk")


@row(r"build\(mesh\) has returned None for rank 0: return the model")
def a_build_that_returns_nothing(p):
  on_ranks(p, lambda mesh: None)


@row("ranks=2 has 1 dimensions, give a name for each")
def names_of_a_mesh(p):
  on_ranks(p, lambda mesh: Waves(), names=("a", "b"))


@row("gate_proj: 32 is no multiple of 3, the number of ranks")
def a_layer_that_does_not_divide(p):
  model = torch.nn.Sequential()
  model.add_module("gate_proj", torch.nn.Linear(4, 32))
  on_ranks(p, lambda mesh: husk.parallel.shard(model, mesh), 3)


@row(WAVES, "Inductor cannot compile this operator", "report it")
def a_lowering_of_a_rank(p):
  lowering_that_raises(p, NotImplementedError("View"))
  on_ranks(p, lambda mesh: Waves())


@row("not initialized")
def a_group_that_is_there(p):
  import torch.distributed as dist
  from torch.testing._internal.distributed import fake_pg

  dist.init_process_group("fake", store=fake_pg.FakeStore(), rank=0, world_size=2)
  try:
    on_ranks(p, lambda mesh: Waves())
  finally:
    dist.destroy_process_group()


# The command. What it prints is what a user reads.


def run(p, *words):
  """Runs the command, and raises what it prints."""
  import io

  printed = io.StringIO()
  with contextlib.redirect_stderr(printed), contextlib.redirect_stdout(printed):
    try:
      status = command.main([str(word) for word in words])
    except SystemExit as ended:
      status = ended.code
  assert status
  text = printed.getvalue()
  raise ValueError(text[text.find("error: ") :] if text.startswith("usage:") else text.strip())


MODELS = """
import torch
class Waves(torch.nn.Module):
  def forward(self, x):
    if x.sum() > 0:
      return x
    return torch.sin(x)
def waves():
  return Waves(), (torch.ones(3, 4),)
def fails():
  return Waves(1)
def nothing():
  return None
"""


def models(p):
  (p.folder / "models.py").write_text(MODELS)
  return p.folder / "models.py"


@row(r"'nowhere.py:waves'", r"give FILE.py:FUNCTION")
def a_file_of_the_command(p):
  run(p, "nowhere.py:waves", "-o", p.folder / "x.husk")


@row("models.py has no function waver, it has waves, fails, nothing")
def a_function_of_the_command(p):
  run(p, f"{models(p)}:waver", "-o", p.folder / "x.husk")


@row("nothing", "returned NoneType, give \\(model, args\\)")
def a_function_that_returns_nothing(p):
  run(p, f"{models(p)}:nothing", "-o", p.folder / "x.husk")


@row("models.py:11, in fails: return Waves", "takes 1 positional argument", "--traceback")
def a_function_that_fails(p):
  run(p, f"{models(p)}:fails", "-o", p.folder / "x.husk")


@row("models.py:5, in forward: if x.sum", "data-dependent", "--traceback")
def a_model_of_the_command(p):
  run(p, f"{models(p)}:waves", "-o", p.folder / "x.husk")


@row("nowhere.pt2", "is not there|No such file")
def a_program_that_is_not_there(p):
  run(p, p.folder / "nowhere.pt2", "-o", p.folder / "x.husk")


@row("broken.pt2", "torch.export.save|not a")
def a_program_that_is_broken(p):
  (p.folder / "broken.pt2").write_bytes(b"nothing")
  run(p, p.folder / "broken.pt2", "-o", p.folder / "x.husk")


@row("give -o FILE")
def a_command_without_a_file(p):
  run(p, f"{models(p)}:waves")


@row("husk-run was not found", "pip install")
def a_tool_that_is_not_there(p):
  p.replace(command.tools, "find", lambda name: None)
  run(p, "run", "x.husk")


@row("no target 'vulkan'|vulkan", "give")
def a_target_of_the_command(p):
  run(p, f"{models(p)}:waves", "-o", p.folder / "x.husk", "--target", "vulkan")


@row("GPU")
def tuning_of_the_command(p):
  p.replace(torch.cuda, "is_available", lambda: False)
  run(p, "tune", f"{models(p)}:waves")


# husk llm


def llm(p, *words, error=None):
  """`husk llm`, whose export ends with an error."""
  from husk.language import command as language

  if error is not None:
    p.raising(language, "export", error)
  run(p, "llm", *words, "-o", p.folder / "x.husk")


@row("nowhere is not there|needs transformers", "give|pip install")
def a_language_model_that_is_not_there(p):
  llm(p, p.folder / "nowhere")


@row("UserError|data-dependent", "traceback|HUSK_TRACEBACK")
def a_language_model_that_torch_refuses(p):
  error = torch._dynamo.exc.UserError(
    torch._dynamo.exc.UserErrorType.DYNAMIC_CONTROL_FLOW, "data-dependent"
  )
  llm(p, p.folder, error=error)


@row("IndexError: list index out of range", "traceback|HUSK_TRACEBACK")
def a_language_model_that_fails(p):
  llm(p, p.folder, error=IndexError("list index out of range"))


@pytest.mark.parametrize(("plant", "words"), row.rows)
def test_what_a_user_reads(plant, words, tmp_path, monkeypatch, capfd):
  planted.check(plant, words, tmp_path, monkeypatch, capfd)
