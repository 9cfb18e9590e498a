"""The machines of the metadata quorum without a node around them: a network that loses, delays, repeats and
reorders, disks that forget what was not synced, and judges that look at every step.
"""
