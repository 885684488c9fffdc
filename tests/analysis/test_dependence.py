"""A head depends on those it reads, directly or through others, and on no one else: models in which that is known."""

import pandas as pd
import pytest
import torch
from jaxtyping import TypeCheckError

from hc_lens.analysis import dependence_on
from hc_lens.data.batches import encode_tokens
from hc_lens.forward import inputs_of
from hc_lens.hooks import captured, hooked
from hc_lens.means import ActivationMeans, MeansError
from hc_lens.models import new_model
from hc_lens.sample import Sample
from hc_lens.units import Head, Mlp, Unit
from tests.analysis.planted import planted_task, tokenizer
from tests.analysis.relay import LOUD_BERT, RelayModel

C, OTHER = Head(0, 0), Head(0, 1)
READER, DEAF = Head(1, 0), Head(1, 1)
SECOND, MIXED = Head(2, 0), Head(2, 1)
TOKENS = torch.tensor([[0, 1, 2, 1], [2, 2, 0, 1], [1, 0, 0, 2]])


def relay() -> RelayModel:
    """c and its neighbour have values of their own. READER reads c, SECOND reads READER, MIXED reads c, an MLP that reads c,
    and has a value of its own; DEAF reads nobody."""
    values: dict[Unit, list[float]] = {
        C: [0.0, 1.0, 3.0],
        OTHER: [5.0, -1.0, 2.0],
        DEAF: [1.0, 0.0, 0.0],
        MIXED: [0.0, 2.0, 4.0],
    }
    reads: dict[Unit, dict[Unit, float]] = {
        READER: {C: 3.0},
        SECOND: {READER: -2.0},
        Mlp(0): {C: 1.0},
        MIXED: {C: 0.5, Mlp(0): 1.5},
    }
    return RelayModel(values, reads)


def changes(model: RelayModel, heads=(C,), **options) -> pd.DataFrame:
    return dependence_on(model, TOKENS, ActivationMeans.collect(model, TOKENS), heads, **options)


def change(table: pd.DataFrame, source: str | Head, target: Head) -> float:
    rows = table[(table["source"] == str(source)) & (table["layer"] == target.layer) & (table["head"] == target.index)]
    assert len(rows) == 1
    return float(rows["change"].iloc[0])


def test_a_head_that_reads_only_c_changes_as_much_as_if_it_were_ablated_itself():
    found = changes(relay())
    assert change(found, C, READER) == pytest.approx(1.0)
    assert change(found, C, SECOND) == pytest.approx(1.0), "through READER"
    assert change(found, C, DEAF) == 0.0


def test_a_head_that_reads_c_in_part_changes_in_part():
    """MIXED is v + 2 c in all; its values on tokens 0, 1, 2 are 0, 4, 10, of which c's share 2 c is 0, 2, 6."""
    ids = TOKENS.flatten()
    whole, of_c = torch.tensor([0.0, 4.0, 10.0])[ids], torch.tensor([0.0, 2.0, 6.0])[ids]
    expected = (of_c - of_c.mean()).abs().sum() / (whole - whole.mean()).abs().sum()
    assert change(changes(relay()), C, MIXED) == pytest.approx(float(expected))


def test_the_direct_path_leaves_out_what_goes_through_other_units():
    found = changes(relay(), through="direct path")
    assert change(found, C, READER) == pytest.approx(1.0)
    assert change(found, C, SECOND) == 0.0
    assert change(found, C, MIXED) == pytest.approx(change(changes(relay()), C, MIXED) * 0.5 / 2.0)


def test_heads_of_the_same_and_earlier_layers_cannot_depend_and_have_no_row():
    found = changes(relay(), heads=(READER,))
    assert set(found["layer"]) == {2}
    assert set(changes(relay())["layer"]) == {1, 2}


def test_a_head_that_nobody_reads_changes_nothing():
    assert (changes(relay(), heads=(OTHER,))["change"] == 0).all()


def test_all_together_leaves_out_the_ablated_heads_and_adds_up():
    found = changes(relay(), heads=(C, READER))
    together = found[found["source"] == "all together"]
    assert [(row.layer, row.head) for row in together.itertuples()] == [(1, 1), (2, 0), (2, 1)]
    assert change(found, "all together", SECOND) == pytest.approx(1.0)
    alone = found[found["source"] == str(C)]
    assert alone.set_index(["layer", "head"])["among"].to_dict() == {(1, 0): True, (1, 1): False, (2, 0): False, (2, 1): False}


