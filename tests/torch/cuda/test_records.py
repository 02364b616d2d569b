"""Records of measured configurations: files, neighbours, exports with them, and the command that
measures. Nothing is measured here."""

import contextlib
import json
import pathlib
import re

import husk
import pytest
import torch
from husk import __main__ as command
from husk import tune
from husk.cuda import measuring, records, tuning
from husk.cuda.records import Chip, Problem, Records
from husk.cuda.target import Target

H100, H200 = Target.load("h100"), Target.load("h200")
FORM = (("left", "rows"), ("right", "columns"))


def product(m, n, k, form=FORM, dtype="float16", kind="product"):
  return Problem(kind, dtype, form, (("m", m), ("n", n), ("k", k)))


def recorded(**times):
  found = Records(Chip.of(H100), "NVIDIA H100")
  for sizes, each in times.items():
    found.add(product(*map(int, re.findall(r"\d+", sizes))), each)
  return found


# Choices


def test_a_record_decides():
  found = recorded(p64x64x64={"slow": 3.0, "fast": 1.0})
  assert found.choice(product(64, 64, 64), ["slow", "other", "fast"]) == (2, "record")
  assert found.choice(product(64, 64, 64), ["other", "slow"]) == (1, "record")
  assert found.choice(product(64, 64, 64), ["other"]) is None


def test_neighbours_decide_within_the_distance():
  found = recorded(p64x64x64={"a": 1.0, "b": 1.1}, p128x64x64={"a": 3.0, "b": 2.0})
  near, far = product(112, 64, 64), product(64, 64, 64 * 5)
  assert near.distance(product(128, 64, 64)) < near.distance(product(64, 64, 64)) < 1
  assert found.choice(near, ["a", "b"]) == (1, "neighbours")
  assert far.distance(product(64, 64, 64)) > records.LARGEST_DISTANCE
  assert found.choice(far, ["a", "b"]) is None
  edge = product(64, 64, 128)
  assert edge.distance(product(64, 64, 64)) == records.LARGEST_DISTANCE
  assert found.choice(edge, ["b", "a"]) == (1, "neighbours")


@pytest.mark.parametrize(
  "other",
  [
    {"dtype": "float32"},
    {"form": (("left", "rows"), ("right", "rows"))},
    {"kind": "batched product"},
  ],
)
def test_other_kinds_are_no_neighbours(other):
  found = recorded(p64x64x64={"a": 1.0})
  assert found.choice(product(64, 64, 64, **other), ["a"]) is None


def test_a_configuration_that_a_neighbour_does_not_list_is_slow():
  found = recorded(p64x64x64={"a": 1.0, "b": 1.5}, p96x64x64={"b": 1.0, "c": 1.1})
  assert found.choice(product(80, 64, 64), ["a", "b", "c"]) == (0, "neighbours")
  assert found.choice(product(95, 64, 64), ["a", "b", "c"]) == (1, "neighbours")


def test_the_fastest_configurations_are_kept():
  found = recorded(p8x8x8={f"c{n}": float(20 - n) for n in range(15)})
  (times,) = found.times.values()
  assert list(times) == [f"c{n}" for n in range(14, 14 - records.MOST_CONFIGS, -1)]
  found.add(product(8, 8, 8), {})
  assert found.times[product(8, 8, 8)] == times


# Files


def test_a_file_is_read_as_it_was_written(tmp_path):
  found = recorded(p64x32x16={"a": 1.25, "b": 2.0}, p8x8x8={"a": 0.5})
  found.times[product(1, 2, 3)] = {}
  found.save(tmp_path / "one.json")
  again = records.read(tmp_path / "one.json")
  assert again == found
  assert [problem.sizes[0][1] for problem in again.times] == [1, 8, 64]  # sorted
  again.save(tmp_path / "two.json")
  assert (tmp_path / "one.json").read_bytes() == (tmp_path / "two.json").read_bytes()


