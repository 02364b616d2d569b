"""The choice of the configuration of a kernel. Measurements are simulated, so no GPU is needed."""

import logging
import re
import sys
import types

import built_tools
import husk
import pytest
import torch
import triton
from cuda_numerics import close, computed
from husk.cuda import fake_cuda, tuning

sys.path.append(str(built_tools.ROOT / "tests" / "gpu"))
import user_kernels

H200 = fake_cuda.Target.load("h200")


class Row(torch.nn.Module):
  """Products of one row as in decoding: with a bias, without a bias, batched."""

  def __init__(self):
    super().__init__()
    self.one = torch.nn.Linear(96, 64)
    self.two = torch.nn.Linear(64, 48, bias=False)
    self.more = torch.nn.Parameter(torch.randn(48, 20))
    self.keys = torch.nn.Parameter(torch.randn(4, 12, 20))

  def forward(self, x):
    y = self.two(torch.relu(self.one(x)))
    return torch.addmm(y[:, :20], y[:, :48], self.more, beta=0.5, alpha=2), y.view(
      4, 1, 12
    ) @ self.keys


def row():
  torch.manual_seed(0)
  return Row().eval(), (torch.randn(1, 96),)


def written(folder, tune, model=None, args=None, shapes=None, target="cuda:h200"):
  torch.manual_seed(0)
  if model is None:
    model, args = row()
  return husk.write(
    model, args, folder, dynamic_shapes=shapes, targets=(target,), tune=tune
  ).read_text()


def kernels(text):
  return re.findall(r"^kernel h200_triton_([a-z]+)_", text, re.M)


# The kind of tuning


def test_default_mode_without_a_gpu(monkeypatch):
  monkeypatch.delenv("HUSK_TUNE", raising=False)
  assert tuning.resolve_mode(None, H200) == "heuristic"
  assert [tuning.resolve_mode(mode, H200) for mode in ("none", "heuristic")] == [
    "none",
    "heuristic",
  ]
  with pytest.raises(
    ValueError,
    match="tune='max' measures kernels on the GPU that they are for, an NVIDIA H200: there is no "
    "GPU here that torch can use; export there, or give tune='heuristic'",
  ):
    tuning.resolve_mode("max", H200)
  known = "'none', 'rules', 'heuristic', 'max'"
  with pytest.raises(ValueError, match=f"tune='fast': give one of {known}"):
    tuning.resolve_mode("fast", H200)
  monkeypatch.setenv("HUSK_TUNE", "none")
  assert (
    tuning.resolve_mode(None, H200) == "none"
    and tuning.resolve_mode("heuristic", H200) == "heuristic"
  )


def here(monkeypatch, **other):
  """A GPU like the H200 but for the values in `other`."""
  monkeypatch.delenv("HUSK_TUNE", raising=False)
  monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
  monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
  monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA H200")
  properties = types.SimpleNamespace(**{**vars(H200.properties()), **other})
  monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)


def test_default_mode_on_the_target_gpu(monkeypatch):
  here(monkeypatch)
  assert tuning.resolve_mode(None, H200) == "heuristic"  # nobody measures who did not ask for it
  assert tuning.resolve_mode("max", H200) == "max"
  monkeypatch.setenv("HUSK_TUNE", "max")
  assert tuning.resolve_mode(None, H200) == "max"
  monkeypatch.delenv("HUSK_TUNE")
  assert tuning.resolve_mode(None, fake_cuda.Target.load("orin")) == "heuristic"


@pytest.mark.parametrize(
  "other", [{"total_memory": 80 << 30}, {"multi_processor_count": 78}, {"minor": 3}]
)
def test_default_mode_on_another_gpu(other, monkeypatch):
  here(monkeypatch, name="NVIDIA H100", **other)
  assert tuning.resolve_mode(None, H200) == "heuristic"
  with pytest.raises(
    ValueError, match="an NVIDIA H200: the GPU here is an NVIDIA H100 .* CUDA_VISIBLE_DEVICES"
  ):
    tuning.resolve_mode("max", H200)


# Without measurements


def test_one_row_is_sums(tmp_path):
  text = written(tmp_path, "heuristic")
  assert 'user "husk.tuned.cuda_h200" "heuristic"' in text
  assert kernels(text) and not set(kernels(text)) & {"tem", "mm"}


