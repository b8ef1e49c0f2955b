"""Process: what a process has once: values, tables, locks, forks, memory, permissions."""
