"""The command group: every expected failure becomes one line on standard error and exit code 2."""

from __future__ import annotations

import errno
import gc
import sys
from collections.abc import Sequence
from typing import Any

import click

from stickymoe.core.errors import StickyMoEError

BROKEN = 2
INTERRUPTED = 130
# Objects made before Python looks for unreachable ones, 700 by default: the imports of torch and transformers make many
# that stay, and a fifth of a command's start was spent in looking through them.
OBJECTS_BETWEEN_COLLECTIONS = 20_000
# What a user can mend: permissions, wrong kinds of paths, full disks. All else is our fault and keeps its traceback.
MENDABLE = {
    errno.EACCES: "choose a place that may be read and written",
    errno.EPERM: "choose a place that may be read and written",
    errno.ENOTDIR: "a file is in the way of a folder, choose another place",
    errno.EEXIST: "a file is in the way of a folder, choose another place",
    errno.EISDIR: "a folder is in the way of a file, choose another place",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.ELOOP: "choose another place",
    errno.ENOSPC: "free some space and run the same command again",
    errno.EDQUOT: "free some space and run the same command again",
    errno.EFBIG: "the disk allows no file as large, choose another place",
    errno.EROFS: "choose a place that may be written",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.EIO: "the disk fails, choose another place",
}


class StickyGroup(click.Group):
    """A group whose commands end in one line, not in a traceback, when the user can mend what went wrong."""

    def main(self, args: Sequence[str] | None = None, *rest: Any, **extra: Any) -> Any:
        """Run the command line; see click."""
        extra["standalone_mode"] = False
        gc.set_threshold(max(OBJECTS_BETWEEN_COLLECTIONS, gc.get_threshold()[0]))
        try:
            code = super().main(args, *rest, **extra)
        except click.exceptions.NoArgsIsHelpError as error:
            error.show()
            code = BROKEN
        except click.ClickException as error:
            code = fail(_usage(error))
        except (click.Abort, KeyboardInterrupt) as error:
            said = error.__cause__ if isinstance(error, click.Abort) else error  # click hides the reason in the cause
            click.echo(str(said or "") or "interrupted", err=True)
            code = INTERRUPTED
        except StickyMoEError as error:
            code = _stopped_or_failed(error)
        except OSError as error:
            if error.errno not in MENDABLE:
                raise
            code = fail(_refused(error))
        sys.exit(code if isinstance(code, int) else 0)


def fail(message: str) -> int:
    """Say in one line what went wrong and return the exit code."""
    click.echo("error: " + " ".join(message.split()), err=True)
    return BROKEN


def _stopped_or_failed(error: StickyMoEError) -> int:
    number = getattr(error, "signal_number", None)
    if number is None:
        return fail(str(error))
    click.echo(" ".join(str(error).split()), err=True)  # stopped on request, saved
    return 128 + int(number)


def _usage(error: click.ClickException) -> str:
    context = getattr(error, "ctx", None)
    hint = f"; see {context.command_path} --help" if context else ""
    return error.format_message().rstrip(".") + hint


def _refused(error: OSError) -> str:
    reason = (error.strerror or str(error)).lower()
    place = f"{error.filename}: " if error.filename else ""
    return f"{place}{reason}; {MENDABLE[error.errno or 0]}"