def test_one_row_is_a_product_without_tuning(tmp_path):
  text = written(tmp_path, "none")
  assert 'user "husk.tuned.cuda_h200" "none"' in text and "tem" in kernels(text)


def test_one_row_of_several_is_a_product(tmp_path):
  batch = {"input": {0: torch.export.Dim("batch", min=1, max=8)}}
  assert "tem" in kernels(
    written(tmp_path, "heuristic", torch.nn.Linear(96, 64), (torch.randn(4, 96),), batch)
  )


@pytest.mark.parametrize("gemm_set", ["templates", "fused"])
def test_products_of_one_row_equal_eager(gemm_set, tmp_path):
  model, args = row()
  runs = [{"x": torch.randn(1, 96)} for _ in range(2)]
  for inputs, result in zip(runs, computed(model, args, None, runs, tmp_path, gemm_set=gemm_set)):
    for one, other in zip(result.values(), model(**inputs)):
      close(one, other, 1e-4)


def test_decompositions_are_restored():
  from torch._inductor import decomposition

  before = decomposition.decompositions[torch.ops.aten.addmm.default]
  with fake_cuda.cuda(H200):
    assert decomposition.select_decomp_table()[torch.ops.aten.addmm.default] is not before
  assert decomposition.select_decomp_table()[torch.ops.aten.addmm.default] is before


def test_nothing_is_tuned_for_a_host(tmp_path):
  torch.manual_seed(0)
  text = husk.write(torch.nn.Linear(4, 4), (torch.randn(1, 4),), tmp_path, tune="max").read_text()
  assert "husk.tuned" not in text


def test_compile_time_is_logged(tmp_path, caplog):
  with caplog.at_level(logging.INFO, "husk"):
    written(tmp_path, "none")
  assert re.search(r"cuda_h200: compiled in \d+\.\d s \(tune=none\)", caplog.text)


# With measurements


@pytest.fixture
def gpu(monkeypatch, tmp_path):
  """Pretends that this machine has an H200. A launch takes less time if `faster(config)` is larger.
  Returns the list of launches. Inductor keeps what was measured in its cache folder, which other
  exports of the machine use too, so each test has one of its own."""
  monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
  monkeypatch.setattr(tuning, "why_not_here", lambda target: "")
  monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA H200")
  from torch._inductor import codecache, select_algorithm
  from torch._inductor.runtime import triton_helpers, triton_heuristics
  from triton.runtime import driver

  seen = types.SimpleNamespace(faster=lambda config: 0, launches=[], grids=[], templates=[])

  def loaded(kernel):
    kernel.module, kernel.function, kernel.n_regs, kernel.n_spills, kernel.n_max_threads = (
      None,
      1,
      32,
      0,
      1024,
    )
    kernel._run = lambda *args: seen.grids.append((kernel.name, args[:3]))

  def bench(tuner, launcher, *args):
    launcher(*args, stream=0)  # Inductor's launcher, which computes the grid
    seen.launches.append((tuner.inductor_meta.get("kernel_name"), launcher.config, args))
    return 1 / (1 + seen.faster(launcher.config))

  def benchmark(cls, choices, *args, **kwargs):
    seen.templates.append(choices)
    return {choice: 1.0 if choice is not choices[1] else 0.5 for choice in choices}

  monkeypatch.setattr(triton.compiler.CompiledKernel, "_init_handles", loaded)
  monkeypatch.setattr(triton_heuristics.CachingAutotuner, "bench", bench)
  monkeypatch.setattr(triton_heuristics.CachingAutotuner, "_make_launchers", lambda self: None)
  monkeypatch.setattr(triton_helpers, "set_driver_to_gpu", lambda: None)
  monkeypatch.setattr(codecache.CacheBase, "get_local_cache", lambda self: {})
  monkeypatch.setattr(codecache.CacheBase, "update_local_cache", lambda self, cache: None)
  monkeypatch.setattr(
    select_algorithm.AlgorithmSelectorCache,
    "make_precompile_fn",
    lambda *args, **kwargs: dict,
  )
  monkeypatch.setattr(
    select_algorithm.AlgorithmSelectorCache, "benchmark_in_current_process", classmethod(benchmark)
  )
  monkeypatch.setattr(
    tuning, "_tensor", lambda kind, size, device, tensor=tuning._tensor: tensor(kind, size, "cpu")
  )
  before = getattr(driver, "_active", None)
  driver.set_active(fake_cuda._Driver(H200))
  yield seen
  driver._active = before


