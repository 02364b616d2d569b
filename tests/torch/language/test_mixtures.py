"""The form of transformers in which a step of a mixture of experts is exported."""

import types

import pytest
from husk.language import mixtures
from torch import nn


class Config(types.SimpleNamespace):
  def get_text_config(self):
    return self


class Experts(nn.Module):
  def __init__(self, config, count):
    super().__init__()
    self.config, self.num_experts = config, count


def model_of(count, chosen=2, form="grouped_mm"):
  model = nn.Module()
  model.config = Config(num_experts_per_tok=chosen, _experts_implementation=form)
  model.layers = nn.ModuleList([Experts(model.config, count), nn.Linear(2, 2)])
  return model


@pytest.mark.parametrize(
  "model, slots, form",
  [
    (model_of(8), 1, "batched_mm"),
    (model_of(8), 2, "batched_mm"),
    (model_of(8), 3, "grouped_mm"),  # more than half of the experts may be chosen
    (model_of(8, form="eager"), 1, "eager"),  # which the user has chosen
    (model_of(None), 1, "grouped_mm"),
    (model_of(8, chosen=None), 1, "grouped_mm"),
  ],
)
def test_the_form_of_a_step(model, slots, form):
  before = model.config._experts_implementation
  with pytest.raises(KeyError), mixtures.of_a_step(model, slots):
    assert model.config._experts_implementation == form
    raise KeyError  # an error in the model
  assert model.config._experts_implementation == before
