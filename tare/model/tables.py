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
REMEMBERED = 8  # tables whose answers `once_per_table` keeps

KINDS = ("measured", "modelled", "unavailable")
FORMER_LEVELS = "arm"  # the column of older versions
MACHINE = "machine"  # the column that they lack
INCONCLUSIVE = "inconclusive"
VERDICTS = (
    "equivalent",
    "equivalent but for stalls",
    "different within margin",
    "different within margin but for stalls",
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

IDENTITY = {
    "study": pa.Column(TEXT),
    MACHINE: pa.Column(TEXT),
    "campaign": pa.Column(TEXT),
    "scenario": pa.Column(TEXT),
    "workload": pa.Column(TEXT),
    # A launch of a unit by its name; what the name says stands in the three columns behind it.
    "launch": pa.Column(TEXT),
    "environment": pa.Column(TEXT),
    "launch_role": pa.Column(TEXT, pa.Check.isin(ROLES)),
    "co_runner": pa.Column(pd.BooleanDtype()),  # whether another job trained beside it
    "stack": pa.Column(TEXT),
    # One for each factor that the table's rows have a level of; empty where a row has none.
    LEVELS: pa.Column(TEXT, nullable=True, required=False, regex=True),
    "batch": pa.Column(pd.Int64Dtype(), nullable=True),
    # What of the job is not as it was published, beside what was; empty where it is, or nothing was published.
    "scaled": pa.Column(TEXT, nullable=True),
}


def _strict(columns: dict[str, pa.Column], checks: pa.Check | list[pa.Check] | None = None) -> pa.DataFrameSchema:
    """Identity and `columns`, in this order, nothing else."""
    return pa.DataFrameSchema({**IDENTITY, **columns}, checks=checks, strict=True, ordered=True, coerce=True)


def _could_not_has_reason(table: pd.DataFrame) -> pd.Series:
    unavailable = table["kind"] == "unavailable"
    return (unavailable & table["value"].isna() & table["reason"].notna()) | (
        ~unavailable & table["value"].notna() & table["reason"].isna()
    )


METRICS = _strict(
    {
        "rep": pa.Column(pd.Int64Dtype(), nullable=True),
        "metric": pa.Column(TEXT),
        "value": pa.Column(float, nullable=True),
        "unit": pa.Column(TEXT),
        "kind": pa.Column(TEXT, pa.Check.isin(KINDS)),
        "source": pa.Column(TEXT),
        "reason": pa.Column(TEXT, nullable=True),
    },
    checks=pa.Check(_could_not_has_reason, error="a value without kind, or an unavailable one without its reason"),
)

VERDICT_TABLE = _strict(
    {
        "metric": pa.Column(TEXT),
        "reference": pa.Column(TEXT),
        "compares": pa.Column(TEXT, pa.Check.isin(COMPARES)),
        "role": pa.Column(TEXT, pa.Check.isin(("primary", "exploratory"))),
        "attempt": pa.Column(pd.Int64Dtype(), nullable=True),  # which try of its question the campaign is
        "n_units": pa.Column(int, pa.Check.ge(0)),
        "ratio": pa.Column(float, nullable=True),
        "ci_low": pa.Column(float, nullable=True),
        "ci_high": pa.Column(float, nullable=True),
        "total_ratio": pa.Column(float, nullable=True),
        "total_ci_low": pa.Column(float, nullable=True),
        "total_ci_high": pa.Column(float, nullable=True),
        "total_verdict": pa.Column(TEXT, pa.Check.isin(PLAIN)),
        "stalls_ci_low": pa.Column(float, nullable=True),
        "stalls_ci_high": pa.Column(float, nullable=True),
        "steps": pa.Column(pd.Int64Dtype(), nullable=True),
        "alpha": pa.Column(float, pa.Check.in_range(0, 1)),
        "family_size": pa.Column(int, pa.Check.ge(1)),
        "family_alpha": pa.Column(float, pa.Check.in_range(0, 1)),
        "margin": pa.Column(float, pa.Check.gt(0)),
        "verdict": pa.Column(TEXT, pa.Check.isin(VERDICTS)),
        "all_within": pa.Column(float, nullable=True),
        "control_ratio": pa.Column(float, nullable=True),
        "control_ci_low": pa.Column(float, nullable=True),
        "control_ci_high": pa.Column(float, nullable=True),
        "control_reaches": pa.Column(pd.BooleanDtype(), nullable=True),
        "sliced": pa.Column(pd.BooleanDtype(), nullable=True),
        "unsliced_reason": pa.Column(TEXT, nullable=True),
        "switch_factor": pa.Column(float, nullable=True),
        "switch_more_ms": pa.Column(float, nullable=True),
        "switch_more_ci_low_ms": pa.Column(float, nullable=True),
        "switch_more_ci_high_ms": pa.Column(float, nullable=True),
        "design": pa.Column(TEXT, pa.Check.isin(("stein", "fixed"))),
        "bootstrap_low": pa.Column(float, nullable=True),
        "bootstrap_high": pa.Column(float, nullable=True),
        "more_units": pa.Column(pd.Int64Dtype(), nullable=True),
        "launches": pa.Column(int, pa.Check.ge(0)),
        "failures": pa.Column(int, pa.Check.ge(0)),
        "timeouts": pa.Column(int, pa.Check.ge(0)),
        "failure_share_low": pa.Column(float, pa.Check.in_range(0, 1)),
        "failure_share_high": pa.Column(float, pa.Check.in_range(0, 1)),
        "reason": pa.Column(TEXT, nullable=True),
    },
)

COUNTS = _strict(
    {
        "metric": pa.Column(TEXT),
        "n_units": pa.Column(int, pa.Check.ge(0)),
        "host": pa.Column(float, nullable=True),
        "value": pa.Column(float, nullable=True),
        "difference": pa.Column(float, nullable=True),
        "ci_low": pa.Column(float, nullable=True),
        "ci_high": pa.Column(float, nullable=True),
        "control_difference": pa.Column(float, nullable=True),
        "control_ci_low": pa.Column(float, nullable=True),
        "control_ci_high": pa.Column(float, nullable=True),
        "alpha": pa.Column(float, pa.Check.in_range(0, 1)),
        "family_size": pa.Column(int, pa.Check.ge(1)),
        "reason": pa.Column(TEXT, nullable=True),
    },
)

OPERATORS = _strict(
    {
        "operator": pa.Column(TEXT),
        "calls_per_step": pa.Column(float, nullable=True),
        "self_s_per_step": pa.Column(float, nullable=True),
        "flops_per_step": pa.Column(float, nullable=True),
        "bytes_per_step": pa.Column(float, nullable=True),
    },
)

FAMILIES = _strict(
    {
        "family": pa.Column(TEXT),
        "steps": pa.Column(int, pa.Check.ge(0)),
        "calls_per_step": pa.Column(float, nullable=True),
        "self_s_per_step": pa.Column(float, nullable=True),
        "self_s_sd": pa.Column(float, nullable=True),
        "flops_per_step": pa.Column(float, nullable=True),
        "elementwise_flops_per_step": pa.Column(float, nullable=True),
        "bytes_per_step": pa.Column(float, nullable=True),
    },
)

# Families of operators in the stacks of a study, each from one profiled launch: no timing, no interval. Without
# operators, one row with the reason.
STACK_PROFILES = _strict(
    {
        "level": pa.Column(TEXT),  # of the factor stack; `same` is the headline's
        "source": pa.Column(TEXT, nullable=True),
        "family": pa.Column(TEXT, nullable=True),
        "steps": pa.Column(int, pa.Check.ge(0)),
        "calls_per_step": pa.Column(float, nullable=True),
        "self_s_per_step": pa.Column(float, nullable=True),
        "self_s_sd": pa.Column(float, nullable=True),
        "plain_step_s": pa.Column(float, nullable=True),  # without the profiler
        "reason": pa.Column(TEXT, nullable=True),
    },
    pa.Check(lambda table: table["family"].isna() == table["reason"].notna()),
)

# Instants of samples: from the launcher's call on, and from the start of the first step on (start-up is negative).
INSTANT = {"at_s": pa.Column(float), "aligned_s": pa.Column(float, nullable=True)}

SAMPLES = _strict(
    {
        **INSTANT,
        "cpu_percent": pa.Column(float, nullable=True),  # of one CPU; it and its children
        "rss_bytes": pa.Column(float, nullable=True),
        "cgroup_memory_bytes": pa.Column(float, nullable=True),
        "processes": pa.Column(pd.Int64Dtype(), nullable=True),
        "read_bytes_per_s": pa.Column(float, nullable=True),
        "written_bytes_per_s": pa.Column(float, nullable=True),
        "asked_bytes_per_s": pa.Column(float, nullable=True),
        "throttled_percent": pa.Column(float, nullable=True),  # of the time
    },
)

# Steps on batches of the loader, from the start of the first step of the launch on.
STEPS = _strict(
    {
        "step": pa.Column(int, pa.Check.ge(1)),
        "start_s": pa.Column(float),
        "end_s": pa.Column(float),
        "samples_per_s": pa.Column(float, pa.Check.gt(0)),
    },
)

DEVICE_SAMPLES = _strict(
    {
        **INSTANT,
        "gpu_utilization_percent": pa.Column(float, nullable=True),
        "memory_utilization_percent": pa.Column(float, nullable=True),
        "memory_used_bytes": pa.Column(float, nullable=True),
        "power_w": pa.Column(float, nullable=True),
        "sm_clock_hz": pa.Column(float, nullable=True),
        "memory_clock_hz": pa.Column(float, nullable=True),
        "temperature_c": pa.Column(float, nullable=True),
        "throttle_reasons": pa.Column(TEXT, nullable=True),  # names by semicolons; empty where none
    },
)

FINGERPRINTS = _strict(
    {
        "path": pa.Column(TEXT),
        "soname": pa.Column(TEXT, nullable=True),
        "build_id": pa.Column(TEXT, nullable=True),
        "sha256": pa.Column(TEXT, pa.Check.str_length(64, 64)),
    },
)

LIBRARIES = ("operator", "onednn", "mkl", "cuda")

KERNELS = _strict(
    {
        "rep": pa.Column(pd.Int64Dtype()),
        "library": pa.Column(TEXT, pa.Check.isin(LIBRARIES)),
        "kernel": pa.Column(TEXT),
        "shape": pa.Column(TEXT, nullable=True),
        "calls_per_step": pa.Column(float, pa.Check.gt(0)),
        "s_per_step": pa.Column(float, nullable=True),
    },
)

# An estimate: its interval, the units behind it and the level; what could not be estimated has its reason.
ESTIMATE = {
    "value": pa.Column(float, nullable=True),
    "low": pa.Column(float, nullable=True),
    "high": pa.Column(float, nullable=True),
    "unit": pa.Column(TEXT),
    "n_units": pa.Column(int, pa.Check.ge(0)),
    "alpha": pa.Column(float, pa.Check.in_range(0, 1), nullable=True),
    "kind": pa.Column(TEXT, pa.Check.isin(KINDS)),
    "source": pa.Column(TEXT),
    "reason": pa.Column(TEXT, nullable=True),
}
COST_CHECK = pa.Check(_could_not_has_reason, error="a cost without kind, or an unavailable one without its reason")

IMAGE_COSTS = _strict(
    {
        "rep": pa.Column(pd.Int64Dtype(), nullable=True),
        "item": pa.Column(TEXT),
        "value": pa.Column(float, nullable=True),
        "unit": pa.Column(TEXT),
        "kind": pa.Column(TEXT, pa.Check.isin(KINDS)),
        "source": pa.Column(TEXT),
        "reason": pa.Column(TEXT, nullable=True),
    },
    checks=COST_CHECK,
)

JOB_LENGTH = _strict(
    {
        "item": pa.Column(TEXT, pa.Check.isin(("host_fixed_s", "fixed_s", "step_share", "cost", "length_below"))),
        "length_s": pa.Column(float, pa.Check.gt(0), nullable=True),  # of steps, on the host
        **ESTIMATE,  # the value of length_below is infinite where no length is
    },
    checks=COST_CHECK,
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
        "metric": pa.Column(TEXT, pa.Check.isin(("real_s", "step_s", "job_s"))),
        "length_s": pa.Column(float, pa.Check.gt(0), nullable=True),  # of a job's steps, on the host
        "factor": pa.Column(TEXT),  # `environment`, that of an arm, `co_runner`
        "level": pa.Column(TEXT),
        "reference": pa.Column(TEXT),
        "ratio": pa.Column(float, nullable=True),
        "ci_low": pa.Column(float, nullable=True),
        "ci_high": pa.Column(float, nullable=True),
        "seconds_low": pa.Column(float, nullable=True),
        "seconds_high": pa.Column(float, nullable=True),
        "control_ci_low": pa.Column(float, nullable=True),
        "control_ci_high": pa.Column(float, nullable=True),
        "control_reaches": pa.Column(pd.BooleanDtype(), nullable=True),
        "kind": pa.Column(TEXT, pa.Check.isin(KINDS)),
        "n_units": pa.Column(int, pa.Check.ge(0)),
        "alpha": pa.Column(float, pa.Check.in_range(0, 1), nullable=True),
        "margin": pa.Column(float, pa.Check.gt(0)),
        "verdict": pa.Column(TEXT, pa.Check.isin(VERDICTS)),
        "role": pa.Column(TEXT, pa.Check.isin(("primary", "exploratory"))),
        "rank": pa.Column(pd.Int64Dtype(), pa.Check.ge(1), nullable=True),
        "weight": pa.Column(TEXT, pa.Check.isin(WEIGHTS), nullable=True),
        "cause": pa.Column(TEXT, pa.Check.isin(CAUSES)),
        "cause_what": pa.Column(TEXT, nullable=True),
        "cause_share_low": pa.Column(float, nullable=True),
        "cause_share_high": pa.Column(float, nullable=True),
        "change_factor": pa.Column(TEXT, nullable=True),
        "change_level": pa.Column(TEXT, nullable=True),
        "change_ratio_low": pa.Column(float, pa.Check.gt(0), nullable=True),
        "change_ratio_high": pa.Column(float, pa.Check.gt(0), nullable=True),
        "reason": pa.Column(TEXT, nullable=True),
    },
    checks=[
        pa.Check(_change_is_whole, error="a change without its level or its gain, or a gain of none"),
        pa.Check(_job_has_length, error="a job without its length, or another row with one"),
    ],
)

