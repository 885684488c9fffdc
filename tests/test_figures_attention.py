"""Attention figures show the numbers of their tables, and refuse tables that they would show wrongly."""

import numpy as np
import pandas as pd
import pytest

from hc_lens.figures import attention_dots, attention_map, head_profiles
from hc_lens.units import Head

TOKENS = ("[CLS]", "judge", "##s", "<b>", "[SEP]", "the", "judge", "##s", "[SEP]")
SENTENCES = (-1, 0, 0, 0, -1, 1, 1, 1, -1)


def pattern(*heads: Head) -> pd.DataFrame:
    """Every head attends to one key, that of its index, from every query; "judges" is in both sentences."""
    n, word = len(TOKENS), {1: 0, 2: 0, 6: 0, 7: 0}
    rows = [
        {
            "layer": head.layer,
            "head": head.index,
            "query": query,
            "key": key,
            "query_token": TOKENS[query],
            "key_token": TOKENS[key],
            "query_sentence": SENTENCES[query],
            "key_sentence": SENTENCES[key],
            "same_word": query in word and key in word and SENTENCES[query] != SENTENCES[key],
            "weight": float(key == head.index),
        }
        for head in heads
        for query in range(n)
        for key in range(n)
    ]
    return pd.DataFrame(rows)


def test_the_map_shows_one_head_at_a_time_chosen_by_the_menu() -> None:
    drawn = attention_map(pattern(Head(0, 1), Head(2, 6)))
    maps = [trace for trace in drawn.data if trace.type == "heatmap"]
    assert [trace.visible for trace in maps] == [True, False]
    for trace, head in zip(maps, (1, 6), strict=True):
        assert (np.argmax(np.array(trace.z), axis=1) == head).all()
    buttons = drawn.layout.updatemenus[0].buttons
    assert [button.label for button in buttons] == ["head L0.H1", "head L2.H6"]
    assert buttons[1].args[0]["visible"] == [False, True]
    assert list(buttons[1].args[1]) == [0, 1], "only the maps: outlines stay"


def test_the_order_of_the_rows_does_not_matter() -> None:
    table = pattern(Head(0, 3))
    assert attention_map(table.sample(frac=1, random_state=0)).data[0].z == attention_map(table).data[0].z


def test_equal_words_are_outlined_as_blocks_and_sentences_set_apart() -> None:
    drawn = attention_map(pattern(Head(0, 1)))
    (outline,) = [trace for trace in drawn.data if trace.type == "scatter"]
    points = {(x, y) for x, y in zip(outline.x, outline.y, strict=True) if x is not None}
    # Two blocks of two pieces by two: eight unit edges each, no line inside.
    assert len([x for x in outline.x if x is None]) == 2 * 8
    assert (6.5, 1.5) not in points
    assert {(5.5, 0.5), (7.5, 2.5), (0.5, 5.5), (2.5, 7.5)} <= points
    across = sorted(shape.x0 for shape in drawn.layout.shapes if shape.x0 == shape.x1)
    assert across == [0.5, 3.5, 4.5, 7.5]


def test_tokens_are_shown_not_obeyed_and_coloured_by_sentence() -> None:
    drawn = attention_map(pattern(Head(0, 1)))
    labels = drawn.layout.xaxis.ticktext
    assert "&lt;b&gt;" in labels[3]
    assert len({label.split('"')[1] for label in labels}) == 3
    assert "&lt;b&gt;" in drawn.data[0].customdata[3][1]
    assert "<b><b>" not in drawn.to_json()


def test_a_map_needs_every_query_and_key_once() -> None:
    table = pattern(Head(0, 1))
    with pytest.raises(ValueError, match=r"one row per query and key of 0\.\.8; L0\.H1 has 80 rows"):
        attention_map(table[:-1])
    with pytest.raises(ValueError, match="82 rows"):
        attention_map(pd.concat([table, table[:1]]))
    with pytest.raises(ValueError, match="weight"):
        attention_map(table.drop(columns="weight"))


def profiles() -> pd.DataFrame:
    rows = [(0, 0, "overlap", 0.7), (0, 1, "mixed", 0.2), (1, 0, "overlap", 0.4), (1, 1, "separator", 0.9)]
    return pd.DataFrame(
        {
            "layer": layer,
            "head": head,
            "profile": profile,
            "relation": "first" if profile == "mixed" else profile,
            "score": score,
            "low": score - 0.1,
            "high": score + 0.1,
            "baseline": 0.1,
        }
        for layer, head, profile, score in rows
    )


def test_every_head_has_the_colour_of_its_profile_and_its_evidence() -> None:
    drawn = head_profiles(profiles(), core=[Head(1, 0)])
    maps = [trace for trace in drawn.data if trace.type == "heatmap"]
    overlap, separator, mixed = maps
    assert np.array_equal(np.isnan(np.array(overlap.z, dtype=float)), [[False, True], [False, True]])
    assert [list(row) for row in overlap.text] == [["0.70", ""], ["0.40", ""]]
    assert len({trace.colorscale[0][1] for trace in maps}) == 3
    assert "L1.H1: mostly separator" in separator.customdata[1][1]
    assert "mixed; most to first token" in mixed.customdata[0][1]
    names = [trace.name for trace in drawn.data if trace.type == "scatter"]
    assert names == ["same word, other sentence (2)", "separator (1)", "mixed (1)", "core"]
    (outline,) = drawn.layout.shapes
    assert (outline.x0, outline.y0) == (-0.5, 0.5)


def test_an_unknown_profile_is_refused() -> None:
    with pytest.raises(ValueError, match=r"knows the profiles .*, not 'odd'"):
        head_profiles(profiles().assign(profile="odd"))


def scores(*cases: str) -> pd.DataFrame:
    rows = [
        {"case": case, "layer": 0, "head": head, "relation": relation, "score": 0.1 * (head + 1), "low": 0.05, "high": 0.6}
        | {"uniform": 0.08, "shuffled": np.nan if relation == "overlap" else 0.12}
        for case in cases
        for head in range(3)
        for relation in ("overlap", "overlap from first", "previous")
    ]
    return pd.DataFrame(rows)


def test_dots_stand_in_the_row_of_their_head_and_the_panel_of_their_relation() -> None:
    drawn = attention_dots(scores("one", "two"), [Head(0, 2), Head(0, 0)])
    assert list(drawn.layout.yaxis.ticktext) == ["L0.H2", "L0.H0"]
    assert len(drawn.layout.annotations) == 2, "the two directions of overlap have no panels"
    dots = [trace for trace in drawn.data if trace.name == "one"]
    assert len(dots) == 2
    for trace in dots:
        placed = sorted(zip(np.round(trace.y), trace.x, strict=True))
        assert placed == [(0, pytest.approx(0.3)), (1, pytest.approx(0.1))]
        assert sorted(trace.error_x.arrayminus) == pytest.approx([0.05, 0.25])
    assert sum(bool(trace.showlegend) for trace in drawn.data) == 4, "each case, even attention, shuffled pairs: once"


def test_dots_of_nothing_or_of_too_many_cases_are_refused() -> None:
    with pytest.raises(ValueError, match=r"no scores of L5\.H5"):
        attention_dots(scores("one"), [Head(5, 5)])
    with pytest.raises(ValueError, match="at most 4 cases, the table has 5"):
        attention_dots(scores(*"abcde"), [Head(0, 0)])
