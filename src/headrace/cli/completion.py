"""`headrace completion`: the script that makes a shell complete commands, options, names and keys."""

import os
import sys

import click
from click.shell_completion import BashComplete, add_completion_class, get_completion_class

from headrace.cli.options import json_option
from headrace.cli.terminal import note, print_json

COMPLETE_VARIABLE = "_HEADRACE_COMPLETE"
SHELLS = ("bash", "zsh", "fish")
INSTALL = {
    "bash": """echo 'eval "$(headrace completion bash)"' >> ~/.bashrc""",
    "zsh": """echo 'eval "$(headrace completion zsh)"' >> ~/.zshrc""",
    "fish": "headrace completion fish > ~/.config/fish/completions/headrace.fish",
}


class Bash(BashComplete):
    """click's script, without a space after a key's equals sign: a value comes next."""

    source_template = BashComplete.source_template.replace(
        "    return 0\n",
        """    if [[ ${#COMPREPLY[@]} -gt 0 && ${COMPREPLY[0]} == *= ]]; then
        compopt -o nospace
    fi

    return 0
""",
    )


add_completion_class(Bash)


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS), required=False)
@json_option
def command(shell: str | None, as_json: bool) -> None:
    """Print the completion script of `headrace` for SHELL. The default is the shell in $SHELL.

    \b
    Install it once:
      bash   echo 'eval "$(headrace completion bash)"' >> ~/.bashrc
      zsh    echo 'eval "$(headrace completion zsh)"' >> ~/.zshrc
      fish   headrace completion fish > ~/.config/fish/completions/headrace.fish

    It completes commands, options, topics, groups, subjects and the keys of settings. It gets names from the
    broker at $HEADRACE_BOOTSTRAP, or at the --bootstrap that is already on the command line.
    """
    chosen = shell or os.path.basename(os.environ.get("SHELL", ""))
    if chosen not in SHELLS:
        known = "is not set" if not chosen else f"is {chosen!r}, which is not supported"
        raise click.UsageError(f"$SHELL {known}. Name a shell: {', '.join(SHELLS)}.")
    kind = get_completion_class(chosen)
    assert kind is not None
    root = click.get_current_context().find_root().command
    script = kind(root, {}, "headrace", COMPLETE_VARIABLE).source()
    if as_json:
        print_json({"shell": chosen, "script": script, "install": INSTALL[chosen]})
        return
    click.echo(script)  # ours, to the letter
    if sys.stdout.isatty():
        note(f"install it with: {INSTALL[chosen]}")
