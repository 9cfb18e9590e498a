"""The classic protocol: members join, the one that leads assigns, and everybody fetches its share.

Empty ──join──> PreparingRebalance ──all joined, or time over──> CompletingRebalance ──leader syncs──> Stable
  ^                  │      ^                                         │                                  │
  └── nobody joined ─┘      └── a join, a leave, a lost member ───────┴──────────────────────────────────┘
"""
