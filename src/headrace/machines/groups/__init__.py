"""Consumer groups: who is a member, who owns which partition, and how far each group has read."""
