#!/bin/sh
# What became of a job, for Snakemake: running, success or failed, by its state and exit status in `qstat -f`.
# A job that has ended is told with -x by PBS; one that is known no more counts as failed, and is gone on with later.
told=$(qstat -f "$1" 2>&1) || told=$(qstat -x -f "$1" 2>&1) || case $told in
  *"nknown Job"*|*"has finished"*|"") echo failed; exit ;;
  *) echo running; exit ;;  # the server did not answer
esac
state=$(printf '%s\n' "$told" | sed -n 's/^[[:space:]]*job_state = //p')
case $state in
  C|F|X) case $(printf '%s\n' "$told" | sed -n 's/^[[:space:]]*[Ee]xit_status = //p') in 0) echo success ;; *) echo failed ;; esac ;;
  *) echo running ;;
esac
