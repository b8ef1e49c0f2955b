"""What users do with modules beyond the straight line: made-up inputs, comparison, timing, dumps."""
