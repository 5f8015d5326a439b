"""A cluster on a laptop: hosts on one machine, joined by shaped links."""
