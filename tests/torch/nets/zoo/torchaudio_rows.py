"""Models and transforms of torchaudio."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torchaudio import models, transforms

from .row import Row

FEATURES = {"n_fft": 64, "n_mels": 8}


def wav2vec2(norm: str, norm_first: bool) -> torch.nn.Module:
  layers = [(16, 10, 5), (16, 3, 2)]
  transformer = (32, 0.1, 15, 4, 2, 4, 0.1, 48, 0.1, 0.1, norm_first, 0.0)
  return models.wav2vec2_model(norm, layers, True, *transformer, 10)


def wave_rnn() -> torch.nn.Module:
  small = dict.fromkeys(("n_rnn", "n_fc", "n_hidden", "n_output"), 16)
  return models.WaveRNN(
    [2, 2, 3], n_classes=10, hop_length=12, n_res_block=2, kernel_size=5, n_freq=8, **small
  )


def tacotron2() -> torch.nn.Module:
  names = ("symbol_embedding", "encoder_embedding", "attention_rnn", "decoder_rnn")
  small = {f"{name}_dim": 16 for name in (*names, "postnet_embedding")}
  attention = {"attention_location_n_filter": 4, "attention_location_kernel_size": 5}
  return models.Tacotron2(
    n_symbol=20, n_mels=8, prenet_dim=8, attention_hidden_dim=8, **small, **attention
  )


def rnnt() -> torch.nn.Module:
  encoder = {"input_dim": 16, "encoding_dim": 16, "num_symbols": 12, "segment_length": 4}
  reduced = {"right_context_length": 1, "time_reduction_input_dim": 8, "time_reduction_stride": 2}
  transformer = {
    "num_heads": 2,
    "ffn_dim": 16,
    "num_layers": 2,
    "dropout": 0.1,
    "activation": "gelu",
    "left_context_length": 5,
    "max_memory_size": 0,
    "weight_init_scale_strategy": "depthwise",
    "tanh_on_mem": True,
  }
  predictor = {"symbol_embedding_dim": 8, "num_lstm_layers": 2, "lstm_layer_norm": True}
  return models.emformer_rnnt_model(
    **encoder,
    **reduced,
    **{f"transformer_{name}": value for name, value in transformer.items()},
    **predictor,
    lstm_layer_norm_epsilon=1e-3,
    lstm_dropout=0.1,
  )


def squim() -> torch.nn.Module:
  return models.squim_objective_model(
    feat_dim=32,
    win_len=16,
    d_model=16,
    nhead=2,
    hidden_dim=16,
    num_blocks=1,
    rnn_type="LSTM",
    chunk_size=11,
  )


def normal(*shape: int) -> Callable[[], torch.Tensor]:
  return lambda: torch.randn(*shape)


def symbols(most: int, *shape: int) -> Callable[[], torch.Tensor]:
  return lambda: torch.randint(0, most, shape)


def lengths(*values: int) -> Callable[[], torch.Tensor]:
  return lambda: torch.tensor(values)


def wave() -> torch.Tensor:
  """Half a second of noise that begins after a quarter of one. Zeros have no sign: a phase vocoder
  asks for the angle of their transform, and that of -0 is pi."""
  return torch.where(torch.arange(8000) > 4000, torch.randn(1, 8000) * 0.3, 0.0)


def pitch_shift() -> torch.nn.Module:
  shift = transforms.PitchShift(16000, n_steps=2, n_fft=64)
  shift(wave())  # makes its kernel
  return shift


# name: what makes the model, what makes each of its inputs
MODELS: dict[str, tuple[Callable[[], torch.nn.Module], tuple[Callable[[], Any], ...]]] = {
  "conformer": (
    lambda: models.Conformer(16, 4, 32, 2, depthwise_conv_kernel_size=7),
    (normal(2, 20, 16), lengths(20, 13)),
  ),
  "wav2vec2": (lambda: wav2vec2("layer_norm", True), (normal(2, 400),)),
  "mel_spectrogram": (
    lambda: torch.nn.Sequential(transforms.MelSpectrogram(**FEATURES), transforms.AmplitudeToDB()),
    (wave,),
  ),
  "conv_tasnet": (
    lambda: models.ConvTasNet(
      enc_num_feats=32,
      msk_num_feats=16,
      msk_num_hidden_feats=32,
      msk_num_layers=2,
      msk_num_stacks=2,
    ),
    (normal(2, 1, 400),),
  ),
  "deep_speech": (
    lambda: models.DeepSpeech(n_feature=16, n_hidden=32, n_class=10),
    (normal(2, 1, 20, 16),),
  ),
  "emformer": (
    lambda: models.Emformer(16, 4, 32, 2, segment_length=4, right_context_length=1),
    (normal(2, 13, 16), lengths(12, 9)),
  ),
  "hybrid_demucs": (
    lambda: models.HDemucs(["drums", "voice"], channels=8),
    (normal(1, 2, 20000),),
  ),
  "wav2vec2_lengths": (lambda: wav2vec2("group_norm", False), (normal(2, 400), lengths(400, 300))),
  "wav2letter": (
    lambda: models.Wav2Letter(num_classes=10, input_type="mfcc", num_features=13),
    (normal(1, 13, 64),),
  ),
  "wave_rnn": (wave_rnn, (normal(1, 1, 72), normal(1, 1, 8, 10))),
  "tacotron2": (tacotron2, (symbols(20, 2, 7), lengths(7, 5), normal(2, 8, 6), lengths(6, 4))),
  "rnnt": (rnnt, (normal(1, 13, 16), lengths(12), symbols(12, 1, 4), lengths(4))),
  "squim_objective": (squim, (normal(1, 800),)),
  "mfcc": (lambda: transforms.MFCC(n_mfcc=5, melkwargs=FEATURES), (wave,)),
  "lfcc": (
    lambda: transforms.LFCC(n_filter=8, n_lfcc=5, speckwargs={"n_fft": 64}),
    (wave,),
  ),
  "resample": (lambda: transforms.Resample(16000, 11025), (wave,)),
  "spectral_centroid": (lambda: transforms.SpectralCentroid(16000, n_fft=64), (normal(1, 8000),)),
  "pitch_shift": (pitch_shift, (wave,)),
  "loudness": (lambda: transforms.Loudness(16000), (normal(1, 16000),)),
  "voice_activity": (lambda: transforms.Vad(16000), (wave,)),
  "griffin_lim": (
    lambda: transforms.GriffinLim(n_fft=64, n_iter=4, rand_init=False),
    (lambda: torch.rand(1, 33, 40),),
  ),
  "beamforming": (
    lambda: transforms.MVDR(),
    (lambda: torch.randn(3, 10, 20, dtype=torch.complex128), lambda: torch.rand(10, 20)),
  ),
}


def rows() -> list[Row]:
  return [
    Row("torchaudio", name, build, lambda _, inputs=inputs: (tuple(one() for one in inputs), {}))
    for name, (build, inputs) in MODELS.items()
  ]
