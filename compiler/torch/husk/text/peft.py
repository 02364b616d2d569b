"""What an adapter of PEFT may have that Husk refuses. Written by schema/adapters.py from
adapters.def.

SETTINGS are those of adapter_config.json, and TENSORS parts of the names of tensors, with what they
give an adapter. INITIAL are beginnings of init_lora_weights by which the weights of the model have
changed.
"""

SETTINGS = {
  "use_dora": "DoRA",
  "modules_to_save": "layers of its own",
  "lora_bias": "biases",
  "layer_replication": "copies of layers",
  "target_parameters": "changes of parameters that are no layers",
  "trainable_token_indices": "tokens of its own",
  "alora_invocation_tokens": "a beginning within the text",
  "use_qalora": "pooled inputs",
  "use_bdlora": "matrices of blocks",
  "arrow_config": "a router",
  "kasa_config": "singular values",
  "monteclora_config": "random samples",
}
TENSORS = {
  "lora_magnitude_vector": "DoRA",
  "lora_embedding_": "matrices of an embedding",
  "lora_B.bias": "biases (lora_bias)",
}
INITIAL = ("pissa", "olora", "corda", "loftq", "lora_ga")
