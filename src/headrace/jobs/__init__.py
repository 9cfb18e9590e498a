"""Data jobs: a file that declares them, runners that share them, and what they do.

file.py            the file of `headrace jobs serve`
runner.py          carries out what headrace.machines.jobs decides
child.py           the process of one run
kinds/             what the jobs do, a file for each kind
"""
