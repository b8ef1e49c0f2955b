"""Scores: what masks say of the scores of attention."""
