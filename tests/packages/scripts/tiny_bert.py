"""A BERT of random weights with a tokenizer of some words, for packages that open a folder of Hugging Face's form."""

from pathlib import Path

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
TEXTS = ["the device runs networks", "a cat", "any model is fast on any kernel for the query of a dog"]
WORDS = sorted({word for text in TEXTS for word in text.split()})


def save(folder: Path) -> None:
    torch.manual_seed(0)
    words = {w: i for i, w in enumerate(SPECIAL + WORDS)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, model_max_length=64, **dict(zip(names, SPECIAL, strict=True))
    )
    fast.save_pretrained(folder)
    sizes = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96}
    BertModel(BertConfig(len(words), max_position_embeddings=64, **sizes)).eval().save_pretrained(folder)
