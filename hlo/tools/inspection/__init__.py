"""Inspection: what modules consist of and cost, as tables, queries, pictures and pages."""
