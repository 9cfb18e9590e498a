"""Sample data, generated from a seed; the caller passes the time. One module per kind of data."""
