"""Compilation for CUDA targets without a GPU."""

import json

import pytest
import torch
from husk.cuda import fake_cuda
from husk.cuda.kernels import CudaKernels
from husk.inductor.capture import capture

Dim = torch.export.Dim


class Mlp(torch.nn.Module):
  def __init__(self):
    super().__init__()
    self.one = torch.nn.Linear(64, 256)
    self.two = torch.nn.Linear(256, 10)

  def forward(self, x):
    return torch.softmax(self.two(torch.nn.functional.gelu(self.one(x))), -1)


class Tied(torch.nn.Module):
  def __init__(self):
    super().__init__()
    self.words = torch.nn.Embedding(100, 32)
    self.head = torch.nn.Linear(32, 100, bias=False)
    self.head.weight = self.words.weight

  def forward(self, x):
    return self.head(self.words(x))


class Convolution(torch.nn.Module):
  def __init__(self):
    super().__init__()
    self.one = torch.nn.Conv2d(3, 16, 3, padding=1)
    self.norm = torch.nn.BatchNorm2d(16)

  def forward(self, x):
    return torch.relu(self.norm(self.one(x)))


class Attention(torch.nn.Module):
  def forward(self, q, k, v):
    return torch.softmax(q @ k.transpose(-1, -2), -1) @ v


DYNAMIC = ({0: Dim("batch", min=1, max=1024)},)


def exported(model, *args, shapes=None, dtype=torch.float32):
  torch.manual_seed(0)
  return torch.export.export(model.to(dtype).eval(), args, dynamic_shapes=shapes)


def compiled(program, key, **options):
  """The lines of the wrapper, the constants of the graph, the kernels and the launches."""
  target = fake_cuda.Target.load(key)
  with fake_cuda.cuda(target):
    kernels = CudaKernels(target, **options)

    def take(wrapper, guards):
      from torch._inductor.virtualized import V

      launches = []
      for line in wrapper.lines:
        match type(line).__name__:
          case "KernelDefinitionLine":
            kernels.define_kernel(line.kernel_name, line.kernel_body, line.metadata)
          case "KernelCallLine":
            launches.append(
              kernels.call_kernel(
                line.kernel_name, line.call_args, V.graph.sizevars.shape_env.var_to_range
              )
            )
      return list(wrapper.lines), dict(V.graph.constants), launches

    lines, constants, launches = capture(fake_cuda.moved(program), "cuda", kernels.options(), take)
    kernels.finish()
  return lines, constants, kernels, launches


def kinds(lines):
  return {type(line).__name__ for line in lines}


CALLED = {"ExternKernelOutLine", "ExternKernelAllocLine", "str"}


# Sizes that vary change no choice that depends on the GPU.
@pytest.mark.parametrize(
  "key, shapes",
  [
    ("h200", None),
    ("h200", DYNAMIC),
    ("a100", DYNAMIC),
    ("l4", None),
    ("orin", None),
    ("b200", DYNAMIC),
  ],
)
def test_a_perceptron_is_triton_kernels_alone(key, shapes):
  lines, _, kernels, launches = compiled(exported(Mlp(), torch.randn(8, 64), shapes=shapes), key)
  assert not kinds(lines) & CALLED
  assert [launch.kernel for launch in launches] == [name for name, _ in kernels.kernels()]
  assert all(kernel.cubin.startswith(b"\x7fELF") for _, kernel in kernels.kernels())
  assert all(
    f".target {fake_cuda.Target.load(key).arch}" in kernel.ptx for _, kernel in kernels.kernels()
  )
  assert all(kernel.pdl_wait_first == (key in ("h200", "b200")) for _, kernel in kernels.kernels())


def test_batched_products_and_convolutions_too():
  shape = (4, 8, 32, 16)
  lines, *_ = compiled(exported(Attention(), *(torch.randn(shape) for _ in range(3))), "h200")
  assert not kinds(lines) & CALLED
  lines, *_ = compiled(exported(Convolution(), torch.randn(4, 3, 16, 16), shapes=DYNAMIC), "orin")
  assert not kinds(lines) & CALLED


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(dtype):
  lines, *_ = compiled(
    exported(Mlp(), torch.randn(8, 64, dtype=dtype), dtype=dtype, shapes=DYNAMIC), "h200"
  )
  assert not kinds(lines) & CALLED


def bytes_of(kernels):
  return "\n".join(kernels.rows("gpu")), kernels.files()


def test_compilation_is_deterministic():
  one, other = (
    bytes_of(compiled(exported(Mlp(), torch.randn(8, 64), shapes=DYNAMIC), "h200")[2])
    for _ in range(2)
  )
  assert one == other


