"""How small can a subnetwork be and still do what the model does, and how does that size change over fine-tuning?

The Heuristic Core, section 6: in-domain a small subnetwork always suffices; out of domain the effective size *grows* as the
model generalizes. Where the paper prunes anew for every sparsity, the desk preset uses one run per checkpoint and seed whose
target rises through the grid; on the embedded task both are run, and how well they agree is part of the report. Where the
paper's published accuracies are at hand (`$HC_LENS_DATA/../reference`), their curves are recomputed beside ours.

Run: `python -m experiments.effective_size --preset desk`; the same command resumes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pandas as pd

from experiments.shared.base import opened_finetuned, trained
from experiments.shared.command import Places, published_folder, run_experiment, versions
from experiments.shared.settings import Preset, Setting, embedded, nli_desk, nli_paper, smoke
from hc_lens import figures
from hc_lens.analysis.effective_size import effective_size
from hc_lens.analysis.grid_agreement import grid_agreement
from hc_lens.analysis.published import published_grid, published_training
from hc_lens.data.sampling import limited
from hc_lens.precision import Precision
from hc_lens.pruning import PruneConfig
from hc_lens.questions import EffectiveSize
from hc_lens.questions.grid import Grid
from hc_lens.questions.question import Answer
from hc_lens.report import Article, Section, text_table, with_interval
from hc_lens.sample import Sample

QUESTION = (
    "How small can a subnetwork be and still be within three points of the full model, in-domain and out of domain, and how "
    "does that size change over fine-tuning?"
)
TOLERANCE = 0.03
SIZE = EffectiveSize(TOLERANCE)


@dataclass(frozen=True)
class Part:
    """One model's checkpoints and the grid of sparsities; pruned along a path, anew for each sparsity, or both ways.

    `rows` are those of each in-domain and of each out-of-domain case: a tolerance of three points needs many rows in-domain,
    where there are few cases.
    """

    setting: Setting
    steps: tuple[int, ...]
    sparsities: tuple[float, ...]
    seeds: tuple[int, ...]
    rows: tuple[int, int]
    means_rows: int
    precision: Precision
    path: PruneConfig | None
    every_sparsity: bool


def parts(preset: Preset) -> list[Part]:
    """What is run at each scale. Step 0 has no size: an untrained head is matched by anything."""
    seeds = (42, 43, 44)
    if preset == "smoke":
        setting = smoke()
        return [Part(setting, (50, 150), (0.3, 0.6), (42, 43), (20, 20), 500, "fp32", rising(setting, 0.6, 40), True)]
    if preset == "desk":
        tenths = tuple(round(0.1 * i, 1) for i in range(1, 10))
        mini = nli_desk()
        steps, small_steps = (300, 900, 1_200, 2_400), (450, 1_200)
        quick = rising(mini, 0.9, 400, batch_size=16)
        small = embedded()
        few, both = (0.2, 0.4, 0.6, 0.8), rising(small, 0.8, 400)
        return [
            Part(mini, steps, tenths, seeds, (400, 20), 4_000, "auto", quick, False),
            Part(small, small_steps, few, seeds, (500, 100), 2_000, "auto", both, True),
        ]
    published = tuple(round(0.05 * i, 2) for i in range(5, 15))
    return [Part(nli_paper(), tuple(range(500, 54_501, 6_000)), published, seeds, (10_000, 1_000), 100_000, "fp32", None, True)]


def rising(setting: Setting, top: float, steps: int, batch_size: int | None = None) -> PruneConfig:
    """A run whose target rises all the time.

    Its multipliers are faster than at one sparsity: slower ones fall behind (a seed at .9: .71 with rate .05, .80 with .3).
    """
    config = setting.prune(top)
    rows = config.batch_size if batch_size is None else batch_size
    return replace(config, steps=steps, ramp_steps=steps, lr_multipliers=0.3, batch_size=rows)


@dataclass(frozen=True, eq=False)
class Grids:
    """Evaluations of every subnetwork, with the full model's: along the path, and of separate runs; None where not run."""

    path: pd.DataFrame | None
    grid: pd.DataFrame | None

    @property
    def best(self) -> pd.DataFrame:
        """The separate runs where there are any, else the path."""
        chosen = self.path if self.grid is None else self.grid
        assert chosen is not None
        return chosen


def prune_all(part: Part, places: Places) -> Grids:
    """Prune and evaluate every checkpoint of a part, each way that it asks for."""
    base = trained(part.setting, places)
    run = opened_finetuned(base, limited(base.task, 0, in_domain=part.rows[0], ood=part.rows[1]))
    configs = tuple(map(part.setting.prune, part.sparsities))
    separate = Grid(
        configs, part.seeds, part.steps, means_rows=part.means_rows, directory=places.own / part.setting.name, pool=places.pool
    )
    sample, path, grid = Sample(precision=part.precision), None, None
    if part.path is not None:
        along = tuple(replace(part.path, sparsity=sparsity) for sparsity in part.sparsities)
        path = replace(separate, configs=along, path=True).evaluated(run, sample)
    if part.every_sparsity:
        grid = separate.evaluated(run, sample)
    return Grids(path, grid)


