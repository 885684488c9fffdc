"""Which weights a model has, as one hash."""

import hashlib

import torch
from torch import nn

from hc_lens.models.finite import require_values


def fingerprint(model: nn.Module) -> str:
    """SHA-256 over names, types, shapes and bytes of the parameters; the same on every device (about 1 s per 2 GB).

    Raises:
        ValueError: for a model on the meta device.
    """
    parameters = dict(model.named_parameters())
    require_values(parameters, type(model).__name__)
    digest = hashlib.sha256()
    for name, parameter in sorted(parameters.items()):
        value = parameter.detach().cpu().contiguous()
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
        digest.update(memoryview(value.reshape(-1).view(torch.uint8).numpy()))  # pyright: ignore[reportArgumentType]
    return digest.hexdigest()
