"""Scripted clients of the simulated node: producers, consumers, an admin, and a reader that runs at the
end.
"""
