"""Models of torchvision of all kinds: classes of images and videos, boxes, segments, optical flow,
and transforms. Boxes and segments are those of detection_models.py."""

from __future__ import annotations

import detection_models
import torch
from torchvision import models
from torchvision.models import optical_flow, video
from torchvision.transforms import v2

from .row import Row, image

# name: size of the images
CLASSES = {
  "resnet18": 64,
  "swin_t": 64,
  "mobilenet_v2": 64,
  "shufflenet_v2_x0_5": 64,
  "squeezenet1_1": 64,
  "alexnet": 64,
  "mnasnet0_5": 64,
  "googlenet": 64,
  "inception_v3": 96,
  "efficientnet_b0": 64,
  "regnet_x_400mf": 64,
  "swin_v2_t": 64,
  "densenet121": 64,
}
BOXES = "ssdlite deeplabv3 fcos retinanet ssd lraspp fasterrcnn maskrcnn".split()


def classes(name: str) -> torch.nn.Module:
  settings = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
  return models.get_model(name, weights=None, num_classes=10, **settings)


def vision_transformer() -> torch.nn.Module:
  return models.VisionTransformer(64, 16, 2, 4, 48, 96, num_classes=10)


def max_vit() -> torch.nn.Module:
  return models.MaxVit((64, 64), 16, 4, [16, 32], [1, 1], 8, 0.0, num_classes=10)


def convnext() -> torch.nn.Module:
  from torchvision.models import convnext as library

  settings = [library.CNBlockConfig(16, 32, 1), library.CNBlockConfig(32, None, 1)]
  return library.ConvNeXt(settings, num_classes=10)


def mvit() -> torch.nn.Module:
  from torchvision.models.video import mvit as library

  def block(inside: int, outside: int, stride: list[int]) -> library.MSBlockConfig:
    return library.MSBlockConfig(2, inside, outside, [3, 3, 3], [3, 3, 3], stride, [1, 2, 2])

  settings = [block(16, 32, [1, 1, 1]), block(32, 32, [1, 2, 2])]
  return library.MViT((32, 32), 8, settings, True, True, True, True, num_classes=10)


class Preprocessed(torch.nn.Module):
  """What torchvision does to images before a model."""

  def __init__(self) -> None:
    super().__init__()
    self.steps = v2.Compose(
      [
        v2.Resize(40, antialias=True),
        v2.CenterCrop(32),
        v2.ToDtype(torch.float32, scale=True),
        v2.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
        v2.RandomHorizontalFlip(1.0),
      ]
    )

  def forward(self, images: torch.Tensor) -> torch.Tensor:
    return self.steps(images)


def boxes(name: str) -> Row:
  shape = (3, 100, 130) if name not in ("deeplabv3", "lraspp") else (1, 3, 96, 128)
  return Row(
    "torchvision",
    name,
    lambda: detection_models.model_and_images(name, 0)[0],
    lambda _: ((torch.rand(shape),), {}),
    boxes=True,
  )


def rows() -> list[Row]:
  found = [
    Row("torchvision", name, lambda name=name: classes(name), image(size))
    for name, size in CLASSES.items()
  ]
  clip = lambda _: ((torch.randn(1, 3, 8, 32, 32),), {})  # noqa: E731
  frames = lambda _: ((torch.rand(1, 3, 128, 128), torch.rand(1, 3, 128, 128)), {})  # noqa: E731
  found += [
    Row("torchvision", "vision_transformer", vision_transformer, image(64)),
    Row("torchvision", "max_vit", max_vit, image(64)),
    Row("torchvision", "convnext", convnext, image(64)),
    Row("torchvision", "r3d_18", lambda: video.r3d_18(num_classes=10), clip),
    Row("torchvision", "r2plus1d_18", lambda: video.r2plus1d_18(num_classes=10), clip),
    Row("torchvision", "mvit", mvit, clip),
    Row("torchvision", "raft_small", optical_flow.raft_small, frames),
    Row(
      "torchvision",
      "preprocessing",
      Preprocessed,
      lambda _: ((torch.randint(0, 256, (2, 3, 60, 70), dtype=torch.uint8),), {}),
    ),
  ]
  return [*found, *map(boxes, BOXES)]
