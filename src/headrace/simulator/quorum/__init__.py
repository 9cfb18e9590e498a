"""The machines of the metadata quorum without a node around them.

The network loses, delays, repeats and reorders messages, disks forget what was not synced, and judges check
every step.
"""
