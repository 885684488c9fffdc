"""The `hc-lens` command: picks the subcommand by name and loads only that one, so that `hc-lens --help` answers at once.

Exit codes: 0 done; 1 the work failed; 2 the command or its input is wrong; 130 interrupted; 143 ended by SIGTERM.
"""

import difflib
import importlib
import sys
from collections.abc import Sequence
from types import MappingProxyType
from typing import NamedTuple

from hc_lens import __version__


class Command(NamedTuple):
    """Where a subcommand is implemented, and its line in the overview."""

    module: str
    help: str


COMMANDS = MappingProxyType(
    {
        "demo": Command("demo", "the whole line on embedded data: fine-tune, prune many seeds, find the core, ablate, report"),
        "finetune": Command("finetune", "fine-tune a classifier on a task, with ID and OOD evaluation at every checkpoint"),
        "prune": Command("prune", "train gates on a fine-tuned model: one subnetwork per seed"),
        "evaluate": Command("evaluate", "score the full model and its subnetworks on every ID and OOD case"),
        "core": Command("core", "the heads that the subnetworks share, against chance"),
        "ablate": Command("ablate", "what mean-ablating each core head, and all of them, costs on ID and OOD cases"),
        "ask": Command("ask", "any question of a run, by name; what was asked is in its report"),
        "attention": Command("attention", "what heads attend to: equal words across the pair, neighbours, separators"),
        "sweep-sparsity": Command("sweep_sparsity", "accuracy by case as the final model is pruned harder and harder"),
        "sweep": Command("sweep", "seeds x sparsities x checkpoints x tasks: many pruning jobs, here or on SLURM, resumable"),
        "effective-size": Command("effective_size", "the smallest faithful subnetwork of every checkpoint, ID and OOD"),
        "emergence": Command("emergence", "when the core is there: its recall at every checkpoint, against the onset"),
        "compare": Command("compare", "two pruning runs or more: shared core, similarity of heads, accuracy differences"),
        "export": Command("export", "one subnetwork as a model of its own, smaller and faster, or for transformers"),
        "modular": Command("modular", "arithmetic modulo a prime: corrupted labels, polynomials, in-context learning"),
        "relations": Command("relations", "is what a language model knows linearly what fine-tuning generalizes from?"),
        "report": Command("report", "one self-contained HTML page, and markdown, from a run directory"),
        "show": Command("show", "what a run directory holds: its kind, its configuration, its headline numbers"),
    }
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the process's exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or words[0] in ("-h", "--help"):
        print(overview())
        return 0
    if words[0] == "--version":
        print(f"hc-lens {__version__}")
        return 0
    name, *rest = words
    if name not in COMMANDS:
        near = difflib.get_close_matches(name, COMMANDS, n=1)
        meant = f"; did you mean {near[0]!r}?" if near else "."
        print(f"hc-lens: no command {name!r}{meant} The commands are {', '.join(COMMANDS)}.", file=sys.stderr)
        return 2
    runner = importlib.import_module("hc_lens.cli.runner")
    return runner.run(name, COMMANDS[name].module, rest)


def overview() -> str:
    """The text of `hc-lens --help`."""
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {command.help}" for name, command in COMMANDS.items()]
    return "\n".join(
        [
            "usage: hc-lens COMMAND [OPTIONS]      hc-lens COMMAND --help      hc-lens --version",
            "",
            "Which subnetwork of a fine-tuned language model does what, and how it generalizes.",
            "",
            *lines,
            "",
            "The commands chain through run directories:",
            "  hc-lens finetune --out runs/ft",
            "  hc-lens prune runs/ft --sparsity 0.5 --seeds 42..53 --out runs/pruned",
            "  hc-lens evaluate runs/pruned;  hc-lens core runs/pruned;  hc-lens ablate runs/pruned",
            "  hc-lens report runs/pruned",
        ]
    )