@pytest.mark.parametrize(
  "change, error",
  [
    ({"format": 2}, "has format 2, this version of Husk reads 1"),
    ({"chip": {}}, "is no record file: TypeError"),
    ({"records": [{"kind": "product"}]}, "is no record file: KeyError: 'dtype'"),
    (
      {"records": [{"kind": "sum", "dtype": "x", "form": {}, "sizes": {"m": 1}, "us": {}}]},
      "has a record that is not understood",
    ),
    (
      {"records": [{"kind": "product", "dtype": "x", "form": {}, "sizes": {"m": 0}, "us": {}}]},
      "has a record that is not understood",
    ),
  ],
)
def test_wrong_files_are_refused(change, error, tmp_path):
  path = tmp_path / "records.json"
  path.write_text(json.dumps({**json.loads(recorded().text()), **change}))
  with pytest.raises(ValueError, match=error):
    records.read(path)


def test_files_that_are_none_are_refused(tmp_path):
  with pytest.raises(ValueError, match="there is no record file .*none.json"):
    records.read(tmp_path / "none.json")
  (tmp_path / "text.json").write_text("{")
  with pytest.raises(ValueError, match="text.json is no record file: JSONDecodeError"):
    records.read(tmp_path / "text.json")


def test_records_hold_for_a_chip(tmp_path):
  recorded(p8x8x8={"a": 1.0}).save(tmp_path / "h100.json")
  assert Chip.of(H100) == Chip.of(H200)
  assert product(8, 8, 8) in records.of_target(H200, [tmp_path / "h100.json"]).times
  assert records.of_target(Target.load("l4")).times == {}
  with pytest.raises(ValueError, match="has records for a chip of capability 90 with 132 multi"):
    records.of_target(Target.load("l4"), [tmp_path / "h100.json"])


def test_the_records_of_the_package():
  shipped = records.of_target(H100)
  assert shipped.times == records.of_target(H200).times and len(shipped.times) > 100
  for times in shipped.times.values():
    assert times and all(time > 0 for time in times.values())
  for path in records.FOLDER.glob("*.json"):
    assert records.read(path).text() == path.read_text()


# Exports


class Layer(torch.nn.Module):
  def __init__(self, size=96):
    super().__init__()
    self.one = torch.nn.Linear(size, 2 * size)

  def forward(self, x):
    return self.one(x)


def exported(folder, **options):
  torch.manual_seed(0)
  model, args = Layer().half().eval(), (torch.randn(48, 96).half(),)
  text = husk.write(model, args, folder, targets=("cuda:h100",), **options).read_text()
  return text, {path.name: path.read_bytes() for path in folder.glob("*.cubin")}


PROBLEM = product(48, 192, 96)


def test_an_export_takes_a_record_and_says_so(tmp_path, monkeypatch):
  monkeypatch.setattr(records, "_shipped", tuple)
  found = Records(Chip.of(H100))
  found.add(PROBLEM, {"32x32x128 stages 2 warps 4": 1.0, "64x64x64 stages 3 warps 8": 2.0})
  found.save(tmp_path / "records.json")
  path = tmp_path / "records.json"
  text, images = exported(tmp_path / "a", tune="heuristic", records=[path])
  said = "1 templates from records, 0 from records of similar problems, 0 by rules"
  assert f'user "husk.tuned.cuda_h100" "heuristic; {said}"' in text
  assert "grid (12, 1, 1)" in text and " block 128 " in text  # 48 x 192 in tiles of 32 x 32
  again, images_again = exported(tmp_path / "b", tune="heuristic", records=[path])
  assert (again, images_again) == (text, images)
  other, _ = exported(tmp_path / "c", tune="rules", records=[path])
  assert 'user "husk.tuned.cuda_h100" "rules"' in other


def test_an_export_takes_records_of_similar_problems(tmp_path, monkeypatch):
  monkeypatch.setattr(records, "_shipped", tuple)
  near, far = product(64, 192, 96), product(4096, 192, 96)
  for number, (problem, said) in enumerate([(near, "0 t, 1 f, 0 b"), (far, "0 t, 0 f, 1 b")]):
    found = Records(Chip.of(H100))
    found.add(problem, {"32x32x128 stages 2 warps 4": 1.0})
    path = tmp_path / f"{number}.json"
    found.save(path)
    text, _ = exported(tmp_path / str(number), tune="heuristic", records=[path])
    counts = re.search(
      r"heuristic; (\d+ t)emplates from records(, \d+ f).*similar problems(.*)\"", text
    )
    assert "".join(counts.groups())[: len(said)] == said


