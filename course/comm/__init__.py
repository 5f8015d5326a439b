"""What ranks do: patterns to sum, algorithms written by hand, buckets."""
