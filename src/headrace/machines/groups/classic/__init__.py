"""The classic group protocol: members join, the leader assigns, and every member gets its assignment.

Empty ──join──> PreparingRebalance ──all joined, or time over──> CompletingRebalance ──leader syncs──> Stable
  ^                  │      ^                                         │                                  │
  └── nobody joined ─┘      └── a join, a leave, a lost member ───────┴──────────────────────────────────┘
"""
