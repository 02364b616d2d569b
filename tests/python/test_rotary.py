"""Rotary embeddings whose frequencies transformers chooses by the largest position of a call."""

import sys
import types

import language_model
import pytest
import torch
from husk.language import exporting, rotary
from language_model import HEAD, HEADS, VOCABULARY

SHORT = 20  # tokens of the longest text with the frequencies for short ones


class Rotary(torch.nn.Module):
  """As transformers, with the kind \"longrope\"."""

  def __init__(self):
    super().__init__()
    fields = {"original_max_position_embeddings": SHORT}
    self.rope_type, self.config = "longrope", types.SimpleNamespace(rope_parameters=fields)
    self.register_buffer("inv_freq", torch.linspace(0.1, 1, HEADS * HEAD), persistent=False)

  def forward(self, x, position_ids):
    if self.rope_type == "longrope":
      is_long = position_ids.max() + 1 > SHORT
      self.inv_freq.copy_(torch.linspace(0.1, 1, HEADS * HEAD) * torch.where(is_long, 0.5, 1.0))
    return (position_ids[..., None] * self.inv_freq).cos()


class ChoosesByLength(language_model.Decoder):
  def __init__(self):
    super().__init__()
    self.rotary = Rotary()

  def hidden(self, input_ids, position_ids=None, use_cache=None, cache=None):
    if position_ids is None:
      position_ids = torch.arange(input_ids.shape[1])[None]
    x = super().hidden(input_ids, position_ids, use_cache, cache)
    return x + self.rotary(x, position_ids)


@pytest.fixture
def model(monkeypatch):
  for name, module in language_model.stand_in().items():
    monkeypatch.setitem(sys.modules, name, module)
  torch.manual_seed(0)
  return ChoosesByLength().eval()


def right(model, tokens):
  with torch.no_grad():
    return model(tokens[None]).logits[0, -1]


TOKENS = torch.arange(30) * 31 % VOCABULARY


def test_a_slot_that_takes_no_part_changes_no_frequencies(model):
  """Its position is `max_tokens`, at which a text would be a long one."""
  with exporting.decoder_of(model, 2, SHORT, None) as module, torch.no_grad():
    module.prefill(TOKENS[:3], 0, 0, 3)
    _, found = module.decode(TOKENS[3:5], torch.tensor([3, SHORT]), SHORT)
  torch.testing.assert_close(found[0], right(model, TOKENS[:4]))


def test_all_tokens_of_a_long_text_have_the_same_frequencies(model, caplog):
  with exporting.decoder_of(model, 2, 40, None) as module, torch.no_grad():
    module.prefill(TOKENS[:15], 0, 0, 15)  # a chunk in which no position is one of a long text
    _, found = module.prefill(TOKENS[15:25], 0, 15, 25)
    module.prefill(TOKENS[:3], 1, 0, 3)
    alone = module.prefill(TOKENS[3:5], 1, 3, 5)[1][0]
    _, together = module.decode(TOKENS[[25, 4]], torch.tensor([25, 4]), 40)
  torch.testing.assert_close(found[0], right(model, TOKENS[:25]))
  torch.testing.assert_close(together[0], right(model, TOKENS[:26]))
  torch.testing.assert_close(together[1], alone)
  assert "max_tokens=40: all texts have the rotary frequencies of texts of more than 20" in (
    caplog.text
  )


def test_a_model_has_its_own_choice_afterwards(model):
  before = model.rotary.inv_freq.clone()
  with pytest.raises(KeyError), rotary.chosen(model, 40):
    assert model.rotary.rope_type == "default"
    raise KeyError  # an error of an export
  assert model.rotary.rope_type == "longrope" and (model.rotary.inv_freq == before).all()
