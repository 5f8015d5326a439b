"""labkit: run, measure and explain distributed communication from a notebook cell."""
