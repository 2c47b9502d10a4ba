"""The tables that cross a file boundary, each through a strict schema, written whole or not at all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, wraps
from pathlib import Path
from typing import TypeVar, get_args

import pandas as pd
import pandera.pandas as pa

from tare.core.errors import IntegrityError, UserError
from tare.core.files import atomic_path
from tare.model.levels import columns_of_levels, level_column
from tare.model.roles import Role

# Tables of some thousand rows are asked thousands of times for a few of them, which takes Arrow's strings longer.
pd.set_option("mode.string_storage", "python")
TEXT = pd.StringDtype("python", na_value=float("nan"))
Found = TypeVar("Found")
MOST_BYTES, MOST_ROWS = 256 << 20, 5_000_000  # of a table's file, and in one
REMEMBERED = 8  # tables whose answers `once_per_table` keeps

KINDS = ("measured", "modelled", "unavailable")
FORMER_LEVELS = "arm"  # the column of older versions
MACHINE = "machine"  # the column that they lack
INCONCLUSIVE = "inconclusive"
VERDICTS = (
    "equivalent",
    "equivalent apart from stalls",
    "different within margin",
    "different within margin apart from stalls",
    "different",
    INCONCLUSIVE,
)
PLAIN = tuple(word for word in VERDICTS if not word.endswith("stalls"))
DIFFERENT = tuple(word for word in VERDICTS if word.startswith("different"))

ROLES = get_args(Role)
# What a comparison is of: an environment with the host, an arm's level with the headline's, or a launch with a
# co-runner with the same one alone.
ENVIRONMENT, LEVEL, CO_RUNNER = COMPARES = ("environment", "level", "co_runner")

LEVELS = f"{level_column('')}[a-z0-9_]+"  # which columns hold levels


def _texts(*names: str, among: Sequence[str] | None = None, may_lack: bool = False) -> dict[str, pa.Column]:
    """Columns of words, each one of `among` where that is given."""
    return {name: pa.Column(TEXT, pa.Check.isin(among) if among else None, nullable=may_lack) for name in names}


def _numbers(*names: str, check: pa.Check | None = None, may_lack: bool = True) -> dict[str, pa.Column]:
    """Columns of numbers, empty where there is none."""
    return {name: pa.Column(float, check, nullable=may_lack) for name in names}


def _counts(*names: str, least: int = 0) -> dict[str, pa.Column]:
    """Columns of whole numbers that every row has."""
    return {name: pa.Column(int, pa.Check.ge(least)) for name in names}


def _wholes(*names: str, check: pa.Check | None = None, may_lack: bool = True) -> dict[str, pa.Column]:
    """Columns of whole numbers, empty where there is none."""
    return {name: pa.Column(pd.Int64Dtype(), check, nullable=may_lack) for name in names}


def _truths(*names: str, may_lack: bool = True) -> dict[str, pa.Column]:
    """Columns of yes and no."""
    return {name: pa.Column(pd.BooleanDtype(), nullable=may_lack) for name in names}


POSITIVE, SHARE = pa.Check.gt(0), pa.Check.in_range(0, 1)

IDENTITY = {
    # A launch of a unit by its name; the two columns after it hold what the name says.
    **_texts("study", MACHINE, "campaign", "scenario", "workload", "launch", "environment"),
    **_texts("launch_role", among=ROLES),
    **_truths("co_runner", may_lack=False),  # whether another job trained while it ran
    **_texts("stack"),
    # One for each factor that the table's rows have a level of; empty where a row has none.
    LEVELS: pa.Column(TEXT, nullable=True, required=False, regex=True),
    **_wholes("batch"),
    # What of the job is not as published, with the published value; empty where all is, or nothing was published.
    **_texts("scaled", may_lack=True),
}


def _schema_of(
    columns: dict[str, pa.Column], *checks: pa.Check, unique: list[str] | None = None
) -> pa.DataFrameSchema:
    """`columns`, in this order, nothing else."""
    return pa.DataFrameSchema(columns, checks=list(checks), unique=unique, strict=True, ordered=True, coerce=True)


def _strict(columns: dict[str, pa.Column], *checks: pa.Check) -> pa.DataFrameSchema:
    """The same behind the identity."""
    return _schema_of({**IDENTITY, **columns}, *checks)


def _could_not_has_reason(table: pd.DataFrame) -> pd.Series:
    unavailable = table["kind"] == "unavailable"
    return (unavailable & table["value"].isna() & table["reason"].notna()) | (
        ~unavailable & table["value"].notna() & table["reason"].isna()
    )


# A number with its unit, its kind and its source; what could not be had has its reason.
MEASURED = {**_numbers("value"), **_texts("unit"), **_texts("kind", among=KINDS), **_texts("source")}
METRICS = _strict(
    {**_wholes("rep"), **_texts("metric"), **MEASURED, **_texts("reason", may_lack=True)},
    pa.Check(_could_not_has_reason, error="a value without kind, or an unavailable one without its reason"),
)

VERDICT_TABLE = _strict(
    {
        **_texts("metric", "reference"),
        **_texts("compares", among=COMPARES),
        **_texts("role", among=("primary", "exploratory")),
        **_wholes("attempt"),  # which try of its question the campaign is
        **_counts("n_units"),
        **_numbers("ratio", "ci_low", "ci_high", "total_ratio", "total_ci_low", "total_ci_high"),
        **_texts("total_verdict", among=PLAIN),
        **_numbers("stalls_ci_low", "stalls_ci_high"),
        **_wholes("steps"),
        **_numbers("alpha", check=SHARE, may_lack=False),
        **_counts("family_size", least=1),
        **_numbers("family_alpha", check=SHARE, may_lack=False),
        **_numbers("margin", check=POSITIVE, may_lack=False),
        **_texts("verdict", among=VERDICTS),
        **_numbers("all_within", "control_ratio", "control_ci_low", "control_ci_high"),
        **_truths("control_reaches", "sliced"),
        **_texts("unsliced_reason", may_lack=True),
        **_numbers("switch_factor", "switch_more_ms", "switch_more_ci_low_ms", "switch_more_ci_high_ms"),
        **_texts("design", among=("stein", "fixed")),
        **_wholes("more_units"),
        **_counts("launches", "failures", "timeouts"),
        **_numbers("failure_share_low", "failure_share_high", check=SHARE, may_lack=False),
        **_texts("reason", may_lack=True),
    },
)

COUNTS = _strict(
    {
        **_texts("metric"),
        **_counts("n_units"),
        **_numbers("host", "value", "difference", "ci_low", "ci_high"),
        **_numbers("control_difference", "control_ci_low", "control_ci_high"),
        **_numbers("alpha", check=SHARE, may_lack=False),
        **_counts("family_size", least=1),
        **_texts("reason", may_lack=True),
    },
)

OPERATORS = _strict(
    {**_texts("operator"), **_numbers("calls_per_step", "self_s_per_step", "flops_per_step", "bytes_per_step")}
)

FAMILIES = _strict(
    {
        **_texts("family"),
        **_counts("steps"),
        **_numbers("calls_per_step", "self_s_per_step", "self_s_sd"),
        **_numbers("flops_per_step", "elementwise_flops_per_step", "bytes_per_step"),
    },
)

# Families of operators in the stacks of a study, each from one profiled launch: no timing, no interval. Without
# operators, one row with the reason.
STACK_PROFILES = _strict(
    {
        **_texts("level"),  # of the factor stack; `same` is the headline's
        **_texts("source", "family", may_lack=True),
        **_counts("steps"),
        **_numbers(
            "calls_per_step", "self_s_per_step", "self_s_sd", "plain_step_s"
        ),  # the last without the profiler
        **_texts("reason", may_lack=True),
    },
    pa.Check(lambda table: table["family"].isna() == table["reason"].notna()),
)

# Instants of samples: from the launcher's call on, and from the start of the first step on (start-up is negative).
INSTANT = {**_numbers("at_s", may_lack=False), **_numbers("aligned_s")}

SAMPLES = _strict(
    {
        **INSTANT,
        **_numbers("cpu_percent", "rss_bytes", "cgroup_memory_bytes"),  # percent of one CPU; it and its children
        **_wholes("processes"),
        **_numbers("read_bytes_per_s", "written_bytes_per_s", "asked_bytes_per_s"),
        **_numbers("throttled_percent"),  # of the time
    },
)

# Steps on batches of the loader, from the start of the first step of the launch on.
STEPS = _strict(
    {
        **_counts("step", least=1),
        **_numbers("start_s", "end_s", may_lack=False),
        **_numbers("samples_per_s", check=POSITIVE, may_lack=False),
    },
)

DEVICE_SAMPLES = _strict(
    {
        **INSTANT,
        **_numbers("gpu_utilization_percent", "memory_utilization_percent", "memory_used_bytes", "power_w"),
        **_numbers("sm_clock_hz", "memory_clock_hz", "temperature_c"),
        **_texts("throttle_reasons", may_lack=True),  # names by semicolons; empty where none
    },
)

FINGERPRINTS = _strict(
    {
        **_texts("path"),
        **_texts("soname", "build_id", may_lack=True),
        "sha256": pa.Column(TEXT, pa.Check.str_length(64, 64)),
    },
)

LIBRARIES = ("operator", "onednn", "mkl", "cuda")

KERNELS = _strict(
    {
        **_wholes("rep", may_lack=False),
        **_texts("library", among=LIBRARIES),
        **_texts("kernel"),
        **_texts("shape", may_lack=True),
        **_numbers("calls_per_step", check=POSITIVE, may_lack=False),
        **_numbers("s_per_step"),
    },
)

# An estimate: its interval, the units behind it and the level; what could not be estimated has its reason.
ESTIMATE = {
    **_numbers("value", "low", "high"),
    **_texts("unit"),
    **_counts("n_units"),
    **_numbers("alpha", check=SHARE),
    **_texts("kind", among=KINDS),
    **_texts("source"),
    **_texts("reason", may_lack=True),
}
COST_CHECK = pa.Check(_could_not_has_reason, error="a cost without kind, or an unavailable one without its reason")

IMAGE_COSTS = _strict(
    {**_wholes("rep"), **_texts("item"), **MEASURED, **_texts("reason", may_lack=True)}, COST_CHECK
)

JOB_LENGTH = _strict(
    {
        **_texts("item", among=("host_fixed_s", "fixed_s", "step_share", "cost", "length_below")),
        **_numbers("length_s", check=POSITIVE),  # of steps, on the host
        **ESTIMATE,  # the value of length_below is infinite where no length is
    },
    COST_CHECK,
)

WEIGHTS = ("more", "less", "open")
CAUSES = ("nothing", "varied", "files", "phase", "once", "steps", "kernels", "operator", "unknown")


def _change_is_whole(table: pd.DataFrame) -> pd.Series:
    parts = ("change_level", "change_ratio_low", "change_ratio_high")
    return sum(table[name].isna() == table["change_factor"].isna() for name in parts) == len(parts)


def _job_has_length(table: pd.DataFrame) -> pd.Series:
    return (table["metric"] == "job_s") == table["length_s"].notna()


DECISIONS = _strict(
    {
        **_texts("metric", among=("real_s", "step_s", "job_s")),
        **_numbers("length_s", check=POSITIVE),  # of a job's steps, on the host
        **_texts("factor", "level", "reference"),  # factor: `environment`, that of an arm, `co_runner`
        **_numbers(
            "ratio", "ci_low", "ci_high", "seconds_low", "seconds_high", "control_ci_low", "control_ci_high"
        ),
        **_truths("control_reaches"),
        **_texts("kind", among=KINDS),
        **_counts("n_units"),
        **_numbers("alpha", check=SHARE),
        **_numbers("margin", check=POSITIVE, may_lack=False),
        **_texts("verdict", among=VERDICTS),
        **_texts("role", among=("primary", "exploratory")),
        **_wholes("rank", check=pa.Check.ge(1)),
        **_texts("weight", among=WEIGHTS, may_lack=True),
        **_texts("cause", among=CAUSES),
        **_texts("cause_what", may_lack=True),
        **_numbers("cause_share_low", "cause_share_high"),
        **_texts("change_factor", "change_level", may_lack=True),
        **_numbers("change_ratio_low", "change_ratio_high", check=POSITIVE),
        **_texts("reason", may_lack=True),
    },
    pa.Check(_change_is_whole, error="a change without its level or its gain, or a gain of none"),
    pa.Check(_job_has_length, error="a job without its length, or another row with one"),
)

STATES = ("opened", "sealed", "adopted", "superseded", "found", "gone")

LEDGER = _schema_of(
    {
        **_texts("study", MACHINE, "workload", "campaign"),
        **_wholes("attempt"),  # none of a campaign without a unit that counts
        **_texts("state", among=STATES),
        **_texts("folder", may_lack=True),  # superseded-<n>; none in the campaign's own
        **_texts("opened_at", "last_at"),
        **_wholes("units"),
        **_texts("launch", may_lack=True),
        **_numbers("ratio", "ci_low", "ci_high", "alpha"),
        **_texts(
            "plan_sha256", "note", "stamp", may_lack=True
        ),  # stamp: of sealed campaigns that were not set aside
    },
)

SCHEMAS = {
    "ledger": LEDGER,
    "metrics": METRICS,
    "verdicts": VERDICT_TABLE,
    "job_length": JOB_LENGTH,
    "decisions": DECISIONS,
    "counts": COUNTS,
    "operators": OPERATORS,
    "families": FAMILIES,
    "stack_profiles": STACK_PROFILES,
    "samples": SAMPLES,
    "steps": STEPS,
    "fingerprints": FINGERPRINTS,
    "kernels": KERNELS,
    "device_samples": DEVICE_SAMPLES,
}

AGREES = ("yes", "no", "not recomputable")
SAYS = ("established by its data", "not established by its data", "contradicted", "not recomputable")
HERE = ("holds here", "does not hold here", "open here", "not the same question")
SETTLED_HERE = HERE[:2]


def _measured_has_kind(table: pd.DataFrame) -> pd.Series:
    return table["measured"].notna() == table["measured_kind"].isin(("measured", "modelled"))


def _unsettled_has_reason(table: pd.DataFrame) -> pd.Series:
    return table["here"].isin(SETTLED_HERE) == table["reason"].isna()


FIGURE = {
    **_texts("figure"),  # "2" … "18", "log", "table I", "text"
    **_texts("workload", "env", may_lack=True),
    **_wholes("batch"),
    **_texts("metric"),
}

PUBLISHED = _schema_of(
    {
        **_texts("paper"),
        **FIGURE,
        **_texts("check"),
        **_numbers("published", "recomputed", "measured"),
        **_texts("measured_kind", among=KINDS, may_lack=True),
        **_texts("scaled", may_lack=True),  # of what was measured, as in IDENTITY
        **_texts("unit"),
        **_texts("agrees", among=AGREES),
        **_texts("note"),
    },
    pa.Check(_measured_has_kind, error="a measured value without kind, or a kind without its value"),
)

CLAIMS = _schema_of(
    {
        **_texts("paper", "claim", "workload"),
        **_texts("figures", may_lack=True),
        **_texts("statement"),
        **_texts("published_says", among=SAYS),
        **_texts("published_note"),
        **_texts("here", among=HERE),
        **_texts("match", "evidence"),  # match: device class, stack, runtimes: as published or other, named
        **_texts("scaled", "reason", may_lack=True),  # scaled: of the evidence, as in IDENTITY
    },
    pa.Check(_unsettled_has_reason, error="a claim left open without its reason, or settled with one"),
)

# What follows from a paper's own numbers: papers/findings.csv, which papers/compute_findings.py writes.
COMPUTED = _schema_of(
    {
        **_texts("paper", "id", "check"),
        **_texts("claim", may_lack=True),
        **FIGURE,
        **_numbers("published", "recomputed"),
        **_texts("unit"),
        **_texts("agrees", among=(*AGREES, *SAYS)),
        **_texts("note"),
    },
    unique=["paper", "id"],
)

# What studies published, judged: these tables carry a paper instead of a campaign's identity.
FINDINGS = {"findings": COMPUTED, "published": PUBLISHED, "claims": CLAIMS}
# What images cost: from image records and starts, not from campaigns.
COUNTED = {"image_costs": IMAGE_COSTS}


def _of_a_machine_names_it(table: pd.DataFrame) -> pd.Series:
    return table["machine"].notna() == (table["scope"] == "machine")


# Of a study that several machines measured: theirs, and those of equal machines together.
SIDE_BY_SIDE = _schema_of(
    {
        **_texts("study", "workload", "campaign", "environment", "metric"),
        **_texts("scope", among=("machine", "kind")),
        **_texts("machine_kind"),
        **_texts(MACHINE, may_lack=True),
        **_counts("n"),  # units of a machine, machines of a kind
        **_numbers("ratio", "ci_low", "ci_high", "control_ci_low", "control_ci_high", check=POSITIVE),
        **_numbers("between_sd", "between_low", "between_high"),
        **_numbers("further_low", "further_high", check=POSITIVE),
        **_numbers("alpha", check=SHARE),
        **_numbers("margin", check=POSITIVE),
        **_texts("verdict", among=VERDICTS, may_lack=True),
        **_texts("kind", among=KINDS),
        **_texts("reason", may_lack=True),
    },
    pa.Check(_of_a_machine_names_it, error="a row of a machine without its name, or another with one"),
)

# What two studies of one shape say of a claim, from the strongest to the weakest.
SAME, COMPATIBLE, UNDECIDED, NOT_COMPARED = "same", "compatible", "undecided", "not compared"
AGREEMENTS = (SAME, COMPATIBLE, "different", UNDECIDED, NOT_COMPARED)
SIDES = ("first", "second")


def _of_side(side: str) -> dict[str, pa.Column]:
    """What one of two studies states of a claim."""
    return {
        **_texts(*(f"{side}_{name}" for name in ("study", MACHINE, "campaign")), may_lack=True),
        **_wholes(f"{side}_n"),
        **_numbers(*(f"{side}_{name}" for name in ("ratio", "ci_low", "ci_high")), check=POSITIVE),
        **_numbers(f"{side}_alpha", check=SHARE),
        **_texts(f"{side}_verdict", among=VERDICTS, may_lack=True),
        **_wholes(f"{side}_rank", check=pa.Check.ge(1)),
        **_texts(f"{side}_cause", among=CAUSES, may_lack=True),
        **_texts(*(f"{side}_{name}" for name in ("cause_what", "change")), may_lack=True),
    }


def _uncompared_has_reason(table: pd.DataFrame) -> pd.Series:
    return (table["agreement"] != NOT_COMPARED) | table["reason"].notna()


# Two studies claim by claim: one that was published, and the same measured again.
AGREEMENT = _schema_of(
    {
        **_texts("workload", "scenario", "environment", "launch", "metric", "reference"),
        **_texts("compares", among=COMPARES),
        **_texts("role", among=("primary", "exploratory")),
        **_of_side(SIDES[0]),
        **_of_side(SIDES[1]),
        # of the second's ratio to the first's
        **_numbers("ratio", "ci_low", "ci_high", check=POSITIVE),
        **_numbers("alpha", check=SHARE),
        **_numbers("margin", check=POSITIVE, may_lack=False),
        **_texts("agreement", among=AGREEMENTS),
        **_texts("reason", may_lack=True),
    },
    pa.Check(_uncompared_has_reason, error="a claim that is not compared, without its reason"),
)
COMPARED = {"machines": SIDE_BY_SIDE, "agreement": AGREEMENT}


NAMES = (*SCHEMAS, *COUNTED, *FINDINGS, *COMPARED)


def _schema(name: str) -> pa.DataFrameSchema:
    return {**SCHEMAS, **FINDINGS, **COUNTED, **COMPARED}[name]


class _Same:
    """A table as a key: the same object, whatever equal ones there are."""

    def __init__(self, table: pd.DataFrame) -> None:
        self.table = table

    def __hash__(self) -> int:
        return id(self.table)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.table is self.table


def once_per_table(function: Callable[[pd.DataFrame], Found]) -> Callable[[pd.DataFrame], Found]:
    """Remember what a function finds in a table that it is asked about again and again.

    A table is never changed in place once it is read or made: a changed one is another object.
    """
    found = lru_cache(REMEMBERED)(lambda key: function(key.table))

    @wraps(function)
    def asked(table: pd.DataFrame) -> Found:
        return found(_Same(table))

    return asked


def make(name: str, rows: Sequence[Mapping[str, object]]) -> pd.DataFrame:
    """A table from rows, in its schema's columns and types. Raises IntegrityError: a row does not fit the schema: a
    defect of the code that made it.
    """
    columns = list(_schema(name).columns)
    if LEVELS in columns:
        place = columns.index(LEVELS)
        columns[place : place + 1] = columns_of_levels(key for row in rows for key in row)
    return _validate(name, pd.DataFrame(rows, columns=columns), f"new table {name}")


def write(name: str, table: pd.DataFrame, *paths: Path) -> None:
    """Write a table as CSV, Parquet or JSON (an object for each row), by the suffix of each path."""
    checked = _validate(name, table, f"table {name}")
    for path in paths:
        with atomic_path(path) as temporary:
            if path.suffix == ".parquet":
                checked.to_parquet(temporary, index=False)
            elif path.suffix == ".json":
                checked.to_json(temporary, orient="records", indent=1, double_precision=15, force_ascii=False)
            else:
                checked.to_csv(temporary, index=False)


def rows_of_parquet(path: Path) -> int:
    """Rows of a file, which may be small and have many. IntegrityError: it is none that can be read."""
    import pyarrow.parquet

    try:
        return int(pyarrow.parquet.read_metadata(path).num_rows)
    except (ValueError, OSError) as error:  # pyarrow's own errors are among them
        raise IntegrityError(f"{path} can't be read ({error}); delete it and run again") from error


def read(name: str, path: Path) -> pd.DataFrame:
    """Read a table back. Raises UserError: it is missing. IntegrityError: it does not fit its schema, or is larger
    than a table can be.
    """
    if not path.exists():
        raise UserError(f"no table {path}: make it with `snakemake {path}`")
    if path.stat().st_size > MOST_BYTES or (path.suffix == ".parquet" and rows_of_parquet(path) > MOST_ROWS):
        raise IntegrityError(f"{path} is larger than a table can be; delete it and run again")
    texts = {column: str for column, kind in _schema(name).columns.items() if str(kind.dtype).startswith("str")}
    try:
        if path.suffix == ".parquet":
            table = pd.read_parquet(path)
        else:
            texts |= dict.fromkeys(columns_of_levels(pd.read_csv(path, nrows=0).columns), str)
            table = pd.read_csv(path, dtype=texts)
    except (ValueError, OSError) as error:
        raise IntegrityError(f"{path} can't be read ({error}); delete it and run again") from error
    missing = MACHINE in _schema(name).columns and MACHINE not in table.columns and "study" in table.columns
    if missing or (FORMER_LEVELS in table.columns and LEVELS in _schema(name).columns):
        why = f"without the column {MACHINE}" if missing else f"with all levels in the column {FORMER_LEVELS}"
        raise IntegrityError(
            f"{path} is of an older version, {why}: make it again with `snakemake --cores 1 {path} --force`"
        )
    return _validate(name, table, str(path))


def machine_of(table: pd.DataFrame) -> str | None:
    """The machine of a table's rows; None where it has no rows. Raises IntegrityError: they are of several."""
    found = sorted(table[MACHINE].unique())
    if len(found) > 1:
        raise IntegrityError(f"rows of several machines ({', '.join(found)}) are in one table: extract it again")
    return str(found[0]) if found else None


def _validate(name: str, table: pd.DataFrame, where: str) -> pd.DataFrame:
    try:
        return _schema(name).validate(table)
    except (pa.errors.SchemaError, pa.errors.SchemaErrors) as error:
        first = " ".join(str(error).split())
        raise IntegrityError(f"{where} does not fit the schema of {name}: {first[:300]}") from error
