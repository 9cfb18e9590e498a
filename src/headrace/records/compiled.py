"""Whether the compiled modules are used, and the warning for operators if they are not."""

from typing import Final

from headrace.records import _codec

COMPILED: Final = not _codec.__file__.endswith(".py")

# For the start of a process: a library that is merely imported says nothing.
ADVICE: Final = "opening batches is several times slower; install a C compiler and reinstall headrace"
