"""Classifiers whose ablated heads and MLPs are gone, each one's constant stand-in folded into the output bias beside it.

A head that always gives mu adds mu W_O to the residual stream, and an ablated MLP adds its stand-in: both are constants, which
the output biases of attention and MLP can hold. What is left of a block is a block with fewer heads or a narrower MLP, so that
hooks and `fused` treat a compact model like any other classifier.
"""

import copy
from collections.abc import Callable, Mapping
from typing import NamedTuple, cast

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from transformer_lens.components.abstract_attention import AbstractAttention
from transformer_lens.components.bert_block import BertBlock
from transformer_lens.components.transformer_block import TransformerBlock
from transformers import PretrainedConfig, PreTrainedTokenizerBase

from hc_lens.models.architecture import Architecture
from hc_lens.models.classifier import Classifier, Remains, classifier_class
from hc_lens.models.fused_blocks import listened_to
from hc_lens.provenance import Provenance
from hc_lens.units import Head, Mlp, Unit

_OF_HEADS = ("W_Q", "b_Q", "W_O")
_OF_GROUPS = ("W_K", "b_K", "W_V", "b_V")
"""Once for each head, or for each group of heads that shares them: TransformerLens then puts an underscore in front."""
_HIDDEN_AXIS = {"W_in": 1, "b_in": 0, "W_gate": 1, "W_out": 0}
"""An MLP's tensors, and the axis of its hidden units in each."""


class Cut(NamedTuple):
    """Which units of a model stay, and the constant activation that stands in for each unit that does not."""

    units: frozenset[Unit]
    head: Float[Tensor, "layer head d_head"]
    mlp: Float[Tensor, "layer d_model"]


def compacted(model: Classifier, cut: Cut, provenance: Provenance) -> Classifier:
    """The model without the units that do not stay, in eval mode.

    Its logits are the model's with the stand-ins at `hook_z` and `hook_mlp_out`. It shares the memory of what stays whole.
    """
    remains = Remains(cut.units, provenance)
    twin = skeleton(model.architecture, model.hf_config, model.label_names, model.tokenizer, model.cfg.dtype, remains)
    return _filled(twin, model, _cut_weights(model.state_dict(), cut, _take))


def zeroed(model: Classifier, cut: Cut) -> Classifier:
    """The same logits in shapes that transformers can hold: zeros where units are gone.

    Where it is the config's choice whether output projections have a bias, and one is needed, they get it.

    Raises:
        ValueError: when a stand-in is not zero and transformers has no bias to hold it, naming the family and the parts.
    """
    weights = _cut_weights(model.state_dict(), cut, _blank)
    config = _with_biases(model, weights)
    return _filled(skeleton(model.architecture, config, model.label_names, model.tokenizer, model.cfg.dtype), model, weights)


def compacting_pays(model: Classifier, units: frozenset[Unit], tokens: int) -> bool:
    """Whether a compact model with these units saves more time over `tokens` tokens than building it takes.

    Never while hooks listen in `model`: a compact model would not have them.
    """
    if any(listened_to(point) for point in model.hook_points()):
        return False
    # A token costs one multiplication per weight of the blocks; building (fused weights included) takes as long as 5e8 of them
    # and 50 for each weight, as measured on two cores with AVX-512. Twice that is asked for, since others multiply up to three
    # times as fast, or in bfloat16, and do not build faster. Operations are counted and nothing is timed, so that the
    # same call takes the same way everywhere: compact and gated models differ in their last bits.
    n_layers, n_heads = model.cfg.n_layers, model.cfg.n_heads
    attn, mlp = (_size(part) for part in (_blocks(model)[0].attn, _blocks(model)[0].mlp))
    heads = sum(isinstance(unit, Head) for unit in units)
    gone = (n_layers * n_heads - heads) * attn / n_heads + (n_layers - (len(units) - heads)) * mlp
    return tokens * gone > 1e9 + 100 * n_layers * (attn + mlp)


def skeleton(
    architecture: Architecture,
    config: PretrainedConfig,
    labels: tuple[str, ...],
    tokenizer: PreTrainedTokenizerBase | None,
    dtype: torch.dtype,
    remains: Remains | None = None,
) -> Classifier:
    """A classifier with room for the weights of the units that remain, or of all: load a full state dict into it."""
    with torch.random.fork_rng(devices=[]):  # torch's layers draw first weights, which are never used
        model = classifier_class(architecture)(architecture, config, labels, tokenizer)
    model.cfg.dtype = dtype  # before blocks that shrink get a config of their own
    model.remains = remains
    if remains is not None:
        for layer, block in enumerate(_blocks(model)):
            _shrink_attention(block.attn, _heads_left(remains.units, layer, model.cfg.n_heads))
            if Mlp(layer) not in remains.units:
                _shrink_mlp(block.mlp)
    return model.to(dtype).eval()  # position tables and constant biases as well


def _filled(twin: Classifier, model: Classifier, weights: Mapping[str, Tensor]) -> Classifier:
    twin.load_state_dict(weights, assign=True)
    twin.pad_id = model.pad_id
    return twin.to(model.classifier.weight.device)


def _blocks(model: Classifier) -> list[BertBlock | TransformerBlock]:
    return cast("list[BertBlock | TransformerBlock]", list(cast(nn.ModuleList, model.blocks)))


