"""What jobs do: a module for each kind, with `parse`, which reads the options, and `run`.

`run` returns whether all is done: False if it was asked to stop before.
"""
