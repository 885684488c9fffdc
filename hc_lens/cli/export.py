"""`hc-lens export`: one subnetwork of a pruning run as a model directory of its own."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hc_lens.cli import output
from hc_lens.cli.options import RunPath, device_of_name, parse
from hc_lens.cli.origin import classifier_of
from hc_lens.limits import Natural
from hc_lens.pruning import open_pruned
from hc_lens.subnetwork import Format

_OPENS = {
    "compact": "opens with hc_lens.load_compact",
    "transformers": "opens with AutoModelForSequenceClassification.from_pretrained",
}


@dataclass(frozen=True)
class Arguments:
    """One subnetwork as a model of its own, what its ablated units always add folded into biases."""

    run: RunPath
    """A pruning run."""
    seed: Natural
    """Of the subnetwork."""
    out: Path
    """The model's directory: a new or empty one, or one that holds a model in this format, which is replaced."""
    format: Format = "compact"
    """compact (ablated units are gone: smaller and faster), transformers (in the whole model's shapes, with zeros)."""
    device: str = "auto"
    """auto (CUDA if there is one), cpu, cuda, cuda:1."""
    debug: bool = False
    """Show the traceback of an error."""


def main(words: Sequence[str]) -> None:
    """Write the model."""
    args = parse(Arguments, "export", words)
    pruned = open_pruned(args.run, seeds=[args.seed])
    (sub,) = pruned.subnetworks
    sub.export(args.out, classifier_of(pruned.run, device_of_name(args.device)), format=args.format)
    stay = f"{len(sub.heads)} of {sub.n_layers * sub.n_heads} heads and {len(sub.mlps)} of {sub.n_layers} MLPs stay"
    output.headline(args.out, f"seed {args.seed}: {stay}; {_OPENS[args.format]}")
