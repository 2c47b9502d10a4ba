"""`tare plan`: what a wanted precision will cost, before anything runs."""

from __future__ import annotations

import argparse
import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tare.model.studies.study import Study

LONGEST_WORD = 1000


def add(subparsers: Any) -> None:
    """Add this group's commands."""
    parser = subparsers.add_parser(
        "plan", help="forecast how long a study or a wanted precision takes, before anything runs"
    )
    parser.add_argument(
        "--study", default="config/config.yaml", help="study file or inline JSON (default config/config.yaml)"
    )
    parser.add_argument("--workload", help="only this workload")
    parser.add_argument(
        "--scenarios", nargs="+", help="only these scenarios of the study; `single` must be one of them"
    )
    parser.add_argument(
        "--half-width", type=_fraction, help="wanted half-width of the intervals, relative (0.005 is 0.5%%)"
    )
    parser.add_argument(
        "--minutes",
        type=_minutes,
        help="minutes that the whole study may take; prints the budgets of headline campaigns",
    )
    parser.add_argument(
        "--stamp",
        action="store_true",
        help="write a stamp of the study and its programs, whose hash you can publish before measuring",
    )
    parser.add_argument(
        "--word",
        type=_word,
        help="word that nobody knew before the stamp, such as a beacon's pulse; it decides the order of launches",
    )
    parser.set_defaults(run=run_plan)


def _over(arguments: argparse.Namespace) -> dict[str, Any] | None:
    return {"scenarios": arguments.scenarios} if arguments.scenarios else None


def _fraction(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and 1; half a per cent is 0.005")
    return value


def _minutes(text: str) -> int | float:
    from tare.core.errors import UserError
    from tare.model.studies.minutes import checked

    try:
        return checked(text)
    except UserError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _word(text: str) -> str:
    if not text.strip() or not text.isprintable() or len(text) > LONGEST_WORD:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is no word of 1 to {LONGEST_WORD} printable characters")
    return text


def run_plan(arguments: argparse.Namespace) -> None:
    """One line per comparison of the study; or its stamp, or the word after that."""
    if arguments.word is not None:
        _take_word(arguments)
        return
    if arguments.minutes is not None:
        _plan_minutes(arguments)
        return
    from tare.model.studies.checks import PRIMARY
    from tare.model.studies.loading import load_checked

    if arguments.stamp:
        _stamp(load_checked(arguments.study))
        return
    from tare.analysis.plans.expected import whole_s
    from tare.analysis.plans.forecast import forecasts
    from tare.core.progress import duration, say
    from tare.literature import claims, published
    from tare.machine.facts import machine_name
    from tare.model.studies.layout import study_folder

    study = load_checked(arguments.study, _over(arguments))
    if arguments.workload:
        study = study.only(arguments.workload)
    wanted = arguments.half_width or study.rounds.half_width
    rows = list(forecasts(study, study_folder(study.study, machine_name()), wanted))
    for row in rows:
        units = "as many units as its pilot asks for" if row.units is None else f"{row.units} units"
        cap = ", more than its time budget: it will be capped" if row.capped else ""
        say(f"{row.workload} {row.campaign}, ±{100 * wanted:g}%: {units}, about {duration(row.seconds)}{cap}")
    for source in dict.fromkeys(row.source for row in rows):
        say(source)
    margins = study.margins
    say(f"margins: {margins.run:.2g} for whole runs and their parts, {margins.step:.2g} for steps; {PRIMARY}")
    say(f"together about {duration(sum(row.seconds for row in rows))} of machine time")
    for name in study.papers:
        for line in claims.beyond(published.load(name), study):
            say(line)
    say(
        f"the whole study: about {duration(whole_s(study))} on two cores once images and data exist (estimated "
        "from its rounds and budgets)"
    )


def _plan_minutes(arguments: argparse.Namespace) -> None:
    """The budgets of a study that may take so many minutes; with --stamp they are written down and stamped."""
    from tare.analysis.plans.minutes import laid_over
    from tare.core.errors import UserError
    from tare.core.progress import say
    from tare.machine.facts import machine_name
    from tare.model.studies.layout import CAMPAIGNS
    from tare.model.studies.loading import load_checked
    from tare.model.studies.minutes import declare, path_of

    for name in ("workload", "half_width"):
        if getattr(arguments, name) is not None:
            option = f"--{name.replace('_', '-')}"
            raise UserError(f"--minutes is of the whole study and chooses its budgets itself: leave {option} out")
    study = load_checked(arguments.study, _over(arguments))
    own, chosen, before = laid_over(study, arguments.minutes, CAMPAIGNS)
    for line in chosen.lines():
        say(line)
    if before:
        say(f"as chosen on {chosen.at}, in {path_of(study, arguments.minutes, machine_name())}")
    if arguments.stamp:
        declare(study, chosen, machine_name())
        _stamp(own)


def _stamp(study: Study) -> None:
    """Write the stamp of a study, note it in its ledger, and say how to leave its hash with others."""
    import time

    from tare.core.files import sha256_file
    from tare.core.progress import say
    from tare.machine.facts import machine_name
    from tare.machine.witnesses import commands, message_of, witnesses
    from tare.model.journals.ledger import bring_up_to_date, last_hash, note_stamp
    from tare.model.studies.layout import study_folder
    from tare.model.studies.stamps import stamp_of, write_stamp
    from tare.stats.fits import ratios_of

    folder = study_folder(study.study, machine_name())
    entries = bring_up_to_date(folder, ratios_of)
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    last = last_hash(folder, entries) if entries else None
    path = write_stamp(folder, stamp_of(study, at, last, machine_name()))
    sha256 = sha256_file(path)
    if sha256 not in [entry.stamp for entry in entries]:
        note_stamp(folder, sha256, at)
    message_of(path, sha256)
    say(f"{path}: sha256 {sha256}")
    say("The file alone proves nothing. Publish its hash before the first round, in one of these ways:")
    for command in commands(path, sha256):
        say(f"  {command}")
    for held in witnesses(path, sha256):
        say(f"held by {held}")
    say("Then add an unpredictable word, so that nobody can choose the order of launches: tare plan --word WORD")


def _take_word(arguments: argparse.Namespace) -> None:
    """Note the word from which the orders of campaigns follow that begin from now on."""
    import time

    from tare.core.errors import UserError
    from tare.core.progress import say
    from tare.machine.facts import machine_name
    from tare.model.journals.ledger import LEDGER, last_hash, note_word, read_ledger
    from tare.model.studies.layout import study_folder
    from tare.model.studies.loading import load_checked

    if arguments.stamp:
        raise UserError("--word comes after the hash was published: first --stamp, then --word")
    folder = study_folder(load_checked(arguments.study).study, machine_name())
    word = note_word(folder, arguments.word, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
    say(f"{folder / LEDGER}: the word {word.text!r} follows the stamp {word.stamp[:12]}")
    say(f"Whoever gave the word can keep the hash of its row: {last_hash(folder, read_ledger(folder))}")
    say("campaigns that begin from now on take their order of launches from it; earlier campaigns keep theirs")
