"""The type of matrix products and attention: what may be asked for, what `auto` comes to on this machine, where a run keeps it.

Asked for is `auto`, `fp32` or `bf16`; computed in is one of the last two. A run's specification holds what was asked for. What
`auto` came to lies beside it in `precision.json`, is decided once, and holds for whoever goes on with the run, on any machine.
"""

import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

if TYPE_CHECKING:
    import torch
    from torch import nn

    from hc_lens.machine import Products
    from hc_lens.runs import Run

Precision = Literal["auto", "fp32", "bf16"]
"""Of matrix products and attention; the residual stream, LayerNorm, losses and scores are always fp32. `auto` is bf16 where the
model's products are at least `FASTER` times as fast in it as in fp32 on the device in use, else fp32."""

Kind = Literal["fp32", "bf16"]
"""A precision that something is computed in."""

FASTER = 1.3


@dataclass(frozen=True)
class Resolved:
    """What `auto` came to on a device.

    `speedup` says how many times faster products were in bf16 than in fp32; None on a GPU, which is asked whether it has
    bfloat16 of its own.
    """

    precision: Kind
    speedup: float | None
    device: str

    def __str__(self) -> str:
        if self.speedup is None:
            return f"{self.precision} ({self.device} {'has' if self.precision == 'bf16' else 'lacks'} bfloat16 of its own)"
        return f"{self.precision} (products in bf16 {_times(self.speedup)} fp32 on {self.device})"


def require_precision(asked: str) -> None:
    """Check a configuration's field.

    Raises:
        ValueError: for anything but `auto`, `fp32` and `bf16`.
    """
    if asked not in get_args(Precision):
        raise ValueError(f"precision must be one of {', '.join(get_args(Precision))}, got {asked!r}")


def choose(products: "Callable[[], Products]", device: "torch.device") -> Resolved:
    """What `auto` comes to on a device, for a model of these products; timed once per process and shape."""
    import torch

    from hc_lens import machine

    if device.type == "cuda":
        with torch.cuda.device(device):
            native = torch.cuda.is_bf16_supported(including_emulation=False)
        return Resolved("bf16" if native else "fp32", None, torch.cuda.get_device_name(device))
    speedup = machine.bf16_speedup(products())
    return Resolved("bf16" if speedup >= FASTER else "fp32", float(f"{speedup:.3g}"), device.type)


def choose_for(model: "nn.Module", rows: int = 32, length: int = 32) -> Resolved:
    """What `auto` comes to for a hooked model where it is, for batches of so many rows of so many tokens."""
    return choose(lambda: products_of(model, rows, length), _device_of(model))


def resolve(asked: Precision, model: "nn.Module", rows: int = 32, length: int = 32) -> Kind:
    """The precision to compute in, for batches of so many rows of so many tokens."""
    return choose_for(model, rows, length).precision if asked == "auto" else asked


def resolve_asked(asked: Precision, model: "nn.Module", rows: int = 32, length: int = 32) -> Kind:
    """`resolve` for what somebody asks for: a warning where bf16 is slower than fp32 here, with the measured ratio."""
    if asked == "bf16":
        _warn_of_slow_bf16(choose_for(model, rows, length))
    return resolve(asked, model, rows, length)


def settled(
    run: "Run", asked: Precision, model: "nn.Module", rows: int = 32, length: int = 32, given: Resolved | None = None
) -> Kind:
    """The precision that something of a run is computed in: what `auto` came to when it was first asked for in this run.

    `given` is what it comes to where this run has not decided yet, such as what a sweep decided for all its runs. Processes
    that ask at once agree.
    """
    if asked != "auto":
        return resolve_asked(asked, model, rows, length)
    if (kept := settled_in(run)) is None:
        kept = settle(run, lambda: given or choose_for(model, rows, length))
    if kept.precision == "bf16":
        resolve_asked("bf16", model, rows, length)  # decided elsewhere, it may be slow here
    return kept.precision


def settle(run: "Run", decide: Callable[[], Resolved]) -> Resolved:
    """What `auto` is in a run: decided if it is not yet, and kept."""
    with run.locked("precision", wait=True):
        if (kept := settled_in(run)) is None:
            kept = decide()
            run.write_json("precision", asdict(kept))
    return kept


def settled_in(run: "Run") -> Resolved | None:
    """What `auto` came to in a run; None if nothing has asked for it yet.

    Raises:
        RunError: if `precision.json` is damaged.
    """
    if not run.file("precision", "json").exists():
        return None
    stored = cast("dict[str, Any]", run.read_json("precision"))
    return Resolved(stored["precision"], stored["speedup"], stored["device"])


def told(run: "Run") -> dict[str, str]:
    """What a page about a run says of its precision, besides its specification."""
    found = settled_in(run)
    return {} if found is None else {"auto precision": str(found)}


def products_of(model: "nn.Module", rows: int, length: int) -> "Products":
    """The products of a hooked model's blocks, for batches of so many rows of so many tokens."""
    from hc_lens.machine import Products

    cfg = cast(Any, model).cfg
    heads, d_model = cast(int, cfg.n_heads), cast(int, cfg.d_model)
    d_head: int = getattr(cfg, "d_head", None) or d_model // heads
    d_mlp: int = getattr(cfg, "d_mlp", None) or 4 * d_model
    return Products(d_model, d_head, heads, d_mlp, rows, length)


def _device_of(model: "nn.Module") -> "torch.device":
    return next(model.parameters()).device


def _warn_of_slow_bf16(found: Resolved) -> None:
    if found.speedup is None and found.precision == "fp32":
        warnings.warn(f"precision bf16: {found.device} has no bfloat16 of its own; fp32 or auto may be faster", stacklevel=4)
    elif found.speedup is not None and found.speedup < 1 / FASTER:
        warnings.warn(
            f"precision bf16: products are {_times(found.speedup)} in fp32 on this {found.device}; choose auto or fp32",
            stacklevel=4,
        )


def _times(speedup: float) -> str:
    return f"{speedup:.3g} times faster than" if speedup >= 1 else f"{1 / speedup:.3g} times slower than"
