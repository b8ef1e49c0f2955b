"""What users do with modules beside the straight line: inputs, comparison, timing, dumps."""