def test_records_are_not_needed(tmp_path, monkeypatch):
  monkeypatch.setattr(records, "_shipped", tuple)
  text, _ = exported(tmp_path / "a", tune="heuristic")
  assert "0 templates from records, 0 from records of similar problems, 1 by rules" in text
  with pytest.raises(ValueError, match="there is no record file"):
    exported(tmp_path / "b", tune="heuristic", records=["nowhere.json"])


# Measuring

PROBLEMS = [
  PROBLEM,
  product(1, 32, 64),
  product(48, 64, 96, (("left", "columns"), ("right", "rows"))),
  Problem("batched product", "float32", FORM, (("batch", 3), ("m", 16), ("n", 32), ("k", 48))),
  Problem(
    "convolution",
    "float16",
    (
      ("kernel", "3x3"),
      ("stride", "2x1"),
      ("padding", "1x0"),
      ("groups", "2"),
      ("order", "channels last"),
    ),
    (("batch", 2), ("channels", 16), ("outputs", 48), ("height", 7), ("width", 9)),
  ),
  Problem(
    "implicit gemm",
    "float16",
    (("kernel", "3x2"), ("stride", "1x2"), ("padding", "4x0"), ("dilation", "4x1")),
    (("batch", 1), ("channels", 256), ("outputs", 48), ("height", 7), ("width", 9)),
  ),
  Problem(
    "depthwise",
    "float16",
    (("kernel", "7x7"), ("stride", "1x1"), ("padding", "3x3")),
    (("batch", 2), ("channels", 96), ("height", 14), ("width", 13)),
  ),
]


@pytest.mark.parametrize("problem", PROBLEMS, ids=tune.words_of)
def test_a_problem_becomes_a_program_with_that_problem(problem):
  collector = measuring.Collector()
  measuring.capture_problem(problem, H100, collector)
  assert collector.problems == [problem]


@pytest.mark.parametrize("side", [7, 56])
@pytest.mark.parametrize("kind", ["convolution", "implicit gemm"])
def test_a_convolution_is_measured_with_the_template_of_its_kind(kind, side, monkeypatch):
  """Whatever the rule takes for its sizes."""
  monkeypatch.setattr(measuring._Meter, "on_gpu", False)
  monkeypatch.setattr(measuring, "_times", lambda candidates, alone: dict.fromkeys(candidates, 1.0))
  form = {"kernel": "3x3", "stride": "1x1", "padding": "1x1"}
  more = {"groups": "1", "order": "channels last"}
  form |= more if kind == "convolution" else {"dilation": "1x1"}
  sizes = {"batch": 1, "channels": 128, "outputs": 128, "height": side, "width": side}
  problem = Problem(kind, "float16", tuple(form.items()), tuple(sizes.items()))
  assert measuring.measured(problem, H100, contextlib.nullcontext())


def test_halves_share_records():
  collector = measuring.Collector()
  brain = Problem("product", "bfloat16", FORM, PROBLEM.sizes)
  measuring.capture_problem(brain, H100, collector)
  assert collector.problems == [PROBLEM]


def test_the_problems_of_a_model():
  model = torch.nn.Sequential(Layer(32), torch.nn.GELU(), torch.nn.Linear(64, 32)).half()
  function = husk.Function(model.eval(), (torch.randn(16, 32).half(),))
  assert tune.problems_of({"forward": function}, "h100") == [
    product(16, 64, 32),
    product(16, 32, 64),
  ]


MODEL = """
import torch
def make():
  return torch.nn.Linear(32, 64).half().eval(), (torch.randn(16, 32).half(),)
"""


