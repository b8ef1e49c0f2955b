"""What runs beside the machine code: arguments, executables, libraries."""
