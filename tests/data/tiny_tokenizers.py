"""Tokenizers of the three pair formats, with vocabularies of a few hundred tokens."""

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import BertTokenizerFast, GPT2TokenizerFast, PreTrainedTokenizerFast, RobertaTokenizerFast

BYTES = sorted(pre_tokenizers.ByteLevel.alphabet())
WORDS = ("the", "a", "judge", "lawyer", "saw", "slept", "near", "##s", "##ed", ".", *"abcdefghij")


def bert() -> PreTrainedTokenizerFast:
    """`[CLS] A [SEP] B [SEP]` with token types."""
    special = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    return BertTokenizerFast(vocab={token: i for i, token in enumerate((*special, *WORDS))})


def roberta() -> PreTrainedTokenizerFast:
    """`<s> A </s></s> B </s>` without token types; the pad token is not 0."""
    special = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
    return RobertaTokenizerFast(vocab={token: i for i, token in enumerate((*special, *BYTES))}, merges=[])


def gpt2() -> PreTrainedTokenizerFast:
    """No pair template, no separator, no pad token: one token a byte."""
    return GPT2TokenizerFast(vocab={token: i for i, token in enumerate((*BYTES, "<|endoftext|>"))}, merges=[])


def with_start_token() -> PreTrainedTokenizerFast:
    """Like Llama's: a start token before every text, none between the texts of a pair."""
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate((*BYTES, "<s>", "</s>"))}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", tokenizer.token_to_id("<s>"))]
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")
