"""Hooked classifiers from transformers models, and back. Importing this module imports TransformerLens (about 5 s)."""

from hc_lens.models.architecture import Architecture, DropoutRates
from hc_lens.models.classifier import Classifier, DecoderClassifier, EncoderClassifier
from hc_lens.models.export import save_pretrained
from hc_lens.models.families import SUPPORTED
from hc_lens.models.fingerprint import fingerprint
from hc_lens.models.fused import fused
from hc_lens.models.inputs import TokenBatch
from hc_lens.models.load import load_model, minilm_directory, new_model

__all__ = [
    "SUPPORTED",
    "Architecture",
    "Classifier",
    "DecoderClassifier",
    "DropoutRates",
    "EncoderClassifier",
    "TokenBatch",
    "fingerprint",
    "fused",
    "load_model",
    "minilm_directory",
    "new_model",
    "save_pretrained",
]
