"""`python -m headrace.server CONFIG`: one node in this process. `headrace serve` executes this program.

It loads no argument parser and no terminal library: they would cost memory and time at every start.
"""

import faulthandler
import sys

from headrace.server.garbage_collection import collect_rarely
from headrace.server.logs import FORMATS, LEVELS, Log

USAGE = """usage: python -m headrace.server CONFIG [--set key=value]... [--pid-file PATH]
                                 [--log-level debug|info|warning|error] [--log-format text|json]"""

FAILED, WRONG_USE = 1, 2


def main(arguments: list[str]) -> int:
    # A crash, or SIGABRT, writes what each thread was doing to the log. By number: a program that calls this
    # one may have replaced sys.stderr by something without a file.
    faulthandler.enable(2)
    collect_rarely()
    if len(arguments) == 1 and not arguments[0].startswith("-"):
        return serve(arguments[0], {}, Log(), None)
    from getopt import GetoptError, gnu_getopt

    try:
        options, files = gnu_getopt(arguments, "", ["log-level=", "log-format=", "set=", "pid-file="])
    except GetoptError as error:
        return _wrong_use(str(error))
    given = dict(options)
    level, format = given.get("--log-level", "info"), given.get("--log-format", "text")
    overrides = dict(value.partition("=")[::2] for name, value in options if name == "--set")
    if len(files) != 1:
        return _wrong_use(f"{len(files)} arguments: must be exactly one CONFIG")
    if level not in LEVELS or format not in FORMATS:
        return _wrong_use(f"unknown log level or format: {level}, {format}")
    return serve(files[0], overrides, Log(level, format=format), given.get("--pid-file"))


def serve(path: str, overrides: dict[str, str], log: Log, pid_file: str | None) -> int:
    from headrace.machines.metadata.errors import BadMetadata
    from headrace.server.config import WrongSettings, read_settings
    from headrace.server.listeners import CannotListen
    from headrace.server.lock import DirectoryInUse
    from headrace.server.process import run
    from headrace.storage.errors import StorageError

    try:
        file = read_settings(path, overrides)
        for warning in file.warnings:
            log.warning("unknown_setting", text=warning)
        for name in file.open_files:
            log.warning("secret_file_readable", path=name, advice=f"Run `chmod 600 {name}`.")
        run(file.settings, log=log, pid_file=pid_file)
    except (WrongSettings, CannotListen, DirectoryInUse, StorageError, BadMetadata, OSError) as error:
        log.error("cannot_start", reason=str(error))
        return FAILED
    return 0


def _wrong_use(what: str) -> int:
    print(f"{what}\n{USAGE}", file=sys.stderr)
    return WRONG_USE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
