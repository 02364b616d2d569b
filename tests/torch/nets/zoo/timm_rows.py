"""One model of each of 55 families of timm."""

from __future__ import annotations

from typing import Any

import timm

from .row import Row, image

# Settings of models whose only small part is the first: what a model of this kind repeats.
NARROW = {"img_size": 64, "depth": 2, "embed_dim": 48, "num_heads": 3}
FOUR = (1, 1, 1, 1)
WIDTHS = (24, 48, 72, 96)

# name: settings beside the model's own, size of the images
MODELS: dict[str, tuple[dict[str, Any], int]] = {
  "test_resnet": ({}, 64),
  "test_vit": ({}, 160),
  "test_efficientnet": ({}, 64),
  "test_convnext": ({}, 64),
  "swin_tiny_patch4_window7_224": (
    {"depths": (2, 2), "embed_dim": 24, "num_heads": (2, 4)},
    224,
  ),
  "mobilenetv3_small_050": ({}, 64),
  "densenet121": ({"block_config": (2, 2, 2, 2)}, 64),
  "test_byobnet": ({}, 64),
  "test_nfnet": ({}, 64),
  "test_mambaout": ({}, 64),
  "beit_base_patch16_224": (NARROW, 64),
  "cait_xxs24_224": (NARROW, 64),
  "coat_lite_tiny": ({"serial_depths": FOUR, "img_size": 64}, 64),
  "convit_tiny": ({"img_size": 64, "depth": 3, "local_up_to_layer": 2}, 64),
  "crossvit_tiny_240": ({"depth": ((1, 1, 0), (1, 1, 0), (1, 1, 0))}, 240),
  "davit_tiny": ({"depths": FOUR, "embed_dims": WIDTHS}, 64),
  "deit_tiny_distilled_patch16_224": (NARROW, 64),
  "dla46_c": ({}, 64),
  "edgenext_xx_small": ({}, 64),
  "efficientformerv2_s0": ({}, 224),
  "efficientvit_b0": ({}, 64),
  "efficientvit_m0": ({}, 224),
  "eva02_tiny_patch14_224": ({**NARROW, "img_size": 56}, 56),
  "fastvit_t8": ({"layers": FOUR}, 64),
  "ghostnet_050": ({}, 64),
  "hgnetv2_b0": ({}, 64),
  "hiera_tiny_224": ({"stages": FOUR}, 224),
  "inception_next_tiny": ({"depths": FOUR, "dims": WIDTHS}, 64),
  "levit_128s": ({}, 224),
  "coatnet_pico_rw_224": ({}, 224),
  "mobilevit_xxs": ({}, 64),
  "mvitv2_tiny": ({}, 224),
  "pit_ti_224": ({"depth": (1, 1, 1)}, 224),
  "pvt_v2_b0": ({"depths": FOUR}, 64),
  "regnety_002": ({}, 64),
  "repvit_m0_9": ({}, 64),
  "res2net50_14w_8s": ({"layers": FOUR}, 64),
  "resnest14d": ({}, 64),
  "resnetv2_50": ({"layers": FOUR}, 64),
  "rexnet_100": ({}, 64),
  "sequencer2d_s": ({"layers": FOUR, "img_size": 56}, 56),
  "skresnet18": ({}, 64),
  "swinv2_tiny_window8_256": (
    {"img_size": 64, "window_size": 4, "depths": (2, 2), "embed_dim": 24, "num_heads": (2, 4)},
    64,
  ),
  "swinv2_cr_tiny_224": ({"depths": (2, 2), "embed_dim": 24, "num_heads": (2, 4)}, 224),
  "tiny_vit_5m_224": ({"depths": FOUR}, 224),
  "tnt_s_legacy_patch16_224": ({"img_size": 64, "depth": 2}, 64),
  "twins_svt_small": ({"img_size": 64, "depths": (1, 1, 2, 1)}, 64),
  "visformer_tiny": ({"img_size": 64, "depth": (1, 1, 1)}, 64),
  "vit_relpos_small_patch16_224": ({"img_size": 64, "depth": 2}, 64),
  "samvit_base_patch16_224": ({**NARROW, "global_attn_indexes": (1,)}, 64),
  "ese_vovnet19b_slim": ({}, 64),
  "xcit_nano_12_p16_224": ({"img_size": 64, "depth": 2}, 64),
  "starnet_s1": ({"depths": FOUR}, 64),
  "swiftformer_xs": ({"layers": FOUR}, 64),
  "lcnet_035": ({}, 64),
}


def rows() -> list[Row]:
  return [
    Row(
      "timm",
      name,
      lambda name=name, settings=settings: timm.create_model(
        name, pretrained=False, num_classes=10, **settings
      ),
      image(size),
    )
    for name, (settings, size) in MODELS.items()
  ]
