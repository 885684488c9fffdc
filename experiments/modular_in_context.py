"""From how many tasks on does a small transformer solve tasks it has never seen, and by which algorithm?

"Learning to grok" (He, Doshi, Das, Gromov 2024): sequences x y z of one task z = a x + b y mod p, four evaluation sets, four
phases over the number of pre-training tasks, generalization that deeper models lose again, and two algorithms inside: ratio
matching and modular regression. The paper's setting (p = 29, width 512) needs a GPU. The desk preset looks for the smallest
setting that generalizes out of distribution on a CPU: settings in order of size, each with its share of a budget of CPU time,
until one is solved; then phases over the number of tasks and a deeper model with what is left. That none was found
is an answer too, with the same curves.

Run: `python -m experiments.modular_in_context --preset desk --threads 1`; the same command resumes.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
import tyro

from experiments.shared.command import Arguments, Places, run_with
from experiments.shared.in_context_insides import Tried
from experiments.shared.in_context_report import Measured, article
from experiments.shared.settings import Preset
from hc_lens.modular.incontext.config import Data, InContextConfig, ModelConfig, Training
from hc_lens.modular.incontext.evaluation import PHASES, phases_over_training
from hc_lens.modular.incontext.training import InContextRun, train_in_context
from hc_lens.report import Article

NAME = "modular_in_context"
QUESTION = (
    "Which setting lets a transformer solve tasks modulo p that it has never seen, from examples alone, how does that depend "
    "on the number of tasks it was trained on, and which algorithm does it use?"
)


@dataclass(frozen=True)
class Config:
    """What is tried.

    Attributes:
        candidates: settings by name, smallest first.
        tasks, fractions: numbers of tasks, by p, and shares of train examples of the phase map, at the chosen candidate's
            setting; no fractions: its own.
        depths: blocks of the deeper models that are trained at that setting, to see whether generalization passes.
        budget: CPU minutes for all of it, evaluation included; None: every setting is trained to its end.
        search: the part of the budget that may be used up when each candidate ends, solved or not: the larger it is, the
            longer it takes.
    """

    candidates: tuple[tuple[str, InContextConfig], ...]
    tasks: Mapping[int, tuple[int, ...]]
    fractions: tuple[float, ...]
    depths: tuple[int, ...]
    budget: float | None
    search: tuple[float, ...] = ()


MAP = 0.95
"""The part of the budget that may be used up when the phase map ends. Deeper models get the rest."""


def config(preset: Preset, budget: float) -> Config:
    """What is run at each scale."""
    if preset == "smoke":
        training = Training(24, 16, 3e-3, 0.1, warmup_steps=4, checkpoint_every=8, log_every=4, evaluate=50)
        tiny = InContextConfig(Data(5, 8, 0.7, 5), ModelConfig(1, 16, 2, 0.1), training)
        two = replace(tiny, model=replace(tiny.model, depth=2))
        return Config((("one-block", tiny), ("two-blocks", two)), {5: (4, 8)}, (), (3,), 0.1, (0.35, 0.7))
    if preset == "desk":
        return Config(desk_candidates(), {5: (4, 12, 20), 7: (8, 24, 40)}, (), (4,), budget, (0.12, 0.24, 0.48))
    published = Training(precision="bf16")
    paper = (
        ("depth-2", InContextConfig(Data(n_tasks=512, fraction=0.6), ModelConfig(2), published)),
        ("depth-4", InContextConfig(Data(n_tasks=384, fraction=0.8), ModelConfig(4), replace(published, batch_size=1536))),
    )
    tasks = {29: (8, 16, 32, 64, 128, 256, 512)}
    return Config(paper, tasks, (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8), (6,), None)


def desk_candidates() -> tuple[tuple[str, InContextConfig], ...]:
    """Small primes, narrow and of two blocks, most of all tasks seen; a decay per step about that of the paper."""
    training = Training(20_000, 120, 3e-3, 0.1, warmup_steps=200, checkpoint_every=250, log_every=50, evaluate=400)
    five, seven = Data(5, 20, 0.7, 12), Data(7, 40, 0.7, 16)
    narrow, wider = ModelConfig(2, 32, 4, 0.1), ModelConfig(2, 64, 4, 0.06)
    return (
        ("p5-w32", InContextConfig(five, narrow, training)),
        ("p5-w64-repeats", InContextConfig(replace(five, repeats=True), wider, replace(training, lr=2e-3, weight_decay=0.3))),
        ("p7-w64-repeats", InContextConfig(replace(seven, repeats=True), wider, replace(training, lr=2e-3))),
    )


@dataclass(frozen=True)
class Search:
    """Training runs on a budget of CPU seconds, counted over all calls; None: no limit."""

    places: Places
    budget: float | None
    device: torch.device

    def share(self, before: Collection[Tried], part: float, waiting: int) -> float:
        """CPU seconds for the next of so many waiting runs, when `before` may have used a part of the budget in all."""
        if self.budget is None:
            return float("inf")
        return max(0.0, part * self.budget - sum(run.found.seconds for run in before)) / waiting

    def train(self, name: str, config: InContextConfig, done: Callable[[InContextRun], bool], seconds: float) -> Tried:
        """Train one setting until it is done, its share is used up, or its steps are over."""

        def until(found: InContextRun) -> bool:
            return done(found) or found.seconds >= seconds

        directory = self.places.own / "runs" / name
        return Tried(name, train_in_context(config, directory, device=self.device, until=until))


def solved(found: InContextRun) -> bool:
    """Whether the last two checkpoints generalize out of distribution: one alone may be luck."""
    phases = phases_over_training(found.evaluations())["phase"].tolist()
    return len(phases) >= 2 and set(phases[-2:]) == {PHASES[-1]}


def never(found: InContextRun) -> bool:
    """Train to the last step."""
    return False


def find(config: Config, search: Search) -> list[Tried]:
    """The candidates in order, until one is solved; all of them to the end where there is no budget."""
    tried: list[Tried] = []
    done = never if config.budget is None else solved
    for place, (name, candidate) in enumerate(config.candidates):
        seconds = search.share(tried, config.search[place], 1) if config.search else float("inf")
        tried.append(search.train(name, candidate, done, seconds))
        if config.budget is not None and solved(tried[-1].found):
            break
    return tried


def best_of(tried: Sequence[Tried]) -> Tried:
    """The first of those in the highest phase; among them the most accurate on unseen tasks."""
    return max(tried, key=lambda run: (PHASES.index(run.phase), run.unseen))


def phase_runs(config: Config, base: Tried, before: Sequence[Tried], search: Search) -> list[Tried]:
    """The chosen setting with other numbers of tasks and shares of examples, as many steps each as it took itself."""
    chosen, steps = base.found.config, base.found.steps[-1]
    fractions = config.fractions or (chosen.data.fraction,)
    grid = [(n, fraction) for fraction in fractions for n in config.tasks[chosen.data.p]]
    runs: list[Tried] = []
    for place, (n, fraction) in enumerate(grid):
        data = replace(chosen.data, n_tasks=n, fraction=fraction)
        batch = n * max(1, round(chosen.training.batch_size / n))
        setting = replace(chosen, data=data, training=replace(chosen.training, batch_size=batch))
        if setting == chosen:
            runs.append(base)
            continue
        seconds = search.share({*before, *runs}, MAP, len(grid) - place)
        name = f"{base.name}-tasks-{n}-examples-{fraction:g}"
        runs.append(search.train(name, setting, lambda found: found.steps[-1] >= steps, seconds))
    return runs


def deeper_runs(config: Config, base: Tried, before: Collection[Tried], search: Search) -> list[Tried]:
    """The chosen setting with more blocks, as long as there is budget."""
    runs: list[Tried] = []
    for place, depth in enumerate(config.depths):
        chosen = base.found.config
        setting = replace(chosen, model=replace(chosen.model, depth=depth))
        seconds = search.share({*before, *runs}, 1.0, len(config.depths) - place)
        runs.append(search.train(f"{base.name}-depth-{depth}", setting, never, seconds))
    return runs


def run(config: Config, places: Places, device: torch.device) -> Article:
    """Search, map, deepen, and tell."""
    search = Search(places, None if config.budget is None else 60 * config.budget, device)
    tried = find(config, search)
    base = best_of(tried)
    phases = phase_runs(config, base, tried, search)
    deeper = deeper_runs(config, base, {*tried, *phases}, search)
    untried = [name for name, _ in config.candidates[len(tried) :]]
    return article(QUESTION, Measured(tried, base, phases, deeper, untried, config.budget))


def experiment(budget: float, preset: Preset, places: Places) -> Article:
    """Everything up to the report."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return run(config(preset, budget), places, device)


@dataclass(frozen=True)
class InContextArguments(Arguments):
    """Search for in-context generalization, and write its report."""

    budget: float = 70.0
    """CPU minutes that the desk preset may take, over all calls; more of them let it go on."""


if __name__ == "__main__":
    arguments = tyro.cli(InContextArguments, description=QUESTION)
    run_with(arguments, NAME, partial(experiment, arguments.budget))
