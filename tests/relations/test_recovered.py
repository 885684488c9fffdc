"""The planted world is recovered: what can be read before fine-tuning generalizes after it, and nothing else predicts that."""

from pathlib import Path

import pytest

from hc_lens.relations.across import correlations
from hc_lens.relations.config import FinetuneConfig, RelationConfig
from hc_lens.relations.job import ModelSource, RelationJob, measure_relations
from hc_lens.relations.report import Studied, findings
from hc_lens.relations.study import X, Y
from hc_lens.relations.world import WorldConfig, planted_world

CONFIG = RelationConfig(assignments=(0,), n_shots=0, draws=2, finetune=FinetuneConfig(lr=3e-3, max_epochs=60))


@pytest.mark.slow
def test_readability_predicts_generalization_across_planted_relations_and_the_control_task_does_not(tmp_path: Path) -> None:
    world = planted_world(WorldConfig(), tmp_path)
    source = ModelSource.of(world.directory)
    jobs = [RelationJob(tmp_path / "relations", source, relation, CONFIG) for relation in world.relations]
    kinds = dict(zip(world.how["relation"], world.how["kind"], strict=True))
    found = Studied("planted", "planted", measure_relations(tmp_path, jobs), kinds)
    assert found.table["recall"].min() > 0.95, "what is not readable is recalled all the same"
    assert found.table["reached"].min() == 1
    assert found.main.low > 0.4
    control = correlations(found.table, "control", Y)[0]
    assert control.low < 0 < control.high
    by_kind = found.table.groupby("kind")[[X, Y]].mean()
    rho = world.how.set_index("relation")["rho"]
    clean = found.table[(found.table["kind"] == "shared") & (found.table["relation"].map(rho) < 0.2)]
    assert clean[Y].min() > 0.3 > by_kind.loc["isolated", Y]
    assert clean[X].min() > 0.5 > by_kind.loc["isolated", X]
    verdicts = {finding.key: finding.verdict for finding in findings(found)}
    assert verdicts["planted-predicts"] == "yes"
    assert verdicts["planted-control"] == "undecided"
