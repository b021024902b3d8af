"""Judging: which structure of the drift, and which way to forecast, the user's own snapshots ask
for.
"""
