"""An untrained language model that knows some words, and a relation that the last word of each subject gives away."""

from pathlib import Path

from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import LlamaConfig, PreTrainedTokenizerFast

from hc_lens.models.language import LanguageModel, new_language_model
from hc_lens.relations.labels import CATEGORIES

KINDS = {"river": "water", "lake": "water", "peak": "land", "hill": "land"}
"""The last word of a subject, and its answer."""

SUBJECTS = tuple(f"name{number} {kind}" for number in range(8) for kind in KINDS)


def language_model() -> LanguageModel:
    """Two blocks, and a word a token: those of the subjects, of a prompt, and of all animals."""
    words = [word for subject in SUBJECTS for word in subject.split()]
    vocabulary = dict.fromkeys(["[PAD]", "[UNK]", *words, "is", "->", *CATEGORIES["animals"]])
    tokenizer = Tokenizer(WordLevel({word: place for place, word in enumerate(vocabulary)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    config = LlamaConfig(
        vocab_size=len(vocabulary),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=32,
        pad_token_id=0,
        bos_token_id=None,
        eos_token_id=None,
        initializer_range=0.3,
    )
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]")
    return new_language_model(config, fast)


def table_file(folder: Path) -> Path:
    """The relation as a CSV file."""
    file = folder / "terrain.csv"
    file.write_text("\n".join(["subject,answer", *(f"{subject},{KINDS[subject.split()[1]]}" for subject in SUBJECTS)]))
    return file