def test_the_command_lists_problems(tmp_path, capsys):
  (tmp_path / "model.py").write_text(MODEL)
  path = tmp_path / "records.json"
  words = ["tune", f"{tmp_path}/model.py:make", "--list", "--record", str(path)]
  assert command.main(words) == 0
  assert "model.py:make: 1 problems" in capsys.readouterr().err
  assert records.read(path).times == {product(16, 64, 32): {}}
  found = records.read(path)
  found.add(product(16, 64, 32), {"a": 1.0})
  found.save(path)
  assert command.main(words) == 0  # keeps what the file has
  assert records.read(path).times == {product(16, 64, 32): {"a": 1.0}}


@pytest.mark.parametrize(
  "words, error",
  [
    (["m.py:f"], "an NVIDIA H200: there is no GPU here that torch can use; run it there, or give"),
    (["m.py:f", "--target", "h200"], "--target h200: give cuda:NAME"),
    (["m.py:f", "--target", "cuda:none"], "no CUDA target 'none'"),
    ([], "give a MODEL, or --problems FILE"),
    (["--list", "--problems", "no.json", "--record", "r.json"], "there is no record file no.json"),
  ],
)
def test_the_command_refuses(words, error, capsys, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  assert command.main(["tune", *words]) == 1
  assert error in capsys.readouterr().err


def test_what_is_measured_is_recorded(tmp_path, monkeypatch, capsys):
  path = tmp_path / "records.json"
  wanted = Records(Chip.of(H100), "", {problem: {} for problem in PROBLEMS[:3]})
  wanted.add(PROBLEMS[0], {"old": 1.0})
  wanted.save(path)
  seen = []

  def measure(problems, target, seconds, jobs):
    seen.extend(problems)
    yield problems[0], {"new": 2.0, "other": 1.5}, ""
    yield problems[1], {}, "OutOfMemoryError: too much"

  monkeypatch.setattr(tune, "measure", measure)
  monkeypatch.setattr(tune, "why_not_here", lambda target: "")
  monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA H100")
  words = ["tune", "--problems", str(path), "--record", str(path), "--target", "cuda:h100"]
  assert command.main(words) == 0
  found = records.read(path)
  assert PROBLEMS[0] not in seen and found.times[PROBLEMS[0]] == {"old": 1.0}
  assert found.times[seen[0]] == {"other": 1.5, "new": 2.0} and found.times[seen[1]] == {}
  assert found.device == "NVIDIA H100"
  text = capsys.readouterr().err
  assert "1.5 us in other" in text and "not measured: OutOfMemoryError: too much" in text
  assert "3 problems, 1 without times" in text


def test_problems_that_are_named_are_measured_again(tmp_path, monkeypatch):
  path, named = tmp_path / "records.json", tmp_path / "named.json"
  wanted = Records(Chip.of(H100), "", {problem: {} for problem in PROBLEMS[:3]})
  wanted.add(PROBLEMS[0], {"old": 1.0})
  wanted.add(PROBLEMS[1], {"old": 1.0})
  wanted.save(path)
  Records(Chip.of(H100), "", {PROBLEMS[1]: {}}).save(named)
  seen = []
  monkeypatch.setattr(tune, "measure", lambda problems, *_: seen.extend(problems) or iter(()))
  monkeypatch.setattr(tune, "why_not_here", lambda target: "")
  monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA H100")
  words = ["tune", "--problems", str(named), "--record", str(path), "--target", "cuda:h100"]
  assert command.main([*words, "--again"]) == 0
  assert sorted(seen, key=PROBLEMS.index) == PROBLEMS[1:3]


def test_kinds_are_measured_in_turn():
  assert tune.in_turn(PROBLEMS) == [PROBLEMS[number] for number in (0, 3, 4, 5, 6, 1, 2)]


def test_modes_are_known(monkeypatch):
  monkeypatch.delenv("HUSK_TUNE", raising=False)
  assert tuning.resolve_mode("rules", H200) == "rules"
  assert tuning.Tuning("rules").picked_text() == []


def test_the_problems_that_are_measured_for_the_package_are_understood():
  listed = records.read(pathlib.Path(__file__).resolve().parents[2] / "gpu" / "problems.json")
  assert set(records.of_target(H100).times) <= set(listed.times)
