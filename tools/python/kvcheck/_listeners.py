"""Who is told of each verdict of kvcheck.testing: called with (name of the check, Verdict). A module of its own, so that the
pytest plugin can listen in a run that never loads the judge."""
listeners = []
