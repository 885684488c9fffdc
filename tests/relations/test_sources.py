"""Relations from files of every kind, and what is said of damaged ones."""

import json
from pathlib import Path

import pytest

from hc_lens.relations.cleaning import usable
from hc_lens.relations.relation import Fact, Relation
from hc_lens.relations.sources import load_countries, load_lre, load_relation, load_relations, load_table, load_trex

LANDMARKS = {
    "name": "landmark in country",
    "prompt_templates": ["{} is in the country of"],
    "prompt_templates_zs": ["What country is {} in? It is in", "{} is in the country of"],
    "properties": {"relation_type": "factual"},
    "samples": [{"subject": "Big Ben", "object": "England"}, {"subject": "Louvre", "object": "France"}],
}
ALPS = {
    "name": {"common": "Switzerland"},
    "region": "Europe",
    "subregion": "Western Europe",
    "languages": {"fra": "French", "deu": "German"},
    "currencies": {"CHF": {"name": "Swiss franc"}},
}
ICE = {"name": {"common": "Antarctica"}, "region": "Antarctic", "subregion": "", "languages": {}, "currencies": {}}


def lre_file(folder: Path, content: object = LANDMARKS) -> Path:
    file = folder / "data" / "factual" / "landmark_in_country.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content if isinstance(content, str) else json.dumps(content, indent=1), encoding="utf-8")
    return file


def trex_files(folder: Path, templates: str = "trex_relations.jsonl", facts: str = "trex") -> Path:
    rows = [
        {"relation": "P30", "template": "[X] is located in [Y] .", "label": "continent"},
        {"relation": "P106", "template": "[X] is a [Y] by profession .", "label": "occupation"},
        {"relation": "P1923", "template": "[Y] participated in the [X] .", "label": "participating team"},
    ]
    (folder / templates).write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (folder / facts).mkdir()
    for row in rows:
        fact = {"sub_label": f"subject of {row['relation']}", "obj_label": "answer", "uuid": "1"}
        (folder / facts / f"{row['relation']}.jsonl").write_text(f"{json.dumps(fact)}\n")
    return folder


def test_an_lre_relation_has_each_template_once_and_its_facts_in_order(tmp_path: Path) -> None:
    assert load_lre(lre_file(tmp_path)) == Relation(
        "landmark in country",
        ("{} is in the country of", "What country is {} in? It is in"),
        (Fact("Big Ben", "England"), Fact("Louvre", "France")),
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": 3}, r"landmark_in_country\.json: 'name' must be text, got 3"),
        ({"samples": [*LANDMARKS["samples"], {"subject": "Kremlin"}]}, r"sample 3: 'object' must be text, got None"),
        ({"samples": "none"}, r"'samples' must be a list, got 'none'"),
        ({"samples": []}, r"\.json: relation 'landmark in country' has no facts"),
        ({"prompt_templates": ["it is in"]}, r"\.json: a template has one slot \{\} for the subject; 'it is in'"),
        ({"prompt_templates": [None]}, r"'prompt_templates' must be text, got None"),
    ],
)
def test_a_damaged_lre_field_is_named(tmp_path: Path, change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load_lre(lre_file(tmp_path, {**LANDMARKS, **change}))


def test_damaged_json_is_named_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"landmark_in_country\.json, line 2: not JSON"):
        load_lre(lre_file(tmp_path, '{"name": "x",\n"samples": [}'))
    file = lre_file(tmp_path)
    file.write_bytes(b'{"name":\n"\xff"}')
    with pytest.raises(ValueError, match=r"line 2: not UTF-8 \(byte 0xff\)"):
        load_lre(file)
    with pytest.raises(ValueError, match="one JSON object, this is list"):
        load_lre(lre_file(tmp_path, []))


@pytest.mark.parametrize("layout", [("trex_relations.jsonl", "trex"), ("relations.jsonl", "TREx")])
def test_a_trex_template_ends_before_the_answer(tmp_path: Path, layout: tuple[str, str]) -> None:
    trex_files(tmp_path, *layout)
    assert load_trex(tmp_path, "P106") == Relation("P106", ("{} is a",), (Fact("subject of P106", "answer"),))
    assert load_relation(tmp_path / layout[1] / "P106.jsonl") == load_trex(tmp_path, "P106")


