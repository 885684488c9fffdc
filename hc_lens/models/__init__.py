"""Hooked classifiers from transformers models, and back. Importing this module imports TransformerLens (about 5 s)."""

from hc_lens.models.architecture import Architecture, DropoutRates
from hc_lens.models.classifier import Classifier, DecoderClassifier, EncoderClassifier, Remains
from hc_lens.models.compact import Cut, compacted, compacting_pays, zeroed
from hc_lens.models.compact_files import load_compact, save_compact
from hc_lens.models.export import save_pretrained
from hc_lens.models.families import SUPPORTED
from hc_lens.models.fingerprint import fingerprint
from hc_lens.models.fused import fused
from hc_lens.models.inputs import TokenBatch
from hc_lens.models.language import LanguageModel, classifier_of, load_language_model, new_language_model, smollm2_file
from hc_lens.models.load import load_model, minilm_directory, new_model

__all__ = [
    "SUPPORTED",
    "Architecture",
    "Classifier",
    "Cut",
    "DecoderClassifier",
    "DropoutRates",
    "EncoderClassifier",
    "LanguageModel",
    "Remains",
    "TokenBatch",
    "classifier_of",
    "compacted",
    "compacting_pays",
    "fingerprint",
    "fused",
    "load_compact",
    "load_language_model",
    "load_model",
    "minilm_directory",
    "new_language_model",
    "new_model",
    "save_compact",
    "save_pretrained",
    "smollm2_file",
    "zeroed",
]
