"""Detection and segmentation models of torchvision, with random weights, against eager mode.

  python tests/torch/nets/detection_models.py [--target host] [--images 20] [NAME...]

Each model is exported for small images of one size, and runs on random ones. It prints a line for
each: equal, with the number of boxes that were found; how many images differ; or the refusal. With
`--target cuda:h100` it runs on that GPU, without tf32, and is exported only if there is none.
torchvision must be installed, and is not in the environment of the tests: a virtual environment
with it and the packages of build/venv will do.
"""

import argparse
import pathlib
import sys
import tempfile
import time

import husk
import torch
import torchvision
from torch.utils import _pytree as pytree
from torchvision.models import detection, segmentation

SIZES = {"min_size": 96, "max_size": 128}
NOTHING_TRAINED = {"weights": None, "weights_backbone": None}
# All candidates are kept, so that the number of boxes that is compared is large.
TWO_STAGES = {
  **NOTHING_TRAINED,
  **SIZES,
  "box_score_thresh": 0.0,
  "rpn_pre_nms_top_n_test": 200,
  "rpn_post_nms_top_n_test": 50,
  "box_detections_per_img": 20,
  "num_classes": 6,
}
ONE_STAGE = {**NOTHING_TRAINED, "topk_candidates": 100, "num_classes": 5}
MODELS = {
  "fasterrcnn": lambda: detection.fasterrcnn_mobilenet_v3_large_fpn(**TWO_STAGES),
  "maskrcnn": lambda: detection.maskrcnn_resnet50_fpn(**TWO_STAGES),
  "keypointrcnn": lambda: detection.keypointrcnn_resnet50_fpn(
    **{**TWO_STAGES, "num_classes": 2}, num_keypoints=5
  ),
  "retinanet": lambda: detection.retinanet_resnet50_fpn(**ONE_STAGE, **SIZES, score_thresh=0.0),
  "fcos": lambda: detection.fcos_resnet50_fpn(**ONE_STAGE, **SIZES, score_thresh=0.0),
  "ssd": lambda: detection.ssd300_vgg16(**ONE_STAGE),
  "ssdlite": lambda: detection.ssdlite320_mobilenet_v3_large(**ONE_STAGE),
  "deeplabv3": lambda: segmentation.deeplabv3_mobilenet_v3_large(**NOTHING_TRAINED),
  "lraspp": lambda: segmentation.lraspp_mobilenet_v3_large(**NOTHING_TRAINED),
}


class OfOneImage(torch.nn.Module):
  """A detector, which takes a list of images, as a function of one."""

  def __init__(self, detector):
    super().__init__()
    self.detector = detector

  def forward(self, image):
    return self.detector([image])[0]


def model_and_images(name, count):
  """The model, and some images. Weights are scaled so that the results of layers have the variance
  1: without that, scores are equal but for rounding errors, which then decide their order."""
  torch.manual_seed(3)
  model = MODELS[name]().eval()
  is_detector = hasattr(model, "transform")
  shape = (3, 100, 130) if is_detector else (1, 3, 96, 128)
  example, *images = (torch.rand(shape) for _ in range(count + 1))
  model = OfOneImage(model) if is_detector else model
  scaled = set()

  def scale(layer, args, result):
    if layer in scaled or result.std() == 0:
      return result
    scaled.add(layer)
    factor = 1 / result.std()
    layer.weight *= factor
    return result * factor

  layers = [one for one in model.modules() if isinstance(one, (torch.nn.Conv2d, torch.nn.Linear))]
  hooks = [layer.register_forward_hook(scale) for layer in layers]
  with torch.no_grad():
    model(example)
  for hook in hooks:
    hook.remove()
  return model, [example, *images]


def difference(result, expected):
  """Why two results are not equal, None if they are. Detections whose scores differ by rounding
  errors may be in another order."""
  if "boxes" in expected and len(result["boxes"]) == len(expected["boxes"]):
    chosen = order(result, expected)
    result = {name: values[chosen] for name, values in result.items()}
  for one, other in zip(pytree.tree_leaves(result), pytree.tree_leaves(expected), strict=True):
    if one.shape != other.shape:
      return f"{tuple(one.shape)} instead of {tuple(other.shape)}"
    if not torch.allclose(one.double(), other.double(), rtol=1e-3, atol=1e-3):
      return f"off by {(one.double() - other.double()).abs().max().item():.3g}"
  return None


def order(result, expected):
  """The detections of a result in the order in which the expected ones have the nearest boxes, from
  those whose scores are equal but for rounding errors; a detection is taken once."""
  far = torch.cdist(expected["boxes"], result["boxes"], p=1)
  far += (expected["labels"][:, None] != result["labels"]) * 1e6
  far += ((expected["scores"][:, None] - result["scores"]).abs() > 1e-5) * 1e6
  chosen = []
  for row in far:
    row[chosen] = float("inf")
    chosen.append(row.argmin().item())
  return torch.tensor(chosen, dtype=torch.int64)


def outcome(name, target, count, folder):
  model, (example, *images) = model_and_images(name, count)
  path = folder / f"{name}.husk"
  start = time.monotonic()
  try:
    husk.export(model, (example,), path, targets=(target,), progress=False)
  except Exception as error:
    return f"refused: {type(error).__name__}: {str(error).strip().splitlines()[-1]}"
  took = f"exported in {time.monotonic() - start:.0f} s, {path.stat().st_size >> 20} MiB"
  device = "cuda" if target.startswith("cuda") else "cpu"
  if device == "cuda" and not torch.cuda.is_available():
    return took
  model, program = model.to(device), husk.load(path, device=device)
  found, boxes = [], 0
  for image in images:
    with torch.no_grad():
      expected = pytree.tree_map(torch.Tensor.cpu, model(image.to(device)))
    boxes += len(expected["boxes"]) if "boxes" in expected else 0
    result = program(image.to(device))
    found.append(difference({name: one.cpu() for name, one in result.items()}, expected))
  wrong = [each for each in found if each]
  said = f"{len(wrong)} of {count} differ: {wrong[0]}" if wrong else f"{count} equal"
  return f"{said} ({boxes} boxes); {took}"


def main():
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument("names", nargs="*", metavar="NAME")
  parser.add_argument("--target", default="host")
  parser.add_argument("--images", type=int, default=20)
  options = parser.parse_args()
  torch.backends.cudnn.allow_tf32 = False
  print(f"torch {torch.__version__}, torchvision {torchvision.__version__}")
  with tempfile.TemporaryDirectory() as folder:
    for name in options.names or MODELS:
      found = outcome(name, options.target, options.images, pathlib.Path(folder))
      print(f"{name}: {found}", flush=True)


if __name__ == "__main__":
  sys.exit(main())