def test_what_is_wrong_with_trex_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="holds no T-REx"):
        load_trex(tmp_path, "P30")
    trex_files(tmp_path)
    with pytest.raises(ValueError, match=r"no T-REx relation 'P31' among 3; the nearest: 'P30'"):
        load_trex(tmp_path, "P31")
    with pytest.raises(ValueError, match=r"trex_relations\.jsonl, line 3: a template asks for \[Y\] after \[X\]"):
        load_trex(tmp_path, "P1923")
    (tmp_path / "trex" / "P30.jsonl").write_text('{"sub_label": "a", "obj_label": "b"}\n{"sub_label": "a"\n')
    with pytest.raises(ValueError, match=r"P30\.jsonl, line 2: not JSON"):
        load_trex(tmp_path, "P30")
    (tmp_path / "trex" / "P36.jsonl").write_text("")
    with pytest.raises(ValueError, match="has no template for 'P36'"):
        load_trex(tmp_path, "P36")


def test_a_table_takes_its_template_from_the_caller(tmp_path: Path) -> None:
    (tmp_path / "cities.csv").write_text('answer,subject,note\nFrance,Paris,big\nUS,"Washington, D.C.",\n')
    found = load_table(tmp_path / "cities.csv", "{} is in")
    assert found == Relation("cities", ("{} is in",), (Fact("Paris", "France"), Fact("Washington, D.C.", "US")))
    (tmp_path / "cities.jsonl").write_text('{"subject": "Paris", "answer": "France"}\n')
    assert load_table(tmp_path / "cities.jsonl", ["{} is in", "In {}, of"], "city").templates == ("{} is in", "In {}, of")
    assert load_relation(tmp_path / "cities.csv", "{} is in") == found
    with pytest.raises(ValueError, match=r"cities\.csv: a table of subjects and answers needs a template"):
        load_relation(tmp_path / "cities.csv")
    with pytest.raises(ValueError, match=r"cities\.csv: a template has one slot"):
        load_table(tmp_path / "cities.csv", "is in")
    (tmp_path / "cities.csv").write_text("subject,answer\nParis,France\nLyon,\n")
    with pytest.raises(ValueError, match=r"cities\.csv, line 3: column 'answer' is empty"):
        load_table(tmp_path / "cities.csv", "{} is in")


def test_a_country_of_two_languages_has_two_facts_and_one_without_none(tmp_path: Path) -> None:
    file = tmp_path / "countries.json"
    file.write_text(json.dumps([ALPS, ICE]))
    by_name = {relation.name: relation for relation in load_countries(file)}
    assert list(by_name) == ["region of country", "subregion of country", "language of country", "currency of country"]
    assert by_name["region of country"].facts == (Fact("Switzerland", "Europe"), Fact("Antarctica", "Antarctic"))
    assert by_name["subregion of country"].facts == (Fact("Switzerland", "Western Europe"),)
    assert by_name["language of country"].facts == (Fact("Switzerland", "French"), Fact("Switzerland", "German"))
    assert by_name["currency of country"].facts == (Fact("Switzerland", "Swiss franc"),)
    file.write_text(json.dumps([ALPS, {"name": "Atlantis"}]))
    with pytest.raises(ValueError, match=r"countries\.json, country 2: not an entry"):
        load_countries(file)


def test_a_folder_of_relations_is_read_whole_or_by_name(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no relations in"):
        load_relations(tmp_path)
    lre_file(tmp_path)
    assert [relation.name for relation in load_relations(tmp_path)] == ["landmark in country"]
    trex_files(tmp_path)
    (tmp_path / "trex" / "P1923.jsonl").unlink()
    (tmp_path / "countries_of_the_world.json").write_text(json.dumps([ALPS, ICE]))
    names = [relation.name for relation in load_relations(tmp_path)]
    assert names == ["landmark in country", "P30", "P106", *(f"{field} of country" for field in COUNTRY_FIELDS)]
    assert [relation.name for relation in load_relations(tmp_path, ["P106", "region of country"])] == [
        "P106",
        "region of country",
    ]
    with pytest.raises(ValueError, match=r"no relation 'landmarks in country' among 7; the nearest: 'landmark in country'"):
        load_relations(tmp_path, ["P30", "landmarks in country"])
    (tmp_path / "data" / "factual" / "again.json").write_text(json.dumps(LANDMARKS))
    with pytest.raises(ValueError, match=r"two relations of one name: \['landmark in country'\]"):
        load_relations(tmp_path)


COUNTRY_FIELDS = ("region", "subregion", "language", "currency")


@pytest.mark.slow
def test_the_public_relations_are_usable(shared_data: Path) -> None:
    relations = load_relations(shared_data / "relations")
    assert len(relations) == 47 + 41 + len(COUNTRY_FIELDS)
    found = usable(relations)
    assert len(found.cleaned) > 50
    same = found.left_out[found.left_out["name"] == "P1303"]["reason"].item()
    assert "'person plays instrument'" in same
