"""Detectors of ultralytics, in evaluation mode, without what chooses among boxes afterwards."""

from __future__ import annotations

import os
import tempfile

import torch

from .row import Row, image

# Importing the library writes its settings.
os.environ.setdefault("YOLO_CONFIG_DIR", tempfile.gettempdir())

from ultralytics.nn import tasks

# name: the library's file, the class
MODELS = {
  "yolov8": ("yolov8n.yaml", "DetectionModel"),
  "yolo11_segments": ("yolo11n-seg.yaml", "SegmentationModel"),
  "yolo12": ("yolo12n.yaml", "DetectionModel"),
  "yolov10": ("yolov10n.yaml", "DetectionModel"),
}


def built(file: str, kind: str) -> torch.nn.Module:
  return getattr(tasks, kind)(file, nc=5, verbose=False)


def rows() -> list[Row]:
  return [
    Row("ultralytics", name, lambda file=file, kind=kind: built(file, kind), image(64, 1))
    for name, (file, kind) in MODELS.items()
  ]
