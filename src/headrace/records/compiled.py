"""Whether the record codec runs compiled, and the warning for operators when it does not."""

from typing import Final

from headrace.records import _codec

COMPILED: Final = not _codec.__file__.endswith(".py")

# For the start of a process: a library that is merely imported says nothing.
ADVICE: Final = "opening batches is several times slower; install a C compiler and reinstall headrace"