def test_output_is_independent_of_earlier_compilations():
  alone = bytes_of(compiled(exported(Mlp(), torch.randn(8, 64)), "h200")[2])
  # Inductor would compile a program for each instruction set, to see whether it runs.
  options = {"cpp.vec_isa_ok": True}
  capture(exported(Mlp(), torch.randn(8, 64)), "cpu", options, lambda wrapper, guards: None)
  compiled(exported(Mlp(), torch.randn(8, 64)), "orin")
  assert bytes_of(compiled(exported(Mlp(), torch.randn(8, 64)), "h200")[2]) == alone


def test_moving_a_program_leaves_the_original_unchanged():
  program = exported(Mlp(), torch.randn(8, 64))
  before = {name: value.clone() for name, value in program.state_dict.items()}
  text = str(program.graph)
  compiled(program, "h200")
  assert str(program.graph) == text
  assert all(
    value.device.type == "cpu" and torch.equal(value, before[name])
    for name, value in program.state_dict.items()
  )
  assert all(
    node.meta["val"].device.type == "cpu"
    for node in program.graph.nodes
    if isinstance(node.meta.get("val"), torch.Tensor)
  )


def test_tied_weights_are_one_constant():
  _, constants, _, _ = compiled(exported(Tied(), torch.zeros(4, dtype=torch.int64)), "h200")
  assert len(constants) == 1


def stand_ins(target):
  replacements = fake_cuda._stand_ins(target, fake_cuda._refuse_to_run)
  return [(place, name, vars(place).get(name)) for place, name, _ in replacements]


def test_all_patches_are_undone():
  import torch._inductor.compile_fx
  from torch._dynamo import device_interface
  from torch._inductor import config
  from triton.runtime import driver

  target = fake_cuda.Target.load("orin")
  before = (
    stand_ins(target),
    driver._active,
    config.get_config_copy(),
    dict(device_interface.caching_worker_device_properties),
  )
  with fake_cuda.cuda(target):
    assert fake_cuda.current() is target
    assert torch.cuda.get_device_capability() == (8, 7)
    assert not torch.cuda.is_available()
    inside = stand_ins(target)
  assert all(old[2] is not new[2] for old, new in zip(before[0], inside))
  assert before == (
    stand_ins(target),
    driver._active,
    config.get_config_copy(),
    dict(device_interface.caching_worker_device_properties),
  )
  assert fake_cuda.current() is None


def test_patches_are_undone_after_a_failure():
  capability = torch.cuda.get_device_capability
  with pytest.raises(KeyError), fake_cuda.cuda(fake_cuda.Target.load("h200")):
    raise KeyError
  assert torch.cuda.get_device_capability is capability and fake_cuda.current() is None


def test_one_at_a_time():
  with fake_cuda.cuda(fake_cuda.Target.load("h200")):
    with pytest.raises(RuntimeError, match="already compiling for NVIDIA H200"):
      with fake_cuda.cuda(fake_cuda.Target.load("orin")):
        pass


# Targets


def test_descriptions_in_the_package():
  assert fake_cuda.names() == ["a100", "b200", "h100", "h200", "l4", "orin", "rtx4090", "thor"]
  for key in fake_cuda.names():
    target = fake_cuda.Target.load(key)
    assert target.arch == f"sm_{target.capability}" + ("a" if target.major >= 9 else "")


def test_a_target_of_ones_own(tmp_path):
  rows = json.loads((fake_cuda.TARGETS / "h200.json").read_text()) | {"multi_processor_count": 7}
  path = tmp_path / "seventh.json"
  path.write_text(json.dumps(rows))
  assert (
    fake_cuda.Target.load(path).multi_processor_count == 7
    and fake_cuda.Target.load(path).key == "seventh"
  )


def test_targets_that_are_wrong(tmp_path):
  with pytest.raises(
    ValueError, match="no CUDA target 'h300': known are a100, .* or give the path"
  ):
    fake_cuda.Target.load("h300")
  rows = json.loads((fake_cuda.TARGETS / "h200.json").read_text())
  path = tmp_path / "one.json"
  path.write_text(json.dumps(rows | {"colour": "green"}))
  with pytest.raises(ValueError, match="one.json: has an unknown field 'colour'"):
    fake_cuda.Target.load(path)
  del rows["warp_size"]
  path.write_text(json.dumps(rows))
  with pytest.raises(ValueError, match="one.json: lacks field 'warp_size'"):
    fake_cuda.Target.load(path)


def test_too_old_assembler_is_an_error(tmp_path):
  rows = json.loads((fake_cuda.TARGETS / "b200.json").read_text()) | {
    "arch": "sm_199a",
    "name": "Later",
  }
  path = tmp_path / "later.json"
  path.write_text(json.dumps(rows))
  with pytest.raises(
    ValueError, match="Later: the assembler .* not know sm_199a; set TRITON_PTXAS_BLACKWELL_PATH"
  ):
    with fake_cuda.cuda(fake_cuda.Target.load(path)):
      pass
