"""Those who use the simulated node: producers, consumers, an administrator, and the one who reads it all in
the end.
"""
