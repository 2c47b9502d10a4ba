"""Units that hold just what fits read: draws of launches, and how each launch ended."""

from tare.model.records.campaigns import Unit
from tare.model.records.launches import Draw, LaunchRecord, Turns


def unit_of_rows(row):
    """A unit from a row that has `voided`, and of each launch `status` and the steps of its draws."""
    launches = {}
    for name, launch in row["launches"].items():
        draws = [Turns.model_construct(step_s=draw["turns"]["step_s"]) for draw in launch.get("draws", ())]
        launches[name] = LaunchRecord.model_construct(
            status=launch["status"], draws=tuple(Draw.model_construct(turns=turns) for turns in draws)
        )
    return Unit.model_construct(voided=row["voided"], launches=launches)
