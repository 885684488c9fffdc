"""Do sparser subnetworks generalize worse, and sooner than they get worse in-domain?

The Heuristic Core, section 5: the final model pruned at every sparsity (5 to 95 % here; the paper's released runs: 5 to 70 %),
several seeds each. Reported are accuracy against sparsity on every case, the trend within each seed, and the sparsity at which
accuracy first falls three points below the full model's, in-domain against out of domain. Where the paper's released sweep is
at hand (`$HC_LENS_DATA/../reference`), the same is computed from it.

Run: `python -m experiments.sparser_generalizes_worse --preset desk`; the same command resumes.
"""

from dataclasses import dataclass, replace

from experiments.shared.base import opened_finetuned, trained
from experiments.shared.command import Places, published_folder, run_experiment, versions
from experiments.shared.settings import Preset, Setting, embedded, nli_paper, smoke
from hc_lens.analysis import fall_gap, sparsity_trend
from hc_lens.analysis.published import published_sweep
from hc_lens.questions import SparsitySweep
from hc_lens.questions.grid import Grid
from hc_lens.questions.question import Answer
from hc_lens.report import Article, Section
from hc_lens.sample import Sample

QUESTION = "Do sparser subnetworks generalize worse, and at a lower sparsity than they get worse in-domain?"
DROP = 0.03


@dataclass(frozen=True)
class Config:
    """What is pruned, at which sparsities, with which seeds."""

    setting: Setting
    sparsities: tuple[float, ...]
    seeds: tuple[int, ...]
    means_rows: int
    sample: Sample


def config(preset: Preset) -> Config:
    """What is run at each scale."""
    if preset == "smoke":
        return Config(smoke(), (0.3, 0.5, 0.7), (42, 43), 500, Sample(20))
    every_five = tuple(round(0.05 * i, 2) for i in range(1, 20))
    if preset == "desk":
        return Config(embedded(), every_five, (42, 43, 44), 2_000, Sample(200, precision="auto"))
    return Config(nli_paper(), every_five, (42, 43, 44), 100_000, Sample())


def sweep(config: Config, places: Places) -> Answer:
    """The final model pruned and evaluated at every sparsity."""
    configs = tuple(map(config.setting.prune, config.sparsities))
    grid = Grid(
        configs, config.seeds, means_rows=config.means_rows, directory=places.own / config.setting.name, pool=places.pool
    )
    return opened_finetuned(trained(config.setting, places)).ask(SparsitySweep(DROP, grid), config.sample)


def told(answer: Answer, name: str) -> str:
    """Trend and fall in one sentence."""
    table = answer["accuracy_by_sparsity"]
    trend = sparsity_trend(table).set_index(["case", "group"])
    parts = [
        f"rho {row['rho']:.2f} [{row['low']:.2f}, {row['high']:.2f}] {where}"
        for group, where in (("ID", "in-domain"), ("OOD", "out of domain"))
        for _, row in trend.loc[[("mean over cases", group)]].iterrows()
    ]
    gap = fall_gap(table, drop=DROP)
    interval = f" [{100 * gap.low:.0f}, {100 * gap.high:.0f}]" if gap.n > 1 else ""
    later = f"{100 * gap.mean:.0f} points of sparsity{interval} later in-domain than out of domain ({gap.n} seeds)"
    fall = (
        f"accuracy first falls {100 * DROP:.0f} points {later}" if gap.n else "no seed falls both in-domain and out of domain"
    )
    return f"{name}: rank correlation of accuracy and sparsity within a seed {' and '.join(parts)}; {fall}."


def sections(answer: Answer, name: str) -> list[Section]:
    """The sweep's own section, under a name that others on the page do not have."""
    return [replace(section, anchor=f"{section.anchor}-{name}") for section in answer.sections]


def experiment(preset: Preset, places: Places) -> Article:
    """Everything up to the report."""
    chosen = config(preset)
    found = [(chosen.setting.name, "own", sweep(chosen, places))]
    if preset != "smoke" and (reference := published_folder()):
        published = SparsitySweep(DROP).of_grid(published_sweep(reference / "mnli-acc_vs_sparsity.json"))
        found.append(("published BERT on MNLI", "published", published))
    return Article(
        title="Sparser subnetworks and generalization",
        question=QUESTION,
        answer="\n".join(told(answer, who) for who, _, answer in found),
        sections=[section for _, name, answer in found for section in sections(answer, name)],
        notes=chosen.setting.notes,
        provenance=versions(),
        config={"sparsities": chosen.sparsities, "seeds": chosen.seeds},
    )


if __name__ == "__main__":
    run_experiment("sparser_generalizes_worse", QUESTION, experiment)
