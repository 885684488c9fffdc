"""JSON text is read as Python reads it, or refused in a sentence with its line; lists item by item."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hc_lens.atomic import RunError, read_json
from hc_lens.json_text import Item, JsonTextError, parse_json, parse_json_items

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
DEEP = "[" * 10_000 + "]" * 10_000
LONG = "1" * 5_000


@given(VALUES, st.sampled_from([None, 1]))
def test_what_was_written_is_read(value: object, indent: int | None) -> None:
    assert parse_json(json.dumps(value, indent=indent)) == value


@given(st.lists(VALUES, max_size=4), st.sampled_from([None, 2]), st.sampled_from(["", " ", "\n\n"]))
def test_items_are_those_of_the_list_each_with_its_line(values: list[object], indent: int | None, before: str) -> None:
    text = before + json.dumps(values, indent=indent) + "\n"
    items = list(parse_json_items(text))
    assert [item.value for item in items] == values == parse_json(text)
    lines = text.split("\n")
    for item in items:
        assert json.dumps(item.value, indent=indent).split("\n")[0] in lines[item.line - 1]


@given(st.text(alphabet='[]{},:"01 \n', max_size=12))
def test_a_list_is_refused_where_json_refuses_it(text: str) -> None:
    def verdict() -> list[object] | None:
        try:
            value = json.loads(text)
        except ValueError:
            return None
        return value if isinstance(value, list) else None

    try:
        found: list[object] | None = [item.value for item in parse_json_items(text)]
    except JsonTextError:
        found = None
    assert found == verdict() or '{"' in text, "they differ only on an object with a key twice"


@pytest.mark.parametrize(
    ("item", "says"),
    [
        (DEEP, "its brackets are nested too deeply to be read"),
        ('{"a": ' * 10_000 + "1" + "}" * 10_000, "its brackets are nested too deeply to be read"),
        (LONG, "it holds a number with too many digits to be read"),
        ('{"a": 1, "b": {"c": 1, "c": 2}}', "an object has the key 'c' twice"),
        ('{"a": }', "Expecting value at column 7"),
        ("", "Expecting value at column 1"),
    ],
)
def test_what_cannot_be_read_is_refused_in_a_short_sentence(item: str, says: str) -> None:
    with pytest.raises(JsonTextError, match=re.escape(says)) as alone:
        parse_json(f"\n{item}" if item.startswith('{"a": }') else item)
    assert len(str(alone.value)) < 100
    with pytest.raises(JsonTextError, match=re.escape(says)) as within:
        list(parse_json_items(f"[1,\n2,\n{item}]"))
    assert within.value.line == 3


def test_items_before_the_fault_are_still_given() -> None:
    items = parse_json_items("[1, 2, oh]")
    assert [next(items), next(items)] == [Item(1, 1), Item(1, 2)]
    with pytest.raises(JsonTextError, match="Expecting value at column 8"):
        next(items)


@pytest.mark.parametrize("content", [DEEP, f'{{"a": {LONG}}}', '{"a": 1, "a": 2}', "\ufeff{}", '{"a": 1'])
def test_a_damaged_file_of_a_run_is_named_whatever_the_damage(content: str, tmp_path: Path) -> None:
    file = tmp_path / "core.json"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(RunError, match=r"core\.json is not a whole JSON file"):
        read_json(file)