def told(table: pd.DataFrame, name: str) -> str:
    """First and last size in-domain and out of domain, as coded, in one sentence."""
    coded = table[table["semantics"] == "as_coded"]
    parts: list[str] = []
    for group, where in (("ID", "in-domain"), ("OOD", "out of domain")):
        rows = coded[coded["set"] == group].sort_values("step")
        first, last = rows.iloc[0], rows.iloc[-1]
        parts.append(
            f"{where} {first['size']:.0f} % of the units at step {first['step']} and {last['size']:.0f} % "
            f"[{last['low']:.0f}, {last['high']:.0f}] at step {last['step']}"
        )
    return f"{name}: the effective size is {', '.join(parts)}."


def size_sections(answer: Answer, name: str, heading: str) -> list[Section]:
    """The question's own sections, under a name and a heading that others on the page do not have."""
    return [
        replace(section, anchor=f"{section.anchor}-{name}", heading=f"{section.heading}: {heading}")
        for section in answer.sections
    ]


def agreement_section(grids: Grids) -> tuple[Section, str]:
    """How well the rising-target run agrees with separate runs, and that in one sentence."""
    assert grids.path is not None
    assert grids.grid is not None
    found = grid_agreement(grids.grid, grids.path, tolerance=TOLERANCE)
    summary = with_interval(found.summary, "difference", percent=True)
    summary = with_interval(summary, "rho", low="rho_low", high="rho_high", digits=2)
    overall = found.summary.set_index("set")[["absolute", "between_seeds"]].to_dict("index")
    sentence = (
        "On the embedded task the rising-target run differs from separate runs by "
        + " and ".join(
            f"{100 * overall[name]['absolute']:.1f} points {where} (two seeds of separate runs: "
            f"{100 * overall[name]['between_seeds']:.1f})"
            for name, where in (("ID", "in-domain"), ("OOD", "out of domain"))
        )
        + " on average."
    )
    sizes_table = with_interval(found.sizes, "difference", digits=1)
    tables = [
        text_table(summary, "Accuracy, path minus grid", percent=["absolute", "between_seeds"]),
        text_table(sizes_table, "Effective size (%), path minus grid", labels=2, digits=1),
    ]
    caption = (
        "Both ways of filling the grid, paired by seed. `absolute` is the mean absolute difference of accuracies over cells, "
        "`between_seeds` the same between two seeds of the separate runs: the yardstick. `rho`: Spearman's over cells, by seed."
    )
    curves = figures.effective_size_curves(effective_size(grids.path, semantics="as_coded", tolerance=TOLERANCE))
    return Section(
        "agreement", "One rising-target run against a run for every sparsity", caption, curves, shown=tables
    ), sentence


def published() -> list[Section]:
    """The paper's own curves from its released accuracies, where they are at hand; a failed run counts as unfaithful."""
    if (reference := published_folder()) is None:
        return []
    full = published_training(reference / "mnli-acc_over_ft.json")
    grid = published_grid(reference / "mnli-sparsity-grid-acc.json", failures="failed")
    return size_sections(SIZE.of_grid(grid, full), "published", "BERT on MNLI and HANS, from the released accuracies")


def article(done: Sequence[tuple[Part, Grids]], preset: Preset) -> Article:
    """The report."""
    sections: list[Section] = []
    answers: list[str] = []
    for part, grids in done:
        answer = SIZE.of_grid(grids.best)
        way = "pruned anew for every sparsity" if grids.grid is not None else "one rising-target run per seed and checkpoint"
        sections += size_sections(answer, part.setting.name, f"{part.setting.name}, {way}")
        answers.append(told(answer["effective_size"], part.setting.name))
        if grids.grid is not None and grids.path is not None:
            section, sentence = agreement_section(grids)
            sections.append(section)
            answers.append(sentence)
    if preset != "smoke":
        sections += published()
    notes = [note for part, _ in done for note in part.setting.notes]
    return Article(
        title="Effective size over fine-tuning",
        question=QUESTION,
        answer="\n".join(answers),
        sections=sections,
        notes=notes,
        provenance=versions(),
        config={
            part.setting.name: {"steps": part.steps, "sparsities": part.sparsities, "seeds": part.seeds} for part, _ in done
        },
    )


def experiment(preset: Preset, places: Places) -> Article:
    """Everything up to the report."""
    return article([(part, prune_all(part, places)) for part in parts(preset)], preset)


if __name__ == "__main__":
    run_experiment("effective_size", QUESTION, experiment)
