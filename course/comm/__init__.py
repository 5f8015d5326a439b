"""What ranks do: the table of collectives, algorithms written by hand, buckets."""