OF_LEVELS = ("more_faults", "level_cost_s", "level_share", "fault_share")
FAULT_ITEMS_OF = {
    "host": ("fault_cost_s", *OF_LEVELS),
    "others": (*OF_LEVELS, "measured_ratio", "modelled_ratio", "measured_by_modelled", "equal_faults_ratio"),
}
FAULT_ITEMS = tuple(dict.fromkeys(item for items in FAULT_ITEMS_OF.values() for item in items))
FAULT_COSTS = _strict({"item": pa.Column(TEXT, pa.Check.isin(FAULT_ITEMS)), **ESTIMATE}, checks=COST_CHECK)

STATES = ("opened", "sealed", "adopted", "superseded", "found", "gone")

LEDGER = pa.DataFrameSchema(
    {
        "study": pa.Column(TEXT),
        MACHINE: pa.Column(TEXT),
        "workload": pa.Column(TEXT),
        "campaign": pa.Column(TEXT),
        "attempt": pa.Column(pd.Int64Dtype(), nullable=True),  # none of a campaign without a unit that counts
        "state": pa.Column(TEXT, pa.Check.isin(STATES)),
        "folder": pa.Column(TEXT, nullable=True),  # superseded-<n>; none in the campaign's own
        "opened_at": pa.Column(TEXT),
        "last_at": pa.Column(TEXT),
        "units": pa.Column(pd.Int64Dtype(), nullable=True),
        "launch": pa.Column(TEXT, nullable=True),
        "ratio": pa.Column(float, nullable=True),
        "ci_low": pa.Column(float, nullable=True),
        "ci_high": pa.Column(float, nullable=True),
        "alpha": pa.Column(float, nullable=True),
        "plan_sha256": pa.Column(TEXT, nullable=True),
        "note": pa.Column(TEXT, nullable=True),
        "stamp": pa.Column(TEXT, nullable=True),  # of sealed campaigns that were not set aside
    },
    strict=True,
    ordered=True,
    coerce=True,
)

