"""What a model knows of each subject before fine-tuning: the residual stream at one token, after every block."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformer_lens.hook_points import HookPoint

from hc_lens.forward import device_of, inference
from hc_lens.hooks import Edit, hooked
from hc_lens.models.language import LanguageModel
from hc_lens.precision import Precision
from hc_lens.relations.config import Place
from hc_lens.relations.prompts import Prompts


@dataclass(frozen=True, eq=False)
class Representations:
    """The residual stream of each prompt at one token.

    Attributes:
        at: which token.
        resid: on the CPU, in float32; layer 0 is the embedding, layer l what block l - 1 leaves, without the final norm. So the
            axis is one longer than the model has blocks.
    """

    at: Place
    resid: Float[Tensor, "layer fact d_model"]


def representations(
    model: LanguageModel,
    prompts: Prompts,
    at: Place = "subject",
    batch_size: int = 64,
    precision: Precision = "fp32",
) -> Representations:
    """The residual stream at the subjects' last token (or the prompts'), without gradients (step 4 of the protocol).

    Prompts of similar length share a batch; what comes after the token is left out, as causal attention does not see it.
    `precision` is that of matrix products and attention.

    Raises:
        ValueError: for a batch_size below 1.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, got {batch_size}")
    places = prompts.subject_last if at == "subject" else prompts.last
    n_layers, device = model.cfg.n_layers, device_of(model)
    resid = torch.empty(n_layers + 1, len(prompts), model.cfg.d_model)
    with inference(model, precision):
        for rows in places.argsort(stable=True).split(batch_size):
            ids = prompts.ids[rows, : int(places[rows].max()) + 1].to(device)
            seen: list[Tensor] = []
            points = ["blocks.0.hook_resid_pre", *(f"blocks.{layer}.hook_resid_post" for layer in range(n_layers))]
            keep = _kept_in(seen, places[rows].to(device))
            with hooked(model, [Edit(point, keep) for point in points]):
                model(ids, stop_at_layer=n_layers)
            resid[:, rows] = torch.stack(seen).float().cpu()
    return Representations(at, resid)


def _kept_in(seen: list[Tensor], at: Int[Tensor, " batch"]) -> Callable[..., Tensor]:
    def keep(activation: Tensor, hook: HookPoint) -> Tensor:
        seen.append(activation[torch.arange(len(at), device=at.device), at])
        return activation

    return keep