class Points(torch.nn.Module):
  def forward(self, x, index):
    return torch.softmax(torch.sin(x)[index] + 1, -1), (x * 2).cos()


def points():
  return (
    Points(),
    (torch.randn(64, 3000), torch.arange(8)),
    {"x": {0: torch.export.Dim("rows", min=9, max=4096)}, "index": None},
  )


def test_the_fastest_wins(gpu, tmp_path):
  gpu.faster = lambda config: config.num_warps * (config.kwargs["XBLOCK"] <= 64)
  text = written(tmp_path, "max", *points())
  assert 'user "husk.tuned.cuda_h200" "max, 2 kernels measured on NVIDIA H200"' in text
  threads = {
    kind: int(block)
    for kind, block in re.findall(r"^kernel h200_triton_([a-z]+)_.* block (\d+) ", text, re.M)
  }
  measured = {}
  for name, config, _ in gpu.launches:
    measured.setdefault(name.split("_")[1], []).append(config)
  for kind, configs in measured.items():
    assert threads[kind] == 32 * max(configs, key=gpu.faster).num_warps
    assert len(configs) > 3  # the descent continues from Inductor's list
  assert set(measured) == {"poi", "red"}


def test_the_arguments_of_a_launch(gpu, tmp_path):
  written(tmp_path, "max", *points())
  arguments = next(args for name, _, args in gpu.launches if "poi" in name)
  floats = [value for value in arguments if isinstance(value, torch.Tensor)]
  assert [value.numel() for value in floats] == [64 * 3000] * 2  # the sizes of the example
  assert [value for value in arguments if not isinstance(value, torch.Tensor)] == [64 * 3000]
  assert (-(-64 * 3000 // 1024), 1, 1) in [grid for name, grid in gpu.grids if "poi" in name]
  for value in next(args for name, _, args in gpu.launches if "red" in name):
    if isinstance(value, torch.Tensor) and value.dtype is torch.uint8:
      assert value.numel() == 8 * 8 and not value.any()  # ints are valid indices


def test_templates_are_measured_by_inductor(gpu, tmp_path, capfd, caplog):
  with caplog.at_level(logging.INFO, "husk"):
    text = written(tmp_path, "max", torch.nn.Linear(256, 128), (torch.randn(512, 256),))
  (choices,) = gpu.templates
  # Inductor's table of times is in the log, which is named.
  assert "AUTOTUNE" not in "".join(capfd.readouterr())
  assert f"what compilers printed is in {tmp_path}/prints.log" in caplog.text
  assert "AUTOTUNE" in (tmp_path / "prints.log").read_text()
  assert len(choices) > 3 and kernels(text) == ["tem"]
  threads = re.search(r"^kernel .* block (\d+) ", text, re.M).group(1)
  assert int(threads) == 32 * int(choices[1].log_info["num_warps"])


def test_one_row_is_sums_that_are_measured(gpu, tmp_path):
  text = written(tmp_path, "max")
  assert not set(kernels(text)) & {"tem", "mm"} and gpu.launches and not gpu.templates


def test_attention_is_measured(gpu, tmp_path):
  class Attention(torch.nn.Module):
    def forward(self, q, k, v):
      return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

  shape = (2, 4, 256, 64)
  gpu.faster = lambda config: config.num_stages == 2
  text = written(tmp_path, "max", Attention(), tuple(torch.randn(shape).half() for _ in range(3)))
  assert "launch h200_attention" in text
  assert not re.findall(".*not measured.*", text)
  tried = [config for name, config, _ in gpu.launches if name.startswith("attention")]
  assert (
    len({config.kwargs["BLOCK_N"] for config in tried}) > 2
    and len({config.num_warps for config in tried}) > 1
  )
  grids = [grid for name, grid in gpu.grids if name.startswith("attention")]
  assert grids == [(-(-256 // config.kwargs["BLOCK_M"]) * 8, 1, 1) for config in tried]


def test_kernels_that_cannot_be_measured_are_logged(gpu, tmp_path, caplog):
  from torch._inductor.runtime import triton_heuristics

  def bench(tuner, launcher, *args):
    raise TypeError("launcher() missing an argument")

  triton_heuristics.CachingAutotuner.bench = bench  # the fixture restores it
  text = written(tmp_path, "max", torch.nn.ReLU(), (torch.randn(100000),))
  said = "triton_poi_fused_relu_0 was not measured: TypeError: launcher() missing an argument"
  assert f'"max, 0 kernels measured on NVIDIA H200; {said}"' in text and said in caplog.text


@pytest.mark.parametrize("name", user_kernels.MODELS)
def test_kernels_of_the_models_own_are_measured(name, gpu, tmp_path):
  model, args, shapes, _ = user_kernels.make(name)
  gpu.faster = lambda config: config.kwargs.get("BLOCK", 0)
  text = written(tmp_path, "max", model, args, shapes)
  assert "has the first of its" not in text
  if name.startswith("tuned"):
    assert len([name for name, *_ in gpu.launches if name.startswith("scale")]) == 6  # two kernels
    assert re.search(r"^kernel h200_scale_0 .* block 256 1 1", text, re.M)
  if name.startswith("transposed"):
    assert {grid for kernel, grid in gpu.grids if kernel.startswith("transpose")} == {
      (3, 3, 1),
      (2, 2, 1),
    }


def test_configurations_that_fail_are_not_selected(gpu, tmp_path):
  from triton.runtime.errors import OutOfResources

  tried = []

  def bench(tuner, launcher, *args):
    tried.append(launcher.config)
    if len(tried) == 1:
      raise OutOfResources(1, 0, "registers")
    return float(len(tried))

  from torch._inductor.runtime import triton_heuristics

  triton_heuristics.CachingAutotuner.bench = bench  # the fixture restores it
  text = written(tmp_path, "max", torch.nn.ReLU(), (torch.randn(100000),))
  assert (
    f"block {32 * tried[1].num_warps} 1 1" in text
    and f"cdiv(100000, {tried[1].kwargs['XBLOCK']})" not in text
  )
  assert f"grid ({-(-100000 // tried[1].kwargs['XBLOCK'])}, 1, 1)" in text
  assert tried[0].kwargs != tried[1].kwargs


@pytest.mark.parametrize("own", [4.0, 300.0, 30000.0])
def test_a_slow_host_does_not_count(monkeypatch, own):
  """A kernel takes `own` microseconds, and its launch takes the host 50."""
  clock = types.SimpleNamespace(host=0.0, gpu=0.0, launches=0)

  def enqueue(host, gpu):
    clock.host += host
    clock.gpu = max(clock.gpu, clock.host) + gpu

  class Event:
    def __init__(self, enable_timing):
      assert enable_timing

    def record(self):
      enqueue(2, 0)
      self.time = clock.gpu

    def query(self):
      return self.time <= clock.host

    def elapsed_time(self, other):
      return (other.time - self.time) / 1000

  def launch():
    clock.launches += 1
    enqueue(50, own)

  def synchronize():
    clock.host = max(clock.host, clock.gpu)

  monkeypatch.setattr(torch.cuda, "Event", Event)
  monkeypatch.setattr(torch.cuda, "synchronize", synchronize)
  monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: enqueue(5, cycles / 2000))
  monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
  properties = types.SimpleNamespace(L2_cache_size=8)
  monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
  flush = types.SimpleNamespace(zero_=lambda: enqueue(8, 15))
  monkeypatch.setattr(torch, "empty", lambda *args, **kwargs: flush)
  time = tuning.milliseconds(None, launch, rep=40, is_vetted_benchmarking=True)
  assert time == pytest.approx(own / 1000)
  assert clock.launches < 70


def test_inductor_measures_by_it():
  from torch._inductor.runtime import benchmarking

  kind = type(benchmarking.benchmarker)
  before = kind.benchmark_gpu
  with fake_cuda.cuda(H200, tuned=tuning.Tuning("max")):
    assert kind.benchmark_gpu is tuning.milliseconds
  assert kind.benchmark_gpu is before