def _size(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


_Cutting = Callable[[Tensor, int, Tensor], Tensor]
"""From a tensor, an axis and which entries along it stay to the tensor without the others."""


def _take(tensor: Tensor, axis: int, stays: Tensor) -> Tensor:
    return tensor.index_select(axis, stays.nonzero().flatten())


def _blank(tensor: Tensor, axis: int, stays: Tensor) -> Tensor:
    return tensor.masked_fill(~stays.unflatten(0, (-1, *[1] * (tensor.ndim - axis - 1))), 0)


def _cut_weights(state: Mapping[str, Tensor], cut: Cut, cutting: _Cutting) -> dict[str, Tensor]:
    """The state dict after the cut; tensors that lose nothing are the same objects."""
    weights = dict(state)
    n_layers, n_heads, _ = cut.head.shape
    for layer in range(n_layers):
        heads = _heads_left(cut.units, layer, n_heads)
        if not heads.all():
            weights |= _cut_attention(state, f"blocks.{layer}.attn", heads, cut.head[layer], cutting)
        if Mlp(layer) not in cut.units:
            weights |= _cut_mlp(state, f"blocks.{layer}.mlp", cut.mlp[layer], cutting)
    return weights


def _cut_attention(
    state: Mapping[str, Tensor],
    attn: str,
    heads: Bool[Tensor, " head"],
    stand_ins: Float[Tensor, "head d_head"],
    cutting: _Cutting,
) -> dict[str, Tensor]:
    mark = "" if f"{attn}.W_K" in state else "_"
    groups = heads.view(len(state[f"{attn}.{mark}W_K"]), -1).any(1)
    staying = {**dict.fromkeys(_OF_HEADS, heads), **{f"{mark}{name}": groups for name in _OF_GROUPS}}
    W_O, b_O = state[f"{attn}.W_O"], state[f"{attn}.b_O"]
    gone = ~heads.to(W_O.device)
    always = torch.einsum("hd,hdm->m", stand_ins.to(W_O.device)[gone].float(), W_O[gone].float())
    cut = {f"{attn}.{name}": cutting(state[f"{attn}.{name}"], 0, stays.to(W_O.device)) for name, stays in staying.items()}
    return {**cut, f"{attn}.b_O": (b_O + always).to(b_O.dtype)}


def _cut_mlp(
    state: Mapping[str, Tensor], mlp: str, stand_in: Float[Tensor, " d_model"], cutting: _Cutting
) -> dict[str, Tensor]:
    cut = {f"{mlp}.b_out": stand_in.to(state[f"{mlp}.b_out"])}
    for name, axis in _HIDDEN_AXIS.items():
        if (tensor := state.get(f"{mlp}.{name}")) is not None:
            one = torch.arange(tensor.shape[axis], device=tensor.device) == 0  # see _shrink_mlp
            cut[f"{mlp}.{name}"] = torch.zeros_like(cutting(tensor, axis, one))
    return cut


def _heads_left(units: frozenset[Unit], layer: int, n_heads: int) -> Bool[Tensor, " head"]:
    return torch.tensor([Head(layer, index) in units for index in range(n_heads)])


def _shrink_attention(attn: AbstractAttention, heads: Bool[Tensor, " head"]) -> None:
    """Make room for these heads only. Attention without any gives its output bias."""
    if heads.all():
        return
    cfg = attn.cfg = copy.copy(attn.cfg)
    grouped = cfg.n_key_value_heads
    members = heads.view(grouped or cfg.n_heads, -1).sum(1)
    members = members[members > 0]
    cfg.n_heads = int(members.sum())
    if grouped is not None:
        cfg.n_key_value_heads = len(members)
        # of each group, since they may have lost different numbers: repeat_interleave takes this, too
        del attn.repeat_kv_heads
        attn.register_buffer("repeat_kv_heads", members, persistent=False)
    for name in _OF_HEADS:
        _narrow(attn, name, 0, cfg.n_heads)
    for name in _OF_GROUPS:
        _narrow(attn, name if grouped is None else f"_{name}", 0, len(members))
    _make_weight(attn, "b_O")


def _shrink_mlp(mlp: nn.Module) -> None:
    """Make an MLP that gives its output bias: one hidden unit, to be filled with zeros.

    None at all would be more to the point, but TransformerLens's product cannot reshape an axis of size zero.
    """
    for name, axis in _HIDDEN_AXIS.items():
        if hasattr(mlp, name):
            _narrow(mlp, name, axis, 1)
    _make_weight(mlp, "b_out")


def _narrow(module: nn.Module, name: str, axis: int, n: int) -> None:
    tensor = cast(Tensor, getattr(module, name))
    narrow = tensor.detach().narrow(axis, 0, n)
    setattr(module, name, nn.Parameter(narrow) if isinstance(tensor, nn.Parameter) else narrow)


def _make_weight(module: nn.Module, name: str) -> None:
    """Make a parameter of a bias that transformers does not have in this family, now that it holds something."""
    tensor = cast(Tensor, getattr(module, name))
    delattr(module, name)
    setattr(module, name, nn.Parameter(tensor.detach()))


def _with_biases(model: Classifier, weights: Mapping[str, Tensor]) -> PretrainedConfig:
    config = copy.deepcopy(model.hf_config)
    needed = {
        part: [name for name in (f"blocks.{layer}.{part}.{bias}" for layer in range(model.cfg.n_layers)) if weights[name].any()]
        for part, bias in (("attn", "b_O"), ("mlp", "b_out"))
    }
    for part, flag in model.architecture.bias_flags.items():
        if needed[part]:
            setattr(config, flag, True)
    held = {name for entry in model.architecture.entries(config) for name in entry.ours}
    if lost := [name for names in needed.values() for name in names if name not in held]:
        raise ValueError(
            f"{model.family} models have no bias in transformers for what ablated units always add ({', '.join(lost[:4])}): "
            "export with format='compact', or ablate with zeros (ActivationMeans.collect(..., kind='zero'))"
        )
    return config
