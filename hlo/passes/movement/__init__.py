"""Movement: where elements lie when they are read, and what moves them there."""
