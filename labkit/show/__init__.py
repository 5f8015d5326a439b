"""Look: plots that take records and return Axes, and widgets that compute nothing."""
