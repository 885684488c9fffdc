"""How alike are pruning runs: do their cores share heads, do their subnetworks, and how far apart are their accuracies?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any, ClassVar, cast

from hc_lens import analysis, figures, report
from hc_lens.limits import Count
from hc_lens.pruning import evaluation_of
from hc_lens.pruning.members import Members, require_different_runs
from hc_lens.questions.question import Answer, Question

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

    from hc_lens.pruning import Pruned
    from hc_lens.questions.subject import Subject
    from hc_lens.sample import Sample


@dataclass(frozen=True)
class Compare(Question):
    """Compare pruning runs of one model (two sparsities), or of models of the same shape (fine-tuning seeds, checkpoints).

    Head L4.H0 of one must be that of the other: the models come from one pretrained model.
    """

    k: Count | None = None
    """A core head is kept by at least so many of a run's subnetworks; all by default."""

    name: ClassVar[str] = "compare"
    tables: ClassVar[tuple[str, ...]] = (
        *("shared_core", "cores", "core_jaccard", "core_frequency"),
        *("jaccard", "head_frequency", "similarity", "accuracy_difference"),
    )

    def options(self, run: Subject, sample: Sample) -> dict[str, object]:
        home = run.home.path
        evaluated = [each.run.file("evaluation/full.options", "json") for each in run.alive]
        rows = [
            each.run.read_json("evaluation/full.options") if file.exists() else None
            for each, file in zip(run.alive, evaluated, strict=True)
        ]
        of = [Members.of(each).as_json(home) for each in run.alive]
        return {
            "runs": of,
            "names": list(names_of([each.run.path for each in run.alive])),
            "rows": rows,
            "k": self.k,
            "seed": sample.seed,
        }

    def measure(self, run: Subject, sample: Sample) -> Mapping[str, pd.DataFrame]:
        pruned = run.alive
        if len(pruned) < 2:
            raise ValueError(f"give two different RUNs or more, got {len(pruned)} (see hc-lens compare --help)")
        require_different_runs(pruned)
        names = names_of([each.run.path for each in pruned])
        cores = analysis.shared_over([each.subnetworks for each in pruned], self.k, names)
        return {
            **_of_cores(cores, len({each.means.model for each in pruned})),
            **_of_pairs(pruned, names, self.k, sample.seed),
            "accuracy_difference": _of_accuracy(pruned, names),
        }

    def kept(self, run: Subject) -> Answer | None:
        """The comparison, if the runs that it is of hold the same subnetworks still."""
        found = super().kept(run)
        if found is None:
            return None
        of = [Members.from_json(each, run.home.path) for each in cast("list[dict[str, object]]", found.options["runs"])]
        there = all((each.run / "run.json").exists() and each.same(Members.held_by(each.run)) for each in of)
        return found if there else None

    def short(self, answer: Answer) -> str:
        row, sizes = answer["shared_core"].iloc[0], ", ".join(map(str, answer["cores"]["core"]))
        of = "one model" if row["models"] == 1 else f"{row['models']} models"
        return (
            f"{row['n_heads']} heads are in the cores ({sizes} heads) of all {len(answer['cores'])} runs, of {of}: "
            f"{row['heads'] or 'none'}; by chance {row['mean']:.2g} ({row['low']:g} to {row['high']:g}, "
            f"p = {row['p_value']:.2g})"
        )

    def sections(self, answer: Answer) -> list[report.Section]:
        alike = answer["core_jaccard"].set_index("run").rename_axis(None)
        tables = [report.text_table(answer["cores"], "Heads that at least k of the n subnetworks of a run keep")]
        if len(alike) > 2:
            tables.append(report.text_table(answer["core_jaccard"], "Jaccard similarity of the cores"))
        shared = report.Section(
            "compare",
            report.heading(answer.short),
            "Jaccard similarity of the runs' cores. By chance: cores of as many heads in each layer, at random places.",
            figures.jaccard_heatmap(alike),
            shown=tables,
            folded=(report.text_table(answer["core_frequency"], "In how many cores each head is"),),
            width=(320, 640),
        )
        apart = answer["accuracy_difference"]
        pairs = [_pair(answer, place) for place in answer["jaccard"]["pair"].unique()]
        return [shared, *pairs, *([] if apart.empty else [_apart(apart)])]


def names_of(paths: Sequence[Path]) -> tuple[str, ...]:
    """The end of each path, as long as it takes to tell the runs apart."""
    parts = [path.resolve().parts for path in paths]
    for length in range(1, max(map(len, parts))):
        ends = tuple("/".join(each[-length:]) for each in parts)
        if len(set(ends)) == len(ends):
            return ends
    return tuple(str(path.resolve()) for path in paths)