def test_random_heads_of_the_same_layer_are_the_control():
    """The only other head of layer 0 is read by nobody: every control's change is 0, and c's readers stand out."""
    found = changes(relay(), controls=5)
    assert (found["controls"] == 1).all(), "the layer has one other head"
    assert (found[["control_mean", "control_low", "control_high"]] == 0).all(axis=None)
    readers = found.set_index(["layer", "head"])["control_p"]
    assert readers[(1, 0)] == pytest.approx(0.5)
    assert readers[(1, 1)] == 1.0


def test_without_controls_and_for_constant_heads_there_are_missing_values():
    found = changes(relay(), controls=0)
    assert found[["control_mean", "control_p"]].isna().all(axis=None)
    silent = RelayModel({C: [0.0, 1.0, 2.0]}, {})
    found = changes(silent, controls=1)
    assert found["change"].isna().all(), "heads that always give 0 have nothing to change against"
    assert found["control_p"].isna().all()


def test_the_interval_holds_the_change_and_vanishes_where_all_rows_agree():
    found = changes(relay()).set_index(["layer", "head"])
    mixed = found.loc[(2, 1)]
    assert mixed["low"] <= mixed["change"] <= mixed["high"]
    assert mixed["low"] < mixed["high"]
    assert found.loc[(1, 0), ["low", "high"]].tolist() == pytest.approx([1.0, 1.0])


def test_rows_are_drawn_and_batched_without_a_difference():
    tokens = torch.randint(0, 3, (40, 4), generator=torch.Generator().manual_seed(0))
    model = relay()
    means = ActivationMeans.collect(model, tokens)
    whole = dependence_on(model, tokens, means, [C], sample=Sample(batch_size=64))
    parts = dependence_on(model, encode_tokens(tokens), means, [C], sample=Sample(batch_size=7))
    assert parts["change"].tolist() == pytest.approx(whole["change"].tolist())
    few = dependence_on(model, tokens, means, [C], sample=Sample(10))
    assert (few["n"] == 10).all()
    assert few["change"].tolist() != pytest.approx(whole["change"].tolist())


def test_padding_and_skipped_blocks_do_not_count_in_a_real_architecture():
    """By hand on a BERT: z of every head with and without c, real tokens only, one row at a time."""
    task = planted_task()
    model = new_model(LOUD_BERT, labels=("yes", "no"), tokenizer=tokenizer()).eval()
    means = ActivationMeans.collect(model, task.train)
    heads = [Head(0, 1), Head(1, 3)]
    found = dependence_on(model, task.train, means, heads, sample=Sample(batch_size=6))
    encoded = inputs_of(model, task.train)
    points = [f"blocks.{layer}.attn.hook_z" for layer in range(3)]
    for source in heads:
        changed, departed = torch.zeros(3, 4), torch.zeros(3, 4)
        for row in range(len(encoded)):
            batch = encoded.batch([row])
            with torch.no_grad(), captured(model, points) as full:
                model(batch)
            with torch.no_grad(), hooked(model, means.edits([source])), captured(model, points) as ablated:
                model(batch)
            for layer, point in enumerate(points):
                changed[layer] += (ablated[point] - full[point]).norm(dim=-1).sum((0, 1))
                departed[layer] += (full[point] - means.head[layer]).norm(dim=-1).sum((0, 1))
        rows = found[found["source"] == str(source)]
        assert rows["change"].min() > 0.01
        for row in rows.itertuples():
            expected = float(changed[row.layer, row.head] / departed[row.layer, row.head])
            assert row.change == pytest.approx(expected, rel=1e-3)
    direct = dependence_on(model, task.train, means, heads[1:], through="direct path")
    everything = found[found["source"] == str(heads[1])]
    assert direct["change"].tolist() != pytest.approx(everything["change"].tolist())
    assert (direct["change"] > 0).all(), "the MLP between stays as it was, the residual stream carries the head"


def test_bad_input_names_what_is_wrong():
    model = relay()
    means = ActivationMeans.collect(model, TOKENS)
    for heads, options, told in (
        ([], {}, "no heads given"),
        ([Head(2, 0)], {}, r"L2\.H0: no block comes after the model's last one"),
        ([Head(7, 0)], {}, r"L7\.H0 is not in this model"),
        ([C], {"controls": -1}, "controls must not be negative, got -1"),
    ):
        with pytest.raises(ValueError, match=told):
            dependence_on(model, TOKENS, means, heads, **options)
    # Refused by the function, and sooner by the type checks of the tests.
    with pytest.raises((ValueError, TypeCheckError)):
        dependence_on(model, TOKENS, means, [C], through="nothing")
    other = new_model(LOUD_BERT, labels=("yes", "no"), tokenizer=tokenizer())
    with pytest.raises(MeansError, match="another model"):
        dependence_on(other, planted_task().train, means, [C])
