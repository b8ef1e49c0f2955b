"""Scores: attention over scores that no cache holds, put into one order, cut, or left out."""
