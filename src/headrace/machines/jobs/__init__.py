"""When data jobs run, what becomes of a run that ends, and which runner decides it."""
