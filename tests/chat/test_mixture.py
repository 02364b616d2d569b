"""A mixture of experts whose checkpoint has floats, exported with codes of 4 bits."""

import husk.language
import husk.text
import torch
import transformers
from husk import quantized


def test_experts_are_codes_in_the_file(tmp_path):
  config = transformers.Qwen3MoeConfig(
    vocab_size=256,
    hidden_size=64,
    intermediate_size=128,
    moe_intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=16,
    num_experts=8,
    num_experts_per_tok=2,
    max_position_embeddings=128,
  )
  torch.manual_seed(0)
  folder, path = tmp_path / "checkpoint", tmp_path / "model.husk"
  transformers.Qwen3MoeForCausalLM(config).save_pretrained(folder)
  husk.language.export(
    folder, path, quantize="int4", targets=("host:avx2",), max_tokens=64, features=()
  )
  model = quantized.load(folder, quantize="int4")
  assert model.model.layers[0].mlp.experts.gate_up_proj_quantized.bits == 4
  constants = husk.inspect(path).constants
  assert [one.dtype for one in constants if "experts" in one.name and "codes" in one.name] == (
    ["u8"] * 4
  )
  tokens = [7 * at % 256 for at in range(40)]
  with torch.no_grad():
    logits = model(torch.tensor([tokens]), use_cache=False).logits[0, :-1].double()
  right = logits.log_softmax(-1).gather(1, torch.tensor(tokens[1:])[:, None])[:, 0]
  found = torch.from_numpy(husk.text.load(path).score(tokens)).double()
  torch.testing.assert_close(found, right, rtol=0, atol=1e-4)
