"""Relations from files: LRE's JSON, T-REx's JSON lines, the table of all countries, and tables of one's own.

Whatever is wrong with a file is an error that names file, line and value. Nothing is cleaned here: a subject may come twice.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, cast

from hc_lens.data.files import text_of
from hc_lens.data.rows import read_rows
from hc_lens.json_text import JsonTextError, parse_json
from hc_lens.relations.relation import SLOT, Fact, Relation

_SUBJECT, _ANSWER = "[X]", "[Y]"  # in T-REx's templates
_TREX_LAYOUTS = (("trex_relations.jsonl", "trex"), ("relations.jsonl", "TREx"))  # ours, and that of LAMA's archive


def load_lre(file: Path | str) -> Relation:
    """A relation of Hernandez et al. (2023), "Linearity of Relation Decoding": one JSON object with name, templates, samples.

    Its few-shot templates come first, then those of its zero-shot templates that are not among them.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: naming file and field, for damaged JSON (with its line), a missing field, or a template without a slot.
    """
    file = Path(file)
    content = _json(file)
    if not isinstance(content, dict):
        raise ValueError(f"{file}: an LRE relation is one JSON object, this is {type(content).__name__}")
    fields = cast("dict[str, object]", content)
    name = _text(fields, "name", str(file))
    templates = [
        _text({key: template}, key, str(file))
        for key in ("prompt_templates", "prompt_templates_zs")
        for template in _list({"prompt_templates_zs": [], **fields}, key, str(file))
    ]
    samples = enumerate(_list(fields, "samples", str(file)), 1)
    facts = [
        Fact(*(_text(sample, key, f"{file}, sample {number}") for key in ("subject", "object"))) for number, sample in samples
    ]
    return _relation(str(file), name, list(dict.fromkeys(templates)), facts)


def load_trex(directory: Path | str, relation: str) -> Relation:
    """A relation of T-REx as LAMA has it (Petroni et al. 2019), by its identifier: `P30`.

    `directory` holds the templates (`trex_relations.jsonl`, or `relations.jsonl` as in LAMA's archive) and the folder of facts
    (`trex` or `TREx`). What a template says after the answer is left out: "[X] was born in [Y] ." becomes "{} was born in".

    Raises:
        FileNotFoundError: if the directory has no such files.
        ValueError: for a relation that is not there, naming the nearest; naming file and line for what cannot be read.
    """
    templates, folder = _trex_files(Path(directory))
    _require_known([relation], _identifiers(folder), "T-REx relation")
    for row in read_rows(templates, ("relation", "template")):
        if text_of(row, "relation") == relation:
            template = _trex_template(text_of(row, "template"), row.where)
            rows = read_rows(folder / f"{relation}.jsonl", ("sub_label", "obj_label"))
            facts = [Fact(text_of(row, "sub_label"), text_of(row, "obj_label")) for row in rows]
            return _relation(str(folder / f"{relation}.jsonl"), relation, [template], facts)
    raise ValueError(f"{templates} has no template for {relation!r}")


def load_table(file: Path | str, template: str | Sequence[str], name: str | None = None) -> Relation:
    """A relation from a table with the columns `subject` and `answer`: CSV, TSV, JSON, JSON lines or Parquet, also gzipped.

    It is called after the file unless it is given a name.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: naming file and line, for what cannot be read; for a template without a slot.
    """
    file = Path(file)
    facts = [Fact(text_of(row, "subject"), text_of(row, "answer")) for row in read_rows(file, ("subject", "answer"))]
    templates = [template] if isinstance(template, str) else list(template)
    return _relation(str(file), name or file.name.split(".")[0], templates, facts)


class _CountryField(NamedTuple):
    """A field of the table of countries, how a prompt asks for it, and what a country has there."""

    template: str
    answers: Callable[[Mapping[str, object]], Iterable[object]]


def _values(field: str) -> Callable[[Mapping[str, object]], Iterable[object]]:
    return lambda country: cast("Mapping[str, object]", country[field]).values()


_COUNTRY_FIELDS = MappingProxyType(
    {
        "region": _CountryField("{} is a country in the region of", lambda country: [country["region"]]),
        "subregion": _CountryField("{} is a country in the subregion of", lambda country: [country["subregion"]]),
        "language": _CountryField("The official language of {} is", _values("languages")),
        "currency": _CountryField(
            "The currency of {} is the",
            lambda country: [cast("Mapping[str, object]", currency)["name"] for currency in _values("currencies")(country)],
        ),
    }
)


def load_countries(file: Path | str) -> tuple[Relation, ...]:
    """Region, subregion, languages and currencies of all countries, from the JSON file of github.com/mledoze/countries.

    The relations are called "region of country" and so on. A country with two languages has two facts; one without, none.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: naming the file and the country, if it is not that table.
    """
    file = Path(file)
    content = _json(file)
    if not isinstance(content, list) or not content:
        raise ValueError(f"{file}: the table of countries is a list of objects, this is {type(content).__name__}")
    facts: dict[str, list[Fact]] = {name: [] for name in _COUNTRY_FIELDS}
    for number, country in enumerate(cast("list[dict[str, dict[str, object]]]", content), 1):
        try:
            subject = str(country["name"]["common"])
            for name, field in _COUNTRY_FIELDS.items():
                facts[name] += [
                    Fact(subject, answer) for answer in field.answers(country) if isinstance(answer, str) and answer
                ]
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{file}, country {number}: not an entry of the table of countries ({error!r})") from error
    return tuple(
        _relation(str(file), f"{name} of country", [field.template], facts[name]) for name, field in _COUNTRY_FIELDS.items()
    )


def load_relation(file: Path | str, template: str | None = None) -> Relation:
    """The relation of one file: LRE's `.json`, T-REx's `P30.jsonl` in its folder, or with a template any table.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: as `load_lre`, `load_trex` and `load_table`; for a table without a template.
    """
    file = Path(file)
    if template is not None:
        return load_table(file, template)
    if file.suffix == ".json":
        return load_lre(file)
    if file.parent.name in {folder for _, folder in _TREX_LAYOUTS} and file.suffix == ".jsonl":
        return load_trex(file.parent.parent, file.stem)
    raise ValueError(f"{file}: a table of subjects and answers needs a template, such as '{SLOT} is in the country of'")


def load_relations(root: Path | str, names: Sequence[str] | None = None) -> tuple[Relation, ...]:
    """All relations of a folder, or those of these names in this order.

    It holds LRE's files (`data/*/*.json`), T-REx (as `load_trex` describes it), the table of countries (`countries*.json`), or
    some of these; the relations come in this order.

    Raises:
        FileNotFoundError: if the folder has none of these.
        ValueError: for names that are not there, with the nearest; naming file and line, for what cannot be read.
    """
    root = Path(root)
    found = [load_lre(file) for file in sorted(root.glob("data/*/*.json"))]
    if any((root / templates).exists() for templates, _ in _TREX_LAYOUTS):
        found += [load_trex(root, identifier) for identifier in _identifiers(_trex_files(root)[1])]
    found += [relation for file in sorted(root.glob("countries*.json")) for relation in load_countries(file)]
    if not found:
        raise FileNotFoundError(f"no relations in {root}: neither data/*/*.json, nor trex_relations.jsonl, nor countries*.json")
    by_name = {relation.name: relation for relation in found}
    if len(by_name) < len(found):
        raise ValueError(
            f"{root} has two relations of one name: {[name for name, n in Counter(r.name for r in found).items() if n > 1]}"
        )
    if names is None:
        return tuple(found)
    _require_known(names, list(by_name), "relation")
    return tuple(by_name[name] for name in names)


def _relation(where: str, name: str, templates: Sequence[str], facts: Sequence[Fact]) -> Relation:
    try:
        return Relation(name, tuple(templates), tuple(facts))
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error


def _require_known(names: Sequence[str], known: Sequence[str], kind: str) -> None:
    for name in names:
        if name not in known:
            near = get_close_matches(name, known, n=3) or known[:10]
            raise ValueError(f"no {kind} {name!r} among {len(known)}; the nearest: {', '.join(map(repr, near))}")


def _trex_files(directory: Path) -> tuple[Path, Path]:
    """The file of templates and the folder of facts."""
    for templates, folder in _TREX_LAYOUTS:
        if (directory / templates).exists() and (directory / folder).is_dir():
            return directory / templates, directory / folder
    raise FileNotFoundError(
        f"{directory} holds no T-REx: neither trex_relations.jsonl and trex/, nor relations.jsonl and TREx/"
    )


def _identifiers(folder: Path) -> list[str]:
    """Of the relations there, by number."""
    return sorted((file.stem for file in folder.glob("P*.jsonl")), key=lambda name: (len(name), name))


def _trex_template(text: str, where: str) -> str:
    before, answer, _ = text.partition(_ANSWER)
    if not answer or before.count(_SUBJECT) != 1:
        raise ValueError(f"{where}: a template asks for {_ANSWER} after {_SUBJECT}, this one does not: {text!r}")
    return before.replace(_SUBJECT, SLOT).strip()


def _json(file: Path) -> object:
    try:
        return parse_json(file.read_bytes().decode("utf-8-sig"))
    except JsonTextError as error:
        raise ValueError(f"{file}, line {error.line}: not JSON ({error})") from error
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ValueError(f"{file}, line {line}: not UTF-8 (byte 0x{error.object[error.start]:02x})") from error


def _list(fields: Mapping[str, object], key: str, where: str) -> list[object]:
    value = fields.get(key)
    if not isinstance(value, list):
        raise ValueError(f"{where}: {key!r} must be a list, got {value!r:.80}")
    return cast("list[object]", value)


def _text(fields: object, key: str, where: str) -> str:
    value = cast("dict[str, object]", fields).get(key) if isinstance(fields, dict) else None
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{where}: {key!r} must be text, got {value!r:.80}")
    return value
