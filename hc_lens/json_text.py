"""JSON text from anywhere: read, or refused in one sentence that says where it is wrong, whatever it holds."""

import json
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple, cast

_BLANK = re.compile(r"[ \t\r\n]*")


class JsonTextError(ValueError):
    """Text that cannot be read as JSON: what is wrong, and in which line."""

    def __init__(self, problem: str, line: int) -> None:
        super().__init__(problem)
        self.line = line


class Item(NamedTuple):
    """An item of a list, and the line in which it begins."""

    line: int
    value: object


def parse_json(text: str) -> object:
    """The value of a JSON text.

    Raises:
        JsonTextError: for text that is not JSON, with its column; for brackets nested deeper than the parser goes, a number of
            more digits than it reads, or a key that an object has twice.
    """
    start = _past_blanks(text, 0)
    value, end = _value(text, start, 1)
    if (rest := _past_blanks(text, end)) < len(text):
        raise _invalid(json.JSONDecodeError("Extra data", text, rest))
    return value


def parse_json_items(text: str) -> Iterator[Item]:
    """The items of a JSON text that is a list, one after the other.

    Raises:
        JsonTextError: as `parse_json`, when its place is reached.
    """
    line, seen, at = 1, 0, _past_blanks(text, 0)
    sign = "["
    while sign == "[" or text[at : at + 1] == ",":
        if text[at : at + 1] != sign:
            raise _invalid(json.JSONDecodeError(f"Expecting {sign!r}", text, at))
        start = _past_blanks(text, at + 1)
        if sign == "[" and text[start : start + 1] == "]":
            at = start
            break
        line, seen = line + text.count("\n", seen, start), start
        value, end = _value(text, start, line)
        yield Item(line, value)
        sign, at = ",", _past_blanks(text, end)
    if text[at : at + 1] != "]":
        raise _invalid(json.JSONDecodeError("Expecting ',' or ']'", text, at))
    if (rest := _past_blanks(text, at + 1)) < len(text):
        raise _invalid(json.JSONDecodeError("Extra data", text, rest))


def _value(text: str, at: int, line: int) -> tuple[object, int]:
    """The value that begins at a character, and where it ends."""
    try:
        return cast("tuple[object, int]", _DECODER.raw_decode(text, at))
    except json.JSONDecodeError as error:
        raise _invalid(error) from error
    except _RepeatedKeyError as error:
        raise JsonTextError(f"an object has the key {error.key!r:.80} twice", line) from None
    except RecursionError:
        raise JsonTextError("its brackets are nested too deeply to be read", line) from None
    except ValueError:  # Python reads whole numbers of at most sys.get_int_max_str_digits() digits
        raise JsonTextError("it holds a number with too many digits to be read", line) from None


def _invalid(error: json.JSONDecodeError) -> JsonTextError:
    return JsonTextError(f"{error.msg} at column {error.colno}", error.lineno)


def _past_blanks(text: str, at: int) -> int:
    match = _BLANK.match(text, at)
    return at if match is None else match.end()


class _RepeatedKeyError(Exception):
    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


def _object(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise _RepeatedKeyError(next(key for key in keys if keys.count(key) > 1))
    return found


_DECODER = json.JSONDecoder(object_pairs_hook=_object)
