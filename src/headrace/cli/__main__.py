"""Where every command line begins, as `headrace` or as `python -m headrace.cli`.

`headrace serve CONFIG` without options needs no parser: the node starts in this process at once, and does not
carry the command's libraries in its memory. Everything else is parsed by `main.py`.
"""

import os
import sys

from headrace.server.garbage_collection import collect_rarely


def main() -> int:
    collect_rarely()
    words = sys.argv[1:]
    if len(words) == 2 and words[0] == "serve" and os.path.isfile(words[1]) and os.access(words[1], os.R_OK):
        from headrace.server.__main__ import main as serve

        return serve(["--", words[1]])
    from headrace.cli.main import run

    return run(words)


if __name__ == "__main__":
    sys.exit(main())
