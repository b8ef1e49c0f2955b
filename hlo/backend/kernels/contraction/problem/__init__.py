"""What is summed: index sets, numbers, where they lie and where their sums go."""
