"""`tare weigh`: what an environment costs a user's own job, and which one difference explains it."""
