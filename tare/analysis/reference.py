"""Tables of a reference campaign that was recorded elsewhere."""

from __future__ import annotations

from pathlib import Path

from tare.analysis import extract
from tare.core.errors import TareError, UserError
from tare.core.files import write_json
from tare.core.progress import say
from tare.model.journals.references import BROKEN, check, opened, pipelines, profiles, sealed_campaigns


def write_tables(folder: Path, out: Path, *, keep_going: bool = False) -> int:
    """Make the tables of a reference campaign, outside of its folder; returns the number of metrics.

    `folder`: as it was recorded, or its archive. `out`: where the tables go. `keep_going`: where it is not what was
    recorded, write tables without rows, and the reason as broken.json: one bad reference must not stop the report
    of this machine. Raises UserError: `out` is in the folder. IntegrityError: the folder is not what was
    recorded.
    """
    if out.resolve().is_relative_to(folder.resolve()):
        raise UserError(f"--out: {out} is in the reference folder, which is kept as it was recorded")
    (out / BROKEN).unlink(missing_ok=True)
    try:
        own = opened(folder)
        check(own)
        built = extract.build(sealed_campaigns(own), profiles(own), pipelines=pipelines(own))
    except TareError as error:
        if not keep_going:
            raise
        say(f"{folder} is left out: {error}")
        write_json(out / BROKEN, {"reason": str(error)})
        built = extract.build([], [])
    extract.write(built, out)
    return len(built["metrics"])
