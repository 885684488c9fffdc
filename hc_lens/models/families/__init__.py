"""The supported families, one description each, and why some others are not among them."""

from collections.abc import Mapping

from hc_lens.models.architecture import Architecture
from hc_lens.models.families.bert import BERT, ROBERTA
from hc_lens.models.families.distilbert import DISTILBERT
from hc_lens.models.families.electra import ELECTRA
from hc_lens.models.families.gpt2 import GPT2
from hc_lens.models.families.gpt_neox import GPT_NEOX
from hc_lens.models.families.llama import LLAMA, QWEN2

ARCHITECTURES: Mapping[str, Architecture] = {
    architecture.family: architecture for architecture in (BERT, ROBERTA, DISTILBERT, ELECTRA, GPT2, GPT_NEOX, LLAMA, QWEN2)
}
SUPPORTED: tuple[str, ...] = tuple(ARCHITECTURES)

_CROSS_ATTENTION = "it has an encoder and a decoder with cross-attention, and a hooked classifier is one stack of blocks"
_DISENTANGLED = (
    "its disentangled attention adds scores between content and relative positions, and HookedEncoder has no place for them"
)
_REFUSED: Mapping[str, str] = {
    "mpnet": "it adds a relative position bias to the attention scores, and HookedEncoder has no place for one",
    "deberta": _DISENTANGLED,
    "deberta-v2": _DISENTANGLED,
    "t5": _CROSS_ATTENTION,
    "mt5": _CROSS_ATTENTION,
    "bart": _CROSS_ATTENTION,
    "albert": "its layers share one block's weights, so that they could not be fine-tuned or exported as separate blocks",
    "xlnet": "its attention has relative positions and two streams, and HookedEncoder has no place for them",
}


def architecture_of(model_type: str | None, source: str) -> Architecture:
    """The description of the family that `model_type` names.

    Raises:
        ValueError: naming the type, why it cannot be done where that is known, and the supported ones.
    """
    if model_type is not None and model_type in ARCHITECTURES:
        return ARCHITECTURES[model_type]
    reason = None if model_type is None else _REFUSED.get(model_type)
    because = "" if reason is None else f": {reason}"
    raise ValueError(f"{source}: model type {model_type!r} is not supported{because}; supported are {', '.join(SUPPORTED)}")
