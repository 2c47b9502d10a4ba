"""How long a training step takes on a target where it never ran; pure: records and numbers in, numbers out.

`work`: what a step does. `cases`: a step on a target, and one that was timed. `models`: three models side by side.
`predictor`: one of them with intervals, which refuses what it was not trained for. `judge`: whole groups left out.
"""
