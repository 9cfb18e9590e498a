"""Parsing of whole numbers in text from clients.

`int()` raises for more than 4,300 digits and is slow for somewhat fewer, so the length is checked first.
"""

INT32_MAX = (1 << 31) - 1
DIGITS = frozenset("0123456789")


def whole_number(text: str, largest: int) -> int | None:
    """The number that the text says in decimal digits, 0 to `largest`; None if it says nothing of the kind.

    Zeros in front do not count.
    """
    if not text or not DIGITS.issuperset(text):
        return None
    significant = text.lstrip("0")
    if len(significant) > len(str(largest)):
        return None
    number = int(significant or "0")
    return number if number <= largest else None
