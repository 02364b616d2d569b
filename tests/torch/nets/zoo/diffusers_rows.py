"""U-Nets, transformers and autoencoders of diffusers."""

from __future__ import annotations

import functools
from typing import Any

import diffusers
import torch

from .row import Call, Called, Row

TWO = {"block_out_channels": (16, 32), "norm_num_groups": 8}
CROSS = {"layers_per_block": 1, "attention_head_dim": 4, "cross_attention_dim": 24}
HEADS = {"num_attention_heads": 2, "num_layers": 2}


def image() -> torch.Tensor:
  return torch.randn(1, 3, 32, 32)


def latent() -> torch.Tensor:
  return torch.randn(2, 4, 16, 16)


def words(width: int, batch: int = 2) -> torch.Tensor:
  return torch.randn(batch, 7, width)


def when(batch: int = 2) -> torch.Tensor:
  return torch.tensor([500, 3][:batch])


# name: class, settings, call
MODELS: dict[str, tuple[str, dict[str, Any], Any]] = {
  "unet_2d_condition": (
    "UNet2DConditionModel",
    {
      **TWO,
      **CROSS,
      "sample_size": 16,
      "down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"),
      "up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D"),
    },
    lambda: ((latent(), when(), words(24)), {}),
  ),
  "autoencoder_kl": (
    "AutoencoderKL",
    {
      **TWO,
      "down_block_types": ("DownEncoderBlock2D",) * 2,
      "up_block_types": ("UpDecoderBlock2D",) * 2,
    },
    lambda: ((image(),), {}),
  ),
  "flux_transformer": (
    "FluxTransformer2DModel",
    {
      "patch_size": 1,
      "in_channels": 4,
      "num_layers": 1,
      "num_single_layers": 1,
      "attention_head_dim": 16,
      "num_attention_heads": 2,
      "joint_attention_dim": 24,
      "pooled_projection_dim": 16,
      "axes_dims_rope": (4, 4, 8),
    },
    lambda: (
      (),
      {
        "hidden_states": torch.randn(1, 16, 4),
        "encoder_hidden_states": words(24, 1),
        "pooled_projections": torch.randn(1, 16),
        "timestep": torch.tensor([0.5]),
        "img_ids": torch.randint(0, 4, (16, 3)).float(),
        "txt_ids": torch.zeros(7, 3),
      },
    ),
  ),
  "sd3_transformer": (
    "SD3Transformer2DModel",
    {
      "sample_size": 16,
      "in_channels": 4,
      "out_channels": 4,
      "num_layers": 2,
      "attention_head_dim": 8,
      "num_attention_heads": 4,
      "joint_attention_dim": 24,
      "caption_projection_dim": 32,
      "pooled_projection_dim": 16,
      "pos_embed_max_size": 16,
    },
    lambda: ((latent(), words(24), torch.randn(2, 16), when()), {}),
  ),
  "unet_2d": (
    "UNet2DModel",
    {
      **TWO,
      "sample_size": 16,
      "layers_per_block": 1,
      "attention_head_dim": 8,
      "down_block_types": ("DownBlock2D", "AttnDownBlock2D"),
      "up_block_types": ("AttnUpBlock2D", "UpBlock2D"),
    },
    lambda: ((torch.randn(2, 3, 16, 16), when()), {}),
  ),
  "unet_3d_condition": (
    "UNet3DConditionModel",
    {
      **TWO,
      **CROSS,
      "sample_size": 16,
      "down_block_types": ("CrossAttnDownBlock3D", "DownBlock3D"),
      "up_block_types": ("UpBlock3D", "CrossAttnUpBlock3D"),
    },
    lambda: ((torch.randn(1, 4, 3, 16, 16), when(1), words(24, 1)), {}),
  ),
  "control_net": (
    "ControlNetModel",
    {
      **TWO,
      **CROSS,
      "down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"),
      "conditioning_embedding_out_channels": (16, 32),
    },
    lambda: ((latent(), when(), words(24), torch.randn(2, 3, 32, 32)), {}),
  ),
  "vq": (
    "VQModel",
    {
      **TWO,
      "num_vq_embeddings": 32,
      "down_block_types": ("DownEncoderBlock2D",) * 2,
      "up_block_types": ("UpDecoderBlock2D",) * 2,
    },
    lambda: ((image(),), {}),
  ),
  "autoencoder_tiny": (
    "AutoencoderTiny",
    {
      "encoder_block_out_channels": (16, 16),
      "decoder_block_out_channels": (16, 16),
      "num_encoder_blocks": (1, 1),
      "num_decoder_blocks": (1, 1),
    },
    lambda: ((image(),), {}),
  ),
  "autoencoder_dc": (
    "AutoencoderDC",
    {
      "in_channels": 3,
      "latent_channels": 4,
      "attention_head_dim": 8,
      "encoder_block_types": ("ResBlock", "EfficientViTBlock"),
      "decoder_block_types": ("ResBlock", "EfficientViTBlock"),
      "encoder_block_out_channels": (16, 16),
      "decoder_block_out_channels": (16, 16),
      "encoder_qkv_multiscales": ((), (5,)),
      "decoder_qkv_multiscales": ((), (5,)),
      "encoder_layers_per_block": (1, 1),
      "decoder_layers_per_block": (1, 1),
    },
    lambda: ((image(),), {}),
  ),
  "dit_transformer": (
    "DiTTransformer2DModel",
    {**HEADS, "attention_head_dim": 16, "sample_size": 16, "num_embeds_ada_norm": 10},
    lambda: ((latent(), when(), torch.tensor([1, 2])), {}),
  ),
  "pixart_transformer": (
    "PixArtTransformer2DModel",
    {
      **HEADS,
      "attention_head_dim": 16,
      "sample_size": 16,
      "cross_attention_dim": 32,
      "caption_channels": 24,
    },
    lambda: (
      (latent(), words(24), when()),
      {"added_cond_kwargs": {"resolution": None, "aspect_ratio": None}},
    ),
  ),
  "prior_transformer": (
    "PriorTransformer",
    {
      **HEADS,
      "attention_head_dim": 16,
      "embedding_dim": 32,
      "num_embeddings": 7,
      "additional_embeddings": 4,
    },
    lambda: ((torch.randn(2, 32), when(), torch.randn(2, 32), words(32)), {}),
  ),
  "wan_transformer": (
    "WanTransformer3DModel",
    {
      **HEADS,
      "attention_head_dim": 12,
      "in_channels": 4,
      "out_channels": 4,
      "text_dim": 16,
      "freq_dim": 32,
      "ffn_dim": 32,
      "cross_attn_norm": True,
      "rope_max_seq_len": 32,
    },
    lambda: ((torch.randn(1, 4, 2, 16, 16), when(1), words(16, 1)), {}),
  ),
  "cogvideox_transformer": (
    "CogVideoXTransformer3DModel",
    {
      **HEADS,
      "attention_head_dim": 8,
      "in_channels": 4,
      "out_channels": 4,
      "time_embed_dim": 4,
      "text_embed_dim": 8,
      "sample_width": 16,
      "sample_height": 16,
      "sample_frames": 9,
      "patch_size": 2,
      "temporal_compression_ratio": 4,
      "max_text_seq_length": 8,
    },
    lambda: ((torch.randn(1, 3, 4, 16, 16), torch.randn(1, 8, 8), when(1)), {}),
  ),
  "sana_transformer": (
    "SanaTransformer2DModel",
    {
      **HEADS,
      "in_channels": 4,
      "out_channels": 4,
      "attention_head_dim": 8,
      "num_cross_attention_heads": 2,
      "cross_attention_head_dim": 8,
      "cross_attention_dim": 16,
      "caption_channels": 16,
      "sample_size": 16,
    },
    lambda: ((torch.randn(1, 4, 16, 16), words(16, 1), when(1)), {}),
  ),
  "lumina2_transformer": (
    "Lumina2Transformer2DModel",
    {
      "sample_size": 16,
      "in_channels": 4,
      "hidden_size": 24,
      "num_layers": 2,
      "num_refiner_layers": 1,
      "num_attention_heads": 2,
      "num_kv_heads": 1,
      "axes_dim_rope": (4, 4, 4),
      "axes_lens": (32, 32, 32),
      "cap_feat_dim": 16,
    },
    lambda: (
      (
        torch.randn(1, 4, 16, 16),
        torch.tensor([0.5]),
        words(16, 1),
        torch.ones(1, 7, dtype=torch.bool),
      ),
      {},
    ),
  ),
  "aura_flow_transformer": (
    "AuraFlowTransformer2DModel",
    {
      "sample_size": 16,
      "in_channels": 4,
      "out_channels": 4,
      "num_mmdit_layers": 1,
      "num_single_dit_layers": 1,
      "attention_head_dim": 8,
      "num_attention_heads": 4,
      "joint_attention_dim": 24,
      "caption_projection_dim": 32,
      "pos_embed_max_size": 256,
    },
    lambda: ((latent(), words(24), torch.tensor([0.3, 0.5])), {}),
  ),
  "uvit": (
    "UVit2DModel",
    {
      "hidden_size": 32,
      "cond_embed_dim": 32,
      "encoder_hidden_size": 32,
      "micro_cond_encode_dim": 32,
      "micro_cond_embed_dim": 160,
      "block_out_channels": 32,
      "num_hidden_layers": 2,
      "num_attention_heads": 4,
      "intermediate_size": 64,
      "block_num_heads": 4,
      "vocab_size": 50,
      "codebook_size": 48,
      "sample_size": 8,
    },
    lambda: (
      (
        torch.randint(0, 48, (1, 8, 8)),
        words(32, 1),
        torch.randn(1, 32),
        torch.randn(1, 5),
      ),
      {},
    ),
  ),
  "autoencoder_kl_wan": (
    "AutoencoderKLWan",
    {
      "base_dim": 8,
      "z_dim": 4,
      "dim_mult": [1, 2, 2, 2],
      "num_res_blocks": 1,
      "temperal_downsample": [False, True, True],
    },
    lambda: ((torch.randn(1, 3, 5, 32, 32),), {}),
  ),
}


def ltx(model: torch.nn.Module, *tensors: torch.Tensor) -> Any:
  return model(*tensors, num_frames=2, height=4, width=4)


def ltx_transformer() -> torch.nn.Module:
  settings = {"attention_head_dim": 8, "cross_attention_dim": 16, "caption_channels": 16}
  model = diffusers.LTXVideoTransformer3DModel(in_channels=4, out_channels=4, **HEADS, **settings)
  return Called(model, ltx)


def ltx_inputs(_: int) -> Call:
  mask = torch.ones(1, 7, dtype=torch.bool)
  return (torch.randn(1, 32, 4), words(16, 1), when(1), mask), {}


def rows() -> list[Row]:
  found = [
    Row(
      "diffusers",
      name,
      functools.partial(getattr(diffusers, kind), **settings),
      lambda _, call=call: call(),
    )
    for name, (kind, settings, call) in MODELS.items()
  ]
  return [*found, Row("diffusers", "ltx_video_transformer", ltx_transformer, ltx_inputs)]
