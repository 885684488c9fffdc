"""A relation's answers and their codes, and the templates that ask for it."""

import pytest

from hc_lens.relations.relation import Fact, Relation, prompt

CITIES = (Fact("Paris", "France"), Fact("Berlin", "Germany"), Fact("Lyon", "France"), Fact("Munich", "Germany"))


def test_codes_name_the_answer_of_every_fact() -> None:
    relation = Relation("city", ("{} is in",), CITIES)
    assert relation.answers == ("France", "Germany")
    assert [relation.answers[code] for code in relation.codes] == [fact.answer for fact in CITIES]
    assert relation.subjects == ("Paris", "Berlin", "Lyon", "Munich")
    assert len(relation) == 4


def test_the_chosen_facts_have_codes_among_their_own_answers() -> None:
    chosen = Relation("city", ("{} is in",), CITIES).only([3, 1])
    assert chosen.subjects == ("Munich", "Berlin")
    assert chosen.answers == ("Germany",)
    assert chosen.codes.tolist() == [0, 0]


def test_a_prompt_may_go_on_after_its_subject() -> None:
    assert prompt("The city of {} lies in the country of", "New York") == "The city of New York lies in the country of"


@pytest.mark.parametrize("template", ["is in", "{} is in {}", ""])
def test_a_template_has_one_slot(template: str) -> None:
    with pytest.raises(ValueError, match="one slot"):
        prompt(template, "Paris")
    with pytest.raises(ValueError, match="relation 'city'"):
        Relation("city", ("{} is in", template), CITIES)


def test_a_relation_has_a_name_a_template_and_facts() -> None:
    with pytest.raises(ValueError, match="needs a name"):
        Relation(" ", ("{} is in",), CITIES)
    with pytest.raises(ValueError, match="no template"):
        Relation("city", (), CITIES)
    with pytest.raises(ValueError, match="no facts"):
        Relation("city", ("{} is in",), ())
