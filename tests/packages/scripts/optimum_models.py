"""Features, and greedy and beam-searched text, by optimum's ONNX models."""

import sys
import tempfile
from pathlib import Path

import numpy as np
import tiny_bert
import torch
from optimum.onnxruntime import ORTModelForCausalLM, ORTModelForFeatureExtraction
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

with tempfile.TemporaryDirectory() as folder:
    bert, llama = Path(folder, "bert"), Path(folder, "llama")
    tiny_bert.save(bert)
    tokens = AutoTokenizer.from_pretrained(bert)(tiny_bert.TEXTS, padding=True, return_tensors="pt")
    features = ORTModelForFeatureExtraction.from_pretrained(bert, export=True)(**tokens).last_hidden_state
    torch.manual_seed(1)
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    LlamaForCausalLM(LlamaConfig(vocab_size=97, num_key_value_heads=2, **sizes)).eval().save_pretrained(llama)
    decoder = ORTModelForCausalLM.from_pretrained(llama, export=True)
    prompt = torch.tensor([[5, 17, 42, 8], [9, 3, 77, 21]])
    masked = {"attention_mask": torch.ones_like(prompt), "pad_token_id": 0, "eos_token_id": None, "max_new_tokens": 24}
    greedy = decoder.generate(prompt, do_sample=False, **masked)
    beams = decoder.generate(prompt, do_sample=False, num_beams=3, **masked)
    logits = decoder(input_ids=prompt, attention_mask=masked["attention_mask"]).logits
    np.savez(sys.argv[1], features=features.numpy(), greedy=greedy.numpy(), beams=beams.numpy(), logits=logits.numpy())
