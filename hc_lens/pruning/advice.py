"""What to be wary of when the runs of one configuration have ended, and what to change: one advice for all of them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from hc_lens.pruning.config import PruneConfig

MISSED = 0.05
UNDECIDED_SHARE = 0.10

OPEN = "every gate ended open"
CLOSED = "every gate ended closed"

# Each was followed from recipes of 60 and 150 steps on the embedded task's model (3 seeds, sparsities 0.1, 0.5, 0.8) and moved
# the miss the right way. Higher lr_multipliers did not, where gates ended open; higher lr_gates or a shorter ramp made gates
# that overshot overshoot more.
_ABOVE = "raise steps or lower lr_multipliers"
_BELOW = "raise steps or lr_gates"
_UNDECIDED = "raise lr_gates or steps"


class Ended(NamedTuple):
    """How the gates of a seed's run ended: trained sparsity (before the cut), share undecided, why there is no subnetwork."""

    seed: int
    sparsity: float
    undecided: float
    collapsed: str | None = None


def collapse_told(collapsed: Mapping[int, str], of: int) -> str:
    """Which of so many seeds collapsed, and why: `1 of 3 seeds collapsed (44: every gate ended closed)`."""
    seeds: dict[str, list[int]] = {}
    for seed, reason in collapsed.items():
        seeds.setdefault(reason, []).append(seed)
    told = "; ".join(f"{', '.join(map(str, those))}: {reason}" for reason, those in seeds.items())
    return f"{len(collapsed)} of {of} seeds collapsed ({told})"


def warnings_of(config: PruneConfig, ended: Sequence[Ended]) -> tuple[str, ...]:
    """A sentence on the seeds that collapsed, one on those that missed the target, one on those that left gates undecided.

    What to change follows from the side on which seeds missed, collapsed ones included, and is said once.
    """
    collapsed = {run.seed: run.collapsed for run in ended if run.collapsed is not None}
    alive = [run for run in ended if run.collapsed is None]
    missed = [run for run in alive if abs(run.sparsity - config.sparsity) > MISSED]
    undecided = [run for run in alive if run.undecided > UNDECIDED_SHARE]
    found: list[str] = []
    if collapsed:
        found.append(f"{collapse_told(collapsed, len(ended))}, so there is no subnetwork to cut at sparsity {config.sparsity}")
    if missed:
        each = _listed(f"{run.seed} ({run.sparsity:.3f})" for run in missed)
        found.append(
            f"{_seeds(each, len(missed))} missed the target sparsity {config.sparsity} by more than {100 * MISSED:g} points "
            "before the cut"
        )
    if found:
        found[-1] += f"; {_advice(config, collapsed, missed)}"
    if undecided:
        each = _listed(f"{run.seed} ({run.undecided:.0%})" for run in undecided)
        advice = "" if found else f"; {_UNDECIDED}"
        found.append(
            f"{_seeds(each, len(undecided))} left more than {UNDECIDED_SHARE:.0%} of the gates undecided (|log_alpha| < 1.6) "
            f"at sparsity {config.sparsity}, so the mask depends on the cut{advice}"
        )
    return tuple(found)


def _advice(config: PruneConfig, collapsed: Mapping[int, str], missed: Sequence[Ended]) -> str:
    above = CLOSED in collapsed.values() or any(run.sparsity > config.sparsity for run in missed)
    below = OPEN in collapsed.values() or any(run.sparsity < config.sparsity for run in missed)
    if above and below:
        return f"runs ended on both sides of the target: raise steps (now {config.steps})"
    if above:
        return f"too sparse: {_ABOVE} (now {config.steps} and {config.lr_multipliers:g})"
    return f"too dense: {_BELOW} (now {config.steps} and {config.lr_gates:g})"


def _seeds(each: str, n: int) -> str:
    return f"seed {each}" if n == 1 else f"seeds {each}"


def _listed(items: Iterable[str]) -> str:
    *first, last = items
    return f"{', '.join(first)} and {last}" if first else last
