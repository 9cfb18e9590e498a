"""How deep the objects and lists of a JSON text are nested, without parsing it."""

import re

# possessive: otherwise every escaped character would be remembered for backtracking
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


def is_deeper(text: bytes, levels: int) -> bool:
    """Whether it is deeper than that. What is not JSON is left to the parser."""
    if text.count(b"[") + text.count(b"{") <= levels:
        return False
    depth = 0
    for bracket in _STRING.sub(b"", text).translate(None, _NOT_BRACKETS):
        if bracket in b"[{":
            depth += 1
            if depth > levels:
                return True
        else:
            depth -= 1
    return False
