"""Fusion: which instructions form one kernel, written down as HLO."""