SCHEMAS = {
    "ledger": LEDGER,
    "metrics": METRICS,
    "verdicts": VERDICT_TABLE,
    "job_length": JOB_LENGTH,
    "fault_costs": FAULT_COSTS,
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


PUBLISHED = pa.DataFrameSchema(
    {
        "paper": pa.Column(TEXT),
        "figure": pa.Column(TEXT),  # "2" … "18", "log", "table I", "text"
        "workload": pa.Column(TEXT, nullable=True),
        "env": pa.Column(TEXT, nullable=True),
        "batch": pa.Column(pd.Int64Dtype(), nullable=True),
        "metric": pa.Column(TEXT),
        "check": pa.Column(TEXT),
        "published": pa.Column(float, nullable=True),
        "recomputed": pa.Column(float, nullable=True),
        "measured": pa.Column(float, nullable=True),
        "measured_kind": pa.Column(TEXT, pa.Check.isin(KINDS), nullable=True),
        "scaled": pa.Column(TEXT, nullable=True),  # of what was measured, as in IDENTITY
        "unit": pa.Column(TEXT),
        "agrees": pa.Column(TEXT, pa.Check.isin(AGREES)),
        "note": pa.Column(TEXT),
    },
    checks=pa.Check(_measured_has_kind, error="a measured value without kind, or a kind without its value"),
    strict=True,
    ordered=True,
    coerce=True,
)

CLAIMS = pa.DataFrameSchema(
    {
        "paper": pa.Column(TEXT),
        "claim": pa.Column(TEXT),
        "workload": pa.Column(TEXT),
        "figures": pa.Column(TEXT, nullable=True),
        "statement": pa.Column(TEXT),
        "published_says": pa.Column(TEXT, pa.Check.isin(SAYS)),
        "published_note": pa.Column(TEXT),
        "here": pa.Column(TEXT, pa.Check.isin(HERE)),
        "match": pa.Column(TEXT),  # device class, stack, runtimes: as published or other, named
        "evidence": pa.Column(TEXT),
        "scaled": pa.Column(TEXT, nullable=True),  # of the evidence, as in IDENTITY
        "reason": pa.Column(TEXT, nullable=True),
    },
    checks=pa.Check(_unsettled_has_reason, error="a claim left open without its reason, or settled with one"),
    strict=True,
    ordered=True,
    coerce=True,
)

# What follows from a paper's own numbers: papers/findings.csv, which papers/compute_findings.py writes.
COMPUTED = pa.DataFrameSchema(
    {
        "paper": pa.Column(TEXT),
        "id": pa.Column(TEXT),
        "check": pa.Column(TEXT),
        "claim": pa.Column(TEXT, nullable=True),
        **{name: PUBLISHED.columns[name] for name in ("figure", "workload", "env", "batch", "metric")},
        **{name: PUBLISHED.columns[name] for name in ("published", "recomputed", "unit")},
        "agrees": pa.Column(TEXT, pa.Check.isin((*AGREES, *SAYS))),
        "note": pa.Column(TEXT),
    },
    unique=["paper", "id"],
    strict=True,
    ordered=True,
    coerce=True,
)

# What studies published, judged: these tables carry a paper instead of a campaign's identity.
FINDINGS = {"findings": COMPUTED, "published": PUBLISHED, "claims": CLAIMS}
# What images cost: from image records and starts, not from campaigns.
COUNTED = {"image_costs": IMAGE_COSTS}


NAMES = (*SCHEMAS, *COUNTED, *FINDINGS)


def _schema(name: str) -> pa.DataFrameSchema:
    return {**SCHEMAS, **FINDINGS, **COUNTED}[name]


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
    """A table from rows, in its schema's columns and types.

    Raises IntegrityError: a row does not fit the schema: a defect of the code that made it.
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


def read(name: str, path: Path) -> pd.DataFrame:
    """Read a table back. Raises UserError: it is missing. IntegrityError: it does not fit its schema."""
    if not path.exists():
        raise UserError(f"no table {path}: make it with `snakemake {path}`")
    texts = {column: str for column, told in _schema(name).columns.items() if str(told.dtype).startswith("str")}
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
    """The machine that a table's rows are of; None where it has none.

    Raises IntegrityError: they are of several.
    """
    found = sorted(table[MACHINE].unique())
    if len(found) > 1:
        raise IntegrityError(f"rows of several machines ({', '.join(found)}) are in one table: extract it again")
    return str(found[0]) if found else None


def _validate(name: str, table: pd.DataFrame, where: str) -> pd.DataFrame:
    try:
        return _schema(name).validate(table)
    except (pa.errors.SchemaError, pa.errors.SchemaErrors) as error:
        first = str(error).strip().splitlines()[0]
        raise IntegrityError(f"{where} does not fit the schema of {name}: {first[:300]}") from error
