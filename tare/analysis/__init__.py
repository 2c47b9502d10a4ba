"""From records to tables, verdicts, causes, rooflines and costs; never starts anything.

`extract` makes all tables, `reference` those of a recorded campaign. Its modules by subject:

- rows of launches: `launch_rows`, `profile_rows`, `sliced_rounds`, `metrics`, `pipeline`
- comparisons and verdicts: `choice`, `bounds`, `copies`, `switch_costs`, `verdicts`, `tries`
- in addition to the verdicts: `step_counts`, `job_length`, `compilers`
- reasons and advice: `causes`, `suspects`, `reasons`, `decisions`
- what the machine can do: `ceilings`, `roofs`, `network`
- images: `image_costs`, `break_even`
- plans: `expected`, `forecast`, `minutes`
"""