def _of_cores(cores: analysis.SharedCore, models: int) -> dict[str, pd.DataFrame]:
    import pandas as pd

    low, high = cores.chance.interval
    heads = " ".join(map(str, cores.heads))
    shared = {"n_heads": len(cores.heads), "heads": heads, "models": models, "mean": cores.chance.mean}
    table = [
        {"run": name, "k": core.k, "n": core.n, "core": len(core.heads), "heads": " ".join(map(str, core.heads))}
        for name, core in zip(cores.names, cores.cores, strict=True)
    ]
    return {
        "shared_core": pd.DataFrame([shared | {"low": low, "high": high, "p_value": cores.p_value}]),
        "cores": pd.DataFrame(table),
        "core_jaccard": cores.jaccard.rename_axis("run").reset_index(),
        "core_frequency": cores.frequency,
    }


def _of_pairs(pruned: Sequence[Pruned], names: Sequence[str], k: int | None, seed: int) -> dict[str, pd.DataFrame]:
    """How alike each two runs are."""
    import pandas as pd

    tables: dict[str, list[pd.DataFrame]] = {"jaccard": [], "head_frequency": [], "similarity": []}
    for i, j in combinations(range(len(pruned)), 2):
        found = analysis.compare_runs(pruned[i].subnetworks, pruned[j].subnetworks, k, (names[i], names[j]), seed=seed)
        of: dict[str, Any] = {"pair": f"{i + 1}-{j + 1}", "first_run": names[i], "second_run": names[j]}
        rank = {"rank": found.rank.rho, "rank_p": found.rank.p_value}
        tables["jaccard"].append(found.pairs.assign(**of, **rank))
        tables["head_frequency"].append(found.frequency.assign(**of))
        long = found.similarity.rename_axis("one").reset_index().melt("one", var_name="other", value_name="jaccard")
        tables["similarity"].append(long.assign(**of))
    return {name: pd.concat(each, ignore_index=True) for name, each in tables.items()}


def _of_accuracy(pruned: Sequence[Pruned], names: Sequence[str]) -> pd.DataFrame:
    """Each later run's accuracies against the first's, where both were evaluated and have a case in common."""
    import pandas as pd

    if not all(each.run.file("evaluation/full", "parquet").exists() for each in pruned):
        return pd.DataFrame({"case": []})
    first, *later = [evaluation_of(each) for each in pruned]
    tables: list[pd.DataFrame] = []
    for each, name, evaluation in zip(pruned[1:], names[1:], later, strict=True):
        if not {*first["case"]} & {*evaluation["case"]}:
            continue
        table = analysis.accuracy_difference(first, evaluation).assign(run=name, against=names[0])
        same = _rows_of(pruned[0]) == _rows_of(each)
        agreement = analysis.accuracy_difference(first, evaluation, column="agreement")["difference"] if same else float("nan")
        tables.append(table.assign(agreement_difference=agreement, same_rows=same))
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame({"case": []})


def _rows_of(pruned: Pruned) -> dict[str, object]:
    options = cast("dict[str, object]", pruned.run.read_json("evaluation/full.options"))
    return {name: value for name, value in options.items() if name != "precision"}


def _pair(answer: Answer, pair: str) -> report.Section:
    """Two runs: how often each keeps every head, and how alike their subnetworks are."""
    alike, frequency, similarity = (
        answer[name][answer[name]["pair"] == pair] for name in ("jaccard", "head_frequency", "similarity")
    )
    names = str(alike["first_run"].iloc[0]), str(alike["second_run"].iloc[0])
    rho, p_value = alike[["rank", "rank_p"]].iloc[0]
    wide = similarity.pivot_table(index="one", columns="other", values="jaccard", sort=False)
    told = report.with_interval(alike[["kind", "n", "mean", "low", "high"]], "mean")
    return report.Section(
        f"compare-{pair}",
        f"{names[0]} and {names[1]}: head frequencies correlate with rho = {rho:.3f} (p = {p_value:.2g})",
        "Every head by how many subnetworks of one run and of the other keep it; on the diagonal, the runs agree.",
        figures.frequency_scatter(frequency, names),
        shown=(report.text_table(told, f"Jaccard similarity of the heads of two subnetworks: {names[0]} and {names[1]}"),),
        folded=(report.text_table(wide.reset_index(), "Jaccard similarity of every two subnetworks"),),
        width=(420, 760),
    )


def _apart(table: pd.DataFrame) -> report.Section:
    told = report.with_interval(table, "difference", percent=True)
    columns = [
        "run",
        "against",
        "case",
        "group",
        "first",
        "second",
        "difference (%) [95 %]",
        "agreement_difference",
        "same_rows",
    ]
    return report.Section(
        "compare-accuracy",
        "Accuracy of each later run minus the first's, means over seeds",
        "Welch's 95 % interval over the seeds of both runs. Where the rows are not the same, the difference holds theirs, too.",
        shown=(report.text_table(told[columns], "Accuracy differences", labels=4, percent=["first", "second"]),),
    )
