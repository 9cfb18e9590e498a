"""`ssl.principal.mapping.rules`: from the subject of a client's certificate to the name of its principal.

    RULE:^CN=(.*?),OU=Services.*$/$1/L, RULE:^UID=(.*?),.*$/$1/, DEFAULT

The first rule whose pattern matches the whole subject decides; DEFAULT takes the subject as it is. A client
whose subject no rule matches is refused. Patterns are matched by RE2, in time that is linear in the subject.
What RE2 does not have (look-around, back references inside a pattern) is refused when the rules are read.
"""

import re
from dataclasses import dataclass
from typing import Any

import re2

from headrace.machines.security.errors import LoginRefused

DEFAULT_RULES = "DEFAULT"
PATTERN_BYTES_MAX = 1 << 20  # memory of one compiled pattern

_OPTIONS = re2.Options()
_OPTIONS.log_errors = False
_OPTIONS.max_mem = PATTERN_BYTES_MAX

# pattern and replacement: anything, a slash only behind a backslash
_RULE = re.compile(r"RULE:((?:[^\\/]|\\.)*)/((?:[^\\/]|\\.)*)/([LU]?)\s*(?=,|\Z)", re.DOTALL)
_DEFAULT = re.compile(r"DEFAULT\s*(?=,|\Z)")
_SEPARATORS = re.compile(r"[\s,]*")
_DIGITS = re.compile(r"[0-9]+")


class InvalidRules(ValueError):
    """The rules cannot be used; the text says why."""


@dataclass(slots=True, frozen=True)
class _Rule:
    pattern: Any  # of RE2
    replacement: tuple[str | int, ...]  # text, and numbers of groups
    case: str  # L, U or nothing

    def apply(self, subject: str) -> str | None:
        if self.pattern.fullmatch(subject) is None:
            return None
        # As Java's replaceAll, which replaces each match inside the text. Usually the one match is all of it.
        result = []
        end = 0
        for match in self.pattern.finditer(subject):
            result.append(subject[end : match.start()])
            result.extend(part if isinstance(part, str) else match[part] or "" for part in self.replacement)
            end = match.end()
        result.append(subject[end:])
        name = "".join(result)
        return name.lower() if self.case == "L" else name.upper() if self.case == "U" else name


class PrincipalMapping:
    def __init__(self, rules: str = DEFAULT_RULES) -> None:
        """InvalidRules if they cannot be read."""
        self._rules = _read_rules(rules)

    def name(self, subject: str) -> str:
        """LoginRefused if no rule matches, or nothing would be left of the name."""
        for rule in self._rules:
            name = subject if rule is None else rule.apply(subject)
            if name is not None:
                if not name:
                    raise LoginRefused("the certificate's subject gives an empty name")
                return name
        raise LoginRefused("no rule of ssl.principal.mapping.rules matches the certificate's subject")


def _read_rules(text: str) -> list[_Rule | None]:
    """None stands for DEFAULT."""
    rules: list[_Rule | None] = []
    at = _end(_SEPARATORS.match(text))
    while at < len(text):
        default = _DEFAULT.match(text, at)
        found = default or _RULE.match(text, at)
        if found is None:
            raise _invalid(f"{text[at:]!r} does not begin with DEFAULT or RULE:pattern/replacement/[LU]")
        rules.append(None if default else _compile(found[1], found[2], found[3]))
        at = _end(_SEPARATORS.match(text, found.end()))
    return rules


def _invalid(reason: str) -> InvalidRules:
    return InvalidRules(f"ssl.principal.mapping.rules: {reason}")


def _end(match: re.Match[str] | None) -> int:
    assert match is not None  # it matches nothing, too
    return match.end()


def _compile(pattern: str, replacement: str, case: str) -> _Rule:
    try:
        compiled = re2.compile(pattern, options=_OPTIONS)
    except re2.error as error:
        reason = error.args[0].decode(errors="replace") if error.args else "it cannot be compiled"
        raise _invalid(f"{pattern!r} is not a regular expression of RE2: {reason}") from error
    return _Rule(compiled, _read_replacement(replacement, compiled.groups), case)


def _read_replacement(text: str, groups: int) -> tuple[str | int, ...]:
    r"""$1 is a group, and as many digits belong to its number as make a group that there is; a number that is
    no group stays text, as in Kafka. A backslash makes the next character text.
    """
    parts: list[str | int] = []
    at = 0
    while at < len(text):
        mark = text[at]
        at += 1
        if mark == "\\":
            # a pattern for rules leaves no backslash alone at the end
            parts.append(text[at])
            at += 1
        elif mark == "$":
            digits = _DIGITS.match(text, at)
            # with a group at all, a wrong number is text; without one, it is a mistake in Kafka as well
            if digits is None or (not groups and digits[0].strip("0")):
                raise _invalid(
                    f"{text!r} has a $ that is not followed by the number of a group, nor escaped as \\$"
                )
            length = next((n for n in range(len(digits[0]), 0, -1) if int(digits[0][:n]) <= groups), 0)
            parts.append(int(digits[0][:length]) if length else "$")
            at += length
        else:
            parts.append(mark)
    return tuple(parts)
